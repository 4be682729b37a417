package engine

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// duplicate is the state of an engine between two turns, as far as a reload goes by it.
// The loop makes it as plain copies; engine links them.
type duplicate struct {
	// of and vss are shared with the loop: only what never changes may be read of them.
	of      *Engine
	config  *config.Config
	applier *apply.Frozen
	vss     []*server
	states  []*framework.VirtualServer
	// suspended are the virtual servers that are not checked.
	suspended []bool
	holds     map[config.VSKey]*hold
	orders    map[orderKey]Order
	values    map[string]int64
	syncing   map[ipvs.SyncState]bool
	local     *addresses
	conn      apply.IPVS

	original   *ipvs.Timeouts
	generation uint64
	kernel     Kernel
	reconcile  reconciling
	passive    passivity
	edge       edging
	// dressed is what each virtual server has of the machine and whether it is withheld,
	// dirty and waiting are their indexes.
	dressed        []dressed
	dirty, waiting []int
	// backoff and what follows are the engine's of these names.
	backoff                    time.Duration
	retryAt, tickAt, globalsAt time.Time
	globalsDue, connected      bool
}

// freezeEvent asks for the state at the end of a turn that leaves nothing to be
// written behind.
type freezeEvent struct{ done chan *duplicate }

func (ev freezeEvent) handle(e *Engine) {
	e.written = append(e.written, func() { ev.done <- e.freeze() })
}

func (e *Engine) freeze() *duplicate {
	f := &duplicate{
		of: e, config: e.config, applier: e.applier.Freeze(), vss: slices.Clone(e.vss), suspended: make([]bool, len(e.vss)),
		holds: make(map[config.VSKey]*hold, len(e.holds)), orders: maps.Clone(e.orders), values: maps.Clone(e.values), syncing: maps.Clone(e.syncing),
		local: e.local, conn: e.conn, original: e.original, generation: e.generation, kernel: e.kernel, reconcile: e.reconcile,
		backoff: e.backoff, retryAt: e.retryAt, tickAt: e.tickAt, globalsAt: e.globalsAt, globalsDue: e.globalsDue, connected: e.connected,
	}
	f.reconcile.after = nil // others wait for those
	states := make([]*framework.VirtualServer, len(e.vss))
	for i, vs := range e.vss {
		states[i], f.suspended[i] = vs.VirtualServer, vs.suspended
	}
	for k, h := range e.holds {
		held := *h
		f.holds[k] = &held
	}
	f.states = framework.Copies(states)
	e.freezeEdge(f)
	return f
}

// dressed is what a virtual server has of the machine, and whether it is withheld.
type dressed struct {
	vip      *vipState
	withheld bool
}

func (e *Engine) freezeEdge(f *duplicate) {
	f.passive = e.passive // its parts are replaced and never changed
	f.edge = edging{on: e.edge.on, heard: e.edge.heard, withdrawn: e.edge.withdrawn, turn: e.edge.turn, report: e.edge.report, nftables: e.edge.nftables}
	f.dressed = make([]dressed, len(e.vss))
	for i, vs := range e.vss {
		f.dressed[i].withheld = vs.withheld
		if vs.vip == nil {
			continue
		}
		v := *vs.vip
		f.dressed[i].vip = &v
		if e.edge.dirty[vs] {
			f.dirty = append(f.dirty, i)
		}
		if e.edge.waiting[vs] {
			f.waiting = append(f.waiting, i)
		}
	}
	f.edge.ghosts = make(map[config.VSKey]*ghost, len(e.edge.ghosts))
	for k, g := range e.edge.ghosts {
		c := *g
		c.services = slices.Clone(g.services)
		f.edge.ghosts[k] = &c
	}
}

// dressEngine has a rehearsal go on with the machine as it is. Its wishes are nobody's.
func (f *duplicate) dressEngine(e *Engine) {
	e.passive, e.edge = f.passive, f.edge
	e.edge.dirty, e.edge.waiting = map[*server]bool{}, map[*server]bool{}
	for i, vs := range e.vss {
		vs.vip, vs.withheld = f.dressed[i].vip, f.dressed[i].withheld
	}
	for _, i := range f.dirty {
		e.edge.dirty[e.vss[i]] = true
	}
	for _, i := range f.waiting {
		e.edge.waiting[e.vss[i]] = true
		e.edge.dirty[e.vss[i]] = true
	}
	e.opts.Edge = func(edge.Wishes) {}
	e.applier.Follow(e.edge.on)
}

