package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Snapshot assembles the present state. It may be called by anyone, at any time.
func (e *Engine) Snapshot() *Snapshot {
	s, _ := e.snapshot()
	return s
}

// Overview is Snapshot without the real servers, of which it has the numbers alone, and
// without the destinations of services that hold what they should: a summary of ten
// thousand need not make them all.
func (e *Engine) Overview() *Snapshot {
	s, _ := e.overview()
	return s
}

func (e *Engine) overview() (*Snapshot, *published) {
	p := e.published.Load()
	s := p.head
	s.At = time.Now()
	if e.opts.Scheduler != nil {
		s.Overdue = e.opts.Scheduler.Overdue()
	}
	s.Overrides = slices.Clone(p.head.Overrides)
	s.Checks, s.Measured = e.tally.checks(), e.measures.read()
	if p.config != nil {
		s.Measured.Reconcile = p.config.Global.ReconcileInterval
	}
	s.Kernel.LastSuccess = e.measures.lastSuccess()
	s.Sync = e.traffic(s.Sync)
	s.VirtualServers = make([]VirtualServer, p.pieces.n)
	n := 0
	for i := range s.VirtualServers {
		n += len(p.pieces.at(i).services())
	}
	services := make([]Service, 0, n)
	for i := range s.VirtualServers {
		piece, first := p.pieces.at(i), len(services)
		vs := &s.VirtualServers[i]
		*vs = piece.vs
		for j, k := range piece.services() {
			if piece.views != nil && piece.views[j] != nil {
				services = append(services, serviceOf(piece.views[j].ServiceView))
			} else {
				services = append(services, Service{Key: k.ServiceKey})
			}
		}
		vs.Services = services[first:len(services):len(services)]
		vs.VIP = piece.withMissing(&p.report)
		vs.Counts = piece.counts()
		vs.CertificateEnds = piece.certificateEnds()
	}
	for _, v := range p.leaving {
		s.Leaving = append(s.Leaving, serviceOf(v.ServiceView))
	}
	return &s, p
}

func (e *Engine) snapshot() (*Snapshot, *published) {
	s, p := e.overview()
	for i := range s.VirtualServers {
		// The loop, and whoever checks, need not wait for a reader of ten thousand.
		e.opts.Pace.Step(func() {
			vs := p.pieces.at(i).read(p.config, s.At)
			vs.VIP = s.VirtualServers[i].VIP
			s.VirtualServers[i] = vs
		})
	}
	return s, p
}

// counts counts the real servers by their states.
func (p *piece) counts() (c Counts) {
	for i := range p.situations.n {
		c[p.situations.at(i).state]++
	}
	return c
}

// read puts a piece into words.
func (p *piece) read(cfg *config.Config, now time.Time) VirtualServer {
	vs := p.vs
	vs.Counts = p.counts()
	vs.CertificateEnds = p.certificateEnds()
	vs.RealServers = make([]RealServer, p.situations.n)
	for i := range vs.RealServers {
		vs.RealServers[i] = p.server(i, cfg, now)
	}
	vs.Hold = p.hold.view(p.of, func(i int) bool {
		return p.situations.at(i).proven(len(p.of.Servers[i].Config.Checkers))
	})
	for i, s := range p.services() {
		if p.views != nil && p.views[i] != nil {
			vs.Services = append(vs.Services, serviceOf(p.views[i].ServiceView))
			continue
		}
		out := Service{Name: s.String(), Key: s.ServiceKey, Destinations: []Destination{}}
		for dk, weight := range p.settled(s.ServiceKey) {
			out.Destinations = append(out.Destinations, Destination{Address: dk.String(), Wanted: weight, Kernel: weight})
		}
		vs.Services = append(vs.Services, out)
	}
	return vs
}

// settled yields the destinations that a service without a view has and should have,
// with their weights.
func (p *piece) settled(s ipvs.ServiceKey) func(yield func(ipvs.DestinationKey, int64) bool) {
	return func(yield func(ipvs.DestinationKey, int64) bool) {
		for i := range p.situations.n {
			weight := int64(p.situations.at(i).wanted)
			if weight < 0 {
				continue
			}
			dk, ok := p.kernel.Destination(p.of.Servers[i].Config.Key, s)
			if ok && !yield(dk, weight) {
				return
			}
		}
		if dk, ok := p.kernel.SorryDestination(s); ok && p.sorry >= 0 {
			yield(dk, p.sorry)
		}
	}
}

