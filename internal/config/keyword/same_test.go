package keyword_test

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/keyword"
)

// Two checkers are the same exactly when they print the same, whatever place and
// file they came from.
func TestCheckersAreTheSameWhenTheyPrintTheSame(t *testing.T) {
	kinds := []config.CheckerKind{config.TCPCheck, config.HTTPGet, config.SSLGet, config.SMTPCheck, config.DNSCheck, config.UDPCheck, config.PingCheck, config.MiscCheck}
	rapid.Check(t, func(t *rapid.T) {
		at := netip.MustParseAddrPort("192.0.2.1:80")
		rs := &config.RealServer{Key: config.RSKey{AddrPort: netip.MustParseAddrPort("10.0.0.1:80")}, Weight: 1, Forward: config.Forwarding{Method: config.NAT}}
		vs := &config.VirtualServer{
			Key: config.VSKey{Protocol: config.TCP, Addr: at}, Protocol: config.TCP, Scheduler: "rr", Quorum: 1,
			Entries: []config.Entry{{Addr: at, Family: config.IPv4}}, RealServers: []*config.RealServer{rs},
		}
		cfg := &config.Config{VirtualServers: []*config.VirtualServer{vs}}
		cfg.Global.DrainInterval, cfg.Global.StopTimeout = time.Minute, time.Minute
		printed := func(c *config.Checker) string {
			rs.Checkers = []*config.Checker{c}
			var b bytes.Buffer
			if err := config.Print(&b, cfg); err != nil {
				t.Fatal(err)
			}
			return b.String()
		}
		kind := rapid.SampledFrom(kinds).Draw(t, "kind")
		a := drawChecker(t, &cfg.Global, vs, rs, kind)
		text := printed(a)
		back, list := keyword.LoadString("again", text, keyword.Options{})
		if back == nil {
			t.Fatalf("%v\n%s", list, text)
		}
		b := back.VirtualServers[0].RealServers[0].Checkers[0]
		if !a.SameAs(b) || !b.SameAs(a) {
			t.Fatalf("it is another one when it was read again:\n%s\n%s", text, printed(b))
		}
		// A part of another one makes it another one, unless they have that part alike.
		other := drawChecker(t, &cfg.Global, vs, rs, rapid.SampledFrom(kinds).Draw(t, "other kind"))
		c := *b
		switch rapid.IntRange(0, 3).Draw(t, "part") {
		case 0:
			c = *other
		case 1:
			c.Conn.BindIf = rapid.SampledFrom([]string{"", "eth0"}).Draw(t, "interface")
			if c.Misc != nil {
				c.Conn = config.Connection{}
			}
		case 2:
			c.Retry, c.Alpha = rapid.SampledFrom([]uint32{b.Retry, 3}).Draw(t, "retry"), drawBool(t, "alpha")
		case 3:
			if other.Kind == c.Kind {
				c.HTTP, c.SMTP, c.DNS, c.UDP, c.Misc = other.HTTP, other.SMTP, other.DNS, other.UDP, other.Misc
			}
		}
		same := printed(b) == printed(&c)
		if b.SameAs(&c) != same || c.SameAs(b) != same {
			t.Fatalf("they print the same: %t, they are: %t\n%s\n%s", same, b.SameAs(&c), printed(b), printed(&c))
		}
		if asks := b.AsksSame(&c); asks != bytes.Equal(b.AppendQuestion(nil), c.AppendQuestion(nil)) || same && !asks {
			t.Fatalf("they ask the same: %t, of\n%s\n%s", asks, printed(b), printed(&c))
		}
	})
}
