package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-lb/sluice/internal/control/render"
	"github.com/sluice-lb/sluice/internal/engine"
)

// Exit statuses of reload beside those of all: applied, and something still waited for at
// --timeout, or something around the table does not work.
const exitUnsettled, exitObstructed = 2, 4

type reloadOptions struct {
	wait, quiet, asJSON bool
	limit               time.Duration
}

func newReload(a *app) *cobra.Command {
	var o reloadOptions
	cmd := &cobra.Command{
		Use:   "reload [options]",
		Short: "have the daemon read its file again, and say how that ended",
		Long: `Has the daemon read its file again and waits until that is written to the kernel's
table and compared with it, or refused. What was found in the file is said either way.

With --wait it waits further, until the table, virtual addresses (vip_device), their guard
(vip_guard), marks (nftables_ipvs) and the ways of check_via are as configured, every check
has its first verdict and no departing real server is held any more (departure_hold).
Addresses that vip_follow quorum or passive keep away are as configured. Drains go on by
themselves. What fails is tried again at each reload; if it fails on for five seconds, it
is named and waited for no longer.

Exit statuses:
  0  applied
  1  refused: the old configuration goes on
  2  applied, and what --wait waits for had not come at --timeout
  3  the daemon cannot be reached
  4  applied, and with --wait: vip_device, vip_guard, nftables_ipvs or check_via does not
     work; the rest does, and it is tried again`,
		Args: a.operands(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return ended(a.reload(cmd, o)) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.wait, "wait", false, "wait until all is in place, every newcomer is checked and nobody is held")
	flags.DurationVar(&o.limit, "timeout", 5*time.Minute, "how `LONG` to wait with --wait; 0 for ever")
	flags.BoolVar(&o.quiet, "quiet", false, "no progress")
	flags.BoolVar(&o.asJSON, "json", false, "print how the reload ended as JSON; no progress")
	return cmd
}

func (a *app) reload(cmd *cobra.Command, o reloadOptions) int {
	ctx, cancel := long(cmd)
	defer cancel()
	r, err := a.client().Reload(ctx)
	if err != nil {
		return a.failed(cmd, err, exitUnreachable)
	}
	if o.asJSON {
		a.encode(r)
	} else {
		_ = render.Findings(a.stderr, r.Findings, colour(a.stderr))
	}
	if !r.OK {
		if o.asJSON {
			return 1
		}
		fmt.Fprintf(a.stderr, "refused, the old configuration goes on: %s\n", r.Error)
		return 1
	}
	if !o.asJSON {
		fmt.Fprintln(a.stdout, "reloaded"+came(r.Done))
	}
	if !o.wait {
		return exitOK
	}
	w := &settler{status: a.client().Status, limit: o.limit, quiet: o.quiet || o.asJSON, terminal: terminal(a.stderr), out: a.stderr}
	return w.wait(cmd.Context())
}

// came says what a reload came to; nothing for a daemon that does not say.
func came(d *engine.Reloaded) string {
	switch {
	case d == nil:
		return ""
	case *d == engine.Reloaded{}:
		return ": nothing changed"
	}
	return fmt.Sprintf(": %s; virtual servers: %d added, %d changed, %d removed", render.Count(d.Operations, "operation"), d.Added, d.Changed, d.Removed)
}
