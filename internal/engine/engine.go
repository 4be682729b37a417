package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/internal/pace"
	"github.com/sluice-lb/sluice/internal/state"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Scheduler runs probes. Its methods may be called from the engine's loop.
type Scheduler interface {
	Add(checker.Task)
	Remove(checker.ID)
	// Update replaces a task's probe and leaves its phase; RunNow has it run at once
	// besides.
	Update(checker.Task)
	RunNow(checker.ID)
	// Overdue is how late the most overdue task is.
	Overdue() time.Duration
}

// Files watches track files.
type Files interface {
	// Watch replaces the watched set and returns the present values by name.
	Watch([]*config.TrackFile) map[string]int64
}

// Reader reads the kernel's table for Status, beside the writer.
type Reader interface {
	Services(context.Context) ([]ipvs.ServiceInfo, error)
	Destinations(context.Context, ipvs.ServiceKey) ([]ipvs.DestinationInfo, error)
}

// Options are what an engine is made of.
type Options struct {
	Log        *slog.Logger
	Version    string
	ConfigFile string
	Observe    bool
	// Dial connects to the table to write. It is called again, with growing
	// pauses, as long as it fails.
	Dial func(context.Context) (apply.IPVS, error)
	// Read connects to the kernel's table for Status; nil for none.
	Read func(context.Context) (Reader, error)
	// Probe makes a checker's probe.
	Probe     func(*config.Config, *config.Checker) (checker.Probe, error)
	Scheduler Scheduler
	Files     Files
	// Notify is told what happened, on the loop's goroutine; it must not block.
	// nil for nobody.
	Notify func(Notice)
	// Saved is what an earlier process left; nil for nothing.
	Saved *state.State
	// Save takes what is to survive this one, on the loop's goroutine: at most once a
	// second, but at once for an operator's command, and at the end. It must not block.
	// nil for nobody.
	Save func(*state.State)
	// Draining is told how a stop that drains gets on, and how long it may still
	// take. nil for nobody.
	Draining func(text string, left time.Duration)
	// Edge takes what virtual servers wish of the machine around the table, on the loop's
	// goroutine; it must not block. What came of it is told by the method Edge. nil for
	// nobody: then there are no wishes.
	Edge func(edge.Wishes)
	// EdgeLeft: an earlier process may have left some of it in the machine, which goes
	// though the configuration wishes for nothing.
	EdgeLeft bool
	// Pace is for who reads; nil for no bound.
	Pace *pace.Gate
	// SyncSockets reads the kernel's sockets of a sync daemon that runs, for readers; nil
	// for nobody's.
	SyncSockets func(ipvs.SyncDaemon) ([]ipvs.SyncSocket, error)
	// KernelTimeout bounds all kernel work of one turn; 0 is 30 s.
	KernelTimeout time.Duration
}

// Engine is the owner of all state. Start it, then Run it.
type Engine struct {
	opts  Options
	log   *slog.Logger
	inbox *inbox

	// Below is the loop's own.
	config     *config.Config
	generation uint64
	vss        []*server
	byKey      map[config.VSKey]*server
	uses       map[string][]fileUse
	applier    *apply.Applier
	// values are those of the track files.
	values map[string]int64
	nextID checker.ID
	// runs are those that others may join, by what they ask; rules those in use.
	runs map[uint64]*run
	// hasty are those that come at once, for who joined them in this turn.
	hasty map[checker.ID]bool
	rules map[rules]*rules
	// touched are the virtual servers to be published, with true those of which all
	// real servers are (mark).
	touched    map[*server]bool
	allTouched bool
	// headTouched: something of no virtual server's has changed. tableTouched: the
	// table was read, or refused something.
	headTouched, tableTouched bool
	// moved: the list of virtual servers changed.
	moved bool
	// owners are the virtual servers of each service; moves those that time will
	// change.
	owners  map[ipvs.ServiceKey][]*server
	moves   moves
	notices notices
	// decided: the event that is being handled changed what the table should hold.
	decided bool
	// local are this host's addresses, nil as long as nobody told.
	local *addresses
	// conn is the table that is written; what it can besides writing services is
	// asked of it.
	conn apply.IPVS
	// stuck: conn did not answer, and is to be replaced before it is asked again.
	stuck      bool
	flushed    bool
	globalsDue bool
	// globalsAt is when a global setting that could not be made is tried again, and
	// globalsErr the reason that was logged.
	globalsAt  time.Time
	globalsErr string
	// syncing are the kernel's sync daemons that are ours.
	syncing map[ipvs.SyncState]bool
	syncs   syncing
	// original are the kernel's timeouts before this process changed them.
	original *ipvs.Timeouts
	// orders are what operators asked for, holds the departures that wait for
	// replacements.
	orders map[orderKey]Order
	// ordersDue: they are to be saved.
	ordersDue bool
	holds     map[config.VSKey]*hold
	// passive is whether services are withheld, edge what goes with them.
	passive passivity
	edge    edging
	// after is done at the end of the turn, when what it asked for is written and
	// published.
	after []func()
	// written is done at the end of a turn that leaves no portion of bulk work
	// behind; portions says that the last one did.
	written  []func()
	portions bool
	// memory is what an earlier process saved; operator what operators asked for,
	// as saved.
	memory   recollection
	operator json.RawMessage
	// marks are those of the configuration marked, for saving.
	marks    []state.Mark
	marked   *config.Config
	saving   saving
	stopping stopping
	// rehearsal: it is a copy that finds out what a reload would do, and nobody is told.
	rehearsal bool

	started   time.Time
	reload    Reload
	applied   time.Time
	kernel    Kernel
	backoff   time.Duration
	retryAt   time.Time
	tickAt    time.Time
	connected bool
	reconcile reconciling

	tally     runTally
	measures  measures
	published atomic.Pointer[published]
	// running is config, for those that plan what another one changes; logAll its
	// checker_log_all_failures, for the scheduler's side.
	running atomic.Pointer[config.Config]
	logAll  atomic.Bool
	// labels are for the log.
	labels atomic.Pointer[labels]
	reader lazyReader
	trials trials

	syncCounters syncCounters
}

