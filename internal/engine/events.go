package engine

import (
	"fmt"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/framework"
)

func (ev callEvent) handle(e *Engine) {
	ev.call(e)
	e.after = append(e.after, func() { close(ev.done) })
}

// handle ignores a verdict whose checker a reload removed or replaced.
func (ev verdictEvent) handle(e *Engine) {
	t := ev.task
	if t.run == nil {
		return
	}
	vs, server, check := t.vs, int(t.server), int(t.check)
	e.catchUp(vs, time.Now())
	rs := vs.Servers[server]
	// The weight first: a server that comes back comes back with it.
	change, err := vs.SetDynamic(server, check, ev.dynamic)
	if err != nil {
		e.log.Error("Weight lost, this is a bug", event.Key, event.Bug, "err", err)
		return
	}
	e.mark(vs, server)
	e.apply(vs, change, "")
	if !ev.changed {
		return
	}
	kind, name := rs.Config.Checkers[check].Kind.String(), rsName(rs.Config.Key, vs.Config)
	if ev.verdict == framework.Down {
		vs.failed(server, fmt.Sprintf("%s: %s", kind, ev.outcome.Reason))
		e.log.Warn("Check failed", event.Key, event.CheckFailed, "checker", kind, "rs", name, "vs", vs.name, "reason", ev.outcome.Reason,
			"attempt", fmt.Sprintf("%d/%d", ev.attempt, ev.limit), "took", ev.outcome.Took.Round(time.Microsecond))
	} else {
		e.log.Info("Check passed", event.Key, event.CheckPassed, "checker", kind, "rs", name, "vs", vs.name, "reason", ev.outcome.Reason, "took", ev.outcome.Took.Round(time.Microsecond))
	}
	unverified, known := rs.Unverified(), rs.Checkers[check] != framework.Unknown
	change, err = vs.SetVerdict(server, check, ev.verdict)
	if err != nil {
		e.log.Error("Verdict lost, this is a bug", event.Key, event.Bug, "err", err)
		return
	}
	body := mailOf(rs.Config.Checkers[check], ev.verdict, ev.outcome)
	told := change.Of(server).AliveChanged
	if unverified && !rs.Alive() && !rs.Unverified() {
		// It was never up, but now it is known to be down: keepalived tells of an
		// alpha server's first failure too.
		e.noteServer(vs, rs, false, body)
		e.decided = true
		e.must(e.applier.SetAlive(vs.Config.Key, rs.Config.Key, false))
		told = true
	}
	e.apply(vs, change, body)
	if !told && (known || ev.verdict == framework.Down) {
		e.noteChecker(vs, rs, check, body)
	}
}

func (ev fileEvent) handle(e *Engine) {
	e.values[ev.name] = ev.value
	e.syncFile(ev.name)
	for _, u := range e.uses[ev.name] {
		e.catchUp(u.vs, time.Now())
		rs := u.vs.Servers[u.server]
		if rs.Files()[u.use].Checker >= 0 {
			u.vs.failed(u.server, fmt.Sprintf("FILE_CHECK: track_file %s is %d", ev.name, ev.value))
		}
		change, err := u.vs.SetFile(u.server, u.use, ev.value)
		if err != nil {
			e.log.Error("File value lost, this is a bug", event.Key, event.Bug, "err", err)
			continue
		}
		e.mark(u.vs, u.server)
		// keepalived mails nothing about files.
		e.apply(u.vs, change, "")
	}
	if f := e.config.Global.Passive.File; f != nil && f.Name == ev.name {
		e.lookPassive(time.Now())
	}
}

// apply logs what changed, in keepalived's words where it has them, and hands the
// facts on; mail is the text of an alert, "" for none.
func (e *Engine) apply(vs *server, change framework.Change, mail string) {
	e.markHead(vs)
	for _, c := range change.Servers {
		e.mark(vs, c.Index)
		rs := vs.Servers[c.Index]
		key, name := rs.Config.Key, rsName(rs.Config.Key, vs.Config)
		if c.AliveChanged {
			e.logAlive(vs, rs, name)
			e.noteServer(vs, rs, rs.Alive(), mailAbout(rs, c, mail))
			e.decided = true
			e.must(e.applier.SetAlive(vs.Config.Key, key, rs.Alive()))
			if !rs.Alive() && rs.Unverified() {
				// It leaves without having failed; only the whole state says so.
				e.init(vs)
			}
		}
		if c.WeightChanged {
			e.log.Info(fmt.Sprintf("Changing weight of service %s in VS %s to %d", name, vs.name, rs.Weight()), event.Key, event.ServerWeight,
				"rs", name, "vs", vs.name, "weight", rs.Weight(), "configured", rs.Config.Weight)
			e.must(e.applier.SetMaintenance(vs.Config.Key, key, rs.Maintenance()))
		}
		if c.ShareChanged {
			e.decided = true
			e.must(e.applier.SetWeight(vs.Config.Key, key, rs.Share()))
		}
		e.logProtection(vs, c, name)
	}
	e.watchFloor(vs)
	e.moves.arm(vs)
	if change.Quorum == framework.QuorumUnchanged {
		return
	}
	e.decided = true
	e.touched[vs] = true // whether they serve depends on it for all
	e.logQuorum(vs, change.Quorum)
	e.noteQuorum(vs, change.Quorum, mailQuorum(vs, change.Quorum))
	if !e.postpone(vs, change.Quorum, time.Now()) {
		e.must(e.applier.Quorum(vs.Config.Key, change.Quorum))
		e.logSorry(vs, change.Quorum)
	}
}

