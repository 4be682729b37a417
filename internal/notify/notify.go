package notify

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/script"
)

// Kind is what a Notice tells.
type Kind int

// Kinds of notices.
const (
	RealServerUp Kind = iota
	RealServerDown
	QuorumUp
	QuorumDown
)

// String returns the value of SLUICE_EVENT.
func (k Kind) String() string {
	switch k {
	case RealServerUp:
		return "rs_up"
	case RealServerDown:
		return "rs_down"
	case QuorumUp:
		return "quorum_up"
	case QuorumDown:
		return "quorum_down"
	}
	return fmt.Sprintf("kind_%d", int(k))
}

// Notice is one thing that happened.
type Notice struct {
	Kind Kind
	// VS is the virtual server by keepalived's name, "[192.0.2.1]:tcp:80". Scripts
	// of one name run one after another.
	VS string
	// RS is the real server by keepalived's name; "" for a quorum.
	RS string
	// Script is what to run. A notice without one is ignored.
	Script *config.Script
}

// Defaults of Options, and what is fixed.
const (
	// DefaultTimeout is how long a script may run. keepalived has no limit.
	DefaultTimeout = time.Minute
	// DefaultMaxPending is how many notices may wait.
	DefaultMaxPending = 16384
	// StopLimit is the most that Run takes after the end of its context, but for
	// processes that even SIGKILL does not end: it gives those two seconds more.
	StopLimit = 5 * time.Second

	// parallel is how many scripts run at once.
	parallel = 8
	// stopScript is what each script gets once the daemon stops (facts 5.6).
	stopScript = time.Second
	// reapLimit is how long Run waits for processes after SIGKILL.
	reapLimit = 2 * time.Second
)

// Options are what New wants to know.
type Options struct {
	// Log is where failures go; nil for nowhere.
	Log *slog.Logger
	// Timeout is how long a script may run; 0 is DefaultTimeout.
	Timeout time.Duration
	// Identity is what Configure replaces.
	Identity script.Identity
	// MaxPending is how many notices may wait; 0 is DefaultMaxPending. One that
	// finds no room is dropped, which is logged.
	MaxPending int
}

// Runner runs scripts. Its methods may be called from several goroutines.
type Runner struct {
	log       *slog.Logger
	timeout   time.Duration
	killAfter time.Duration // 0 for what scripts get anyhow; tests are in a hurry
	// run is runScript; tests of the order replace it.
	run  func(life, Notice)
	left script.Leftovers
	kick chan struct{} // of size 1: there may be something to do
	ok   atomic.Uint64
	bad  atomic.Uint64

	mu       sync.Mutex
	id       script.Identity
	queue    *queue
	running  int
	closed   bool // Run is over
	dropped  int  // since the last log line
	lastLost Notice
	lost     uint64 // in all
	warned   map[string]bool
}

// life is how long a script may live: stop ends when the daemon begins to stop,
// and hard when nothing more may run.
type life struct{ stop, hard <-chan struct{} }

// New returns a Runner. Nothing runs before Run.
func New(o Options) *Runner {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Timeout <= 0 {
		o.Timeout = DefaultTimeout
	}
	if o.MaxPending <= 0 {
		o.MaxPending = DefaultMaxPending
	}
	r := &Runner{
		log:     o.Log,
		timeout: o.Timeout,
		kick:    make(chan struct{}, 1),
		id:      o.Identity,
		queue:   newQueue(o.MaxPending),
		warned:  map[string]bool{},
	}
	r.run = r.runScript
	return r
}

// Stats are counts for metrics.
type Stats struct {
	// Queued scripts wait, Running ones do not any more.
	Queued, Running int
	// OK ended with status 0; Failed did not, or could not be run, or were ended;
	// Dropped found no room in the queue.
	OK, Failed, Dropped uint64
}

// Stats returns the counts.
func (r *Runner) Stats() Stats {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Stats{Queued: r.queue.size, Running: r.running, OK: r.ok.Load(), Failed: r.bad.Load(), Dropped: r.lost}
}

