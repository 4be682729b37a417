package engine

import (
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/state"
	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// stateFile stands for the state file of a rig: what the last engine handed out, as
// bytes. The zero stateFile keeps nothing.
type stateFile struct {
	mu   sync.Mutex
	on   bool
	last *state.State
	// at are the times at which a state was handed out, told what a drain at the
	// stop said.
	at   []time.Time
	told []string
}

func (f *stateFile) load(t *testing.T) *state.State {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.last == nil {
		return nil
	}
	b, err := state.Encode(f.last)
	if err != nil {
		t.Fatal(err)
	}
	s, err := state.Decode(b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (f *stateFile) saver() func(*state.State) {
	if !f.on {
		return nil
	}
	return func(s *state.State) {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.last, f.at = s, append(f.at, time.Now())
	}
}

func (f *stateFile) progress(text string, _ time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.told = append(f.told, text)
}

// times returns when states were handed out, drains what a stop said.
func (f *stateFile) times() []time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.at)
}

func (f *stateFile) drains() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.told)
}

func (f *stateFile) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.last = nil
}

// resumed runs a test with a state file; its engine is stopped at the end.
func resumed(t *testing.T, f func(r *rig)) {
	t.Helper()
	in(t, func(r *rig) {
		r.state.on = true
		f(r)
	})
}

// lose empties the kernel's table, as a reboot does.
func (r *rig) lose() { r.table = ipvstest.New() }

func (r *rig) hold(n int, active uint32) {
	r.Helper()
	r.connections(n, active)
}

// TestU03RestartWritesNothing: over a crash, a stop that keeps, and a handover, with
// servers up and down, under alpha and with inhibit_on_failure.
func TestU03RestartWritesNothing(t *testing.T) {
	for _, end := range []string{"crash", "keep", "handover"} {
		for _, kind := range []string{"", "alpha", "inhibit"} {
			t.Run(strings.TrimSpace(end+" "+kind), func(t *testing.T) {
				resumed(t, func(r *rig) {
					cfg := each(conf(1, 2, 3), func(rs *config.RealServer) {
						rs.Checkers[0].Alpha, rs.Inhibit = kind == "alpha", kind == "inhibit"
					})
					cfg.Global.OnStop = config.OnStopKeep
					r.farm.set(3, checker.Failed, "refused")
					r.start(cfg)
					r.pass(time.Minute)
					want := map[bool]string{false: "1:1 2:1", true: "1:1 2:1 3:0"}[kind == "inhibit"]
					r.want(want)
					r.writes()
					switch end {
					case "crash":
						r.crash()
					case "keep":
						r.stop(nil)
					case "handover":
						if err := r.e.Handover(r.Context(), true); err != nil {
							t.Fatal(err)
						}
						r.stop(nil)
					}
					r.start(cfg)
					if s := r.e.Snapshot().VirtualServers[0]; s.RealServers[2].State != StateDown || !strings.Contains(s.RealServers[2].Reason, "refused") || !s.QuorumUp {
						t.Errorf("after the restart: %+v", s.RealServers[2])
					}
					r.pass(time.Minute)
					r.want(want)
					if n := r.writes(); n != 0 {
						t.Errorf("%d writes", n)
					}
				})
			})
		}
	}
}

// TestHandoverOutranksOnStop, and can be taken back.
func TestHandoverOutranksOnStop(t *testing.T) {
	for _, back := range []bool{false, true} {
		resumed(t, func(r *rig) {
			r.start(conf(1))
			r.pass(time.Minute)
			for _, will := range []bool{true, !back} {
				if err := r.e.Handover(r.Context(), will); err != nil {
					t.Fatal(err)
				}
			}
			r.stop(nil)
			r.want(map[bool]string{false: "1:1", true: ""}[back])
			r.start(conf(1))
		})
	}
}

