package checker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-lb/sluice/internal/checker/due"
)

// Defaults of a Scheduler and its tasks.
const (
	// DefaultTimeout is the deadline of a task that names none: keepalived's
	// connect_timeout.
	DefaultTimeout = 5 * time.Second
	// DefaultGrace is how long after its deadline a run counts as hung.
	DefaultGrace = time.Second
)

// Options of a Scheduler. The zero value is usable.
type Options struct {
	// Limit is how many probes run together; 0 is DefaultLimit().
	Limit int
	// Grace is how long after its deadline a run that has not returned is
	// taken for hung; 0 is DefaultGrace.
	Grace time.Duration
}

// Task is one probe with its schedule.
type Task struct {
	// ID is chosen by the caller. It is free again once Remove returned; the
	// removed Probe may still be returning from its last run, so do not add the
	// same Probe again.
	ID    ID
	Probe Probe
	// Judge is called with the outcome of each run, on the goroutine of the
	// Scheduler or the thread of the loop that runs the task, and returns the delay until the next run, counted from the completion of
	// this one. While it blocks no run is started and Overdue rises: late, never
	// lost.
	Judge Judge
	// Timeout is the one deadline of a run; 0 is DefaultTimeout.
	Timeout time.Duration
	// First is the delay of the first run, counted from Add or, if that was
	// earlier, from Run. See Spread.
	First time.Duration
}

// Stats is what a Scheduler tells about itself.
type Stats struct {
	// Tasks are those added and not removed.
	Tasks int
	// Running probes hold a slot, Waiting ones are due and have none yet.
	Running, Waiting int
	// Hung probes outlived their deadline, lost their slot and still have not
	// returned; those of removed tasks count too.
	Hung  int
	Limit int
	// Runs, Panics and Hangs are totals: completed runs, those that panicked, and
	// those that were ever hung.
	Runs, Panics, Hangs uint64
}

var errRunTwice = errors.New("run scheduler: it has run before")

// Scheduler runs the probes of many tasks. Its methods may be called from any
// goroutine and never block on a probe or a Judge.
type Scheduler struct {
	limit int
	grace int64 // ns
	base  time.Time
	wake  chan struct{} // capacity 1

	// oldest is the earliest due time that has not been served, for Overdue. It
	// is read while the loop may be stuck.
	oldest atomic.Int64

	mu       sync.Mutex
	byID     map[ID]*task
	commands []command
	done     []completion
	started  bool
	pub      Stats

	// All that follows belongs to the goroutine of Run.

	ctx         context.Context
	queue       due.Queue[task]
	ready       fifo
	hung        []*task // those not removed
	stats       Stats
	spareCmds   []command
	spareDone   []completion
	timer       *time.Timer
	outstanding int // goroutines of probes, hung ones too
}

// NewScheduler returns a Scheduler without tasks. Nothing runs until Run.
func NewScheduler(o Options) *Scheduler {
	if o.Limit <= 0 {
		o.Limit = DefaultLimit()
	}
	if o.Grace <= 0 {
		o.Grace = DefaultGrace
	}
	s := &Scheduler{
		limit: o.Limit,
		grace: int64(o.Grace),
		base:  time.Now(),
		wake:  make(chan struct{}, 1),
		byID:  make(map[ID]*task),
	}
	s.stats.Limit, s.pub.Limit = o.Limit, o.Limit
	s.oldest.Store(math.MaxInt64)
	return s
}

// now is the monotonic time since the scheduler was made, in nanoseconds.
func (s *Scheduler) now() int64 { return int64(time.Since(s.base)) }

type verb int

const (
	cmdAdd verb = iota
	cmdRemove
	cmdUpdate
	cmdRunNow
)

type command struct {
	verb verb
	t    *task
	at   int64
	with Task // for cmdUpdate
}

type completion struct {
	t        *task
	outcome  Outcome
	at       int64
	panicked bool
}

// Add schedules a task. It panics for an ID in use and for a task without a probe
// or a judge: both are mistakes of the program, not of its input.
func (s *Scheduler) Add(t Task) {
	t.check("add")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byID[t.ID] != nil {
		panic(fmt.Sprintf("checker: add task %d: it exists already", t.ID))
	}
	n := &task{Task: t}
	s.byID[t.ID] = n
	s.send(command{verb: cmdAdd, t: n})
}

func (t *Task) check(op string) {
	if t.Probe == nil || t.Judge == nil {
		panic(fmt.Sprintf("checker: %s task %d: probe or judge missing", op, t.ID))
	}
	if t.Timeout <= 0 {
		t.Timeout = DefaultTimeout
	}
	t.First = max(t.First, 0)
}

// Remove forgets a task, cancels its run and discards the outcome. After it
// returned no call of its Judge begins. One that had begun before is not waited
// for, since it may be waiting for the very caller. An unknown ID is ignored.
func (s *Scheduler) Remove(id ID) { s.tell(cmdRemove, id, Task{}) }

