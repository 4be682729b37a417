package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"time"

	"github.com/spf13/pflag"

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
VS and RS are keepalived's names, addresses or unambiguous parts of them:
"[192.0.2.10]:tcp:80", 192.0.2.10:80, 10.0.0.11. --server ADDRESS means that address
in every virtual server that has it, on every port unless one is given.
`

const drainUsage = `Usage: sluice drain VS RS [options]
       sluice drain --server ADDRESS [options]

Takes a real server to weight 0: it gets no new connections and keeps those that it
has, even if its check fails meanwhile. That lasts until sluice undrain or --until,
over reloads too. A drain that takes a pool below its quorum is refused.
` + naming + `
Exit statuses:
  0  drained; with --wait: and its last connection is gone
  1  refused: the pool would fall below its quorum (see --force); nothing was done
  2  no such virtual or real server, or several of that name; nothing was done
  3  the daemon cannot be reached
  4  --wait: the time is over and connections are left; the drain goes on
  5  --wait: the drain was ended by somebody else
`

const undrainUsage = `Usage: sluice undrain VS RS [options]
       sluice undrain --server ADDRESS [options]

Ends what sluice drain began: the weight comes back in place.
` + naming + `
Exit statuses:
  0  done
  2  no such virtual or real server, several of that name, or not drained
  3  the daemon cannot be reached
`

const weightUsage = `Usage: sluice weight VS RS N|default [options]
       sluice weight --server ADDRESS N|default [options]

Has N stand in for the configured weight until "default" or --until, over reloads
too. What track files and checks add to the weight they add to N. A weight that takes
a pool below its quorum is refused.
` + naming + `
Exit statuses:
  0  done
  1  refused: the pool would fall below its quorum (see --force); nothing was done
  2  no such virtual or real server, several of that name, or no weight to take back
  3  the daemon cannot be reached
`

const drainsUsage = `Usage: sluice drains [options]

Lists what operators drained and weighed: who, when, why, until when, and how many
connections are left.

Exit statuses:
  0  listed
  3  the daemon cannot be reached
