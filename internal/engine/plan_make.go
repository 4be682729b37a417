package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// attempts is how often a plan is begun anew since the table was written meanwhile.
const attempts = 5

// Plan finds out what Reload would do, and changes nothing. look returns the values of
// the track files of the configuration as Files.Watch would; nil takes those that are
// known and 0 for the rest.
func (e *Engine) Plan(ctx context.Context, cfg *config.Config, look func([]*config.TrackFile) map[string]int64) (*Plan, error) {
	for attempt := range attempts {
		p := planned(e.running.Load(), cfg)
		f, err := e.duplicate(ctx)
		if err != nil {
			return nil, err
		}
		if f.config != p.from {
			continue // a reload got ahead
		}
		stage, err := e.stage(ctx, f, p)
		if err != nil {
			return nil, err
		}
		// What was written while the table was read is in one of the two only.
		quiet := false
		if err := e.call(ctx, func(e *Engine) { quiet = e.applier.Operations() == f.applier.Operations }); err != nil {
			return nil, err
		}
		if !quiet && attempt < attempts-1 {
			continue
		}
		values := f.values
		if look == nil {
			look = func(tfs []*config.TrackFile) map[string]int64 { return valuesOf(tfs, values) }
		}
		r := rehearsal{engine: f.engine(stage, look), plan: p, stage: stage}
		out, err := r.run(ctx)
		if err != nil {
			return nil, err
		}
		if !quiet {
			out.Notes = append(out.Notes, "the table was being written while this was planned, so that it may not be exact; ask again")
		}
		return out, nil
	}
	return nil, fmt.Errorf("plan: the configuration was reloaded again and again meanwhile; ask again")
}

// valuesOf are the values of track files as far as they are known.
func valuesOf(tfs []*config.TrackFile, known map[string]int64) map[string]int64 {
	values := make(map[string]int64, len(tfs))
	for _, tf := range tfs {
		values[tf.Name] = known[tf.Name]
	}
	return values
}

func (e *Engine) duplicate(ctx context.Context) (*duplicate, error) {
	ev := freezeEvent{make(chan *duplicate, 1)}
	e.inbox.send(ev)
	select {
	case f := <-ev.done:
		return f, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("the loop did not come to rest: %w", context.Cause(ctx))
	}
}

// keysOf are the services that are ours or would be.
func keysOf(f *duplicate, p *plan) map[ipvs.ServiceKey]bool {
	keys := map[ipvs.ServiceKey]bool{}
	for _, k := range f.applier.Services() {
		keys[k] = true
	}
	for _, s := range p.steps {
		if s.kernel != nil {
			for _, svc := range s.kernel.Services {
				keys[svc.ServiceKey] = true
			}
		}
	}
	return keys
}

