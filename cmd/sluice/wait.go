package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sluice-lb/sluice/internal/control/render"
	"github.com/sluice-lb/sluice/internal/engine"
)

// waiter waits until drained servers have no connections left.
type waiter struct {
	list   func(context.Context) ([]engine.Override, error)
	drains []engine.Override
	limit  time.Duration
	// terminal has one line of progress that is written over.
	terminal, quiet bool
	out, errors     io.Writer
}

func (w *waiter) wait(ctx context.Context) int {
	var left, gone *engine.Override
	p := poll{limit: w.limit}
	p.ask = func(ctx context.Context) error {
		all, err := w.list(ctx)
		if err == nil {
			left, gone = w.look(all)
		}
		return err
	}
	p.seen = func(took time.Duration, late, tell bool) (int, bool) {
		switch {
		case gone != nil:
			w.clear()
			fmt.Fprintf(w.errors, "the drain of %s of %s was ended by somebody else\n", gone.Server, gone.VS)
			return exitEnded, true
		case left == nil:
			w.clear()
			w.say("drained, no connection is left; it took %v\n", took.Round(time.Second))
			return exitOK, true
		}
		if w.terminal || tell {
			w.progress(left, took)
		}
		if late {
			w.clear()
			fmt.Fprintf(w.errors, "not drained within %v, connections left on %s of %s: %s; the drain goes on\n", w.limit, left.Server, left.VS, render.Left(left))
			return exitTimeout, true
		}
		return 0, false
	}
	p.silent = func(err error) int {
		w.clear()
		fmt.Fprintf(w.errors, "sluice drain: %v\n", err)
		return exitUnreachable
	}
	p.ended = func() int { return exitEnded }
	return p.run(ctx)
}

// look brings the drains up to date and returns one with connections, or one that is
// in force no longer; neither if all are done.
func (w *waiter) look(all []engine.Override) (left, gone *engine.Override) {
	for i := range w.drains {
		d := &w.drains[i]
		found := false
		for _, o := range all {
			if o.Kind == engine.VerbDrain && o.VS == d.VS && o.Server == d.Server {
				*d, found = o, true
			}
		}
		switch {
		case !found:
			return nil, d
		case d.Kernel > 0 || d.Active+d.Inactive > 0:
			// Until the weight is 0 in the kernel, new connections still come.
			if left == nil {
				left = d
			}
		}
	}
	return left, nil
}

func (w *waiter) progress(first *engine.Override, took time.Duration) {
	text := fmt.Sprintf("%s of %s: connections left: %s", first.Server, first.VS, render.Left(first))
	servers, sum := 0, uint64(0)
	for i := range w.drains {
		if n := w.drains[i].Active + w.drains[i].Inactive; n > 0 {
			servers++
			sum += n
		}
	}
	if servers > 1 {
		text = fmt.Sprintf("%d connections left on %d real servers", sum, servers)
	}
	text += fmt.Sprintf(" after %v", took.Round(time.Second))
	if w.terminal {
		w.say("\r\x1b[K%s", text)
	} else {
		w.say("%s\n", text)
	}
}

func (w *waiter) say(format string, args ...any) {
	if !w.quiet {
		fmt.Fprintf(w.out, format, args...)
	}
}

// clear ends a line of progress that is written over.
func (w *waiter) clear() {
	if w.terminal {
		w.say("\r\x1b[K")
	}
}
