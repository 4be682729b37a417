package framework

import (
	"cmp"
	"slices"
)

// Floor returns how many real servers min_alive leaves in service at least; 0 for
// no floor. A share is of the configured servers, whatever their state, rounded up.
func (vs *VirtualServer) Floor() int {
	m, n := vs.Config.MinAlive, uint64(len(vs.Config.RealServers))
	if m.Percent != 0 {
		return int((uint64(m.Percent)*n + 99) / 100)
	}
	return int(min(uint64(m.Servers), n))
}

// Kept reports that the server's checks would take it out and the floor keeps it in
// service.
func (rs *RealServer) Kept() bool { return rs.kept }

// AtFloor reports whether the floor keeps any server in service.
func (vs *VirtualServer) AtFloor() bool { return vs.tally.kept > 0 }

// keep chooses the servers that the floor keeps in service, given how many are
// healthy: of those that serve the ones that failed last. One that is out is brought
// back, the last that failed first, only if these are too few: to exchange one failed
// server for another would cost connections for nothing. A weight of 0 is the operator's "out" and is
// neither counted nor kept. A server that waits for its first good check is not
// kept either, but as it may fill the place in a moment, no failed server is brought
// back in for it; one that serves is not let go for it.
func (vs *VirtualServer) keep(healthy int) {
	need := vs.Floor() - healthy
	waiting := 0
	var failed []*RealServer
	for _, rs := range vs.Servers {
		serves := rs.alive
		rs.kept = false
		switch {
		case need <= 0 || rs.passing || rs.weight == 0:
		case rs.failing || serves:
			failed = append(failed, rs)
		default:
			waiting++
		}
	}
	slices.SortStableFunc(failed, func(a, b *RealServer) int {
		if a.alive != b.alive {
			if a.alive {
				return -1
			}
			return 1
		}
		return cmp.Compare(b.failedAs, a.failedAs)
	})
	for _, rs := range failed {
		if need > waiting || need > 0 && rs.alive {
			rs.kept = true
			need--
		}
	}
}

// keepOne is keep for a new fact about one server of a virtual server that is at its
// floor or above, with just as many kept as it needs: one that fails is then kept,
// since it serves and failed last, one that is kept and good again is kept no longer,
// and for one that comes back from outside the kept one that failed first goes, which
// is returned; -1 for none. It is not ok if it takes more than that.
func (vs *VirtualServer) keepOne(i int, was standing, before tally) (other int, ok bool) {
	rs, floor := vs.Servers[i], vs.Floor()
	need := floor - before.healthy
	switch {
	case floor == 0 || need < 0 || before.kept != need:
		return -1, false
	case before.waiting > 0 || vs.waiting > 0 || vs.rising > 0 || was.held || rs.held || was.weight == 0 || rs.weight == 0:
		return -1, false // a hold that may end, a slow start, one that is not counted
	case was.alive && !rs.passing:
		vs.keepIn(i, true)
	case !was.alive && rs.passing && need == 0:
		return -1, false // above the floor from now on
	case !was.alive && rs.passing:
		return vs.failedFirst(), true
	}
	return -1, true
}

// keepIn has the floor keep a server or let it go.
func (vs *VirtualServer) keepIn(i int, kept bool) {
	rs := vs.Servers[i]
	vs.tally.count(rs, -1)
	rs.kept = kept
	rs.alive = rs.passing && !rs.held || kept
	vs.tally.count(rs, 1)
}

// failedFirst returns the kept server that is let go first.
func (vs *VirtualServer) failedFirst() int {
	first := -1
	for i, rs := range vs.Servers {
		if rs.kept && (first < 0 || rs.failedAs <= vs.Servers[first].failedAs) {
			first = i
		}
	}
	return first
}