// Update replaces the probe, the judge and the timeout of the task t.ID, and
// leaves its phase (First is ignored). A run under way finishes with the old
// probe and deadline; its outcome goes to the new Judge. Use Remove and Add
// where an outcome of the old probe would say nothing about the new one. An
// unknown ID is ignored.
func (s *Scheduler) Update(t Task) {
	t.check("update")
	s.tell(cmdUpdate, t.ID, t)
}

// RunNow makes a task due at once. Its phase stays: the run that was due next
// still happens at its time, unless Judge asks for an earlier one. A task that
// is running or waiting for a slot is left alone: its run is as new as can be.
// An unknown ID is ignored.
func (s *Scheduler) RunNow(id ID) { s.tell(cmdRunNow, id, Task{}) }

// Has tells whether there is such a task.
func (s *Scheduler) Has(id ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.byID[id] != nil
}

func (s *Scheduler) tell(v verb, id ID, with Task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.byID[id]
	if t == nil {
		return
	}
	if v == cmdRemove {
		t.gone = true
		delete(s.byID, id)
	}
	s.send(command{verb: v, t: t, with: with})
}

// send queues a command; s.mu is held.
func (s *Scheduler) send(c command) {
	c.at = s.now()
	s.commands = append(s.commands, c)
	s.poke()
}

func (s *Scheduler) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Overdue is how late the most overdue task is: due and not started, or not
// returned by its deadline. It is 0 when nothing is late, and it rises also when
// the scheduler itself is stuck, so a watchdog can rely on it.
func (s *Scheduler) Overdue() time.Duration {
	at := s.oldest.Load()
	if at == math.MaxInt64 {
		return 0
	}
	return time.Duration(max(s.now()-at, 0))
}

// Stats returns the counts as they were after the scheduler's last turn.
func (s *Scheduler) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pub
	p.Tasks = len(s.byID)
	return p
}

// Run schedules until ctx is done, then cancels all probes and waits for them.
// No Judge is called from then on. It returns nil, or an error when probes had
// not returned after the grace period and were left behind. It may be called
// once.
func (s *Scheduler) Run(ctx context.Context) error {
	s.mu.Lock()
	if s.started {
		s.mu.Unlock()
		return errRunTwice
	}
	s.started = true
	// Tasks that were added before are due as if they were added now.
	now := s.now()
	for i := range s.commands {
		s.commands[i].at = now
	}
	s.mu.Unlock()

	var cancel context.CancelFunc
	s.ctx, cancel = context.WithCancel(ctx)
	defer cancel()
	s.timer = time.NewTimer(time.Hour)
	defer s.timer.Stop()
	for ctx.Err() == nil {
		s.turn()
		if d, ok := s.publish(); ok {
			s.timer.Reset(d)
		} else {
			s.timer.Stop()
		}
		select {
		case <-ctx.Done():
		case <-s.wake:
		case <-s.timer.C:
		}
	}
	return s.shutdown(ctx)
}

// shutdown waits for the probes whose context is cancelled by now.
func (s *Scheduler) shutdown(ctx context.Context) error {
	s.oldest.Store(math.MaxInt64)
	s.timer.Reset(time.Duration(s.grace))
	for {
		s.mu.Lock()
		s.outstanding -= len(s.done)
		clear(s.done)
		s.done = s.done[:0]
		s.pub = Stats{Limit: s.limit, Hung: s.outstanding, Runs: s.stats.Runs, Panics: s.stats.Panics, Hangs: s.stats.Hangs}
		s.mu.Unlock()
		if s.outstanding == 0 {
			return nil
		}
		select {
		case <-s.wake:
		case <-s.timer.C:
			return fmt.Errorf("stop scheduler (%w): %d probes did not return within %v", context.Cause(ctx), s.outstanding, time.Duration(s.grace))
		}
	}
}

// turn empties both inboxes, then starts what is due.
func (s *Scheduler) turn() {
	s.mu.Lock()
	cmds, done := s.commands, s.done
	s.commands, s.done = s.spareCmds[:0], s.spareDone[:0]
	s.mu.Unlock()
	for i := range cmds {
		s.obey(&cmds[i])
	}
	for i := range done {
		if s.ctx.Err() != nil {
			s.outstanding -= len(done) - i
			break
		}
		s.complete(&done[i])
	}
	clear(cmds)
	clear(done)
	s.spareCmds, s.spareDone = cmds, done

	now := s.now()
	for s.ctx.Err() == nil {
		t, at := s.queue.Min()
		if t == nil || at > now {
			break
		}
		s.dequeue(t)
		if t.state == running {
			s.hang(t)
			continue
		}
		s.wait(t)
	}
	for s.stats.Running < s.limit && s.ctx.Err() == nil {
		t := s.ready.pop()
		if t == nil {
			break
		}
		s.start(t)
	}
}

