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
	"github.com/sluice-lb/sluice/test/ecmp/play"
	"github.com/sluice-lb/sluice/test/runner"
	"github.com/sluice-lb/sluice/test/vm/machine"
)

// reserve is what the boot, and the runs that are under way when the time is over,
// may take of the limit.
const reserve = 2 * time.Minute

// onHost prepares, boots the guest, and judges.
func (o *options) onHost(ctx context.Context, out io.Writer) error {
	if o.Update && o.Quick {
		return errors.New("-update takes whole rows: leave -quick out")
	}
	reference, err := os.ReadFile(runner.Reference)
	if err != nil {
		return err
	}
	kinds, waits, err := o.chooseKinds(runner.Keywords(string(reference)))
	if err != nil {
		return err
	}
	if waits != "" {
		fmt.Fprintln(out, waits)
	}
	for m := range strings.SplitSeq(o.modes, ",") {
		if !slices.Contains(play.ModeNames(), m) {
			return fmt.Errorf("-modes: unknown mode %q: want %s", m, strings.Join(play.ModeNames(), ", "))
		}
	}
	plan := play.Plan{Kinds: kinds, Quick: o.Quick, Modes: strings.Split(o.modes, ","), Long: o.long, Short: o.short, Parallel: o.Parallel, Seconds: (o.Limit - reserve).Seconds()}
	for _, s := range play.Scenarios {
		if o.Run.MatchString(s.Name) && (!o.Quick || len(s.Quick) > 0) {
			plan.Scenarios = append(plan.Scenarios, s.Name)
		}
	}
	if len(plan.Scenarios) == 0 {
		return errors.New("no scenario is chosen")
	}
	if err := machine.Install(ctx, os.Stderr, machine.TestTools...); err != nil {
		return err
	}
	if plan.Bird, err = bird(ctx); err != nil {
		return err
	}
	work, remove, err := machine.WorkDir("ecmp")
	if err != nil {
		return err
	}
	defer remove()
	if slices.Contains(kinds, play.Sluice) {
		if plan.Sluiced, err = daemon.BuildSluiced(ctx, o.Sluiced, work); err != nil {
			return err
		}
	}
	what := fmt.Sprintf("%d scenarios, directors by %s, %d runs at a time", len(plan.Scenarios), strings.Join(kinds, " and "), plan.Parallel)
	var results play.Results
	if err := o.Again(ctx, out, what, work, plan, &results); err != nil {
		return err
	}
	return o.conclude(plan, results, out)
}

// bird is the routing daemon of the machine's own release, unpacked: its package would
// run one here.
func bird(ctx context.Context) ([]string, error) {
	root, err := machine.UnpackPackage(ctx, os.Stderr, "", "bird2")
	if err != nil {
		return nil, err
	}
	words, err := machine.Loader(root)
	return append(words, filepath.Join(root, "usr/sbin/bird")), err
}

// chooseKinds returns the kinds of directors, and which keyword is waited for.
func (o *options) chooseKinds(known []string) (kinds []string, waits string, err error) {
	if o.kinds != "" {
		kinds = strings.Split(o.kinds, ",")
		for _, k := range kinds {
			if !slices.Contains(play.Kinds, k) {
				return nil, "", fmt.Errorf("-kinds: unknown kind %q: want %s", k, strings.Join(play.Kinds, " or "))
			}
		}
		return kinds, "", nil
	}
	for _, word := range play.Needs {
		if !slices.Contains(known, word) {
			return []string{play.Hand}, "directors by sluice wait for " + word, nil
		}
	}
	if o.Quick {
		return []string{play.Sluice}, "", nil
	}
	return play.Kinds, "", nil
}

// conclude judges, reports, and writes the page.
func (o *options) conclude(plan play.Plan, results play.Results, out io.Writer) error {
	if err := o.Clear(); err != nil {
		return err
	}
	var errs []error
	for _, s := range play.Scenarios {
		for _, r := range results.Runs {
			if r.Scenario != s.Name {
				continue
			}
			fmt.Fprintln(out, r)
			wrong := play.Judge(s, r)
			if len(wrong) == 0 {
				continue
			}
			errs = append(errs, fmt.Errorf("%s with %s, directors by %s: %s", s.Name, r.Mode, r.Kind, strings.Join(wrong, "; ")))
			if err := o.saveLog(r); err != nil {
				return err
			}
		}
	}
	if len(results.Runs) == 0 {
		errs = append(errs, errors.New("nothing ran"))
	}
	if len(errs) > 0 {
		fmt.Fprintf(out, "logs are in %s\n", o.Artifacts)
	}
	if o.Update {
		errs = append(errs, writePages(plan, results))
	}
	return errors.Join(errs...)
}

// writePages updates both pages.
func writePages(plan play.Plan, results play.Results) error {
	old, err := os.ReadFile(pageFile)
	if err != nil {
		return err
	}
	loss, err := os.ReadFile(lossFile)
	if err != nil {
		return err
	}
	scaleOut, err := update(string(old), plan, results)
	if err != nil {
		return err
	}
	rows, err := updateLoss(string(loss), scaleOut)
	if err != nil {
		return err
	}
	return errors.Join(os.WriteFile(pageFile, []byte(scaleOut), 0o644), os.WriteFile(lossFile, []byte(rows), 0o644))
}

func (o *options) saveLog(r play.Result) error {
	name := strings.Join([]string{r.Scenario, r.Mode, r.Kind}, ".")
	return o.Save(name, r.String()+"\n== log\n"+strings.Join(r.Log, "\n")+"\n")
}
