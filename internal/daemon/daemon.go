// Package daemon is process life: it turns flags into a running engine, signals
// into reloads and a stop, and tells systemd about it.
//
// It decides when a configuration may be used (at start: unless it is fatal; on a
// reload: unless it is fatal or brings an error that the running one did not have)
// and in which order things begin and end. READY=1 is sent when the first
// configuration is in the kernel, or when it is known that it cannot be for now.
// At the end the checks stop first and the table is left as on_stop says last.
//
// A second SIGTERM or SIGINT, a second or more after the first, ends the wait of
// on_stop drain; without such a wait, or once more, it kills the process.
//
// A stop that a signal asked for begins with withdraw_delay: /readyz and /vs/NAME answer
// 503, everything else goes on, and only then the table is touched. What announces the
// addresses withdraws them before their services drain. Addresses that are ours go at its
// begin, and vip_delay is waited for too. A second signal cuts that short; a handover has
// none of it, and with on_stop keep the addresses stay.
//
// What is around the table (addresses, guard, marks) ends after the engine, whose last
// wishes it works off, and the ways of check_via after that. A marker in the state folder
// says to the next process that there is something to look after.
//
// A handover is a stop that leaves the table and the state for the next process,
// whatever on_stop says. Its exit status, 75, has systemd start that at once. The
// shutdown_script is left out: what it takes away would be missed in between.
//
// Memory: reading a configuration needs, for a moment, some five times of what stays
// of it: the tree of the file, what was written before it was resolved, and in a
// reload the old configuration beside the new one. That is the highest mark; a second
// after the configuration is in use, all of it goes back to the system, beside the
// checks and not between them. From then on the collector runs with a percentage below
// Go's, since what is alive does not change and little else is made. Who sets GOGC has
// the last word, and GOMEMLIMIT is the runtime's own.
package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/build"
	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/misc"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/config/keyword"
	"github.com/sluice-lb/sluice/internal/config/syntax"
	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/host"
	"github.com/sluice-lb/sluice/internal/pace"
	"github.com/sluice-lb/sluice/internal/web"
)

// DefaultSocket is where the control socket is unless told otherwise.
const DefaultSocket = control.DefaultSocket

// longInstall is how long checks wait at the start until the table is written.
const longInstall = time.Second

// Options are what the command line says.
type Options struct {
	// File is the configuration.
	File string
	// ConfigID is for conditional lines (@ID); "" is the host name up to a dot.
	ConfigID string
	// Strict refuses a file with errors.
	Strict bool
	// Observe decides and reports but writes nothing to the kernel.
	Observe bool
	// Socket is the control socket's path, "" for none.
	Socket string
	// StateDir is the folder of the state file, "" for none. In observe mode there is
	// none either: it is the other daemon's.
	StateDir string
	Log      *slog.Logger
	CommandLine

	// events remember what Log is told, and limiter holds back what repeats; Run makes
	// them.
	events  *event.Log
	limiter *event.Limiter
}

// listen puts the events, and a limit to what repeats, in front of the log. At the end,
// flush writes what the limit holds back.
func (o *Options) listen() (flush func()) {
	limiter := event.NewLimiter()
	o.limiter = limiter
	o.events = event.NewLog(event.Size)
	o.Log = slog.New(o.events.Handler(limiter.Handler(o.Log.Handler())))
	return limiter.Close
}

// Exit statuses of Run besides those of a configuration (diag.List.ExitCode).
const (
	exitOK     = 0
	exitFailed = 1
)

// Run runs the daemon until it is told to stop and returns the exit status.
func Run(ctx context.Context, opts Options) int {
	flush := opts.listen()
	defer flush()
	log := opts.Log
	// Signals are caught before anything else: an early SIGHUP must not kill.
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, unix.SIGHUP, unix.SIGTERM, unix.SIGINT, unix.SIGUSR1)
	defer signal.Stop(signals)

	cfg, found := load(opts)
	logFindings(log, found)
	if err := usable(found, opts.Strict); err != nil {
		log.Error("Configuration refused, not starting", event.Key, event.StartRefused, "file", opts.File, "err", err)
		return max(found.ExitCode(), exitFailed)
	}
	if err := enterNamespace(cfg); err != nil {
		log.Error("Cannot enter net_namespace, not starting", event.Key, event.StartRefused, "err", err)
		return exitFailed
	}
	opts.note(log)
	release, err := claimPIDFiles(opts.PIDFiles)
	if err != nil {
		log.Error("Not starting", event.Key, event.StartRefused, "err", err)
		return exitFailed
	}
	defer func() {
		if err := release(); err != nil {
			log.Warn("A pid file is left", event.Key, event.FileFailed, "err", err)
		}
	}()
	opts.dump(log, cfg)
	d, err := newDaemon(opts, cfg, found)
	if err != nil {
		log.Error("Not starting", event.Key, event.StartRefused, "err", err)
		return exitFailed
	}
	err = d.run(ctx, signals)
	flush() // the last word is how it ended
	if err != nil {
		log.Error("Stopped after a failure", event.Key, event.Failed, "err", err)
		return exitFailed
	}
	if d.handed() {
		log.Info("Handed over", event.Key, event.Stopped, "exit_status", exitHandover)
		return exitHandover
	}
	log.Info("Stopped", event.Key, event.Stopped)
	return exitOK
}

