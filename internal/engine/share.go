package engine

import (
	"encoding/hex"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/framework"
)

// run is one probe in the schedule. Its members are the tasks that ask the very same:
// one probe answers all of them, and each draws its own conclusion.
type run struct {
	id     checker.ID
	engine *Engine
	kind   config.CheckerKind
	// ends is when the certificate does that the last run saw, in Unix seconds, 0 for
	// none. It fills a gap.
	ends uint32
	// next is another run of the same hash. It is the loop's.
	next *run

	mu sync.Mutex
	// sum is the digest of what is asked, once it was wanted.
	sum [16]byte
	// members is replaced and never changed in place: judge goes through it without
	// the lock.
	members []*task
	last    lastOutcome
	// past is nil as long as nothing has failed.
	past *past
	// due is when the next run is, since the engine was made.
	due time.Duration
}

// lastOutcome is what people want to know of a run, and what the next one is held to.
type lastOutcome struct {
	reason string
	// at is when it ended, in Unix nanoseconds; 0 for no run yet.
	at int64
	// took is in microseconds (micros): there are tens of thousands of these.
	took uint32
	// result is a checker.Result; told the last one that said something of the server,
	// Unable for none. There is one for each run: a byte will do.
	result, told uint8
}

// micros is a duration of at most an hour in microseconds.
func micros(d time.Duration) uint32 {
	return uint32(min(max(d, 0), time.Hour) / time.Microsecond)
}

func (l *lastOutcome) elapsed() time.Duration { return time.Duration(l.took) * time.Microsecond }

const unable = uint8(checker.Unable)

// judge takes one run's outcome on the scheduler's side.
func (r *run) judge(o checker.Outcome) time.Duration {
	now := time.Now()
	r.engine.tally.count(r.kind, &o)
	r.mu.Lock()
	was, members := r.last, r.members
	r.last = lastOutcome{reason: o.Reason, took: micros(o.Took), at: now.UnixNano(), result: uint8(o.Result), told: uint8(o.Result)}
	if o.Result == checker.Unable {
		r.last.told = was.told
	}
	if r.past != nil || o.Result != checker.OK {
		r.past = r.past.add(&o, &was, now)
	}
	r.mu.Unlock()
	early := len(members) > 1 && was.told == uint8(o.Result)
	next := time.Duration(math.MaxInt64)
	for _, t := range members {
		next = min(next, t.judge(r.engine, &o, &was, now, early))
	}
	next = max(next, time.Microsecond)
	r.mu.Lock()
	r.due = now.Sub(r.engine.started) + min(next, math.MaxInt64/2)
	if o.Certificate != nil {
		r.ends = uint32(min(max(o.Certificate.NotAfter.Unix(), 1), math.MaxUint32))
	}
	r.mu.Unlock()
	return next
}

// definition is what a checker asks, short and without what of it may be secret.
func (r *run) definition(c *config.Checker) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.sum == [16]byte{} {
		r.sum = digest(c)
	}
	return hex.EncodeToString(r.sum[:])
}

// sameRun reports whether one probe can answer two checkers: both ask the same at the
// same intervals. A script may look at more than its arguments say, so that it is run
// once for each address that it stands for.
func sameRun(ar *config.RealServer, a *config.Checker, br *config.RealServer, b *config.Checker) bool {
	return a == b && (a.Kind != config.MiscCheck || ar.Key == br.Key) ||
		a.DelayLoop == b.DelayLoop && a.DelayBeforeRetry == b.DelayBeforeRetry && a.Warmup == b.Warmup &&
			a.AsksSame(b) && (a.Kind != config.MiscCheck || ar.Key == br.Key)
}

var seed = maphash.MakeSeed()

// hashRun is equal for checkers that sameRun finds equal.
func hashRun(c *config.Checker) uint64 {
	type head struct {
		kind config.CheckerKind
		conn config.Connection
		loop time.Duration
	}
	return maphash.Comparable(seed, head{c.Kind, c.Conn, c.DelayLoop})
}

// findRun returns the run that asks what a checker does; nil for none.
func (e *Engine) findRun(rc *config.RealServer, c *config.Checker) *run {
	if !e.config.Global.ShareChecks {
		return nil
	}
	for r := e.runs[hashRun(c)]; r != nil; r = r.next {
		if _, mrc, mc := r.members[0].config(); sameRun(rc, c, mrc, mc) {
			return r
		}
	}
	return nil
}

// hurryUp has the runs that others joined come at once, each once for all of them.
func (e *Engine) hurryUp() {
	if len(e.hasty) == 0 {
		return
	}
	for _, id := range slices.Sorted(maps.Keys(e.hasty)) {
		e.opts.Scheduler.RunNow(id)
	}
	clear(e.hasty)
}

