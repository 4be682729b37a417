package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/test/daemon"
	"github.com/sluice-lb/sluice/test/loss/judge"
	"github.com/sluice-lb/sluice/test/loss/play"
	"github.com/sluice-lb/sluice/test/runner"
	"github.com/sluice-lb/sluice/test/vm/machine"
)

// reserve is what the boot, and the runs that are under way when the time is over,
// may take of the limit.
const reserve = 3 * time.Minute

// onHost prepares, boots the guest, and judges.
func (o *options) onHost(ctx context.Context, out io.Writer) error {
	if o.Update && o.keepalived == "none" {
		return errors.New("-update takes keepalived as well: leave -keepalived out")
	}
	if o.Quick {
		o.kills = min(o.kills, quickKills)
	}
	if o.seed == 0 {
		o.seed = uint64(time.Now().UnixNano())
	}
	reference, err := os.ReadFile(runner.Reference)
	if err != nil {
		return err
	}
	known := runner.Keywords(string(reference))
	chosen, waiting := o.choose(known)
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
		Topologies: strings.Split(o.topologies, ","), Keywords: known,
		Long: o.long, Short: o.short, Kills: o.kills, Parallel: o.Parallel, Seed: o.seed, Seconds: (o.Limit - reserve).Seconds(),
	}
	for _, s := range chosen {
		plan.Scenarios = append(plan.Scenarios, s.Name)
	}
	r := &report{plan: plan, scenarios: chosen, waiting: waiting}
	sluiced, err := daemon.BuildSluiced(ctx, o.Sluiced, work)
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
	what := fmt.Sprintf("%d scenarios, %d runs at a time, seed %d", len(chosen), plan.Parallel, plan.Seed)
	var results play.Results
	if err := o.Again(ctx, out, what, work, plan, &results); err != nil {
		return err
	}
	r.kernel, r.runs = results.Kernel, results.Runs
	return r.conclude(o, out)
}

// choose returns the scenarios to run, and those that wait for a keyword.
func (o *options) choose(known []string) (chosen, waiting []*play.Scenario) {
	for _, s := range play.Scenarios {
		switch {
		case !o.Run.MatchString(s.Name) || o.Quick && !s.Quick:
		case s.Needs != "" && !slices.Contains(known, s.Needs):
			waiting = append(waiting, s)
		default:
			chosen = append(chosen, s)
		}
	}
	return chosen, waiting
}

// conclude judges, reports, and writes the page.
func (r *report) conclude(o *options, out io.Writer) error {
	if err := o.Clear(); err != nil {
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
			if err := o.saveLogs(runs); err != nil {
				return err
			}
		}
	}
	r.print(out)
	if len(errs) > 0 {
		fmt.Fprintf(out, "logs are in %s\n", o.Artifacts)
	}
	if o.Update { // of a run that fails too: it is for the one who works on that
		old, err := os.ReadFile(pageFile)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		errs = append(errs, os.WriteFile(pageFile, []byte(r.page(string(old))), 0o644))
	}
	return errors.Join(errs...)
}

// saveLogs keeps what the daemons printed in the runs of a scenario.
func (o *options) saveLogs(runs []judge.Result) error {
	for _, run := range runs {
		name := strings.Join([]string{run.Scenario, run.Topology, run.Actor}, ".")
		text := fmt.Sprintf("long-lived: %+v\nshort: %+v\n", run.Long, run.Short)
		for _, p := range run.Problems {
			text += "problem: " + p + "\n"
		}
		text += "== log\n" + strings.Join(run.Log, "\n") + "\n"
		if err := o.Save(name, text); err != nil {
			return err
		}
	}
	return nil
}