`

// operation are the flags that the verbs share.
type operation struct {
	*pflag.FlagSet
	socket, server, reason, until *string
	force, asJSON                 *bool
}

func newOperation(name, usage string, stderr io.Writer) operation {
	o := operation{FlagSet: flagSet(name, usage, stderr)}
	o.socket = socketFlag(o.FlagSet)
	o.server = o.String("server", "", "the real servers at this `ADDRESS` in every virtual server")
	o.asJSON = o.Bool("json", false, "print what was done as JSON")
	return o
}

func (o *operation) ordering() {
	o.reason = o.String("reason", "", "why, for status, the log and whoever looks next: `TEXT`")
	o.until = o.String("until", "", "end by itself after a duration (90s, 2h) or at a `TIME` (18:30, 2026-01-31 18:30, RFC 3339)")
	o.force = o.Bool("force", false, "do it though the pool falls below its quorum")
}

// command reads the operands, of which the last extra ones are not names.
func (o *operation) command(verb engine.Verb, args []string, extra int, stderr io.Writer) (c engine.Command, status int, over bool) {
	if status, over = parse(o.FlagSet, args, 2+extra, stderr); over {
		return c, status, true
	}
	c = engine.Command{Verb: verb, Server: *o.server}
	names := o.NArg() - extra
	switch {
	case c.Server == "" && names == 2:
		c.VS, c.RS = o.Arg(0), o.Arg(1)
	case c.Server != "" && names == 0:
	default:
		fmt.Fprintf(stderr, "sluice %s: which real server? Give VS RS%s, or --server ADDRESS%s\n  try: sluice %s --help\n", verb, tail(extra), tail(extra), verb)
		return c, exitUsage, true
	}
	if o.reason == nil {
		return c, 0, false
	}
	c.Reason, c.Force = *o.reason, *o.force
	if *o.until != "" {
		var err error
		if c.Until, err = moment(*o.until, time.Now()); err != nil {
			fmt.Fprintf(stderr, "sluice %s: --until: %v\n", verb, err)
			return c, exitUsage, true
		}
	}
	return c, 0, false
}

func tail(extra int) string {
	if extra > 0 {
		return " N|default"
	}
	return ""
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
func (o *operation) do(client *control.Client, c engine.Command, stderr io.Writer) ([]engine.Override, int) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	done, err := client.Operate(ctx, c)
	var refusal *engine.CommandError
	switch {
	case err == nil:
		return done, exitOK
	case !errors.As(err, &refusal):
		fmt.Fprintf(stderr, "sluice %s: %v\n", c.Verb, err)
		return nil, exitUnreachable
	}
	switch refusal.Code {
	case engine.CodeRefused:
		fmt.Fprintf(stderr, "refused, nothing was done: %s\n  --force does it all the same\n", refusal.Message)
		return nil, exitRefused
	case engine.CodeInvalid:
		fmt.Fprintf(stderr, "sluice %s: %s\n", c.Verb, refusal.Message)
		return nil, exitUsage
	}
	fmt.Fprintf(stderr, "sluice %s: %s\n", c.Verb, refusal.Message)
	return nil, exitUnknown
}

// show says what was done.
func (o *operation) show(done []engine.Override, said func(*engine.Override) string, stdout io.Writer) {
	if *o.asJSON {
		encode(stdout, done)
		return
	}
	for i := range done {
		fmt.Fprintf(stdout, "%s of %s: %s\n", done[i].Server, done[i].VS, said(&done[i]))
	}
}

func encode(w io.Writer, v any) {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(v) // a reader that went away is no concern
}

func runDrain(args []string, stdout, stderr io.Writer) int {
	o := newOperation("drain", drainUsage, stderr)
	o.ordering()
	wait := o.Bool("wait", false, "wait until the last connection is gone")
	limit := o.Duration("timeout", 0, "with --wait: wait no longer than this `DURATION`; 0 is for ever")
	c, status, over := o.command(engine.VerbDrain, args, 0, stderr)
	if over {
		return status
	}
	if *limit != 0 && !*wait || *limit < 0 {
		fmt.Fprintln(stderr, "sluice drain: --timeout bounds --wait: give both, and a duration above 0")
		return exitUsage
	}
	client := control.NewClient(*o.socket)
	done, status := o.do(client, c, stderr)
	if status != exitOK {
		return status
	}
	if !*o.asJSON || !*wait {
		o.show(done, func(d *engine.Override) string { return "drains, connections left: " + render.Left(d) }, stdout)
	}
	if !*wait {
		return exitOK
	}
	w := waiter{list: client.Overrides, drains: done, limit: *limit, quiet: *o.asJSON, out: stdout, errors: stderr, terminal: terminal(stdout)}
	status = w.wait(context.Background())
	if *o.asJSON {
		encode(stdout, w.drains)
	}
	return status
}

func runUndrain(args []string, stdout, stderr io.Writer) int {
	o := newOperation("undrain", undrainUsage, stderr)
	c, status, over := o.command(engine.VerbUndrain, args, 0, stderr)
	if over {
		return status
	}
	done, status := o.do(control.NewClient(*o.socket), c, stderr)
	if status == exitOK {
		o.show(done, func(d *engine.Override) string { return "drained no longer" }, stdout)
	}
	return status
}

func runWeight(args []string, stdout, stderr io.Writer) int {
	o := newOperation("weight", weightUsage, stderr)
	o.ordering()
	c, status, over := o.command(engine.VerbWeight, args, 1, stderr)
	if over {
		return status
	}
	said := "the configured weight again"
	if n := o.Arg(o.NArg() - 1); n != "default" {
		w, err := strconv.ParseInt(n, 10, 64)
		if err != nil {
			fmt.Fprintf(stderr, "sluice weight: %q is neither a number nor \"default\"\n", n)
			return exitUsage
		}
		c.Weight, said = &w, fmt.Sprintf("weight %d", w)
	}
	done, status := o.do(control.NewClient(*o.socket), c, stderr)
	if status == exitOK {
		o.show(done, func(*engine.Override) string { return said }, stdout)
	}
	return status
}

func runDrains(args []string, stdout, stderr io.Writer) int {
	flags := flagSet("drains", drainsUsage, stderr)
	socket := socketFlag(flags)
	asJSON := flags.Bool("json", false, "print the list as JSON")
	if status, over := parse(flags, args, 0, stderr); over {
		return status
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	all, err := control.NewClient(*socket).Overrides(ctx)
	if err != nil {
		fmt.Fprintf(stderr, "sluice drains: %v\n", err)
		return exitUnreachable
	}
	if *asJSON {
		encode(stdout, all)
		return exitOK
	}
	if err := render.Overrides(stdout, all, time.Now()); err != nil {
		fmt.Fprintf(stderr, "sluice drains: %v\n", err)
		return exitRefused
	}
	return exitOK
}