// TestHandoverSavesFirst: the state is handed out before Handover returns, however
// recent the last one is.
func TestHandoverSavesFirst(t *testing.T) {
	resumed(t, func(r *rig) {
		r.start(conf(1))
		for range 3 {
			n := len(r.state.times())
			if err := r.e.Handover(r.Context(), true); err != nil {
				t.Fatal(err)
			}
			if len(r.state.times()) != n+1 {
				t.Errorf("%d states handed out, want one more than %d", len(r.state.times()), n)
			}
		}
		// What happens until the end is saved as well.
		r.reload(conf(1, 2))
		r.stop(nil)
		if s := r.state.load(t); s.Generation != 2 {
			t.Errorf("the last state saved is of generation %d", s.Generation)
		}
		r.start(conf(1))
	})
}

// TestKnownDownIsNotTrustedThoughTheTableIsLost: whatever the age; it is probed at
// once and comes back with its first good check.
func TestKnownDownIsNotTrustedThoughTheTableIsLost(t *testing.T) {
	for _, off := range []time.Duration{time.Second, 30 * 24 * time.Hour} {
		resumed(t, func(r *rig) {
			r.farm.set(2, checker.Failed, "refused")
			r.start(conf(1, 2))
			r.pass(time.Minute)
			r.want("1:1")
			r.crash()
			r.lose()
			r.pass(off)
			r.start(conf(1, 2))
			r.want("1:1")
			for _, op := range r.table.Log() {
				if op.Destination.Addr == netip.MustParseAddr("10.0.0.2") {
					t.Errorf("the dead server passed through the table: %s", op)
				}
			}
			r.crash()
			r.lose()
			r.farm.set(2, checker.OK, "")
			r.start(conf(1, 2))
			r.pass(10 * time.Millisecond)
			r.want("1:1 2:1")
		})
	}
}

// TestFreshUpIsTrustedUnderAlpha after the table was lost, and an old one is not:
// the bound is five minutes, or ten delay_loops if that is longer.
func TestFreshUpIsTrustedUnderAlpha(t *testing.T) {
	for _, tt := range []struct {
		loop, off time.Duration
		want      string
	}{
		{10 * time.Second, 4 * time.Minute, "1:1 2:1"},
		{10 * time.Second, 6 * time.Minute, ""},
		{time.Minute, 8 * time.Minute, "1:1 2:1"},
		{time.Minute, 12 * time.Minute, ""},
	} {
		resumed(t, func(r *rig) {
			cfg := each(alphaConf(1, 2), func(rs *config.RealServer) { rs.Checkers[0].DelayLoop = tt.loop })
			r.start(cfg)
			r.pass(time.Hour)
			r.crash()
			r.lose()
			r.pass(tt.off)
			r.start(cfg)
			r.want(tt.want)
		})
	}
}

// TestTableIsTheStrongerEvidence: who is in with a weight stays in though the state
// says down, and who is out while others serve stays out though it says up.
func TestTableIsTheStrongerEvidence(t *testing.T) {
	resumed(t, func(r *rig) {
		r.farm.set(2, checker.Failed, "refused")
		r.start(conf(1, 2))
		r.pass(time.Minute)
		r.want("1:1")
		r.crash()
		svc := ipvs.Service{ServiceKey: key, Scheduler: "rr"}
		at := func(n byte) ipvs.Destination {
			return ipvs.Destination{DestinationKey: ipvs.DestinationKey{Addr: netip.AddrFrom4([4]byte{10, 0, 0, n}), Port: 80}, Weight: 1}
		}
		if err := r.table.DelDest(r.Context(), svc, at(1)); err != nil {
			t.Fatal(err)
		}
		if err := r.table.AddDest(r.Context(), svc, at(2)); err != nil {
			t.Fatal(err)
		}
		r.farm.set(2, checker.OK, "")
		r.writes()
		r.start(conf(1, 2))
		r.want("2:1")
		if n := r.writes(); n != 0 {
			t.Errorf("%d writes", n)
		}
		if s := r.e.Snapshot().VirtualServers[0].RealServers[0].State; s != StateUnverified {
			t.Errorf("the server that is out is %s", s)
		}
		r.pass(20 * time.Second)
		r.want("1:1 2:1")
	})
}

