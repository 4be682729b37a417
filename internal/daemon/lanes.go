package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/host/lane"
)

// lanePatience bounds what a start or a reload waits for the kernel.
const lanePatience = 30 * time.Second

// lanes are the ways of check_via: nothing of them is there unless a configuration has
// the keyword, or an earlier process's had. In observe mode there are none.
type lanes struct {
	log    *slog.Logger
	keeper *lane.Keeper // nil in observe mode
	manage atomic.Bool
	// preparing: the lanes of two configurations are there, of which some may not get
	// along.
	preparing atomic.Bool

	// tell hears why check_via does not work, nil when it does; it must not wait.
	tell func(*edge.Failure)
	mu   sync.Mutex
	// used are the lanes of the configuration in use, or of the one that is about to be,
	// and since is when one of them began to fail.
	used  []lane.Lane
	since time.Time
}

func newLanes(log *slog.Logger, observe bool, stateDir string, tell func(*edge.Failure)) *lanes {
	l := &lanes{log: log, tell: tell}
	if observe {
		return l
	}
	o := lane.Options{Manage: l.manage.Load, Changed: l.changed, Set: func(name, value, was, why string) {
		log.Info("Sysctl set", event.Key, event.KernelSet, "sysctl", name, "value", value, "was", was, "why", why)
	}}
	m := newMarker(stateDir, "check_via", "rules, routes and tunnels of check_via are in the kernel")
	o.Before, o.Begin, o.End = m.left(), m.begin, m.end
	o.Made = parseSettings(m.rest())
	o.Remember = func(made []lane.Setting) error { return m.keep(formatSettings(made)) }
	l.keeper = lane.New(o)
	return l
}

// changed logs that a lane ceased to work, or works again. A check that cannot be made
// says so as well, each time.
func (l *lanes) changed(of lane.Lane, err error) {
	defer l.report()
	if errors.Is(err, lane.ErrTaken) && l.preparing.Load() {
		return
	}
	if err != nil {
		l.log.Error("check_via does not work through a real server, what it checks keeps its last state; tried again", event.Key, event.KernelUnset, "real_server", of.Server.String(), "mark", hex(of.Mark), "err", err)
		return
	}
	l.log.Info("check_via leads through a real server", event.Key, event.KernelSet, "real_server", of.Server.String(), "mark", hex(of.Mark))
}

// hex writes a mark as ip does.
func hex(mark uint32) string { return fmt.Sprintf("%#x", mark) }

// before makes the kernel ready for a configuration while another one, nil for none, is
// still in use.
func (l *lanes) before(ctx context.Context, old, cfg *config.Config) {
	l.manage.Store(cfg.Global.ManageSysctls)
	list := lanesOf(cfg)
	if old != nil {
		list = slices.Concat(list, lanesOf(old))
	}
	l.preparing.Store(old != nil)
	l.use(lanesOf(cfg))
	l.sync(ctx, list)
	l.preparing.Store(false)
}

// after leaves what the configuration in use needs.
func (l *lanes) after(ctx context.Context, cfg *config.Config) {
	list := lanesOf(cfg)
	l.use(list)
	l.sync(ctx, list)
}

func (l *lanes) use(list []lane.Lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.used = list
}

// report tells whether the lanes that are used work.
func (l *lanes) report() {
	l.mu.Lock()
	defer l.mu.Unlock()
	var first error
	var server netip.Addr
	n := 0
	for _, of := range l.used {
		err := l.keeper.Err(of.Mark, of.IPv6)
		if err == nil || errors.Is(err, lane.ErrTaken) && l.preparing.Load() {
			continue
		}
		if n++; first == nil {
			first, server = err, of.Server
		}
	}
	if first == nil {
		l.since = time.Time{}
		l.tell(nil)
		return
	}
	if l.since.IsZero() {
		l.since = time.Now()
	}
	reason := fmt.Sprintf("through %s: %s; its checks keep their last state, tried again", server, strings.TrimPrefix(first.Error(), "check_via: "))
	if n > 1 {
		reason += fmt.Sprintf(" (and so for %d more)", n-1)
	}
	l.tell(&edge.Failure{Feature: "check_via", Reason: reason, Since: l.since})
}

// release takes everything away, at the end.
func (l *lanes) release(ctx context.Context) {
	l.use(nil)
	l.sync(ctx, nil)
}