// stage reads what the table holds of the services that are ours or would be.
func (e *Engine) stage(ctx context.Context, f *duplicate, p *plan) (*stage, error) {
	keys := keysOf(f, p)
	switch {
	case !f.connected:
		return newStage(ctx, emptyTable{}, keys)
	case e.opts.Observe || e.opts.Read == nil:
		// What is written is a copy, and no second connection leads to it.
		return newStage(ctx, f.conn, keys)
	}
	var s *stage
	err := e.reader.use(ctx, e.opts.Read, func(r Reader) (err error) {
		s, err = newStage(ctx, r, keys)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	return s, nil
}

type emptyTable struct{}

func (emptyTable) Services(context.Context) ([]ipvs.ServiceInfo, error) { return nil, nil }

func (emptyTable) Destinations(context.Context, ipvs.ServiceKey) ([]ipvs.DestinationInfo, error) {
	return nil, nil
}

// rehearsal is one run of a reload on copies.
type rehearsal struct {
	engine *Engine
	plan   *plan
	stage  *stage
	// before are the pools' numbers before it.
	before map[config.VSKey]numbers
	parked []apply.Parked
	held   map[config.VSKey]map[config.RSKey]bool
}

// numbers are those of a virtual server.
type numbers struct {
	weight, needed int64
	serving, floor int
	quorum, atFl   bool
}

func poolOf(vs *server) numbers {
	p := numbers{weight: vs.Sum(), needed: vs.Needed(), floor: vs.Floor(), quorum: vs.QuorumUp(), atFl: vs.AtFloor()}
	for _, rs := range vs.Servers {
		if rs.Usable() {
			p.serving++
		}
	}
	return p
}

func (r *rehearsal) run(ctx context.Context) (*Plan, error) {
	e := r.engine
	r.before, r.held = map[config.VSKey]numbers{}, map[config.VSKey]map[config.RSKey]bool{}
	for _, vs := range e.vss {
		r.before[vs.Config.Key] = poolOf(vs)
		if vs.hold != nil {
			r.held[vs.Config.Key] = vs.hold.servers
		}
	}
	r.parked = e.applier.Parked()
	out := &Plan{
		At: time.Now(), ConfigFile: e.opts.ConfigFile, Generation: e.generation, Observe: e.opts.Observe,
	}
	if !e.kernel.OK {
		out.KernelError = e.kernel.Error
	}
	if !e.connected {
		out.Notes = append(out.Notes, "the table cannot be reached, so that nothing is written until it can")
	}
	for _, o := range r.stage.odd {
		out.Notes = append(out.Notes, "what the table holds could not be copied whole: "+o)
	}
	if err := e.rehearse(ctx, r.plan); err != nil {
		return nil, err
	}
	r.operations(out)
	r.drains(out)
	r.pools(out)
	r.servers(out)
	r.configuration(out)
	r.orders(out)
	out.Changes = len(out.Operations)+len(out.Added)+len(out.Removed)+len(out.Changed)+len(out.Settings)+len(out.Orders) > 0 || r.moved()
	return out, nil
}

// moved reports whether virtual servers stand in another order.
func (r *rehearsal) moved() bool {
	return !slices.EqualFunc(r.plan.steps, r.plan.from.VirtualServers, func(s step, was *config.VirtualServer) bool { return s.vc.Key == was.Key })
}

// pools finds those that would be worse off.
func (r *rehearsal) pools(out *Plan) {
	for _, vs := range r.engine.vss {
		was, known := r.before[vs.Config.Key]
		if !known {
			continue
		}
		is := poolOf(vs)
		p := PlanPool{
			VS: vs.name, WeightBefore: was.weight, WeightAfter: is.weight, Needed: is.needed,
			ServingBefore: was.serving, ServingAfter: is.serving, MinAlive: is.floor,
			BelowQuorum: was.quorum && !is.quorum,
			AtFloor:     is.atFl && !was.atFl || is.serving < is.floor && was.serving >= was.floor,
			Empty:       was.serving > 0 && is.serving == 0,
		}
		if !p.BelowQuorum && !p.AtFloor && !p.Empty {
			continue
		}
		if s := vs.Config.Sorry; s != nil && !is.quorum {
			p.Sorry = s.Key.String()
		}
		out.Pools = append(out.Pools, p)
	}
}

// servers finds those that come later, are held, and whose checks begin anew.
func (r *rehearsal) servers(out *Plan) {
	now := time.Now()
	old := make(map[config.VSKey]*config.VirtualServer, len(r.plan.from.VirtualServers))
	for _, vc := range r.plan.from.VirtualServers {
		old[vc.Key] = vc
	}
	for i, vs := range r.engine.vss {
		s := r.plan.steps[i]
		if s.was == s.vc && vs.hold == nil {
			continue
		}
		var was *places
		if vc := old[vs.Config.Key]; vc != nil {
			was = placesOf(vc)
		}
		for j, rs := range vs.Servers {
			at := PlanServer{vs.name, rs.Config.Key.String()}
			newcomer := was == nil || was.of(rs.Config.Key, j) < 0
			switch {
			case vs.hold != nil && vs.hold.servers[rs.Config.Key]:
				out.Held = append(out.Held, PlanHeld{at, max(vs.hold.until.Sub(now), 0)})
				continue
			case newcomer && rs.Unverified() && !rs.Alive():
				out.Joins = append(out.Joins, at)
			}
			if newcomer {
				continue
			}
			for k, t := range vs.tasks[j] {
				if t == nil || t.run == nil || rs.Checkers[k] != framework.Unknown {
					continue
				}
				c := rs.Config.Checkers[k]
				out.Checks = append(out.Checks, PlanCheck{at, c.Kind.String(), publicTarget(c)})
			}
		}
	}
}

// publicTarget is targetOf without a script's arguments, which may be secret.
func publicTarget(c *config.Checker) string {
	if c.Misc != nil && len(c.Misc.Script.Argv) > 0 {
		return c.Misc.Script.Argv[0]
	}
	return targetOf(c)
}

// orders finds those whose servers come or go.
func (r *rehearsal) orders(out *Plan) {
	configured := func(vss []*config.VirtualServer) map[orderKey]bool {
		in := map[orderKey]bool{}
		for _, vc := range vss {
			for _, o := range r.engine.orders {
				if o.VS == vc.Key && keyed(vc, o.RS) {
					in[o.key()] = true
				}
			}
		}
		return in
	}
	if len(r.engine.orders) == 0 {
		return
	}
	was, is := configured(r.plan.from.VirtualServers), configured(r.plan.to.VirtualServers)
	for k, o := range r.engine.orders {
		if was[k] != is[k] {
			out.Orders = append(out.Orders, PlanOrder{PlanServer{o.VS.String(), o.RS.String()}, o.Kind, o.Who, is[k]})
		}
	}
	slices.SortFunc(out.Orders, func(a, b PlanOrder) int {
		return slices.Compare([]string{a.VS, a.Server, string(a.Kind)}, []string{b.VS, b.Server, string(b.Kind)})
	})
}

func keyed(vc *config.VirtualServer, k config.RSKey) bool {
	return slices.ContainsFunc(vc.RealServers, func(rc *config.RealServer) bool { return rc.Key == k })
}
