package engine

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

func holding(cfg *config.Config, d time.Duration) *config.Config {
	cfg.Global.DepartureHold = d
	return cfg
}

// newcomersFail makes servers 3 and 4 ones that never answer.
func newcomersFail(r *rig) {
	r.set(3, checker.Failed, "refused")
	r.set(4, checker.Failed, "refused")
}

// TestIncident: all old servers leave by one reload and the new ones never pass a
// check. Nothing goes dark, whatever the time and however often the file is read
// again; and when the new ones work at last, the old ones drain.
func TestIncident(t *testing.T) {
	inBubble(t, holding(conf(1, 2), time.Minute), func(r *rig) {
		newcomersFail(r)
		r.connections(1, 5)
		r.notes = nil
		r.reload(holding(conf(3, 4), time.Minute))
		r.pass(30 * time.Second)
		r.want("1:1 2:1")
		s := r.e.Snapshot().VirtualServers[0]
		if h := s.Hold; h == nil || h.Over || strings.Join(h.Servers, " ") != "10.0.0.1:80 10.0.0.2:80" || strings.Join(h.WaitsFor, " ") != "10.0.0.3:80 10.0.0.4:80" {
			r.Errorf("status shows the hold as %+v", s.Hold)
		}
		if !s.QuorumUp || r.rs(1).State != StateHeld || r.rs(3).State != StateDown {
			r.Errorf("status shows %+v", s)
		}
		for range 5 {
			r.reload(holding(conf(3, 4), time.Minute))
			r.pass(10 * time.Second)
			r.want("1:1 2:1")
		}
		if h := r.e.Snapshot().VirtualServers[0].Hold; h == nil || !h.Over {
			r.Errorf("after departure_hold: %+v", h)
		}
		r.pass(time.Hour)
		r.want("1:1 2:1")
		for _, n := range r.notes {
			if n.RS != "[10.0.0.3]:tcp:80" && n.RS != "[10.0.0.4]:tcp:80" {
				r.Errorf("told of %+v though the pool never changed", n)
			}
		}
		if log := r.logged(); strings.Count(log, "departure_hold is over and no configured server can serve") != 1 {
			r.Errorf("log:\n%s", log)
		}
		r.set(4, checker.OK, "ok")
		r.pass(11 * time.Second)
		r.want("1:0 4:1")
		if s := r.e.Snapshot().VirtualServers[0]; s.Hold != nil || len(s.RealServers) != 2 {
			r.Errorf("after the hold: %+v", s)
		}
		r.connections(1, 0)
		r.pass(2 * time.Minute)
		r.want("4:1")
	})
}

// TestHoldEndsWhenReplacementsAreProven: at the quorum and not before.
func TestHoldEndsWhenReplacementsAreProven(t *testing.T) {
	quorum := func(cfg *config.Config) *config.Config {
		cfg.VirtualServers[0].Quorum = 2
		return holding(cfg, time.Minute)
	}
	inBubble(t, quorum(conf(1, 2)), func(r *rig) {
		newcomersFail(r)
		r.farm.delay = 100 * time.Millisecond
		r.reload(quorum(conf(3, 4)))
		r.want("1:1 2:1")
		r.pass(15 * time.Second)
		r.set(3, checker.OK, "ok")
		r.pass(11 * time.Second)
		r.want("1:1 2:1 3:1")
		r.set(4, checker.OK, "ok")
		r.pass(11 * time.Second)
		r.want("3:1 4:1")
		if strings.Contains(r.logged(), "Lost quorum") {
			r.Error("the quorum was lost on the way")
		}
	})
}

// TestHoldOver: newcomers without a verdict are trusted then, unless alpha.
func TestHoldOver(t *testing.T) {
	for name, tt := range map[string]struct {
		alpha bool
		want  string
	}{"trusted": {false, "3:1 4:1"}, "alpha": {true, "1:1 2:1"}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, holding(conf(1, 2), time.Minute), func(r *rig) {
				next := holding(conf(3, 4), time.Minute)
				if tt.alpha {
					next = holding(alphaConf(3, 4), time.Minute)
				}
				r.set(3, checker.Unable, "no permission")
				r.set(4, checker.Unable, "no permission")
				r.reload(next)
				r.pass(59 * time.Second)
				r.want("1:1 2:1")
				r.pass(2 * time.Second)
				r.want(tt.want)
			})
		})
	}
}

// TestHoldTurnedOff by a reload in its midst: newcomers without a verdict are trusted.
func TestHoldTurnedOff(t *testing.T) {
	inBubble(t, holding(conf(1, 2), time.Minute), func(r *rig) {
		r.set(3, checker.Unable, "no permission")
		r.reload(holding(conf(3), time.Minute))
		r.want("1:1 2:1")
		r.reload(conf(3))
		r.want("3:1")
	})
}

// TestRestartAmongStrangers: nothing that serves is configured any more, since the file
// changed meanwhile or a hold was under way. Those of the file do not wait then.
func TestRestartAmongStrangers(t *testing.T) {
	for name, tt := range map[string]struct {
		next *config.Config
		want string
	}{
		"replaced":        {conf(3, 4), "1:0 3:1 4:1"},
		"one that serves": {conf(2, 4), "1:0 2:1"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, conf(1, 2), func(r *rig) {
				r.connections(1, 3)
				r.crash()
				r.farm.mu.Lock()
				r.farm.delay = 500 * time.Millisecond
				r.farm.mu.Unlock()
				r.start(tt.next)
				r.want(tt.want)
			})
		})
	}
}

