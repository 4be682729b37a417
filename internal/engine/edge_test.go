package engine

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// ground is the machine around the table: it has the newest wishes, and reports at once
// unless it is stuck.
type ground struct {
	mu     sync.Mutex
	e      *Engine
	stuck  bool
	left   bool // an earlier process was killed
	turn   uint64
	wishes map[config.VSKey]*edge.Wish
	calls  int
	// gone is when each address was last withdrawn.
	gone map[netip.Addr]time.Time
	nft  *config.NFTables
	anew bool
}

func (g *ground) take(w edge.Wishes) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.calls++
	if w.Turn != g.turn+1 {
		panic(fmt.Sprintf("turn %d after %d", w.Turn, g.turn))
	}
	before := g.announced()
	g.turn, g.nft, g.anew = w.Turn, w.NFTables, w.Anew
	for k, wish := range w.Changed {
		if g.wishes[k] = wish; wish == nil {
			delete(g.wishes, k)
		}
	}
	after := g.announced()
	for a := range before {
		if !after[a] {
			g.gone[a] = time.Now()
		}
	}
	if !g.stuck {
		g.e.Edge(edge.Report{Turn: w.Turn, Announced: len(after)})
	}
}

func (g *ground) announced() map[netip.Addr]bool {
	on := map[netip.Addr]bool{}
	for _, w := range g.wishes {
		for _, a := range w.Addresses {
			if w.Announce {
				on[a] = true
			}
		}
	}
	return on
}

// report tells the engine of the last turn.
func (g *ground) report() {
	g.mu.Lock()
	turn := g.turn
	g.mu.Unlock()
	g.e.Edge(edge.Report{Turn: turn})
	synctest.Wait()
}

// said is the wish of the one virtual server, as "announce local 80/tcp".
func (g *ground) said(k config.VSKey) string {
	synctest.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	w := g.wishes[k]
	if w == nil {
		return "nothing"
	}
	var out []string
	for word, on := range map[string]bool{"announce": w.Announce, "local": w.Local, "guard": w.Guard} {
		if on {
			out = append(out, word)
		}
	}
	slices.Sort(out)
	for _, s := range w.Services {
		out = append(out, fmt.Sprintf("%d/%s", s.Port, s.Protocol))
	}
	for _, m := range w.Mapped {
		out = append(out, fmt.Sprintf("%s=%d", m.Addr, w.Mark))
	}
	return strings.Join(out, " ")
}

// withVIP is a configuration with the address on a device.
func withVIP(cfg *config.Config, follow config.VIPFollow) *config.Config {
	cfg.Global.VIPDelay = time.Second
	for _, vc := range cfg.VirtualServers {
		vc.VIP = config.VIP{Device: "vip0", Follow: follow, Guard: true}
	}
	return cfg
}

func sorry(cfg *config.Config) *config.Config {
	cfg.VirtualServers[0].Sorry = &config.SorryServer{Key: config.RSKey{AddrPort: netip.MustParseAddrPort(target(9))}, Forward: config.Forwarding{Method: config.NAT}}
	return cfg
}

// edged runs a test with a machine around the table.
func edged(t *testing.T, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.ground = &ground{wishes: map[config.VSKey]*edge.Wish{}, gone: map[netip.Addr]time.Time{}}
		r.state.on = true
		f(r)
	})
}

func (r *rig) wish(want string) {
	r.Helper()
	if got := r.ground.said(vsKey); got != want {
		r.Errorf("it wishes %q, want %q", got, want)
	}
}

var vsKey = config.VSKey{Protocol: config.TCP, Addr: vip}

// TestWishesOff: without any of it nobody is asked for anything.
func TestWishesOff(t *testing.T) {
	edged(t, func(r *rig) {
		r.start(sorry(conf(1, 2)))
		r.pass(time.Minute)
		r.farm.set(1, checker.Failed, "refused")
		r.farm.set(2, checker.Failed, "refused")
		r.pass(time.Minute)
		r.want("9:1")
		r.passive(true)
		r.passive(false)
		r.reload(conf(1))
		if err := r.e.Withdraw(r.Context()); err != nil {
			r.Error(err)
		}
		r.stop(nil)
		if r.ground.calls != 0 || r.e.Snapshot().Edge != nil || r.e.vss[0].vip != nil {
			r.Errorf("%d calls", r.ground.calls)
		}
	})
}

