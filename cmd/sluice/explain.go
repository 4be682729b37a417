package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/sluice-lb/sluice/internal/control/render"
	"github.com/sluice-lb/sluice/internal/engine"
)

func newExplain(a *app) *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "explain VS RS [options]",
		Short: "why a real server is in or out, and what ends it",
		Long: `Answers "why is it out?" for one real server: the reason and what ends it, then each
check with what it found, what was expected, what came, how often and when it runs
next; what its weight is made of; where the kernel has it and with which
connections; its pool; what operators asked of it.
` + operandNames + `
Exit statuses:
  0  it is in service
  1  it is out
  2  no such virtual or real server, or several of that name
  3  the daemon cannot be reached`,
		Args:              a.operands(2),
		ValidArgsFunction: a.names,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) != 2 {
				return ended(a.misused(cmd, "which real server? Give a virtual server and one of its real servers"))
			}
			return ended(a.explain(cmd, args[0], args[1], asJSON))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print all of it as JSON")
	return cmd
}

// operandNames says how one real server is named.
const operandNames = `
VS and RS are keepalived's names, addresses, labels or unambiguous parts of them:
"[192.0.2.10]:tcp:80", 192.0.2.10:80, 10.0.0.11, web1.
`

func (a *app) explain(cmd *cobra.Command, vs, rs string, asJSON bool) int {
	ctx, cancel := limited(cmd)
	defer cancel()
	x, err := a.client().Explain(ctx, vs, rs)
	if err != nil {
		return a.failed(cmd, err, unfound(err))
	}
	if asJSON {
		a.encode(x)
	} else if err := render.Explain(a.stdout, x, colour(a.stdout)); err != nil {
		return a.failed(cmd, err, 1)
	}
	if !x.InService {
		return 1
	}
	return exitOK
}

// unfound is the status of a request that came to nothing.
func unfound(err error) int {
	var ce *engine.CommandError
	switch {
	case !errors.As(err, &ce):
		return exitUnreachable
	case ce.Code == engine.CodeRefused:
		return exitTimeout
	}
	return exitUnknown
}
