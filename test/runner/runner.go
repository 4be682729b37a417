// Package runner is what the programs have in common that play scenarios where there is
// an ip_vs: their command line, the way to that place and back, and what is left of runs
// that are not as they should be. They are test/diff, test/ecmp and test/loss; test/bench
// prepares its guest by it.
//
// # Decisions
//
//   - A program runs itself again in the guest, with a plan (test/vm/machine): one binary
//     is both sides, and Main tells which it is.
//   - What a scenario is, how it is judged and what the page says of it is each program's
//     own: they have only the names in common.
package runner

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"syscall"
	"time"

	"github.com/sluice-lb/sluice/test/vm/machine"
)

// Options are the part of the command line that all of them have.
type Options struct {
	// Run matches the names of the scenarios that take part.
	Run       *regexp.Regexp
	Quick     bool
	Sluiced   string
	Where     string
	Suite     string
	Parallel  int
	MemoryMB  int
	Limit     time.Duration
	Update    bool
	Artifacts string
	Verbose   bool

	name, pattern, guest, out string
}

// Program is what differs in that part.
type Program struct {
	Name string
	// Page is what -update writes.
	Page string
	// Parallel and Limit are as many runs, and as much time, as are of use.
	Parallel int
	Limit    time.Duration
	// Quick, Runs and Verbose tell of the options -quick, -parallel and -v.
	Quick, Runs, Verbose string
	// Artifacts are what runs leave that are not as they should be.
	Artifacts string
}

// Flags adds the options to the command line.
func (o *Options) Flags(f *flag.FlagSet, p Program) {
	o.name = p.Name
	f.StringVar(&o.guest, "guest", "", "carry out the plan in this `file`; what the host starts in the guest")
	f.StringVar(&o.out, "out", "", "where -guest writes the results")
	f.StringVar(&o.pattern, "run", "", "only scenarios whose names match this `regexp`")
	f.BoolVar(&o.Quick, "quick", false, p.Quick)
	f.StringVar(&o.Sluiced, "sluiced", "", "the sluiced to test, in place of one that is built from this checkout")
	f.StringVar(&o.Where, "where", string(machine.Auto), "`host`, vm or auto: here if this kernel has ip_vs")
	f.StringVar(&o.Suite, "suite", "", "boot the kernel of this Debian `release`")
	f.IntVar(&o.Parallel, "parallel", p.Parallel, p.Runs)
	f.IntVar(&o.MemoryMB, "m", 2048, "guest memory in `MB`")
	f.DurationVar(&o.Limit, "t", p.Limit, "time limit")
	f.BoolVar(&o.Update, "update", false, "write "+p.Page)
	f.StringVar(&o.Artifacts, "artifacts", "bin/"+p.Name, "`folder` for "+p.Artifacts+"; it is emptied first")
	f.BoolVar(&o.Verbose, "v", false, p.Verbose)
}

// Main reads the command line and is one of both sides: onHost, or, where the host has
// started this program again, inGuest. It ends the process.
func Main[P, R any](o *Options, onHost func(ctx context.Context, out io.Writer) error, inGuest func(ctx context.Context, p P, log io.Writer) (*R, error)) {
	runtime.LockOSThread() // a guest is tied to the life of this thread
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	if o.guest != "" {
		err = machine.InGuest(o.guest, o.out, func(p P) (*R, error) { return inGuest(ctx, p, os.Stdout) })
	} else if err = o.check(flag.Args()); err == nil {
		err = onHost(ctx, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", o.name, err)
		os.Exit(1)
	}
}

// check refuses a command line that cannot be meant.
func (o *Options) check(args []string) (err error) {
	if len(args) > 0 {
		return fmt.Errorf("unexpected argument %q", args[0])
	}
	if o.Run, err = regexp.Compile(o.pattern); err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	return nil
}

// Again runs this program where there is an ip_vs: work has the plan and gets the
// results. what is said of the runs before.
func (o *Options) Again(ctx context.Context, out io.Writer, what, work string, plan, results any) error {
	place, why, err := machine.Choose(ctx, machine.Place(o.Where))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s, %s\n", what, why)
	c := machine.Config{Limit: o.Limit, Suite: o.Suite, MemoryMB: o.MemoryMB, Log: os.Stderr}
	if o.Verbose {
		c.Output = out
	}
	return machine.Again(ctx, place, c, work, plan, results)
}

// Clear empties the folder of artifacts.
func (o *Options) Clear() error { return os.RemoveAll(o.Artifacts) }

// Save leaves an artifact.
func (o *Options) Save(name, text string) error {
	if err := os.MkdirAll(o.Artifacts, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(o.Artifacts, name), []byte(text), 0o644)
}

var release = regexp.MustCompile(`^\d+\.\d+`)

// Kernel leaves a release's patch level out: it changes with every fix.
func Kernel(r string) string { return release.FindString(r) }

// Reference is the page that is made from the table of keywords.
const Reference = "docs/configuration.md"

var served = regexp.MustCompile("(?m)^\\| `([a-zA-Z_0-9]+)` \\|.*\\| (?:yes|extension) \\|")

// Keywords are those of the reference that are served.
func Keywords(reference string) (all []string) {
	for _, m := range served.FindAllStringSubmatch(reference, -1) {
		all = append(all, m[1])
	}
	return all
}
