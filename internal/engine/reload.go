package engine

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/framework"
)

type reloadEvent struct {
	plan *plan
	// applied is told whether the plan held; if it did, when all of it is written, or
	// was refused, and the table was compared too.
	applied chan reloaded
}

type reloaded struct {
	ok bool
	Reloaded
}

// Reloaded is what a reload came to: what was written to the table, what was put back
// of it included, and how many virtual servers came, changed and went.
type Reloaded struct {
	Operations uint64 `json:"operations"`              // writes to the kernel's table
	Added      int    `json:"virtual_servers_added"`   // how many came
	Changed    int    `json:"virtual_servers_changed"` // how many are others now
	Removed    int    `json:"virtual_servers_removed"` // how many went
}

// Reload swaps in a configuration that has been validated and returns when it is
// applied and the table was compared with it. What it changes is worked out on the
// caller's goroutine. What the kernel refuses is retried and no error here; the error
// says that the loop did not answer.
func (e *Engine) Reload(ctx context.Context, cfg *config.Config) error {
	_, err := e.ReloadTo(ctx, cfg)
	return err
}

// ReloadTo is Reload, and says what it came to.
func (e *Engine) ReloadTo(ctx context.Context, cfg *config.Config) (Reloaded, error) {
	for {
		// Another reload may get ahead of this one; then the difference is another.
		ev := reloadEvent{planned(e.running.Load(), cfg), make(chan reloaded, 1)}
		e.inbox.send(ev)
		select {
		case r := <-ev.applied:
			if r.ok {
				return r.Reloaded, nil
			}
		case <-ctx.Done():
			return Reloaded{}, fmt.Errorf("reload: %w", context.Cause(ctx))
		}
	}
}

// configure makes a configuration the one that runs.
func (e *Engine) configure(cfg *config.Config, names labels) {
	e.config = cfg
	e.labels.Store(&names)
	e.logAll.Store(cfg.Global.CheckerLogAllFailures)
	e.running.Store(cfg)
}

// handle carries a plan out in one turn: virtual servers that stay are not touched, in
// those that change real servers and checkers that match keep their state, and the
// difference to the table is written at the end of the turn by the same path as
// everything else.
func (ev reloadEvent) handle(e *Engine) {
	p := ev.plan
	if p.from != e.config {
		ev.applied <- reloaded{}
		return
	}
	before, done := e.applier.Operations(), p.counts()
	e.configure(p.to, p.labels)
	e.generation++
	e.globalsDue, e.globalsAt = true, time.Time{}
	e.edge.anew = true
	e.applier.ReportOnly(p.to.Global.Drift == config.DriftReport)
	clear(e.rules)
	var moved []fileEvent
	if p.files {
		moved = e.watch(p.to.TrackFiles)
	}
	if p.share {
		e.reshare()
	}
	e.renewProbes(p.ssl)
	e.install(p)
	for _, f := range moved {
		f.handle(e)
	}
	e.lookPassive(time.Now())
	e.askReconcile()
	e.reload = Reload{At: time.Now(), OK: true}
	e.applied = e.reload.At
	e.headTouched = true
	e.reconcile.after = append(e.reconcile.after, func() {
		e.written = append(e.written, func() {
			done.Operations = e.applier.Operations() - before
			ev.applied <- reloaded{true, done}
		})
	})
}

// watch replaces the watched files and returns the values that are others than before.
func (e *Engine) watch(tfs []*config.TrackFile) (moved []fileEvent) {
	was := e.values
	e.values = e.opts.Files.Watch(tfs)
	for _, name := range slices.Sorted(maps.Keys(e.values)) {
		for _, u := range e.uses[name] {
			e.touched[u.vs] = true // its path may be another
		}
		if v := e.values[name]; v != was[name] {
			moved = append(moved, fileEvent{name, v})
		}
	}
	return moved
}

// renewProbes has the checks that look at what all of a kind have in common use it as
// it is configured now, and those that read a file of their own, which may hold
// something else by now. client: the SSL block is another.
func (e *Engine) renewProbes(client bool) {
	done := map[*run]bool{}
	for _, vs := range e.vss {
		for _, ts := range vs.tasks {
			for _, t := range ts {
				if t == nil || t.run == nil || t.run.id == 0 {
					continue
				}
				_, _, c := t.config()
				if c.Kind != config.SSLGet || !client && !c.HTTP.TLS.ReadsFile() || done[t.run] {
					continue
				}
				done[t.run] = true
				if probe, err := e.opts.Probe(e.config, c); err != nil {
					e.log.Error("Checker runs as before the reload", append(t.names(), event.Key, event.CheckUnable, "err", err)...)
				} else {
					e.opts.Scheduler.Update(checker.Task{ID: t.run.id, Probe: probe, Judge: t.run.judge, Timeout: timeout(c)})
				}
			}
		}
	}
}

