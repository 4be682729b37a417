package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/dial/dialtest"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/testkit"
)

var loopbacks = []string{"127.0.0.1:0", "[::1]:0"}

// packets returns a UDP socket and a connection that reaches it.
func packets(t testing.TB, addr string) (*net.UDPConn, config.Connection) {
	t.Helper()
	l, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
	if err != nil {
		t.Skipf("listen on %s: %v", addr, err)
	}
	t.Cleanup(func() { l.Close() })
	return l, config.Connection{Target: l.LocalAddr().(*net.UDPAddr).AddrPort(), Timeout: 5 * time.Second}
}

func open(t *testing.T, c config.Connection) *Datagram {
	t.Helper()
	d, err := UDP(t.Context(), &c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// exchange sends one datagram, and returns who sent it in the eyes of the peer.
func exchange(t *testing.T, d *Datagram, peer *net.UDPConn, answer string) netip.AddrPort {
	t.Helper()
	if err := d.Send([]byte("ask")); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 16)
	n, from, err := peer.ReadFromUDPAddrPort(buf)
	if err != nil || string(buf[:n]) != "ask" {
		t.Fatalf("peer got %q, %v", buf[:n], err)
	}
	if _, err := peer.WriteToUDPAddrPort([]byte(answer), from); err != nil {
		t.Fatal(err)
	}
	return from
}

func TestUDPSendsAndReceives(t *testing.T) {
	for _, addr := range loopbacks {
		t.Run(addr, func(t *testing.T) {
			peer, c := packets(t, addr)
			d := open(t, c)
			exchange(t, d, peer, "a long answer")
			buf := make([]byte, 6)
			// The length is the datagram's, although the room ends earlier.
			if n, err := d.Receive(buf); n != 13 || err != nil || string(buf) != "a long" {
				t.Errorf("%d, %v, %q", n, err, buf)
			}
			exchange(t, d, peer, "")
			if n, err := d.Receive(nil); n != 0 || err != nil {
				t.Errorf("an empty datagram: %d, %v", n, err)
			}
		})
	}
}

func TestUDPSourceIsSeenByThePeer(t *testing.T) {
	peer, c := packets(t, "127.0.0.1:0")
	c.BindAddr, c.BindIf = netip.MustParseAddr("127.0.0.77"), "lo"
	if os.Getuid() == 0 {
		c.FWMark = 0xfffffffe
	}
	d := open(t, c)
	if from := exchange(t, d, peer, ""); from.Addr() != c.BindAddr {
		t.Errorf("peer sees %v", from)
	}
	d.raw.Control(func(fd uintptr) {
		if dev, err := unix.GetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE); err != nil || dev != "lo" {
			t.Errorf("bound to %q, %v", dev, err)
		}
		if mark, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK); err != nil || uint32(mark) != c.FWMark {
			t.Errorf("mark %#x, %v, want %#x", mark, err, c.FWMark)
		}
	})
	d.Close()

	// One source port for two checks that overlap.
	free, fc := packets(t, "127.0.0.1:0")
	c.BindPort = fc.Target.Port()
	free.Close()
	other, oc := packets(t, "127.0.0.1:0")
	oc.BindAddr, oc.BindPort = c.BindAddr, c.BindPort
	d, d2 := open(t, c), open(t, oc)
	buf := make([]byte, 8)
	for sock, peer := range map[*Datagram]*net.UDPConn{d: peer, d2: other} {
		answer := peer.LocalAddr().String()[10:]
		if from := exchange(t, sock, peer, answer); from != netip.AddrPortFrom(c.BindAddr, c.BindPort) {
			t.Errorf("peer sees %v", from)
		}
		if n, err := sock.Receive(buf); err != nil || string(buf[:n]) != answer {
			t.Errorf("received %q, %v, want %q", buf[:n], err, answer)
		}
	}
}

func TestDatagramOfAnotherIsDropped(t *testing.T) {
	for _, addr := range loopbacks {
		peer, c := packets(t, addr)
		stranger, sc := packets(t, addr)
		// Connected to the stranger first: what it sends then stays in the queue,
		// as something that came between bind and connect does.
		d := open(t, sc)
		from := exchange(t, d, stranger, "bad")
		d.raw.Control(func(fd uintptr) {
			to, _, err := sockaddr(c.Target)
			if err == nil {
				err = unix.Connect(int(fd), to)
			}
			if err != nil {
				t.Errorf("connect: %v", err)
			}
		})
		d.target = c.Target
		if _, err := peer.WriteToUDPAddrPort([]byte("good"), from); err != nil {
			t.Fatal(err)
		}
		buf := make([]byte, 8)
		if n, err := d.Receive(buf); err != nil || string(buf[:n]) != "good" {
			t.Errorf("%s: received %q, %v", addr, buf[:n], err)
		}
	}
}