// daemon is one run.
type daemon struct {
	opts Options
	log  *slog.Logger
	// reloading is held by the one reload at a time; config and errors are those
	// of the running configuration.
	reloading sync.Mutex
	config    *config.Config
	errors    map[string]bool
	// planning is held by the one plan at a time.
	planning sync.Mutex

	events  *event.Log
	notify  *Notifier
	sched   *checker.Front
	threads int // that sched has
	files   *files
	engine  *engine.Engine
	outward *outward
	process host.Process
	memory  *memory
	table   *table
	lanes   *lanes
	around  *surroundings
	control *control.Server

	reloadFile  reloadFile
	reloadTimes *reloadTimes
	dumps       *dumps
	web         *web.Server
	pace        *pace.Gate
	// missing are the capabilities that are lacking.
	missing atomic.Pointer[[]host.Missing]
	// detail is metrics_detail.
	detail atomic.Int32
	// withdrawDelay is withdraw_delay, vipDelay vip_delay, and keep on_stop keep.
	withdrawDelay, vipDelay atomic.Int64
	// suspends is closed when a configuration has ha_suspend, by suspend.
	suspends chan struct{}
	suspend  func()
	keep     atomic.Bool

	store *store
	// handing is closed when the daemon is to end by a handover.
	handing    chan struct{}
	handedOver sync.Once
}

func newDaemon(opts Options, cfg *config.Config, found diag.List) (*daemon, error) {
	d := &daemon{opts: opts, log: opts.Log, events: opts.events, config: cfg, errors: known(found), handing: make(chan struct{}), pace: pace.New(), suspends: make(chan struct{})}
	d.suspend = sync.OnceFunc(func() { close(d.suspends) })
	d.notify = NewNotifier()
	d.memory = newMemory(d.log)
	if _, err := host.RaiseFileLimit(); err != nil {
		d.log.Warn("Descriptor limit not raised, many checks at once may fail", event.Key, event.SettingRefused, "err", err)
	}
	d.lacks(context.Background(), cfg)
	d.threads = max(cfg.Global.CheckerThreads, config.DefaultCheckerThreads)
	processors(d.threads)
	d.sched = checks(d.threads)
	d.files = newFiles(d.log)
	d.outward = newOutward(d.log, opts.Observe)
	d.outward.configure(cfg)
	d.reloadFile = reloadFile{log: d.log, idle: opts.Observe}
	d.reloadTimes = newReloadTimes(d.log, opts.Observe, func(ctx context.Context) { d.reload(ctx) })
	d.dumps = newDumps(d.log)
	d.web = d.newWeb()
	d.settle(cfg)
	if opts.StateDir != "" && !opts.Observe {
		d.store = openStore(d.log, opts.StateDir)
	}
	if _, err := config.Assign(cfg, engine.SavedMarks(d.store.before())); err != nil {
		return nil, errors.Join(err, d.store.close())
	}
	d.lanes = newLanes(d.log, opts.Observe, opts.StateDir, func(f *edge.Failure) { d.engine.CheckVia(f) })
	made := &probes{misc: misc.Options{Identity: d.outward.identity, Warn: d.outward.unsafe}, expiry: d.expiryLog(), lanes: d.lanes}
	d.table = &table{log: d.log, config: cfg, observe: opts.Observe, global: cfg.Global}
	options := engine.Options{
		Log: d.log, Version: build.String(), ConfigFile: opts.File, Observe: opts.Observe,
		Dial: d.table.dial, Read: d.table.read, Probe: made.make, Scheduler: d.sched, Files: d.files, Notify: d.outward.tell, Pace: d.pace, SyncSockets: d.table.syncSockets,
		Draining: func(text string, left time.Duration) { d.tell(d.notify.Extend(left, text)) },
	}
	d.store.tell(&options)
	d.around = newSurroundings(d.log, opts, cfg, &options, func(r edge.Report) { d.engine.Edge(r) })
	d.engine = engine.New(options)
	d.web.Overview, d.web.Status = d.engine.Overview, d.engine.Status
	d.files.emit, d.dumps.status = d.engine.FileValue, d.engine.Status
	if opts.Socket != "" {
		c, err := control.Listen(opts.Socket)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("control socket: %w", err), d.store.close())
		}
		c.Log, c.Status, c.StatusForeign, c.Reload, c.Handover = d.log, d.frank(d.engine.Status), d.frank(d.engine.StatusForeign), d.reload, d.handover
		c.Operate, c.Overrides = d.operate, d.engine.Overrides
		c.Metrics, c.Pace = d.web.Metrics, d.pace
		c.OfferExplain(d.engine.Explain)
		c.OfferPassive(d.passive, d.setPassive)
		c.OfferTest(d.engine.Test)
		d.control = c
		c.OfferPlan(d.plan)
		c.OfferEvents(d.events)
		d.admit(cfg)
	}
	return d, nil
}

