package main

import (
	"github.com/spf13/cobra"

	"github.com/sluice-lb/sluice/internal/control/render"
	"github.com/sluice-lb/sluice/internal/daemon"
	"github.com/sluice-lb/sluice/internal/doctor"
)

func newDoctor(a *app) *cobra.Command {
	var o doctorOptions
	cmd := &cobra.Command{
		Use:   "doctor [FILE] [options]",
		Short: "what this machine lacks for a configuration, and how to mend it",
		Long: `Examines kernel modules and settings, addresses, routes, and the daemon's rights and
limits by what a configuration needs: FILE, else that of the running sluiced, else
none. Each finding says what it costs connections and which command mends it.
docs/doctor.md explains them all. Nothing is changed; what only root may see is
"unknown" to others.

Exit statuses:
  0  nothing to do (notes, and what is unknown, count as nothing)
  1  warnings
  2  failures: connections are lost or misled
  3  FILE cannot be read, or nothing can be run from it`,
		Args: a.operands(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.file = args[0]
			}
			return ended(a.doctor(cmd, o))
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&o.id, "config-id", "i", "", "`ID` for conditional lines (@ID)")
	flags.BoolVar(&o.asJSON, "json", false, "print the findings as JSON")
	flags.BoolVar(&o.quiet, "quiet", false, "only count what is well")
	return cmd
}

type doctorOptions struct {
	file, id      string
	asJSON, quiet bool
}

func (a *app) doctor(cmd *cobra.Command, o doctorOptions) int {
	ctx, cancel := limited(cmd)
	defer cancel()
	r, err := daemon.Doctor(ctx, daemon.DoctorOptions{File: o.file, ConfigID: o.id, Socket: a.socket})
	if err != nil {
		return a.failed(cmd, err, exitUnreachable)
	}
	if o.asJSON {
		a.encode(r)
	} else if err := render.Doctor(a.stdout, r, render.DoctorOptions{Color: colour(a.stdout), Quiet: o.quiet}); err != nil {
		return a.failed(cmd, err, 1)
	}
	switch r.Worst() {
	case doctor.Fail:
		return 2
	case doctor.Warn:
		return 1
	}
	return exitOK
}
