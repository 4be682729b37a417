package main

import (
	"fmt"

	"github.com/spf13/cobra"
)

func newReload(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "reload [options]",
		Short: "have the daemon read its file again, and say how that ended",
		Long: `Has the daemon read its file again and waits until that is applied or refused.

Exit statuses:
  0  applied
  1  refused: the old configuration goes on
  3  the daemon cannot be reached`,
		Args: a.operands(0),
		RunE: func(cmd *cobra.Command, _ []string) error { return ended(a.reload(cmd)) },
	}
}

func (a *app) reload(cmd *cobra.Command) int {
	ctx, cancel := limited(cmd)
	defer cancel()
	r, err := a.client().Reload(ctx)
	switch {
	case err != nil:
		return a.failed(cmd, err, exitUnreachable)
	case !r.OK:
		fmt.Fprintf(a.stderr, "refused, the old configuration goes on: %s\n", r.Error)
		return 1
	}
	fmt.Fprintln(a.stdout, "reloaded")
	return exitOK
}
