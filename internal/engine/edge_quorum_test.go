package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

// TestLostQuorum: the address goes at once, failures are written at once, and the
// sorry server comes vip_delay after the address was reported gone.
func TestLostQuorum(t *testing.T) {
	edged(t, func(r *rig) {
		cfg := withVIP(sorry(conf(1, 2)), config.VIPQuorum)
		cfg.VirtualServers[0].Quorum = 2
		r.start(cfg)
		r.pass(time.Minute)
		r.wish("announce guard local 80/tcp")
		r.ground.stuck = true
		r.farm.set(1, checker.Failed, "refused")
		for r.ground.said(vsKey) != "guard local 80/tcp" {
			r.pass(50 * time.Millisecond)
		}
		r.want("2:1")
		if s := r.e.Snapshot().VirtualServers[0]; s.SorryServing || s.QuorumUp || s.VIP.Announced || !strings.Contains(s.VIP.Why, "the quorum is lost (weight 1 alive, 2 needed") {
			r.Errorf("status says %+v, %+v", s, s.VIP)
		}
		if x, err := r.e.Explain(r.Context(), "192.0.2.1", target(2)); err != nil || !strings.Contains(x.Summary, "not announced on vip0: the quorum is lost") {
			r.Errorf("explained by %v, %v", x, err)
		}
		r.pass(2 * time.Second)
		r.want("2:1")
		r.ground.report()
		r.pass(990 * time.Millisecond)
		r.want("2:1")
		if log := r.logged(); strings.Contains(log, "Adding sorry server") {
			r.Errorf("the log has the sorry server before the table:\n%s", log)
		}
		r.pass(20 * time.Millisecond)
		r.want("9:1")
		if log := r.logged(); strings.Count(log, "Adding sorry server") != 1 {
			r.Errorf("the log:\n%s", log)
		}
		if s := r.e.Snapshot().VirtualServers[0]; !s.SorryServing {
			r.Error("status knows nothing of the sorry server")
		}
		// It comes back: the table first, then the address.
		r.farm.set(1, checker.OK, "ok")
		r.pass(11 * time.Second)
		r.want("1:1 2:1")
		r.wish("announce guard local 80/tcp")
		r.ground.stuck = false
		r.stop(nil)
	})
}

// TestLostQuorumNeverReported: a machine whose addresses cannot be written keeps nobody
// from serving for longer than that.
func TestLostQuorumNeverReported(t *testing.T) {
	edged(t, func(r *rig) {
		cfg := withVIP(sorry(conf(1, 2)), config.VIPQuorum)
		cfg.VirtualServers[0].Quorum = 2
		r.start(cfg)
		r.pass(time.Minute)
		r.ground.stuck = true
		r.farm.set(1, checker.Failed, "refused")
		for r.ground.said(vsKey) != "guard local 80/tcp" {
			r.pass(50 * time.Millisecond)
		}
		r.pass(5900 * time.Millisecond)
		r.want("2:1")
		r.pass(101 * time.Millisecond)
		r.want("9:1")
		r.stop(nil)
	})
}

// TestEmptyPoolWaitsForNoAddress: where nobody healthy is left there is nothing to be
// withdrawn, and the sorry server comes at once.
func TestEmptyPoolWaitsForNoAddress(t *testing.T) {
	edged(t, func(r *rig) {
		cfg := withVIP(sorry(conf(1, 2)), config.VIPQuorum)
		cfg.Global.VIPDelay = time.Hour
		r.start(cfg)
		r.pass(time.Minute)
		r.ground.stuck = true
		r.farm.set(1, checker.Failed, "refused")
		r.pass(11 * time.Second)
		r.want("2:1")
		r.farm.set(2, checker.Failed, "refused")
		r.pass(11 * time.Second)
		r.wish("guard local 80/tcp")
		r.want("9:1")
		r.stop(nil)
	})
}

