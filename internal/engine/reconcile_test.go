package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

func reconciled(cfg *config.Config, every time.Duration) *config.Config {
	cfg.Global.ReconcileInterval = every
	return cfg
}

// reads counts the reads of the table from now on.
func (r *rig) reads() *int {
	n := 0
	r.table.FailReads(func(ipvs.ServiceKey) error { n++; return nil })
	return &n
}

func (r *rig) weigh(n int, weight uint32) {
	r.Helper()
	ds, err := r.table.Destinations(r.Context(), key)
	if err != nil {
		r.Fatal(err)
	}
	for _, d := range ds {
		if d.Addr.As4()[3] == byte(n) {
			d.Weight = weight
			if err := r.table.SetDest(r.Context(), ipvs.Service{ServiceKey: key}, d.Destination); err != nil {
				r.Fatal(err)
			}
		}
	}
}

// TestR06FlushedTableIsWholeAgain within reconcile_interval, without a check or a
// reload that would have noticed.
func TestR06FlushedTableIsWholeAgain(t *testing.T) {
	in(t, func(r *rig) {
		r.start(reconciled(conf(1, 2), 60*time.Second))
		r.pass(61 * time.Second)
		if err := r.table.Flush(r.Context()); err != nil {
			t.Fatal(err)
		}
		r.pass(58 * time.Second)
		r.want("")
		r.pass(time.Second)
		r.want("1:1 2:1")
		if s := r.e.Snapshot(); s.Kernel.DriftRepaired != 1 || !s.Kernel.OK {
			t.Errorf("kernel %+v", s.Kernel)
		}
		if n := strings.Count(r.logged(), "Somebody changed the IPVS table, putting it back"); n != 1 {
			t.Errorf("logged %d times", n)
		}
	})
}

// TestR06ReloadComparesWithTheKernel though the file is the same, and without an
// interval.
func TestR06ReloadComparesWithTheKernel(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		r.pass(20 * time.Second)
		if err := r.table.DelService(r.Context(), ipvs.Service{ServiceKey: key}); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Hour)
		r.want("")
		r.reload(conf(1, 2))
		r.want("1:1 2:1")
		r.writes()
		r.reload(conf(1, 2))
		if n := r.writes(); n != 0 {
			t.Errorf("%d writes by a reload that changes nothing", n)
		}
	})
}

// TestR06VerdictFindsOut: the failure of a check meets the refusal, and the table is
// whole again with it.
func TestR06VerdictFindsOut(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2, 3))
		r.pass(20 * time.Second)
		if err := r.table.Flush(r.Context()); err != nil {
			t.Fatal(err)
		}
		r.farm.set(1, checker.Failed, "refused")
		r.pass(20 * time.Second)
		r.want("2:1 3:1")
		if s := r.e.Snapshot(); s.Kernel.DriftRepaired != 1 {
			t.Errorf("kernel %+v", s.Kernel)
		}
	})
}

// TestReconcileIsCheap: nothing is written, one read of each thing, and the tick of
// the drain list that is due at the same time reads nothing again.
func TestReconcileIsCheap(t *testing.T) {
	in(t, func(r *rig) {
		r.start(reconciled(conf(1, 2), time.Minute))
		r.pass(20 * time.Second)
		r.writes()
		n := r.reads()
		r.pass(10 * time.Minute)
		if w := r.writes(); w != 0 || *n != 20 {
			t.Errorf("%d writes, %d reads in ten intervals, want none and 20", w, *n)
		}
		r.table.FailReads(nil)
		r.connections(1, 1)
		r.reload(reconciled(conf(2), time.Minute))
		n = r.reads()
		r.pass(10*time.Minute + time.Second)
		if *n != 30 { // and the kernel's timeouts, for the estimate
			t.Errorf("%d reads with a drain, want 30", *n)
		}
		r.connections(1, 0)
		r.pass(time.Minute)
		r.want("2:1")
	})
}

