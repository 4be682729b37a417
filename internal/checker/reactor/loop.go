package reactor

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/due"
)

// Options of a Loop.
type Options struct {
	// Limit is how many connections there may be together, those that wait to be
	// used again with them; 0 is checker.DefaultLimit().
	Limit int
}

// Loop leads the conversations of many tasks on one thread. Its methods may be
// called from any goroutine and do not block.
type Loop struct {
	limit int
	sys   system
	// low and high are where the kernel draws source ports from.
	low, high uint16

	// oldest is the earliest due time that has not been served, for Overdue. It and
	// the counts are read while the loop may be stuck.
	oldest             atomic.Int64
	inUse, inLine      atomic.Int64
	runs, panics       atomic.Uint64
	asleep, hasCommand atomic.Bool

	mu       sync.Mutex
	byID     map[checker.ID]*task
	commands []command
	started  bool
	ended    bool

	// All that follows belongs to Run's thread.

	queue due.Queue[task]
	line  due.Queue[task]
	spare []command
	// running are runs under way, pooled the sockets that wait to be used again.
	running, pooled int
	links           []*link
	free            []*link
	again, more     []*link
	pools           map[poolKey]*pool
	events          []unix.EpollEvent
	buf             []byte
}

var errRunTwice = errors.New("run reactor: it has run before")

// New returns a Loop without tasks. Nothing runs until Run, which may be called
// once; a Loop that is not run need not be closed.
func New(o Options) *Loop { return newLoop(o, nil) }

func newLoop(o Options, sys system) *Loop {
	if o.Limit <= 0 {
		o.Limit = checker.DefaultLimit()
	}
	l := &Loop{
		limit: o.Limit, sys: sys,
		byID:  map[checker.ID]*task{},
		pools: map[poolKey]*pool{},
	}
	l.oldest.Store(math.MaxInt64)
	return l
}

// Add schedules a task. It panics for an ID in use and for a task without a judge
// or whose probe is no Conversation: all are mistakes of the program.
func (l *Loop) Add(t checker.Task) {
	n := &task{id: t.ID, conversation: conversation("add", &t), judge: t.Judge, timeout: timeout(&t)}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byID[t.ID] != nil {
		panic(fmt.Sprintf("reactor: add task %d: it exists already", t.ID))
	}
	l.byID[t.ID] = n
	// Until it is begun the time of the first run lies here.
	n.due = int64(max(t.First, 0))
	l.tell(command{verb: add, t: n})
}

// Remove forgets a task, ends its connection and discards the outcome. After it
// returned no call of its Judge begins. One that had begun before is not waited
// for. An unknown ID is ignored.
func (l *Loop) Remove(id checker.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.byID[id]; t != nil {
		t.gone.Store(true)
		delete(l.byID, id)
		l.tell(command{verb: remove, t: t})
	}
}

// Update is that of checker.Scheduler.
func (l *Loop) Update(t checker.Task) {
	conversation("update", &t)
	l.mu.Lock()
	defer l.mu.Unlock()
	if n := l.byID[t.ID]; n != nil {
		l.tell(command{verb: update, t: n, with: &t})
	}
}

// RunNow is that of checker.Scheduler.
func (l *Loop) RunNow(id checker.ID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if t := l.byID[id]; t != nil {
		l.tell(command{verb: runNow, t: t})
	}
}

// Has tells whether there is such a task.
func (l *Loop) Has(id checker.ID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.byID[id] != nil
}

func conversation(op string, t *checker.Task) checker.Conversation {
	c, ok := t.Probe.(checker.Conversation)
	if !ok || t.Judge == nil {
		panic(fmt.Sprintf("reactor: %s task %d: no conversation or no judge", op, t.ID))
	}
	return c
}

func timeout(t *checker.Task) int64 {
	if t.Timeout <= 0 {
		return defaultTimeout
	}
	return int64(t.Timeout)
}

// tell queues a command; l.mu is held.
func (l *Loop) tell(c command) {
	if l.started && !l.ended {
		c.at = l.sys.now()
	}
	l.commands = append(l.commands, c)
	l.hasCommand.Store(true)
	l.wake()
}

// wake ends the loop's sleep; l.mu is held, so that the system is not ended.
func (l *Loop) wake() {
	if l.started && !l.ended && l.asleep.CompareAndSwap(true, false) {
		l.sys.wake()
	}
}

// Overdue is how late the most overdue task is: due and not begun, or not over by
// its deadline. It rises also when the loop itself is stuck.
func (l *Loop) Overdue() time.Duration {
	at := l.oldest.Load()
	if at == math.MaxInt64 {
		return 0
	}
	return time.Duration(max(l.sys.now()-at, 0))
}

// Stats returns the counts as they were after the loop's last turn.
func (l *Loop) Stats() checker.Stats {
	l.mu.Lock()
	n := len(l.byID)
	l.mu.Unlock()
	return checker.Stats{
		Tasks: n, Running: int(l.inUse.Load()), Waiting: int(l.inLine.Load()), Limit: l.limit,
		Runs: l.runs.Load(), Panics: l.panics.Load(),
	}
}

