package engine

import (
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
)

// handle replaces the configuration in one turn: virtual servers, real servers and
// checkers that match keep their state, and the difference to the table is written
// at the end of the turn by the same path as everything else.
func (ev reloadEvent) handle(e *Engine) {
	values := e.opts.Files.Watch(ev.config.TrackFiles)
	e.advance(time.Now())
	e.config = ev.config
	e.generation++
	e.globalsDue, e.globalsAt = true, time.Time{}
	e.applier.ReportOnly(ev.config.Global.Drift == config.DriftReport)
	e.reconcile.due = true
	vcs, holds := e.held(ev.config.VirtualServers, lookup(values))
	e.install(vcs, holds, lookup(values))
	e.reload = Reload{At: time.Now(), OK: true}
	e.applied = e.reload.At
	e.after = append(e.after, func() { close(ev.done) })
}

// install replaces the virtual servers: those that match keep their state.
func (e *Engine) install(vcs []*config.VirtualServer, holds map[config.VSKey]*hold, values framework.Values) {
	old := e.byKey
	e.holds = holds
	e.applier.Replace(translate(vcs))
	e.vss, e.byKey = nil, make(map[config.VSKey]*server, len(vcs))
	for _, vc := range vcs {
		was, ok := old[vc.Key]
		if !ok {
			// Nothing of it serves yet, so it starts as at a cold start.
			fvs, _ := framework.New(vc, func(rc *config.RealServer) bool { return !alpha(rc) }, values, e.ordersOf(vc.Key))
			e.noteStart(e.adopt(fvs, nil, false))
			continue
		}
		if was.hold != nil && holds[vc.Key] == nil {
			letGo(was)
		}
		fvs, quorum := framework.Next(was.VirtualServer, vc, e.trustNew(was, vc), values, e.ordersOf(vc.Key))
		vs := e.adopt(fvs, was, false)
		e.noteGone(was, keys(vc), false, mailRemove)
		e.logQuorum(vs, quorum)
		e.noteQuorum(vs, quorum, mailQuorum(vs, quorum))
		delete(old, vc.Key)
	}
	for _, was := range old {
		e.log.Info("Virtual server removed from the configuration, draining it", "vs", was.name)
		e.noteGone(was, nil, true, mailRemove)
		e.dropTasks(was.tasks)
	}
	e.index()
	e.touched = map[*server]bool{}
	e.allTouched = true
	for _, vs := range e.vss {
		e.must(e.applier.Init(vs.VirtualServer))
	}
}

// trustNew decides about real servers that a reload adds to a virtual server. If
// one of those that stay is healthy the pool can wait for the newcomer's first good
// check; otherwise keepalived's rule holds, since an unchecked server is better
// than none.
func (e *Engine) trustNew(was *server, vc *config.VirtualServer) framework.Trust {
	stays := keys(vc)
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
	vs := &server{VirtualServer: fvs, name: vsName(fvs.Config), since: time.Now(), suspended: e.away(fvs.Config), hold: e.holds[fvs.Config.Key]}
	byKey := map[config.RSKey]int{}
	// left are the old tasks that nobody has taken over yet. They are a copy:
	// readers still hold the old lists.
	var left [][]*task
	if was != nil {
		vs.since, vs.floorSince = was.since, was.floorSince
		for i, rs := range was.Servers {
			byKey[rs.Config.Key] = i
			left = append(left, slices.Clone(was.tasks[i]))
		}
	}
	for i, rs := range fvs.Servers {
		sit := situation{since: time.Now()}
		var oldTasks []*task
		var match []int
		newcomer := true
		if j, ok := byKey[rs.Config.Key]; ok && was != nil {
			newcomer = false
			sit, oldTasks = was.rs[j], left[j]
			match = framework.MatchCheckers(was.Servers[j].Config.Checkers, rs.Config.Checkers)
		}
		tasks := make([]*task, len(rs.Config.Checkers))
		for k, c := range rs.Config.Checkers {
			if c.Kind == config.FileCheck {
				continue
			}
			r := ruleset(e.config, fvs.Config, rs.Config, c)
			if match != nil && match[k] >= 0 && oldTasks[match[k]] != nil {
				t := oldTasks[match[k]]
				oldTasks[match[k]] = nil
				t.vs, t.server, t.check = vs, i, k
				t.rules.Store(r)
				tasks[k] = t
				e.suspendTask(t, was.suspended, vs.suspended)
				continue
			}
			// keepalived gives a new checker on a live server its retries, and
			// none to one whose server was never seen working.
			strict := newcomer && (start || !rs.Trusted) || !newcomer && !rs.Trusted
			// SMTP_CHECK has its retries at the start too (facts 4.9).
			strict = strict && c.Kind != config.SMTPCheck
			tasks[k] = e.addTask(vs, i, k, c, r, strict, start)
		}
		vs.rs, vs.tasks = append(vs.rs, sit), append(vs.tasks, tasks)
	}
	e.dropTasks(left)
	e.watchFloor(vs)
	e.vss = append(e.vss, vs)
	e.byKey[fvs.Config.Key] = vs
	return vs
}

func (e *Engine) addTask(vs *server, i, k int, c *config.Checker, r *rules, strict, spread bool) *task {
	e.nextID++
	t := &task{id: e.nextID, vs: vs, server: i, check: k, engine: e, machine: framework.ResumeMachine(vs.Servers[i].Checkers[k], strict)}
	t.rules.Store(r)
	e.tasks[t.id] = t
	first := time.Duration(0)
	// What was down is probed at once: it may be what a dark pool waits for.
	if spread && vs.Servers[i].Checkers[k] != framework.Down {
		// By what is checked and not by a number of this process: the phase is the
		// same after a restart.
		first = checker.Spread(vs.name+framework.Definition(c), c.Warmup)
	}
	if !vs.suspended && !e.schedule(t, first) {
		delete(e.tasks, t.id)
		return nil
	}
	return t
}

// schedule makes a task's probe and has it run. It is false, and logged, if that
// cannot be.
func (e *Engine) schedule(t *task, first time.Duration) bool {
	c := t.vs.Servers[t.server].Config.Checkers[t.check]
	probe, err := e.opts.Probe(e.config, c)
	if err != nil {
		// Validation should have seen it; a server must not be down, nor seem
		// checked, because of our own mistake.
		r := t.rules.Load()
		e.log.Error("Checker cannot be run, its last verdict stays", "checker", r.kind, "rs", r.rs, "vs", r.vs, "err", err)
		return false
	}
	e.opts.Scheduler.Add(checker.Task{ID: t.id, Probe: probe, Judge: t.judge, Timeout: timeout(c), First: first})
	return true
}

// dropTasks ends the tasks that nobody took over.
func (e *Engine) dropTasks(tasks [][]*task) {
	for _, ts := range tasks {
		for _, t := range ts {
			if t != nil {
				delete(e.tasks, t.id)
				e.opts.Scheduler.Remove(t.id)
			}
		}
	}
}

// index rebuilds which real servers a watched file moves.
func (e *Engine) index() {
	e.uses = map[string][]fileUse{}
	for _, vs := range e.vss {
		for i, rs := range vs.Servers {
			for j, f := range rs.Files {
				e.uses[f.Name] = append(e.uses[f.Name], fileUse{vs, i, j})
			}
		}
	}
}