// TestWeightZeroUnderInhibit was put there by a failure, as far as anybody can tell:
// the moment between that and its saving may be when the process died.
func TestWeightZeroUnderInhibit(t *testing.T) {
	resumed(t, func(r *rig) {
		cfg := each(conf(1, 2), func(rs *config.RealServer) { rs.Inhibit = true })
		r.start(cfg)
		r.pass(time.Minute)
		r.want("1:1 2:1")
		r.crash()
		svc := ipvs.Service{ServiceKey: key, Scheduler: "rr"}
		d := ipvs.Destination{DestinationKey: ipvs.DestinationKey{Addr: netip.MustParseAddr("10.0.0.2"), Port: 80}}
		if err := r.table.SetDest(r.Context(), svc, d); err != nil {
			t.Fatal(err)
		}
		r.farm.set(2, checker.Failed, "refused")
		r.writes()
		r.start(cfg)
		r.pass(time.Minute)
		r.want("1:1 2:0")
		if n := r.writes(); n != 0 {
			t.Errorf("%d writes", n)
		}
	})
}

// TestResumedMachines go on: what was up has its retries, and what was down its
// rises.
func TestResumedMachines(t *testing.T) {
	resumed(t, func(r *rig) {
		cfg := each(conf(1, 2), func(rs *config.RealServer) { rs.Checkers[0].Retry, rs.Checkers[0].Rise = 2, 3 })
		r.farm.set(2, checker.Failed, "refused")
		r.start(cfg)
		r.pass(time.Minute)
		r.crash()
		r.farm.set(1, checker.Failed, "refused")
		r.farm.set(2, checker.OK, "")
		r.start(cfg)
		r.pass(5 * time.Millisecond) // 2 is probed at once, 1 in its phase
		r.want("1:1")
		r.pass(19 * time.Second) // the second success of 2
		if got := r.content(); strings.Contains(got, "2:1") {
			t.Errorf("the table holds %q after two successes of three", got)
		}
		r.pass(2 * time.Second)
		if got := r.content(); !strings.Contains(got, "2:1") {
			t.Errorf("the table holds %q after three successes", got)
		}
	})
}

// TestQuorumSurvivesWithinTheHysteresis: a restart does not bring in the sorry
// server where the running process would not have.
func TestQuorumSurvivesWithinTheHysteresis(t *testing.T) {
	resumed(t, func(r *rig) {
		cfg := conf(1, 2, 3)
		vs := cfg.VirtualServers[0]
		vs.Quorum, vs.Hysteresis = 2, 1
		vs.Sorry = &config.SorryServer{Key: config.RSKey{AddrPort: netip.MustParseAddrPort(target(9))}, Forward: config.Forwarding{Method: config.NAT}}
		r.start(cfg)
		r.pass(time.Minute)
		r.farm.set(3, checker.Failed, "refused")
		r.pass(time.Minute)
		r.want("1:1 2:1")
		r.writes()
		r.crash()
		r.start(cfg)
		r.pass(time.Minute)
		r.want("1:1 2:1")
		if n := r.writes(); n != 0 {
			t.Errorf("%d writes", n)
		}
	})
}

