package engine

import (
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/internal/state"
)

// task is one checker of one real server of one virtual server: what it makes of the
// outcomes of a run, which it may share with others. There are tens of thousands, so
// that whatever follows from the configuration (names for the log, the target) is
// looked up there when it is wanted, and rules are one for all that are equal.
type task struct {
	mu sync.Mutex
	// vs, server and check say where it belongs. The loop alone writes them, and run
	// and rules, with mu held; others read them so.
	vs            *server
	server, check int32
	// run has its probe run; one of its own that is not scheduled while the checks
	// are suspended, nil once it is gone.
	run   *run
	rules *rules

	// What follows is stepped on the scheduler's side, with mu held.

	machine framework.Machine
	// since is when its verdict changed last, in seconds since the engine was made and
	// one more; 0 for never. It fills a gap: there are tens of thousands.
	since   uint32
	dynamic *framework.Dynamic // nil for no weight, as most have none
	// due is when its own next run would be, since the engine was made.
	due time.Duration
	// confirmed is when a run last agreed with the verdict, in Unix nanoseconds, 0
	// for never.
	confirmed int64
}

// rules are what a reload may change without touching the machine.
type rules struct {
	framework.Rules
	logAll bool
	// fromStart counts the pause from the start of a run and not from its end: a
	// script that takes long is not run less often (facts 4.13).
	fromStart bool
}

// ruleset returns a checker's rules, the same for all that are equal.
func (e *Engine) ruleset(c *config.Checker) *rules {
	r := rules{
		Rules: framework.Rules{
			DelayLoop:        c.DelayLoop,
			DelayBeforeRetry: c.DelayBeforeRetry,
			Retry:            c.Retry,
			Rise:             c.Rise,
			SlowDown:         c.Kind == config.HTTPGet || c.Kind == config.SSLGet,
		},
		logAll:    c.LogAllFailures,
		fromStart: c.Kind == config.MiscCheck,
	}
	if e.rules[r] == nil {
		e.rules[r] = &r
	}
	return e.rules[r]
}

// config is the checker and what it is in. mu must be held, or the caller be the loop.
func (t *task) config() (*config.VirtualServer, *config.RealServer, *config.Checker) {
	vc := t.vs.Config
	rc := vc.RealServers[t.server]
	return vc, rc, rc.Checkers[t.check]
}

// names are what the log calls it; with the same condition as config.
func (t *task) names() []any {
	vc, rc, c := t.config()
	return []any{"checker", c.Kind.String(), "rs", rsName(rc.Key, vc), "vs", vsName(vc)}
}

// judge takes the outcome of a run that ended now, and says when this checker wants
// the next one. early: a run for somebody else may have found what was known; as long
// as this checker's own is not due, that is no further retry of it, nor a further step
// of its rise.
func (t *task) judge(e *Engine, o *checker.Outcome, was *lastOutcome, now time.Time, early bool) time.Duration {
	since := now.Sub(e.started)
	t.mu.Lock()
	r := t.rules
	if o.Result == checker.Unable {
		t.due = since + r.DelayLoop
		if was.result != unable || was.reason != o.Reason {
			args := append(t.names(), "reason", o.Reason)
			t.mu.Unlock()
			e.log.Error("Check could not run, the last verdict stays", append(args, event.Key, event.CheckUnable)...)
			return r.DelayLoop
		}
		t.mu.Unlock()
		return r.DelayLoop
	}
	ok := o.Result == checker.OK
	attempt, limit := t.machine.Failures()+1, t.machine.Limit(r.Rules)
	before := t.machine.Verdict()
	changed, next := false, t.due-since
	// Only where runs are counted, so that in peace all members keep one rhythm.
	early = early && ok == (before == framework.Down) && next > min(r.DelayLoop, r.DelayBeforeRetry)/16
	if !early {
		changed, next = t.machine.Step(r.Rules, ok)
		if r.fromStart {
			next = max(next-o.Took, time.Microsecond)
		}
		t.due = since + next
	}
	verdict := t.machine.Verdict()
	if changed {
		t.since = uint32(since/time.Second) + 1
	}
	if ok == (verdict == framework.Up) {
		t.confirmed = now.UnixNano()
	}
	weighed := t.weigh(o)
	dynamic := t.weight()
	var args []any
	again := was.result == unable
	failed := !ok && !early && before != framework.Down && (r.logAll || e.logAll.Load())
	if again || failed {
		args = t.names()
	}
	t.mu.Unlock()
	if again {
		e.log.Info("Check runs again", append(args, event.Key, event.CheckAble)...)
	}
	if failed {
		e.log.Info("Check failed", append(args, event.Key, event.CheckAttempt, "reason", o.Reason, "attempt", attempt, "limit", limit)...)
	}
	if changed || weighed {
		e.inbox.send(verdictEvent{t, verdict, changed, dynamic, *o, min(attempt, limit), limit})
	}
	return next
}

