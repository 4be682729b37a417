package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"syscall"
	"time"

	"github.com/sluice-lb/sluice/test/diff/guest"
	"github.com/sluice-lb/sluice/test/vm/machine"
)

// options are the command line.
type options struct {
	// guest and out make this the process in the guest.
	guest, out string

	run        *regexp.Regexp
	quick      bool
	scenarios  string
	configs    string
	keepalived string
	sluiced    string
	where      string
	suite      string
	parallel   int
	memoryMB   int
	limit      time.Duration
	update     bool
	keep       bool
	artifacts  string
	verbose    bool
}

func main() {
	runtime.LockOSThread() // a guest is tied to the life of this thread
	var o options
	flag.StringVar(&o.guest, "guest", "", "carry out the plan in this `file`; what the host starts in the guest")
	flag.StringVar(&o.out, "out", "", "where -guest writes the results")
	pattern := flag.String("run", "", "only scenarios whose names match this `regexp`")
	flag.BoolVar(&o.quick, "quick", false, "only scenarios that are marked as quick")
	flag.StringVar(&o.scenarios, "scenarios", "testdata/diff", "`folder` of the scenarios")
	flag.StringVar(&o.configs, "configs", "", "also every configuration in this `folder`, where it is there")
	flag.StringVar(&o.keepalived, "keepalived", "system", "what to compare with: system, a Debian `release`, or a path; several with commas, of which the first decides")
	flag.StringVar(&o.sluiced, "sluiced", "", "the sluiced to test, in place of one that is built from this checkout")
	flag.StringVar(&o.where, "where", "auto", "`host`, vm or auto: here if this kernel has ip_vs")
	flag.StringVar(&o.suite, "suite", "", "boot the kernel of this Debian `release`")
	flag.IntVar(&o.parallel, "parallel", 8, "runs at a time; a scenario is one for each daemon")
	flag.IntVar(&o.memoryMB, "m", 2048, "guest memory in `MB`")
	flag.DurationVar(&o.limit, "t", 40*time.Minute, "time limit")
	flag.BoolVar(&o.update, "update", false, "write docs/compatibility.md")
	flag.BoolVar(&o.keep, "keep", false, "leave the records and logs of all runs, not only of those that are not as they should be")
	flag.StringVar(&o.artifacts, "artifacts", "bin/diff", "`folder` for records and logs; it is emptied first")
	flag.BoolVar(&o.verbose, "v", false, "show what the runs are doing, and every difference on purpose")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := start(ctx, o, *pattern)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "diff:", err)
		os.Exit(1)
	}
}

// whole says whether all scenarios take part, so that the page can be made.
func (o *options) whole() bool { return !o.quick && o.run.String() == "" }

func start(ctx context.Context, o options, pattern string) (err error) {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if o.guest != "" {
		return machine.InGuest(o.guest, o.out, func(p guest.Plan) (*guest.Results, error) { return guest.Run(ctx, p, os.Stdout) })
	}
	if o.run, err = regexp.Compile(pattern); err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if o.update && !o.whole() {
		return errors.New("-update takes all scenarios: leave -run and -quick out")
	}
	return onHost(ctx, o, os.Stdout)
}