// renewed is a virtual server that a reload, or the end of a hold, made or changed.
type renewed struct {
	vs     *server
	kernel *apply.VirtualServer
}

// install replaces the virtual servers by a plan.
func (e *Engine) install(p *plan) {
	vss := make([]*server, len(p.steps))
	var changed []renewed
	for i, s := range p.steps {
		was := e.byKey[s.vc.Key]
		if was != nil && was.Config == s.vc {
			vss[i] = was
			continue
		}
		r := renewed{kernel: s.kernel}
		if was == nil {
			r.vs = e.introduce(s.vc)
		} else {
			r = e.renew(was, s.vc, s.kernel)
		}
		vss[i] = r.vs
		changed = append(changed, r)
	}
	for _, vc := range p.gone {
		was := e.byKey[vc.Key]
		e.log.Info("Virtual server removed from the configuration, draining it", event.Key, event.ServiceRemoved, "vs", was.name)
		e.noteGone(was, nil, true, mailRemove)
		e.dropTasks(was)
		e.departs(was, true)
		e.remove(was)
		delete(e.holds, vc.Key)
	}
	e.vss = vss
	if len(changed) > 0 || len(p.gone) > 0 || !slices.EqualFunc(p.steps, p.from.VirtualServers, func(s step, was *config.VirtualServer) bool { return s.vc.Key == was.Key }) {
		e.hand(changed)
	}
}

// hand tells apply of what changed.
func (e *Engine) hand(changed []renewed) {
	order := make([]config.VSKey, len(e.vss))
	for i, vs := range e.vss {
		order[i] = vs.Config.Key
	}
	kernel := make([]*apply.VirtualServer, len(changed))
	for i, r := range changed {
		kernel[i] = r.kernel
		e.departs(r.vs, false)
	}
	e.applier.Update(order, kernel)
	e.claims()
	e.moved = true
	now := time.Now()
	e.departed(changed, now)
	vss := make([]*server, len(changed))
	for i, r := range changed {
		vss[i] = r.vs
		e.touched[r.vs] = true
		e.init(r.vs)
	}
	e.settlePassive(vss, now)
}

// add and remove keep the indexes; the order of vss is the caller's.
func (e *Engine) add(vs *server) {
	e.byKey[vs.Config.Key] = vs
	e.moves.arm(vs)
	for i, rs := range vs.Servers {
		for j, f := range rs.Files() {
			e.uses[f.Name] = append(e.uses[f.Name], fileUse{vs, i, j})
		}
	}
}

func (e *Engine) remove(vs *server) {
	e.undress(vs)
	delete(e.byKey, vs.Config.Key)
	delete(e.touched, vs)
	e.moves.disarm(vs)
	for _, rs := range vs.Servers {
		for _, f := range rs.Files() {
			uses := e.uses[f.Name]
			if !slices.ContainsFunc(uses, func(u fileUse) bool { return u.vs == vs }) {
				continue
			}
			uses = slices.DeleteFunc(uses, func(u fileUse) bool { return u.vs == vs })
			if e.uses[f.Name] = uses; len(uses) == 0 {
				delete(e.uses, f.Name)
			}
		}
	}
}

// introduce makes a virtual server that was not configured before. Nothing of it serves
// yet, so it starts as at a cold start.
func (e *Engine) introduce(vc *config.VirtualServer) *server {
	fvs, _ := framework.New(vc, func(rc *config.RealServer) bool { return !alpha(rc) }, lookup(e.values), e.ordersOf(vc.Key))
	vs := e.adopt(fvs, nil, false)
	e.add(vs)
	e.noteStart(vs)
	return vs
}

// renew puts a virtual server under what the file says of it now, with those of the
// departing servers that it cannot do without yet; kernel is the file's.
func (e *Engine) renew(was *server, file *config.VirtualServer, kernel *apply.VirtualServer) renewed {
	e.catchUp(was, time.Now())
	vc, h := e.held(was, file)
	if vc != file || kernel == nil {
		kernel = apply.Translate(vc)
	}
	if was.hold != nil && h == nil {
		letGo(was)
	}
	return renewed{e.replace(was, vc, h), kernel}
}

// replace puts a virtual server under another configuration of it.
func (e *Engine) replace(was *server, vc *config.VirtualServer, h *hold) *server {
	if delete(e.holds, vc.Key); h != nil {
		e.holds[vc.Key] = h
	}
	stays := keys(vc)
	fvs, quorum := framework.Next(was.VirtualServer, vc, e.trustNew(was, stays), lookup(e.values), e.ordersOf(vc.Key))
	vs := e.adopt(fvs, was, false)
	e.noteGone(was, stays, false, mailRemove)
	e.logQuorum(vs, quorum)
	if !e.postpone(vs, quorum, time.Now()) {
		e.logSorry(vs, quorum)
	}
	e.noteQuorum(vs, quorum, mailQuorum(vs, quorum))
	e.remove(was)
	e.add(vs)
	return vs
}