// TestReconcileFailsWithoutHarm: what cannot be read is tried again with growing
// pauses, told once, and drift is mended when it can be read.
func TestReconcileFailsWithoutHarm(t *testing.T) {
	in(t, func(r *rig) {
		r.start(reconciled(conf(1, 2), time.Minute))
		r.pass(20 * time.Second)
		r.weigh(1, 9)
		r.writes()
		n := 0
		r.table.FailReads(func(ipvs.ServiceKey) error { n++; return ipvs.ErrInterrupted })
		for range 600 { // other turns in between prove nothing of the table
			r.pass(time.Second)
			if err := r.e.Ping(r.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if w := r.writes(); w != 0 {
			t.Errorf("%d writes", w)
		}
		if n < 10 || n > 40 {
			t.Errorf("%d attempts in ten minutes", n)
		}
		if s := r.e.Snapshot(); s.Kernel.OK || s.Kernel.Error == "" {
			t.Errorf("kernel %+v", s.Kernel)
		}
		if n := strings.Count(r.logged(), "will retry"); n != 1 {
			t.Errorf("logged %d times:\n%s", n, r.logged())
		}
		r.table.FailReads(nil)
		r.pass(30 * time.Second)
		r.want("1:1 2:1")
		if s := r.e.Snapshot(); !s.Kernel.OK || s.Kernel.DriftRepaired != 1 {
			t.Errorf("kernel %+v", s.Kernel)
		}
	})
}

// TestDriftReport leaves the table, and shows it in the status until it is over or
// repair is asked for.
func TestDriftReport(t *testing.T) {
	in(t, func(r *rig) {
		report := func() *config.Config {
			cfg := reconciled(conf(1, 2), time.Minute)
			cfg.Global.Drift = config.DriftReport
			return cfg
		}
		r.start(report())
		r.pass(20 * time.Second)
		r.weigh(1, 0)
		r.writes()
		r.pass(10 * time.Minute)
		r.want("1:0 2:1")
		if n := strings.Count(r.logged(), "Somebody changed the IPVS table, leaving it as it is"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		for name, s := range map[string]*Snapshot{"snapshot": r.e.Snapshot(), "status": r.e.Status(r.Context())} {
			d := s.VirtualServers[0].Services[0].Drift
			if len(d) != 1 || d[0].Destination != "10.0.0.1:80" || d[0].Found != "weight 0" || d[0].Wanted != "weight 1" || s.Kernel.DriftRepaired != 0 {
				t.Errorf("%s shows %+v", name, d)
			}
		}
		r.weigh(1, 1)
		r.pass(time.Minute)
		if d := r.e.Snapshot().VirtualServers[0].Services[0].Drift; len(d) != 0 {
			t.Errorf("mended, and the status shows %+v", d)
		}
		r.weigh(1, 5)
		r.reload(report())
		r.want("1:5 2:1")
		r.reload(reconciled(conf(1, 2), time.Minute))
		r.want("1:1 2:1")
	})
}

// TestU04ForeignServices are listed with what they hold, and ours are not.
func TestU04ForeignServices(t *testing.T) {
	in(t, func(r *rig) {
		foreign := ipvs.Service{ServiceKey: key, Scheduler: "lc"}
		foreign.Port = 8080
		dest := ipvs.Destination{DestinationKey: ipvs.DestinationKey{Addr: vip.Addr(), Port: 1}, Weight: 3}
		for _, err := range []error{
			r.table.AddService(r.Context(), foreign), r.table.AddDest(r.Context(), foreign, dest),
			r.table.SetCounters(foreign.ServiceKey, dest.DestinationKey, ipvs.Counters{Active: 7}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		r.table.ResetLog()
		r.start(conf(1))
		r.pass(time.Minute)
		s := r.e.StatusForeign(r.Context())
		if f := s.Foreign; f == nil || f.Error != "" || len(f.Services) != 1 || f.Services[0].Name != "192.0.2.1:8080/tcp" || f.Services[0].Scheduler != "lc" ||
			f.Services[0].Destinations[0].Kernel != 3 || f.Services[0].Destinations[0].Active != 7 {
			t.Errorf("foreign %+v", f)
		}
		if r.e.Status(r.Context()).Foreign != nil {
			t.Error("told without being asked")
		}
		// A service that is on its way out is ours still.
		r.connections(1, 1)
		r.reload(&config.Config{Global: config.Global{DrainInterval: time.Minute}})
		if f := r.e.StatusForeign(r.Context()).Foreign; len(f.Services) != 1 {
			t.Errorf("foreign %+v", f)
		}
		r.table.FailReads(func(ipvs.ServiceKey) error { return ipvs.ErrInterrupted })
		if f := r.e.StatusForeign(r.Context()).Foreign; f.Error == "" {
			t.Error("a read that failed goes for no foreign services")
		}
		r.table.FailReads(nil)
		for _, op := range r.table.Log() {
			if op.Service.Port == 8080 {
				t.Errorf("touched: %s", op)
			}
		}
	})
}

// TestU04AdoptedServiceIsNeverEmpty: somebody else's destinations serve until ours
// do; those go in at once, as at a cold start.
func TestU04AdoptedServiceIsNeverEmpty(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(7))
		r.connections(7, 1)
		r.crash()
		r.table.OnApply(func(op ipvs.Op, v ipvstest.View) {
			for _, d := range v.Destinations(key) {
				if d.Weight > 0 {
					return
				}
			}
			t.Errorf("nothing serves after %s", op)
		})
		r.start(conf(1, 2))
		r.table.OnApply(nil)
		r.want("1:1 2:1 7:0")
		if !strings.Contains(r.logged(), "not_configured=10.0.0.7:80") {
			t.Error("the log does not say what will drain")
		}
	})
}

// TestOnFailureDrainOverARestart: a failed server that drains is not taken for a
// healthy one by the next process.
func TestOnFailureDrainOverARestart(t *testing.T) {
	in(t, func(r *rig) {
		fresh := func() *config.Config {
			cfg := conf(1, 2)
			cfg.VirtualServers[0].OnFailure = config.OnFailureDrain
			return cfg
		}
		r.start(fresh())
		r.pass(20 * time.Second)
		r.connections(1, 3)
		r.farm.set(1, checker.Failed, "refused")
		r.pass(20 * time.Second)
		r.want("1:0 2:1")
		s := r.e.Status(r.Context()).VirtualServers[0]
		if rs := s.RealServers[0]; rs.State != StateDown {
			t.Errorf("state %s", rs.State)
		}
		r.crash()
		r.start(fresh())
		r.want("1:0 2:1")
		r.pass(20 * time.Second)
		r.want("1:0 2:1")
		r.farm.set(1, checker.OK, "")
		r.pass(20 * time.Second)
		r.want("1:1 2:1")
	})
}

// TestStatusEstimatesTheEndOfADrain from the kernel's timeouts.
func TestStatusEstimatesTheEndOfADrain(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		r.connections(1, 1)
		r.reload(conf(2))
		drain := func() *Drain {
			for _, d := range r.e.Status(r.Context()).VirtualServers[0].Services[0].Destinations {
				if d.Drain != nil {
					return d.Drain
				}
			}
			t.Fatal("nothing drains")
			return nil
		}
		if d := drain(); !d.EndsBy.IsZero() {
			t.Errorf("with an active connection: %+v", d)
		}
		dk := ipvs.DestinationKey{Addr: conf(1).VirtualServers[0].RealServers[0].Key.Addr(), Port: 80}
		if err := r.table.SetCounters(key, dk, ipvs.Counters{Inactive: 1}); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Minute)
		if d := drain(); !d.EndsBy.Equal(time.Now().Add(2*time.Minute)) || d.WaitsFor != "1 inactive connections" {
			t.Errorf("at %s: %+v", time.Now(), d)
		}
	})
}
