package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/notify"
	"github.com/sluice-lb/sluice/internal/notify/fifo"
	"github.com/sluice-lb/sluice/internal/notify/mail"
	"github.com/sluice-lb/sluice/internal/script"
)

// outward tells the world of changes: scripts, FIFOs and mail. In observe mode
// another daemon does the work, and tells of it.
type outward struct {
	log     *slog.Logger
	observe bool
	id      atomic.Pointer[script.Identity]
	scripts *notify.Runner
	fifos   *fifo.Writer
	mailer  *mail.Mailer

	mu sync.Mutex
	// warned are warnings about scripts since the last configuration.
	warned map[string]bool
}

func newOutward(log *slog.Logger, observe bool) *outward {
	o := &outward{log: log, observe: observe, scripts: notify.New(notify.Options{Log: log}), mailer: mail.New(mail.Options{Log: log})}
	o.fifos = fifo.New(fifo.Options{Log: log, Start: o.reader})
	return o
}

// identity returns what the configuration says of all scripts.
func (o *outward) identity() script.Identity { return *o.id.Load() }

// configure takes a configuration, before the engine tells of what it changed.
func (o *outward) configure(cfg *config.Config) {
	g, id := &cfg.Global, identityOf(cfg)
	o.id.Store(&id)
	o.mu.Lock()
	o.warned = map[string]bool{}
	o.mu.Unlock()
	o.scripts.Configure(o.identity())
	if o.observe {
		return
	}
	o.fifos.Configure(fifo.Config{FIFOs: g.FIFOs, ScriptUser: g.ScriptUser, ScriptGroup: g.ScriptGroup})
	o.mailer.Configure(g.Mail, g.RouterID)
}

// run works until the context ends, then tells what is left. Its context must
// outlive the engine's.
func (o *outward) run(ctx context.Context) error {
	parts := []func(context.Context) error{o.scripts.Run, o.fifos.Run, o.mailer.Run}
	ends := make(chan error, len(parts))
	for _, part := range parts {
		go func() { ends <- ended(part(ctx)) }()
	}
	var errs []error
	for range parts {
		errs = append(errs, <-ends)
	}
	return errors.Join(errs...)
}

// unsafe warns of a script that others can change, once for each configuration: a
// thousand checks may share one.
func (o *outward) unsafe(warning string) {
	o.mu.Lock()
	known := o.warned[warning]
	o.warned[warning] = true
	o.mu.Unlock()
	if !known {
		o.log.Warn("A script is not safe", event.Key, event.ScriptUnsafe, "reason", warning, "hint", "mend the mode or the owner, or run it as another user; enable_script_security would refuse it")
	}
}

// reader runs the program that reads a FIFO to its end.
func (o *outward) reader(ctx context.Context, s *config.Script) error {
	r := script.Run(ctx, script.Command{Script: s, Identity: o.identity()})
	for _, w := range r.Warnings {
		o.unsafe(w)
	}
	switch {
	case r.Err != nil:
		return r.Err
	case r.Stopped, r.Code == 0 && r.Signal == 0:
		return nil
	case r.Output != "":
		return fmt.Errorf("%s: %s", r.Ended(), r.Output)
	}
	return errors.New(r.Ended())
}

// events are the kinds that scripts and FIFOs are told of.
var events = map[engine.NoticeKind]struct {
	script notify.Kind
	up     bool
}{
	engine.RealServerUp:   {notify.RealServerUp, true},
	engine.RealServerDown: {notify.RealServerDown, false},
	engine.QuorumUp:       {notify.QuorumUp, true},
	engine.QuorumDown:     {notify.QuorumDown, false},
}

// tell passes a notice of the engine's on. It never blocks.
func (o *outward) tell(n engine.Notice) {
	ev, isEvent := events[n.Kind]
	switch {
	case o.observe:
		if n.Script != nil {
			o.log.Info("Observing, the script is not run", event.Key, event.ScriptSpared, "notice", ev.script.String(), "vs", n.VS, "rs", n.RS, "script", n.Script.Argv[0])
		}
		return
	case isEvent && n.RS != "":
		o.fifos.RealServer(n.RS, n.VS, ev.up)
	case isEvent:
		o.fifos.VirtualServer(n.VS, ev.up)
	}
	if isEvent && n.Script != nil {
		o.scripts.Notify(notify.Notice{Kind: ev.script, VS: n.VS, RS: n.RS, Script: n.Script})
	}
	if n.Mail != "" {
		o.mailer.Send(mail.Message{VS: n.VS, RS: n.RS, Up: ev.up || n.Kind == engine.CheckerUp, Body: n.Mail})
	}
}
