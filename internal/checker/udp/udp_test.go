package udp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/checkertest"
	"github.com/sluice-lb/sluice/internal/checker/dial/dialtest"
	"github.com/sluice-lb/sluice/internal/config"
)

var loopbacks = []string{"127.0.0.1:0", "[::1]:0"}

// server calls respond with each datagram; send says false when the test is over.
func server(t testing.TB, addr string, respond func(from netip.AddrPort, got []byte, send func([]byte) bool)) *config.Checker {
	t.Helper()
	l, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
	if err != nil {
		t.Skipf("listen on %s: %v", addr, err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		buf := make([]byte, 1<<16)
		for {
			n, from, err := l.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			respond(from, buf[:n], func(b []byte) bool {
				_, err := l.WriteToUDPAddrPort(b, from)
				return err == nil
			})
		}
	})
	return &config.Checker{
		Kind: config.UDPCheck,
		Conn: config.Connection{Target: l.LocalAddr().(*net.UDPAddr).AddrPort(), Timeout: 5 * time.Second},
		UDP:  &config.Datagram{Max: 255},
	}
}

// answer is a server that always says the same; "" is an empty datagram.
func answer(t testing.TB, addr, text string) *config.Checker {
	return server(t, addr, func(_ netip.AddrPort, _ []byte, send func([]byte) bool) { send([]byte(text)) })
}

func silent(netip.AddrPort, []byte, func([]byte) bool) {}

// The three kinds of requirement, as columns of the table.
var (
	column = []string{"no require_reply", "require_reply", "require_reply HEX"}
	ways   = []config.Datagram{
		{Max: 255},
		{Require: true, Max: 255},
		{Require: true, Reply: []byte("pong"), Mask: []byte{0xff, 0xff, 0xff, 0xff}, Max: 255},
	}
)

func run(t testing.TB, c *config.Checker) checker.Outcome {
	t.Helper()
	o := New(c).Run(t.Context())
	if why := checkertest.Unfounded(o); why != "" {
		t.Errorf("%+v: %s", o, why)
	}
	return o
}

// expect runs the three columns against what c reaches.
func expect(t *testing.T, c *config.Checker, want [3]checker.Result, reasons [3]string) {
	t.Helper()
	for i, way := range ways {
		c := *c
		c.UDP = &way
		o := run(t, &c)
		if o.Result != want[i] || !strings.Contains(o.Reason, reasons[i]) || o.Took <= 0 {
			t.Errorf("%s, %s: %+v\nwant %v: ...%q", c.Conn.Target, column[i], o, want[i], reasons[i])
		}
	}
}

const (
	ok, failed = checker.OK, checker.Failed
)

func TestC13SilenceIsFailureOnlyWithRequireReply(t *testing.T) {
	for _, addr := range loopbacks {
		c := server(t, addr, silent)
		c.Conn.Timeout = 50 * time.Millisecond
		late := "reply from " + c.Conn.Target.String() + ": no answer in time after "
		expect(t, c, [3]checker.Result{ok, failed, failed}, [3]string{"no error and no reply, and none is required", late, late})
		c.UDP = &ways[0]
		if o := run(t, c); o.Took < c.Conn.Timeout {
			t.Errorf("a success by silence after %v, before the deadline", o.Took)
		}
	}
}

func TestC13ClosedPortIsFailure(t *testing.T) {
	for _, addr := range loopbacks {
		l, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
		if err != nil {
			t.Skipf("listen on %s: %v", addr, err)
		}
		l.Close()
		c := &config.Checker{Conn: config.Connection{Target: l.LocalAddr().(*net.UDPAddr).AddrPort(), Timeout: time.Minute}}
		want := " port unreachable from " + c.Conn.Target.Addr().String() + ": connection refused (ECONNREFUSED) after "
		expect(t, c, [3]checker.Result{failed, failed, failed}, [3]string{want, want, want})
	}
}

