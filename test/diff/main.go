package main

import (
	"flag"
	"time"

	"github.com/sluice-lb/sluice/test/diff/guest"
	"github.com/sluice-lb/sluice/test/runner"
)

// options are the command line.
type options struct {
	runner.Options
	scenarios  string
	configs    string
	keepalived string
	keep       bool
}

func main() {
	var o options
	o.Flags(flag.CommandLine, runner.Program{
		Name: "diff", Page: pageFile, Parallel: 8, Limit: 40 * time.Minute,
		Quick:     "only scenarios that are marked as quick",
		Runs:      "runs at a time; a scenario is one for each daemon",
		Verbose:   "show what the runs are doing, and every difference on purpose",
		Artifacts: "records and logs",
	})
	flag.StringVar(&o.scenarios, "scenarios", "testdata/diff", "`folder` of the scenarios")
	flag.StringVar(&o.configs, "configs", "", "also every configuration in this `folder`, where it is there")
	flag.StringVar(&o.keepalived, "keepalived", "system", "what to compare with: system, a Debian `release`, or a path; several with commas, of which the first decides")
	flag.BoolVar(&o.keep, "keep", false, "leave the records and logs of all runs, not only of those that are not as they should be")
	runner.Main(&o.Options, o.onHost, guest.Run)
}

// whole says whether all scenarios take part, so that the page can be made.
func (o *options) whole() bool { return !o.Quick && o.Run.String() == "" }
