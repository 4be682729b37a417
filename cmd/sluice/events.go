package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/control/render"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/event"
)

// again is the pause before a daemon that went is looked for once more.
const again = time.Second

func newEvents(a *app) *cobra.Command {
	var o eventsOptions
	cmd := &cobra.Command{
		Use:   "events [options]",
		Short: "what happened last, and what happens",
		Long: `Shows what happened last in this daemon's life, a line for each event: the time, how
bad it is (nothing, WARN, ERR), and the log's message. docs/events.md lists the kinds.

With -f it goes on with what happens, also over a restart of the daemon.

Exit statuses:
  0  shown
  1  there is no such kind
  3  the daemon cannot be reached`,
		Args: a.operands(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return ended(a.events(cmd, o)) },
	}
	flags := cmd.Flags()
	flags.BoolVarP(&o.follow, "follow", "f", false, "go on with what happens, until interrupted")
	flags.IntVarP(&o.lines, "lines", "n", 20, "how `MANY` of the newest; all with --since")
	flags.StringVar(&o.since, "since", "", "from `WHEN` on: 10m, a time (2026-11-30T10:00:00Z, 10:00, \"2026-11-30 10:00\"), or after an event's number")
	flags.StringVar(&o.vs, "vs", "", "of virtual servers whose name has `TEXT` in it")
	flags.StringVar(&o.rs, "rs", "", "of real servers whose name has `TEXT` in it")
	flags.StringSliceVar(&o.kinds, "kind", nil, "of these `KINDS` only: server_down,quorum_lost")
	flags.BoolVar(&o.asJSON, "json", false, "a JSON object for each event")
	_ = cmd.RegisterFlagCompletionFunc("kind", func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		var names []string
		for _, m := range event.Catalogue() {
			names = append(names, string(m.Kind)+"\t"+m.Meaning)
		}
		return names, cobra.ShellCompDirectiveNoFileComp
	})
	return cmd
}

type eventsOptions struct {
	follow, asJSON bool
	lines          int
	since, vs, rs  string
	kinds          []string
}

func (a *app) events(cmd *cobra.Command, o eventsOptions) int {
	q := control.EventQuery{Limit: o.lines, VS: o.vs, RS: o.rs}
	for _, k := range o.kinds {
		q.Kinds = append(q.Kinds, event.Kind(k))
	}
	if o.lines < 0 {
		return a.misused(cmd, "-n takes a number that is not negative")
	}
	if o.since != "" {
		if err := since(&q, o.since, time.Now()); err != nil {
			return a.misused(cmd, err.Error())
		}
		if !cmd.Flags().Changed("lines") {
			q.Limit = control.All
		}
	}
	show := func(e control.Events) error { return a.show(cmd, e, o.asJSON) }
	if o.follow {
		return a.follow(cmd, q, show)
	}
	ctx, cancel := limited(cmd)
	defer cancel()
	e, err := a.client().Events(ctx, q)
	if err == nil {
		err = show(e)
	}
	return a.eventsEnded(cmd, err)
}

// eventsEnded tells a refusal from a daemon that is not there.
func (a *app) eventsEnded(cmd *cobra.Command, err error) int {
	switch {
	case err == nil:
		return exitOK
	case isRefusal(err):
		return a.failed(cmd, err, 1)
	}
	return a.failed(cmd, err, exitUnreachable)
}

// follow shows what happens, over restarts of the daemon.
func (a *app) follow(cmd *cobra.Command, q control.EventQuery, show func(control.Events) error) int {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	var shown error
	reached, gone := false, false
	for {
		err := a.client().FollowEvents(ctx, q, func(e control.Events) error {
			switch restarted := !q.Start.IsZero() && !q.Start.Equal(e.Start); {
			case gone && restarted:
				fmt.Fprintln(a.stderr, "sluice events: sluiced is there again, it was restarted")
			case gone:
				fmt.Fprintln(a.stderr, "sluice events: sluiced is there again")
			}
			reached, gone = true, false
			// From here on, of this daemon.
			q.Since, q.Start, q.Begin, q.Limit = e.Last, e.Start, time.Time{}, control.All
			shown = show(e)
			return shown
		})
		switch {
		case ctx.Err() != nil, shown != nil:
			return exitOK // nobody wants it any more
		case !reached || isRefusal(err):
			return a.eventsEnded(cmd, err)
		case !gone:
			gone = true
			fmt.Fprintln(a.stderr, "sluice events: sluiced is gone, waiting for it")
		}
		select {
		case <-ctx.Done():
			return exitOK
		case <-time.After(again):
		}
	}
}

// show prints events, and says what is missing.
func (a *app) show(cmd *cobra.Command, e control.Events, asJSON bool) error {
	if e.Missed > 0 {
		fmt.Fprintf(a.stderr, "%s: %d earlier events are forgotten; the log has them\n", cmd.CommandPath(), e.Missed)
	}
	if !asJSON {
		return render.Events(a.stdout, e.Events, render.EventOptions{Zone: time.Local, Color: colour(a.stdout)})
	}
	enc := json.NewEncoder(a.stdout)
	for _, e := range e.Events {
		if err := enc.Encode(e); err != nil {
			return err
		}
	}
	return nil
}

// isRefusal reports whether the daemon understood and said no.
func isRefusal(err error) bool {
	return errors.Is(err, control.ErrRefused) || errors.As(err, new(*engine.CommandError))
}

// since reads when events are wanted from.
func since(q *control.EventQuery, text string, now time.Time) error {
	if n, err := strconv.ParseUint(text, 10, 64); err == nil {
		q.Since = n
		return nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		q.Begin = now.Add(-d)
		return nil
	}
	for _, layout := range []string{time.RFC3339Nano, time.DateTime, "2006-01-02 15:04", time.DateOnly} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			q.Begin = t
			return nil
		}
	}
	for _, layout := range []string{time.TimeOnly, "15:04"} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			at := time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location())
			if at.After(now) {
				at = at.AddDate(0, 0, -1)
			}
			q.Begin = at
			return nil
		}
	}
	return fmt.Errorf("--since takes a duration (10m), a time (2026-11-30T10:00:00Z, 10:00) or the number of an event, and %q is none", text)
}
