package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluice-lb/sluice/internal/build"
	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/control/render"
)

func newStatus(a *app) *cobra.Command {
	var o statusOptions
	cmd := &cobra.Command{
		Use:   "status [VS] [options]",
		Short: "how the pools are, and why",
		Long: `Shows for each virtual server whether it has quorum, and for each real server its
state and why, the weight wanted and the one in the kernel, its connections, and
what a drain still waits for. VS is any part of the name, label, service or address
of a virtual server or of one of its real servers.

Exit statuses:
  0  every virtual server shown has quorum without being at its floor (min_alive) and
     without an address missing on its vip_device, the kernel's table can be written,
     and vip_device, vip_guard and nftables_ipvs work; a passive director is well
  1  something of that is not so
  2  VS matches nothing
  3  the daemon cannot be reached`,
		Args:              a.operands(1),
		ValidArgsFunction: a.virtual,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.filter = args[0]
			}
			return ended(a.status(cmd, o))
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.asJSON, "json", false, "print the state as JSON")
	flags.BoolVar(&o.wide, "wide", false, "a line for each checker, track file and kernel service")
	flags.BoolVar(&o.foreign, "foreign", false, "also the services in the kernel's table that are not ours")
	flags.StringVar(&o.filter, "vs", "", "the same as VS: `TEXT`")
	return cmd
}

type statusOptions struct {
	asJSON, wide, foreign bool
	filter                string
}

func (a *app) status(cmd *cobra.Command, o statusOptions) int {
	ctx, cancel := limited(cmd)
	defer cancel()
	var parts []control.Part
	if o.foreign {
		parts = append(parts, control.Foreign)
	}
	s, err := a.client().Status(ctx, parts...)
	if err != nil {
		return a.failed(cmd, err, exitUnreachable)
	}
	if o.foreign && s.Foreign == nil {
		fmt.Fprintln(a.stderr, "sluice status: this sluiced cannot list foreign services, it is older than sluice")
	}
	var result render.Result
	if o.asJSON {
		s.VirtualServers, s.Leaving, result = render.Select(s, o.filter)
		s.Foreign = render.SelectForeign(s.Foreign, o.filter)
		a.encode(s)
	} else {
		result, err = render.Status(a.stdout, s, render.Options{Wide: o.wide, Filter: o.filter, Color: colour(a.stdout), Version: build.String()})
	}
	switch {
	case err != nil:
		return a.failed(cmd, err, 1)
	case o.filter != "" && result.Shown == 0:
		return a.failed(cmd, fmt.Errorf("no virtual server matches %q", o.filter), 2)
	case !result.Healthy:
		return 1
	}
	return exitOK
}
