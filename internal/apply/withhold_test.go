package apply

import (
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// why is the reason with which a server drains, "" for none.
func (r *rig) why(n int) string {
	if d := r.a.parked.get(parkedKey{svcKey(), destKey(n)}); d != nil {
		return d.why
	}
	return ""
}

// bounded has a minute for each drain.
func bounded(cfg *config.VirtualServer) *config.VirtualServer {
	cfg.DrainTimeout = time.Minute
	for _, rs := range cfg.RealServers {
		rs.DrainTimeout = time.Minute
	}
	return cfg
}

// TestWithheldDrainsAndComesBack: in place, with the reason and the time limits of its
// virtual server, and with what was found out meanwhile.
func TestWithheldDrainsAndComesBack(t *testing.T) {
	cfg := vsOf(1, 2, 3)
	bounded(cfg).RealServers[1].DrainTimeout = time.Hour
	r := newRig(t, trust, cfg)
	r.connections(1, 1, 0)
	r.connections(2, 1, 0)
	r.ops()
	r.must(r.a.Withhold(true, cfg.Key))
	r.flush()
	r.want(" 1:0 2:0")
	if got := r.why(1); got != "withheld: passive" {
		t.Errorf("it drains since %q", got)
	}
	if n := len(r.a.Leaving()); n != 0 {
		t.Errorf("%d services leave, but theirs is configured", n)
	}
	r.ops()
	r.verdict(1, framework.Down)
	r.flush()
	r.wantOps()
	r.must(r.a.Withhold(false, cfg.Key))
	r.flush()
	r.want(" 1:1 3:1")
	r.wantOps("set 1:1", "add 3:1", "del 2")

	r.must(r.a.Withhold(true, cfg.Key))
	r.flush()
	r.tick(59 * time.Second)
	r.want(" 1:0")
	r.tick(time.Second)
	r.want("")
	if r.a.Has(svcKey()) {
		t.Error("the service is still there")
	}
	r.must(r.a.Withhold(false, cfg.Key))
	r.flush()
	r.want(" 1:1 3:1")
}

// TestWithheldFromTheStart: what an earlier process left is taken over and drains with
// the limits that are configured.
func TestWithheldFromTheStart(t *testing.T) {
	cfg := vsOf(1, 2)
	bounded(cfg)
	r := newRig(t, trust, cfg)
	r.connections(1, 1, 0)
	for _, remembers := range []bool{false, true} {
		owned := r.a.Owned()
		r.a = New(r.table, []*VirtualServer{Translate(cfg)}, nil)
		if remembers {
			r.a.Remember(owned)
		}
		r.must(r.a.Withhold(true, cfg.Key))
		r.must(r.a.Adopt(r.t.Context()))
		r.must(r.a.Init(r.vss[cfg.Key]))
		r.flush()
		r.want(" 1:0")
		if got := r.why(1); got != "withheld: passive" {
			t.Errorf("remembers %t: it drains since %q", remembers, got)
		}
	}
	r.tick(2 * time.Minute)
	r.want("")
}

// TestWithheldThroughAReload: it stays so, and what is removed meanwhile goes on draining.
func TestWithheldThroughAReload(t *testing.T) {
	for _, update := range []bool{false, true} {
		cfg := vsOf(1, 2)
		r := newRig(t, trust, cfg)
		r.connections(1, 1, 0)
		r.must(r.a.Withhold(true, cfg.Key))
		r.flush()
		next := bounded(vsOf(1, 2))
		r.ops()
		swap := func(cfgs ...*VirtualServer) {
			if !update {
				r.a.Replace(cfgs)
				return
			}
			var order []config.VSKey
			for _, vs := range cfgs {
				order = append(order, vs.Key)
			}
			r.a.Update(order, cfgs)
		}
		swap(Translate(next))
		r.must(r.a.Init(r.vss[cfg.Key]))
		r.flush()
		r.wantOps()
		r.want(" 1:0")
		swap()
		r.flush()
		r.want(" 1:0")
		r.tick(time.Minute)
		r.want("")
	}
}

// TestStayingWaits: a service that a reload took away is not touched until it may leave,
// and is as any other when it is claimed again.
func TestStayingWaits(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2))
	r.connections(1, 1, 0)
	r.ops()
	gone := func() {
		r.a.Update(nil, nil)
		r.a.Stay(true, svcKey())
		r.flush()
		r.wantOps()
		r.want(" 1:1 2:1")
	}
	gone()
	if !r.a.Unsettled()[svcKey()] || len(r.a.Leaving()) != 1 || r.a.Leaving()[0].Destinations[0].Wanted != 1 {
		t.Errorf("readers are told %+v", r.a.Leaving())
	}
	if r.a.Pending() {
		t.Error("it is due")
	}
	r.must(r.a.Reconcile(r.t.Context(), r.now))
	r.wantOps()
	r.a.Update([]config.VSKey{vsOf(1, 2).Key}, []*VirtualServer{Translate(vsOf(1, 2))})
	r.must(r.a.Init(r.only()))
	r.flush()
	r.wantOps()
	gone()
	r.a.Stay(false, svcKey())
	r.flush()
	r.want(" 1:0")
	if got := r.why(1); got != "virtual server removed from the configuration" {
		t.Errorf("it drains since %q", got)
	}
}

// TestMovedTells which services come and go, and Serving only of one that is written.
func TestMovedTells(t *testing.T) {
	r := &rig{t: t, table: ipvstest.New(), now: epoch}
	cfg := vsOf(1, 2)
	r.a = New(r.table, []*VirtualServer{Translate(cfg)}, nil)
	r.a.Follow(true)
	r.must(r.a.Adopt(r.t.Context()))
	f, _ := framework.New(cfg, trust, noFiles)
	r.vss = map[config.VSKey]*framework.VirtualServer{cfg.Key: f}
	r.must(r.a.Init(f))
	if r.a.Serving(svcKey()) || len(r.a.Moved()) != 0 {
		t.Error("it is told of before it is written")
	}
	moved := func(is bool) {
		t.Helper()
		r.flush()
		got := r.a.Moved()
		if len(got) != 1 || got[0] != svcKey() || r.a.Has(svcKey()) != is || r.a.Serving(svcKey()) != is {
			t.Errorf("moved %v, there %t, serving %t", got, r.a.Has(svcKey()), r.a.Serving(svcKey()))
		}
	}
	moved(true)
	r.must(r.a.Withhold(true, cfg.Key))
	if r.a.Serving(svcKey()) {
		t.Error("it serves though it is withheld")
	}
	moved(false)
	r.must(r.a.Withhold(false, cfg.Key))
	moved(true)
	// Weights that are still to come are not written.
	r.connections(1, 1, 0)
	r.must(r.a.Withhold(true, cfg.Key))
	r.flush()
	r.must(r.a.Withhold(false, cfg.Key))
	r.table.Fail(func(op ipvs.Op) error { return ipvs.NewError(op, 12) })
	_ = r.a.Flush(r.t.Context(), r.now)
	if !r.a.Has(svcKey()) || r.a.Serving(svcKey()) {
		t.Error("it serves with no weight")
	}
	r.table.Fail(nil)
	r.flush()
	if !r.a.Serving(svcKey()) {
		t.Error("it does not serve")
	}
}
