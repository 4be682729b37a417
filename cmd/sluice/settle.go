package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/engine"
)

// obstacleFor is how long what does not work is waited for: whoever keeps it has tried
// twice again by then.
const obstacleFor = 5 * time.Second

// settler waits until what a reload brought is in place and proven.
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
	text, obstacle := "", ""
	var obstructed time.Duration // when the obstacle was seen first
	p := poll{limit: w.limit}
	p.ask = func(ctx context.Context) error {
		s, err := w.status(ctx)
		if err == nil {
			text, obstacle = waitsFor(s), obstacleOf(s)
		}
		return err
	}
	p.seen = func(took time.Duration, late, tell bool) (int, bool) {
		after := took.Round(time.Second)
		if obstacle == "" {
			obstructed = took
		}
		switch {
		case obstacle != "" && (late || took-obstructed >= obstacleFor):
			w.clear()
			fmt.Fprintf(w.out, "applied, and not in place: %s; it is tried again, and sluice status shows it\n", obstacle)
			return exitObstructed, true
		case text == "" && obstacle == "":
			w.say("all is in place, every check has a verdict, and nobody is held; it took %v\n", after)
			return exitOK, true
		case late:
			w.clear()
			fmt.Fprintf(w.out, "not settled within %v: %s; the daemon goes on\n", w.limit, text)
			return exitUnsettled, true
		case w.terminal:
			w.say("%s, after %v", cmp.Or(obstacle, text), after)
		case tell:
			w.say("%s, after %v\n", cmp.Or(obstacle, text), after)
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

// obstacleOf names what does not work around the table, "" for nothing. What has not been
// tried yet since the reload does not count.
func obstacleOf(s *engine.Snapshot) string {
	if s.Edge == nil || s.Edge.Pending {
		return ""
	}
	var all []string
	for i := range s.Edge.Failures {
		all = append(all, failing(&s.Edge.Failures[i]))
	}
	return strings.Join(all, "; ")
}

// failing says what does not work and why, with the keyword once.
func failing(f *engine.EdgeFailure) string {
	if strings.HasPrefix(f.Reason, f.Feature) {
		return f.Reason
	}
	return f.Feature + ": " + f.Reason
}

// waitsFor says what is not settled, "" for nothing. A virtual server that is not
// checked (ha_suspend) is not waited for.
func waitsFor(s *engine.Snapshot) string {
	if !s.Kernel.OK && !s.Observe {
		return "the kernel's table is not written: " + s.Kernel.Error
	}
	if s.Edge != nil && s.Edge.Pending {
		return "addresses, guard and marks are not in place yet"
	}
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
