package engine

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

func (r *rig) plan(cfg *config.Config) *Plan {
	r.Helper()
	p, err := r.e.Plan(r.Context(), cfg, r.files.Watch)
	if err != nil {
		r.Fatal(err)
	}
	return p
}

// TestPlanTells: each part of a plan, from a pool of servers 1 and 2 of which 1 carries
// connections.
func TestPlanTells(t *testing.T) {
	for name, tt := range map[string]struct {
		next *config.Config
		want func(p *Plan) string
		is   string
	}{
		"nothing": {conf(1, 2), func(p *Plan) string { return fmt.Sprint(p.Changes, len(p.Operations)) }, "false 0"},
		"a drain with its connections": {conf(2), func(p *Plan) string { return fmt.Sprint(p.Drains) },
			"[{{192.0.2.1:80/tcp 10.0.0.1:80 5 0} removed from the configuration 0s}]"},
		"an empty one is removed": {conf(1), func(p *Plan) string {
			return fmt.Sprintln(len(p.Drains), p.Operations[1].Op, p.Operations[1].Destination)
		}, "0 remove 10.0.0.2:80\n"},
		"a newcomer joins later": {conf(1, 2, 3), func(p *Plan) string { return fmt.Sprint(p.Joins, len(p.Operations)) }, "[{[192.0.2.1]:tcp:80 10.0.0.3:80}] 0"},
		"all are held": {holding(conf(3), time.Minute), func(p *Plan) string { return fmt.Sprint(p.Held, p.Joins, len(p.Pools)) },
			"[{{[192.0.2.1]:tcp:80 10.0.0.1:80} 1m0s} {{[192.0.2.1]:tcp:80 10.0.0.2:80} 1m0s}] [{[192.0.2.1]:tcp:80 10.0.0.3:80}] 0"},
		"a quorum is lost": {with(conf(1, 3), func(vc *config.VirtualServer) { vc.Quorum = 2 }), func(p *Plan) string {
			return fmt.Sprint(len(p.Pools), p.Pools[0].BelowQuorum, p.Pools[0].WeightBefore, p.Pools[0].WeightAfter, p.Pools[0].Needed)
		}, "1 true 2 1 2"},
		"an empty pool": {alphaConf(3), func(p *Plan) string {
			return fmt.Sprint(p.Pools[0].Empty, p.Pools[0].BelowQuorum, p.Pools[0].ServingBefore, p.Pools[0].ServingAfter)
		}, "true true 2 0"},
		"weight 0 stays": {each(conf(1, 2), func(rs *config.RealServer) {
			if rs.Key.Addr().As4()[3] == 1 {
				rs.Weight = 0
			}
		}), func(p *Plan) string {
			return fmt.Sprint(p.Drains, p.Operations[0].From.Weight, p.Operations[0].To.Weight, p.Operations[0].Active)
		},
			"[{{192.0.2.1:80/tcp 10.0.0.1:80 5 0} stays at weight 0 0s}] 1 0 5"},
		"settings": {with(conf(1, 2), func(vc *config.VirtualServer) { vc.Scheduler = "wlc" }), func(p *Plan) string { return fmt.Sprint(p.Changed) },
			"[{[192.0.2.1]:tcp:80 [{lvs_sched rr wlc}] [] [] []}]"},
		"a check begins anew": {each(conf(1, 2), func(rs *config.RealServer) { rs.Checkers[0].Conn.FWMark = 3 }), func(p *Plan) string { return fmt.Sprint(p.Checks[1], len(p.Operations)) },
			"{{[192.0.2.1]:tcp:80 10.0.0.2:80} TCP_CHECK 10.0.0.2:80} 0"},
		"a check goes on at another pace": {each(conf(1, 2), func(rs *config.RealServer) { rs.Checkers[0].DelayLoop = time.Minute }), func(p *Plan) string { return fmt.Sprint(len(p.Checks), p.Changes) }, "0 true"},
		"a virtual server goes":           {&config.Config{Global: conf().Global}, func(p *Plan) string { return fmt.Sprint(p.Removed, len(p.Drains), len(p.Cut)) }, "[[192.0.2.1]:tcp:80] 1 0"},
		"no secret": {each(conf(1, 2), func(rs *config.RealServer) {
			rs.NotifyUp = &config.Script{Argv: []string{"/bin/tell", "--password", "s3cret"}}
			rs.Checkers[0].Kind, rs.Checkers[0].Misc = config.MiscCheck, &config.Misc{Script: &config.Script{Argv: []string{"/bin/ask", "--password", "s3cret"}}}
		}), func(p *Plan) string {
			return fmt.Sprintln(strings.Contains(fmt.Sprint(p), "s3cret"), p.Checks[0].Target)
		}, "false /bin/ask\n"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, conf(1, 2), func(r *rig) {
				r.connections(1, 5)
				p := r.plan(tt.next)
				if got := tt.want(p); got != tt.is {
					t.Errorf("%s, want %s", got, tt.is)
				}
				r.writes()
				r.reload(tt.next)
				if n := r.writes(); n < len(p.Operations) {
					t.Errorf("%d operations planned, %d written", len(p.Operations), n)
				}
			})
		})
	}
}

