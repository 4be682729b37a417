package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// device is the vip_device of these tests.
const device = "sluice0"

// newEdge is a bed whose virtual addresses are on no network of the client's, who sends
// for them to the director. So the director is asked whether an address is on a device or
// not, and says that it has no way to one that is none of its own.
func newEdge(t *testing.T, backends int) *bed {
	t.Helper()
	for _, m := range []string{"dummy", "nf_tables", "nft_reject_inet"} {
		_ = exec.Command("modprobe", m).Run() // loading takes an emulated machine a while
	}
	b := newBed(t, testkit.NewNAT, backends)
	b.Director.IP(t, "address del "+b.VIP.String()+"/32 dev front", "address del "+b.VIP6.String()+"/128 dev front")
	b.VIP, b.VIP6 = netip.MustParseAddr("198.51.100.10"), netip.MustParseAddr("2001:db8:1::10")
	b.Client.IP(t, "route add 198.51.100.0/24 via 192.0.2.1", "route add 2001:db8:1::/64 via 2001:db8::1")
	return b
}

// edgeGlobals is a global block with these lines.
func edgeGlobals(lines ...string) string {
	s := "global_defs {\n drain_interval 1\n"
	for _, l := range lines {
		s += " " + l + "\n"
	}
	return s + "}\n"
}

// virtual is a virtual server as it is named, of RS1 and so on with the port 80.
func virtual(name, extra string, servers ...int) string {
	s := "virtual_server " + name + " {\n delay_loop 1\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n retry 1\n warmup 0\n " + extra + "\n"
	for _, n := range servers {
		s += realServer(n, "")
	}
	return s + "}\n"
}

// addresses are those of a device as ip shows them, but for a link's own; "-" without the
// device.
func addresses(t testkit.T, ns *testkit.NS, device string) string {
	t.Helper()
	var devices []struct {
		Name  string `json:"ifname"`
		Addrs []struct {
			Local string `json:"local"`
			Bits  int    `json:"prefixlen"`
			Scope string `json:"scope"`
		} `json:"addr_info"`
	}
	if err := json.Unmarshal([]byte(ns.Run(t, "ip", "-j", "address", "show")), &devices); err != nil {
		t.Fatalf("ip -j address: %v", err)
	}
	for _, d := range devices {
		if d.Name != device {
			continue
		}
		var all []netip.Prefix
		for _, a := range d.Addrs {
			if a.Scope != "link" {
				all = append(all, netip.PrefixFrom(netip.MustParseAddr(a.Local), a.Bits))
			}
		}
		slices.SortFunc(all, netip.Prefix.Compare)
		return strings.Trim(fmt.Sprint(all), "[]")
	}
	return "-"
}

// on waits until a device has these addresses and no other.
func (b *bed) on(device, want string) {
	b.Helper()
	testkit.Eventually(b.T, patience, func() string {
		if got := addresses(b.T, b.Director, device); got != want {
			return fmt.Sprintf("%s has %q, want %q", device, got, want)
		}
		return ""
	})
}

// machine is all of a director that addresses, guard and marks could change, as its tools
// show it, but for the IPVS table.
func machine(t testkit.T, ns *testkit.NS) string {
	t.Helper()
	var s strings.Builder
	// One process for all of it: starting seven is what an emulated machine takes long for.
	text := ns.Run(t, "sh", "-c", `for c in "-br link show" "-br address show" "-4 route show table all" "-6 route show table all" "-4 rule" "-6 rule"
do echo "== $c"; ip $c | sort; done; echo "== nft"; nft list ruleset`)
	for l := range strings.Lines(text) {
		words := strings.Fields(l)
		if strings.Contains(l, " fe80::") && !strings.HasPrefix(l, device) {
			continue
		}
		// A device's own address is another one each time that it is made.
		words = slices.DeleteFunc(words, func(w string) bool { return strings.HasPrefix(w, "fe80::") || strings.Count(w, ":") == 5 })
		if len(words) > 2 && slices.Contains([]string{"UNKNOWN", "UP", "DOWN"}, words[1]) {
			words[1] = "-"         // a veth's comes later than the veth
			slices.Sort(words[2:]) // addresses stand in the order in which they came
		}
		fmt.Fprintln(&s, strings.Join(words, " "))
	}
	return s.String()
}

// isAgain waits until a director is as it was, without a line more or less.
func (b *bed) isAgain(want string) {
	b.Helper()
	testkit.Eventually(b.T, patience, func() string {
		return difference(want, machine(b.T, b.Director))
	})
}

// difference are the lines that only one of two texts has, the first twenty.
func difference(want, got string) string {
	const most = 20
	var s string
	w, g := strings.Split(want, "\n"), strings.Split(got, "\n")
	for _, l := range g {
		if !slices.Contains(w, l) {
			s += "too many: " + l + "\n"
		}
	}
	for _, l := range w {
		if !slices.Contains(g, l) {
			s += "missing: " + l + "\n"
		}
	}
	if lines := strings.SplitAfterN(s, "\n", most+1); len(lines) > most {
		s = strings.Join(lines[:most], "") + "and more\n"
	}
	return s
}

