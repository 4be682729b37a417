package engine

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// published is what readers see: a head and one immutable piece for each virtual
// server. A turn makes new pieces only for what it touched.
type published struct {
	head   Snapshot
	pieces []*piece
	// leaving are the keys behind head.Leaving.
	leaving []ipvs.ServiceKey
	// orders are what is behind head.Overrides, and places where their servers are
	// in the table.
	orders []Order
	places [][]place
}

type piece struct {
	of       *server
	vs       VirtualServer
	services []ipvs.ServiceKey
	// tasks give the part of a checker's state that every run changes.
	tasks [][]*task
}

// publish makes the pieces that are out of date.
func (e *Engine) publish(now time.Time) {
	was := e.published.Load()
	if len(e.touched) == 0 && !e.allTouched && !e.headTouched && was.head.Generation != 0 {
		return
	}
	p := &published{head: Snapshot{
		Version: e.opts.Version, Started: e.started, At: now, ConfigFile: e.opts.ConfigFile,
		Generation: e.generation, Reload: e.reload, Applied: e.applied, Observe: e.opts.Observe, Kernel: e.kernel,
	}}
	p.pieces = make([]*piece, len(e.vss))
	for i, vs := range e.vss {
		if !e.allTouched && !e.touched[vs] && i < len(was.pieces) && was.pieces[i].of == vs {
			p.pieces[i] = was.pieces[i]
			continue
		}
		p.pieces[i] = e.piece(vs, now)
	}
	for _, v := range e.applier.Leaving() {
		p.head.Leaving = append(p.head.Leaving, serviceOf(v))
		p.leaving = append(p.leaving, v.Service.ServiceKey)
	}
	e.publishOrders(p)
	clear(e.touched)
	e.allTouched, e.headTouched = false, false
	e.published.Store(p)
}

func (e *Engine) piece(vs *server, now time.Time) *piece {
	p := &piece{of: vs, tasks: vs.tasks}
	kernel, views := e.applier.Lookup(vs.Config.Key), e.applier.View(vs.Config.Key)
	p.vs = VirtualServer{
		Name: vs.name, Group: vs.Config.Key.Group, Protocol: protocolOf(vs.Config), Scheduler: vs.Config.Scheduler,
		Quorum: vs.Config.Quorum, Hysteresis: vs.Config.Hysteresis,
		Alive: vs.Sum(), QuorumUp: vs.QuorumUp(), Since: vs.since,
		Suspended: vs.suspended, SorryServing: vs.Config.Sorry != nil && !vs.QuorumUp(),
		MinAlive: vs.Floor(), AtFloor: vs.AtFloor(), FloorSince: vs.floorSince,
	}
	p.vs.Hold = vs.hold.view(vs)
	if s := vs.Config.Sorry; s != nil {
		p.vs.Sorry = &SorryServer{Address: s.Key.String(), Serving: p.vs.SorryServing}
	}
	wanted := map[ipvs.DestinationKey]int64{}
	for i, v := range views {
		p.vs.Services = append(p.vs.Services, serviceOf(v))
		p.services = append(p.services, v.Service.ServiceKey)
		if i == 0 {
			for _, d := range v.Destinations {
				wanted[d.DestinationKey] = d.Wanted
			}
		}
	}
	for i, rs := range vs.Servers {
		sit := &vs.rs[i]
		state, reason := e.explain(vs, rs, sit)
		if state != sit.state {
			sit.state, sit.since = state, now
		}
		sit.reason = reason
		out := RealServer{
			Address: rs.Config.Key.String(), State: state, Reason: reason, Since: sit.since,
			Method: rs.Config.Forward.Method.String(), WeightConfigured: rs.Config.Weight,
			WeightWanted: -1, Inhibit: rs.Config.Inhibit,
			HeldUntil: rs.HeldUntil(), RisesUntil: rs.RisesUntil(),
		}
		if len(p.services) > 0 {
			if dk, ok := kernel.Destination(rs.Config.Key, p.services[0]); ok {
				if w, ok := wanted[dk]; ok {
					out.WeightWanted = w
				}
			}
		}
		for j, c := range rs.Config.Checkers {
			out.Checkers = append(out.Checkers, Checker{Kind: c.Kind.String(), Target: targetOf(c), Verdict: rs.Checkers[j].String()})
			if d := rs.Dynamic[j]; d.Set {
				out.Dynamic = append(out.Dynamic, Dynamic{c.Kind.String() + " " + targetOf(c), d.Weight})
			}
		}
		for _, f := range rs.Files {
			contribution, fault := f.Status()
			out.TrackFiles = append(out.TrackFiles, TrackFile{Name: f.Name, Path: e.path(f.Name), Value: f.Value, Contribution: contribution, Fault: fault})
		}
		p.vs.RealServers = append(p.vs.RealServers, out)
	}
	return p
}

func protocolOf(vs *config.VirtualServer) string {
	if vs.Protocol == config.None {
		return ""
	}
	return vs.Protocol.String()
}

func (e *Engine) path(trackFile string) string {
	for _, tf := range e.config.TrackFiles {
		if tf.Name == trackFile {
			return tf.Path
		}
	}
	return ""
}

