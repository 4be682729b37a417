package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/engine"
)

// settler waits until what a reload brought is proven.
type settler struct {
	status          func(context.Context, ...control.Part) (*engine.Snapshot, error)
	limit           time.Duration
	terminal, quiet bool
	out             io.Writer
}

func (w *settler) wait(ctx context.Context) int {
	if ctx == nil {
		ctx = context.Background()
	}
	text := ""
	p := poll{limit: w.limit}
	p.ask = func(ctx context.Context) error {
		s, err := w.status(ctx)
		if err == nil {
			text = waitsFor(s)
		}
		return err
	}
	p.seen = func(took time.Duration, late, tell bool) (int, bool) {
		after := took.Round(time.Second)
		switch {
		case text == "":
			w.say("every check has a verdict, and nobody is held; it took %v\n", after)
			return exitOK, true
		case late:
			w.clear()
			fmt.Fprintf(w.out, "not settled within %v: %s; the daemon goes on\n", w.limit, text)
			return exitUnsettled, true
		case w.terminal:
			w.say("%s, after %v", text, after)
		case tell:
			w.say("%s, after %v\n", text, after)
		}
		return 0, false
	}
	p.silent = func(err error) int {
		w.clear()
		fmt.Fprintf(w.out, "sluice reload: %v\n", err)
		return exitUnreachable
	}
	p.ended = func() int {
		w.clear()
		return exitUnsettled
	}
	return p.run(ctx)
}

// waitsFor says what is not settled, "" for nothing. A virtual server that is not
// checked (ha_suspend) is not waited for.
func waitsFor(s *engine.Snapshot) string {
	unchecked, held, first := 0, 0, ""
	note := func(server, vs string) {
		if first == "" {
			first = fmt.Sprintf(", the first: %s of %s", server, vs)
		}
	}
	for i := range s.VirtualServers {
		vs := &s.VirtualServers[i]
		if vs.Suspended {
			continue
		}
		if h := vs.Hold; h != nil && !h.Over {
			held += len(h.Servers)
			for _, name := range h.Servers {
				note(name, vs.Name)
			}
		}
		for j := range vs.RealServers {
			rs := &vs.RealServers[j]
			for k := range rs.Checkers {
				if rs.Checkers[k].Verdict == "unknown" {
					unchecked++
					note(rs.Address, vs.Name)
				}
			}
		}
	}
	if unchecked+held == 0 {
		return ""
	}
	return fmt.Sprintf("checks without a verdict: %d, departing real servers held: %d%s", unchecked, held, first)
}

func (w *settler) say(format string, args ...any) {
	if w.quiet {
		return
	}
	w.clear()
	fmt.Fprintf(w.out, format, args...)
}

// clear begins a line of progress that is written over.
func (w *settler) clear() {
	if w.terminal && !w.quiet {
		fmt.Fprint(w.out, "\r\x1b[K")
	}
}