func (d *daemon) run(ctx context.Context, signals <-chan os.Signal) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	begun := time.Now()
	d.pingRefused(ctx, d.config)
	g := d.config.Global
	d.reloadFile.remove(g.Paths.ReloadFile)
	d.runScript(ctx, "startup_script", g.StartupScript, g.StartupTimeout)
	d.lanes.before(ctx, nil, d.config)
	if err := d.engine.Start(ctx, d.config); err != nil {
		return err
	}
	d.around.start()
	// What tells of changes ends last: the engine still tells at its end.
	outward, endOutward := context.WithCancel(context.WithoutCancel(ctx))
	outwardDone := make(chan error, 2)
	go func() { outwardDone <- d.outward.run(outward) }()
	go func() { outwardDone <- d.store.run(outward) }()
	over := make(chan struct{})
	defer close(over)
	group, gctx := errgroup.WithContext(ctx)
	// The checks end first and the engine last, so that nothing is decided on
	// half a stop.
	checks, endChecks := context.WithCancel(gctx)
	defer endChecks()
	written := make(chan struct{})
	group.Go(func() error {
		// A check now would only make the table wait, unless that takes long.
		select {
		case <-written:
		case <-checks.Done():
		case <-time.After(longInstall):
		}
		return ended(d.sched.Run(checks))
	})
	group.Go(func() error { d.optional("track files", d.files.Run(checks)); return nil })
	// What asks over HTTP hears of the stop for as long as it lasts.
	looks, endLooks := context.WithCancel(context.WithoutCancel(ctx))
	group.Go(func() error { defer endLooks(); return d.engine.Run(gctx) })
	group.Go(func() error { d.addresses(checks); return nil })
	group.Go(func() error { d.optional("check_via", d.lanes.run(checks)); return nil })
	group.Go(func() error {
		d.optional("process settings", d.process.Run(checks, func(err error) { d.log.Error("Process setting given up", event.Key, event.PartFailed, "err", err) }))
		return nil
	})
	group.Go(func() error { d.reloadTimes.run(checks); return nil })
	group.Go(func() error { d.memory.run(checks); return nil })
	group.Go(func() error { d.dumps.run(checks); return nil })
	group.Go(func() error { d.web.Run(looks); return nil })
	if d.control != nil {
		group.Go(func() error { d.optional("control socket", d.control.Serve(checks)); return nil })
	}
	group.Go(func() error { return ended(d.notify.Watchdog(checks, d.healthy)) })
	if d.notify.Listens() {
		group.Go(func() error {
			return followStatus(checks, d.events, func() string { return summary(d.engine.Overview()) }, func(text string) { d.tell(d.notify.Status(text)) })
		})
	}
	if d.opts.LogAddresses {
		group.Go(func() error { d.optional("address log", d.logAddresses(checks)); return nil })
	}
	group.Go(func() error {
		defer cancel()
		if d.signals(gctx, signals) {
			d.withdraw(gctx, signals, d.retract)
		}
		go d.again(signals, over)
		endChecks()
		return nil
	})
	err := d.engine.Written(gctx)
	close(written)
	if err == nil {
		d.web.Applied()
		d.ready(begun)
		d.memory.settle()
	}
	err = group.Wait()
	d.around.end(d.stays())
	endOutward()
	err = errors.Join(err, <-outwardDone, <-outwardDone)
	g = d.config.Global
	if d.handed() {
		g.ShutdownScript = nil
	}
	if !d.stays() {
		d.lanes.release(context.WithoutCancel(ctx))
	}
	d.runScript(context.WithoutCancel(ctx), "shutdown_script", g.ShutdownScript, g.ShutdownTimeout)
	if d.control != nil {
		err = errors.Join(err, d.control.Close())
	}
	return err
}

