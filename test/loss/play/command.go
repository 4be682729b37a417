package play

import (
	"context"
	"os"
	"path/filepath"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/test/daemon"
)

// handedOver is sluiced's exit status after a handover.
const handedOver = 75

// sluice says whether the run is one of sluiced's, which takes commands.
func (r *run) sluice() bool { return r.res.Actor == daemon.Sluice }

// command sends sluiced a command.
func (r *run) command(do func(context.Context, *control.Client) error) {
	ctx, cancel := context.WithTimeout(context.Background(), daemon.Patience)
	defer cancel()
	r.must(do(ctx, control.NewClient(daemon.Socket(r.dir))))
}

// handover replaces the process by a new one, as for an upgrade: keepalived has
// nothing better than to be stopped and started.
func handover(r *run) {
	for range 3 {
		if r.sluice() {
			r.command(func(ctx context.Context, c *control.Client) error { _, err := c.Handover(ctx); return err })
			if status := r.prog.p.Wait(r, daemon.Patience); status != handedOver {
				r.Errorf("exit status %d after a handover", status)
			}
			r.prog.keepLog()
		} else {
			r.prog.stop()
		}
		r.prog.start()
		r.in(1, 2, 3)
		r.settle()
	}
}

// order takes a server out for maintenance and back: by command, with a restart in
// between, or by two reloads.
func order(r *run) {
	if !r.sluice() {
		r.reload(conf(Pool{Servers: []Server{{1, 0}, {2, 1}, {3, 1}}}))
		r.out(1)
		r.pause(while)
		r.reload(conf(with(1, 2, 3)))
		r.in(1)
		r.settle()
		return
	}
	at := r.at.server(1).String()
	operate := func(v engine.Verb) {
		r.command(func(ctx context.Context, c *control.Client) error {
			_, err := c.Operate(ctx, engine.Command{Verb: v, Server: at, Reason: "maintenance"})
			return err
		})
	}
	operate(engine.VerbDrain)
	r.out(1)
	r.prog.kill()
	r.prog.start()
	r.out(1)
	r.pause(while)
	operate(engine.VerbUndrain)
	r.in(1)
	r.settle()
}

// stateLost kills the process and spoils what it has saved before the next start, each
// time in another way, while a server is down.
func stateLost(r *run) {
	state := filepath.Join(r.dir, "state", "state.json")
	r.fail(1)
	r.out(1)
	for _, spoil := range []func(){
		func() { _ = os.Remove(state) }, // keepalived has none
		func() { r.spoil(state, `{"version": 1, "services": [{"serv`) },
		func() { r.spoil(state, `{"version": 1000000, "news": true}`) },
	} {
		r.prog.kill()
		spoil()
		r.prog.start()
		r.in(2, 3)
		r.settle()
		r.pause(while / 2)
	}
	r.recover(1)
	r.in(1)
	r.settle()
}

func (r *run) spoil(path, text string) {
	if r.sluice() {
		r.must(os.WriteFile(path, []byte(text), 0o600))
	}
}
