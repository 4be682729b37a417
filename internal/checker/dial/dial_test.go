package dial

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

// listen returns a listener and a connection that reaches it.
func listen(t *testing.T, addr string) (net.Listener, config.Connection) {
	t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		t.Skipf("listen on %s: %v", addr, err)
	}
	t.Cleanup(func() { l.Close() })
	return l, config.Connection{Target: netip.MustParseAddrPort(l.Addr().String()), Timeout: 5 * time.Second}
}

func accept(t *testing.T, l net.Listener) net.Conn {
	t.Helper()
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestTCPConnectsReadsAndWrites(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, c := listen(t, addr)
		conn, err := TCP(t.Context(), &c)
		if err != nil {
			t.Fatal(err)
		}
		peer := accept(t, l)
		if _, err := conn.Write([]byte("ping")); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 4)
		if _, err := io.ReadFull(peer, buf); err != nil || string(buf) != "ping" {
			t.Errorf("peer got %q, %v", buf, err)
		}
		if got := conn.RemoteAddr().String(); got != c.Target.String() {
			t.Errorf("remote %s, want %s", got, c.Target)
		}
		conn.Close()
		// A normal close is a FIN: the peer reads the end, no error.
		if n, err := peer.Read(buf); n != 0 || err != io.EOF {
			t.Errorf("peer read %d, %v after Close, want EOF", n, err)
		}
		if _, err := conn.Read(buf); err == nil {
			t.Error("read from a closed connection")
		}
	}
}

func TestTCPMappedTargetIsIPv4(t *testing.T) {
	_, c := listen(t, "127.0.0.1:0")
	c.Target = netip.AddrPortFrom(netip.AddrFrom16(c.Target.Addr().As16()), c.Target.Port())
	conn, err := TCP(t.Context(), &c)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
}

func TestSourceAddressAndPortAreSeenByThePeer(t *testing.T) {
	l, c := listen(t, "127.0.0.1:0")
	c.BindAddr = netip.MustParseAddr("127.0.0.77")
	conn, err := TCP(t.Context(), &c)
	if err != nil {
		t.Fatal(err)
	}
	if got := accept(t, l).RemoteAddr().(*net.TCPAddr).AddrPort(); got.Addr() != c.BindAddr {
		t.Errorf("peer sees %v", got)
	}
	conn.Close()

	// The same source port again and again, at once.
	free, _ := listen(t, "127.0.0.1:0")
	c.BindPort = uint16(free.Addr().(*net.TCPAddr).Port)
	free.Close()
	for range 3 {
		conn, err := TCP(t.Context(), &c)
		if err != nil {
			t.Fatal(err)
		}
		peer := accept(t, l)
		if got := peer.RemoteAddr().String(); got != netip.AddrPortFrom(c.BindAddr, c.BindPort).String() {
			t.Errorf("peer sees %v", got)
		}
		conn.Close()
		if _, err := peer.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("peer read %v, want a reset", err)
		}
	}
}

func TestPortWithoutAddressHasNoEffect(t *testing.T) {
	l, c := listen(t, "127.0.0.1:0")
	c.BindPort = 1
	conn, err := TCP(t.Context(), &c)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if p := accept(t, l).RemoteAddr().(*net.TCPAddr).Port; p == 1 {
		t.Error("source port 1 was used")
	}
}

func TestInterfaceAndMark(t *testing.T) {
	l, c := listen(t, "127.0.0.1:0")
	c.BindIf = "lo"
	if os.Getuid() == 0 {
		c.FWMark = 0xfffffffe
	}
	conn, err := TCP(t.Context(), &c)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	accept(t, l)
	raw, err := conn.f.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	raw.Control(func(fd uintptr) {
		if dev, err := unix.GetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE); err != nil || dev != "lo" {
			t.Errorf("bound to %q, %v", dev, err)
		}
		if mark, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK); err != nil || uint32(mark) != c.FWMark {
			t.Errorf("mark %#x, %v, want %#x", mark, err, c.FWMark)
		}
	})
}

