package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/test/bench/play"
	"github.com/sluice-lb/sluice/test/daemon"
	"github.com/sluice-lb/sluice/test/vm/machine"
)

// reserve is what a boot, and the run that is under way when the time is over, may
// take of the limit.
const reserve = 2 * time.Minute

// onHost prepares, runs the parts, and concludes.
func onHost(ctx context.Context, o options, out io.Writer) error {
	parts, err := o.chosen()
	if err != nil {
		return err
	}
	tools := append(machine.TestTools, machine.Tool{Program: "taskset", Package: "util-linux"})
	if err := machine.Install(ctx, os.Stderr, tools...); err != nil {
		return err
	}
	if err := os.MkdirAll(o.results, 0o755); err != nil {
		return err
	}
	// In the checkout, which the guest sees.
	work, err := os.MkdirTemp(o.results, "run-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if work, err = filepath.Abs(work); err != nil {
		return err
	}
	sluiced, err := daemon.BuildSluiced(ctx, o.sluiced, work)
	if err != nil {
		return err
	}
	found, err := daemon.FindKeepaliveds(ctx, o.keepalived)
	if err != nil {
		return err
	}
	keepalived := found[0]
	version := keepalived.Version
	keepalived.Name = play.Keepalived
	for _, part := range parts {
		plan := play.Plan{Part: part, Quick: o.quick, Pairs: o.pairs, Only: o.only, Seconds: (o.limit - reserve).Seconds(),
			Daemons: []daemon.Daemon{{Name: daemon.Sluice, Command: []string{sluiced}}, keepalived.Daemon}}
		fmt.Fprintf(out, "%s part, with keepalived %s\n", part, version)
		results, err := runPart(ctx, o, plan, work, out)
		if errors.Is(err, errNoCompiler) {
			fmt.Fprintf(out, "the native part is left out: %v\n", err)
			continue
		}
		if err != nil {
			return fmt.Errorf("%s part: %w", part, err)
		}
		results.Keepalived = version
		if err := save(o.results, results); err != nil {
			return err
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	return conclude(o, out)
}

// errNoCompiler: keepalived cannot be run here.
var errNoCompiler = errors.New("there is no C compiler (gcc or cc) to build test/bench/noipvs with")

func runPart(ctx context.Context, o options, plan play.Plan, work string, out io.Writer) (*play.Results, error) {
	if plan.Part == play.Native {
		var err error
		if plan.Preload, err = compile(ctx, work); err != nil {
			return nil, err
		}
		return play.Run(ctx, plan, out)
	}
	place, why, err := machine.Choose(ctx, machine.Place(o.where))
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(out, why)
	c := machine.Config{Limit: o.limit, Suite: o.suite, MemoryMB: o.memoryMB, Log: os.Stderr, Output: out}
	results := &play.Results{}
	return results, machine.Again(ctx, place, c, work, plan, results)
}

// noipvs is the source of the library in front of keepalived's libnl.
const noipvs = "test/bench/noipvs/noipvs.c"

func compile(ctx context.Context, work string) (string, error) {
	for _, cc := range []string{"gcc", "cc"} {
		path, err := exec.LookPath(cc)
		if err != nil {
			continue
		}
		library := filepath.Join(work, "noipvs.so")
		text, err := exec.CommandContext(ctx, path, "-O2", "-Wall", "-shared", "-fPIC", "-o", library, noipvs).CombinedOutput()
		if err != nil {
			return "", fmt.Errorf("compile %s: %w\n%s", noipvs, err, text)
		}
		return library, nil
	}
	return "", errNoCompiler
}

func resultFile(dir, part string) string { return filepath.Join(dir, part+".json") }

func save(dir string, r *play.Results) error {
	b, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(resultFile(dir, r.Part), append(b, '\n'), 0o644)
}

// load reads what there is of the parts.
func load(dir string) (all []*play.Results, err error) {
	for _, part := range []string{play.Native, play.Guest} {
		b, err := os.ReadFile(resultFile(dir, part))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		} else if err != nil {
			return nil, err
		}
		r := &play.Results{}
		if err := json.Unmarshal(b, r); err != nil {
			return nil, fmt.Errorf("%s: %w", resultFile(dir, part), err)
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("there are no results in %s", dir)
	}
	return all, nil
}

// conclude prints what was found, and writes the page where that was asked for.
func conclude(o options, out io.Writer) error {
	all, err := load(o.results)
	if err != nil {
		return err
	}
	text, missed := page(all)
	fmt.Fprint(out, text)
	switch {
	case o.trial() && (o.update || o.page):
		fmt.Fprintf(out, "\n%s is not written: this was a trial (-quick or -only)\n", pageFile)
	case o.update || o.page:
		if err := os.WriteFile(pageFile, []byte(text), 0o644); err != nil {
			return err
		}
	}
	if o.strict && len(missed) > 0 {
		return fmt.Errorf("%d goals are missed:\n  %s", len(missed), strings.Join(missed, "\n  "))
	}
	return nil
}