func (r *rig) passive(on bool) PassiveChange {
	r.Helper()
	c, err := r.e.SetPassive(r.Context(), on, "anna", "new  kernel")
	if err != nil {
		r.Fatal(err)
	}
	return c
}

// TestAddressComesAfterTheTable: as long as there is no table, or the kernel refuses,
// nothing is announced.
func TestAddressComesAfterTheTable(t *testing.T) {
	edged(t, func(r *rig) {
		r.setDial(errPart)
		r.table.Fail(func(op ipvs.Op) error {
			if op.Kind == ipvs.OpAddService {
				return ipvs.NewError(op, 12)
			}
			return nil
		})
		r.start(withVIP(conf(1), config.VIPAlways))
		r.pass(time.Minute)
		r.wish("nothing")
		r.setDial(nil)
		r.pass(time.Minute)
		r.wish("guard")
		if v := r.e.Snapshot().VirtualServers[0].VIP; v == nil || v.Announced || v.Why != "its services are not in the table yet" {
			r.Errorf("status says %+v", v)
		}
		r.table.Fail(nil)
		r.pass(time.Minute)
		r.wish("announce guard local 80/tcp")
		if v := r.e.Snapshot().VirtualServers[0].VIP; v == nil || !v.Announced || v.Device != "vip0" || v.Addresses != 1 || v.Follow != "always" {
			r.Errorf("status says %+v", v)
		}
		r.stop(nil)
		r.wish("nothing")
	})
}

// failing takes both servers of a pool down.
func (r *rig) failing() {
	r.farm.set(1, checker.Failed, "refused")
	r.farm.set(2, checker.Failed, "refused")
}

// TestRemovedByReload: the address first, then vip_delay, then the drain; the reload
// returns at once. The last connection ends what the address is taken in by.
func TestRemovedByReload(t *testing.T) {
	edged(t, func(r *rig) {
		r.start(withVIP(conf(1, 2), config.VIPAlways))
		r.pass(time.Minute)
		r.connections(1, 3)
		r.writes()
		none := &config.Config{Global: config.Global{VIPDelay: time.Second, DrainInterval: time.Minute}}
		begun := time.Now()
		r.reload(none)
		if took := time.Since(begun); took > 0 {
			r.Errorf("the reload took %v", took)
		}
		r.wish("guard local 80/tcp")
		r.want("1:1 2:1")
		if s := r.e.Snapshot(); len(s.Leaving) != 1 || s.Leaving[0].Destinations[0].Wanted != 1 {
			r.Errorf("status says %+v", s.Leaving)
		}
		r.pass(990 * time.Millisecond)
		if n := r.writes(); n != 0 {
			r.Errorf("%d operations before vip_delay", n)
		}
		r.pass(20 * time.Millisecond)
		r.want("1:0")
		r.wish("guard local")
		r.connections(1, 0)
		r.pass(time.Minute)
		r.want("")
		r.wish("nothing")
		r.stop(nil)
	})
}

// TestRemovedAndBack within vip_delay: it goes on as if nothing had been.
func TestRemovedAndBack(t *testing.T) {
	edged(t, func(r *rig) {
		r.start(withVIP(conf(1, 2), config.VIPAlways))
		r.pass(time.Minute)
		r.writes()
		r.reload(&config.Config{Global: config.Global{VIPDelay: time.Minute}})
		r.pass(10 * time.Second)
		r.reload(withVIP(conf(1, 2), config.VIPAlways))
		r.wish("announce guard local 80/tcp")
		r.pass(2 * time.Minute)
		if n := r.writes(); n != 0 {
			r.Errorf("%d operations", n)
		}
		r.want("1:1 2:1")
		// While it drains, too.
		r.connections(1, 1)
		r.reload(&config.Config{Global: config.Global{VIPDelay: time.Second, DrainInterval: time.Minute}})
		r.pass(2 * time.Second)
		r.want("1:0")
		r.reload(withVIP(conf(1), config.VIPAlways))
		r.want("1:1")
		r.wish("announce guard local 80/tcp")
		if len(r.e.edge.ghosts) != 0 {
			r.Errorf("ghosts are left: %v", r.e.edge.ghosts)
		}
		r.stop(nil)
	})
}