// C02: errors that arrive at once are told apart by whose fault they are.
func TestC02ErrorsAtOnce(t *testing.T) {
	_, ok := listen(t, "127.0.0.1:0")
	closed, refused := listen(t, "127.0.0.1:0")
	closed.Close()
	used, _ := listen(t, "127.0.0.1:0")
	usedPort := uint16(used.Addr().(*net.TCPAddr).Port)
	with := func(c config.Connection, f func(*config.Connection)) config.Connection { f(&c); return c }
	tests := []struct {
		name   string
		conn   config.Connection
		want   checker.Result
		reason string
	}{
		{"refused", refused, checker.Failed, "connection refused (ECONNREFUSED)"},
		{"source address missing", with(ok, func(c *config.Connection) { c.BindAddr = netip.MustParseAddr("192.0.2.99") }),
			checker.Unable, "source address 192.0.2.99 is not on this machine: cannot assign requested address (EADDRNOTAVAIL)"},
		{"source address and port missing", with(ok, func(c *config.Connection) { c.BindAddr, c.BindPort = netip.MustParseAddr("192.0.2.99"), 4000 }),
			checker.Unable, "source address 192.0.2.99:4000 is not on this machine"},
		{"source port in use", with(ok, func(c *config.Connection) { c.BindAddr, c.BindPort = netip.MustParseAddr("127.0.0.1"), usedPort }),
			checker.Unable, "cannot be used: address already in use (EADDRINUSE)"},
		{"source address of the other family", with(ok, func(c *config.Connection) { c.BindAddr = netip.MustParseAddr("::1") }),
			checker.Unable, "source address ::1 cannot be used"},
		{"interface missing", with(ok, func(c *config.Connection) { c.BindIf = "nosuchif0" }),
			checker.Unable, "interface nosuchif0 cannot be used: no such device (ENODEV)"},
		{"zone missing", with(ok, func(c *config.Connection) { c.Target = netip.MustParseAddrPort("[fe80::1%nosuchif0]:80") }),
			checker.Unable, "no such device (ENODEV)"},
		{"no target", with(ok, func(c *config.Connection) { c.Target = netip.AddrPort{} }),
			checker.Unable, "no socket: address family not supported by protocol (EAFNOSUPPORT)"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			began := time.Now()
			conn, err := TCP(t.Context(), &tt.conn)
			if err == nil {
				conn.Close()
				t.Fatal("connected")
			}
			o := Outcome(checker.Site{Stage: checker.StageConnect, Step: "connect to", Peer: tt.conn.Target.String()}, err, began)
			if o.Result != tt.want || !strings.Contains(o.Reason, tt.reason) {
				t.Errorf("%v: %q\nwant %v: ...%q", o.Result, o.Reason, tt.want, tt.reason)
			}
			if !strings.HasPrefix(o.Reason, "connect to "+tt.conn.Target.String()+": ") || !strings.Contains(o.Reason, " after ") {
				t.Errorf("reason %q lacks step, target or elapsed", o.Reason)
			}
			if e, ok := errors.AsType[*Error](err); !ok || e.Error() == "" {
				t.Errorf("error is a %T", err)
			}
		})
	}
}

// inNS runs f on a thread of its own in a fresh network namespace.
func inNS(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root for a network namespace")
	}
	reason := make(chan string)
	go func() {
		// The thread is not unlocked: it dies with the goroutine and its namespace.
		runtime.LockOSThread()
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			reason <- fmt.Sprintf("needs a network namespace: %v", err)
			return
		}
		for _, args := range []string{
			"link set lo up", "addr add 198.51.100.1/32 dev lo",
			"route add unreachable 192.0.2.1", "route add blackhole 192.0.2.2", "route add prohibit 192.0.2.3",
		} {
			if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
				reason <- fmt.Sprintf("needs ip(8) with %q: %v: %s", args, err, out)
				return
			}
		}
		f()
		reason <- ""
	}()
	if r := <-reason; r != "" {
		t.Skip(r)
	}
}

