package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/control/render"
	"github.com/sluice-lb/sluice/internal/engine"
)

func newHandover(a *app) *cobra.Command {
	var wait float64
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "handover [options]",
		Short: "have the daemon make way for a new one, the table as it is",
		Long: `Has the daemon save its state and end with the IPVS table as it is, whatever
on_stop says, and waits for the next process to answer. systemd starts that at
once, since the exit status is 75 (RestartForceExitStatus in the unit). This is how
a new version is brought in: replace the program, then hand over. Nothing is checked
and nothing changes in the table in between; connections go on.

Exit statuses:
  0  the next process answers
  1  refused: the daemon goes on as before
  2  the daemon has ended and no other answers yet
  3  the daemon cannot be reached`,
		Args: a.operands(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return ended(a.handover(cmd, wait, asJSON)) },
	}
	cmd.Flags().Float64Var(&wait, "wait", 30, "`SECONDS` to wait for the next process; 0 for not at all")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print at the end who ended and who answers as JSON")
	return cmd
}

// handedOver is what handover prints as JSON.
type handedOver struct {
	// Ended is the daemon that made way.
	Ended control.Handover `json:"ended"`
	// Next is the daemon that answers now.
	Next *successorState `json:"next,omitempty"`
}

type successorState struct {
	// Version is its program's.
	Version string `json:"version"`
	// Started is when it was started.
	Started time.Time `json:"started"`
	// Operations counts what it wrote to the kernel's table since then.
	Operations uint64 `json:"operations"`
	// After is the time from the request to its first answer.
	After time.Duration `json:"after_ns"`
}

func (a *app) handover(cmd *cobra.Command, wait float64, asJSON bool) int {
	begun := time.Now()
	ctx, cancel := limited(cmd)
	defer cancel()
	c := a.client()
	h, err := c.Handover(ctx)
	switch {
	case errors.Is(err, control.ErrRefused):
		return a.failed(cmd, err, 1)
	case err != nil:
		return a.failed(cmd, err, exitUnreachable)
	}
	out := a.stdout
	if asJSON {
		out = io.Discard
	}
	done := handedOver{Ended: h}
	if asJSON {
		defer func() { a.encode(done) }()
	}
	fmt.Fprintf(out, "sluiced %s (process %d) ends with the table as it is: %s, %s draining\n", h.Version, h.PID, render.Count(h.Services, "service"), render.Count(h.Draining, "destination"))
	if wait <= 0 {
		return exitOK
	}
	next := successor(c, h.Started, time.Duration(wait*float64(time.Second)))
	if next == nil {
		fmt.Fprintf(a.stderr, "sluice handover: no other sluiced answers after %v; the table stays as it is, unchecked\n  see: systemctl status sluiced; without systemd start it: sluiced -f FILE\n", time.Since(begun).Round(time.Second))
		return 2
	}
	done.Next = &successorState{Version: next.Version, Started: next.Started, Operations: next.Kernel.Operations, After: time.Since(begun)}
	fmt.Fprintf(out, "sluiced %s answers after %v, %s to the table\n", next.Version, time.Since(begun).Round(10*time.Millisecond), render.Count(next.Kernel.Operations, "change"))
	return exitOK
}

// successor waits until a daemon answers that started later; nil for none in time.
func successor(c *control.Client, started time.Time, wait time.Duration) *engine.Snapshot {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		if s, err := c.Status(ctx); err == nil && s.Started.After(started) && s.Generation > 0 {
			return s
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}
