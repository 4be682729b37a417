package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/checkertest"
	"github.com/sluice-lb/sluice/internal/config"
)

// server answers each query with what respond returns, datagram by datagram.
func server(t testing.TB, addr string, respond func(query []byte) [][]byte) *config.Checker {
	t.Helper()
	return serve(t, addr, func(query []byte, send func([]byte) bool) {
		for _, b := range respond(query) {
			send(b)
		}
	})
}

// serve calls respond with each query; send says false when the test is over.
func serve(t testing.TB, addr string, respond func(query []byte, send func([]byte) bool)) *config.Checker {
	t.Helper()
	l, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
	if err != nil {
		t.Skipf("listen on %s: %v", addr, err)
	}
	var wg sync.WaitGroup
	t.Cleanup(func() { l.Close(); wg.Wait() })
	wg.Go(func() {
		buf := make([]byte, 1024)
		for {
			n, from, err := l.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			respond(buf[:n], func(b []byte) bool {
				_, err := l.WriteToUDPAddrPort(b, from)
				return err == nil
			})
		}
	})
	return &config.Checker{
		Kind: config.DNSCheck,
		Conn: config.Connection{Target: l.LocalAddr().(*net.UDPAddr).AddrPort(), Timeout: 5 * time.Second},
		DNS:  &config.DNS{Type: "SOA", Name: "Example.com"},
	}
}

func run(t testing.TB, c *config.Checker) checker.Outcome {
	t.Helper()
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	o := p.Run(t.Context())
	if why := checkertest.Unfounded(o); why != "" {
		t.Errorf("%+v: %s", o, why)
	}
	return o
}

// header is an answer's header with the query's identifier.
func header(query []byte, flags1, flags2 byte) []byte {
	return append([]byte{query[0], query[1], flags1, flags2}, make([]byte, 8)...)
}

func TestVerdictByRCodeAlone(t *testing.T) {
	names := "NOERROR FORMERR SERVFAIL NXDOMAIN NOTIMP REFUSED YXDOMAIN YXRRSET NXRRSET NOTAUTH NOTZONE DSOTYPENI unassigned unassigned unassigned unassigned"
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		for rcode, name := range strings.Fields(names) {
			// TC and other opcodes count for nothing, nor does an empty answer.
			for _, flags1 := range []byte{0x80, 0x82, 0xf9} {
				c := server(t, addr, func(q []byte) [][]byte { return [][]byte{header(q, flags1, 0x80|byte(rcode))} })
				o := run(t, c)
				want, reason := checker.Failed, fmt.Sprintf("query SOA Example.com.: answer from %s: rcode %d (%s), expected 0 (NOERROR), after ", c.Conn.Target, rcode, name)
				if rcode == 0 {
					want, reason = checker.OK, "rcode 0 (NOERROR)"
				}
				if o.Result != want || !strings.HasPrefix(o.Reason, reason) || o.Took <= 0 {
					t.Errorf("%+v, want %v: %q", o, want, reason)
				}
			}
		}
	}
}

// What is no answer to the question is ignored; the answer that follows counts.
func TestStraysAreIgnored(t *testing.T) {
	strays := func(q []byte) [][]byte {
		wrong := header(q, 0x80, 2)
		wrong[1] ^= 1
		return [][]byte{
			{},                       // empty
			header(q, 0x80, 2)[:11],  // short
			wrong,                    // of another question
			q,                        // a query
			append(wrong, q[12:]...), // long
			make([]byte, 60000),      // giant
			header(q, 0x00, 0x80|2),  // a query with an rcode
		}
	}
	c := server(t, "127.0.0.1:0", func(q []byte) [][]byte { return append(strays(q), header(q, 0x80, 0)) })
	if o := run(t, c); o.Result != checker.OK {
		t.Errorf("%+v", o)
	}
	c = server(t, "127.0.0.1:0", strays)
	c.Conn.Timeout = 100 * time.Millisecond
	if o := run(t, c); o.Result != checker.Failed || o.Took < c.Conn.Timeout ||
		!strings.Contains(o.Reason, "no answer in time after ") || !strings.HasSuffix(o.Reason, ", 7 datagrams that are no answer were ignored") {
		t.Errorf("%+v", o)
	}
}

func TestSilenceIsFailureAtTheDeadline(t *testing.T) {
	c := server(t, "127.0.0.1:0", func([]byte) [][]byte { return nil })
	c.Conn.Timeout = 50 * time.Millisecond
	want := "query SOA Example.com.: answer from " + c.Conn.Target.String() + ": no answer in time after "
	if o := run(t, c); o.Result != checker.Failed || o.Took < c.Conn.Timeout || !strings.HasPrefix(o.Reason, want) {
		t.Errorf("%+v", o)
	}
}