// publish makes Overdue and Stats current and returns how long to sleep.
func (s *Scheduler) publish() (time.Duration, bool) {
	oldest := int64(math.MaxInt64)
	next := oldest
	if t, at := s.queue.Min(); t != nil {
		next, oldest = at, at
	}
	if t := s.ready.head; t != nil {
		oldest = min(oldest, t.at)
	}
	for _, t := range s.hung {
		oldest = min(oldest, t.at)
	}
	s.oldest.Store(oldest)
	s.stats.Waiting = s.ready.n
	s.mu.Lock()
	s.pub = s.stats
	s.mu.Unlock()
	return time.Duration(next - s.now()), next != math.MaxInt64
}

func (s *Scheduler) obey(c *command) {
	t := c.t
	switch c.verb {
	case cmdAdd:
		// A task may be gone already; its cmdRemove follows and cleans up.
		t.at = later(c.at, t.First)
		s.enqueue(t)
	case cmdRemove:
		switch t.state {
		case idle:
			s.dequeue(t)
		case waiting:
			s.ready.remove(t)
		case running:
			// The slot comes back with the goroutine, or when that hangs.
			t.cancel()
		case hanging:
			s.forgetHung(t)
		}
	case cmdUpdate:
		t.Probe, t.Judge, t.Timeout = c.with.Probe, c.with.Judge, c.with.Timeout
	case cmdRunNow:
		if t.state == idle {
			s.dequeue(t)
			t.keep, t.at = t.at, min(c.at, t.at)
			s.wait(t)
		}
	}
}

func (s *Scheduler) enqueue(t *task) { t.ref = s.queue.Push(t, t.at) }

// dequeue takes a task out of the queue if it is there.
func (s *Scheduler) dequeue(t *task) {
	if t.ref != 0 {
		s.queue.Remove(t.ref)
		t.ref = 0
	}
}

func (s *Scheduler) wait(t *task) {
	t.state = waiting
	s.ready.push(t)
}

func (s *Scheduler) start(t *task) {
	if s.gone(t) {
		t.state = idle
		return
	}
	now := s.now()
	var ctx context.Context
	ctx, t.cancel = context.WithTimeout(s.ctx, t.Timeout)
	t.state = running
	t.at = later(later(now, t.Timeout), time.Duration(s.grace))
	s.enqueue(t)
	s.stats.Running++
	s.outstanding++
	// Owned by the scheduler: finish hands it back, and Run waits for it.
	go s.run(ctx, t, t.Probe, now)
}

// hang takes the slot away from a run that ignores its deadline.
func (s *Scheduler) hang(t *task) {
	s.stats.Running--
	s.stats.Hung++
	s.stats.Hangs++
	t.state = hanging
	t.at -= s.grace // late since its deadline
	if !s.gone(t) {
		s.hung = append(s.hung, t)
		// The last verdict must not stay without a word.
		o := broken(fmt.Sprintf("probe has not returned %v after its deadline of %v", time.Duration(s.grace), t.Timeout))
		o.Took, o.Fault.Timeout = t.Timeout+time.Duration(s.grace), true
		t.delay = s.judge(t, o)
	}
}

func (s *Scheduler) forgetHung(t *task) {
	for i, h := range s.hung {
		if h == t {
			last := len(s.hung) - 1
			s.hung[i] = s.hung[last]
			s.hung[last] = nil
			s.hung = s.hung[:last]
			return
		}
	}
}

// complete takes a finished run back: judge it, schedule the next.
func (s *Scheduler) complete(c *completion) {
	t := c.t
	s.outstanding--
	s.stats.Runs++
	if c.panicked {
		s.stats.Panics++
	}
	t.cancel = nil
	keep := t.keep
	t.keep = 0
	switch t.state {
	case hanging:
		// It was judged when it hung.
		s.stats.Hung--
		s.forgetHung(t)
	case running:
		s.stats.Running--
		s.dequeue(t)
		t.delay = s.judge(t, c.outcome)
	}
	t.state = idle
	if s.gone(t) {
		return
	}
	t.at = later(c.at, t.delay)
	if keep > c.at && keep < t.at {
		t.at = keep
	}
	s.enqueue(t)
}

// judge returns the delay until the next run, 0 for a removed task.
func (s *Scheduler) judge(t *task, o Outcome) time.Duration {
	if s.gone(t) {
		return 0
	}
	return max(t.Judge(o), 0)
}

// gone tells whether Remove was called, even if its command is still queued.
func (s *Scheduler) gone(t *task) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return t.gone
}

// later adds without overflow.
func later(at int64, d time.Duration) int64 {
	if int64(d) > math.MaxInt64-at {
		return math.MaxInt64
	}
	return at + int64(d)
}
