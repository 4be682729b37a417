package metrics

import (
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// eachReal calls f for every real server.
func eachReal(s *engine.Snapshot, f func(*engine.VirtualServer, *engine.RealServer)) {
	for i := range s.VirtualServers {
		vs := &s.VirtualServers[i]
		for j := range vs.RealServers {
			f(vs, &vs.RealServers[j])
		}
	}
}

func (e *encoder) realNamed(f family, vs *engine.VirtualServer, rs *engine.RealServer) {
	e.identity(f, vs)
	e.remote(rs.Address)
	if rs.Label != "" {
		e.label("label", rs.Label)
	}
}

func (e *encoder) real(s *engine.Snapshot) {
	eachReal(s, func(vs *engine.VirtualServer, rs *engine.RealServer) {
		e.realNamed(rsUp, vs, rs)
		e.value(truth(rs.State == engine.StateUp))
	})
	eachReal(s, func(vs *engine.VirtualServer, rs *engine.RealServer) {
		e.realNamed(rsState, vs, rs)
		e.label("state", string(rs.State))
		e.value(1)
	})
	eachReal(s, func(vs *engine.VirtualServer, rs *engine.RealServer) {
		e.realNamed(rsWeight, vs, rs)
		e.value(number(max(rs.WeightWanted, 0)))
	})
}

// services says which services virtual servers stand for. A group can name one twice.
func (e *encoder) services(s *engine.Snapshot) {
	var seen map[ipvs.ServiceKey]int
	for i := range s.VirtualServers {
		vs := &s.VirtualServers[i]
		if seen == nil && len(vs.Services) > 1 {
			seen = make(map[ipvs.ServiceKey]int, len(vs.Services))
		}
		for j := range vs.Services {
			k := vs.Services[j].Key
			if len(vs.Services) > 1 {
				if seen[k] == i+1 {
					continue
				}
				seen[k] = i + 1
			}
			e.begin(vsService)
			e.label("virtual_server", vs.Name)
			if vs.Group != "" {
				// Virtual servers of one group differ by it; a mark has none.
				e.label("virtual_server_proto", vs.Protocol)
			}
			e.service(k)
			e.value(1)
		}
	}
}

// destinations are those of each service by itself, whichever virtual servers share
// it: a group's services can differ while one of them is being written.
func (e *encoder) destinations(s *engine.Snapshot) {
	seen := make(map[ipvs.ServiceKey]bool, len(s.VirtualServers))
	write := func(services []engine.Service) {
		for i := range services {
			if seen[services[i].Key] {
				continue
			}
			seen[services[i].Key] = true
			for j := range services[i].Destinations {
				d := &services[i].Destinations[j]
				if d.Kernel < 0 {
					continue
				}
				e.begin(dsWeight)
				e.service(services[i].Key)
				e.remote(d.Address)
				e.value(number(d.Kernel))
			}
		}
	}
	for i := range s.VirtualServers {
		write(s.VirtualServers[i].Services)
	}
	write(s.Leaving)
}

func (e *encoder) checkers(s *engine.Snapshot) {
	each := func(f family, value func(*engine.Checker) (v float64, has bool)) {
		eachReal(s, func(vs *engine.VirtualServer, rs *engine.RealServer) {
			for i := range rs.Checkers {
				c := &rs.Checkers[i]
				if v, has := value(c); has {
					e.realNamed(f, vs, rs)
					e.label("checker", c.Kind)
					e.number("position", uint64(i+1))
					e.value(v)
				}
			}
		})
	}
	each(ckUp, func(c *engine.Checker) (float64, bool) { return truth(c.Verdict == "up"), c.Verdict != "unknown" })
	each(ckFailed, func(c *engine.Checker) (float64, bool) { return number(c.Failures), true })
	each(ckLimit, func(c *engine.Checker) (float64, bool) { return number(c.Limit), true })
	each(ckExpiry, func(c *engine.Checker) (float64, bool) {
		return since1970(c.CertificateEnds), !c.CertificateEnds.IsZero()
	})
	each(ckTook, func(c *engine.Checker) (float64, bool) { return c.Took.Seconds(), !c.LastAt.IsZero() })
}
