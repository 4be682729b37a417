package main

import (
	"context"
	"fmt"
	"io"

	"github.com/sluice-lb/sluice/internal/control"
)

const reloadUsage = `Usage: sluice reload [options]

Has the daemon read its file again and waits until that is applied or refused.

Exit statuses:
  0  applied
  1  refused: the old configuration goes on
  3  the daemon cannot be reached
`

func runReload(args []string, stdout, stderr io.Writer) int {
	flags := flagSet("reload", reloadUsage, stderr)
	socket := socketFlag(flags)
	if status, over := parse(flags, args, 0, stderr); over {
		return status
	}
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	r, err := control.NewClient(*socket).Reload(ctx)
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "sluice reload: %v\n", err)
		return exitUnreachable
	case !r.OK:
		fmt.Fprintf(stderr, "refused, the old configuration goes on: %s\n", r.Error)
		return 1
	}
	fmt.Fprintln(stdout, "reloaded")
	return exitOK
}