func TestC02Routes(t *testing.T) {
	inNS(t, func() {
		for _, tt := range []struct {
			target, reason string
			want           checker.Result
		}{
			{"192.0.2.1:80", "no route to host (EHOSTUNREACH)", checker.Failed},
			{"203.0.113.1:80", "network is unreachable (ENETUNREACH)", checker.Failed},
			{"192.0.2.2:80", "invalid argument (EINVAL)", checker.Unable},
			{"192.0.2.3:80", "permission denied (EACCES)", checker.Unable},
			{"[2001:db8::1]:80", "network is unreachable (ENETUNREACH)", checker.Failed},
		} {
			c := config.Connection{Target: netip.MustParseAddrPort(tt.target), Timeout: time.Second}
			began := time.Now()
			_, err := TCP(t.Context(), &c)
			if o := Outcome(checker.Site{Stage: checker.StageConnect, Step: "connect to", Peer: tt.target}, err, began); o.Result != tt.want || !strings.Contains(o.Reason, tt.reason) {
				t.Errorf("%v: %q, want %v: %q", o.Result, o.Reason, tt.want, tt.reason)
			}
		}
	})
}

func TestEphemeralPortsExhausted(t *testing.T) {
	inNS(t, func() {
		// Two ports, both taken by connections to the one target.
		if out, err := exec.Command("sysctl", "-qw", "net.ipv4.ip_local_port_range=40000 40001").CombinedOutput(); err != nil {
			t.Errorf("sysctl: %v: %s", err, out)
			return
		}
		l, err := net.Listen("tcp", "198.51.100.1:80")
		if err != nil {
			t.Error(err)
			return
		}
		defer l.Close()
		c := config.Connection{Target: netip.MustParseAddrPort("198.51.100.1:80"), Timeout: time.Second}
		for range 3 {
			var conn *Conn
			began := time.Now()
			if conn, err = TCP(t.Context(), &c); err == nil {
				defer conn.Close()
				continue
			}
			o := Outcome(checker.Site{Stage: checker.StageConnect, Step: "connect to", Peer: c.Target.String()}, err, began)
			if o.Result != checker.Unable || !strings.Contains(o.Reason, "no free local port") {
				t.Errorf("%v: %q", o.Result, o.Reason)
			}
			return
		}
		t.Error("three connections from two ports")
	})
}

// full returns a listener whose backlog is full, so that a connect gets no answer.
func full(t *testing.T) config.Connection {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Listen(fd, 0); err != nil {
		t.Fatal(err)
	}
	sa, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	c := config.Connection{
		Target:  netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(sa.(*unix.SockaddrInet4).Port)),
		Timeout: 50 * time.Millisecond,
	}
	for range 8 {
		conn, err := TCP(t.Context(), &c)
		if err != nil {
			return c
		}
		t.Cleanup(func() { conn.Close() })
	}
	t.Fatal("the backlog does not fill")
	return c
}

func TestDeadlineEndsTheConnect(t *testing.T) {
	c := full(t)
	for name, f := range map[string]func() (*Conn, error){
		"timeout": func() (*Conn, error) { return TCP(t.Context(), &c) },
		"context": func() (*Conn, error) {
			ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
			defer stop()
			long := c
			long.Timeout = time.Hour
			return TCP(ctx, &long)
		},
	} {
		began := time.Now()
		_, err := f()
		o := Outcome(checker.Site{Stage: checker.StageConnect, Step: "connect to", Peer: c.Target.String()}, err, began)
		if o.Result != checker.Failed || !strings.Contains(o.Reason, "no answer in time") {
			t.Errorf("%s: %v: %q", name, o.Result, o.Reason)
		}
		if o.Took < 50*time.Millisecond || o.Took > 2*time.Second {
			t.Errorf("%s: took %v", name, o.Took)
		}
	}
}

