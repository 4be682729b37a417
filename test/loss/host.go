package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/test/daemon"
	"github.com/sluice-lb/sluice/test/loss/judge"
	"github.com/sluice-lb/sluice/test/loss/play"
	"github.com/sluice-lb/sluice/test/vm/machine"
)

// reserve is what the boot, and the runs that are under way when the time is over,
// may take of the limit.
const reserve = 3 * time.Minute

// configurationFile tells which keywords there are.
const configurationFile = "docs/configuration.md"

// onHost prepares, boots the guest, and judges.
func onHost(ctx context.Context, o options, out io.Writer) error {
	reference, err := os.ReadFile(configurationFile)
	if err != nil {
		return err
	}
	chosen, waiting := choose(o, keywords(string(reference)))
	if len(chosen) == 0 {
		return errors.New("no scenario is chosen")
	}
	if err := machine.Install(ctx, os.Stderr, machine.TestTools...); err != nil {
		return err
	}
	work, remove, err := machine.WorkDir("loss")
	if err != nil {
		return err
	}
	defer remove()
	plan := play.Plan{
		Topologies: strings.Split(o.topologies, ","), Keywords: keywords(string(reference)),
		Long: o.long, Short: o.short, Kills: o.kills, Parallel: o.parallel, Seed: o.seed, Seconds: (o.limit - reserve).Seconds(),
	}
	for _, s := range chosen {
		plan.Scenarios = append(plan.Scenarios, s.Name)
	}
	r := &report{plan: plan, scenarios: chosen, waiting: waiting}
	sluiced, err := daemon.BuildSluiced(ctx, o.sluiced, work)
	if err != nil {
		return err
	}
	plan.Daemons = []daemon.Daemon{{Name: daemon.Sluice, Command: []string{sluiced}}}
	if o.keepalived != "none" {
		found, err := daemon.FindKeepaliveds(ctx, o.keepalived)
		if err != nil {
			return err
		}
		k := found[0]
		r.version, k.Name = k.Version, play.Keepalived
		plan.Daemons = append(plan.Daemons, k.Daemon)
	}
	place, why, err := machine.Choose(ctx, machine.Place(o.where))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%d scenarios, %d runs at a time, seed %d, %s\n", len(chosen), plan.Parallel, plan.Seed, why)
	c := machine.Config{Limit: o.limit, Suite: o.suite, MemoryMB: o.memoryMB, Log: os.Stderr}
	if o.verbose {
		c.Output = out
	}
	var results play.Results
	if err := machine.Again(ctx, place, c, work, plan, &results); err != nil {
		return err
	}
	r.kernel, r.runs = results.Kernel, results.Runs
	return r.conclude(o, out)
}

// keywordRow is a keyword of the reference that is served.
var keywordRow = regexp.MustCompile("(?m)^\\| `([a-zA-Z_0-9]+)` \\|.*\\| (?:yes|extension) \\|")

func keywords(reference string) (all []string) {
	for _, m := range keywordRow.FindAllStringSubmatch(reference, -1) {
		all = append(all, m[1])
	}
	return all
}

// choose returns the scenarios to run, and those that wait for a keyword.
func choose(o options, known []string) (chosen, waiting []*play.Scenario) {
	for _, s := range play.Scenarios {
		switch {
		case !o.run.MatchString(s.Name) || o.quick && !s.Quick:
		case s.Needs != "" && !slices.Contains(known, s.Needs):
			waiting = append(waiting, s)
		default:
			chosen = append(chosen, s)
		}
	}
	return chosen, waiting
}

// conclude judges, reports, and writes the page.
func (r *report) conclude(o options, out io.Writer) error {
	if err := os.RemoveAll(o.artifacts); err != nil {
		return err
	}
	var errs []error
	for _, s := range r.scenarios {
		for _, topology := range r.plan.Topologies {
			runs := r.of(s.Name, topology)
			rules := s.Rules()
			if r.version == "" {
				rules.Costs = nil
			}
			wrong := judge.Judge(rules, runs)
			if len(wrong) == 0 {
				continue
			}
			errs = append(errs, fmt.Errorf("%s through %s: %s", s.Name, topology, strings.Join(wrong, "\n  ")))
			if err := saveLogs(o.artifacts, runs); err != nil {
				return err
			}
		}
	}
	r.print(out)
	if len(errs) > 0 {
		fmt.Fprintf(out, "logs are in %s\n", o.artifacts)
	}
	if o.update { // of a run that fails too: it is for the one who works on that
		old, err := os.ReadFile(pageFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		errs = append(errs, os.WriteFile(pageFile, []byte(r.page(string(old))), 0o644))
	}
	return errors.Join(errs...)
}

// saveLogs keeps what the daemons printed in the runs of a scenario.
func saveLogs(dir string, runs []judge.Result) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, run := range runs {
		name := strings.Join([]string{run.Scenario, run.Topology, run.Actor}, ".")
		text := fmt.Sprintf("long-lived: %+v\nshort: %+v\n", run.Long, run.Short)
		for _, p := range run.Problems {
			text += "problem: " + p + "\n"
		}
		text += "== log\n" + strings.Join(run.Log, "\n") + "\n"
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