func (e *Engine) must(err error) {
	if err != nil {
		e.log.Error("Change lost, this is a bug", event.Key, event.Bug, "err", err)
	}
}

func (e *Engine) logAlive(vs *server, rs *framework.RealServer, name string) {
	args := []any{"rs", name, "vs", vs.name, "alive", fmt.Sprintf("%d/%d", vs.Alive(), len(vs.Servers)), "weight", vs.Sum()}
	if rs.Alive() {
		verb := "Adding service %s to VS %s"
		if rs.Config.Inhibit {
			verb = "Enabling service %s of VS %s"
		}
		e.log.Info(fmt.Sprintf(verb, name, vs.name), append(args, event.Key, event.ServerUp)...)
		return
	}
	verb := "Removing service %s from VS %s"
	if rs.Config.Inhibit {
		verb = "Disabling service %s of VS %s"
	}
	e.log.Warn(fmt.Sprintf(verb, name, vs.name), append(args, event.Key, event.ServerDown)...)
}

func (e *Engine) logQuorum(vs *server, ev framework.QuorumEvent) {
	q, h := vs.Config.Quorum, vs.Config.Hysteresis
	args := []any{"vs", vs.name, "weight", vs.Sum(), "quorum", q, "hysteresis", h}
	if vs.Config.Sorry != nil {
		args = append(args, "sorry_server", rsName(vs.Config.Sorry.Key, vs.Config))
	}
	switch ev {
	case framework.QuorumGained:
		vs.since = time.Now()
		e.log.Info(fmt.Sprintf("Gained quorum %d+%d=%d <= %d for VS %s", q, h, int64(q)+int64(h), vs.Sum(), vs.name), append(args, event.Key, event.QuorumGained)...)
	case framework.QuorumLost:
		vs.since = time.Now()
		e.log.Error(fmt.Sprintf("Lost quorum %d-%d=%d > %d for VS %s", q, h, int64(q)-int64(h), vs.Sum(), vs.name), append(args, event.Key, event.QuorumLost)...)
	}
}

// logSorry tells of the sorry server, which serves where there is no quorum.
func (e *Engine) logSorry(vs *server, ev framework.QuorumEvent) {
	if vs.Config.Sorry == nil || ev == framework.QuorumUnchanged {
		return
	}
	name := rsName(vs.Config.Sorry.Key, vs.Config)
	args := []any{"vs", vs.name, "sorry_server", name}
	if ev == framework.QuorumLost {
		verb := "Adding sorry server %s to VS %s"
		if vs.Config.Sorry.Inhibit {
			verb = "Enabling sorry server %s of VS %s"
		}
		e.log.Warn(fmt.Sprintf(verb, name, vs.name), append(args, event.Key, event.SorryIn)...)
		return
	}
	verb := "Removing sorry server %s from VS %s"
	if vs.Config.Sorry.Inhibit {
		verb = "Disabling sorry server %s of VS %s"
	}
	e.log.Info(fmt.Sprintf(verb, name, vs.name), append(args, event.Key, event.SorryOut)...)
}

// trustAtStart decides, for a virtual server that is new to this process, which
// real servers may serve before their first check, as far as no saved verdict says
// more (believe).
//
// Without anything in the kernel that is keepalived's rule: all but alpha ones.
// With a service that already serves (this daemon was restarted, or took over) the
// table is the last known verdict: a server that is in with a weight stays in, alpha
// or not; one that is not in has to pass a check first, whether it was down or is
// new; one at weight 0 under inhibit_on_failure or on_failure drain was down.
func (e *Engine) trustAtStart(vc *config.VirtualServer) framework.Trust {
	adopted := e.applier.AdoptedIn(e.applier.Lookup(vc.Key))
	strangers := e.strangersServe(vc)
	return func(rc *config.RealServer) bool {
		exists, usable, weight := adopted(rc.Key)
		switch {
		case weight > 0:
			return true
		case alpha(rc):
			return false
		case !exists || !usable || strangers || e.config.Global.TrustNew:
			return true
		case weight == 0:
			return !rc.Inhibit && vc.OnFailure != config.OnFailureDrain
		}
		return false
	}
}

// alpha reports whether any of a server's checkers asks for "down until proven".
func alpha(rc *config.RealServer) bool {
	for _, c := range rc.Checkers {
		if c.Alpha && c.Kind != config.FileCheck {
			return true
		}
	}
	return false
}
