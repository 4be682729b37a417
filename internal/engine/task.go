package engine

import (
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/internal/state"
)

// task is one checker that runs. Where it belongs (vs, server, check) is the
// loop's; the machine and the last outcome are stepped on the scheduler's side and
// read by anyone.
type task struct {
	id checker.ID

	vs            *server
	server, check int

	rules   atomic.Pointer[rules]
	engine  *Engine
	mu      sync.Mutex
	machine framework.Machine
	last    lastOutcome
	dynamic framework.Dynamic
	// confirmed is when a run last agreed with the verdict.
	confirmed time.Time
}

// rules are what a reload may change without touching the machine.
type rules struct {
	framework.Rules
	logAll bool
	// fromStart counts the pause from the start of a run and not from its end: a
	// script that takes long is not run less often (facts 4.13).
	fromStart bool
	// saved is the verdict's name in the state file.
	saved state.Key
	// Names for the log and for status.
	kind, target, rs, vs string
}

type lastOutcome struct {
	checker.Outcome
	at time.Time
}

// judge takes one run's outcome on the scheduler's side.
func (t *task) judge(o checker.Outcome) time.Duration {
	r := t.rules.Load()
	t.engine.tally.count(r.kind, o.Result)
	t.mu.Lock()
	before := t.last
	t.last = lastOutcome{Outcome: o, at: time.Now()}
	if o.Result == checker.Unable {
		t.mu.Unlock()
		if before.Result != checker.Unable || before.Reason != o.Reason {
			t.engine.log.Error("Check could not run, the last verdict stays", "checker", r.kind, "rs", r.rs, "vs", r.vs, "reason", o.Reason)
		}
		return r.DelayLoop
	}
	attempt, limit := t.machine.Failures()+1, t.machine.Limit(r.Rules)
	was := t.machine.Verdict()
	changed, next := t.machine.Step(r.Rules, o.Result == checker.OK)
	verdict := t.machine.Verdict()
	if (o.Result == checker.OK) == (verdict == framework.Up) {
		t.confirmed = t.last.at
	}
	weighed := t.weigh(o)
	dynamic := t.dynamic
	t.mu.Unlock()
	if before.Result == checker.Unable {
		t.engine.log.Info("Check runs again", "checker", r.kind, "rs", r.rs, "vs", r.vs)
	}
	if o.Result == checker.Failed && r.logAll && was != framework.Down {
		t.engine.log.Info("Check failed", "checker", r.kind, "rs", r.rs, "vs", r.vs, "reason", o.Reason, "attempt", attempt, "limit", limit)
	}
	if changed || weighed {
		t.engine.inbox.send(verdictEvent{t, verdict, changed, dynamic, o, min(attempt, limit), limit})
	}
	if r.fromStart {
		next = max(next-o.Took, time.Microsecond)
	}
	return next
}

// weigh takes the weight that a good run asks for and reports whether it is another
// than before. A bad run says nothing of weights.
func (t *task) weigh(o checker.Outcome) bool {
	if o.Result != checker.OK {
		return false
	}
	was := t.dynamic
	t.dynamic = framework.Dynamic{Weight: o.Weight, Set: o.Weighted}
	return t.dynamic != was
}

// status fills in what changes with every run.
func (t *task) status() Checker {
	r := t.rules.Load()
	t.mu.Lock()
	defer t.mu.Unlock()
	c := Checker{
		Kind:     r.kind,
		Target:   r.target,
		Verdict:  t.machine.Verdict().String(),
		Failures: t.machine.Failures(),
		Limit:    t.machine.Limit(r.Rules),
	}
	if !t.last.at.IsZero() {
		c.Last, c.LastReason, c.LastAt, c.Took = t.last.Result.String(), t.last.Reason, t.last.at, t.last.Took
	}
	return c
}

// ruleset makes a checker's rules.
func ruleset(cfg *config.Config, vs *config.VirtualServer, rs *config.RealServer, c *config.Checker) *rules {
	return &rules{
		Rules: framework.Rules{
			DelayLoop:        c.DelayLoop,
			DelayBeforeRetry: c.DelayBeforeRetry,
			Retry:            c.Retry,
			Rise:             c.Rise,
			SlowDown:         c.Kind == config.HTTPGet || c.Kind == config.SSLGet,
		},
		logAll:    c.LogAllFailures || cfg.Global.CheckerLogAllFailures,
		fromStart: c.Kind == config.MiscCheck,
		saved:     verdictKey(vs, rs, definition(c)),
		kind:      c.Kind.String(),
		target:    targetOf(c),
		rs:        rsName(rs.Key, vs),
		vs:        vsName(vs),
	}
}

// targetOf says what a checker asks, for people.
func targetOf(c *config.Checker) string {
	switch c.Kind {
	case config.MiscCheck:
		return strings.Join(c.Misc.Script.Argv, " ")
	case config.PingCheck:
		return c.Conn.Target.Addr().String()
	case config.FileCheck:
		return "track_file " + c.File.Name
	}
	return c.Conn.Target.String()
}

// killing is what a script may still take after its own limit until it has been
// made to end.
const killing = 5 * time.Second

// timeout is the one deadline of a whole run: several urls are asked one after the
// other, each within the connection's own.
func timeout(c *config.Checker) time.Duration {
	switch {
	case c.HTTP != nil:
		return c.Conn.Timeout * time.Duration(max(len(c.HTTP.URLs), 1))
	case c.Misc != nil:
		return c.Misc.Timeout + killing
	}
	return c.Conn.Timeout
}