func TestDeadlineHoldsForReads(t *testing.T) {
	l, c := listen(t, "127.0.0.1:0")
	c.Timeout = 50 * time.Millisecond
	conn, err := TCP(t.Context(), &c)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	accept(t, l)
	// Nobody may extend it.
	conn.SetDeadline(time.Time{})
	conn.SetReadDeadline(time.Now().Add(time.Hour))
	conn.SetWriteDeadline(time.Now().Add(time.Hour))
	if _, err := conn.Read(make([]byte, 1)); err != os.ErrDeadlineExceeded {
		t.Errorf("read: %v", err)
	}
}

func TestNotAskedInTimeIsUnable(t *testing.T) {
	_, c := listen(t, "127.0.0.1:0")
	ctx, stop := context.WithDeadline(t.Context(), time.Now())
	defer stop()
	_, err := TCP(ctx, &c)
	if o := Outcome(checker.Site{Stage: checker.StageConnect, Step: "connect to", Peer: "x"}, err, time.Now()); o.Result != checker.Unable || !strings.Contains(o.Reason, "connect to x: the deadline had passed before the check began") {
		t.Errorf("%v: %q", o.Result, o.Reason)
	}
}

func TestSelfConnectIsRefused(t *testing.T) {
	for _, ip := range []string{"127.0.0.1", "::1"} {
		l, c := listen(t, net.JoinHostPort(ip, "0"))
		l.Close()
		// The source port that a connect to a closed port may draw by chance.
		c.BindAddr, c.BindPort = c.Target.Addr(), c.Target.Port()
		conn, err := TCP(t.Context(), &c)
		if err == nil {
			conn.Close()
			t.Fatalf("%s: connected to itself", ip)
		}
		if o := Outcome(checker.Site{Stage: checker.StageConnect, Step: "connect to", Peer: "x"}, err, time.Now()); o.Result != checker.Failed || !strings.Contains(o.Reason, "ECONNREFUSED") {
			t.Errorf("%s: %v: %q", ip, o.Result, o.Reason)
		}
	}
}

func TestCancelEndsConnectAndRead(t *testing.T) {
	c := full(t)
	c.Timeout = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	_, err := TCP(ctx, &c)
	if o := Outcome(checker.Site{Stage: checker.StageConnect, Step: "connect to", Peer: "x"}, err, time.Now()); o.Result != checker.Unable || o.Reason != "cancelled" {
		t.Errorf("connect: %v: %q", o.Result, o.Reason)
	}
	if _, err := TCP(ctx, &c); err != context.Canceled {
		t.Errorf("connect under a cancelled context: %v", err)
	}

	l, c := listen(t, "127.0.0.1:0")
	ctx, cancel = context.WithCancel(t.Context())
	conn, err := TCP(ctx, &c)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	accept(t, l)
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := conn.Read(make([]byte, 1)); err == nil {
		t.Error("read went on")
	}
}

func TestNoDescriptorIsUnable(t *testing.T) {
	if os.Getenv("DIAL_CHILD") == "" {
		// A process of its own: the limit is the whole process's.
		cmd := exec.Command(os.Args[0], "-test.run=^TestNoDescriptorIsUnable$", "-test.v")
		cmd.Env = append(os.Environ(), "DIAL_CHILD=1")
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	_, c := listen(t, "127.0.0.1:0")
	var was syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &was); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: 3, Max: was.Max}); err != nil {
		t.Fatal(err)
	}
	_, err := TCP(t.Context(), &c)
	syscall.Setrlimit(syscall.RLIMIT_NOFILE, &was) // what runs after the test needs some
	if o := Outcome(checker.Site{Stage: checker.StageConnect, Step: "connect to", Peer: "x"}, err, time.Now()); o.Result != checker.Unable || !strings.Contains(o.Reason, "too many open files (EMFILE)") {
		t.Errorf("%v: %q", o.Result, o.Reason)
	}
}