func TestC02ClosedPortIsFailedBindMissingIsUnable(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		l, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort(addr)))
		if err != nil {
			t.Skipf("listen on %s: %v", addr, err)
		}
		l.Close()
		c := &config.Checker{DNS: &config.DNS{Type: "A", Name: "."}, Conn: config.Connection{Target: l.LocalAddr().(*net.UDPAddr).AddrPort(), Timeout: time.Minute}}
		if o := run(t, c); o.Result != checker.Failed || !strings.HasPrefix(o.Reason, "query A .: answer from "+c.Conn.Target.String()+": ICMP") || !strings.Contains(o.Reason, "(ECONNREFUSED)") {
			t.Errorf("%+v", o)
		}
		c.Conn.BindAddr = netip.MustParseAddr("192.0.2.77")
		if c.Conn.Target.Addr().Is6() {
			c.Conn.BindAddr = netip.MustParseAddr("2001:db8::77")
		}
		if o := run(t, c); o.Result != checker.Unable || !strings.Contains(o.Reason, "is not on this machine") {
			t.Errorf("%+v", o)
		}
	}
}

func TestCancelledIsUnable(t *testing.T) {
	c := server(t, "127.0.0.1:0", func([]byte) [][]byte { return nil })
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	for range 2 {
		if o := p.Run(ctx); o.Result != checker.Unable || o.Reason != "cancelled" {
			t.Errorf("%+v", o)
		}
	}
}

// C17: a run asks once; how often it is repeated is decided elsewhere, alike for
// all checks. Identifiers differ from run to run.
func TestC17OneRunAsksOnce(t *testing.T) {
	asked := make(chan [2]byte, 100)
	c := server(t, "127.0.0.1:0", func(q []byte) [][]byte {
		asked <- [2]byte(q)
		return [][]byte{header(q, 0x80, 2)}
	})
	c.Retry = 3
	p, err := New(c)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[[2]byte]bool{}
	for range 4 {
		if o := p.Run(t.Context()); o.Result != checker.Failed {
			t.Errorf("%+v", o)
		}
		ids[<-asked] = true
	}
	if len(asked) != 0 || len(ids) < 3 {
		t.Errorf("%d queries too many, %d identifiers in 4", len(asked), len(ids))
	}
}

// X01: a flood that never pauses is named, and ends no later than the deadline.
func TestX01Flood(t *testing.T) {
	flood := func(q []byte, send func([]byte) bool) {
		wrong := header(q, 0x80, 0)
		wrong[0] ^= 1
		for send(wrong) {
		}
	}
	c := serve(t, "127.0.0.1:0", flood)
	c.Conn.Timeout = time.Minute
	if o := run(t, c); o.Result != checker.Failed || !strings.Contains(o.Reason, ": flooded, none of 1000 datagrams is an answer after ") {
		t.Errorf("%+v", o)
	}
	c = serve(t, "127.0.0.1:0", flood)
	c.Conn.Timeout = time.Millisecond // either may come first
	if o := run(t, c); o.Result == checker.OK {
		t.Errorf("%+v", o)
	}
}

// X01: what is behind the header is not looked at, however it is made.
func TestX01HostileAnswers(t *testing.T) {
	for name, tail := range map[string][]byte{
		"a name that points to itself": {0xc0, 12, 0, 6, 0, 1},
		"names in a circle":            {0xc0, 14, 0xc0, 12, 0, 6, 0, 1},
		"a label without end":          {63, 'a'},
		"giant":                        make([]byte, 60000),
		"nothing":                      nil,
	} {
		c := server(t, "127.0.0.1:0", func(q []byte) [][]byte {
			b := header(q, 0x80, 0)
			for i := 4; i < 12; i++ {
				b[i] = 0xff // 65535 records of each kind
			}
			return [][]byte{append(b, tail...)}
		})
		if o := run(t, c); o.Result != checker.OK {
			t.Errorf("%s: %+v", name, o)
		}
	}
}

