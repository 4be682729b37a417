package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// farm are the real servers of a test: what a probe of each finds.
type farm struct {
	mu     sync.Mutex
	result map[string]checker.Outcome
	probes map[string]int
	// delay is how long a probe takes.
	delay time.Duration
}

func (f *farm) set(n int, r checker.Result, reason string) { f.setPort(n, 80, r, reason) }

func (f *farm) setPort(n, port int, r checker.Result, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.result[at(n, port)] = checker.Outcome{Result: r, Reason: reason, Took: time.Millisecond}
}

func (f *farm) put(n int, o checker.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.result[target(n)] = o
}

func (f *farm) count(n int) int { return f.countPort(n, 80) }

func (f *farm) countPort(n, port int) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.probes[at(n, port)]
}

func at(n, port int) string { return fmt.Sprintf("10.0.0.%d:%d", n, port) }

func target(n int) string { return fmt.Sprintf("10.0.0.%d:80", n) }

type farmProbe struct {
	f  *farm
	at string
}

func (p farmProbe) Run(context.Context) checker.Outcome {
	time.Sleep(p.f.delay)
	p.f.mu.Lock()
	defer p.f.mu.Unlock()
	p.f.probes[p.at]++
	o := p.f.result[p.at]
	o.Took = max(o.Took, p.f.delay)
	return o
}

// fakeFiles has values that a test sets before Watch.
type fakeFiles map[string]int64

func (f fakeFiles) Watch(tfs []*config.TrackFile) map[string]int64 {
	vs := map[string]int64{}
	for _, tf := range tfs {
		vs[tf.Name] = f[tf.Name]
	}
	return vs
}

// Known implements knower: what a test has set.
func (f fakeFiles) Known(name string) bool {
	_, ok := f[name]
	return ok
}

// rig is an engine with a real scheduler over a table in memory, in a bubble of
// virtual time.
type rig struct {
	*testing.T
	e     *Engine
	farm  *farm
	table *ipvstest.Table
	files fakeFiles
	log   *bytes.Buffer
	logMu sync.Mutex
	notes []Notice
	dial  error
	// orders are what an earlier process left.
	orders []Order
	cancel context.CancelCauseFunc
	done   chan error
	sched  context.CancelFunc
	state  stateFile
	// events remember what is logged.
	events *event.Log
	// connect and read are other connections than the table in memory itself.
	connect func(context.Context) (apply.IPVS, error)
	read    func(context.Context) (Reader, error)
	// ground is the machine around the table, nil for none.
	ground *ground
	// sockets are those of sync daemons.
	sockets func(ipvs.SyncDaemon) ([]ipvs.SyncSocket, error)
}

func (r *rig) Write(b []byte) (int, error) {
	r.logMu.Lock()
	defer r.logMu.Unlock()
	return r.log.Write(b)
}

func (r *rig) logged() string {
	synctest.Wait()
	r.logMu.Lock()
	defer r.logMu.Unlock()
	return r.log.String()
}

func newRig(t *testing.T) *rig {
	return &rig{T: t, table: ipvstest.New(), files: fakeFiles{}, log: &bytes.Buffer{},
		events: event.NewLog(event.Size),
		farm:   &farm{result: map[string]checker.Outcome{}, probes: map[string]int{}}}
}

// start runs an engine; several in a row are restarts over the same table.
func (r *rig) start(cfg *config.Config) {
	r.Helper()
	sched := checker.NewScheduler(checker.Options{Limit: 100})
	connect, read := r.connect, r.read
	if connect == nil {
		connect = func(context.Context) (apply.IPVS, error) { return r.table, r.dialError() }
	}
	if read == nil {
		read = func(context.Context) (Reader, error) { return r.table, nil }
	}
	opts := Options{
		Log:  slog.New(r.events.Handler(slog.NewTextHandler(r, &slog.HandlerOptions{Level: slog.LevelInfo}))),
		Dial: connect, Read: read,
		Probe: func(_ *config.Config, c *config.Checker) (checker.Probe, error) {
			return farmProbe{r.farm, c.Conn.Target.String()}, nil
		},
		Notify: func(n Notice) {
			r.logMu.Lock()
			defer r.logMu.Unlock()
			r.notes = append(r.notes, n)
		},
		Scheduler: sched, Files: r.files, Version: "test", ConfigFile: "test.conf",
		Saved: r.state.load(r.T), Save: r.state.saver(), Draining: r.state.progress, SyncSockets: r.sockets,
	}
	if r.ground != nil {
		opts.Edge, opts.EdgeLeft = r.ground.take, r.ground.left
	}
	r.e = New(opts)
	if r.ground != nil {
		r.ground.e = r.e
	}
	r.e.Restore(r.orders)
	ctx, cancel := context.WithCancelCause(r.Context())
	sctx, scancel := context.WithCancel(r.Context())
	r.cancel, r.sched, r.done = cancel, scancel, make(chan error, 2)
	if err := r.e.Start(ctx, cfg); err != nil {
		r.Fatal(err)
	}
	go func() { r.done <- r.e.Run(ctx) }()
	go func() { _ = sched.Run(sctx); r.done <- nil }()
}