// TestHoldIsNotPutOff: reloads with the same newcomers keep the end, others move it.
func TestHoldIsNotPutOff(t *testing.T) {
	inBubble(t, holding(conf(1, 2), time.Minute), func(r *rig) {
		newcomersFail(r)
		until := func(servers ...int) time.Time {
			r.reload(holding(conf(servers...), time.Minute))
			r.pass(10 * time.Second)
			r.want("1:1 2:1")
			return r.e.Snapshot().VirtualServers[0].Hold.Until
		}
		first := until(3)
		if again := until(3); !again.Equal(first) {
			t.Errorf("the same file moved the end by %v", again.Sub(first))
		}
		if other := until(3, 4); !other.After(first) {
			t.Error("another newcomer has no time of its own")
		}
	})
}

// TestHoldWithSorryServer: the sorry server is what the file says for such a case.
func TestHoldWithSorryServer(t *testing.T) {
	with := func(cfg *config.Config) *config.Config {
		cfg.VirtualServers[0].Sorry = &config.SorryServer{Key: config.RSKey{AddrPort: netip.MustParseAddrPort(target(9))}, Forward: config.Forwarding{Method: config.NAT}}
		return holding(cfg, time.Minute)
	}
	inBubble(t, with(conf(1, 2)), func(r *rig) {
		newcomersFail(r)
		r.reload(with(conf(3, 4)))
		r.pass(59 * time.Second)
		r.want("1:1 2:1")
		r.pass(2 * time.Second)
		r.want("9:1")
	})
}

// TestNoHold where there is nothing to wait for.
func TestNoHold(t *testing.T) {
	for name, tt := range map[string]struct {
		next *config.Config
		want string
	}{
		"off":                   {conf(3, 4), "3:1 4:1"},
		"a healthy one stays":   {holding(conf(2, 3), time.Minute), "2:1"},
		"nobody comes":          {holding(conf(), time.Minute), ""},
		"newcomers of weight 0": {holding(each(conf(3), func(rs *config.RealServer) { rs.Weight = 0 }), time.Minute), "3:0"},
		"newcomers unchecked":   {holding(each(conf(3), func(rs *config.RealServer) { rs.Checkers = nil }), time.Minute), "3:1"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, holding(conf(1, 2), time.Minute), func(r *rig) {
				r.farm.mu.Lock()
				r.farm.delay = 500 * time.Millisecond
				r.farm.mu.Unlock()
				r.reload(tt.next)
				r.want(tt.want)
				if h := r.e.Snapshot().VirtualServers[0].Hold; h != nil {
					r.Errorf("held: %+v", h)
				}
			})
		})
	}
}

// TestHeldServers are checked, can be drained, come back by a reload, and a failing one
// goes; when none is left, newcomers are trusted.
func TestHeldServers(t *testing.T) {
	inBubble(t, holding(conf(1, 2), time.Minute), func(r *rig) {
		newcomersFail(r)
		r.reload(holding(conf(3, 4), time.Minute))
		r.want("1:1 2:1")
		r.ordered(order(1, VerbDrain))
		r.want("1:0 2:1")
		r.ordered(order(1, VerbUndrain))
		r.set(1, checker.Failed, "refused")
		r.pass(11 * time.Second)
		r.want("2:1")
		r.reload(holding(conf(1, 2), time.Minute))
		r.want("2:1")
		if s := r.e.Snapshot().VirtualServers[0]; s.Hold != nil {
			r.Errorf("rolled back, and yet held: %+v", s.Hold)
		}
		r.reload(holding(conf(3), time.Minute))
		r.want("2:1")
		r.set(2, checker.Failed, "refused")
		r.pass(11 * time.Second)
		r.want("")
	})
}

// TestHoldWithTrustNew: newcomers serve at once, and the old ones stay until one of
// them is proven.
func TestHoldWithTrustNew(t *testing.T) {
	trusting := func(cfg *config.Config) *config.Config {
		cfg.Global.TrustNew = true
		return holding(cfg, time.Minute)
	}
	inBubble(t, trusting(conf(1)), func(r *rig) {
		r.farm.mu.Lock()
		r.farm.delay = 900 * time.Millisecond
		r.farm.mu.Unlock()
		r.reload(trusting(conf(3)))
		r.want("1:1 3:1")
		r.reload(trusting(conf(3)))
		r.want("1:1 3:1")
		r.pass(20 * time.Second)
		r.want("3:1")
	})
}

// TestHoldFreezesFiles: a file that nobody watches any more changes nothing.
func TestHoldFreezesFiles(t *testing.T) {
	cfg := holding(conf(1), time.Minute)
	cfg.TrackFiles = []*config.TrackFile{{Name: "load", Path: "/run/load"}}
	cfg.VirtualServers[0].RealServers[0].TrackFiles = []config.TrackFileUse{{Name: "load", Weight: 1}}
	inBubble(t, cfg, func(r *rig) {
		r.e.FileValue("load", 6)
		r.want("1:7")
		newcomersFail(r)
		r.reload(holding(conf(3), time.Minute))
		r.pass(2 * time.Minute)
		r.want("1:7")
	})
}