// Configure replaces the identity, after a reload. It counts for each script that
// starts from now on, and warnings that were given once may be given again.
func (r *Runner) Configure(id script.Identity) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.id = id
	clear(r.warned)
}

// Notify queues a notice. It never blocks. Before Run begins notices wait for it;
// after Run has returned they are ignored.
func (r *Runner) Notify(n Notice) {
	if n.Script == nil || len(n.Script.Argv) == 0 {
		return
	}
	r.mu.Lock()
	switch {
	case r.closed:
	case !r.queue.put(n):
		r.dropped++
		r.lost++
		r.lastLost = n
	}
	r.mu.Unlock()
	r.wake()
}

func (r *Runner) wake() {
	select {
	case r.kick <- struct{}{}:
	default: // it is due to look already
	}
}

// Run runs what is queued until its context ends. It then goes on with what is
// left, the quorums first: at most a second for each script, as keepalived gives
// them, and StopLimit for all. What still runs then is killed with its process
// group, everything is reaped, and Run returns nil. It may be called once.
//
// The context must outlive whoever calls Notify, the engine, or what is told at a
// stop is lost.
func (r *Runner) Run(ctx context.Context) error {
	hard, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	defer r.left.Close()
	var (
		stop = ctx.Done()
		last = time.NewTimer(StopLimit)
	)
	last.Stop()
	for {
		if r.dispatch(life{ctx.Done(), hard.Done()}, ctx.Err() != nil) {
			return nil
		}
		select {
		case <-r.kick:
		case <-stop:
			stop = nil
			last.Reset(StopLimit)
		case <-last.C:
			if hard.Err() != nil {
				r.giveUp()
				return nil
			}
			r.dropRest()
			kill()
			last.Reset(reapLimit)
		}
	}
}

// dispatch starts what may start. It says whether all is done, which it can only
// be once the daemon stops.
func (r *Runner) dispatch(l life, stopping bool) (over bool) {
	r.mu.Lock()
	for r.running < parallel {
		n, ok := r.queue.take(stopping)
		if !ok {
			break
		}
		r.running++
		// Owned by Run, which counts them and waits for the count to be zero.
		go func() {
			r.run(l, n)
			r.mu.Lock()
			r.running--
			r.queue.done(n.VS)
			r.mu.Unlock()
			r.wake()
		}()
	}
	over = stopping && r.running == 0
	r.closed = r.closed || over
	dropped, lost := r.dropped, r.lastLost
	r.dropped = 0
	r.mu.Unlock()

	if dropped > 0 {
		r.log.Error("Notify queue is full, scripts are not run", event.Key, event.ScriptFailed, "dropped", dropped, "notice", lost.Kind.String(), "vs", lost.VS, "rs", lost.RS,
			"hint", "scripts take too long; the log shows which at level debug")
	}
	return over
}

// dropRest ends the queue.
func (r *Runner) dropRest() {
	r.mu.Lock()
	r.closed = true
	n, running := r.queue.clear(), r.running
	r.mu.Unlock()
	if n > 0 || running > 0 {
		r.log.Error("Scripts did not end in time at stop", event.Key, event.ScriptFailed, "not_run", n, "killed", running, "limit", StopLimit)
	}
}

func (r *Runner) giveUp() {
	r.mu.Lock()
	running := r.running
	r.mu.Unlock()
	r.log.Error("Scripts cannot be killed, they are left behind", event.Key, event.ScriptFailed, "scripts", running)
}

// identity returns what Configure set last.
func (r *Runner) identity() script.Identity {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.id
}

// firstTime says whether a warning is new since the last Configure.
func (r *Runner) firstTime(warning string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.warned[warning] {
		return false
	}
	r.warned[warning] = true
	return true
}

// told is what a script finds in its environment.
func told(n Notice) []string {
	env := []string{"SLUICE_EVENT=" + n.Kind.String(), "SLUICE_VS=" + n.VS}
	if n.RS != "" {
		env = append(env, "SLUICE_RS="+n.RS)
	}
	return env
}