// TestRemovedOfAGroup: a service that a group loses leaves as a virtual server does.
func TestRemovedOfAGroup(t *testing.T) {
	edged(t, func(r *rig) {
		group := func(ports ...uint16) *config.Config {
			cfg := withVIP(conf(1), config.VIPAlways)
			vc := cfg.VirtualServers[0]
			vc.Key, vc.Entries = config.VSKey{Group: "g"}, nil
			for _, p := range ports {
				vc.Entries = append(vc.Entries, config.Entry{Addr: netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(p)}), 80), Family: config.IPv4})
			}
			return cfg
		}
		r.start(group(1, 2))
		r.pass(time.Minute)
		r.writes()
		r.reload(group(2))
		lost := config.VSKey{Protocol: config.TCP, Addr: vip}
		if got := r.ground.said(lost); got != "guard local 80/tcp" {
			r.Errorf("what it lost wishes %q", got)
		}
		if got := r.ground.said(config.VSKey{Group: "g"}); got != "announce guard local 80/tcp" {
			r.Errorf("the group wishes %q", got)
		}
		r.want("1:1")
		r.pass(1100 * time.Millisecond)
		r.want("")
		if got := r.ground.said(lost); got != "nothing" {
			r.Errorf("what it lost wishes %q", got)
		}
		r.stop(nil)
		if len(r.ground.wishes) != 0 {
			r.Errorf("wishes are left: %v", slices.Collect(maps.Keys(r.ground.wishes)))
		}
	})
}

// TestUDPIsLetInWhileItLeaves: nobody can tell a new datagram from an old one.
func TestUDPIsLetInWhileItLeaves(t *testing.T) {
	edged(t, func(r *rig) {
		cfg := withVIP(with(conf(1, 2), func(vc *config.VirtualServer) {
			vc.Protocol, vc.Key.Protocol, vc.UDPDrainTimeout = config.UDP, config.UDP, time.Minute
		}), config.VIPAlways)
		r.start(cfg)
		r.pass(time.Minute)
		k := key
		k.Protocol = ipvs.UDP
		if err := r.table.SetCounters(k, ipvs.DestinationKey{Addr: netip.MustParseAddr("10.0.0.1"), Port: 80}, ipvs.Counters{Inactive: 1}); err != nil {
			r.Fatal(err)
		}
		r.reload(&config.Config{Global: config.Global{VIPDelay: time.Second, DrainInterval: time.Second}})
		r.pass(10 * time.Second)
		at := cfg.VirtualServers[0].Key
		if got := r.ground.said(at); got != "guard local 80/udp" {
			r.Errorf("it wishes %q", got)
		}
		r.pass(time.Minute)
		if got := r.ground.said(at); got != "nothing" {
			r.Errorf("it wishes %q", got)
		}
		r.stop(nil)
	})
}

// TestMarksGoWithTheirServices.
func TestMarksGoWithTheirServices(t *testing.T) {
	edged(t, func(r *rig) {
		cfg := conf(1)
		cfg.VirtualServers[0].Mark = 1000
		cfg.Global.NFTables = &config.NFTables{Table: "keepalived_ipvs"}
		r.start(cfg)
		r.wish("80/tcp 192.0.2.1:80=1000")
		if r.ground.nft != cfg.Global.NFTables {
			r.Error("nftables_ipvs is not told of")
		}
		r.reload(&config.Config{})
		r.wish("nothing")
		if r.ground.nft != nil {
			r.Error("nftables_ipvs is told of")
		}
		r.stop(nil)
	})
}