// server puts one real server into words.
func (p *piece) server(i int, cfg *config.Config, now time.Time) RealServer {
	rc, sit := p.of.Servers[i].Config, p.situations.at(i)
	out := RealServer{
		Address: rc.Key.String(), Label: rc.Label, State: sit.state.word(), Reason: sit.reason, Since: time.Unix(0, sit.since),
		Method: rc.Forward.Method.String(), WeightConfigured: rc.Weight,
		WeightWanted: int64(sit.wanted), Inhibit: rc.Inhibit,
	}
	out.Checkers = make([]Checker, len(rc.Checkers))
	for k, c := range rc.Checkers {
		if t := p.of.tasks[i][k]; t != nil {
			out.Checkers[k] = t.status()
		} else {
			out.Checkers[k] = Checker{Kind: c.Kind.String(), Target: targetOf(c), Verdict: sit.verdict(k).String()}
		}
	}
	out.doubt()
	if sit.rest == nil {
		return out
	}
	out.HeldUntil = sit.rest.heldUntil
	if now.Before(sit.rest.risesUntil) {
		out.RisesUntil = sit.rest.risesUntil
	}
	for k, d := range sit.rest.dynamic {
		if c := rc.Checkers[k]; d.Set {
			out.Dynamic = append(out.Dynamic, Dynamic{c.Kind.String() + " " + targetOf(c), d.Weight})
		}
	}
	for _, f := range sit.rest.files {
		contribution, fault := f.Status()
		out.TrackFiles = append(out.TrackFiles, TrackFile{Name: f.Name, Path: pathOf(cfg, f.Name), Value: f.Value, Contribution: contribution, Fault: fault})
	}
	return out
}

// doubt tells of a server in service whose checks are about to say otherwise, or cannot
// say anything: that is no verdict, but what somebody who looks wants to know.
func (rs *RealServer) doubt() {
	if rs.State != StateUp && rs.State != StateUnverified {
		return
	}
	for i := range rs.Checkers {
		switch c := &rs.Checkers[i]; {
		case c.Last == checker.Unable.String():
			rs.Reason = fmt.Sprintf("%s cannot run here, so that its last verdict (%s) stays: %s", c.Kind, c.Verdict, c.LastReason)
			return
		case rs.State == StateUp && c.Last == checker.Failed.String() && c.Failures > 0 && c.Verdict != framework.Down.String():
			rs.Reason = fmt.Sprintf("%s fails, attempt %d of %d: %s", c.Kind, c.Failures, c.Limit, c.LastReason)
			return
		}
	}
}

func pathOf(cfg *config.Config, trackFile string) string {
	for _, tf := range cfg.TrackFiles {
		if tf.Name == trackFile {
			return tf.Path
		}
	}
	return ""
}

func serviceOf(v apply.ServiceView) Service {
	s := Service{Name: v.Service.String(), Key: v.Service.ServiceKey, Destinations: []Destination{}}
	for _, d := range v.Drift {
		out := Drift{What: d.What, Found: d.Found, Wanted: d.Wanted, Since: d.Since}
		if d.Destination.Addr.IsValid() {
			out.Destination = d.Destination.String()
		}
		s.Drift = append(s.Drift, out)
	}
	for _, d := range v.Destinations {
		out := Destination{Address: d.DestinationKey.String(), Wanted: d.Wanted, Kernel: d.Mirror}
		if d.Drain != nil {
			out.Active, out.Inactive, out.Persistent = d.Drain.Counters.Active, d.Drain.Counters.Inactive, d.Drain.Counters.Persistent
			out.Drain = &Drain{Since: d.Drain.Since, Why: d.Drain.Why, WaitsFor: d.Drain.WaitsFor, Deadline: d.Drain.Deadline, EndsBy: d.Drain.EndsBy, Note: d.Drain.Note}
		}
		s.Destinations = append(s.Destinations, out)
	}
	return s
}

