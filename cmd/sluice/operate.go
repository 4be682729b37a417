package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/control/render"
	"github.com/sluice-lb/sluice/internal/engine"
)

// Exit statuses of the verbs that change real servers.
const (
	exitRefused = 1
	exitUnknown = 2
	exitTimeout = 4
	exitEnded   = 5
)

const naming = `
VS and RS are keepalived's names, addresses, labels or unambiguous parts of them:
"[192.0.2.10]:tcp:80", 192.0.2.10:80, 10.0.0.11, web1. --server ADDRESS means that
address in every virtual server that has it, on every port unless one is given.
`

// operation are the flags that the verbs share.
type operation struct {
	*app
	*cobra.Command
	server, reason, until string
	force, asJSON         bool
}

// operating fills in what the verbs have in common.
func (a *app) operating(cmd *cobra.Command) *operation {
	o := &operation{app: a, Command: cmd}
	cmd.ValidArgsFunction = a.names
	cmd.Flags().StringVar(&o.server, "server", "", "the real servers at this `ADDRESS` in every virtual server")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print what was done as JSON")
	return o
}

func (o *operation) ordering() {
	flags := o.Flags()
	flags.StringVar(&o.reason, "reason", "", "why, for status, the log and whoever looks next: `TEXT`")
	flags.StringVar(&o.until, "until", "", "end by itself after a duration (90s, 2h) or at a `TIME` (18:30, 2026-01-31 18:30, RFC 3339)")
	flags.BoolVar(&o.force, "force", false, "do it though the pool falls below its quorum")
}

// command reads the operands, of which the last extra ones are not names.
func (o *operation) command(verb engine.Verb, args []string, extra int) (c engine.Command, status int, over bool) {
	c = engine.Command{Verb: verb, Server: o.server, Reason: o.reason, Force: o.force}
	names := len(args) - extra
	switch {
	case c.Server == "" && names == 2:
		c.VS, c.RS = args[0], args[1]
	case c.Server != "" && names == 0:
	default:
		tail := ""
		if extra > 0 {
			tail = " N|default"
		}
		return c, o.misused(o.Command, fmt.Sprintf("which real server? Give VS RS%s, or --server ADDRESS%s", tail, tail)), true
	}
	if o.until != "" {
		var err error
		if c.Until, err = moment(o.until, time.Now()); err != nil {
			fmt.Fprintf(o.stderr, "sluice %s: --until: %v\n", verb, err)
			return c, exitUsage, true
		}
	}
	return c, 0, false
}