// TestD08StoppedInMidDrain: a destination at weight 0 that the new configuration
// wants gets its weight back in place; one that it does not goes on draining, with
// the time and reason it had, and its limit counts on.
func TestD08StoppedInMidDrain(t *testing.T) {
	resumed(t, func(r *rig) {
		r.start(conf(1, 2, 3))
		r.pass(time.Minute)
		r.hold(1, 5)
		r.hold(2, 5)
		less := conf(3)
		bound(less, time.Hour)
		r.reload(less)
		r.want("1:0 2:0 3:1")
		before := r.e.Snapshot().VirtualServers[0].Services[0].Destinations
		r.pass(20 * time.Minute)
		r.crash()
		r.pass(20 * time.Minute)
		r.writes()

		wanted := conf(1, 3)
		bound(wanted, time.Hour)
		r.start(wanted)
		r.want("1:1 2:0 3:1")
		for _, op := range r.table.Log() {
			if op.Kind != ipvs.OpSetDest {
				t.Errorf("not in place: %s", op)
			}
		}
		var was, is *Drain
		for _, d := range before {
			if d.Address == target(2) {
				was = d.Drain
			}
		}
		for _, d := range r.e.Snapshot().VirtualServers[0].Services[0].Destinations {
			if d.Address == target(2) {
				is = d.Drain
			}
		}
		if was == nil || is == nil || !was.Since.Equal(is.Since) || was.Why != is.Why || !was.Deadline.Equal(is.Deadline) {
			t.Errorf("the drain was %+v and is %+v", was, is)
		}
		r.pass(19 * time.Minute)
		r.want("1:1 2:0 3:1")
		r.pass(2 * time.Minute)
		r.want("1:1 3:1")
		if !strings.Contains(r.logged(), "drains go on") {
			t.Error("the adoption is not logged")
		}
	})
}

// service makes a service of a stranger's, or of an old configuration's.
func (r *rig) service(port uint16, servers ...byte) ipvs.ServiceKey {
	r.Helper()
	svc := ipvs.Service{ServiceKey: ipvs.ServiceKey{Family: ipvs.INET, Protocol: ipvs.TCP, Addr: vip.Addr(), Port: port}, Scheduler: "wlc"}
	if err := r.table.AddService(r.Context(), svc); err != nil {
		r.Fatal(err)
	}
	for _, n := range servers {
		d := ipvs.Destination{DestinationKey: ipvs.DestinationKey{Addr: netip.AddrFrom4([4]byte{10, 0, 0, n}), Port: port}, Weight: 7}
		if err := r.table.AddDest(r.Context(), svc, d); err != nil {
			r.Fatal(err)
		}
	}
	return svc.ServiceKey
}

