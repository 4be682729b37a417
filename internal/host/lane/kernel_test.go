package lane

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/http"
	"github.com/sluice-lb/sluice/internal/checker/ping"
	"github.com/sluice-lb/sluice/internal/checker/tcp"
	"github.com/sluice-lb/sluice/internal/checker/udp"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// bed is a director whose virtual addresses are on a dummy device, three real servers,
// an HTTP server on every address of each, and IPVS that sends everything to the last.
type bed struct {
	*testing.T
	*testkit.Topology
	http   []*testkit.HTTPServer
	keeper *Keeper
	set    []string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	testkit.Kernel(t)
	b := &bed{T: t, Topology: testkit.NewDR(t, 3)}
	d := b.Director
	d.IP(t, fmt.Sprintf("address del %s/32 dev front", b.VIP), fmt.Sprintf("address del %s/128 dev front", b.VIP6),
		"link add name vip type dummy", "link set vip up",
		fmt.Sprintf("address add %s/32 dev vip", b.VIP), fmt.Sprintf("address add %s/128 dev vip nodad", b.VIP6))
	for _, be := range b.Backends {
		b.http = append(b.http, testkit.NewHTTP(t, be.NS, ":80"))
		testkit.NewUDPEcho(t, be.NS, b.VIP.String()+":53")
	}
	last := b.Backends[2]
	for _, s := range [][2]string{{b.VIP.String() + ":80", last.Addr.String() + ":80"}, {"[" + b.VIP6.String() + "]:80", "[" + last.Addr6.String() + "]:80"}} {
		d.Run(t, "ipvsadm", "-A", "-t", s[0], "-s", "rr")
		d.Run(t, "ipvsadm", "-a", "-t", s[0], "-r", s[1], "-g")
	}
	b.keeper = b.newKeeper(Options{})
	return b
}

func (b *bed) newKeeper(o Options) *Keeper {
	o.Manage = func() bool { return true }
	o.Set = func(name, value, was, _ string) { b.set = append(b.set, name+"="+value+" was "+was) }
	return New(o)
}

func (b *bed) sync(lanes ...Lane) error {
	return b.Director.Do(func() error { return b.keeper.Sync(context.Background(), lanes) })
}

func (b *bed) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// lane is one through a backend, with a mark by its number.
func (b *bed) lane(n int, six bool, f config.Forwarding) Lane {
	l := Lane{Mark: config.ViaMark + uint32(n), Server: b.Backends[n-1].Addr, Forward: f, IPv6: six}
	if six {
		l.Server = b.Backends[n-1].Addr6
	}
	return l
}

func check(kind config.CheckerKind, target netip.AddrPort, mark uint32, wait time.Duration) *config.Checker {
	c := &config.Checker{Kind: kind, Conn: config.Connection{Target: target, FWMark: mark, Timeout: wait}}
	c.HTTP = &config.HTTP{URLs: []config.URL{{Path: "/", Status: []config.StatusRange{{First: 200, Last: 200}}}}}
	c.UDP = &config.Datagram{Payload: []byte("x"), Require: true}
	return c
}

func (b *bed) probe(c *config.Checker) checker.Outcome { b.Helper(); return b.probeFrom(b.Director, c) }

func (b *bed) probeFrom(ns *testkit.NS, c *config.Checker) checker.Outcome {
	b.Helper()
	var p checker.Probe
	var err error
	switch c.Kind {
	case config.HTTPGet:
		p, err = http.New(c, nil)
		b.must(err)
	case config.UDPCheck:
		p = udp.New(c)
	case config.PingCheck:
		p = ping.New(c)
	default:
		p = tcp.New(c)
	}
	var o checker.Outcome
	b.must(ns.Do(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), c.Conn.Timeout)
		defer cancel()
		o = p.Run(ctx)
		return nil
	}))
	return o
}

const (
	long  = 20 * time.Second
	short = 1500 * time.Millisecond
)

