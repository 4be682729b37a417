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
	"flag"
	"time"

	"github.com/sluice-lb/sluice/test/loss/play"
	"github.com/sluice-lb/sluice/test/runner"
)

// options are the command line.
type options struct {
	runner.Options
	keepalived  string
	topologies  string
	long, short int
	kills       int
	seed        uint64
}

// quickKills is how often the short run kills a daemon.
const quickKills = 5

func main() {
	var o options
	o.Flags(flag.CommandLine, runner.Program{
		Name: "loss", Page: pageFile, Parallel: 4, Limit: 60 * time.Minute,
		Quick:     "only scenarios that are marked as quick, and few kills",
		Runs:      "runs at a time",
		Verbose:   "show each run as it ends",
		Artifacts: "logs of runs that are not as they should be",
	})
	flag.StringVar(&o.keepalived, "keepalived", "system", "what to compare with: system, a Debian `release`, a path, or none")
	flag.StringVar(&o.topologies, "topologies", "NAT,DR", "which of them, with commas")
	flag.IntVar(&o.long, "long", 30, "long-lived connections of a run")
	flag.IntVar(&o.short, "short", 10, "short requests of a run in a second")
	flag.IntVar(&o.kills, "kills", 200, "how often a daemon is killed, over both topologies")
	flag.Uint64Var(&o.seed, "seed", 0, "of the random moments; 0 takes the time")
	runner.Main(&o.Options, o.onHost, play.Run)
}