func (r *rig) services() (names []string) {
	r.Helper()
	synctest.Wait()
	all, err := r.table.Services(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	for _, s := range all {
		names = append(names, s.ServiceKey.String())
	}
	return names
}

// bound gives every server a drain_timeout, as the keyword does.
func bound(cfg *config.Config, d time.Duration) {
	cfg.VirtualServers[0].DrainTimeout = d
	each(cfg, func(rs *config.RealServer) { rs.DrainTimeout = d })
}

// other is a configuration of another virtual server.
func other() *config.Config {
	cfg := conf(4)
	at := netip.MustParseAddrPort("192.0.2.2:80")
	cfg.VirtualServers[0].Key.Addr, cfg.VirtualServers[0].Entries[0].Addr = at, at
	return cfg
}

// TestU07CrashAndAnotherConfiguration: a service that went from the file while the
// daemon was dead drains and goes, last, within the limit it had.
func TestU07CrashAndAnotherConfiguration(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Hour} {
		resumed(t, func(r *rig) {
			was := conf(1, 2)
			bound(was, limit)
			r.start(was)
			r.pass(time.Minute)
			// A reload begins the end of the service, a crash interrupts it.
			r.hold(1, 3)
			r.reload(other())
			r.want("1:0")
			r.pass(time.Minute)
			r.crash()
			r.start(other())
			r.want("1:0")
			if s := r.e.Snapshot(); len(s.Leaving) != 1 || s.Leaving[0].Destinations[0].Drain == nil {
				t.Errorf("leaving: %+v", s.Leaving)
			}
			r.pass(2 * time.Hour)
			if limit == 0 {
				r.want("1:0")
				r.hold(1, 0)
				r.pass(2 * time.Minute)
			}
			if diff := cmp.Diff([]string{"192.0.2.2:80/tcp"}, r.services()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestU07FileChangedWhileDead: nothing told the dead process of the change.
func TestU07FileChangedWhileDead(t *testing.T) {
	resumed(t, func(r *rig) {
		r.start(conf(1, 2))
		r.pass(time.Minute)
		r.hold(1, 3)
		r.crash()
		r.start(other())
		r.want("1:0")
		r.pass(10 * time.Minute)
		r.want("1:0")
		r.hold(1, 0)
		r.pass(2 * time.Minute)
		if diff := cmp.Diff([]string{"192.0.2.2:80/tcp"}, r.services()); diff != "" {
			t.Error(diff)
		}
		if !strings.Contains(r.logged(), "no longer configured, draining it") {
			t.Error("it is not logged")
		}
	})
}

// TestU04ForeignServices: what the state file does not name is not touched, at a
// start, a reload and a stop; nor is what was ours and holds a stranger's
// destination by now.
func TestU04ForeignServicesAndAState(t *testing.T) {
	resumed(t, func(r *rig) {
		foreign := r.service(8080, 77)
		r.start(conf(1))
		r.pass(time.Minute)
		r.crash()
		// Ours goes from the file, and somebody puts it to use.
		svc := ipvs.Service{ServiceKey: key, Scheduler: "rr"}
		d := ipvs.Destination{DestinationKey: ipvs.DestinationKey{Addr: netip.MustParseAddr("10.0.0.88"), Port: 80}, Weight: 9}
		if err := r.table.AddDest(r.Context(), svc, d); err != nil {
			t.Fatal(err)
		}
		r.writes()
		r.start(other())
		r.reload(other())
		r.pass(time.Hour)
		r.stop(nil)
		for _, op := range r.table.Log() {
			if op.Service.ServiceKey == foreign || op.Service.ServiceKey == key {
				t.Errorf("touched: %s", op)
			}
		}
		if !strings.Contains(r.logged(), "Leaving a service alone") || !strings.Contains(r.logged(), "10.0.0.88") {
			t.Error("it is not logged")
		}
		r.start(other())
	})
}

// TestU04WantedServiceOfAStranger is adopted and said so; what is not configured in
// it drains.
func TestU04WantedServiceOfAStranger(t *testing.T) {
	resumed(t, func(r *rig) {
		r.start(other())
		r.pass(time.Minute)
		r.crash()
		r.service(80, 77)
		r.hold(77, 2)
		r.writes()
		both := conf(1)
		both.VirtualServers = append(both.VirtualServers, other().VirtualServers...)
		r.start(both)
		r.pass(20 * time.Second)
		r.want("1:1 77:0")
		if !strings.Contains(r.logged(), "not ours") || !strings.Contains(r.logged(), "10.0.0.77") {
			t.Error("it is not logged")
		}
		r.hold(77, 0)
		r.pass(2 * time.Minute)
		r.want("1:1")
	})
}

// TestStateLost: without a state file everything is as if there had never been one.
func TestStateLost(t *testing.T) {
	resumed(t, func(r *rig) {
		r.start(conf(1, 2))
		r.pass(time.Minute)
		r.hold(1, 3)
		r.reload(conf(2))
		r.crash()
		r.state.forget()
		r.start(conf(2))
		r.want("1:0 2:1")
		r.hold(1, 0)
		r.pass(2 * time.Minute)
		r.want("2:1")
		// And the next start has one again.
		if s := r.state.load(t); s == nil || len(s.Services) != 1 || len(s.Services[0].Destinations) != 1 {
			t.Errorf("saved: %+v", s)
		}
	})
}

// TestTableNotReachableAtStart: what is remembered of the table is not forgotten
// before anybody could look.
func TestTableNotReachableAtStart(t *testing.T) {
	resumed(t, func(r *rig) {
		r.start(conf(1, 2))
		r.pass(time.Minute)
		r.hold(1, 3)
		r.crash()
		r.setDial(errPart)
		r.start(other())
		r.pass(10 * time.Minute)
		if s := r.state.load(t); len(s.Services) != 1 || s.Services[0].Service != key.String() {
			t.Errorf("saved: %+v", s.Services)
		}
		r.crash()
		r.start(other())
		r.setDial(nil)
		r.pass(time.Minute)
		r.want("1:0")
		r.hold(1, 0)
		r.pass(2 * time.Minute)
		r.want("")
	})
}