// C13: whatever code an unreachable message has, the host's too, it is a failure.
// Other messages are what keepalived takes them for.
func TestC13MessagesOfTheNetwork(t *testing.T) {
	dialtest.Root(t)
	type message struct {
		kind, code uint8
		want       [3]checker.Result
		reason     string
	}
	unreachable, other := [3]checker.Result{failed, failed, failed}, [3]checker.Result{ok, ok, failed}
	for addr, messages := range map[string][]message{
		"127.0.0.1:0": {
			{3, 0, unreachable, "ICMP network unreachable"}, {3, 1, unreachable, "ICMP host unreachable"},
			{3, 2, unreachable, "ICMP protocol unreachable"}, {3, 3, unreachable, "ICMP port unreachable"},
			{3, 13, unreachable, "ICMP communication administratively prohibited"},
			{11, 0, other, "ICMP time exceeded"}, {12, 0, other, "ICMP parameter problem"},
		},
		"[::1]:0": {
			{1, 0, unreachable, "ICMPv6 no route to destination"}, {1, 1, unreachable, "ICMPv6 communication administratively prohibited"},
			{1, 3, unreachable, "ICMPv6 address unreachable"}, {1, 4, unreachable, "ICMPv6 port unreachable"},
			{1, 6, unreachable, "ICMPv6 reject route"},
			{3, 0, other, "ICMPv6 time exceeded"},
		},
	} {
		for _, m := range messages {
			router := netip.MustParseAddrPort(addr).Addr()
			if router.Is4() {
				router = netip.MustParseAddr("127.0.0.9")
			}
			target := make(chan netip.AddrPort, 1)
			c := server(t, addr, func(from netip.AddrPort, got []byte, _ func([]byte) bool) {
				to := <-target
				target <- to
				if err := dialtest.SendError(router, from, to, m.kind, m.code, got); err != nil {
					t.Errorf("send %d/%d: %v", m.kind, m.code, err)
				}
			})
			target <- c.Conn.Target
			c.Conn.Timeout = time.Minute
			reason := m.reason + " from " + router.String() + ": "
			reasons := [3]string{reason, reason, reason}
			if m.want == other {
				reasons[0] = ", which is taken for an answer"
			}
			expect(t, c, m.want, reasons)
		}
	}
}

func TestAnyDatagramIsSuccessWithoutHex(t *testing.T) {
	for _, addr := range loopbacks {
		for _, text := range []string{"", "x", strings.Repeat("long", 1000), strings.Repeat("x", 65000)} {
			c := answer(t, addr, text)
			reason := fmt.Sprintf("reply of %d octets", len(text))
			want, wrong := failed, fmt.Sprintf("reply from %s: %d octets, expected 0 to 255, after ", c.Conn.Target, len(text))
			switch text {
			case "":
				want, wrong = ok, reason
			case "x":
				wrong = ": octet 0 is 78, expected 70, after "
			}
			expect(t, c, [3]checker.Result{ok, ok, want}, [3]string{reason, reason, wrong})
		}
	}
}

func TestReplyHex(t *testing.T) {
	for _, tt := range []struct {
		text, mask string
		min, max   int
		want       checker.Result
		reason     string
	}{
		{"pong", "\xff\xff\xff\xff", 0, 255, ok, "reply of 4 octets"},
		{"pong and more", "\xff\xff\xff\xff", 0, 255, ok, "reply of 13 octets"},
		{"po", "\xff\xff\xff\xff", 0, 255, ok, "reply of 2 octets"},
		{"", "\xff\xff\xff\xff", 0, 255, ok, "reply of 0 octets"},
		{"", "\xff\xff\xff\xff", 1, 255, failed, ": 0 octets, expected 1 to 255, after "},
		{"pong!", "\xff\xff\xff\xff", 0, 4, failed, ": 5 octets, expected 0 to 4, after "},
		{"pong", "\xff\xff\xff\xff", 4, 4, ok, "reply of 4 octets"},
		{"pon", "\xff\xff\xff\xff", 4, 4, failed, ": 3 octets, expected 4 to 4, after "},
		{"pang", "\xff\xff\xff\xff", 0, 255, failed, ": octet 1 is 61, expected 6f, after "},
		{"pang", "\xff\xf0\xff\xff", 0, 255, ok, "reply of 4 octets"},
		{"pang", "\xff\x0f\xff\xff", 0, 255, failed, ": octet 1 is 61, expected Xf, after "},
		{"gnop", "\x00\x00\x00\x00", 0, 255, ok, "reply of 4 octets"},
	} {
		c := answer(t, "127.0.0.1:0", tt.text)
		c.UDP = &config.Datagram{Require: true, Reply: []byte("pong"), Mask: []byte(tt.mask), Min: tt.min, Max: tt.max}
		if o := run(t, c); o.Result != tt.want || !strings.Contains(o.Reason, tt.reason) {
			t.Errorf("%q: %+v, want %v: %q", tt.text, o, tt.want, tt.reason)
		}
	}
}