func TestClosedPortIsToldByTheErrorQueue(t *testing.T) {
	for _, addr := range loopbacks {
		peer, c := packets(t, addr)
		peer.Close()
		d := open(t, c)
		began := time.Now()
		if err := d.Send([]byte("the question")); err != nil {
			t.Fatal(err)
		}
		_, err := d.Receive(make([]byte, 8))
		q, ok := errors.AsType[*QueuedError](err)
		if !ok || !q.Unreachable() || q.From != c.Target.Addr() || string(q.Quote) != "the question" {
			t.Fatalf("%s: %v: %+v", addr, err, q)
		}
		o := Outcome(checker.Site{Stage: checker.StageReply, Step: "reply from", Peer: c.Target.String()}, err, began)
		want := " port unreachable from " + c.Target.Addr().String() + ": connection refused (ECONNREFUSED) after "
		if o.Result != checker.Failed || !strings.Contains(o.Reason, want) || !strings.Contains(o.Reason, "reply from "+c.Target.String()+": ICMP") {
			t.Errorf("%v: %q, want %q", o.Result, o.Reason, want)
		}
	}
}

// Every message that the kernel passes on is named, with its sender, and is the
// server's failure.
func TestICMPErrors(t *testing.T) {
	dialtest.Root(t)
	type message struct {
		kind, code  uint8
		unreachable bool
		text        string
	}
	v4 := []message{
		{3, 0, true, "ICMP network unreachable from 127.0.0.9: network is unreachable (ENETUNREACH)"},
		{3, 1, true, "ICMP host unreachable from 127.0.0.9: no route to host (EHOSTUNREACH)"},
		{3, 2, true, "ICMP protocol unreachable from 127.0.0.9: protocol not available (ENOPROTOOPT)"},
		{3, 3, true, "ICMP port unreachable from 127.0.0.9: connection refused (ECONNREFUSED)"},
		{3, 9, true, "ICMP network administratively prohibited from 127.0.0.9"},
		{3, 10, true, "ICMP host administratively prohibited from 127.0.0.9"},
		{3, 13, true, "ICMP communication administratively prohibited from 127.0.0.9: no route to host (EHOSTUNREACH)"},
		{11, 0, false, "ICMP time exceeded from 127.0.0.9: no route to host (EHOSTUNREACH)"},
		{12, 0, false, "ICMP parameter problem from 127.0.0.9: protocol error (EPROTO)"},
	}
	v6 := []message{
		{1, 0, true, "ICMPv6 no route to destination from ::1: network is unreachable (ENETUNREACH)"},
		{1, 1, true, "ICMPv6 communication administratively prohibited from ::1: permission denied (EACCES)"},
		{1, 2, true, "ICMPv6 beyond scope of source address from ::1"},
		{1, 3, true, "ICMPv6 address unreachable from ::1: no route to host (EHOSTUNREACH)"},
		{1, 4, true, "ICMPv6 port unreachable from ::1: connection refused (ECONNREFUSED)"},
		{1, 5, true, "ICMPv6 source address failed policy from ::1: permission denied (EACCES)"},
		{1, 6, true, "ICMPv6 reject route from ::1: permission denied (EACCES)"},
		{1, 99, true, "ICMPv6 type 1 code 99 from ::1"},
		{3, 0, false, "ICMPv6 time exceeded from ::1: no route to host (EHOSTUNREACH)"},
	}
	seen := map[string]bool{}
	check := func(addr string, from netip.Addr, m message) {
		_, c := packets(t, addr)
		d := open(t, c)
		began := time.Now()
		if err := dialtest.SendError(from, local(t, d), c.Target, m.kind, m.code, []byte("sent")); err != nil {
			t.Fatalf("send %d/%d: %v", m.kind, m.code, err)
		}
		_, err := d.Receive(make([]byte, 8))
		q, ok := errors.AsType[*QueuedError](err)
		if !ok || q.Unreachable() != m.unreachable || q.Type != m.kind || q.Code != m.code || string(q.Quote) != "sent" {
			t.Errorf("%d/%d: %v: %+v", m.kind, m.code, err, q)
			return
		}
		o := Outcome(checker.Site{Stage: checker.StageReply, Step: "reply from", Peer: "X"}, err, began)
		if text, ok := strings.CutPrefix(o.Reason, "reply from X: "); o.Result != checker.Failed || !ok || !strings.HasPrefix(text, m.text) || seen[q.Error()] {
			t.Errorf("%d/%d: %v: %q, want %q", m.kind, m.code, o.Result, o.Reason, m.text)
		}
		seen[q.Error()] = true
	}
	for _, m := range v4 {
		check("127.0.0.1:0", netip.MustParseAddr("127.0.0.9"), m)
	}
	for _, m := range v6 {
		check("[::1]:0", netip.MustParseAddr("::1"), m)
	}
}

