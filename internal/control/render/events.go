package render

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/event"
)

// EventOptions say how events are shown.
type EventOptions struct {
	// Zone is whose time it is, nil for UTC.
	Zone *time.Location
	// Color marks levels with ANSI colours.
	Color bool
}

// levelMarks stand before the message: what to look at first.
var levelMarks = map[string]struct{ mark, color string }{
	"info": {"    ", ""}, "warn": {"WARN", odd}, "error": {"ERR ", bad},
}

// Events writes events, a line for each: when, how bad, what, and what else there is to
// know of it.
func Events(w io.Writer, events []event.Event, o EventOptions) error {
	p := &printer{o: Options{Color: o.Color}}
	zone := o.Zone
	if zone == nil {
		zone = time.UTC
	}
	for i := range events {
		e := &events[i]
		level, ok := levelMarks[e.Level]
		if !ok {
			level.mark = clean(e.Level)
		}
		var more strings.Builder
		add := func(key, value string) {
			text := clean(value)
			if text == "" || text != value || strings.ContainsAny(text, ` "=\`) {
				text = strconv.Quote(value)
			}
			more.WriteString(" " + clean(key) + "=" + text)
		}
		// Most messages have the names themselves.
		if e.RealServer != "" && !strings.Contains(e.Message, e.RealServer) {
			add("rs", e.RealServer)
		}
		if e.VirtualServer != "" && !strings.Contains(e.Message, e.VirtualServer) {
			add("vs", e.VirtualServer)
		}
		for _, key := range slices.Sorted(maps.Keys(e.Attrs)) {
			add(key, e.Attrs[key])
		}
		if _, err := fmt.Fprintf(w, "%s %s %s%s\n", e.Time.In(zone).Format("2006-01-02 15:04:05.000"),
			p.color(level.color, level.mark), clean(e.Message), p.color(faint, more.String())); err != nil {
			return err
		}
	}
	return nil
}
