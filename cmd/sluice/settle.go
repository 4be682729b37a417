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
	begun := time.Now()
	answered, told := begun, time.Time{}
	for {
		s, err := w.status(ctx)
		now := time.Now()
		if err == nil {
			answered = now
			text := waitsFor(s)
			took := now.Sub(begun).Round(time.Second)
			switch {
			case text == "":
				w.say("every check has a verdict, and nobody is held; it took %v\n", took)
				return exitOK
			case w.limit > 0 && now.Sub(begun) >= w.limit:
				w.clear()
				fmt.Fprintf(w.out, "not settled within %v: %s; the daemon goes on\n", w.limit, text)
				return exitUnsettled
			case w.terminal:
				w.say("%s, after %v", text, took)
			case now.Sub(told) >= tellEvery:
				told = now
				w.say("%s, after %v\n", text, took)
			}
		} else if now.Sub(answered) >= silence {
			w.clear()
			fmt.Fprintf(w.out, "sluice reload: %v\n", err)
			return exitUnreachable
		}
		pause := askEvery
		if w.limit > 0 {
			pause = min(pause, max(begun.Add(w.limit).Sub(now), time.Millisecond))
		}
		select {
		case <-ctx.Done():
			w.clear()
			return exitUnsettled
		case <-time.After(pause):
		}
	}
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