// local is the socket's own address.
func local(t *testing.T, d *Datagram) (a netip.AddrPort) {
	t.Helper()
	d.raw.Control(func(fd uintptr) {
		sa, err := unix.Getsockname(int(fd))
		if err != nil {
			t.Errorf("getsockname: %v", err)
		}
		switch sa := sa.(type) {
		case *unix.SockaddrInet4:
			a = netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
		case *unix.SockaddrInet6:
			a = netip.AddrPortFrom(netip.AddrFrom16(sa.Addr), uint16(sa.Port))
		}
	})
	return a
}

// C02 for datagrams: what is this machine's fault and what is not.
func TestC02DatagramErrorsAtOnce(t *testing.T) {
	_, ok := packets(t, "127.0.0.1:0")
	used, uc := packets(t, "127.0.0.1:0")
	defer used.Close()
	with := func(f func(*config.Connection)) config.Connection { c := ok; f(&c); return c }
	for _, tt := range []struct {
		name   string
		conn   config.Connection
		reason string
	}{
		{"source address missing", with(func(c *config.Connection) { c.BindAddr = netip.MustParseAddr("192.0.2.99") }),
			"source address 192.0.2.99 is not on this machine: cannot assign requested address (EADDRNOTAVAIL)"},
		{"source port in use", with(func(c *config.Connection) { c.BindAddr, c.BindPort = uc.Target.Addr(), uc.Target.Port() }),
			"cannot be used: address already in use (EADDRINUSE)"},
		{"source address of the other family", with(func(c *config.Connection) { c.BindAddr = netip.MustParseAddr("::1") }),
			"source address ::1 cannot be used"},
		{"interface missing", with(func(c *config.Connection) { c.BindIf = "nosuchif0" }),
			"interface nosuchif0 cannot be used: no such device (ENODEV)"},
		{"zone missing", with(func(c *config.Connection) { c.Target = netip.MustParseAddrPort("[fe80::1%nosuchif0]:53") }),
			"no such device (ENODEV)"},
		{"no target", with(func(c *config.Connection) { c.Target = netip.AddrPort{} }),
			"no socket: address family not supported by protocol (EAFNOSUPPORT)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			began := time.Now()
			_, err := UDP(t.Context(), &tt.conn)
			o := Outcome(checker.Site{Stage: checker.StageConnect, Step: "connect to", Peer: tt.conn.Target.String()}, err, began)
			if o.Result != checker.Unable || !strings.Contains(o.Reason, tt.reason) {
				t.Errorf("%v: %q\nwant unable: ...%q", o.Result, o.Reason, tt.reason)
			}
		})
	}
	t.Run("too long to send", func(t *testing.T) {
		d := open(t, ok)
		o := Outcome(checker.Site{Stage: checker.StageSend, Step: "send to", Peer: ok.Target.String()}, d.Send(make([]byte, 65508)), time.Now())
		if o.Result != checker.Unable || !strings.Contains(o.Reason, "message too long (EMSGSIZE)") {
			t.Errorf("%v: %q", o.Result, o.Reason)
		}
	})
}

func TestC02DatagramRoutes(t *testing.T) {
	inNS(t, func() {
		for _, tt := range []struct {
			target, reason string
			want           checker.Result
		}{
			{"192.0.2.1:53", "no route to host (EHOSTUNREACH)", checker.Failed},
			{"203.0.113.1:53", "network is unreachable (ENETUNREACH)", checker.Failed},
			{"192.0.2.2:53", "invalid argument (EINVAL)", checker.Unable},
			{"192.0.2.3:53", "permission denied (EACCES)", checker.Unable},
			{"[2001:db8::1]:53", "network is unreachable (ENETUNREACH)", checker.Failed},
		} {
			c := config.Connection{Target: netip.MustParseAddrPort(tt.target), Timeout: time.Second}
			_, err := UDP(t.Context(), &c)
			if o := Outcome(checker.Site{Stage: checker.StageConnect, Step: "connect to", Peer: tt.target}, err, time.Now()); o.Result != tt.want || !strings.Contains(o.Reason, tt.reason) {
				t.Errorf("%v: %q, want %v: %q", o.Result, o.Reason, tt.want, tt.reason)
			}
		}
	})
}