// moment reads a duration from now or a time of this machine's zone.
func moment(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil {
		if d <= 0 {
			return time.Time{}, fmt.Errorf("%s is not in the future", text)
		}
		return now.Add(d), nil
	}
	for _, layout := range []string{time.RFC3339, time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04"} {
		t, err := time.ParseInLocation(layout, text, now.Location())
		switch {
		case err != nil:
		case !t.After(now):
			return t, fmt.Errorf("%s is over already", text)
		default:
			return t, nil
		}
	}
	for _, layout := range []string{"15:04", time.TimeOnly} {
		if t, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			at := time.Date(now.Year(), now.Month(), now.Day(), t.Hour(), t.Minute(), t.Second(), 0, now.Location())
			if !at.After(now) {
				at = time.Date(now.Year(), now.Month(), now.Day()+1, t.Hour(), t.Minute(), t.Second(), 0, now.Location())
			}
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is neither a duration (90s, 2h) nor a time (18:30, 2026-01-31 18:30, RFC 3339)", text)
}

// do sends a command. A status other than exitOK was told already.
func (o *operation) do(client *control.Client, c engine.Command) ([]engine.Override, int) {
	ctx, cancel := limited(o.Command)
	defer cancel()
	done, err := client.Operate(ctx, c)
	var refusal *engine.CommandError
	switch {
	case err == nil:
		return done, exitOK
	case !errors.As(err, &refusal):
		return nil, o.failed(o.Command, err, exitUnreachable)
	}
	switch refusal.Code {
	case engine.CodeRefused:
		fmt.Fprintf(o.stderr, "refused, nothing was done: %s\n  --force does it all the same\n", refusal.Message)
		return nil, exitRefused
	case engine.CodeInvalid:
		return nil, o.failed(o.Command, refusal, exitUsage)
	}
	return nil, o.failed(o.Command, refusal, exitUnknown)
}

// show says what was done.
func (o *operation) show(done []engine.Override, said func(*engine.Override) string) {
	if o.asJSON {
		o.encode(done)
		return
	}
	for i := range done {
		fmt.Fprintf(o.stdout, "%s of %s: %s\n", done[i].Server, done[i].VS, said(&done[i]))
	}
}

func newDrain(a *app) *cobra.Command {
	var wait bool
	var limit time.Duration
	cmd := &cobra.Command{
		Use:   "drain VS RS | --server ADDRESS [options]",
		Short: "take a real server out, keeping its connections",
		Long: `Takes a real server to weight 0: it gets no new connections and keeps those that it
has, even if its check fails meanwhile. That lasts until sluice undrain or --until,
over reloads too. A drain that takes a pool below its quorum is refused.
` + naming + `
Exit statuses:
  0  drained; with --wait: and its last connection is gone
  1  refused: the pool would fall below its quorum (see --force); nothing was done
  2  no such virtual or real server, or several of that name; nothing was done
  3  the daemon cannot be reached
  4  --wait: the time is over and connections are left; the drain goes on
  5  --wait: the drain was ended by somebody else`,
		Args: a.operands(2),
	}
	o := a.operating(cmd)
	o.ordering()
	cmd.Flags().BoolVar(&wait, "wait", false, "wait until the last connection is gone")
	cmd.Flags().DurationVar(&limit, "timeout", 0, "with --wait: wait no longer than this `DURATION`; 0 is for ever")
	cmd.RunE = func(_ *cobra.Command, args []string) error { return ended(o.drain(args, wait, limit)) }
	return cmd
}

func (o *operation) drain(args []string, wait bool, limit time.Duration) int {
	c, status, over := o.command(engine.VerbDrain, args, 0)
	if over {
		return status
	}
	if limit != 0 && !wait || limit < 0 {
		fmt.Fprintln(o.stderr, "sluice drain: --timeout bounds --wait: give both, and a duration above 0")
		return exitUsage
	}
	client := o.client()
	done, status := o.do(client, c)
	if status != exitOK {
		return status
	}
	if !o.asJSON || !wait {
		o.show(done, func(d *engine.Override) string { return "drains, connections left: " + render.Left(d) })
	}
	if !wait {
		return exitOK
	}
	w := waiter{list: client.Overrides, drains: done, limit: limit, quiet: o.asJSON, out: o.stdout, errors: o.stderr, terminal: terminal(o.stdout)}
	status = w.wait(context.Background())
	if o.asJSON {
		o.encode(w.drains)
	}
	return status
}

func newUndrain(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "undrain VS RS | --server ADDRESS [options]",
		Short: "put a drained real server back",
		Long: `Ends what sluice drain began: the weight comes back in place.
` + naming + `
Exit statuses:
  0  done
  2  no such virtual or real server, several of that name, or not drained
  3  the daemon cannot be reached`,
		Args: a.operands(2),
	}
	o := a.operating(cmd)
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		c, status, over := o.command(engine.VerbUndrain, args, 0)
		if over {
			return ended(status)
		}
		done, status := o.do(o.client(), c)
		if status == exitOK {
			o.show(done, func(*engine.Override) string { return "drained no longer" })
		}
		return ended(status)
	}
	return cmd
}

func newWeight(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "weight VS RS N|default [options]",
		Short: "change a real server's weight",
		Long: `Has N stand in for the configured weight until "default" or --until, over reloads
too. What track files and checks add to the weight they add to N. A weight that takes
a pool below its quorum is refused.
` + naming + `
Exit statuses:
  0  done
  1  refused: the pool would fall below its quorum (see --force); nothing was done
  2  no such virtual or real server, several of that name, or no weight to take back
  3  the daemon cannot be reached`,
		Args: a.operands(3),
	}
	o := a.operating(cmd)
	o.ordering()
	cmd.RunE = func(_ *cobra.Command, args []string) error { return ended(o.weight(args)) }
	return cmd
}

func (o *operation) weight(args []string) int {
	c, status, over := o.command(engine.VerbWeight, args, 1)
	if over {
		return status
	}
	said := "the configured weight again"
	if n := args[len(args)-1]; n != "default" {
		w, err := strconv.ParseInt(n, 10, 64)
		if err != nil {
			fmt.Fprintf(o.stderr, "sluice weight: %q is neither a number nor \"default\"\n", n)
			return exitUsage
		}
		c.Weight, said = &w, fmt.Sprintf("weight %d", w)
	}
	done, status := o.do(o.client(), c)
	if status == exitOK {
		o.show(done, func(*engine.Override) string { return said })
	}
	return status
}

func newDrains(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "drains [options]",
		Short: "what operators drained and weighed, and what is left on it",
		Long: `Lists what operators drained and weighed: who, when, why, until when, and how many
connections are left.

Exit statuses:
  0  listed
  3  the daemon cannot be reached`,
		Args: a.operands(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := limited(cmd)
			defer cancel()
			all, err := a.client().Overrides(ctx)
			switch {
			case err != nil:
				return ended(a.failed(cmd, err, exitUnreachable))
			case asJSON:
				a.encode(all)
				return nil
			}
			if err := render.Overrides(a.stdout, all, time.Now()); err != nil {
				return ended(a.failed(cmd, err, exitRefused))
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the list as JSON")
	return cmd
}
