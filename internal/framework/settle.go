package framework

import "time"

// standing is what follows from the facts about one real server.
type standing struct {
	// alive: it may serve. kept: only since the floor keeps it. held: it may not,
	// though its checks pass, since it flaps.
	alive, kept, held bool
	// weight is the effective weight, share the one in the table.
	weight, share int64
}

// compare says what moved.
func (s standing) compare(was standing, index int) (ServerChange, bool) {
	c := ServerChange{
		Index: index, AliveChanged: s.alive != was.alive, WeightChanged: s.weight != was.weight,
		ShareChanged: s.share != was.share, KeptChanged: s.kept != was.kept, HeldChanged: s.held != was.held,
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
	if vs.next.IsZero() || vs.now.Before(vs.next) {
		return Change{}
	}
	return vs.settle(-1)
}

// NextAt returns when time alone will change something; zero for never.
func (vs *VirtualServer) NextAt() time.Time { return vs.next }

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
		rs.flaps.down(vs.now, d)
	case !was && rs.passing:
		rs.flaps.up(vs.now, d)
	}
	rs.weight = rs.computeWeight()
}

// derive works everything out from the facts and the standings before.
func (vs *VirtualServer) derive(was []standing) {
	vs.protected = vs.Floor() > 0 || vs.Config.FlapDamping.Count > 0
	for _, rs := range vs.Servers {
		vs.judge(rs)
		vs.protected = vs.protected || rs.Config.SlowStart > 0
	}
	vs.keep(vs.damp())
	vs.sum = 0
	for _, rs := range vs.Servers {
		rs.alive = rs.passing && !rs.held || rs.kept
		vs.sum += rs.counted()
	}
	vs.ramp(was)
	vs.next = time.Time{}
	for _, rs := range vs.Servers {
		for _, t := range []time.Time{rs.HeldUntil(), rampNext(rs.rising, vs.now, rs.Config.SlowStart)} {
			if !t.IsZero() && (vs.next.IsZero() || t.Before(vs.next)) {
				vs.next = t
			}
		}
	}
}

func (vs *VirtualServer) standings() []standing {
	was := make([]standing, len(vs.Servers))
	for i, rs := range vs.Servers {
		was[i] = rs.standing
	}
	return was
}

// settle works everything out again and returns what changed, with the server that
// the event was about first.
func (vs *VirtualServer) settle(first int) Change {
	was := vs.standings()
	vs.derive(was)
	var c Change
	for i, rs := range vs.Servers {
		sc, changed := rs.compare(was[i], i)
		switch {
		case !changed:
		case i == first:
			c.Servers = append([]ServerChange{sc}, c.Servers...)
		default:
			c.Servers = append(c.Servers, sc)
		}
	}
	c.Quorum = vs.evaluate()
	return c
}