func TestClassify(t *testing.T) {
	at := func(op string, late bool, err error) error {
		return fmt.Errorf("x: %w", &Error{Op: op, Late: late, Err: err})
	}
	type row struct {
		err  error
		want checker.Result
	}
	tests := []row{
		{nil, checker.OK},
		{context.Canceled, checker.Unable},
		{context.DeadlineExceeded, checker.Failed},
		{at("connect", true, os.ErrDeadlineExceeded), checker.Failed},
		{io.EOF, checker.Failed},
		{errors.New("tls: bad"), checker.Failed},
		{syscall.ECONNRESET, checker.Failed},
		{syscall.EPIPE, checker.Failed},
		{syscall.ENOBUFS, checker.Unable},
		{at("socket", false, syscall.EMFILE), checker.Unable},
		{at("socket", false, syscall.ENFILE), checker.Unable},
		{at("socket", false, syscall.EAFNOSUPPORT), checker.Unable},
		{at("fwmark", false, syscall.EPERM), checker.Unable},
		{at("interface", false, syscall.ENODEV), checker.Unable},
		{at("bind", false, syscall.EADDRNOTAVAIL), checker.Unable},
		{at("bind", false, syscall.EADDRINUSE), checker.Unable},
		{at("bind", false, syscall.EACCES), checker.Unable},
	}
	for _, e := range []syscall.Errno{unix.ENETUNREACH, unix.EHOSTUNREACH, unix.ECONNREFUSED, unix.EHOSTDOWN, unix.ENETDOWN, unix.ECONNRESET, unix.ECONNABORTED, unix.ETIMEDOUT} {
		tests = append(tests, row{at("connect", false, e), checker.Failed})
	}
	for _, e := range []syscall.Errno{unix.EADDRNOTAVAIL, unix.EPERM, unix.EACCES, unix.EINVAL, unix.EADDRINUSE, unix.EAGAIN} {
		tests = append(tests, row{at("connect", false, e), checker.Unable}, row{at("connect", true, e), checker.Failed})
	}
	for _, tt := range tests {
		if got := Classify(tt.err); got != tt.want {
			t.Errorf("Classify(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}

func TestExplainTellsTheTwoMeaningsOfEADDRNOTAVAIL(t *testing.T) {
	target := netip.MustParseAddrPort("10.0.0.1:80")
	for text, err := range map[string]error{
		"connection closed by the peer": io.ErrUnexpectedEOF, "tls: odd": errors.New("tls: odd"), "broken pipe (EPIPE)": syscall.EPIPE,
	} {
		if got := explain(err); got != text {
			t.Errorf("explain(%v) = %q, want %q", err, got, text)
		}
	}
	reasons := map[string]bool{}
	for _, e := range []*Error{
		{Op: "bind", Target: target, Local: "10.0.0.9", Err: unix.EADDRNOTAVAIL},
		{Op: "connect", Target: target, Local: "10.0.0.9", Err: unix.EADDRNOTAVAIL},
		{Op: "connect", Target: target, Err: unix.EADDRNOTAVAIL},
		{Op: "fwmark", Target: target, Local: "7", Err: unix.EPERM},
	} {
		reasons[explain(e)] = true
	}
	if len(reasons) != 4 {
		t.Errorf("not distinct: %v", reasons)
	}
}

func TestElapsed(t *testing.T) {
	for d, want := range map[time.Duration]string{
		1234 * time.Nanosecond:       "1µs",
		1234567 * time.Nanosecond:    "1.23ms",
		3004567891 * time.Nanosecond: "3s",
		12345 * time.Millisecond:     "12.35s",
	} {
		if got := checker.Elapsed(d); got != want {
			t.Errorf("checker.Elapsed(%v) = %s, want %s", d, got, want)
		}
	}
}