// server is one virtual server: the framework's state with what only people need.
type server struct {
	*framework.VirtualServer
	name  string
	since time.Time
	// rs are the situations to be told of: those published, but for what is marked.
	rs    []*situation
	tasks [][]*task
	// shown is what was published last.
	shown *piece
	// marked are the real servers whose situation may have changed.
	marked []int32
	// place is where it stands in the configuration. plain: each of its real servers
	// has a destination of its own, in services that are its alone.
	place int
	plain bool
	// moveAt is when time alone changes something, and move its place by that, from
	// 1; 0 for none.
	moveAt time.Time
	move   int
	// suspended: no check runs, since its address is not on this host.
	suspended bool
	// hold keeps servers that a reload took away; nil for none.
	hold *hold
	// floorSince is when it came to its floor; zero while it is not there.
	floorSince time.Time
	// withheld: apply was told to keep it out of the table. vip is nil without anything
	// of the machine.
	withheld bool
	vip      *vipState
	// told is what is told of its mark, nil without nftables_ipvs.
	told *Marked
}

// fileUse is one place that a watched file's value goes to.
type fileUse struct {
	vs          *server
	server, use int
}

// New returns an engine without a configuration.
func New(opts Options) *Engine {
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	if opts.KernelTimeout == 0 {
		opts.KernelTimeout = 30 * time.Second
	}
	e := &Engine{
		opts: opts, inbox: newInbox(),
		syncing: map[ipvs.SyncState]bool{}, orders: map[orderKey]Order{}, holds: map[config.VSKey]*hold{},
		runs: map[uint64]*run{}, hasty: map[checker.ID]bool{}, rules: map[rules]*rules{}, uses: map[string][]fileUse{}, byKey: map[config.VSKey]*server{}, touched: map[*server]bool{},
		started: time.Now(), stopping: newStopping(),
	}
	e.edge = newEdging(&e.opts)
	e.log = slog.New(labelHandler{opts.Log.Handler(), &e.labels})
	e.measures.now = e.inbox.now
	e.published.Store(&published{})
	return e
}

// occurrence is anything that the loop handles.
type occurrence interface{ handle(e *Engine) }

// verdictEvent is a checker's new verdict, or a new weight that it asks for.
type verdictEvent struct {
	task    *task
	verdict framework.Verdict
	// changed: the verdict is new.
	changed        bool
	dynamic        framework.Dynamic
	outcome        checker.Outcome
	attempt, limit uint32
}

type fileEvent struct {
	name  string
	value int64
}

type callEvent struct {
	call func(*Engine)
	done chan struct{}
}

// FileValue reports a watched file's new value.
func (e *Engine) FileValue(name string, value int64) { e.inbox.send(fileEvent{name, value}) }

// ReloadFailed records that a reload was refused, for status.
func (e *Engine) ReloadFailed(ctx context.Context, refusal error) error {
	return e.call(ctx, func(e *Engine) {
		e.reload = Reload{At: time.Now(), Error: refusal.Error()}
		e.headTouched = true
	})
}

// Ping returns when the loop has handled everything sent before it.
func (e *Engine) Ping(ctx context.Context) error { return e.call(ctx, func(*Engine) {}) }

// call has the loop do something and waits until its turn is over.
func (e *Engine) call(ctx context.Context, f func(*Engine)) error {
	done := make(chan struct{})
	e.inbox.send(callEvent{call: f, done: done})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the loop did not answer: %w", context.Cause(ctx))
	}
}