// C13: a host that is switched off answers no ARP. This machine says so.
func TestC13NeighbourThatDoesNotAnswer(t *testing.T) {
	dialtest.Root(t)
	ns := testkit.NewNS(t, "dial")
	ns.IP(t, "link add v0 type veth peer name v1", "link set v1 up", "link set v0 up",
		"addr add 10.9.9.1/24 dev v0", "addr add fd09::1/64 dev v0 nodad")
	ns.Sysctl(t, "net.ipv4.neigh.v0.retrans_time_ms", "20")
	ns.Sysctl(t, "net.ipv6.neigh.v0.retrans_time_ms", "20")
	testkit.Eventually(t, 10*time.Second, func() string { // the kernel adds it when the link is ready
		if routes := ns.Run(t, "ip", "-6", "route"); !strings.Contains(routes, "fd09::/64") || strings.Contains(routes, "linkdown") {
			return routes
		}
		return ""
	})
	for target, want := range map[string]string{
		"10.9.9.2:53":  "ICMP host unreachable from 10.9.9.1: no route to host (EHOSTUNREACH)",
		"[fd09::2]:53": "ICMPv6 address unreachable from fd09::1: no route to host (EHOSTUNREACH)",
	} {
		c := config.Connection{Target: netip.MustParseAddrPort(target), Timeout: time.Minute}
		var d *Datagram
		err := ns.Do(func() (err error) { d, err = UDP(t.Context(), &c); return err })
		if err != nil {
			t.Fatalf("%s: %v", target, err)
		}
		if err = d.Send([]byte("x")); err == nil {
			_, err = d.Receive(nil)
		}
		d.Close()
		if o := Outcome(checker.Site{Stage: checker.StageReply, Step: "reply from", Peer: target}, err, time.Now()); o.Result != checker.Failed || !strings.Contains(o.Reason, want) {
			t.Errorf("%v: %q, want %q", o.Result, o.Reason, want)
		}
	}
}

func TestClassifySendAndReceive(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want checker.Result
	}{
		// A local firewall refuses at the moment of sending: not the server's fault.
		{&Error{Op: "send", Err: unix.EPERM}, checker.Unable},
		{&Error{Op: "send", Err: unix.EMSGSIZE}, checker.Unable},
		{&Error{Op: "send", Err: unix.ENOBUFS}, checker.Unable},
		{&Error{Op: "send", Err: unix.EHOSTUNREACH}, checker.Failed},
		{&Error{Op: "send", Err: unix.ECONNREFUSED}, checker.Failed},
		{&Error{Op: "receive", Late: true, Err: unix.EPERM}, checker.Failed},
		{&Error{Op: "receive", Late: true, Err: &QueuedError{Errno: unix.EACCES, Origin: unix.SO_EE_ORIGIN_ICMP6, Type: 1, Code: 1}}, checker.Failed},
		{&Error{Op: "receive", Late: true, Err: unix.ENOMEM}, checker.Unable},
	} {
		if got := Classify(tt.err); got != tt.want {
			t.Errorf("Classify(%v) = %v, want %v", tt.err, got, tt.want)
		}
	}
}

func TestDatagramPortsExhausted(t *testing.T) {
	inNS(t, func() {
		if out, err := exec.Command("sysctl", "-qw", "net.ipv4.ip_local_port_range=40000 40001").CombinedOutput(); err != nil {
			t.Errorf("sysctl: %v: %s", err, out)
			return
		}
		c := config.Connection{Target: netip.MustParseAddrPort("198.51.100.1:53"), Timeout: time.Second}
		for range 3 {
			d, err := UDP(t.Context(), &c)
			if err == nil {
				defer d.Close()
				continue
			}
			if o := Outcome(checker.Site{Stage: checker.StageConnect, Step: "connect to", Peer: "X"}, err, time.Now()); o.Result != checker.Unable || !strings.Contains(o.Reason, "no free local port") {
				t.Errorf("%v: %q", o.Result, o.Reason)
			}
			return
		}
		t.Error("three sockets from two ports")
	})
}