// TestWithdraw takes all addresses away and nothing else, and says when that is done.
func TestWithdraw(t *testing.T) {
	edged(t, func(r *rig) {
		r.start(withVIP(conf(1, 2), config.VIPAlways))
		r.pass(time.Minute)
		r.writes()
		r.ground.stuck = true
		done := make(chan error, 1)
		withdraw := func() { done <- r.e.Withdraw(r.Context()) }
		go withdraw()
		r.pass(2 * time.Second)
		r.wish("guard local 80/tcp")
		select {
		case <-done:
			r.Error("it is done before that is reported")
		default:
		}
		r.ground.report()
		if err := <-done; err != nil {
			r.Error(err)
		}
		r.pass(time.Minute)
		if n := r.writes(); n != 0 {
			r.Errorf("%d operations", n)
		}
		r.stop(nil)
		r.wish("nothing")
	})
	edged(t, func(r *rig) {
		r.start(withVIP(conf(1, 2), config.VIPAlways))
		r.pass(time.Minute)
		r.ground.stuck = true
		begun := time.Now()
		if err := r.e.Withdraw(r.Context()); err == nil || time.Since(begun) != 5*time.Second {
			r.Errorf("after %v: %v", time.Since(begun), err)
		}
		r.stop(nil)
	})
}

// TestKeptAtTheEnd: on_stop keep, a handover and a crash change nothing around the table.
func TestKeptAtTheEnd(t *testing.T) {
	for name, end := range map[string]func(r *rig){
		"keep": func(r *rig) { r.stop(nil) },
		"handover": func(r *rig) {
			if err := r.e.Handover(r.Context(), true); err != nil {
				r.Error(err)
			}
			r.stop(nil)
		},
		"crash": func(r *rig) { r.crash() },
	} {
		t.Run(name, func(t *testing.T) {
			edged(t, func(r *rig) {
				cfg := withVIP(conf(1, 2), config.VIPAlways)
				if name == "keep" {
					cfg.Global.OnStop = config.OnStopKeep
				}
				r.start(cfg)
				r.pass(time.Minute)
				calls := r.ground.calls
				end(r)
				r.wish("announce guard local 80/tcp")
				if r.ground.calls != calls {
					r.Error("it was asked for something")
				}
			})
		})
	}
}

// TestNothingLeftToWish: a process was killed, and the next one has a configuration without
// any of it. Whoever keeps the machine hears that nothing is wished for, and what is still
// in the table has its addresses kept local until it has left, after they are gone.
func TestNothingLeftToWish(t *testing.T) {
	edged(t, func(r *rig) {
		r.start(withVIP(conf(1), config.VIPAlways))
		r.pass(time.Second)
		r.wish("announce guard local 80/tcp")
		r.connections(1, 3)
		r.crash()
		r.ground = &ground{wishes: map[config.VSKey]*edge.Wish{}, gone: map[netip.Addr]time.Time{}, left: true}
		none := conf(1)
		none.VirtualServers, none.Global.VIPDelay = nil, time.Second
		r.start(none)
		r.wish("local 80/tcp")
		r.pass(time.Minute)
		r.wish("local")
		r.want("1:0")
		r.connections(1, 0)
		r.pass(2 * time.Minute)
		r.wish("nothing")
		r.crash()
		r.ground = &ground{wishes: map[config.VSKey]*edge.Wish{}, gone: map[netip.Addr]time.Time{}, left: true}
		r.start(none)
		r.pass(time.Minute)
		if r.ground.calls != 1 {
			r.Errorf("%d calls, want one that says that nothing is wished for", r.ground.calls)
		}
		r.stop(nil)
	})
}

// TestMissingAddressesAreTold, and what does not work.
func TestMissingAddressesAreTold(t *testing.T) {
	edged(t, func(r *rig) {
		r.start(withVIP(conf(1, 2), config.VIPAlways))
		r.pass(time.Minute)
		at := time.Now()
		r.e.Edge(edge.Report{Turn: 99, Repaired: 3, Missing: map[netip.Addr]string{vip.Addr(): "on eth0", netip.MustParseAddr("192.0.2.9"): "x"},
			Failures: []edge.Failure{{Feature: "vip_guard", Reason: "no nf_tables", Since: at}}})
		synctest.Wait()
		for _, s := range []*Snapshot{r.e.Snapshot(), r.e.Overview(), r.e.Status(r.Context())} {
			v := s.VirtualServers[0].VIP
			if len(v.Missing) != 1 || v.Missing[0] != (MissingAddress{"192.0.2.1", "on eth0"}) || s.Edge.Repaired != 3 || len(s.Edge.Failures) != 1 || s.Edge.Failures[0] != (EdgeFailure{"vip_guard", "no nf_tables", at}) {
				r.Errorf("told %+v, %+v", v, s.Edge)
			}
		}
		if x, err := r.e.Explain(r.Context(), "192.0.2.1", target(1)); err != nil || !strings.Contains(x.Summary, "1 of the 1 addresses of its virtual server are not on vip0: 192.0.2.1, on eth0") {
			r.Errorf("explained by %v, %v", x, err)
		}
		r.stop(nil)
	})
}