// Start takes the first configuration: it reads the table, adopts what is ours,
// writes what is wanted and adds the checkers. A table that cannot be reached is
// not an error: it is retried.
func (e *Engine) Start(ctx context.Context, cfg *config.Config) error {
	e.values = e.opts.Files.Watch(cfg.TrackFiles)
	e.applier = apply.New(nil, translate(cfg.VirtualServers), e.log)
	e.applier.ReportOnly(cfg.Global.Drift == config.DriftReport)
	e.applier.Observe(&e.measures)
	e.remember(e.opts.Saved)
	e.configure(cfg, labelsOf(nil, cfg.VirtualServers))
	e.generation = e.memory.generation + 1
	e.reload = Reload{At: time.Now(), OK: true}
	e.applied = e.reload.At
	e.lookPassive(time.Now())
	if e.passive.on {
		// Before the table is read: what drains already must not get its weights back.
		for _, vc := range cfg.VirtualServers {
			e.must(e.applier.Withhold(true, vc.Key))
		}
	}
	e.applier.Follow(e.edge.on)
	e.connect(ctx)
	for _, vc := range cfg.VirtualServers {
		vs := e.resume(vc, lookup(e.values), time.Now())
		vs.withheld = e.passive.on
		e.vss = append(e.vss, vs)
		e.add(vs)
		e.noteStart(vs)
	}
	for _, vs := range e.vss {
		if err := e.applier.Init(vs.VirtualServer); err != nil {
			return err
		}
	}
	e.memory = recollection{}
	e.turn(ctx)
	return nil
}

func translate(vcs []*config.VirtualServer) []*apply.VirtualServer {
	vss := make([]*apply.VirtualServer, len(vcs))
	for i, vc := range vcs {
		vss[i] = apply.Translate(vc)
	}
	return vss
}

func lookup(values map[string]int64) framework.Values {
	return func(name string) int64 { return values[name] }
}

// Run handles events until the context ends, then leaves the table as on_stop
// says.
func (e *Engine) Run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		timer.Reset(e.wait(time.Now()))
		if e.portions {
			// What happened goes before what is left.
			e.handleAll()
		}
		select {
		case <-ctx.Done():
			return e.stop(ctx)
		case <-e.inbox.ready:
			e.handleAll()
		case <-timer.C:
		}
		e.turn(ctx)
	}
}

// wait returns how long nothing is due.
func (e *Engine) wait(now time.Time) time.Duration {
	moments := []time.Time{e.retryAt, e.saveAt(), e.expiry(), e.moves.next(), e.releaseAt()}
	if !e.stuck {
		if e.portions || e.connected && e.reconcile.due {
			return 0
		}
		// All of this asks the kernel.
		_, drained := e.applier.Draining()
		moments = append(moments, e.tickAt, e.globalsAt, e.reconcile.at, drained)
	}
	next := now.Add(time.Hour)
	for _, t := range moments {
		if !t.IsZero() && t.Before(next) {
			next = t
		}
	}
	return max(next.Sub(now), 0)
}

// handleAll handles what has happened.
func (e *Engine) handleAll() {
	for _, l := range e.inbox.take() {
		e.measures.lag.observe(loopBounds, e.inbox.now()-l.sent)
		e.decided = false
		l.handle(e)
		if _, verdict := l.occurrence.(verdictEvent); verdict && e.decided && e.connected {
			e.measures.decided(l.sent)
		}
	}
}

