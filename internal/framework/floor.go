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
