// Command bench compares sluiced with keepalived: what checking costs, and how soon the
// kernel's table follows.
//
//	go run ./test/bench [-parts native,guest] [-quick] [-update] [-only STEP] [-pairs N] [-strict]
//
// Both daemons get the same files and the same backend, one after the other, in rounds
// whose order turns round. The results are kept as JSON in bin/bench, a file for each
// part; -update makes docs/performance.md of all that is there, -page does that alone.
//
// # The parts
//
// native runs on this machine, as it is: CPU for each 1,000 checks, memory, system
// calls, the first round, checks done of those that were due and how late they are,
// and what a reload does to them, with 1,000 and 10,000 servers and a delay_loop of a
// second; sluiced alone from 100 to 30,000; and ten seconds in which nothing is due.
// It needs root (for network namespaces), no ip_vs, and a C compiler: sluiced runs with
// --observe, and the installed keepalived, unchanged, with a library in front of libnl
// that acknowledges every change of the table (test/bench/noipvs). Without a compiler
// the part is left out.
//
// guest runs where there is an ip_vs, as a rule in an emulated machine (test/vm), and
// changes nothing of either daemon: from the start to the complete table, beside
// ipvsadm -R; a reload that brings one server and one that takes it away; one server
// that fails, and half of them at once.
//
// # Trying
//
// -quick takes small numbers, short windows and one round: a few minutes for both
// parts, and figures that mean nothing. -only tcp, -only slope, -only install and so on
// take the steps whose name contains it. Neither writes the page; their results are in
// bin/bench/trial. The process table shows what runs; everything
// ends with this program.
//
// # What the figures are
//
// Ratios of one run on one machine. What moves the level of both daemons (the load of
// others, the emulation, the kernel) moves the ratio much less, and that is why there
// are rounds, medians and ranges. test/bench/notes.md has the method and what is to be
// kept in mind; it is part of the page.
//
// # Decisions that were close
//
//   - The driver is one program for three jobs, host, guest and backend: the guest sees
//     the same file, and nothing has to be built there.
//   - Results are kept apart from the page: a part can be run again alone, and a figure
//     that looks odd be traced to its round.
//   - A goal that is missed does not fail the run, unless -strict asks for it: machines
//     are shared, and what must never fail is asserted by tests that count.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-lb/sluice/test/bench/backend"
	"github.com/sluice-lb/sluice/test/bench/play"
	"github.com/sluice-lb/sluice/test/vm/machine"
)

// options are the command line.
type options struct {
	parts      string
	quick      bool
	only       string
	pairs      int
	keepalived string
	sluiced    string
	where      string
	suite      string
	memoryMB   int
	limit      time.Duration
	results    string
	update     bool
	page       bool
	strict     bool
}

func main() {
	runtime.LockOSThread() // a guest is tied to the life of this thread
	var o options
	guest := flag.String("guest", "", "carry out the plan in this `file`; what the host starts in the guest")
	out := flag.String("out", "", "where -guest writes the results")
	socket := flag.String("backend", "", "be the backend, with its control at this `socket`")
	room := flag.Int("room", 1000, "how many checks a -backend records")
	http := flag.Bool("http", false, "the -backend answers requests")
	flag.StringVar(&o.parts, "parts", "native,guest", "which of them, with commas")
	flag.BoolVar(&o.quick, "quick", false, "small numbers and one round, to try the benchmarks themselves")
	flag.StringVar(&o.only, "only", "", "only steps whose name contains this `word`")
	flag.IntVar(&o.pairs, "pairs", 0, "rounds of each step, in place of its own number")
	flag.StringVar(&o.keepalived, "keepalived", "system", "what to compare with: system, a Debian `release`, or a path")
	flag.StringVar(&o.sluiced, "sluiced", "", "the sluiced to measure, in place of one that is built from this checkout")
	flag.StringVar(&o.where, "where", "auto", "of the guest part: `host`, vm or auto: here if this kernel has ip_vs")
	flag.StringVar(&o.suite, "suite", "", "boot the kernel of this Debian `release`")
	flag.IntVar(&o.memoryMB, "m", 2048, "guest memory in `MB`")
	flag.DurationVar(&o.limit, "t", 20*time.Minute, "time limit of each part")
	flag.StringVar(&o.results, "results", "bin/bench", "`folder` for results")
	flag.BoolVar(&o.update, "update", false, "write docs/performance.md")
	flag.BoolVar(&o.page, "page", false, "write it from the results that are there, and run nothing")
	flag.BoolVar(&o.strict, "strict", false, "a goal that is missed fails the run")
	flag.Parse()
	if o.trial() {
		o.results = filepath.Join(o.results, "trial")
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	var err error
	switch {
	case *socket != "":
		err = serve(ctx, *socket, *room, *http)
	case *guest != "":
		err = machine.InGuest(*guest, *out, func(p play.Plan) (*play.Results, error) { return play.Run(ctx, p, os.Stdout) })
	case flag.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", flag.Arg(0))
	case o.page:
		err = conclude(o, os.Stdout)
	default:
		err = onHost(ctx, o, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// serve is the backend until it is told to end, or nobody is left to tell it.
func serve(ctx context.Context, socket string, room int, http bool) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := backend.Listen(play.Ports, http, room)
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	defer l.Close()
	parent := os.Getppid()
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for os.Getppid() == parent && ctx.Err() == nil {
			<-tick.C
		}
		s.Close()
	}()
	controlled := make(chan error, 1)
	go func() { controlled <- s.Control(l) }()
	fmt.Println("serving")
	err = s.Serve()
	l.Close()
	return errors.Join(err, <-controlled)
}

// trial says that these results are not for the page, nor in the place of those that
// are.
func (o options) trial() bool { return o.quick || o.only != "" }

// chosen are the parts that were asked for.
func (o options) chosen() ([]string, error) {
	all := strings.Split(o.parts, ",")
	for _, p := range all {
		if p != play.Native && p != play.Guest {
			return nil, fmt.Errorf("-parts: unknown part %q: want native or guest", p)
		}
	}
	return all, nil
}
