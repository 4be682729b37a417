package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
func (o *options) onHost(ctx context.Context, out io.Writer) error {
	if o.Update && !o.whole() {
		return errors.New("-update takes all scenarios: leave -run and -quick out")
	}
	all, err := o.load()
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
	sluiced, err := daemon.BuildSluiced(ctx, o.Sluiced, work)
	if err != nil {
		return err
	}
	plan := guest.Plan{Parallel: o.Parallel, Seconds: (o.Limit - reserve).Seconds()}
	for _, k := range keepaliveds {
		plan.Daemons = append(plan.Daemons, k.Daemon)
	}
	plan.Daemons = append(plan.Daemons, guest.Daemon{Name: guest.Sluice, Command: []string{sluiced}})
	for _, c := range all {
		plan.Archives = append(plan.Archives, guest.Archive{Name: c.s.Name, Data: c.archive})
	}
	what := fmt.Sprintf("%d scenarios with %d daemons, %d at a time", len(plan.Archives), len(plan.Daemons), plan.Parallel)
	var results guest.Results
	if err := o.Again(ctx, out, what, work, plan, &results); err != nil {
		return err
	}
	return o.conclude(all, keepaliveds, &results, out)
}

// conclude judges all scenarios, reports, and holds the page to the results.
func (o *options) conclude(all []candidate, keepaliveds []daemon.Keepalived, results *guest.Results, out io.Writer) error {
	runs := map[[2]string]*scenario.Run{}
	for i := range results.Runs {
		r := &results.Runs[i]
		runs[[2]string{r.Scenario, r.Daemon}] = r
	}
	report := &report{kernel: results.Kernel, keepaliveds: keepaliveds}
	var errs []error
	if err := o.Clear(); err != nil {
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
			if err := o.saveArtifacts(c.s.Name, runs); err != nil {
				return err
			}
		}
		if bad {
			errs = append(errs, fmt.Errorf("%s: %s", c.s.Name, row.results[keepaliveds[0].Name].Status))
		}
	}
	report.print(out, o.Verbose)
	report.printAgain(out, results.Again)
	// A page of a run that fails is for the one who works on that: asked for only.
	if o.whole() && (len(errs) == 0 || o.Update) {
		errs = append(errs, report.page(o))
	}
	fmt.Fprintf(out, "%s\n", report.summary())
	return errors.Join(errs...)
}

// saveArtifacts writes what is known of the runs of a scenario, for people.
func (o *options) saveArtifacts(name string, runs map[[2]string]*scenario.Run) error {
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
		if err := o.Save(name+"."+r.Daemon, b.String()); err != nil {
			return err
		}
	}
	return nil
}
