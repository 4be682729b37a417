package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/control/render"
	"github.com/sluice-lb/sluice/internal/engine"
)

func newPassive(a *app) *cobra.Command {
	o := switching{app: a}
	cmd := &cobra.Command{
		Use:   "passive [on|off] [options]",
		Short: "have this director serve nothing, keeping its connections; or see whether it does",
		Long: `Takes this whole director out: virtual addresses that it has put on a device
(vip_device) are withdrawn, after vip_delay all its services drain, and each leaves
the table with its last connection. Checks go on. That lasts until sluice passive off,
over reloads and restarts too. What the configuration asks for (the keyword passive,
by a track file or not) goes on after "off". Without an argument: how it is.

A connection that a router now sends to another director still counts here, until the
kernel forgets it: without the kernel's sync daemon 15 minutes after its last packet
here, with it when it ends there. drain_timeout bounds that for all drains, --timeout
bounds the waiting alone.

Exit statuses:
  0  done, or shown; with --wait: and nothing of it is in the table any more
  1  refused, or off while the configuration says otherwise: still passive
  3  the daemon cannot be reached
  4  --wait: the time is over and connections are left; it stays passive
  5  --wait: somebody else has ended it`,
		ValidArgs: []string{"on", "off"},
		Args:      a.operands(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			o.Command = cmd
			word := ""
			if len(args) > 0 {
				word = args[0]
			}
			return ended(o.do(word))
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.reason, "reason", "", "why, for status, the log and whoever looks next: `TEXT`")
	flags.BoolVar(&o.wait, "wait", false, "with on: wait until all has left the table")
	flags.DurationVar(&o.limit, "timeout", 0, "with --wait: wait no longer than this `DURATION`; 0 is for ever")
	flags.BoolVar(&o.asJSON, "json", false, "print how it is as JSON")
	return cmd
}

// switching is a command line of passive.
type switching struct {
	*app
	*cobra.Command
	reason       string
	wait, asJSON bool
	limit        time.Duration
}

func (o *switching) do(word string) int {
	switch {
	case word != "" && word != "on" && word != "off":
		return o.misused(o.Command, fmt.Sprintf("%q is neither on nor off", word))
	case word == "" && o.reason != "":
		return o.misused(o.Command, "--reason is that of on or off")
	case word != "on" && o.wait:
		return o.misused(o.Command, "--wait goes with on")
	case o.limit != 0 && !o.wait || o.limit < 0:
		return o.misused(o.Command, "--timeout bounds --wait: give both, and a duration above 0")
	}
	ctx, cancel := limited(o.Command)
	defer cancel()
	client := o.client()
	if word == "" {
		p, err := client.Passive(ctx)
		if err != nil {
			return o.failed(o.Command, err, exitUnreachable)
		}
		o.tell(p, passiveState(p))
		return exitOK
	}
	p, err := client.SetPassive(ctx, control.PassiveOrder{Passive: word == "on", Reason: o.reason})
	var refusal *engine.CommandError
	switch {
	case errors.As(err, &refusal):
		return o.failed(o.Command, refusal, exitRefused)
	case err != nil:
		return o.failed(o.Command, err, exitUnreachable)
	}
	switch {
	case word == "off" && p.Passive:
		o.tell(p, "the command has ended, but the director is still "+asked(p))
		return exitRefused
	case word == "off":
		o.tell(p, fmt.Sprintf("passive no longer: %s come back into the table as their checks say, then addresses are announced", render.Count(p.VirtualServers, "virtual server")))
		return exitOK
	case !o.wait:
		o.tell(p, whatHappens(p))
		return exitOK
	}
	w := withdrawal{state: client.Passive, now: p, limit: o.limit, asJSON: o.asJSON, terminal: terminal(o.stdout), switching: o}
	if !o.asJSON {
		fmt.Fprintln(o.stdout, whatHappens(p))
	}
	status := w.watch(context.Background())
	if o.asJSON {
		o.encode(w.now)
	}
	return status
}

// tell prints a state, for people as a line.
func (o *switching) tell(p control.Passive, line string) {
	if o.asJSON {
		o.encode(p)
		return
	}
	fmt.Fprintln(o.stdout, line)
}

// asked says who made a director passive, and why.
func asked(p control.Passive) string {
	text := "passive"
	for i, s := range p.Sources {
		if i > 0 {
			text += ", and"
		}
		text += " by " + s.Who
		if !s.Since.IsZero() {
			text += " since " + s.Since.Local().Format(time.DateTime)
		}
		if s.Why != "" {
			text += ": " + s.Why
		}
	}
	return text
}

func passiveState(p control.Passive) string {
	if !p.Passive {
		return "not passive: " + render.Count(p.VirtualServers, "virtual server") + " served"
	}
	return asked(p) + "; " + left(p)
}

// left says what of a passive director is still there.
func left(p control.Passive) string {
	if gone(p) {
		return "nothing of it is in the table"
	}
	text := fmt.Sprintf("%s on %s left", render.Count(p.Connections, "connection"), render.Count(p.Services, "service"))
	if p.Addresses > 0 {
		text += fmt.Sprintf(", addresses still announced: %d", p.Addresses)
	} else if p.Services == 0 {
		text = "nothing of it is in the table, and its addresses, guard and marks are not reported gone yet"
	}
	for i := range p.Failures {
		text += "; " + failing(&p.Failures[i])
	}
	return text
}

// gone reports whether nothing of a passive director is left, in the table or around it.
func gone(p control.Passive) bool { return p.Services == 0 && p.Addresses == 0 && !p.Pending }

// elsewhere says what may be among connections that do not end.
func elsewhere(p control.Passive) string {
	if p.Connections == 0 || p.Addresses > 0 {
		return ""
	}
	return "  connections that another director has taken over count until the kernel forgets them; packets tell: ipvsadm -Ln --rate\n"
}

// whatHappens says what a director does that has just been made passive.
func whatHappens(p control.Passive) string {
	if gone(p) {
		return asked(p) + "; nothing of it is in the table, and nothing comes"
	}
	return fmt.Sprintf("%s\n%s withheld: addresses are withdrawn now, services drain after %v; %s\n  sluice passive shows how many are left", asked(p),
		render.Count(p.VirtualServers, "virtual server"), p.Delay, left(p))
}

// withdrawal waits until nothing of a passive director is in the table.
type withdrawal struct {
	*switching
	state    func(context.Context) (control.Passive, error)
	now      control.Passive
	limit    time.Duration
	terminal bool
	asJSON   bool
}

func (w *withdrawal) watch(ctx context.Context) int {
	p := poll{limit: w.limit}
	p.ask = func(ctx context.Context) error {
		is, err := w.state(ctx)
		if err == nil {
			w.now = is
		}
		return err
	}
	p.seen = func(took time.Duration, late, tell bool) (int, bool) {
		switch {
		case !w.now.Passive:
			w.clear()
			fmt.Fprintln(w.stderr, "somebody else has ended it: the director is passive no longer")
			return exitEnded, true
		case gone(w.now):
			w.clear()
			w.say("drained, nothing of it is in the table; it took %v\n", took.Round(time.Second))
			return exitOK, true
		}
		switch text := fmt.Sprintf("%s after %v", left(w.now), took.Round(time.Second)); {
		case w.terminal:
			w.say("\r\x1b[K%s", text)
		case tell:
			w.say("%s\n", text)
		}
		if late {
			w.clear()
			fmt.Fprintf(w.stderr, "not drained within %v, %s; it stays passive\n%s", w.limit, left(w.now), elsewhere(w.now))
			return exitTimeout, true
		}
		return 0, false
	}
	p.silent = func(err error) int {
		w.clear()
		fmt.Fprintf(w.stderr, "sluice passive: %v\n", err)
		return exitUnreachable
	}
	p.ended = func() int { return exitEnded }
	return p.run(ctx)
}

func (w *withdrawal) say(format string, args ...any) {
	if !w.asJSON {
		fmt.Fprintf(w.stdout, format, args...)
	}
}

// clear ends a line of progress that is written over.
func (w *withdrawal) clear() {
	if w.terminal {
		w.say("\r\x1b[K")
	}
}
