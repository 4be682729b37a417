// Command vm runs a command on a stock Linux kernel with ip_vs, in QEMU, with
// this machine's file system as the guest's:
//
//	go run ./test/vm [-where vm|auto|host] [-m MB] [-t SECONDS] [-c CPUS] [-e NAME[=VALUE]]... [-suite NAME] [-system] -- COMMAND [ARG...]
//
// The command runs as root in the current directory; its output is streamed and
// its exit status returned (go run itself turns every failure into status 1;
// build the command where the number matters). Status 124 means that the time
// was over, 125 that the guest could not be run.
//
// In the guest TMPDIR is a tmpfs, /run, /dev, /proc and /sys are its own,
// everything else is the host's: what the command writes elsewhere stays. With -system
// nothing is the host's but the current directory, which is read-only.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-lb/sluice/test/vm/machine"
)

func main() {
	runtime.LockOSThread() // the guest is tied to the life of this thread
	var c machine.Config
	seconds := flag.Int("t", 300, "time limit in `seconds`, boot included")
	flag.IntVar(&c.MemoryMB, "m", 1536, "guest memory in `MB`")
	flag.IntVar(&c.CPUs, "c", 2, "guest `CPUs`")
	flag.StringVar(&c.Suite, "suite", "", "boot the kernel of this Debian `release`, for example trixie")
	flag.BoolVar(&c.System, "system", false, "boot a small Debian system of its own, with systemd, that sees the current directory only")
	flag.BoolVar(&c.Sealed, "sealed", false, "boot a guest whose root, with a copy of the current directory, is in memory, and whose clock counts instructions")
	where := flag.String("where", "vm", "run in a vm, on this `host`'s kernel, or auto: there if it has ip_vs")
	quiet := flag.Bool("q", false, "do not report what the runner does")
	flag.Func("e", "pass `NAME[=VALUE]` to the command; may be repeated", func(s string) error {
		if !strings.Contains(s, "=") {
			s += "=" + os.Getenv(s)
		}
		c.Env = append(c.Env, s)
		return nil
	})
	flag.Parse()
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	c.Command = flag.Args()
	if dir, err := os.Getwd(); c.Sealed && err == nil {
		c.Files = []string{dir}
	}
	c.Limit = time.Duration(*seconds) * time.Second
	c.Output = os.Stdout
	if !*quiet {
		c.Log = prefixed{}
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status, err := run(ctx, c, machine.Place(*where))
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		status = 125
		if errors.Is(err, machine.ErrTimeout) {
			status = 124
		}
	}
	os.Exit(status)
}

func run(ctx context.Context, c machine.Config, where machine.Place) (int, error) {
	if err := machine.Install(ctx, os.Stderr, machine.TestTools...); err != nil {
		return 0, err
	}
	place, why, err := machine.Choose(ctx, where)
	if err != nil {
		return 0, err
	}
	if where == machine.Auto && c.Log != nil {
		fmt.Fprintln(c.Log, "running", why)
	}
	if place == machine.Host {
		return machine.RunHost(ctx, c)
	}
	return machine.Run(ctx, c)
}

// prefixed marks the runner's own lines on standard error.
type prefixed struct{}

func (prefixed) Write(p []byte) (int, error) {
	fmt.Fprintf(os.Stderr, "vm: %s", p)
	return len(p), nil
}