// enlist has a task's check run after a time: by the run that asks the same already,
// which is hurried if it would come too late, or by one of its own. It is false, and
// logged, if the check cannot be run.
func (e *Engine) enlist(t *task, first time.Duration) bool {
	_, rc, c := t.config()
	now := time.Since(e.started)
	if r := e.findRun(rc, c); r != nil {
		r.mu.Lock()
		r.members = append(slices.Clip(slices.Clone(r.members)), t)
		// One that is due may be under way, and its judge have taken the list before.
		late := now+first < r.due || r.due <= now
		r.mu.Unlock()
		t.setRun(r)
		if late {
			e.hasty[r.id] = true
		}
		return true
	}
	probe, err := e.opts.Probe(e.config, c)
	if err != nil {
		// Validation should have seen it; a server must not be down, nor seem
		// checked, because of our own mistake.
		e.log.Error("Checker cannot be run, its last verdict stays", append(t.names(), event.Key, event.CheckUnable, "err", err)...)
		return false
	}
	e.nextID++
	r := &run{id: e.nextID, engine: e, kind: c.Kind, members: []*task{t}, due: now + first, last: lastOutcome{told: unable}}
	if t.run != nil {
		r.last, r.sum, r.past = t.run.outcome()
	}
	t.setRun(r)
	e.register(r, c)
	e.opts.Scheduler.Add(checker.Task{ID: r.id, Probe: probe, Judge: r.judge, Timeout: timeout(c), First: first})
	return true
}

func (r *run) outcome() (last lastOutcome, sum [16]byte, p *past) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.last, r.sum, r.past.clone()
}

// register makes a run one that others may join.
func (e *Engine) register(r *run, c *config.Checker) {
	if e.config.Global.ShareChecks {
		h := hashRun(c)
		r.next, e.runs[h] = e.runs[h], r
	}
}

// unregister takes a run out of those that others may join; c is what it asks.
func (e *Engine) unregister(r *run, c *config.Checker) {
	h := hashRun(c)
	for at := e.runs[h]; at != nil; at = at.next {
		switch {
		case at == r && e.runs[h] == r && r.next == nil:
			delete(e.runs, h)
		case at == r && e.runs[h] == r:
			e.runs[h] = r.next
		case at.next == r:
			at.next = r.next
		default:
			continue
		}
		break
	}
	r.next = nil
}

// leave takes a task out of its run, which ends with its last member. c is what the
// task asked.
func (e *Engine) leave(t *task, c *config.Checker) {
	r := t.run
	if r == nil || r.id == 0 {
		return
	}
	r.mu.Lock()
	r.members = slices.DeleteFunc(slices.Clone(r.members), func(m *task) bool { return m == t })
	last := len(r.members) == 0
	r.mu.Unlock()
	if last {
		e.unregister(r, c)
		e.opts.Scheduler.Remove(r.id)
	}
}

// dismiss ends a task for good: what is still on its way of it is ignored.
func (e *Engine) dismiss(t *task) {
	_, _, c := t.config()
	e.leave(t, c)
	t.setRun(nil)
}

// suspend takes a task out of the schedule. Its state stays.
func (e *Engine) suspend(t *task) {
	_, _, c := t.config()
	e.leave(t, c)
	last, sum, p := t.run.outcome()
	t.setRun(&run{engine: e, kind: c.Kind, last: last, sum: sum, past: p})
}

// reschedule takes up that a checker whose question stays runs at other intervals. A
// run that nobody shares stays as it is: the next pause is the new one.
func (e *Engine) reschedule(t *task, rc *config.RealServer, c *config.Checker) {
	_, nrc, nc := t.config()
	if t.run == nil || t.run.id == 0 || sameRun(rc, c, nrc, nc) {
		return
	}
	if r := e.findRun(nrc, nc); len(t.run.members) == 1 && (r == nil || r == t.run) {
		e.unregister(t.run, c)
		e.register(t.run, nc)
		return
	}
	e.transfer(t, c)
}

// transfer gives a task another run, in its own rhythm.
func (e *Engine) transfer(t *task, c *config.Checker) {
	t.run.mu.Lock()
	due := t.run.due
	t.run.mu.Unlock()
	t.mu.Lock()
	if t.due != 0 {
		due = t.due
	}
	t.mu.Unlock()
	e.leave(t, c)
	e.enlist(t, max(due-time.Since(e.started), 0))
}

// reshare takes up that share_checks is another: it merges equal runs, or splits
// them. Each task keeps its machine, and so its verdict, and its rhythm.
func (e *Engine) reshare() {
	clear(e.runs)
	share := e.config.Global.ShareChecks
	for _, vs := range e.vss {
		for _, ts := range vs.tasks {
			for _, t := range ts {
				if t == nil || t.run == nil || t.run.id == 0 {
					continue
				}
				_, rc, c := t.config()
				switch {
				case share && e.findRun(rc, c) == nil:
					e.register(t.run, c)
				case share || len(t.run.members) > 1:
					e.transfer(t, c)
				}
			}
		}
	}
}

// phase is when a checker runs first at a cold start. It follows from what is checked
// alone, so that it is the same after a restart, and for all that share a run; those
// that do not are kept apart by the names of their virtual servers.
func (e *Engine) phase(vs *server, c *config.Checker) time.Duration {
	key := framework.Definition(c)
	if !e.config.Global.ShareChecks {
		key = vs.name + key
	}
	return checker.Spread(key, c.Warmup)
}
