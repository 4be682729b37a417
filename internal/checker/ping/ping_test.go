package ping

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/checkertest"
	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/checker/dial/dialtest"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/testkit"
)

const (
	allow = "0 2147483647"
	deny  = "1 0"
)

// namespace is one in which pings by datagram socket are allowed or not.
func namespace(t testing.TB, groups string) *testkit.NS {
	t.Helper()
	dialtest.Root(t)
	ns := testkit.NewNS(t, "ping")
	ns.Sysctl(t, "net.ipv4.ping_group_range", groups)
	return ns
}

func check(target string) *config.Checker {
	return &config.Checker{Kind: config.PingCheck, Conn: config.Connection{
		Target: netip.AddrPortFrom(netip.MustParseAddr(target), 80), Timeout: 30 * time.Second,
	}}
}

// run runs a probe in the namespace.
func run(t testing.TB, ns *testkit.NS, p checker.Probe) (o checker.Outcome) {
	t.Helper()
	ctx := t.Context()
	if err := ns.Do(func() error { o = p.Run(ctx); return nil }); err != nil {
		t.Fatal(err)
	}
	if why := checkertest.Unfounded(o); why != "" {
		t.Errorf("%+v: %s", o, why)
	}
	return o
}

// bothKinds runs f with datagram sockets and with raw ones, on both families.
func bothKinds(t *testing.T, f func(t *testing.T, ns *testkit.NS, target string)) {
	for kind, groups := range map[string]string{"datagram": allow, "raw": deny} {
		for _, target := range []string{"127.0.0.1", "::1"} {
			t.Run(kind+" "+target, func(t *testing.T) { f(t, namespace(t, groups), target) })
		}
	}
}

func TestEchoReplyIsSuccess(t *testing.T) {
	bothKinds(t, func(t *testing.T, ns *testkit.NS, target string) {
		p := New(check(target))
		for range 3 {
			if o := run(t, ns, p); o.Result != checker.OK || o.Reason != "echo reply" || o.Took <= 0 {
				t.Errorf("%+v", o)
			}
		}
	})
}

// request is an echo request as the target saw it.
type request struct {
	from    netip.Addr
	id, seq uint16
	data    []byte
}

// body is what an echo message has behind type, code and checksum.
func (r request) body() []byte {
	b := binary.BigEndian.AppendUint16(nil, r.id)
	return append(binary.BigEndian.AppendUint16(b, r.seq), r.data...)
}

