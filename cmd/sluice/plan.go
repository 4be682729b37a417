package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/control/render"
	"github.com/sluice-lb/sluice/internal/daemon"
	"github.com/sluice-lb/sluice/internal/engine"
)

// Exit statuses of plan.
const (
	exitChanges = 1
	exitInvalid = 2
	exitFalls   = 4
)

// planTimeout is for reading a configuration of ten thousands, and rehearsing it.
const planTimeout = 2 * time.Minute

type planOptions struct {
	id          string
	asJSON, all bool
}

func newPlan(a *app) *cobra.Command {
	var o planOptions
	cmd := &cobra.Command{
		Use:   "plan [FILE] [options]",
		Short: "say what a reload would do; changes nothing",
		Long: `Says what a reload would do at this moment: which virtual servers would fall below
their quorum, which connections would be cut, what would drain and how much it carries
now, and every operation on the kernel's table. Nothing is changed.

Without FILE the daemon reads its own file. A FILE is read here, with your rights, and
sent to the daemon with every default and included file spelled out; its track files
are not opened.

Exit statuses:
  0  nothing would change
  1  something would change
  2  the reload would be refused, or FILE is not valid
  3  the daemon cannot be reached, or cannot say
  4  something would change, and a virtual server would fall below its quorum, come to
     its floor (min_alive), or be left without a real server`,
		Args: a.operands(1),
		RunE: func(cmd *cobra.Command, args []string) error { return ended(a.plan(cmd, args, o)) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.asJSON, "json", false, "print the plan as JSON")
	flags.BoolVar(&o.all, "all", false, "print long lists whole")
	flags.StringVarP(&o.id, "config-id", "i", "", "`ID` for conditional lines (@ID) of FILE")
	return cmd
}

func (a *app) plan(cmd *cobra.Command, args []string, o planOptions) int {
	var req *control.PlanRequest
	if len(args) > 0 {
		var err error
		if req, err = daemon.ReadPlan(a.stderr, args[0], o.id, colour(a.stderr)); err != nil {
			fmt.Fprintf(a.stderr, "sluice plan: %s is not valid: %v\n", args[0], err)
			return exitInvalid
		}
	}
	ctx, cancel := long(cmd)
	defer cancel()
	p, err := a.client().Plan(ctx, req)
	if refusal, ok := errors.AsType[*engine.CommandError](err); ok && refusal.Code == engine.CodeInvalid {
		return a.failed(cmd, err, exitInvalid)
	}
	if err != nil {
		return a.failed(cmd, err, exitUnreachable)
	}
	if o.asJSON {
		a.encode(p)
		return planStatus(p)
	}
	_ = render.Findings(a.stderr, p.Findings, colour(a.stderr))
	if err := render.Plan(a.stdout, p, render.PlanOptions{All: o.all, Color: colour(a.stdout)}); err != nil {
		return a.failed(cmd, err, exitUnreachable)
	}
	return planStatus(p)
}

func planStatus(p *engine.Plan) int {
	switch {
	case p.Refused != "":
		return exitInvalid
	case len(p.Pools) > 0:
		return exitFalls
	case p.Changes:
		return exitChanges
	}
	return exitOK
}

// long is the context of a verb that has the daemon work through a configuration.
func long(cmd *cobra.Command) (context.Context, context.CancelFunc) {
	ctx := cmd.Context()
	if ctx == nil {
		ctx = context.Background()
	}
	return context.WithTimeout(ctx, planTimeout)
}