// passes fails the test unless a GET through a lane reaches that backend and no other.
func (b *bed) passes(l Lane) {
	b.Helper()
	b.must(b.keeper.Err(l.Mark, l.IPv6))
	before := b.requests()
	o := b.probe(check(config.HTTPGet, b.vip(l), l.Mark, long))
	if o.Result != checker.OK {
		b.Errorf("through %v: %v %s", l, o.Result, o.Reason)
		b.Log(b.Director.Run(b, "sh", "-c", fmt.Sprintf("ip rule; ip route show table %d; ip -6 route show table %d; ip -d -s link; nft list ruleset", l.Mark, l.Mark)))
		return
	}
	for i, n := range b.requests() {
		came := n - before[i]
		if want := map[bool]int{true: 1}[int(l.Mark-config.ViaMark) == i+1]; came != want {
			b.Errorf("through %v: %d requests came to backend %d, want %d", l, came, i+1, want)
		}
	}
}

func (b *bed) fails(l Lane, kind config.CheckerKind) {
	b.Helper()
	b.must(b.keeper.Err(l.Mark, l.IPv6))
	if o := b.probe(check(kind, b.vip(l), l.Mark, short)); o.Result != checker.Failed {
		b.Errorf("%v: %v %s, want a failure", l, o.Result, o.Reason)
	}
}

func (b *bed) vip(l Lane) netip.AddrPort {
	if l.IPv6 {
		return netip.AddrPortFrom(b.VIP6, 80)
	}
	return netip.AddrPortFrom(b.VIP, 80)
}

func (b *bed) requests() []int {
	var n []int
	for _, h := range b.http {
		n = append(n, h.Requests())
	}
	return n
}

// shown is everything that could be ours, as ip and nft show it.
func (b *bed) shown() string {
	b.Helper()
	return b.Director.Run(b, "sh", "-c", "ip -d rule; ip -d -6 rule; ip -4 route show table all; ip -6 route show table all | grep -v 'fe80\\|ff00\\|multicast\\|anycast'; ip -o link | grep -E 'slu' ; nft list tables; true")
}

var dr = config.Forwarding{Method: config.DR}

func TestKernelLaneDR(t *testing.T) {
	b := newBed(t)
	before := b.shown()
	lanes := []Lane{b.lane(1, false, dr), b.lane(2, false, dr), b.lane(3, false, dr), b.lane(1, true, dr), b.lane(2, true, dr)}
	b.must(b.sync(lanes...))
	for _, l := range lanes {
		b.passes(l)
	}
	if len(b.set) == 0 || !strings.HasPrefix(b.set[0], "net.ipv4.conf.front.accept_local=1 was 0") {
		t.Errorf("settings: %q", b.set)
	}
	// UDP and ping go the same way; echo requests to a balanced address are IPVS's never.
	if o := b.probe(check(config.UDPCheck, netip.AddrPortFrom(b.VIP, 53), lanes[0].Mark, long)); o.Result != checker.OK {
		t.Errorf("UDP_CHECK: %s", o.Reason)
	}
	for _, l := range []Lane{lanes[0], lanes[3]} {
		if o := b.probe(check(config.PingCheck, b.vip(l), l.Mark, long)); o.Result != checker.OK {
			t.Errorf("PING_CHECK: %s", o.Reason)
		}
	}
	// What has no mark is balanced, as before.
	seen := b.requests()
	if o := b.probeFrom(b.Client, check(config.HTTPGet, b.vip(lanes[0]), 0, long)); o.Result != checker.OK || b.requests()[2] != seen[2]+1 {
		t.Errorf("without a mark: %v %s, %v after %v", o.Result, o.Reason, b.requests(), seen)
	}

	b.Run("without the address", func(*testing.T) {
		b.Backends[0].IP(b, fmt.Sprintf("address del %s/32 dev lo", b.VIP), fmt.Sprintf("address del %s/128 dev lo", b.VIP6))
		b.fails(lanes[0], config.TCPCheck)
		b.fails(lanes[3], config.TCPCheck)
		if o := b.probe(check(config.TCPCheck, netip.AddrPortFrom(b.Backends[0].Addr, 80), 0, long)); o.Result != checker.OK {
			t.Errorf("the plain check: %s", o.Reason)
		}
		b.passes(lanes[1])
	})
	b.Run("without a listener", func(*testing.T) {
		b.http[1].Refuse()
		b.fails(lanes[1], config.TCPCheck)
	})
	b.Run("a killed process", func(*testing.T) {
		left := b.shown()
		b.keeper = b.newKeeper(Options{Before: true})
		b.must(b.sync(lanes...))
		if after := b.shown(); after != left {
			t.Errorf("adopting changed something:\n%s\nbefore:\n%s", after, left)
		}
		b.passes(lanes[2])
		ended := false
		b.keeper = b.newKeeper(Options{Before: true, End: func() error { ended = true; return nil }})
		b.must(b.sync())
		if after := b.shown(); after != before || !ended {
			t.Errorf("ended %t; left over:\n%s\nbefore:\n%s", ended, after, before)
		}
	})
}

