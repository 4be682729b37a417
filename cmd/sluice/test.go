package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluice-lb/sluice/internal/control/render"
	"github.com/sluice-lb/sluice/internal/engine"
)

func newTest(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "test VS RS [options]",
		Short: "run a real server's checks once now, step by step",
		Long: `Has the daemon run each check of one real server once, now, beside the schedule, and
shows each step with its time. It changes no verdict and no weight; scripts are run
as they are configured.
` + operandNames + `
Exit statuses:
  0  all checks passed
  1  one failed, or could not be run
  2  no such virtual or real server, or several of that name
  3  the daemon cannot be reached
  4  too many tests are under way`,
		Args:              a.operands(2),
		ValidArgsFunction: a.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return ended(a.misused(cmd, "which real server? Give a virtual server and one of its real servers"))
			}
			return ended(a.test(cmd, args[0], args[1], asJSON))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each line of the transcript as JSON")
	return cmd
}

func (a *app) test(cmd *cobra.Command, vs, rs string, asJSON bool) int {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer stop()
	passed := false
	color, enc := colour(a.stdout), json.NewEncoder(a.stdout)
	err := a.client().Test(ctx, vs, rs, func(l engine.TrialLine) error {
		passed = l.Line == "end" && l.Result == "ok"
		if asJSON {
			if err := enc.Encode(l); err != nil {
				return fmt.Errorf("write transcript: %w", err)
			}
			return nil
		}
		return render.Trial(a.stdout, &l, color)
	})
	switch {
	case err != nil:
		return a.failed(cmd, err, unfound(err))
	case !passed:
		return 1
	}
	return exitOK
}
