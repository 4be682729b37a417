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
	"flag"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/test/ecmp/play"
	"github.com/sluice-lb/sluice/test/runner"
)

// options are the command line.
type options struct {
	runner.Options
	kinds       string
	modes       string
	long, short int
}

func main() {
	var o options
	o.Flags(flag.CommandLine, runner.Program{
		Name: "ecmp", Page: pageFile, Parallel: 3, Limit: 30 * time.Minute,
		Quick:     "only the modes of scenarios that are marked as quick",
		Runs:      "runs at a time",
		Verbose:   "show each run as it ends",
		Artifacts: "logs of runs that are not as they should be",
	})
	flag.StringVar(&o.kinds, "kinds", "", "kinds of directors, with commas: hand, sluice; both, or one for -quick, if left out")
	flag.StringVar(&o.modes, "modes", strings.Join(play.ModeNames(), ","), "`modes`, with commas")
	flag.IntVar(&o.long, "long", 60, "long-lived connections of a run")
	flag.IntVar(&o.short, "short", 10, "short requests of a run in a second")
	runner.Main(&o.Options, o.onHost, play.Run)
}
