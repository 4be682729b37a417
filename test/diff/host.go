package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/test/daemon"
	"github.com/sluice-lb/sluice/test/diff/guest"
	"github.com/sluice-lb/sluice/test/diff/scenario"
	"github.com/sluice-lb/sluice/test/vm/machine"
)

// reserve is what the boot, and the runs that are under way when the time is over,
// may take of the limit.
const reserve = 2 * time.Minute

// onHost prepares, boots the guest, and judges.
func onHost(ctx context.Context, o options, out io.Writer) error {
	all, err := load(o)
	if err != nil {
		return err
	}
	if err := machine.Install(ctx, os.Stderr, machine.TestTools...); err != nil {
		return err
	}
	keepaliveds, err := daemon.FindKeepaliveds(ctx, o.keepalived)
	if err != nil {
		return err
	}
	work, remove, err := machine.WorkDir("diff")
	if err != nil {
		return err
	}
	defer remove()
	sluiced, err := daemon.BuildSluiced(ctx, o.sluiced, work)
	if err != nil {
		return err
	}
	plan := guest.Plan{Parallel: o.parallel, Seconds: (o.limit - reserve).Seconds()}
	for _, k := range keepaliveds {
		plan.Daemons = append(plan.Daemons, k.Daemon)
	}
	plan.Daemons = append(plan.Daemons, guest.Daemon{Name: guest.Sluice, Command: []string{sluiced}})
	for _, c := range all {
		plan.Archives = append(plan.Archives, guest.Archive{Name: c.s.Name, Data: c.archive})
	}
	results, err := execute(ctx, o, plan, work, out)
	if err != nil {
		return err
	}
	return conclude(o, all, keepaliveds, results, out)
}

// execute runs this program again where there is an ip_vs.
func execute(ctx context.Context, o options, plan guest.Plan, work string, out io.Writer) (*guest.Results, error) {
	place, why, err := machine.Choose(ctx, machine.Place(o.where))
	if err != nil {
		return nil, err
	}
	fmt.Fprintf(out, "%d scenarios with %d daemons, %d at a time, %s\n", len(plan.Archives), len(plan.Daemons), plan.Parallel, why)
	c := machine.Config{Limit: o.limit, Suite: o.suite, MemoryMB: o.memoryMB, Log: os.Stderr}
	if o.verbose {
		c.Output = out
	}
	var r guest.Results
	return &r, machine.Again(ctx, place, c, work, plan, &r)
}

// conclude judges all scenarios, reports, and holds the page to the results.
func conclude(o options, all []candidate, keepaliveds []daemon.Keepalived, results *guest.Results, out io.Writer) error {
	runs := map[[2]string]*scenario.Run{}
	for i := range results.Runs {
		r := &results.Runs[i]
		runs[[2]string{r.Scenario, r.Daemon}] = r
	}
	report := &report{kernel: results.Kernel, keepaliveds: keepaliveds}
	var errs []error
	if err := os.RemoveAll(o.artifacts); err != nil {
		return err
	}
	for _, c := range all {
		row := row{candidate: c, results: map[string]scenario.Result{}}
		sluice := runs[[2]string{c.s.Name, guest.Sluice}]
		bad := false
		for i, k := range keepaliveds {
			other := runs[[2]string{c.s.Name, k.Name}]
			if sluice == nil || other == nil {
				unfinished := &scenario.Run{Daemon: "diff", Problems: []string{"not run, the time limit was over (-t raises it)"}}
				sluice, other = unfinished, unfinished
			}
			result := scenario.Judge(c.s, other, sluice)
			row.results[k.Name] = result
			// What another version does is reported; the first is the measure.
			bad = bad || i == 0 && !result.Status.OK()
		}
		report.rows = append(report.rows, row)
		if bad || o.keep {
			if err := saveArtifacts(o.artifacts, c.s.Name, runs); err != nil {
				return err
			}
		}
		if bad {
			errs = append(errs, fmt.Errorf("%s: %s", c.s.Name, row.results[keepaliveds[0].Name].Status))
		}
	}
	report.print(out, o.verbose)
	report.printAgain(out, results.Again)
	// A page of a run that fails is for the one who works on that: asked for only.
	if o.whole() && (len(errs) == 0 || o.update) {
		errs = append(errs, report.page(o))
	}
	fmt.Fprintf(out, "%s\n", report.summary())
	return errors.Join(errs...)
}

// saveArtifacts writes what is known of the runs of a scenario, for people.
func saveArtifacts(dir, name string, runs map[[2]string]*scenario.Run) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for key, r := range runs {
		if key[0] != name {
			continue
		}
		var b strings.Builder
		for _, p := range r.Problems {
			fmt.Fprintf(&b, "problem: %s\n", p)
		}
		var names []string
		for n := range r.Records {
			names = append(names, n)
		}
		slices.Sort(names)
		for _, n := range names {
			fmt.Fprintf(&b, "== %s\n%s", n, r.Records[n])
		}
		fmt.Fprintf(&b, "== changes\n")
		for _, c := range r.Changes {
			fmt.Fprintf(&b, "%7.2f %s %d\n", c.At, c.Dest, c.Weight)
		}
		fmt.Fprintf(&b, "== log\n%s\n", strings.Join(r.Log, "\n"))
		if err := os.WriteFile(filepath.Join(dir, name+"."+r.Daemon), []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
