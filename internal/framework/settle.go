package framework

import (
	"slices"
	"time"
)

// standing is what follows from the facts about one real server.
type standing struct {
	// weight is the effective weight, share the one in the table.
	weight, share int32
	// alive: it may serve. kept: only since the floor keeps it. held: it may not,
	// though its checks pass, since it flaps. rising: its weight grows.
	alive, kept, held, rising bool
}

// tally is what the servers of a virtual server add up to. It is kept by differences:
// a server's part is taken out before it is judged and put back afterwards.
type tally struct {
	// sum is the weight that is alive.
	sum int64
	// alive, kept and rising count servers by their standing, healthy those that
	// could carry the pool, waiting those that would if their holds ended.
	alive, kept, rising, healthy, waiting int
}

// count adds a server's part, or with -1 takes it out.
func (t *tally) count(rs *RealServer, n int) {
	t.sum += int64(n) * rs.counted()
	for _, c := range [...]struct {
		of *int
		is bool
	}{{&t.alive, rs.alive}, {&t.kept, rs.kept}, {&t.rising, rs.rising}, {&t.healthy, rs.healthy()}, {&t.waiting, rs.waits()}} {
		if c.is {
			*c.of += n
		}
	}
}

// compare says what moved.
func (s standing) compare(was standing, index int) (ServerChange, bool) {
	c := ServerChange{
		Index: index, AliveChanged: s.alive != was.alive, WeightChanged: s.weight != was.weight,
		ShareChanged: s.share != was.share, KeptChanged: s.kept != was.kept, HeldChanged: s.held != was.held,
		RiseChanged: s.rising != was.rising,
	}
	return c, s != was
}

// Advance moves the virtual server's clock and returns what the passing of time
// changes: the end of a hold, a step of a slow start. What is set afterwards happens
// at that time.
func (vs *VirtualServer) Advance(now time.Time) Change {
	if now.After(vs.now) {
		vs.now = now
	}
	if due := vs.due(); len(due) > 0 {
		return vs.update(due...)
	}
	return Change{}
}

// due returns the servers that time has moved, in their order.
func (vs *VirtualServer) due() (servers []int) {
	for len(vs.moments) > 0 && !vs.now.Before(vs.moments[0].at) {
		i := vs.moments[0].server
		vs.moments.set(vs, i, time.Time{})
		servers = append(servers, i)
	}
	slices.Sort(servers)
	return servers
}

// NextAt returns when time alone will change something; zero for never.
func (vs *VirtualServer) NextAt() time.Time {
	if len(vs.moments) == 0 {
		return time.Time{}
	}
	return vs.moments[0].at
}

// judge takes in the verdicts on one server, and remembers when it went up or down.
func (vs *VirtualServer) judge(rs *RealServer) {
	was := rs.passing
	rs.passing = rs.computePassing()
	failing := !rs.passing && rs.anyDown()
	if failing && was {
		// Only a fall counts: a first check that fails tells of no failure, nor does
		// the first one of a check that replaced a failing one.
		vs.failures++
		rs.failedAs = vs.failures
	}
	rs.failing = failing
	switch d := vs.Config.FlapDamping; {
	case was && !rs.passing:
		if d.Count > 0 || rs.more != nil {
			rs.rest().flaps.down(vs.now, d)
		}
	case !was && rs.passing:
		if rs.more != nil {
			rs.more.flaps.up(vs.now, d)
		}
	}
	rs.weight = rs.computeWeight()
}

// update works out what new facts about some servers, in their order, change. Only
// those are looked at, as long as no other server's standing can depend on them.
func (vs *VirtualServer) update(servers ...int) Change {
	var one [1]standing
	was := one[:]
	if len(servers) > 1 {
		was = make([]standing, len(servers))
	}
	before := vs.tally
	for k, i := range servers {
		rs := vs.Servers[i]
		was[k] = rs.standing
		vs.tally.count(rs, -1)
		vs.judge(rs)
		vs.hold(rs)
		rs.kept, rs.rising = false, false // not known yet
		rs.alive = rs.passing && !rs.held
		vs.tally.count(rs, 1)
	}
	if len(servers) == 1 {
		if other, ok := vs.keepOne(servers[0], was[0], before); ok && other >= 0 {
			then := vs.Servers[other].standing
			vs.keepIn(other, false)
			return vs.finish([]int{servers[0], other}, []standing{was[0], then})
		} else if ok {
			return vs.finish(servers, was)
		}
	}
	if before.kept > 0 || vs.others() {
		for k, i := range servers {
			vs.Servers[i].alive = was[k].alive // who serves already is kept first
		}
		return vs.settle(servers, was)
	}
	return vs.finish(servers, was)
}

// finish works out the shares of servers whose standing is known otherwise, and what
// changed.
func (vs *VirtualServer) finish(servers []int, was []standing) Change {
	var c Change
	for k, i := range servers {
		rs := vs.Servers[i]
		rs.ramp(was[k], vs.tally.kept == 0 && vs.healthy >= 2, vs.now)
		if rs.rising {
			vs.rising++
		}
		vs.moments.set(vs, i, rs.moment(vs.now))
		if sc, changed := rs.compare(was[k], i); changed {
			c.Servers = append(c.Servers, sc)
		}
	}
	c.Quorum = vs.evaluate()
	return c
}

// others reports whether, with so many healthy, the standing of servers may change
// that no new fact is about: the floor keeps some, a hold ends early, or no weight
// may grow.
func (vs *VirtualServer) others() bool {
	floor := vs.Floor()
	return vs.healthy < floor || vs.healthy < max(floor, 1) && vs.waiting > 0 || vs.healthy < 2 && vs.rising > 0
}

// settle works everything out again, for new facts about some servers with their
// standings before.
func (vs *VirtualServer) settle(servers []int, before []standing) Change {
	was := vs.standings()
	for k, i := range servers {
		was[i] = before[k]
	}
	vs.derive(was)
	var c Change
	for i, rs := range vs.Servers {
		sc, changed := rs.compare(was[i], i)
		switch {
		case !changed:
		case len(servers) == 1 && i == servers[0]: // what the event was about
			c.Servers = slices.Insert(c.Servers, 0, sc)
		default:
			c.Servers = append(c.Servers, sc)
		}
	}
	c.Quorum = vs.evaluate()
	return c
}

// derive works everything out from the facts and the standings before.
func (vs *VirtualServer) derive(was []standing) {
	for _, rs := range vs.Servers {
		vs.judge(rs)
	}
	vs.keep(vs.damp())
	for _, rs := range vs.Servers {
		rs.alive = rs.passing && !rs.held || rs.kept
	}
	vs.ramp(was)
	vs.tally = tally{}
	for i, rs := range vs.Servers {
		vs.tally.count(rs, 1)
		vs.moments.set(vs, i, rs.moment(vs.now))
	}
}

func (vs *VirtualServer) standings() []standing {
	was := make([]standing, len(vs.Servers))
	for i, rs := range vs.Servers {
		was[i] = rs.standing
	}
	return was
}