func TestKernelLaneTunnels(t *testing.T) {
	b := newBed(t)
	before := b.shown()
	for i, tc := range []struct {
		name    string
		inner   bool // IPv6
		outer   bool
		f       config.Forwarding
		prepare string
		tunnel  string
	}{
		{"ipip", false, false, config.Forwarding{Method: config.TUN}, "", "type ipip local ADDR4"},
		{"ipip 6 in 4", true, false, config.Forwarding{Method: config.TUN}, "", "type sit local ADDR4"},
		{"ipip 4 in 6", false, true, config.Forwarding{Method: config.TUN}, "", "type ip6tnl local ADDR6 mode any"},
		{"ipip 6 in 6", true, true, config.Forwarding{Method: config.TUN}, "", "type ip6tnl local ADDR6 mode any"},
		{"gre", false, false, config.Forwarding{Method: config.TUN, Tunnel: config.GRE}, "", "type gre local ADDR4"},
		{"gre csum", false, false, config.Forwarding{Method: config.TUN, Tunnel: config.GRE, Checksum: config.Csum}, "", "type gre local ADDR4 icsum"},
		{"gre 6 in 4", true, false, config.Forwarding{Method: config.TUN, Tunnel: config.GRE}, "", "type gre local ADDR4"},
		{"gre 6 in 6", true, true, config.Forwarding{Method: config.TUN, Tunnel: config.GRE}, "", "type ip6gre local ADDR6"},
		{"gue", false, false, config.Forwarding{Method: config.TUN, Tunnel: config.GUE, Port: 6080}, "fou add port 6080 gue", "type ipip local ADDR4"},
		{"gue csum", false, false, config.Forwarding{Method: config.TUN, Tunnel: config.GUE, Port: 6080, Checksum: config.Csum}, "fou add port 6080 gue", "type ipip local ADDR4"},
		{"gue remcsum", false, false, config.Forwarding{Method: config.TUN, Tunnel: config.GUE, Port: 6080, Checksum: config.RemCsum}, "fou add port 6080 gue", "type ipip local ADDR4"},
		{"gue 6 in 4", true, false, config.Forwarding{Method: config.TUN, Tunnel: config.GUE, Port: 6080}, "fou add port 6080 gue", "type sit local ADDR4"},
		{"gue 6 in 6", true, true, config.Forwarding{Method: config.TUN, Tunnel: config.GUE, Port: 6080}, "fou add port 6080 gue -6", "type ip6tnl local ADDR6 mode any"},
	} {
		n := i%2 + 1
		b.Run(tc.name, func(t *testing.T) {
			was := b.T
			b.T = t
			defer func() { b.T = was }()
			be := b.Backends[n-1]
			if tc.f.Tunnel == config.GUE {
				if _, err := b.Director.Output("modprobe", "-a", "fou", "fou6"); err != nil {
					t.Skipf("neither end can have GUE in this kernel: %v", err)
				}
			}
			l := b.lane(n, tc.inner, tc.f)
			l.Server = be.Addr
			if tc.outer {
				l.Server = be.Addr6
			}
			b.must(b.sync(l))
			b.fails(l, config.TCPCheck)
			if tc.prepare != "" {
				be.Run(t, "ip", strings.Fields(tc.prepare)...)
				del := strings.Fields(strings.NewReplacer("add", "del", " gue", "").Replace(tc.prepare))
				defer be.Run(t, "ip", del...)
			}
			be.IP(t, "link add name tun type "+strings.NewReplacer("type ", "", "ADDR4", be.Addr.String(), "ADDR6", be.Addr6.String()).Replace(tc.tunnel), "link set tun up")
			defer be.IP(t, "link del tun")
			b.passes(l)
			b.must(b.sync(l)) // read back, it is what was written
		})
	}
	b.must(b.sync())
	if after := b.shown(); after != before {
		t.Errorf("left over:\n%s\nbefore:\n%s", after, before)
	}
}
