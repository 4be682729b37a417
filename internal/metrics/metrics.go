package metrics

import (
	"io"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/pace"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Reading is what a scrape tells of.
type Reading struct {
	Snapshot *engine.Snapshot
	Detail   config.MetricsDetail
	// Told is left out if it is nil.
	Told *Told
	// Pace is who reads when; nil for at once.
	Pace *pace.Gate
}

// Told is what the world was told of changes since the start.
type Told struct {
	// Scripts that wait or run, and how those that do not have ended.
	ScriptsQueued                            int
	ScriptsOK, ScriptsFailed, ScriptsDropped uint64
	MailsQueued                              int
	MailsSent, MailsFailed, MailsDropped     uint64
	FIFOMessagesWritten, FIFOMessagesLost    uint64
	// Events by level: info, warn, error; and lines that the log left out.
	Events          [3]uint64
	LinesSuppressed uint64
}

// Write writes a reading's metrics. The process's own are left out if p is nil.
func Write(w io.Writer, r Reading, p *Process) error {
	r.Pace.Enter()
	defer r.Pace.Leave()
	e := &encoder{w: w, buf: make([]byte, 0, chunk+chunk/8)}
	s := r.Snapshot
	e.daemon(s, p)
	e.measured(s)
	e.told(r.Told)
	e.drained(s)
	e.around(s)
	e.syncDaemon(s.Sync)
	e.virtual(s)
	if r.Detail == config.MetricsServer {
		e.real(s)
		e.destinations(s)
		e.checkers(s)
	}
	e.flush()
	return e.err
}

func (e *encoder) daemon(s *engine.Snapshot, p *Process) {
	e.begin(buildInfo)
	e.label("version", s.Version)
	e.value(1)
	e.single(observing, truth(s.Observe))
	e.single(startTime, since1970(s.Started))
	if p != nil {
		e.single(cpuSeconds, p.CPU.Seconds())
		e.single(residentBytes, number(p.Resident))
		e.single(openFDs, number(p.Descriptors))
		e.single(goroutines, number(p.Goroutines))
		e.single(heapBytes, number(p.Heap))
	}

	e.single(reloadOK, truth(s.Reload.OK))
	e.single(reloadTime, since1970(s.Reload.At))
	e.single(reloadAppliedAt, since1970(s.Applied))
	e.single(generation, number(s.Generation))

	e.single(kernelUp, truth(s.Kernel.OK))
	e.single(kernelLastGood, since1970(s.Kernel.LastSuccess))
	e.single(kernelErrors, number(s.Kernel.Errors))
	e.single(driftRepaired, number(s.Kernel.DriftRepaired))

	for _, c := range s.Checks {
		for _, r := range []struct {
			name string
			n    uint64
		}{{"ok", c.OK}, {"failed", c.Failed}, {"unable", c.Unable}} {
			e.begin(checks)
			e.label("checker", c.Kind)
			e.label("result", r.name)
			e.value(number(r.n))
		}
	}
	for i := range s.Checks {
		e.distribution(took, &s.Checks[i].Took, "checker", s.Checks[i].Kind)
	}
	for i := range s.Checks {
		for stage, n := range s.Checks[i].FailedAt {
			// Most kinds of checks know few stages.
			if n > 0 {
				e.begin(failed)
				e.label("checker", s.Checks[i].Kind)
				e.label("stage", stageName(stage))
				e.value(number(n))
			}
		}
	}
	e.single(overdue, s.Overdue.Seconds())
	e.single(overrides, number(len(s.Overrides)))
	oldest := s.At
	for i := range s.Overrides {
		if at := s.Overrides[i].Since; at.Before(oldest) {
			oldest = at
		}
	}
	e.single(overrideOldest, s.At.Sub(oldest).Round(time.Millisecond).Seconds())
}

// drained sums the drains of all services up.
func (e *encoder) drained(s *engine.Snapshot) {
	var n, drift int
	var active, inactive uint64
	oldest := s.At
	// Virtual servers can share a service.
	seen := map[ipvs.ServiceKey]bool{}
	sum := func(services []engine.Service) {
		for i := range services {
			if !moving(&services[i]) || seen[services[i].Key] {
				continue
			}
			seen[services[i].Key] = true
			drift += len(services[i].Drift)
			for j := range services[i].Destinations {
				d := &services[i].Destinations[j]
				if d.Drain == nil {
					continue
				}
				n++
				active += uint64(d.Active)
				inactive += uint64(d.Inactive)
				if d.Drain.Since.Before(oldest) {
					oldest = d.Drain.Since
				}
			}
		}
	}
	for i := range s.VirtualServers {
		sum(s.VirtualServers[i].Services)
	}
	sum(s.Leaving)
	e.single(driftPresent, number(drift))
	e.single(drains, number(n))
	e.single(drainOldest, s.At.Sub(oldest).Round(time.Millisecond).Seconds())
	for _, c := range []struct {
		state string
		n     uint64
	}{{"active", active}, {"inactive", inactive}} {
		e.begin(drainConnections)
		e.label("state", c.state)
		e.value(number(c.n))
	}
}

// moving says whether a service has anything that drained sums up.
func moving(s *engine.Service) bool {
	return len(s.Drift) > 0 || slices.ContainsFunc(s.Destinations, func(d engine.Destination) bool { return d.Drain != nil })
}

// states are what real servers are counted by, in this order.
var states = []engine.State{
	engine.StateUp, engine.StateDown, engine.StateUnverified, engine.StateMaintenance,
	engine.StateWithdrawn, engine.StateHeld, engine.StateKept, engine.StateDamped, engine.StatePassive,
}

// counted says whether a state is told of even without a server in it.
func counted(vs *engine.VirtualServer, s engine.State) bool {
	switch s {
	case engine.StateWithdrawn:
		return vs.Sorry != nil
	case engine.StateKept:
		return vs.MinAlive > 0
	case engine.StateHeld, engine.StateDamped, engine.StatePassive:
		return false
	}
	return true
}

// named starts a sample of a virtual server.
func (e *encoder) named(f family, vs *engine.VirtualServer) {
	e.identity(f, vs)
	if vs.Label != "" {
		e.label("label", vs.Label)
	}
}

// identity is named without what its people call it.
func (e *encoder) identity(f family, vs *engine.VirtualServer) {
	e.begin(f)
	e.label("virtual_server", vs.Name)
	switch {
	case vs.Group != "":
		e.label("proto", vs.Protocol)
	case len(vs.Services) == 1:
		e.service(vs.Services[0].Key)
	}
}

// each writes a sample of every virtual server that has one.
func (e *encoder) each(s *engine.Snapshot, f family, value func(*engine.VirtualServer) (v float64, has bool)) {
	for i := range s.VirtualServers {
		vs := &s.VirtualServers[i]
		if v, has := value(vs); has {
			e.named(f, vs)
			e.value(v)
		}
	}
}

func (e *encoder) virtual(s *engine.Snapshot) {
	e.single(virtualServers, number(len(s.VirtualServers)))
	n := 0
	for i := range s.VirtualServers {
		vs := &s.VirtualServers[i]
		if vs.Suspended {
			n++
		}
	}
	e.single(suspended, number(n))
	e.services(s)

	for i := range s.VirtualServers {
		vs := &s.VirtualServers[i]
		for _, state := range states {
			if n := vs.Counts.Of(state); n > 0 || counted(vs, state) {
				e.named(vsServers, vs)
				e.label("state", string(state))
				e.value(number(n))
			}
		}
	}
	e.each(s, vsAlive, func(vs *engine.VirtualServer) (float64, bool) { return number(vs.Alive), true })
	e.each(s, vsQuorum, func(vs *engine.VirtualServer) (float64, bool) { return number(vs.Quorum), true })
	e.each(s, vsQuorumUp, func(vs *engine.VirtualServer) (float64, bool) { return truth(vs.QuorumUp), true })
	e.each(s, vsSorry, func(vs *engine.VirtualServer) (float64, bool) { return truth(vs.SorryServing), vs.Sorry != nil })
	e.each(s, vsAtFloor, func(vs *engine.VirtualServer) (float64, bool) { return truth(vs.AtFloor), vs.MinAlive > 0 })
	e.each(s, vsExpiry, func(vs *engine.VirtualServer) (float64, bool) {
		return since1970(vs.CertificateEnds), !vs.CertificateEnds.IsZero()
	})
	e.each(s, vsDrains, func(vs *engine.VirtualServer) (float64, bool) {
		return number(count(vs, func(d *engine.Destination) bool { return d.Drain != nil })), true
	})
	e.each(s, vsMismatched, func(vs *engine.VirtualServer) (float64, bool) {
		return number(count(vs, func(d *engine.Destination) bool { return d.Drain == nil && d.Kernel != d.Wanted })), true
	})
}

func count(vs *engine.VirtualServer, is func(*engine.Destination) bool) (n int) {
	for i := range vs.Services {
		for j := range vs.Services[i].Destinations {
			if is(&vs.Services[i].Destinations[j]) {
				n++
			}
		}
	}
	return n
}