func TestPayload(t *testing.T) {
	got := make(chan string, 1)
	c := server(t, "127.0.0.1:0", func(_ netip.AddrPort, b []byte, send func([]byte) bool) {
		got <- string(b)
		send(nil)
	})
	for want, payload := range map[string][]byte{
		"keepalived check - keepalived ch": nil, "\x00\xffx": []byte("\x00\xffx"), strings.Repeat("a", 60000): []byte(strings.Repeat("a", 60000)),
	} {
		c.UDP = &config.Datagram{Payload: payload}
		if o := run(t, c); o.Result != checker.OK {
			t.Errorf("%+v", o)
		}
		if b := <-got; b != want {
			t.Errorf("sent %q, want %q", b, want)
		}
	}
	c.UDP.Payload = make([]byte, 65508)
	if o := run(t, c); o.Result != checker.Unable || !strings.HasPrefix(o.Reason, "send 65508 octets to "+c.Conn.Target.String()+": message too long (EMSGSIZE) after ") {
		t.Errorf("%+v", o)
	}
}

func TestC02BindMissingIsUnable(t *testing.T) {
	for addr, source := range map[string]string{"127.0.0.1:0": "192.0.2.77", "[::1]:0": "2001:db8::77"} {
		c := answer(t, addr, "x")
		c.Conn.BindAddr = netip.MustParseAddr(source)
		want := "connect to " + c.Conn.Target.String() + ": source address " + source + " is not on this machine: "
		if o := run(t, c); o.Result != checker.Unable || !strings.HasPrefix(o.Reason, want) {
			t.Errorf("%+v", o)
		}
	}
}

func TestCancelledIsUnable(t *testing.T) {
	c := server(t, "127.0.0.1:0", silent)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	p := New(c) // for which silence is success
	for range 2 {
		if o := p.Run(ctx); o.Result != checker.Unable || o.Reason != "cancelled" {
			t.Errorf("%+v", o)
		}
	}
}

// C17: a run sends once; how often it is repeated is decided elsewhere, alike for
// all checks.
func TestC17OneRunSendsOnce(t *testing.T) {
	got := make(chan struct{}, 100)
	c := server(t, "127.0.0.1:0", func(_ netip.AddrPort, _ []byte, send func([]byte) bool) {
		got <- struct{}{}
		send([]byte("bad"))
	})
	c.Retry = 3
	c.UDP = &ways[2]
	p := New(c)
	for range 4 {
		if o := p.Run(t.Context()); o.Result != checker.Failed {
			t.Errorf("%+v", o)
		}
	}
	if len(got) != 4 {
		t.Errorf("%d datagrams in 4 runs", len(got))
	}
}

// O06: every way to fail has words of its own.
func TestO06ReasonsDiffer(t *testing.T) {
	seen := map[string]string{}
	see := func(way string, c *config.Checker) {
		c.UDP = &config.Datagram{Require: true, Reply: []byte("pong"), Mask: []byte{0xff, 0xff, 0xff, 0xff}, Max: 10}
		o := run(t, c)
		what := strings.ReplaceAll(o.Reason, c.Conn.Target.String(), "X")
		what, _, _ = strings.Cut(what, " after ")
		if o.Result == checker.OK || seen[what] != "" || !strings.Contains(o.Reason, c.Conn.Target.String()) {
			t.Errorf("%s: %+v, as with %q", way, o, seen[what])
		}
		seen[what] = way
	}
	quiet := server(t, "127.0.0.1:0", silent)
	quiet.Conn.Timeout = time.Millisecond
	see("silence", quiet)
	see("octets", answer(t, "127.0.0.1:0", "bad"))
	see("length", answer(t, "127.0.0.1:0", "pong pong pong"))
	quiet.Conn.BindIf = "nosuchif0"
	see("interface", quiet)
	quiet.Conn.BindIf, quiet.Conn.BindAddr = "", netip.MustParseAddr("192.0.2.77")
	see("source", quiet)
	l, err := net.ListenUDP("udp4", nil)
	if err != nil {
		t.Fatal(err)
	}
	closed := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), l.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	l.Close()
	see("closed", &config.Checker{Conn: config.Connection{Target: closed, Timeout: time.Minute}})
}