func (l *lanes) sync(ctx context.Context, list []lane.Lane) {
	if l.keeper == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, lanePatience)
	defer cancel()
	if err := l.keeper.Sync(ctx, list); err != nil {
		l.failed(err)
	}
	l.report()
}

func (l *lanes) failed(err error) {
	l.log.Error("The ways of check_via are not as they should be, tried again", event.Key, event.KernelUnset, "err", err)
}

// formatSettings writes settings for the marker: device, name, what it was and is.
func formatSettings(made []lane.Setting) string {
	var b strings.Builder
	for _, s := range made {
		fmt.Fprintf(&b, "setting %s %s %s %s\n", s.Device, s.Name, s.Was, s.Now)
	}
	return b.String()
}

// parseSettings leaves out what it does not understand.
func parseSettings(text string) (made []lane.Setting) {
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 5 && f[0] == "setting" && !strings.Contains(f[1]+f[2], "/") {
			made = append(made, lane.Setting{Device: f[1], Name: f[2], Was: f[3], Now: f[4]})
		}
	}
	return made
}

// run repairs until the context ends.
func (l *lanes) run(ctx context.Context) error {
	if l.keeper == nil {
		return nil
	}
	return ended(l.keeper.Run(ctx, l.failed))
}

// lanesOf are the lanes that a configuration's checks need, each once.
func lanesOf(cfg *config.Config) []lane.Lane {
	if cfg == nil {
		return nil
	}
	var list []lane.Lane
	seen := map[lane.Lane]bool{}
	for _, vs := range cfg.VirtualServers {
		for _, rs := range vs.RealServers {
			for _, c := range rs.Checkers {
				if c.Conn.Via == nil {
					continue
				}
				if of := laneOf(&c.Conn); !seen[of] {
					seen[of] = true
					list = append(list, of)
				}
			}
		}
	}
	return list
}

func laneOf(c *config.Connection) lane.Lane {
	return lane.Lane{Mark: c.Via.Mark, Server: c.Via.Server.Unmap(), Forward: c.Via.Forward, IPv6: c.Target.Addr().Unmap().Is6()}
}

// lead makes a probe one that is not run while its lane does not work: that is this
// machine's fault, and no verdict on a server.
func (l *lanes) lead(c *config.Checker, p checker.Probe) checker.Probe {
	if c.Conn.Via == nil {
		return p
	}
	of := &led{Probe: p, via: laneOf(&c.Conn), target: c.Conn.Target.String()}
	if l != nil && l.keeper != nil {
		of.lane = l.keeper.Err
	}
	if talk, ok := p.(checker.Conversation); ok {
		return &ledTalk{Conversation: talk, led: of}
	}
	return of
}

// led asks its lane before each run.
type led struct {
	checker.Probe
	// lane says why a lane does not work, nil in observe mode.
	lane   func(mark uint32, ipv6 bool) error
	via    lane.Lane
	target string
}

var errObserving = errors.New("check_via: in observe mode nothing is written to the kernel, so that there is no way through the real server")

// Run runs the check if its lane works.
func (p *led) Run(ctx context.Context) checker.Outcome {
	began := time.Now()
	if err := p.obstacle(); err != nil {
		return p.unable(err, began)
	}
	return p.Probe.Run(ctx)
}

func (p *led) obstacle() error {
	if p.lane == nil {
		return errObserving
	}
	return p.lane(p.via.Mark, p.via.IPv6)
}

func (p *led) unable(err error, began time.Time) checker.Outcome {
	problem := checker.Problem{
		Site:   checker.Site{Stage: checker.StagePrepare, Step: "through real server " + p.via.Server.String() + " to", Peer: p.target},
		Result: checker.Unable, Got: err.Error(), Took: time.Since(began),
	}
	return problem.Outcome()
}

// ledTalk is a led whose probe is a conversation, so that no goroutine is needed: the
// lane is asked without blocking.
type ledTalk struct {
	checker.Conversation
	led *led
	err error
}

// Run is led's.
func (p *ledTalk) Run(ctx context.Context) checker.Outcome { return p.led.Run(ctx) }

// Begin has nothing to connect to while the lane does not work.
func (p *ledTalk) Begin() *config.Connection {
	if p.err = p.led.obstacle(); p.err != nil {
		return nil
	}
	return p.Conversation.Begin()
}

// Next is the conversation's, after a run that began.
func (p *ledTalk) Next() (*config.Connection, checker.Outcome) {
	if p.err != nil {
		return nil, p.led.unable(p.err, time.Now())
	}
	return p.Conversation.Next()
}