// optional logs the failure of a part that the pools can do without.
func (d *daemon) optional(part string, err error) {
	if ended(err) != nil {
		d.log.Error("A part of the daemon has failed, the rest goes on without it; restart to mend it", event.Key, event.PartFailed, "part", part, "err", err)
	}
}

// addresses tells the engine which addresses this host has, once a configuration has
// ha_suspend: a list of ten thousand is not read again with each of them for nobody.
func (d *daemon) addresses(ctx context.Context) {
	select {
	case <-ctx.Done():
		return
	case <-d.suspends:
	}
	err := host.WatchAddresses(ctx, d.engine.Addresses)
	if ctx.Err() != nil {
		return
	}
	d.log.Error("The addresses of this host cannot be watched, virtual servers with ha_suspend are always checked; restart to mend it", event.Key, event.PartFailed, "err", err)
	d.engine.Addresses(nil)
}

// settle makes the process, and what writes and reads its files, what the
// configuration asks for.
func (d *daemon) settle(cfg *config.Config) {
	for _, err := range d.process.Apply(cfg.Global.Process) {
		d.log.Warn("Process setting not made", event.Key, event.SettingRefused, "err", err)
	}
	p := cfg.Global.Paths
	d.reloadTimes.configure(p.ReloadTimeFile, p.ReloadRepeat)
	d.dumps.configure(cfg)
	d.detail.Store(int32(cfg.Global.MetricsDetail))
	d.web.Configure(cfg.Global.HTTPListen)
	d.web.ConfigureAdmin(cfg.Global.HTTPAdmin)
	d.withdrawDelay.Store(int64(cfg.Global.WithdrawDelay))
	if slices.ContainsFunc(cfg.VirtualServers, func(vs *config.VirtualServer) bool { return vs.HASuspend }) {
		d.suspend()
	}
	d.vipDelay.Store(int64(cfg.Global.VIPDelay))
	d.keep.Store(cfg.Global.OnStop == config.OnStopKeep)
}