// target makes ns's loopback address answer as respond says, in the kernel's place.
func target(t *testing.T, ns *testkit.NS, addr string, respond func(self netip.Addr, r request)) {
	t.Helper()
	self := netip.MustParseAddr(addr)
	family, protocol, want, skip := unix.AF_INET, unix.IPPROTO_ICMP, icmp.Type(ipv4.ICMPTypeEcho), 20
	ignore := "net.ipv4.icmp_echo_ignore_all"
	if self.Is6() {
		family, protocol, want, skip = unix.AF_INET6, unix.IPPROTO_ICMPV6, ipv6.ICMPTypeEchoRequest, 0
		ignore = "net.ipv6.icmp.echo_ignore_all"
	}
	ns.Sysctl(t, ignore, "1")
	var fd int
	err := ns.Do(func() (err error) {
		fd, err = unix.Socket(family, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "target")
	var wg sync.WaitGroup
	t.Cleanup(func() { f.Close(); wg.Wait() })
	wg.Go(func() {
		buf := make([]byte, 2048)
		for {
			n, err := f.Read(buf)
			if err != nil {
				return
			}
			m, err := icmp.ParseMessage(protocol, buf[min(skip, n):n])
			if err != nil || m.Type != want {
				continue
			}
			echo := m.Body.(*icmp.Echo)
			r := request{id: uint16(echo.ID), seq: uint16(echo.Seq), data: echo.Data, from: self}
			if err := ns.Do(func() error { respond(self, r); return nil }); err != nil {
				t.Error(err)
			}
		}
	})
}

// reply sends an echo reply.
func reply(t *testing.T, from netip.Addr, r request) {
	t.Helper()
	kind := uint8(0)
	if from.Is6() {
		kind = 129
	}
	if err := dialtest.Send(from, r.from, kind, 0, r.body()); err != nil {
		t.Errorf("reply: %v", err)
	}
}

func TestRequestOnTheWire(t *testing.T) {
	bothKinds(t, func(t *testing.T, ns *testkit.NS, addr string) {
		got := make(chan request, 10)
		target(t, ns, addr, func(self netip.Addr, r request) {
			got <- r
			reply(t, self, r)
		})
		p := New(check(addr))
		var last request
		for i := range 3 {
			if o := run(t, ns, p); o.Result != checker.OK {
				t.Fatalf("%+v", o)
			}
			r := <-got
			if len(r.data) != 128 || i > 0 && r.seq != last.seq+1 {
				t.Errorf("%d octets of data, sequence %d after %d", len(r.data), r.seq, last.seq)
			}
			last = r
		}
		if len(got) != 0 {
			t.Errorf("%d requests too many", len(got))
		}
	})
}

// What is not the reply to this request neither passes nor fails.
func TestOnlyTheReplyCounts(t *testing.T) {
	wrong := func(t *testing.T, self netip.Addr, r request) {
		late, foreign := r, r
		late.seq--
		foreign.id++
		reply(t, self, late)
		reply(t, self, foreign)
		if self.Is4() {
			reply(t, netip.MustParseAddr("127.0.0.9"), r) // another address
			dialtest.Send(self, r.from, 0, 1, r.body())   // a code that means nothing
			dialtest.Send(self, r.from, 14, 0, r.body())  // a timestamp reply
		}
	}
	bothKinds(t, func(t *testing.T, ns *testkit.NS, addr string) {
		var right atomic.Bool
		right.Store(true)
		target(t, ns, addr, func(self netip.Addr, r request) {
			wrong(t, self, r)
			if right.Load() {
				r.data = nil // and its data are not looked at
				reply(t, self, r)
			}
		})
		c := check(addr)
		if o := run(t, ns, New(c)); o.Result != checker.OK {
			t.Errorf("%+v", o)
		}
		right.Store(false)
		c.Conn.Timeout = 100 * time.Millisecond
		want := "echo reply from " + addr + ": no answer in time after "
		ignored := ", 1 replies to other requests were ignored"
		if o := run(t, ns, New(c)); o.Result != checker.Failed || !strings.HasPrefix(o.Reason, want) || !strings.HasSuffix(o.Reason, ignored) || o.Took < c.Conn.Timeout {
			t.Errorf("%+v", o)
		}
	})
}

func TestICMPErrorIsFailure(t *testing.T) {
	bothKinds(t, func(t *testing.T, ns *testkit.NS, addr string) {
		var foreign atomic.Bool
		target(t, ns, addr, func(self netip.Addr, r request) {
			kind, code, want := uint8(3), uint8(1), uint8(8)
			if self.Is6() {
				kind, code, want = 1, 3, 128
			}
			send := func(r request) {
				quote := append([]byte{want, 0, 0, 0}, r.body()...)
				at := netip.AddrPortFrom(self, 0)
				if err := dialtest.SendError(self, at, at, kind, code, quote); err != nil {
					t.Errorf("send: %v", err)
				}
			}
			if foreign.Load() {
				other := r
				other.id++
				send(other)
				reply(t, self, r)
				return
			}
			send(r)
		})
		o := run(t, ns, New(check(addr)))
		if o.Result != checker.Failed || !strings.HasPrefix(o.Reason, "echo reply from "+addr+": ICMP") ||
			!strings.Contains(o.Reason, "unreachable from "+addr+": no route to host (EHOSTUNREACH) after ") {
			t.Errorf("%+v", o)
		}
		// Raw sockets are told of other people's requests too.
		foreign.Store(true)
		if o := run(t, ns, New(check(addr))); o.Result != checker.OK {
			t.Errorf("an error about another's request: %+v", o)
		}
	})
}

func TestC02RoutesAndSource(t *testing.T) {
	for _, groups := range []string{allow, deny} {
		ns := namespace(t, groups)
		ns.IP(t, "route add unreachable 192.0.2.1")
		for target, want := range map[string]string{
			"192.0.2.1": "no route to host (EHOSTUNREACH)", "203.0.113.1": "network is unreachable (ENETUNREACH)",
			"2001:db8::1": "network is unreachable (ENETUNREACH)",
		} {
			if o := run(t, ns, New(check(target))); o.Result != checker.Failed || !strings.Contains(o.Reason, " to "+target+": "+want) {
				t.Errorf("%+v, want failed: %q", o, want)
			}
		}
		for _, tt := range []struct{ target, source, iface, want string }{
			{"127.0.0.1", "192.0.2.77", "", "source address 192.0.2.77 is not on this machine"},
			{"::1", "2001:db8::77", "", "source address 2001:db8::77 is not on this machine"},
			{"127.0.0.1", "", "nosuchif0", "interface nosuchif0 cannot be used: no such device (ENODEV)"},
			{"fe80::1%nosuchif0", "", "", "no such device (ENODEV)"},
		} {
			c := check(tt.target)
			c.Conn.BindIf = tt.iface
			if tt.source != "" {
				c.Conn.BindAddr = netip.MustParseAddr(tt.source)
			}
			if o := run(t, ns, New(c)); o.Result != checker.Unable || !strings.Contains(o.Reason, tt.want) {
				t.Errorf("%+v, want unable: %q", o, tt.want)
			}
		}
	}
}

func TestSourceInterfaceMarkAndZone(t *testing.T) {
	for _, groups := range []string{allow, deny} {
		ns := namespace(t, groups)
		ns.IP(t, "link add v0 type veth peer name v1", "link set v1 up", "link set v0 up",
			"addr add fe80::77/64 dev v0 nodad", "addr add 10.9.9.1/24 dev v0",
			// Marked packets meet another route.
			"route add unreachable 192.0.2.1", "rule add fwmark 7 lookup 100", "route add prohibit 192.0.2.1 table 100")
		testkit.Eventually(t, 10*time.Second, func() string { // the kernel adds it when the link is ready
			if routes := ns.Run(t, "ip", "-6", "route", "show", "table", "local"); !strings.Contains(routes, "fe80::77") {
				return routes
			}
			return ""
		})
		c := check("fe80::77%v0")
		c.Conn.BindAddr = netip.MustParseAddr("fe80::77%v0")
		if o := run(t, ns, New(c)); o.Result != checker.OK {
			t.Errorf("zone: %+v", o)
		}
		c = check("fe80::77")
		c.Conn.BindIf = "v0"
		if o := run(t, ns, New(c)); o.Result != checker.OK {
			t.Errorf("interface in the place of a zone: %+v", o)
		}
		c = check("192.0.2.1")
		for mark, want := range map[uint32]string{0: "(EHOSTUNREACH)", 7: "(EACCES)"} {
			c.Conn.FWMark = mark
			if o := run(t, ns, New(c)); !strings.Contains(o.Reason, want) {
				t.Errorf("mark %d: %+v, want %s", mark, o, want)
			}
		}
		// A source address; its port means nothing.
		c = check("127.0.0.1")
		c.Conn.BindAddr, c.Conn.BindPort = netip.MustParseAddr("10.9.9.1"), 4711
		if o := run(t, ns, New(c)); o.Result != checker.OK {
			t.Errorf("source: %+v", o)
		}
	}
}

// C14: on a real kernel, which of the two sockets does the work.
func TestC14KernelDecides(t *testing.T) {
	for groups, wantRaw := range map[string]bool{allow: false, deny: true} {
		ns := namespace(t, groups)
		ctx := t.Context()
		err := ns.Do(func() error {
			sock, raw, err := open(ctx, &check("127.0.0.1").Conn, dial.ICMP)
			if err != nil {
				return err
			}
			defer sock.Close()
			if raw != wantRaw {
				t.Errorf("group range %q: raw %v", groups, raw)
			}
			return Usable(ctx)
		})
		if err != nil {
			t.Errorf("group range %q: %v", groups, err)
		}
	}
}

// C14: a real kernel that refuses both.
func TestC14KernelRefusesBoth(t *testing.T) {
	ns := namespace(t, deny)
	ctx := t.Context()
	const want = "this process may not send pings: a datagram socket needs its group in net.ipv4.ping_group_range (EACCES), a raw socket needs CAP_NET_RAW (EPERM)"
	err := ns.Do(func() error {
		// Capabilities are the thread's, which is this test's alone for now.
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var had [2]unix.CapUserData
		if err := unix.Capget(&header, &had[0]); err != nil {
			return err
		}
		less := had
		less[0].Effective &^= 1 << unix.CAP_NET_RAW
		if err := unix.Capset(&header, &less[0]); err != nil {
			return err
		}
		defer unix.Capset(&header, &had[0]) // the tests that follow would show it
		for _, target := range []string{"127.0.0.1", "::1"} {
			if o := New(check(target)).Run(ctx); o.Result != checker.Unable || o.Reason != "ping "+target+": "+want {
				t.Errorf("%+v", o)
			}
		}
		if err := Usable(ctx); err == nil || err.Error() != want {
			t.Errorf("usable: %v", err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// C14: neither socket is no fault of the server, and one reason says what to do.
func TestC14NeitherSocketIsUnable(t *testing.T) {
	socketFails := func(errno error) error { return &dial.Error{Op: "socket", Err: errno} }
	bindFails := &dial.Error{Op: "bind", Local: "192.0.2.77", Err: unix.EADDRNOTAVAIL}
	for _, tt := range []struct {
		datagram, raw error
		want, usable  string
	}{
		{socketFails(unix.EACCES), socketFails(unix.EPERM),
			"ping 192.0.2.1: this process may not send pings: a datagram socket needs its group in net.ipv4.ping_group_range (EACCES), a raw socket needs CAP_NET_RAW (EPERM)",
			"this process may not send pings: a datagram socket needs its group in net.ipv4.ping_group_range (EACCES), a raw socket needs CAP_NET_RAW (EPERM)"},
		{socketFails(unix.EPROTONOSUPPORT), socketFails(unix.EPERM), "ping 192.0.2.1: this process may not send pings: ", "this process"},
		// A passing want is not taken for a missing right, nor tried twice.
		{socketFails(unix.EMFILE), nil, "open an ICMP socket to 192.0.2.1: no socket: too many open files (EMFILE) after ", ""},
		{socketFails(unix.EACCES), socketFails(unix.EMFILE), "open an ICMP socket to 192.0.2.1: no socket: too many open files (EMFILE) after ", ""},
		{bindFails, nil, "open an ICMP socket to 192.0.2.1: source address 192.0.2.77 is not on this machine", ""},
		{socketFails(unix.EACCES), bindFails, "open an ICMP socket to 192.0.2.1: source address 192.0.2.77 is not on this machine", ""},
		{context.Canceled, nil, "cancelled", ""},
	} {
		try := func(_ context.Context, _ *config.Connection, raw bool) (*dial.Datagram, error) {
			if !raw {
				return nil, tt.datagram
			}
			if tt.raw == nil {
				t.Errorf("%v: tried a raw socket", tt.datagram)
				return nil, errors.New("must not be tried")
			}
			return nil, tt.raw
		}
		p := New(check("192.0.2.1")).(*probe)
		p.open = try
		if o := p.Run(t.Context()); o.Result != checker.Unable || !strings.HasPrefix(o.Reason, tt.want) {
			t.Errorf("%+v\nwant unable: %q", o, tt.want)
		}
		err := usable(t.Context(), try)
		if text := fmt.Sprint(err); (err == nil) != (tt.usable == "") || err != nil && !strings.HasPrefix(text, tt.usable) {
			t.Errorf("usable: %v, want %q", err, tt.usable)
		}
	}
}

func TestCancelledIsUnable(t *testing.T) {
	bothKinds(t, func(t *testing.T, ns *testkit.NS, addr string) {
		ctx, cancel := context.WithCancel(t.Context())
		target(t, ns, addr, func(netip.Addr, request) { cancel() })
		p := New(check(addr))
		for range 2 {
			err := ns.Do(func() error {
				if o := p.Run(ctx); o.Result != checker.Unable || o.Reason != "cancelled" {
					t.Errorf("%+v", o)
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// X01: a flood of replies to other requests that never pauses is named.
func TestX01Flood(t *testing.T) {
	bothKinds(t, func(t *testing.T, ns *testkit.NS, addr string) {
		var over atomic.Bool
		target(t, ns, addr, func(self netip.Addr, r request) {
			r.seq ^= 0x8000
			for !over.Load() {
				reply(t, self, r)
			}
		})
		t.Cleanup(func() { over.Store(true) })
		c := check(addr)
		want := "echo reply from " + addr + ": flooded, none of 1000 replies is to this request after "
		if o := run(t, ns, New(c)); o.Result != checker.Failed || !strings.HasPrefix(o.Reason, want) {
			t.Errorf("%+v, want %q", o, want)
		}
		over.Store(true)
	})
}

func TestSkipIPv4Header(t *testing.T) {
	header := func(ihl byte, n int) []byte { return append([]byte{0x40 | ihl}, make([]byte, n-1)...) }
	for _, tt := range []struct {
		b    []byte
		want int
	}{
		{nil, 0}, {header(5, 28), 8}, {header(15, 68), 8}, {header(5, 20), 0}, {header(4, 28), 0}, {header(0, 28), 0}, {header(15, 59), 0}, {header(6, 25), 1},
	} {
		if got := skipIPv4Header(tt.b); len(got) != tt.want {
			t.Errorf("% x: %d octets left, want %d", tt.b, len(got), tt.want)
		}
	}
}

func FuzzReply(f *testing.F) {
	six := []byte{129, 0, 0, 0, 0, 7, 0, 9, 1}
	four := append(append([]byte{0x45}, make([]byte, 19)...), 0, 0, 0xff, 0xef, 0, 7, 0, 9)
	for _, b := range [][]byte{six, four, four[20:], four[:21], {0x4f}, nil} {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		message := skipIPv4Header(b)
		if len(message) >= len(b) && len(b) > 0 {
			t.Fatalf("%x: nothing skipped", b)
		}
		for _, m := range [][]byte{b, message} {
			for _, isSix := range []bool{false, true} {
				id, seq, ok := parseReply(m, isSix)
				kind := byte(0)
				if isSix {
					kind = 129
				}
				want := len(m) >= 8 && m[0] == kind && m[1] == 0
				if ok != want || ok && (id != binary.BigEndian.Uint16(m[4:]) || seq != binary.BigEndian.Uint16(m[6:])) {
					t.Fatalf("%x: %d, %d, %v, want %v", m, id, seq, ok, want)
				}
			}
		}
	})
}

func BenchmarkProbe(b *testing.B) {
	for kind, groups := range map[string]string{"datagram": allow, "raw": deny} {
		b.Run(kind, func(b *testing.B) {
			ns := namespace(b, groups)
			p := New(check("127.0.0.1"))
			ctx := b.Context()
			b.ReportAllocs()
			err := ns.Do(func() error {
				for b.Loop() {
					if o := p.Run(ctx); o.Result != checker.OK {
						return errors.New(o.Reason)
					}
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		})
	}
}