// Run leads until ctx is done, then drops all connections. No Judge is called from
// then on.
func (l *Loop) Run(ctx context.Context) error {
	if err := l.begin(); err != nil {
		return err
	}
	defer l.end()
	stop := context.AfterFunc(ctx, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.wake()
	})
	defer stop()
	for ctx.Err() == nil {
		l.turn(ctx)
	}
	return nil
}

func (l *Loop) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started {
		return errRunTwice
	}
	if l.sys == nil {
		k, err := newKernel()
		if err != nil {
			return fmt.Errorf("run reactor: %w", err)
		}
		l.sys = k
		l.low, l.high = localPorts()
	}
	l.started = true
	l.events = make([]unix.EpollEvent, 4*batch)
	l.buf = make([]byte, 32<<10)
	// Tasks that were added before are due as if they were added now.
	now := l.sys.now()
	for i := range l.commands {
		l.commands[i].at = now
	}
	return nil
}

func (l *Loop) end() {
	l.oldest.Store(math.MaxInt64)
	for _, k := range l.links {
		if k.fd >= 0 {
			l.sys.close(k.fd, k.pool != nil)
			k.fd = -1
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
	l.sys.end()
	l.inUse.Store(0)
	l.inLine.Store(0)
}

// turn obeys commands, begins what is due, and deals with what happened.
func (l *Loop) turn(ctx context.Context) {
	if l.hasCommand.Load() {
		l.obeyAll()
	}
	n := l.serve()
	l.publish()
	// What was just begun may have answered already, as in a local network.
	var got int
	pause := int64(0)
	if n == 0 && len(l.again) == 0 {
		if pause = l.pause(); pause != 0 {
			l.asleep.Store(true)
			if ctx.Err() != nil || l.hasCommand.Load() {
				pause = 0
			}
		}
	}
	got = l.sys.wait(l.events, pause)
	l.asleep.Store(false)
	for i := range l.events[:got] {
		if ctx.Err() != nil {
			return
		}
		l.happened(&l.events[i])
	}
	// Those that were left with more to read.
	l.again, l.more = l.more[:0], l.again
	for _, k := range l.more {
		k.again = false
		if k.t != nil && ctx.Err() == nil {
			l.lead(k.t, goOn, 0)
		}
	}
}

// serve begins or ends what is due, a batch of it at most, and returns how much.
func (l *Loop) serve() int {
	n := 0
	for ; n < batch && l.running < l.limit; n++ {
		t, _ := l.line.Min()
		if t == nil {
			break
		}
		l.line.Remove(t.ref)
		t.ref = l.queue.Push(t, t.due)
		l.start(t)
	}
	now := l.sys.now()
	for n < batch {
		t, at := l.queue.Min()
		if t == nil || at > now {
			break
		}
		switch {
		case t.state == running:
			n++
			l.lead(t, expire, 0)
		case l.running < l.limit:
			n++
			t.due = at
			l.start(t)
		default:
			l.queue.Remove(t.ref)
			t.due, t.state = at, waiting
			t.ref = l.line.Push(t, at)
		}
	}
	return n
}

// pause is how long nothing is due; -1 for ever. Wakeups are rounded up to a tick,
// so that one of them serves what is due closely one after the other.
func (l *Loop) pause() int64 {
	t, at := l.queue.Min()
	if t == nil || at == math.MaxInt64 {
		return -1
	}
	at = later(at, tick-1)
	return max(at-at%tick-l.sys.now(), 0)
}

func (l *Loop) publish() {
	oldest := int64(math.MaxInt64)
	if t, at := l.queue.Min(); t != nil {
		oldest = at
	}
	if t, at := l.line.Min(); t != nil {
		oldest = min(oldest, at)
	}
	l.oldest.Store(oldest)
	l.inUse.Store(int64(l.running))
	l.inLine.Store(int64(l.line.Len()))
}

func (l *Loop) obeyAll() {
	l.mu.Lock()
	commands := l.commands
	l.commands = l.spare[:0]
	l.hasCommand.Store(false)
	l.mu.Unlock()
	for i := range commands {
		l.obey(&commands[i])
	}
	clear(commands)
	if l.spare = commands; cap(commands) > 1024 { // a reload
		l.spare = nil
	}
}

func (l *Loop) obey(c *command) {
	t := c.t
	switch c.verb {
	case add:
		// A task may be gone already; its command follows and cleans up.
		t.state = idle
		t.ref = l.queue.Push(t, later(c.at, t.due))
	case remove:
		if t.state == running {
			l.drop(t)
		}
		l.forget(t)
	case update:
		t.judge = c.with.Judge
		t.next = c.with
		if t.state != running {
			t.replace()
		}
	case runNow:
		if t.state != idle {
			return
		}
		if at := l.queue.At(t.ref); at > c.at {
			t.keep = at
			l.queue.Move(t.ref, c.at)
		}
	}
}

// replace takes over what Update brought.
func (t *task) replace() {
	if t.next != nil {
		t.conversation, t.timeout = t.next.Probe.(checker.Conversation), timeout(t.next)
		t.next = nil
	}
}

// forget takes a task that does not run out of the schedule.
func (l *Loop) forget(t *task) {
	switch t.state {
	case removed:
		return
	case waiting:
		l.line.Remove(t.ref)
	default:
		l.queue.Remove(t.ref)
	}
	t.state = removed
	l.leavePool(t)
}