// ended makes an orderly end of a part no error.
func ended(err error) error {
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func (d *daemon) ready(begun time.Time) {
	s := d.engine.Snapshot()
	servers := 0
	for _, vs := range s.VirtualServers {
		servers += len(vs.RealServers)
	}
	d.log.Info("Ready", event.Key, event.Started, "version", s.Version, "virtual_servers", len(s.VirtualServers), "real_servers", servers,
		"operations", s.Kernel.Operations, "kernel_ok", s.Kernel.OK, "observe", s.Observe, "took", time.Since(begun).Round(time.Millisecond))
	d.engine.Reloaded(time.Since(begun), true)
	d.tell(d.notify.Status(summary(s)))
	d.tell(d.notify.Ready())
}

func summary(s *engine.Snapshot) string {
	up := 0
	for _, vs := range s.VirtualServers {
		if vs.QuorumUp {
			up++
		}
	}
	text := fmt.Sprintf("%d of %d virtual servers have quorum", up, len(s.VirtualServers))
	if s.Passive != nil && s.Passive.On {
		text = "passive, services are withheld; " + text
	}
	if !s.Kernel.OK {
		text += "; the IPVS table cannot be written: " + s.Kernel.Error
	}
	if !s.Reload.OK {
		text += "; last reload refused: " + s.Reload.Error
	}
	return text
}

// signals handles signals until the end, and reports whether one of them asked for it.
func (d *daemon) signals(ctx context.Context, signals <-chan os.Signal) bool {
	reload := make(chan struct{}, 1)
	done := make(chan struct{})
	// Reloads run beside the signals, so that a stop need not wait for a parse.
	go func() {
		defer close(done)
		for range reload {
			d.reload(ctx)
		}
	}()
	defer func() { close(reload); <-done }()
	for {
		select {
		case <-ctx.Done():
			return false
		case <-d.handing:
			return false
		case s := <-signals:
			if s == unix.SIGINT && d.opts.IgnoreInterrupt {
				continue
			}
			switch s {
			case unix.SIGHUP:
				select {
				case reload <- struct{}{}:
				default: // one is waiting already and will see the newest file
				}
			case unix.SIGUSR1:
				d.engine.LogState(d.log)
				d.dumps.state()
			default:
				d.log.Info("Stopping", event.Key, event.Stopping, "signal", s.String())
				d.tell(d.notify.Stopping())
				return true
			}
		}
	}
}

// reload parses beside the running configuration and swaps it in, or keeps the old
// one and says why.
func (d *daemon) reload(ctx context.Context) engine.Reload {
	d.reloading.Lock()
	defer d.reloading.Unlock()
	d.memory.load()
	defer d.memory.settle()
	d.tell(d.notify.Reloading())
	defer func() {
		d.tell(d.notify.Status(summary(d.engine.Overview())))
		d.tell(d.notify.Ready())
	}()
	defer d.reloadFile.create(d.config.Global.Paths.ReloadFile)()
	d.log.Info("Reloading", event.Key, event.ReloadBegun, "file", d.opts.File)
	begun, accepted := time.Now(), false
	defer func() { d.engine.Reloaded(time.Since(begun), accepted) }()
	cfg, found := load(d.opts)
	logFindings(d.log, found)
	err := usable(found, d.opts.Strict)
	if err == nil {
		err = d.acceptable(cfg, found)
	}
	if err == nil {
		_, err = config.Assign(cfg, engine.MarksOf(d.config))
	}
	if err != nil {
		d.log.Error("Reload refused, configuration unchanged", event.Key, event.ReloadRefused, "file", d.opts.File, "err", err)
		if err := d.engine.ReloadFailed(ctx, err); err != nil {
			d.log.Error("The refusal does not show in status", event.Key, event.Bug, "err", err)
		}
		return engine.Reload{At: begun, Error: err.Error(), Findings: served(found)}
	}
	saveNew := d.dumps.before(d.config, cfg)
	// Before the engine tells of what the reload changed.
	d.outward.configure(cfg)
	d.settle(cfg)
	d.admit(cfg)
	d.pingRefused(ctx, cfg)
	d.lacks(ctx, cfg)
	d.threadsStay(cfg)
	d.lanes.before(ctx, d.config, cfg)
	done, err := d.engine.ReloadTo(ctx, cfg)
	if err != nil {
		d.log.Error("Reload not finished", event.Key, event.ReloadRefused, "err", err)
		d.lanes.after(ctx, d.config)
		return engine.Reload{At: begun, Error: err.Error()}
	}
	d.config, d.errors = cfg, known(found)
	d.lanes.after(ctx, cfg)
	_ = d.engine.Ping(ctx) // who asks next sees whether the lanes work; an error is the caller's end
	saveNew()
	accepted = true
	d.table.reloaded(cfg.Global, d.engine.Overview().Kernel.OK)
	d.log.Info("Reloaded", event.Key, event.ReloadAccepted, "file", d.opts.File, "virtual_servers", len(cfg.VirtualServers), "took", time.Since(begun).Round(time.Millisecond))
	return engine.Reload{At: begun, OK: true, Findings: served(found), Done: &done}
}

// healthy reports whether the loop turns: the watchdog's question.
func (d *daemon) healthy() bool {
	ctx, cancel := context.WithTimeout(context.Background(), max(d.notify.WatchdogInterval(), time.Second))
	defer cancel()
	err := d.engine.Ping(ctx)
	if err != nil {
		d.log.Error("The engine does not answer; systemd restarts this process unless it does soon", event.Key, event.EngineStuck, "err", err)
	}
	return err == nil
}

// tell passes a notification on. A systemd that does not listen is no reason to
// change what the daemon does.
func (d *daemon) tell(err error) {
	if err != nil {
		d.log.Warn("systemd was not told", event.Key, event.SystemdDeaf, "err", err)
	}
}

// load reads the configuration as the options say.
func load(opts Options) (*config.Config, diag.List) {
	lang := language(opts.ConfigID)
	if opts.AllConfig {
		lang.IncludeCheck = syntax.CheckAll
	}
	cfg, found := keyword.Load(opts.File, keyword.Options{Options: lang, Strict: opts.Strict})
	opts.overrule(cfg)
	return cfg, slices.Concat(withoutScripts(found, cfg), probeFindings(cfg), scriptFindings(cfg), accessFindings(cfg))
}

// language gives the configuration language this machine's files, environment and
// name.
func language(id string) syntax.Options {
	if id == "" {
		host, _ := os.Hostname()
		id, _, _ = strings.Cut(host, ".")
	}
	return syntax.Options{
		Resolver: syntax.OS{}, ConfigID: id, Env: os.LookupEnv,
		Random: func(lo, hi int64) int64 { return lo + rand.Int64N(hi-lo+1) },
	}
}
