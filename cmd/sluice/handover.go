package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/engine"
)

const handoverUsage = `Usage: sluice handover [options]

Has the daemon save its state and end with the IPVS table as it is, whatever
on_stop says, and waits for the next process to answer. systemd starts that at
once, since the exit status is 75 (RestartForceExitStatus in the unit). This is how
a new version is brought in: replace the program, then hand over. Nothing is checked
and nothing changes in the table in between; connections go on.

Exit statuses:
  0  the next process answers
  1  refused: the daemon goes on as before
  2  the daemon has ended and no other answers yet
  3  the daemon cannot be reached
`

func runHandover(args []string, stdout, stderr io.Writer) int {
	flags := flagSet("handover", handoverUsage, stderr)
	socket := socketFlag(flags)
	wait := flags.Float64("wait", 30, "`SECONDS` to wait for the next process; 0 for not at all")
	if status, over := parse(flags, args, 0, stderr); over {
		return status
	}
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	c := control.NewClient(*socket)
	h, err := c.Handover(ctx)
	switch {
	case errors.Is(err, control.ErrRefused):
		fmt.Fprintf(stderr, "sluice handover: %v\n", err)
		return 1
	case err != nil:
		fmt.Fprintf(stderr, "sluice handover: %v\n", err)
		return exitUnreachable
	}
	fmt.Fprintf(stdout, "sluiced %s (process %d) ends with the table as it is: %d services, %d destinations draining\n", h.Version, h.PID, h.Services, h.Draining)
	if *wait <= 0 {
		return exitOK
	}
	next := successor(c, h.Started, time.Duration(*wait*float64(time.Second)))
	if next == nil {
		fmt.Fprintf(stderr, "sluice handover: no other sluiced answers after %v; the table stays as it is, unchecked\n  see: systemctl status sluiced; without systemd start it: sluiced -f FILE\n", time.Since(begun).Round(time.Second))
		return 2
	}
	fmt.Fprintf(stdout, "sluiced %s answers after %v, %d changes to the table\n", next.Version, time.Since(begun).Round(10*time.Millisecond), next.Kernel.Operations)
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