func (r *rig) dialError() error {
	r.logMu.Lock()
	defer r.logMu.Unlock()
	return r.dial
}

func (r *rig) setDial(err error) {
	r.logMu.Lock()
	defer r.logMu.Unlock()
	r.dial = err
}

// stop ends the engine as a signal would (nil), or as a failure elsewhere.
func (r *rig) stop(cause error) {
	r.Helper()
	r.sched()
	r.cancel(cause)
	for range 2 {
		if err := <-r.done; err != nil {
			r.Error(err)
		}
	}
}

var errPart = errors.New("another part failed")

// crash ends everything without the engine touching the table.
func (r *rig) crash() { r.stop(errPart) }

func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (r *rig) reload(cfg *config.Config) {
	r.Helper()
	if err := r.e.Reload(r.Context(), cfg); err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
}

func (r *rig) want(content string) {
	r.Helper()
	synctest.Wait()
	if got := r.content(); got != content {
		r.Errorf("table holds %q, want %q", got, content)
	}
}

func (r *rig) content() string {
	ds, err := r.table.Destinations(r.Context(), key)
	if err != nil {
		r.Fatal(err)
	}
	var out []string
	for _, d := range ds {
		out = append(out, fmt.Sprintf("%d:%d", d.Addr.As4()[3], d.Weight))
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

func (r *rig) connections(n int, active uint32) {
	r.Helper()
	dk := ipvs.DestinationKey{Addr: netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), Port: 80}
	if err := r.table.SetCounters(key, dk, ipvs.Counters{Active: active}); err != nil {
		r.Fatal(err)
	}
}

// writes returns how many operations the table has seen since the last call.
func (r *rig) writes() int {
	synctest.Wait()
	n := len(r.table.Log())
	r.table.ResetLog()
	return n
}

var (
	vip = netip.MustParseAddrPort("192.0.2.1:80")
	key = ipvs.ServiceKey{Family: ipvs.INET, Protocol: ipvs.TCP, Addr: vip.Addr(), Port: 80}
)

// conf makes a configuration of one virtual server: delay_loop 10 s, checks spread
// over it, no retries.
func conf(servers ...int) *config.Config {
	cfg := &config.Config{Global: config.Global{DrainInterval: time.Minute}}
	vs := &config.VirtualServer{
		Key:       config.VSKey{Protocol: config.TCP, Addr: vip},
		Entries:   []config.Entry{{Addr: vip, Family: config.IPv4}},
		Protocol:  config.TCP,
		Scheduler: "rr",
		Quorum:    1,
	}
	for _, n := range servers {
		at := netip.MustParseAddrPort(target(n))
		vs.RealServers = append(vs.RealServers, &config.RealServer{
			Key: config.RSKey{AddrPort: at}, Weight: 1, Forward: config.Forwarding{Method: config.NAT},
			Checkers: []*config.Checker{{
				Kind: config.TCPCheck,
				Conn: config.Connection{Target: at, Timeout: time.Second},
				Schedule: config.Schedule{DelayLoop: 10 * time.Second, DelayBeforeRetry: time.Second,
					Warmup: 10 * time.Second, Rise: 1},
			}},
		})
	}
	cfg.VirtualServers = []*config.VirtualServer{vs}
	return cfg
}

func each(cfg *config.Config, f func(*config.RealServer)) *config.Config {
	for _, rs := range cfg.VirtualServers[0].RealServers {
		f(rs)
	}
	return cfg
}

func alphaConf(servers ...int) *config.Config {
	return each(conf(servers...), func(rs *config.RealServer) { rs.Checkers[0].Alpha = true })
}
