// Command loss measures what operations on a pool cost clients, on a real kernel:
//
//	go run ./test/loss [-run REGEXP] [-quick] [-update] [-kills N] [-parallel N] [-v]
//
// Each scenario is played through NAT and through direct routing, with sluiced, with
// keepalived on the same file and by the same steps, and, where it differs, in the
// order in which kube-proxy changes the table. Clients hold connections that exchange
// a line every tenth of a second, and make short requests at a steady rate; every
// reset, timeout and refusal counts.
//
// It fails if sluice loses anything, if its table at the end is not the one that is
// wanted, and if an actor that is known to lose something loses nothing: then the
// clients do not see what they should. What is counted apart, and why, is part of a
// scenario; the scenarios are in test/loss/play.
//
// -update writes the rows of what was run into docs/zero-loss.md and leaves the others:
// on a slow machine the page can be made in pieces (-run, -topologies). The numbers are
// those of one run; a test holds the rows to the scenarios.
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

	"github.com/sluice-lb/sluice/test/loss/play"
	"github.com/sluice-lb/sluice/test/vm/machine"
)

// options are the command line.
type options struct {
	run        *regexp.Regexp
	quick      bool
	keepalived string
	sluiced    string
	topologies string
	where      string
	suite      string
	long       int
	short      int
	kills      int
	parallel   int
	memoryMB   int
	seed       uint64
	limit      time.Duration
	update     bool
	artifacts  string
	verbose    bool
}

// quickKills is how often the short run kills a daemon.
const quickKills = 5

func main() {
	runtime.LockOSThread() // a guest is tied to the life of this thread
	var o options
	guest := flag.String("guest", "", "carry out the plan in this `file`; what the host starts in the guest")
	out := flag.String("out", "", "where -guest writes the results")
	pattern := flag.String("run", "", "only scenarios whose names match this `regexp`")
	flag.BoolVar(&o.quick, "quick", false, "only scenarios that are marked as quick, and few kills")
	flag.StringVar(&o.keepalived, "keepalived", "system", "what to compare with: system, a Debian `release`, a path, or none")
	flag.StringVar(&o.sluiced, "sluiced", "", "the sluiced to test, in place of one that is built from this checkout")
	flag.StringVar(&o.topologies, "topologies", "NAT,DR", "which of them, with commas")
	flag.StringVar(&o.where, "where", "auto", "`host`, vm or auto: here if this kernel has ip_vs")
	flag.StringVar(&o.suite, "suite", "", "boot the kernel of this Debian `release`")
	flag.IntVar(&o.long, "long", 30, "long-lived connections of a run")
	flag.IntVar(&o.short, "short", 10, "short requests of a run in a second")
	flag.IntVar(&o.kills, "kills", 200, "how often a daemon is killed, over both topologies")
	flag.IntVar(&o.parallel, "parallel", 4, "runs at a time")
	flag.IntVar(&o.memoryMB, "m", 2048, "guest memory in `MB`")
	flag.Uint64Var(&o.seed, "seed", 0, "of the random moments; 0 takes the time")
	flag.DurationVar(&o.limit, "t", 60*time.Minute, "time limit")
	flag.BoolVar(&o.update, "update", false, "write docs/zero-loss.md")
	flag.StringVar(&o.artifacts, "artifacts", "bin/loss", "`folder` for logs of runs that are not as they should be; it is emptied first")
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
		fmt.Fprintln(os.Stderr, "loss:", err)
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
	if o.update && o.keepalived == "none" {
		return errors.New("-update takes keepalived as well: leave -keepalived out")
	}
	if o.quick {
		o.kills = min(o.kills, quickKills)
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	return onHost(ctx, o, os.Stdout)
}