// situate says in one word and one sentence what a real server is doing.
func situate(vs *server, rs *framework.RealServer, sit *situation) (State, string) {
	down := sit.failed
	if down == "" {
		down = "a check failed"
	}
	switch {
	case rs.Maintenance():
		why := "weight 0"
		for _, f := range rs.Files {
			if c, fault := f.Status(); fault || c < 0 {
				why = fmt.Sprintf("track_file %s is %d", f.Name, f.Value)
				break
			}
		}
		for i, d := range rs.Dynamic {
			if d.Set && d.Weight == 0 {
				why = fmt.Sprintf("%s asks for weight 0", rs.Config.Checkers[i].Kind)
			}
		}
		if !rs.Alive() && !rs.Unverified() {
			why += "; also " + down
		}
		return StateMaintenance, why
	case rs.Kept() && vs.Config.Sorry != nil && !vs.QuorumUp():
		return StateWithdrawn, "failed, kept by min_alive, but the quorum is lost and the sorry server serves: " + down
	case rs.Kept() && rs.Unverified():
		return StateKept, "waits for its first good check, kept by min_alive: " + down
	case rs.Kept():
		return StateKept, "failed, kept by min_alive: " + down
	case !rs.HeldUntil().IsZero():
		return StateDamped, fmt.Sprintf("all checks pass, but it flapped %d times: held back by flap_damping until %s", rs.Flaps(), rs.HeldUntil().Format(time.TimeOnly))
	case rs.Unverified():
		return StateUnverified, "waits for its first good check"
	case !rs.Alive():
		return StateDown, down
	case rs.Config.Weight == 0 && rs.Weight() == 0:
		return StateMaintenance, "weight 0 in the configuration"
	case vs.Config.Sorry != nil && !vs.QuorumUp():
		return StateWithdrawn, "healthy, but the sorry server serves"
	case len(rs.Checkers) == 0:
		return StateUp, "no checks"
	}
	for _, v := range rs.Checkers {
		if v == framework.Unknown && vs.suspended {
			return StateUp, "trusted, not checked while the address is not on this host"
		}
		if v == framework.Unknown {
			return StateUp, "trusted, not checked yet"
		}
	}
	return StateUp, "all checks pass"
}

func serviceOf(v apply.ServiceView) Service {
	s := Service{Name: v.Service.String(), Key: v.Service.ServiceKey}
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

// Snapshot assembles the present state. It may be called by anyone, at any time.
func (e *Engine) Snapshot() *Snapshot {
	s, _ := e.snapshot()
	return s
}

func (e *Engine) snapshot() (*Snapshot, *published) {
	p := e.published.Load()
	s := p.head
	s.At = time.Now()
	if e.opts.Scheduler != nil {
		s.Overdue = e.opts.Scheduler.Overdue()
	}
	s.Checks = e.tally.checks()
	s.Overrides = slices.Clone(p.head.Overrides)
	s.VirtualServers = make([]VirtualServer, len(p.pieces))
	for i, piece := range p.pieces {
		vs := piece.vs
		vs.RealServers = make([]RealServer, len(piece.vs.RealServers))
		for j, rs := range piece.vs.RealServers {
			checkers := make([]Checker, len(rs.Checkers))
			for k, c := range rs.Checkers {
				if t := piece.tasks[j][k]; t != nil {
					c = t.status()
				}
				checkers[k] = c
			}
			rs.Checkers = checkers
			vs.RealServers[j] = rs
		}
		s.VirtualServers[i] = vs
	}
	return &s, p
}

// lazyReader keeps one connection for Status.
type lazyReader struct {
	mu sync.Mutex
	r  Reader
}

// open connects once; the lock is held.
func (l *lazyReader) open(ctx context.Context, read func(context.Context) (Reader, error)) error {
	if l.r != nil {
		return nil
	}
	r, err := read(ctx)
	if err == nil {
		l.r = r
	}
	return err
}

// Status is Snapshot with weights and counters read from the kernel just now. What
// cannot be read is left as the engine believes it, and Kernel.Error says so.
func (e *Engine) Status(ctx context.Context) *Snapshot {
	s, p := e.snapshot()
	if e.opts.Read == nil {
		return s
	}
	e.reader.mu.Lock()
	defer e.reader.mu.Unlock()
	if err := e.reader.open(ctx, e.opts.Read); err != nil {
		if s.Kernel.OK || s.Kernel.Error == "" {
			s.Kernel.Error = fmt.Sprintf("the kernel's table could not be read: %v", err)
		}
		return s
	}
	for i, piece := range p.pieces {
		services := make([]Service, len(piece.vs.Services))
		for j, svc := range piece.vs.Services {
			services[j] = e.reread(ctx, s, svc, piece.services[j])
		}
		s.VirtualServers[i].Services = services
	}
	leaving := make([]Service, len(s.Leaving))
	for j, svc := range s.Leaving {
		leaving[j] = e.reread(ctx, s, svc, p.leaving[j])
	}
	s.Leaving = leaving
	if err := e.count(ctx, s.Overrides, p); err != nil {
		s.Kernel.Error = err.Error()
	}
	return s
}

func (e *Engine) reread(ctx context.Context, s *Snapshot, svc Service, k ipvs.ServiceKey) Service {
	ds, err := e.reader.r.Destinations(ctx, k)
	if err != nil {
		s.Kernel.Error = fmt.Sprintf("the kernel's table could not be read: %v", err)
		return svc
	}
	found := make(map[string]ipvs.DestinationInfo, len(ds))
	for _, d := range ds {
		found[d.DestinationKey.String()] = d
	}
	out := svc
	out.Destinations = nil
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
		log.Info("Virtual server", "vs", vs.Name, "scheduler", vs.Scheduler, "quorum_up", vs.QuorumUp, "alive_weight", vs.Alive,
			"quorum", vs.Quorum, "hysteresis", vs.Hysteresis, "sorry_serving", vs.SorryServing, "since", vs.Since, "min_alive", vs.MinAlive, "at_floor", vs.AtFloor)
		for _, rs := range vs.RealServers {
			args := []any{"vs", vs.Name, "rs", rs.Address, "state", rs.State, "reason", rs.Reason, "since", rs.Since,
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