func TestDatagramDeadlineAndCancel(t *testing.T) {
	_, c := packets(t, "127.0.0.1:0")
	c.Timeout = 50 * time.Millisecond
	long := c
	long.Timeout = time.Hour
	for name, f := range map[string]func() (*Datagram, error){
		"timeout": func() (*Datagram, error) { return UDP(t.Context(), &c) },
		"context": func() (*Datagram, error) {
			ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
			t.Cleanup(stop)
			return UDP(ctx, &long)
		},
	} {
		began := time.Now()
		d, err := f()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, err = d.Receive(nil)
		d.Close()
		if o := Outcome(checker.Site{Stage: checker.StageReply, Step: "reply from", Peer: "X"}, err, began); o.Result != checker.Failed || !strings.Contains(o.Reason, "no answer in time") || o.Took < c.Timeout {
			t.Errorf("%s: %v: %q after %v", name, o.Result, o.Reason, o.Took)
		}
	}
	late, stop := context.WithDeadline(t.Context(), time.Now())
	defer stop()
	if _, err := UDP(late, &long); Classify(err) != checker.Unable {
		t.Errorf("begun after the deadline: %v", err)
	}

	ctx, cancel := context.WithCancel(t.Context())
	d, err := UDP(ctx, &long)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	time.AfterFunc(20*time.Millisecond, cancel)
	if _, err := d.Receive(nil); err != context.Canceled {
		t.Errorf("receive under a cancelled context: %v", err)
	}
	if err := d.Send(nil); err != context.Canceled {
		t.Errorf("send under a cancelled context: %v", err)
	}
	if _, err := UDP(ctx, &long); err != context.Canceled {
		t.Errorf("connect under a cancelled context: %v", err)
	}
}

// A flood of datagrams that count for nothing cannot keep Receive beyond its
// deadline.
func TestX01StraysEndAtTheDeadline(t *testing.T) {
	flood, c := packets(t, "127.0.0.1:0")
	c.Timeout = 100 * time.Millisecond
	d := open(t, c)
	to := local(t, d)
	d.target = netip.MustParseAddrPort("127.0.0.1:1") // all are strays
	var over atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !over.Load() {
			flood.WriteToUDPAddrPort(make([]byte, 1400), to)
		}
	}()
	_, err := d.Receive(make([]byte, 8))
	over.Store(true)
	<-done
	if !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

func TestICMPSocketKinds(t *testing.T) {
	dialtest.Root(t)
	inNS(t, func() {
		c := config.Connection{
			Target: netip.MustParseAddrPort("127.0.0.1:80"), Timeout: time.Second, FWMark: 7,
			BindAddr: netip.MustParseAddr("127.0.0.77"), BindPort: 4711, BindIf: "lo",
		}
		if d, err := ICMP(t.Context(), &c, false); !errors.Is(err, syscall.EACCES) {
			t.Errorf("datagram socket outside of the range: %v, %v", d, err)
		}
		if out, err := exec.Command("sysctl", "-qw", "net.ipv4.ping_group_range=0 0").CombinedOutput(); err != nil {
			t.Errorf("sysctl: %v: %s", err, out)
			return
		}
		for _, raw := range []bool{false, true} {
			d, err := ICMP(t.Context(), &c, raw)
			if err != nil {
				t.Errorf("raw %v: %v", raw, err)
				continue
			}
			if a := local(t, d); a.Addr() != c.BindAddr || a.Port() == c.BindPort {
				t.Errorf("raw %v: local %v", raw, a)
			}
			d.raw.Control(func(fd uintptr) {
				mark, _ := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK)
				dev, _ := unix.GetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE)
				if mark != 7 || dev != "lo" {
					t.Errorf("raw %v: mark %d, interface %q", raw, mark, dev)
				}
			})
			d.Close()
		}
	})
}

func FuzzParseExtended(f *testing.F) {
	f.Add([]byte{111, 0, 0, 0, 2, 3, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 127, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{111, 0, 0, 0, 3, 1, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{90, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		e := parseExtended(b)
		if (e == nil) != (len(b) < 16 || [4]byte(b[:4]) == [4]byte{}) {
			t.Fatalf("%x: %+v", b, e)
		}
		if e != nil && e.Error() == "" {
			t.Fatalf("%x: says nothing", b)
		}
	})
}