// trustNew decides about real servers that a reload adds to a virtual server. If
// one of those that stay is healthy the pool can wait for the newcomer's first good
// check; otherwise keepalived's rule holds, since an unchecked server is better
// than none.
func (e *Engine) trustNew(was *server, stays map[config.RSKey]bool) framework.Trust {
	healthy := false
	for _, rs := range was.Servers {
		if rs.Alive() && !rs.Kept() && rs.Weight() > 0 && stays[rs.Config.Key] {
			healthy = true
		}
	}
	return func(rc *config.RealServer) bool {
		return !alpha(rc) && (!healthy || e.config.Global.TrustNew)
	}
}

func keys(vc *config.VirtualServer) map[config.RSKey]bool {
	ks := make(map[config.RSKey]bool, len(vc.RealServers))
	for _, rc := range vc.RealServers {
		ks[rc.Key] = true
	}
	return ks
}

// adopt takes a virtual server's new state, with the tasks of those checkers that
// go on. At a cold start first runs are spread over warmup; what a reload adds is
// probed at once.
func (e *Engine) adopt(fvs *framework.VirtualServer, was *server, start bool) *server {
	now := time.Now()
	vs := &server{VirtualServer: fvs, name: vsName(fvs.Config), since: now, suspended: e.away(fvs.Config), hold: e.holds[fvs.Config.Key]}
	var old *places
	if was != nil {
		vs.since, vs.floorSince = was.since, was.floorSince
		old = placesOf(was.Config)
	}
	count := 0
	for _, rs := range fvs.Servers {
		count += len(rs.Config.Checkers)
	}
	// Readers hold the lists: they are made once.
	all := make([]*task, count)
	vs.rs, vs.tasks = make([]*situation, len(fvs.Servers)), make([][]*task, len(fvs.Servers))
	for i, rs := range fvs.Servers {
		vs.rs[i] = newSituation(now)
		tasks := all[:len(rs.Config.Checkers):len(rs.Config.Checkers)]
		all = all[len(tasks):]
		vs.tasks[i] = tasks
		j := -1
		if was != nil {
			j = old.of(rs.Config.Key, i)
		}
		newcomer := j < 0
		var match []int
		if !newcomer {
			vs.rs[i] = was.rs[j]
			match = framework.MatchCheckers(was.Servers[j].Config.Checkers, rs.Config.Checkers)
		}
		for k, c := range rs.Config.Checkers {
			if c.Kind == config.FileCheck {
				continue
			}
			if match != nil && match[k] >= 0 && was.tasks[j][match[k]] != nil {
				tasks[k] = was.tasks[j][match[k]]
				e.take(tasks[k], vs, i, k)
				continue
			}
			// keepalived gives a new checker on a live server its retries, and
			// none to one whose server was never seen working.
			strict := newcomer && (start || !rs.Trusted) || !newcomer && !rs.Trusted
			// SMTP_CHECK has its retries at the start too (facts 4.9).
			strict = strict && c.Kind != config.SMTPCheck
			tasks[k] = e.addTask(vs, i, k, c, strict, start)
		}
	}
	if was != nil {
		e.dropTasks(was)
	}
	e.dress(vs, was)
	e.watchFloor(vs)
	return vs
}

// take has a task go on under a virtual server's new state.
func (e *Engine) take(t *task, vs *server, i, k int) {
	was := t.vs
	_, rc, c := t.config()
	if vs.suspended && !was.suspended {
		e.suspend(t)
	}
	t.move(vs, i, k, e.ruleset(vs.Servers[i].Config.Checkers[k]))
	switch {
	case vs.suspended:
	case was.suspended:
		e.enlist(t, 0)
	default:
		e.reschedule(t, rc, c)
	}
}

func (e *Engine) addTask(vs *server, i, k int, c *config.Checker, strict, spread bool) *task {
	t := &task{vs: vs, server: int32(i), check: int32(k), rules: e.ruleset(c), machine: framework.ResumeMachine(vs.Servers[i].Checkers[k], strict)}
	if vs.suspended {
		t.run = &run{engine: e, last: lastOutcome{told: unable}}
		return t
	}
	first := time.Duration(0)
	// What was down is probed at once: it may be what a dark pool waits for.
	if spread && vs.Servers[i].Checkers[k] != framework.Down {
		first = e.phase(vs, c)
	}
	if !e.enlist(t, first) {
		return nil
	}
	return t
}

// dropTasks ends the tasks of a virtual server that nobody took over.
func (e *Engine) dropTasks(was *server) {
	for _, ts := range was.tasks {
		for _, t := range ts {
			if t != nil && t.vs == was {
				e.dismiss(t)
			}
		}
	}
}