// Status is Snapshot with weights and counters read from the kernel just now. What
// cannot be read is left as the engine believes it, and Kernel.Error says so.
func (e *Engine) Status(ctx context.Context) *Snapshot {
	s, p := e.snapshot()
	if e.opts.Read == nil {
		return s
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	if err := e.reader.use(ctx, e.opts.Read, func(r Reader) error { return e.rereadAll(ctx, r, s, p) }); err != nil && (s.Kernel.OK || s.Kernel.Error == "") {
		s.Kernel.Error = err.Error()
	}
	return s
}

// rereadAll reads all services of a snapshot anew. What cannot be read stays as it is,
// and what is left too once the kernel does not answer.
func (e *Engine) rereadAll(ctx context.Context, r Reader, s *Snapshot, p *published) error {
	var first error
	again := func(svc *Service, k ipvs.ServiceKey) bool {
		ds, err := r.Destinations(ctx, k)
		if err == nil {
			*svc = reread(*svc, ds)
		} else if first == nil || unanswered(err) {
			first = err
		}
		return !unanswered(err)
	}
	for i := range s.VirtualServers {
		for j, k := range p.pieces.at(i).services() {
			if !again(&s.VirtualServers[i].Services[j], k.ServiceKey) {
				return first
			}
		}
	}
	for j := range s.Leaving {
		if !again(&s.Leaving[j], p.leaving[j].Service.ServiceKey) {
			return first
		}
	}
	if err := connectionsOf(ctx, r, s.Overrides, p); err != nil {
		return err
	}
	return first
}

// reread is a service with what was read of it.
func reread(svc Service, ds []ipvs.DestinationInfo) Service {
	found := make(map[string]ipvs.DestinationInfo, len(ds))
	for _, d := range ds {
		found[d.DestinationKey.String()] = d
	}
	out := svc
	out.Destinations = []Destination{}
	for _, d := range svc.Destinations {
		d.Kernel = -1
		if f, ok := found[d.Address]; ok {
			d.Kernel = int64(f.Weight)
			d.Active, d.Inactive, d.Persistent = f.Counters.Active, f.Counters.Inactive, f.Counters.Persistent
			if d.Drain != nil {
				drain := *d.Drain
				drain.WaitsFor = apply.WaitsFor(f.Counters)
				if f.Counters.Active > 0 {
					drain.EndsBy = time.Time{}
				}
				d.Drain = &drain
			}
			delete(found, d.Address)
		}
		out.Destinations = append(out.Destinations, d)
	}
	for _, f := range ds {
		if _, ok := found[f.DestinationKey.String()]; ok {
			out.Destinations = append(out.Destinations, Destination{Address: f.DestinationKey.String(), Wanted: -1, Kernel: int64(f.Weight),
				Active: f.Counters.Active, Inactive: f.Counters.Inactive, Persistent: f.Counters.Persistent})
		}
	}
	return out
}

// LogState writes the present state to the log, a line for each thing.
func (e *Engine) LogState(log *slog.Logger) {
	s := e.Snapshot()
	log.Info("State", "generation", s.Generation, "virtual_servers", len(s.VirtualServers), "kernel_ok", s.Kernel.OK,
		"kernel_error", s.Kernel.Error, "operations", s.Kernel.Operations, "overdue", s.Overdue)
	for _, vs := range s.VirtualServers {
		log.Info("Virtual server", slog.Group("", named("vs", vs.Name, vs.Label)...), "scheduler", vs.Scheduler, "quorum_up", vs.QuorumUp, "alive_weight", vs.Alive,
			"quorum", vs.Quorum, "hysteresis", vs.Hysteresis, "sorry_serving", vs.SorryServing, "since", vs.Since, "min_alive", vs.MinAlive, "at_floor", vs.AtFloor)
		for _, rs := range vs.RealServers {
			args := []any{slog.Group("", named("vs", vs.Name, vs.Label)...), slog.Group("", named("rs", rs.Address, rs.Label)...), "state", rs.State, "reason", rs.Reason, "since", rs.Since,
				"weight_wanted", rs.WeightWanted, "weight_configured", rs.WeightConfigured}
			for _, c := range rs.Checkers {
				args = append(args, strings.ToLower(c.Kind), fmt.Sprintf("%s (%d/%d failures): %s", c.Verdict, c.Failures, c.Limit, c.LastReason))
			}
			log.Info("Real server", args...)
		}
		logDrains(log, vs.Services)
	}
	logDrains(log, s.Leaving)
}

func logDrains(log *slog.Logger, services []Service) {
	for _, svc := range services {
		for _, d := range svc.Drift {
			log.Info("Changed by somebody else", "service", svc.Name, "destination", d.Destination, "what", d.What, "found", d.Found, "wanted", d.Wanted, "since", d.Since)
		}
		for _, d := range svc.Destinations {
			if d.Drain != nil {
				log.Info("Draining", "service", svc.Name, "destination", d.Address, "why", d.Drain.Why, "since", d.Drain.Since, "waits_for", d.Drain.WaitsFor, "note", d.Drain.Note)
			}
		}
	}
}