// sight is a service's weights and, read after them, whether an address is on the device.
type sight struct {
	begun, ended time.Time
	table        string
	announced    bool
}

// film looks at a service and its address a hundred times a second.
type film struct {
	b     *bed
	addr  netip.Addr
	stop  chan struct{}
	done  sync.WaitGroup
	mu    sync.Mutex
	shots []sight
}

func (b *bed) film(addr netip.Addr, port int) *film {
	f := &film{b: b, addr: addr, stop: make(chan struct{})}
	f.done.Go(func() {
		for {
			select {
			case <-f.stop:
				return
			case <-time.After(10 * time.Millisecond):
			}
			s := sight{begun: time.Now(), table: b.weights(fmt.Sprintf("tcp %s", netip.AddrPortFrom(addr, uint16(port))))}
			s.announced = b.has(addr)
			s.ended = time.Now()
			f.mu.Lock()
			f.shots = append(f.shots, s)
			f.mu.Unlock()
		}
	})
	return f
}

// weights is bed.table for any service.
func (b *bed) weights(key string) string {
	s := testkit.ReadProc(b.T, b.Director).Find(key)
	if s == nil {
		return "-"
	}
	var out []string
	for _, d := range s.Dests {
		n := 9
		for i, be := range b.Backends {
			if a := d.Addr.Addr(); a == be.Addr || a == be.Addr6 {
				n = i + 1
			}
		}
		out = append(out, fmt.Sprintf("%d:%d", n, d.Weight))
	}
	return strings.Join(out, " ")
}

// has says whether an address is on the device, as the kernel lists its addresses.
func (b *bed) has(addr netip.Addr) (is bool) {
	_ = b.Director.Do(func() error {
		i, err := net.InterfaceByName(device)
		if err != nil {
			return err
		}
		list, err := i.Addrs()
		for _, a := range list {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Unmap() == addr {
				is = true
			}
		}
		return err
	})
	return is
}

// cut ends the film and judges it: as long as the address was there the service was one of
// the tables that may be seen then, and for delay after it was gone too; when it came back
// one of them was there before. Each read of the table is before the address's, so that no
// pause of the machine makes a right order look wrong.
func (f *film) cut(delay time.Duration, tables ...string) {
	f.b.Helper()
	// Who calls has seen the end of it, and the film may not have.
	called := time.Now()
	testkit.Eventually(f.b.T, patience, func() string {
		f.mu.Lock()
		defer f.mu.Unlock()
		if n := len(f.shots); n == 0 || f.shots[n-1].begun.Before(called) {
			return "no look since the film was to end"
		}
		return ""
	})
	close(f.stop)
	f.done.Wait()
	var lastOn time.Time
	var left, changed bool
	for i, s := range f.shots {
		fits := slices.Contains(tables, s.table)
		switch {
		case s.announced && left && i+1 < len(f.shots) && !slices.Contains(tables, f.shots[i+1].table):
			f.b.Errorf("%s came back while the service was %q", f.addr, f.shots[i+1].table)
		case s.announced && !left && !fits:
			f.b.Fatalf("the table became %q while %s was still announced", s.table, f.addr)
		case s.announced:
			if !left {
				lastOn = s.begun
			}
		default:
			left = true
			if !fits && !changed {
				changed = true
				if took := s.ended.Sub(lastOn); took < delay {
					f.b.Errorf("the table became %q %v after %s went, want %v at least", s.table, took, f.addr, delay)
				}
			}
		}
	}
	f.b.Logf("%d looks at %s", len(f.shots), f.addr)
	if !left || !changed {
		f.b.Errorf("in %d looks %s went: %v, and the table changed after: %v", len(f.shots), f.addr, left, changed)
	}
}

// holds opens connections like bed.hold, to any address.
func (b *bed) holds(addr netip.Addr, port, n int) *testkit.Long {
	b.Helper()
	l := testkit.OpenLong(b.T, b.Client, netip.AddrPortFrom(addr, uint16(port)).String(), n)
	if r := l.Report(); r.Kept != n {
		b.Fatalf("opening %d connections to %s: %s", n, addr, r)
	}
	return l
}

// kept fails the test if any of some connections was lost.
func kept(b *bed, when string, longs ...*testkit.Long) {
	b.Helper()
	for i, l := range longs {
		l.Settle(b.T)
		if r := l.Report(); r.Lost() != 0 {
			b.Errorf("%s, clients %d: %s", when, i, r)
		}
	}
}

// refuses checks that a new connection is refused and does not just get no answer.
func (b *bed) refuses(addr string) {
	b.Helper()
	testkit.Eventually(b.T, patience, func() string {
		l := testkit.OpenLong(b.T, b.Client, addr, 1)
		defer l.Abort()
		if r := l.Report(); r.Losses[testkit.Refused] != 1 {
			return fmt.Sprintf("a new connection to %s: %s, want refused", addr, r)
		}
		return ""
	})
}