// weigh takes the weight that a good run asks for and reports whether it is another
// than before. A bad run says nothing of weights.
func (t *task) weigh(o *checker.Outcome) bool {
	if o.Result != checker.OK {
		return false
	}
	d := framework.Dynamic{Weight: o.Weight, Set: o.Weighted}
	if d == t.weight() {
		return false
	}
	t.dynamic = &framework.Dynamic{Weight: o.Weight, Set: o.Weighted}
	return true
}

// weight is what the last good run asked for.
func (t *task) weight() framework.Dynamic {
	if t.dynamic == nil {
		return framework.Dynamic{}
	}
	return *t.dynamic
}

// move gives a task its place under a new configuration.
func (t *task) move(vs *server, rs, check int, r *rules) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.vs, t.server, t.check, t.rules = vs, int32(rs), int32(check), r
}

func (t *task) setRun(r *run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.run = r
}

// status fills in what changes with every run.
func (t *task) status() Checker {
	t.mu.Lock()
	_, _, k := t.config()
	r := t.run
	c := Checker{
		Kind:     k.Kind.String(),
		Verdict:  t.machine.Verdict().String(),
		Failures: t.machine.Failures(),
		Limit:    t.machine.Limit(t.rules.Rules),
	}
	t.mu.Unlock()
	c.Target = targetOf(k)
	if r == nil {
		return c
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.members) > 1 {
		c.Shared = len(r.members)
	}
	if r.id != 0 {
		c.Next = r.engine.started.Add(r.due)
	}
	if r.ends != 0 {
		c.CertificateEnds = time.Unix(int64(r.ends), 0)
	}
	if l := &r.last; l.at != 0 {
		c.Last, c.LastReason, c.LastAt, c.Took = checker.Result(l.result).String(), l.reason, time.Unix(0, l.at), l.elapsed()
	}
	return c
}

// certificateEnds is when the certificate does that its last run saw, in Unix seconds; 0
// for none.
func (t *task) certificateEnds() int64 {
	t.mu.Lock()
	r := t.run
	t.mu.Unlock()
	if r == nil {
		return 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(r.ends)
}

// definition is the name of what its checker asks in the state file.
func (t *task) definition(c *config.Checker) string {
	t.mu.Lock()
	r := t.run
	t.mu.Unlock()
	if r == nil {
		return definition(c)
	}
	return r.definition(c)
}

// recall gives a task the last outcome of an earlier process, unless it has run.
func (t *task) recall(v *state.Verdict) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.confirmed == 0 && !v.At.IsZero() {
		t.confirmed = v.At.UnixNano()
	}
}

// confirmation returns when a run last agreed with the verdict.
func (t *task) confirmation() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.confirmed == 0 {
		return time.Time{}
	}
	return time.Unix(0, t.confirmed)
}

// targetOf says what a checker asks, for people. A script's arguments may be secret.
func targetOf(c *config.Checker) string {
	switch c.Kind {
	case config.MiscCheck:
		argv := c.Misc.Script.Argv
		if argv[0] == "<" && len(argv) > 1 { // the test of a file
			return "<" + argv[1]
		}
		return argv[0]
	case config.FileCheck:
		return "track_file " + c.File.Name
	}
	to := c.Conn.Target.String()
	if c.Kind == config.PingCheck {
		to = c.Conn.Target.Addr().String()
	}
	if v := c.Conn.Via; v != nil {
		return to + " " + v.String()
	}
	return to
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
