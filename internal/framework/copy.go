package framework

import "slices"

// Copies returns copies of virtual servers that share with them only what never
// changes, so that what would become of them can be found out beside their owner. They
// are made of few pieces of memory, since the owner waits for that.
func Copies(of []*VirtualServer) []*VirtualServer {
	servers, verdicts := 0, 0
	for _, vs := range of {
		servers += len(vs.Servers)
		for _, rs := range vs.Servers {
			verdicts += len(rs.Checkers)
		}
	}
	copies, lists := make([]*VirtualServer, len(of)), make([]VirtualServer, len(of))
	all, refs, checks := make([]RealServer, servers), make([]*RealServer, servers), make([]Verdict, 0, verdicts)
	for i, vs := range of {
		c := &lists[i]
		*c = *vs
		n := len(vs.Servers)
		c.Servers, refs = refs[:n:n], refs[n:]
		for j, rs := range vs.Servers {
			r := &all[j]
			*r = *rs
			from := len(checks)
			checks = append(checks, rs.Checkers...)
			r.Checkers = checks[from:len(checks):len(checks)]
			r.more = rs.more.copy()
			c.Servers[j] = r
		}
		all = all[n:]
		c.moments = slices.Clone(vs.moments)
		copies[i] = c
	}
	return copies
}

// copy copies what is changed in place; the times of flaps are replaced whole.
func (m *more) copy() *more {
	if m == nil {
		return nil
	}
	c := *m
	c.files, c.dynamic = slices.Clone(m.files), slices.Clone(m.dynamic)
	return &c
}
