package framework

import "github.com/sluice-lb/sluice/internal/config"

// Saved are the verdicts of an earlier process on a virtual server.
type Saved struct {
	// Verdict is that of one of a real server's checkers; Unknown for none.
	Verdict func(rc *config.RealServer, checker int) Verdict
	// Quorum: it stood. It is where the evaluation starts from, so that within the
	// hysteresis a restart moves nothing.
	Quorum bool
}

// Resume is New for a virtual server that an earlier process knew: its checkers
// start from their last verdicts. A checker without one counts as trust says. Files
// have their present values, whatever was saved of them.
func Resume(cfg *config.VirtualServer, trust Trust, values Values, saved Saved, orders ...Orders) (*VirtualServer, QuorumEvent) {
	vs := &VirtualServer{Config: cfg, Servers: newServers(cfg), quorumUp: saved.Quorum}
	for _, rs := range vs.Servers {
		rs.order(orders)
		rs.Trusted = trust(rs.Config)
		rs.cold = true
		for i := range rs.Checkers {
			rs.Checkers[i] = saved.Verdict(rs.Config, i)
		}
		rs.fill(values)
	}
	vs.recompute()
	return vs, vs.evaluate()
}

// ResumeMachine is NewMachine for a checker whose last verdict is known.
func ResumeMachine(v Verdict, strict bool) Machine { return Machine{verdict: v, strict: strict} }