// TestPendingUntilReported: who waits for a reload sees when the machine is not known to be
// as it is wished, and what failed is tried again by it.
func TestPendingUntilReported(t *testing.T) {
	edged(t, func(r *rig) {
		pending := func(want bool, when string) {
			r.Helper()
			synctest.Wait()
			if s := r.e.Snapshot().Edge; s == nil || s.Pending != want {
				r.Errorf("%s: %+v, want pending %v", when, s, want)
			}
		}
		r.start(conf(1))
		r.pass(time.Minute)
		r.ground.stuck = true
		r.reload(withVIP(conf(1), config.VIPAlways))
		pending(true, "the reload has ended")
		r.ground.report()
		pending(false, "it is reported")

		// An address that waits for its service is pending, one that waits for the quorum is not.
		r.table.Fail(func(op ipvs.Op) error {
			if op.Kind == ipvs.OpAddService {
				return ipvs.NewError(op, 12)
			}
			return nil
		})
		other := withVIP(conf(1), config.VIPAlways)
		other.VirtualServers[0].Key.Addr = netip.MustParseAddrPort("192.0.2.77:80")
		for i := range other.VirtualServers[0].Entries {
			other.VirtualServers[0].Entries[i].Addr = other.VirtualServers[0].Key.Addr
		}
		r.ground.stuck = false
		done := make(chan struct{})
		go func() { defer close(done); _, _ = r.e.ReloadTo(r.Context(), other) }()
		pending(true, "the service is not written")
		r.table.Fail(nil)
		r.pass(time.Minute)
		<-done
		pending(false, "it is")
		r.reload(withVIP(conf(1), config.VIPQuorum))
		r.farm.set(1, checker.Failed, "refused")
		r.pass(time.Minute)
		r.wish("guard local 80/tcp")
		pending(false, "the quorum is lost")

		calls := func() int {
			r.ground.mu.Lock()
			defer r.ground.mu.Unlock()
			return r.ground.calls
		}
		before := calls()
		r.reload(withVIP(conf(1), config.VIPQuorum))
		if n := calls() - before; n != 0 {
			r.Errorf("%d wishes by a reload that changes nothing", n)
		}
		r.e.Edge(edge.Report{Turn: r.ground.turn, Failures: []edge.Failure{{Feature: "vip_guard", Reason: "no nf_tables"}}})
		synctest.Wait()
		r.ground.stuck = true
		r.reload(withVIP(conf(1), config.VIPQuorum))
		if n := calls() - before; n != 1 || !r.ground.anew {
			r.Errorf("%d wishes by a reload after a failure, anew %v", n, r.ground.anew)
		}
		pending(true, "it is tried again")
		r.ground.report()
		pending(false, "it has been")
		r.stop(nil)
	})
}

// TestCheckViaIsTold beside what the machine reports, and without anything else around the
// table.
func TestCheckViaIsTold(t *testing.T) {
	edged(t, func(r *rig) {
		r.start(conf(1))
		r.pass(time.Minute)
		at := time.Now()
		r.e.CheckVia(&edge.Failure{Feature: "check_via", Reason: "no route", Since: at})
		synctest.Wait()
		if s := r.e.Snapshot().Edge; s == nil || len(s.Failures) != 1 || s.Failures[0] != (EdgeFailure{"check_via", "no route", at}) || s.Pending {
			r.Errorf("told %+v", s)
		}
		r.e.CheckVia(nil)
		synctest.Wait()
		if s := r.e.Snapshot().Edge; s != nil {
			r.Errorf("told %+v", s)
		}
		r.stop(nil)
	})
}
