package web

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
)

// maxNames are the virtual servers that a concern names.
const maxNames = 6

// overdueFor is how late checks may be before it is said.
const overdueFor = 5 * time.Second

// concern is one thing that an operator should know first.
type concern struct {
	// Bad is what serves nobody, or may soon; else it is worth a look.
	Bad  bool
	What string
	// Pools are those concerned, More how many are not named, State the filter that
	// shows all.
	Pools []*pool
	More  int
	State string
}

// concerns are those of a sight, the worst first.
func (s *sight) concerns() (all []concern) {
	if !s.Kernel.OK && !s.Observe {
		all = append(all, concern{Bad: true, What: "The kernel's table cannot be written: " + s.Kernel.Error})
	}
	if p := s.Passive; p != nil && p.On {
		all = append(all, concern{What: "This director is " + passiveBy(p)})
	}
	if s.Edge != nil {
		for _, f := range s.Edge.Failures {
			all = append(all, concern{Bad: true, What: f.Feature + " does not work: " + f.Reason})
		}
	}
	if !s.Reload.OK {
		all = append(all, concern{Bad: true, What: "The last reload was refused, the configuration before it goes on: " + s.Reload.Error})
	}
	if s.Overdue > overdueFor {
		all = append(all, concern{Bad: true, What: fmt.Sprintf("Checks are late by up to %s", span(s.Overdue))})
	}
	if s.Kernel.OK && s.Kernel.Error != "" && !s.Observe {
		all = append(all, concern{What: "What the kernel holds is as last known: " + s.Kernel.Error})
	}
	for _, kind := range []struct {
		bad       bool
		one, many string
		state     string
		is        func(*pool) bool
	}{
		{true, "A virtual server has no quorum, and its sorry server serves", "%d virtual servers have no quorum, and their sorry servers serve", stateProblems, func(p *pool) bool { return p.noQuorum() && p.vs.SorryServing }},
		{true, "A virtual server has no quorum", "%d virtual servers have no quorum", stateProblems, func(p *pool) bool { return p.noQuorum() && !p.vs.SorryServing }},
		{true, "A virtual server is at its floor: failed real servers are kept in service (min_alive)", "%d virtual servers are at their floor: failed real servers are kept in service (min_alive)", string(engine.StateKept), func(p *pool) bool { return p.vs != nil && p.vs.AtFloor }},
		{true, "Real servers are down, with quorum, in a virtual server", "Real servers are down, with quorum, in %d virtual servers", string(engine.StateDown), func(p *pool) bool {
			return p.vs != nil && !p.noQuorum() && !p.vs.AtFloor && p.has(func(r *row) bool { return r.state == string(engine.StateDown) })
		}},
		{true, "Addresses of a virtual server are not on their device", "Addresses of %d virtual servers are not on their device", stateProblems, (*pool).missing},
		{false, "The addresses of a virtual server are not announced", "The addresses of %d virtual servers are not announced", stateProblems, func(p *pool) bool {
			return p.unannounced() && !p.noQuorum() && (s.Passive == nil || !s.Passive.On)
		}},
		{false, "Checks cannot be run, so that the last verdict stays, in a virtual server", "Checks cannot be run, so that the last verdicts stay, in %d virtual servers", stateProblems, func(p *pool) bool { return p.has(func(r *row) bool { return r.unable }) }},
		{false, "The kernel's table has other weights than wanted in a virtual server", "The kernel's table has other weights than wanted in %d virtual servers", stateProblems, func(p *pool) bool { return len(p.drifts) == 0 && p.has((*row).differs) }},
		{false, "Somebody else changed a service", "Somebody else changed %d services", stateProblems, func(p *pool) bool { return len(p.drifts) > 0 }},
		{false, "Drains wait in a virtual server", "Drains wait in %d virtual servers", stateDraining, func(p *pool) bool { return p.drains > 0 }},
		{false, "Real servers that a reload took away go on serving (departure_hold) in a virtual server", "Real servers that a reload took away go on serving (departure_hold) in %d virtual servers", string(engine.StateHeld), func(p *pool) bool { return p.vs != nil && p.vs.Hold != nil }},
	} {
		c := concern{Bad: kind.bad, What: kind.one, State: kind.state}
		for _, p := range s.pools {
			switch {
			case !kind.is(p):
			case len(c.Pools) < maxNames:
				c.Pools = append(c.Pools, p)
			default:
				c.More++
			}
		}
		if n := len(c.Pools) + c.More; n > 1 {
			c.What = fmt.Sprintf(kind.many, n)
		}
		if len(c.Pools) > 0 {
			all = append(all, c)
		}
	}
	slices.SortStableFunc(all, func(a, b concern) int { return cmp.Compare(rank(a), rank(b)) })
	return all
}

func rank(c concern) int {
	if c.Bad {
		return 0
	}
	return 1
}

func (p *pool) noQuorum() bool { return p.vs != nil && !p.vs.QuorumUp && !p.vs.Suspended }

func (p *pool) missing() bool { return p.vs != nil && p.vs.VIP != nil && len(p.vs.VIP.Missing) > 0 }

func (p *pool) unannounced() bool { return p.vs != nil && p.vs.VIP != nil && !p.vs.VIP.Announced }

func (p *pool) has(is func(*row) bool) bool {
	for i := range p.rows {
		if is(&p.rows[i]) {
			return true
		}
	}
	return false
}
