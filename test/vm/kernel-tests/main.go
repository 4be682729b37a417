// Command kernel-tests runs the tests that need a kernel with ip_vs:
//
//	go run ./test/vm/kernel-tests [-where auto|host|vm] [-run REGEXP] [-t SECONDS] [-suite NAME] [PACKAGE...]
//
// A kernel test is a function whose name starts with TestKernel; every package
// under PACKAGE (./... by default) that has one takes part. The test binaries
// are compiled here, statically, and each runs in a fresh network namespace
// with SLUICE_KERNEL=1: on this machine's kernel where that has ip_vs, else all
// of them in one boot of the VM.
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
	"strings"
	"syscall"
	"time"

	"github.com/sluice-lb/sluice/test/vm/machine"
)

type options struct {
	where, pattern, suite string
	limit                 time.Duration
	memoryMB              int
	packages              []string
}

func main() {
	runtime.LockOSThread() // a guest is tied to the life of this thread
	var o options
	flag.StringVar(&o.where, "where", envOr("SLUICE_KERNEL_WHERE", "auto"), "`host`, vm or auto")
	flag.StringVar(&o.pattern, "run", "^TestKernel", "run the tests that match this `regexp`")
	flag.StringVar(&o.suite, "suite", "", "boot the kernel of this Debian `release` in the VM")
	flag.IntVar(&o.memoryMB, "m", 2048, "guest memory in `MB`")
	seconds := flag.Int("t", 600, "time limit in `seconds` for all of them")
	flag.Parse()
	o.limit = time.Duration(*seconds) * time.Second
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
	place, why, err := machine.Choose(ctx, machine.Place(o.where))
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "kernel tests of %d packages %s\n", len(packages), why)
	// In the checkout, which the guest sees; apart for each run, so that several
	// may go on at once.
	if err := os.MkdirAll("bin", 0o755); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("bin", "kernel-tests-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := compile(ctx, packages, dir); err != nil {
		return err
	}
	script := filepath.Join(dir, "run.sh")
	if err := os.WriteFile(script, []byte(runScript(packages, o.pattern, o.limit)), 0o755); err != nil {
		return err
	}
	results := &collector{out: out}
	execute := machine.Run
	if place == machine.Host {
		execute = machine.RunHost
	}
	status, err := execute(ctx, machine.Config{
		Command: []string{"/bin/sh", script}, Limit: o.limit, Suite: o.suite, MemoryMB: o.memoryMB,
		Output: results, Log: os.Stderr,
	})
	results.flush()
	if err != nil {
		return err
	}
	fmt.Fprintln(out, results.summary())
	return errors.Join(results.verdict(packages, o.pattern), statusError(status))
}

func statusError(status int) error {
	if status != 0 {
		return fmt.Errorf("exit status %d", status)
	}
	return nil
}