func with(cfg *config.Config, f func(*config.VirtualServer)) *config.Config {
	f(cfg.VirtualServers[0])
	return cfg
}

// TestPlanCut: a UDP service without drains loses what it carries.
func TestPlanCut(t *testing.T) {
	udp := func(servers ...int) *config.Config {
		return with(conf(servers...), func(vc *config.VirtualServer) { vc.Protocol, vc.Key.Protocol = config.UDP, config.UDP })
	}
	inBubble(t, udp(1, 2), func(r *rig) {
		k := key
		k.Protocol = ipvs.UDP
		ds, err := r.table.Destinations(t.Context(), k)
		if err != nil || len(ds) != 2 {
			t.Fatal(ds, err)
		}
		if err := r.table.SetCounters(k, ds[1].DestinationKey, ipvs.Counters{Inactive: 12}); err != nil {
			t.Fatal(err)
		}
		p := r.plan(udp(2))
		if len(p.Cut) != 1 || p.Cut[0].Address != "10.0.0.1:80" || p.Cut[0].Inactive != 12 || len(p.Drains) != 0 {
			t.Errorf("cut %+v, drains %+v", p.Cut, p.Drains)
		}
	})
}

// TestPlanOrders: orders that lose their server, or find one.
func TestPlanOrders(t *testing.T) {
	inBubble(t, conf(1, 2), func(r *rig) {
		r.ordered(order(1, VerbDrain))
		if p := r.plan(conf(2)); len(p.Orders) != 1 || p.Orders[0].Comes || p.Orders[0].Server != target(1) {
			t.Errorf("it goes: %+v", p.Orders)
		}
		r.reload(conf(2))
		if p := r.plan(conf(1, 2)); len(p.Orders) != 1 || !p.Orders[0].Comes || p.Orders[0].Who != "alice" {
			t.Errorf("it comes: %+v", p.Orders)
		}
		if p := r.plan(conf(2, 3)); len(p.Orders) != 0 {
			t.Errorf("it stays away: %+v", p.Orders)
		}
	})
}

// TestPlanWithoutTable: nothing is written as long as there is no table, and that is
// said.
func TestPlanWithoutTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.setDial(errPart)
		r.start(conf(1, 2))
		r.pass(time.Second)
		p := r.plan(conf(2))
		if len(p.Operations) != 0 || len(p.Notes) != 1 || p.KernelError == "" || !p.Changes {
			t.Errorf("%+v", p)
		}
		r.stop(nil)
	})
}

// TestPlanOfRefused: what the kernel would refuse is said and not counted.
func TestPlanOfRefused(t *testing.T) {
	inBubble(t, conf(1, 2), func(r *rig) {
		p := r.plan(with(conf(1, 2), func(vc *config.VirtualServer) { vc.Scheduler = "nonesuch" }))
		if len(p.Operations) != 0 || len(p.Notes) == 0 || !strings.Contains(p.Notes[0], "the kernel would refuse to set service") {
			t.Errorf("%+v", p)
		}
	})
}

// TestPlanDuringFailures: the plan goes by what the checks say now.
func TestPlanDuringFailures(t *testing.T) {
	inBubble(t, conf(1, 2), func(r *rig) {
		r.set(1, checker.Failed, "refused")
		r.pass(11 * time.Second)
		p := r.plan(conf(1))
		if len(p.Pools) != 1 || !p.Pools[0].Empty || p.Pools[0].WeightBefore != 1 {
			t.Errorf("the only good server leaves: %+v", p.Pools)
		}
	})
}