// TestQuorumRegainedMeanwhile: nothing was moved, and nothing has to be moved back.
func TestQuorumRegainedMeanwhile(t *testing.T) {
	edged(t, func(r *rig) {
		cfg := withVIP(sorry(conf(1, 2)), config.VIPQuorum)
		cfg.VirtualServers[0].Quorum = 2
		cfg.Global.VIPDelay = 30 * time.Second
		r.start(cfg)
		r.pass(time.Minute)
		r.farm.set(1, checker.Failed, "refused")
		r.pass(11 * time.Second)
		r.wish("guard local 80/tcp")
		r.writes()
		// A reload meanwhile changes nothing of that.
		next := withVIP(sorry(conf(1, 2)), config.VIPQuorum)
		next.VirtualServers[0].Quorum, next.Global.VIPDelay = 2, 30*time.Second
		next.VirtualServers[0].Scheduler = "wrr"
		r.reload(next)
		r.want("2:1")
		if n := r.writes(); n != 1 {
			r.Errorf("%d operations for another scheduler", n)
		}
		r.farm.set(1, checker.OK, "ok")
		r.pass(11 * time.Second)
		r.wish("announce guard local 80/tcp")
		r.want("1:1 2:1")
		r.pass(time.Minute)
		if n := r.writes(); n != 1 {
			r.Errorf("%d operations for one server that is back", n)
		}
		r.stop(nil)
	})
}

// TestRemovedAfterItsAddress: an address that was reported gone while nothing waited for
// it need not be waited for by what comes later.
func TestRemovedAfterItsAddress(t *testing.T) {
	edged(t, func(r *rig) {
		r.start(withVIP(conf(1, 2), config.VIPAlways))
		r.pass(time.Minute)
		without := conf(1, 2)
		without.Global.VIPDelay = time.Second
		r.reload(without)
		r.pass(1500 * time.Millisecond)
		r.want("1:1 2:1")
		r.reload(&config.Config{Global: config.Global{VIPDelay: time.Second, DrainInterval: time.Minute}})
		r.pass(10 * time.Millisecond)
		r.want("")
		r.stop(nil)
	})
}

// TestReloadSaysNothingOfASorryServerThatStaysOut: the quorum did not move.
func TestReloadSaysNothingOfASorryServerThatStaysOut(t *testing.T) {
	edged(t, func(r *rig) {
		r.start(sorry(conf(1, 2)))
		r.pass(time.Minute)
		next := sorry(conf(1, 2))
		next.VirtualServers[0].Scheduler = "wrr"
		r.reload(next)
		r.pass(time.Second)
		r.want("1:1 2:1")
		if log := r.logged(); strings.Contains(log, "sorry server") {
			r.Errorf("the log:\n%s", log)
		}
		r.stop(nil)
	})
}

// TestAlwaysFollowsNoQuorum: the sorry server comes at once, as without an address.
func TestAlwaysFollowsNoQuorum(t *testing.T) {
	edged(t, func(r *rig) {
		r.start(withVIP(sorry(conf(1, 2)), config.VIPAlways))
		r.pass(time.Minute)
		r.ground.stuck = true
		r.failing()
		r.pass(11 * time.Second)
		r.want("9:1")
		r.wish("announce guard local 80/tcp")
		r.stop(nil)
	})
}

// TestHysteresisSaysWhenAnAddressComes: with alpha, quorum 2 and hysteresis 1 have the
// address wait for all three servers, and stay with the last of them. With a quorum of one,
// which is the default, the first that passes brings it.
func TestHysteresisSaysWhenAnAddressComes(t *testing.T) {
	for name, tt := range map[string]struct {
		quorum, hysteresis uint32
		early              string
	}{
		"default":         {1, 0, "announce guard local 80/tcp"},
		"with hysteresis": {2, 1, "guard local 80/tcp"},
	} {
		t.Run(name, func(t *testing.T) {
			edged(t, func(r *rig) {
				cfg := withVIP(conf(1, 2, 3), config.VIPQuorum)
				vs := cfg.VirtualServers[0]
				vs.Quorum, vs.Hysteresis = tt.quorum, tt.hysteresis
				for _, rs := range vs.RealServers {
					rs.Checkers[0].Alpha = true
				}
				r.farm.set(3, checker.Failed, "refused")
				r.start(cfg)
				r.pass(time.Minute)
				r.want("1:1 2:1")
				r.wish(tt.early)
				r.farm.set(3, checker.OK, "ok")
				r.pass(time.Minute)
				r.wish("announce guard local 80/tcp")
				r.failing()
				r.pass(time.Minute)
				r.want("3:1")
				r.wish("announce guard local 80/tcp")
				r.farm.set(3, checker.Failed, "refused")
				r.pass(time.Minute)
				r.wish("guard local 80/tcp")
				r.stop(nil)
			})
		})
	}
}