func TestQueryOnTheWire(t *testing.T) {
	for _, tt := range []struct {
		kind, name, wire string
	}{
		{"SOA", "", "\x00\x00\x06\x00\x01"},
		{"SOA", ".", "\x00\x00\x06\x00\x01"},
		{"A", "Example.COM", "\x07Example\x03COM\x00\x00\x01\x00\x01"},
		{"NS", "example.com.", "\x07example\x03com\x00\x00\x02\x00\x01"},
		{"CNAME", "a", "\x01a\x00\x00\x05\x00\x01"},
		{"MX", "a\\.b", "\x02a\\\x01b\x00\x00\x0f\x00\x01"},
		{"TXT", "_x y", "\x04_x y\x00\x00\x10\x00\x01"},
		{"AAAA", "\xff", "\x01\xff\x00\x00\x1c\x00\x01"},
		{"RRSIG", "a", "\x01a\x00\x00\x2e\x00\x01"},
		{"DNSKEY", "a", "\x01a\x00\x00\x30\x00\x01"},
	} {
		asked := make(chan string, 1)
		c := server(t, "127.0.0.1:0", func(q []byte) [][]byte {
			asked <- string(q[2:])
			return [][]byte{header(q, 0x80, 0)}
		})
		c.DNS = &config.DNS{Type: tt.kind, Name: tt.name}
		if o := run(t, c); o.Result != checker.OK {
			t.Errorf("%+v", o)
		}
		// Recursion desired, one question, no EDNS.
		if got, want := <-asked, "\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"+tt.wire; got != want {
			t.Errorf("%s %q: sent %q, want %q", tt.kind, tt.name, got, want)
		}
	}
}

func TestNamesThatNoQueryCanCarry(t *testing.T) {
	label := strings.Repeat("a", 63)
	longest := strings.Join([]string{label, label, label, label[:61]}, ".")
	for _, tt := range []struct{ kind, name, want string }{
		{"A", label + "a.b", "label \"" + label + "a\" is too long: 64 octets, at most 63"},
		{"A", longest + "a", "the name is too long: 255 octets with its last dot, at most 254"},
		{"A", "a..b", ""},
		{"A", "..", ""},
		{"PTR", "a", "the type is not known"},
	} {
		p, err := New(&config.Checker{Kind: config.DNSCheck, DNS: &config.DNS{Type: tt.kind, Name: tt.name}})
		if err == nil {
			t.Errorf("%s %q: made %v", tt.kind, tt.name, p)
		} else if want := fmt.Sprintf("DNS_CHECK cannot ask for type %q name %q: ", tt.kind, tt.name); !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), tt.want) {
			t.Errorf("%v\nwant ...%s...%s", err, want, tt.want)
		}
	}
	for _, name := range []string{longest, longest + ".", label} {
		if q, err := pack("A", strings.TrimSuffix(name, ".")+"."); err != nil || len(q) != 12+len(strings.TrimSuffix(name, "."))+2+4 {
			t.Errorf("%q: %d octets, %v", name, len(q), err)
		}
	}
	if _, err := New(&config.Checker{Kind: config.DNSCheck}); err == nil {
		t.Error("made without a question")
	}
}

// Whatever pack accepts reads back as the same name.
func TestPackedNamesReadBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		labels := rapid.SliceOfN(rapid.StringMatching(`[^.]{1,70}`), 0, 5).Draw(t, "labels")
		name := strings.Join(labels, ".") + "."
		q, err := pack("TXT", name)
		if err != nil {
			ok := len(name) <= maxName
			for _, l := range labels {
				ok = ok && len(l) <= 63
			}
			if ok {
				t.Fatalf("%q refused: %v", name, err)
			}
			return
		}
		var m dnsmessage.Message
		if err := m.Unpack(q); err != nil || len(m.Questions) != 1 || m.Questions[0].Name.String() != name {
			t.Fatalf("%q became %+v, %v", name, m.Questions, err)
		}
	})
}

func FuzzAnswer(f *testing.F) {
	q := []byte{0x12, 0x34, 1, 0}
	for _, b := range [][]byte{header(q, 0x80, 0), header(q, 0x80, 3), header(q, 0, 3), header(q, 0x80, 0)[:11], nil} {
		f.Add(b, q)
	}
	f.Fuzz(func(t *testing.T, answer, query []byte) {
		if len(query) < 2 {
			return
		}
		rcode, ok := parse(answer, query)
		want := len(answer) >= 12 && answer[0] == query[0] && answer[1] == query[1] && answer[2]&0x80 != 0
		if ok != want || ok && byte(rcode) != answer[3]&0xf {
			t.Fatalf("%x to %x: %d, %v", answer, query, rcode, ok)
		}
		if rcodeName(rcode) == "" {
			t.Fatalf("rcode %d has no name", rcode)
		}
	})
}

func BenchmarkProbe(b *testing.B) {
	c := server(b, "127.0.0.1:0", func(q []byte) [][]byte { return [][]byte{header(q, 0x80, 0)} })
	p, err := New(c)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if o := p.Run(b.Context()); o.Result != checker.OK {
			b.Fatal(o.Reason)
		}
	}
}