// X01: the first datagram decides, and no size or number of them is too much.
func TestX01FloodOfGiants(t *testing.T) {
	c := server(t, "127.0.0.1:0", func(_ netip.AddrPort, _ []byte, send func([]byte) bool) {
		b := make([]byte, 65507)
		for send(b) {
		}
	})
	c.UDP = &ways[2]
	if o := run(t, c); o.Result != checker.Failed || !strings.Contains(o.Reason, ": 65507 octets, expected 0 to 255, after ") {
		t.Errorf("%+v", o)
	}
}

// The comparison against its definition, bit by bit.
func TestJudgeProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reply := rapid.SliceOfN(rapid.Byte(), 0, 4).Draw(t, "reply")
		p := &probe{Datagram: config.Datagram{
			Require: true, Reply: reply, Mask: rapid.SliceOfN(rapid.SampledFrom([]byte{0, 0xf, 0xf0, 0xff}), len(reply), len(reply)).Draw(t, "mask"),
			Min: rapid.IntRange(0, 5).Draw(t, "min"), Max: rapid.IntRange(0, 6).Draw(t, "max"),
		}}
		got := rapid.SliceOfN(rapid.Byte(), 0, 6).Draw(t, "got")
		for i := range min(len(got), len(reply)) { // else hardly any matches
			if rapid.Bool().Draw(t, "same") {
				got[i] = reply[i] ^ rapid.Byte().Draw(t, "noise")&^p.Mask[i]
			}
		}
		want := len(got) >= p.Min && len(got) <= p.Max
		for bit := range 8 * min(len(got), len(reply)) {
			at := func(b []byte) byte { return b[bit/8] >> (bit % 8) & 1 }
			want = want && (at(p.Mask) == 0 || at(got) == at(reply))
		}
		if err := p.judge(len(got), got); (err == nil) != want {
			t.Fatalf("%+v: %x: %v, want %v", p.Datagram, got, err, want)
		}
	})
}

func FuzzJudge(f *testing.F) {
	f.Add([]byte("pong"), []byte("pong"), []byte{0xff, 0xff, 0, 0xf0}, 0, 255)
	f.Add([]byte(""), []byte("pong"), []byte{0xff, 0xff, 0, 0xf0}, 1, 255)
	f.Add([]byte("pong and more"), []byte("p"), []byte{0xff}, 0, 4)
	f.Fuzz(func(t *testing.T, got, reply, mask []byte, least, most int) {
		if len(mask) < len(reply) {
			return
		}
		p := &probe{Datagram: config.Datagram{Require: true, Reply: reply, Mask: mask, Min: least, Max: most}}
		// As Receive does: the length of all, the octets that there is room for.
		room := make([]byte, len(reply))
		copy(room, got)
		err := p.judge(len(got), room)
		if outside := len(got) < least || len(got) > most; outside && err == nil && reply != nil {
			t.Fatalf("%d octets passed %d to %d", len(got), least, most)
		}
		if err == nil && reply != nil {
			for i := range min(len(got), len(reply)) {
				if got[i]&mask[i] != reply[i]&mask[i] {
					t.Fatalf("%x passed %x/%x", got, reply, mask)
				}
			}
		}
	})
}

func BenchmarkProbe(b *testing.B) {
	c := answer(b, "127.0.0.1:0", "pong")
	c.UDP = &ways[2]
	p := New(c)
	b.ReportAllocs()
	for b.Loop() {
		if o := p.Run(b.Context()); o.Result != checker.OK {
			b.Fatal(o.Reason)
		}
	}
}