// engine makes an engine that goes on from there over another table, and tells nobody
// of it. It is never Run: reload does the turns.
func (f *duplicate) engine(table apply.IPVS, look func([]*config.TrackFile) map[string]int64) *Engine {
	e := New(Options{
		Version: f.of.opts.Version, ConfigFile: f.of.opts.ConfigFile, Observe: f.of.opts.Observe, KernelTimeout: f.of.opts.KernelTimeout,
		Dial:      func(context.Context) (apply.IPVS, error) { return nil, errRehearsal },
		Probe:     func(*config.Config, *config.Checker) (checker.Probe, error) { return nil, nil },
		Scheduler: idle{}, Files: looking(look),
	})
	e.rehearsal, e.started, e.flushed = true, f.of.started, true
	e.applier = f.applier.Applier(table, slog.New(slog.DiscardHandler))
	e.config, e.generation, e.values, e.orders, e.holds, e.syncing = f.config, f.generation, f.values, f.orders, f.holds, f.syncing
	if e.values == nil {
		e.values = map[string]int64{}
	}
	e.local, e.conn, e.original, e.kernel, e.reconcile = f.local, table, f.original, f.kernel, f.reconcile
	e.backoff, e.retryAt, e.tickAt, e.globalsAt = f.backoff, f.retryAt, f.tickAt, f.globalsAt
	e.globalsDue, e.connected = f.globalsDue, f.connected
	nothing := newSituation(e.started)
	for i, state := range f.states {
		vs := &server{VirtualServer: state, name: f.vss[i].name, suspended: f.suspended[i], hold: f.holds[state.Config.Key]}
		vs.rs, vs.tasks = make([]*situation, len(vs.Servers)), make([][]*task, len(vs.Servers))
		for j, rs := range vs.Servers {
			vs.rs[j] = nothing
			// A task without a run is one that the scheduler has not: those of checks
			// that begin anew get one, by which they are told.
			vs.tasks[j] = make([]*task, len(rs.Config.Checkers))
			for k, c := range rs.Config.Checkers {
				if c.Kind != config.FileCheck {
					vs.tasks[j][k] = &task{vs: vs, server: int32(j), check: int32(k)}
				}
			}
		}
		e.vss = append(e.vss, vs)
		e.add(vs)
	}
	f.dressEngine(e)
	e.claims()
	clear(e.touched)
	e.published.Store(f.of.published.Load())
	return e
}

var errRehearsal = fmt.Errorf("a rehearsal has no table to connect to")

// turns is more than a reload takes: a turn for each portion, and one to compare.
const turns = 100_000

// rehearse carries a reload out until Reload would return.
func (e *Engine) rehearse(ctx context.Context, p *plan) error {
	ev := reloadEvent{p, make(chan reloaded, 1)}
	ev.handle(e)
	applied := false
	for range turns {
		e.turn(ctx)
		select {
		case <-ev.applied:
			applied = true
		default:
		}
		// What waits for an address is the reload's doing too.
		if applied && !e.portions && !e.forward() {
			return nil
		}
		if err := context.Cause(ctx); err != nil {
			return fmt.Errorf("plan: %w", err)
		}
	}
	return fmt.Errorf("plan: the rehearsal has not come to an end, this is a bug")
}

// idle is a scheduler that runs nothing.
type idle struct{}

func (idle) Add(checker.Task)       {}
func (idle) Remove(checker.ID)      {}
func (idle) Update(checker.Task)    {}
func (idle) RunNow(checker.ID)      {}
func (idle) Overdue() time.Duration { return 0 }

// looking are track files that are looked at and not watched.
type looking func([]*config.TrackFile) map[string]int64

func (l looking) Watch(tfs []*config.TrackFile) map[string]int64 { return l(tfs) }

// stage is the table of a rehearsal: what the real one holds of the services that a
// reload may touch, and what is written to it.
type stage struct {
	*ipvstest.Table
	// held are the destinations as they were found.
	held map[ipvs.ServiceKey]*service
	// odd are those that a table in memory did not take.
	odd []string
}

// service is one as it was found.
type service struct {
	service ipvs.Service
	dests   []ipvs.DestinationInfo
}

// setting is what else of a table a reload may change.
type setting interface {
	Timeouts(context.Context) (ipvs.Timeouts, error)
}

// newStage reads a table. What of it is none of the given services is left out.
func newStage(ctx context.Context, from Reader, keys map[ipvs.ServiceKey]bool) (*stage, error) {
	s := &stage{Table: ipvstest.New(), held: map[ipvs.ServiceKey]*service{}}
	services, err := from.Services(ctx)
	if err != nil {
		return nil, err
	}
	known := append(ipvstest.Schedulers(), "none")
	for i := range services {
		known = append(known, services[i].Scheduler)
	}
	s.SetSchedulers(known...)
	var ops []ipvs.Op
	for i := range services {
		svc := services[i].Service
		if !keys[svc.ServiceKey] {
			continue
		}
		dests, err := from.Destinations(ctx, svc.ServiceKey)
		if err != nil {
			return nil, err
		}
		s.held[svc.ServiceKey] = &service{svc, slices.Clone(dests)}
		ops = append(ops, ipvs.Op{Kind: ipvs.OpAddService, Service: svc})
		// A service lists the newest first, and what is read decides in which order
		// what has to go goes.
		for _, d := range slices.Backward(dests) {
			ops = append(ops, ipvs.Op{Kind: ipvs.OpAddDest, Service: svc, Destination: d.Destination})
		}
	}
	for i, err := range s.Batch(ctx, ops) {
		if err != nil {
			s.odd = append(s.odd, fmt.Sprintf("%s: %v", ops[i], err))
		}
	}
	for k, f := range s.held {
		for i := range f.dests {
			if d := &f.dests[i]; d.Counters != (ipvs.Counters{}) {
				if err := s.SetCounters(k, d.DestinationKey, d.Counters); err != nil {
					s.odd = append(s.odd, err.Error())
				}
			}
		}
	}
	if w, ok := from.(setting); ok {
		if t, err := w.Timeouts(ctx); err == nil {
			err = s.SetTimeouts(ctx, t)
			if err != nil {
				s.odd = append(s.odd, err.Error())
			}
		}
	}
	s.ResetLog()
	return s, nil
}

// SyncDaemons tells of none, and no change of them is made here: they are no part of
// the rehearsal.
func (s *stage) SyncDaemons(context.Context) ([]ipvs.SyncDaemon, error) { return nil, nil }

// StartSyncDaemon does nothing.
func (s *stage) StartSyncDaemon(context.Context, ipvs.SyncDaemon) error { return nil }

// StopSyncDaemon does nothing.
func (s *stage) StopSyncDaemon(context.Context, ipvs.SyncState) error { return nil }
