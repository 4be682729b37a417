// Command ecmp measures what clients lose of several directors behind a router with
// ECMP, on a real kernel:
//
//	go run ./test/ecmp [-run REGEXP] [-kinds hand,sluice] [-modes LIST] [-quick] [-update] [-parallel N] [-v]
//
// Three directors announce one virtual address by BGP (Debian's bird2, fetched and not
// installed). One of them is drained, killed or cut off, or a fourth joins, while
// clients hold connections that exchange a line every tenth of a second and make short
// requests; with and without the kernel's sync daemon, with and without
// net.ipv4.vs.sloppy_tcp. What is played, and how it is counted, is in test/ecmp/play.
//
// It fails if anything is lost where nothing may be, and if nothing is lost where
// something must be. -update writes the rows of what was run into docs/scale-out.md
// and leaves the others.
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
	"strings"
	"syscall"
	"time"

	"github.com/sluice-lb/sluice/test/ecmp/play"
	"github.com/sluice-lb/sluice/test/vm/machine"
)

// options are the command line.
type options struct {
	run       *regexp.Regexp
	quick     bool
	kinds     string
	modes     string
	sluiced   string
	where     string
	suite     string
	long      int
	short     int
	parallel  int
	memoryMB  int
	limit     time.Duration
	update    bool
	artifacts string
	verbose   bool
}

func main() {
	runtime.LockOSThread() // a guest is tied to the life of this thread
	var o options
	guest := flag.String("guest", "", "carry out the plan in this `file`; what the host starts in the guest")
	out := flag.String("out", "", "where -guest writes the results")
	pattern := flag.String("run", "", "only scenarios whose names match this `regexp`")
	flag.BoolVar(&o.quick, "quick", false, "only the modes of scenarios that are marked as quick")
	flag.StringVar(&o.kinds, "kinds", "", "kinds of directors, with commas: hand, sluice; both, or one for -quick, if left out")
	flag.StringVar(&o.modes, "modes", strings.Join(play.ModeNames(), ","), "`modes`, with commas")
	flag.StringVar(&o.sluiced, "sluiced", "", "the sluiced to test, in place of one that is built from this checkout")
	flag.StringVar(&o.where, "where", "auto", "`host`, vm or auto: here if this kernel has ip_vs")
	flag.StringVar(&o.suite, "suite", "", "boot the kernel of this Debian `release`")
	flag.IntVar(&o.long, "long", 60, "long-lived connections of a run")
	flag.IntVar(&o.short, "short", 10, "short requests of a run in a second")
	flag.IntVar(&o.parallel, "parallel", 3, "runs at a time")
	flag.IntVar(&o.memoryMB, "m", 2048, "guest memory in `MB`")
	flag.DurationVar(&o.limit, "t", 30*time.Minute, "time limit")
	flag.BoolVar(&o.update, "update", false, "write docs/scale-out.md")
	flag.StringVar(&o.artifacts, "artifacts", "bin/ecmp", "`folder` for logs of runs that are not as they should be; it is emptied first")
	flag.BoolVar(&o.verbose, "v", false, "show each run as it ends")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if *guest != "" {
		err = machine.InGuest(*guest, *out, func(p play.Plan) (*play.Results, error) { return play.Run(ctx, p, os.Stdout) })
	} else {
		err = start(ctx, o, *pattern)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "ecmp:", err)
		os.Exit(1)
	}
}

func start(ctx context.Context, o options, pattern string) (err error) {
	if flag.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flag.Arg(0))
	}
	if o.run, err = regexp.Compile(pattern); err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if o.update && o.quick {
		return errors.New("-update takes whole rows: leave -quick out")
	}
	return onHost(ctx, o, os.Stdout)
}