// turn writes what the events of this turn changed and publishes it.
func (e *Engine) turn(ctx context.Context) {
	begun := e.inbox.now()
	defer func() { e.measures.turn.observe(loopBounds, e.inbox.now()-begun) }()
	kctx, cancel := context.WithTimeout(ctx, e.opts.KernelTimeout)
	defer cancel()
	e.hurryUp()
	now := time.Now()
	e.advanceDue(now)
	e.expire(now)
	e.release(now)
	if !e.connected && !e.retryAt.IsZero() && !now.Before(e.retryAt) {
		e.connect(kctx)
	}
	var err error
	if e.redialDue(now) {
		if err = e.redial(kctx); err != nil {
			e.outcome(now, err)
		}
	}
	if e.connected && e.edge.on && !e.edge.heard {
		e.found()
	}
	usable := e.connected && !e.stuck
	before := e.applier.Operations()
	switch n, deadline := e.applier.Draining(); {
	case !usable:
	case e.reconcileDue(now) && (e.reconcile.behind || e.portions): // after what the reload changed
	case e.reconcileDue(now):
		err = e.reconcileNow(kctx, now)
	case n > 0 && (!e.tickAt.IsZero() && !now.Before(e.tickAt) || !deadline.IsZero() && !now.Before(deadline)):
		if !now.Before(e.tickAt) {
			e.tickAt = time.Time{}
		}
		e.tableTouched = true
		e.readTimeouts(kctx)
		err = e.applier.Tick(kctx, now)
	}
	if usable && e.globalsDue && !now.Before(e.globalsAt) {
		e.globals(kctx, now)
	}
	// One portion of bulk work is enough for a turn.
	written := e.applier.More() && e.applier.Operations() != before
	if usable && e.applier.Pending() && !written && (e.applier.More() || e.retryAt.IsZero() || !now.Before(e.retryAt) || len(e.touched) > 0) {
		err = errors.Join(err, e.applier.Flush(kctx, now))
	}
	if usable {
		e.settle(now, err)
	}
	if !e.applier.Pending() {
		e.measures.forget()
	}
	switch n, _ := e.applier.Draining(); {
	case n == 0:
		e.tickAt = time.Time{}
	case e.tickAt.IsZero():
		e.tickAt = now.Add(e.config.Global.DrainInterval)
	}
	e.handOver(now)
	e.noteOwed()
	e.saveOrders()
	if e.tells(now) {
		changed := len(e.touched) > 0 || e.allTouched || e.headTouched || e.tableTouched
		e.publish(now)
		e.save(now, changed)
	}
	e.after = append(e.after, e.reconcile.done(e.connected && !e.stuck)...)
	for _, f := range e.after {
		f()
	}
	e.after = nil
	if !e.portions {
		for _, f := range e.written {
			f()
		}
		e.written = nil
	}
}

// Backoff bounds between attempts at a table that refuses or is not there.
const (
	backoffMin = time.Second
	backoffMax = 30 * time.Second
)

// connect dials the table and adopts what is in it.
func (e *Engine) connect(ctx context.Context) {
	conn, err := e.opts.Dial(ctx)
	if err == nil {
		e.applier.Connect(conn)
		if err = e.begin(ctx, conn); err == nil {
			err = e.applier.Adopt(ctx)
		}
		if err == nil {
			if e.backoff > 0 {
				e.kernel.Error = "" // this tells that it is over
				e.log.Info("IPVS table reachable, applying everything", event.Key, event.KernelBack)
			}
			e.connected = true
			e.allTouched = true
			e.reconcile.next(time.Now(), e.config.Global.ReconcileInterval)
			e.readTimeouts(ctx)
			e.globalsDue, e.globalsAt = true, time.Time{}
			e.outcome(time.Now(), nil)
			return
		}
		// Each attempt dials anew.
		if c, ok := conn.(io.Closer); ok {
			err = errors.Join(err, c.Close())
		}
	}
	e.outcome(time.Now(), err)
}

// outcome keeps the kernel's state for people and the retry timer.
func (e *Engine) outcome(now time.Time, err error) {
	if n := e.applier.Operations(); n != e.kernel.Operations {
		e.kernel.Operations = n
		// What no event of this turn asked for was due since an earlier one.
		e.tableTouched = e.tableTouched || len(e.touched) == 0 || !e.retryAt.IsZero()
	}
	if n := e.applier.Repaired(); n != e.kernel.DriftRepaired {
		e.kernel.DriftRepaired = n
		e.tableTouched = true
	}
	if err == nil {
		if e.reconcile.failed {
			return // it is tried again with the next attempt
		}
		if !e.applier.Pending() {
			e.backoff, e.retryAt = 0, time.Time{}
		}
		if !e.kernel.OK {
			if e.kernel.Error != "" {
				e.log.Info("Kernel takes changes again", event.Key, event.KernelBack, "after", now.Sub(e.kernel.Since).Round(time.Millisecond))
			}
			e.kernel.OK, e.kernel.Error, e.kernel.Since = true, "", now
			e.tableTouched = true
		}
		return
	}
	e.kernel.Errors++
	e.stuck = e.connected && (e.stuck || unanswered(err))
	e.backoff = e.longer()
	e.retryAt = now.Add(e.backoff)
	// A failure that repeats is one fact: it is logged when it begins or changes.
	if e.kernel.OK || e.kernel.Error != err.Error() {
		if e.connected {
			e.log.Error("Kernel refused a change, will retry", event.Key, event.KernelRefused, "err", err, "retry_in", e.backoff)
		} else {
			e.log.Error("IPVS table not reachable, will retry; checks go on", event.Key, event.KernelUnreachable, "err", err, "retry_in", e.backoff)
		}
	}
	if e.kernel.OK || e.kernel.Since.IsZero() {
		e.kernel.Since = now
	}
	e.kernel.OK, e.kernel.Error = false, err.Error()
	e.tableTouched = true
}

// longer is the next pause after one that did not help.
func (e *Engine) longer() time.Duration { return min(max(e.backoff*2, backoffMin), backoffMax) }
