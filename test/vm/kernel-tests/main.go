// Command kernel-tests runs the tests that need a kernel with ip_vs:
//
//	go run ./test/vm/kernel-tests [-where auto|host|vm] [-kernel NAME[,NAME]|all] [-run REGEXP] [-open] [-args ARGUMENTS] [-t SECONDS] [PACKAGE...]
//
// A kernel test is a function whose name starts with TestKernel; every package
// under PACKAGE (./... by default) that has one takes part. The test binaries
// are compiled here, statically, and each runs in a fresh network namespace
// with SLUICE_KERNEL=1: on this machine's kernel where that has ip_vs, else all
// of them in one boot of the VM. A kernel with a name, which is a Debian release's,
// is booted in the VM in any case; the same binaries run on each that is named, at the
// same time.
//
// The guest is a sealed one (see package machine): it sees a copy of the checkout, its
// clock is its own, and a run is much like the one before, however busy the machine is.
// With -open, or -update among the arguments, it is not: two processors, this machine's
// files, and what a test writes stays.
//
// A skip counts as a failure, and so does a package that ran no test: asked for
// a real kernel, "not tested" must not look like "passed".
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/sluice-lb/sluice/test/vm/machine"
)

type options struct {
	where, pattern string
	arguments      string   // more of them for the test binaries
	kernels        []string // Debian releases; "" is what the place has
	limit          time.Duration
	memoryMB       int
	open           bool
	packages       []string
}

func main() {
	runtime.LockOSThread() // a guest is tied to the life of this thread
	var o options
	flag.StringVar(&o.where, "where", envOr("SLUICE_KERNEL_WHERE", "auto"), "`host`, vm or auto")
	flag.StringVar(&o.pattern, "run", "^TestKernel", "run the tests that match this `regexp`")
	flag.StringVar(&o.arguments, "args", "", "more `arguments` for the test binaries, which all of them must know")
	kernel := flag.String("kernel", "", "boot the kernels of these Debian `releases` in the VM, with commas, or all: "+strings.Join(allKernels, ","))
	flag.BoolVar(&o.open, "open", false, "boot a guest with two processors, this machine's time, and its files, which the tests may change")
	flag.IntVar(&o.memoryMB, "m", 2560, "guest memory in `MB`")
	seconds := flag.Int("t", 2700, "time limit in `seconds` for all of them on one kernel")
	flag.Parse()
	o.limit = time.Duration(*seconds) * time.Second
	o.kernels = kernels(*kernel)
	// What a test writes would be forgotten.
	o.open = o.open || slices.Contains(strings.Fields(o.arguments), "-update")
	if o.packages = flag.Args(); len(o.packages) == 0 {
		o.packages = []string{"./..."}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "kernel-tests:", err)
		os.Exit(1)
	}
}

// allKernels are the releases whose kernels everything has to pass on.
var allKernels = []string{"bookworm", "trixie"}

func kernels(name string) []string {
	if name == "all" {
		return allKernels
	}
	return strings.Split(name, ",")
}

func envOr(name, fallback string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return fallback
}

func run(ctx context.Context, o options, out io.Writer) error {
	packages, err := discover(ctx, o.packages)
	if err != nil {
		return err
	}
	if len(packages) == 0 {
		return fmt.Errorf("no TestKernel function in %s", strings.Join(o.packages, " "))
	}
	if err := machine.Install(ctx, os.Stderr, machine.TestTools...); err != nil {
		return err
	}
	place, why, err := choose(ctx, o)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "kernel tests of %d packages %s\n", len(packages), why)
	dir, remove, err := machine.WorkDir("kernel-tests")
	if err != nil {
		return err
	}
	defer remove()
	if err := compile(ctx, packages, dir); err != nil {
		return err
	}
	script := filepath.Join(dir, "run.sh")
	if err := os.WriteFile(script, []byte(runScript(packages, o)), 0o755); err != nil {
		return err
	}
	execute := machine.Run
	if place == machine.Host {
		execute = machine.RunHost
	}
	files, err := seen(dir)
	if err != nil {
		return err
	}
	// Several kernels at a time: a sealed guest takes one processor, and most of an open
	// one's time is waiting.
	var lock sync.Mutex
	errs, summaries := make([]error, len(o.kernels)), make([]string, len(o.kernels))
	var all sync.WaitGroup
	for i, kernel := range o.kernels {
		all.Go(func() {
			runtime.LockOSThread() // as in main
			to := &lines{out: out, lock: &lock}
			if len(o.kernels) > 1 {
				to.prefix = kernel + "| "
			}
			results := &collector{out: to}
			status, err := execute(ctx, machine.Config{
				Command: []string{"/bin/sh", script}, Limit: o.limit, Suite: kernel, MemoryMB: o.memoryMB,
				Sealed: !o.open && place == machine.VM, Files: files,
				Output: results, Log: os.Stderr,
			})
			results.flush()
			to.flush()
			summaries[i] = fmt.Sprintf("%s: %s\n", label(kernel), results.summary())
			if err = errors.Join(err, results.verdict(packages, o.pattern), statusError(status)); err != nil {
				errs[i] = fmt.Errorf("%s: %w", label(kernel), err)
			}
		})
	}
	all.Wait()
	fmt.Fprint(out, strings.Join(summaries, ""))
	return errors.Join(errs...)
}

// seen is what the tests read: the checkout, our programs, and what was compiled into
// dir.
func seen(dir string) ([]string, error) {
	root, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, err
	}
	files := []string{dir}
	for _, e := range entries {
		if name := e.Name(); name != "bin" && name != ".git" {
			files = append(files, filepath.Join(root, name))
		}
	}
	for _, name := range []string{"sluice", "sluiced"} {
		files = append(files, filepath.Join(root, "bin", name))
	}
	return files, nil
}

// choose is where to run, and why. A kernel that is named is a guest's.
func choose(ctx context.Context, o options) (machine.Place, string, error) {
	if o.kernels[0] == "" {
		return machine.Choose(ctx, machine.Place(o.where))
	}
	if machine.Place(o.where) == machine.Host {
		return "", "", fmt.Errorf("-where host has one kernel, its own: leave -kernel %s out", strings.Join(o.kernels, ","))
	}
	return machine.VM, "in the VM, on the kernels of " + strings.Join(o.kernels, " and "), nil
}

// label names a kernel in what is reported.
func label(kernel string) string {
	if kernel == "" {
		return "stock kernel"
	}
	return "kernel of " + kernel
}

func statusError(status int) error {
	if status != 0 {
		return fmt.Errorf("exit status %d", status)
	}
	return nil
}
