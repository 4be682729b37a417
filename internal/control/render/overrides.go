package render

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
)

// Overrides writes what operators asked for by command as a table.
func Overrides(w io.Writer, list []engine.Override, now time.Time) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(w, "no real server is drained or weighed by an operator")
		return err
	}
	p := &printer{at: now}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "VIRTUAL SERVER\tREAL SERVER\tORDER\tBY\tSINCE\tUNTIL\tACTIVE\tINACTIVE\tREASON")
	for i := range list {
		o := &list[i]
		until := "-"
		if !o.Until.IsZero() {
			until = "in " + compact(o.Until.Sub(now))
		}
		reason := clean(o.Reason)
		if o.Absent {
			reason = strings.TrimPrefix(reason+"; not configured now", "; ")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", called(o.VS, o.VSLabel), called(o.Server, o.Label), Order(o), clean(o.Who), p.ago(o.Since), until, o.Active, o.Inactive, orDash(reason))
	}
	return t.Flush()
}

// Order says what an override does: "drain" or "weight 5".
func Order(o *engine.Override) string {
	if o.Kind == engine.VerbWeight {
		return fmt.Sprintf("weight %d", o.Weight)
	}
	return clean(string(o.Kind))
}

// Left says how many connections a drained server still has: "none", "3 active and 1
// inactive". A weight that is not 0 yet, since the kernel refused it or another virtual
// server wants the same destination, is said too.
func Left(o *engine.Override) string {
	if o.Kernel > 0 {
		return fmt.Sprintf("%s; the weight in the kernel is still %d", connections(o), o.Kernel)
	}
	return connections(o)
}

func connections(o *engine.Override) string {
	switch {
	case o.Active+o.Inactive == 0:
		return "none"
	case o.Inactive == 0:
		return fmt.Sprintf("%d active", o.Active)
	case o.Active == 0:
		return fmt.Sprintf("%d inactive", o.Inactive)
	}
	return fmt.Sprintf("%d active and %d inactive", o.Active, o.Inactive)
}

// overrides is status' line about them.
func (p *printer) overrides(list []engine.Override) {
	if n := len(list); n > 0 {
		p.line("%s: %d in force, sluice drains lists them", p.color(odd, "operators' orders"), n)
	}
}

// hold is the line about servers that a reload took away and that still serve.
func (p *printer) hold(h *engine.Hold) {
	switch {
	case h == nil:
	case h.Over:
		p.line("  %s: departure_hold is over and no configured server can serve; %s, no longer configured, go on; waiting for %s", p.color(bad, "HELD"),
			clean(strings.Join(h.Servers, ", ")), clean(strings.Join(h.WaitsFor, ", ")))
	default:
		p.line("  %s for at most %s: %s, no longer configured, serve until these pass their checks: %s", p.color(odd, "HELD"),
			compact(h.Until.Sub(p.at)), clean(strings.Join(h.Servers, ", ")), clean(strings.Join(h.WaitsFor, ", ")))
	}
}
