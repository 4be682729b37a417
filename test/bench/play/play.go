// Package play carries out the runs of the benchmarks: it starts a daemon and its
// backend in a network namespace of their own, lets time pass, changes the file, lets
// servers fail, and takes what the kernel and the backend tell.
//
// It decides what is measured, how, and in which order; what the figures come to is
// the page's business. Nothing is taken from what a daemon says of itself, but for the
// number of operations, which nobody else counts.
//
// Decisions that were close:
//
//   - A namespace for each run: the kernel keeps deleted destinations for a while and
//     looks through them for each new one, which slows whatever comes second.
//   - Rounds, and within each the daemons one after another, in an order that turns
//     round: the machine's speed changes over minutes by more than what is to be seen.
//   - The daemon has one CPU for itself, backend and driver have another.
//   - The time of threads is the scheduler's, in nanoseconds: the accounting by ticks
//     misses what wakes, works shortly and sleeps again, which is what a checker does.
//   - System calls are counted in a window of their own, since counting costs.
package play

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/daemon"
	"github.com/sluice-lb/sluice/test/runner"
)

// The parts, which can be run one without the other.
const (
	Native = "native"
	Guest  = "guest"
)

// Who does something.
const (
	Sluice     = daemon.Sluice
	Keepalived = "keepalived"
	Ipvsadm    = "ipvsadm -R"
)

// Plan is a part with what it needs.
type Plan struct {
	Part    string          `json:"part"`
	Daemons []daemon.Daemon `json:"daemons"`
	Quick   bool            `json:"quick,omitempty"`
	Pairs   int             `json:"pairs,omitempty"` // 0: as many as the part has of its own
	Preload string          `json:"preload,omitempty"`
	Only    string          `json:"only,omitempty"` // a step of the part
	Seconds float64         `json:"seconds"`
}

// Sample is one figure: of one measure, in one round, of one daemon.
type Sample struct {
	Group   string  `json:"group"`
	Measure string  `json:"measure"`
	Actor   string  `json:"actor"`
	Round   int     `json:"round"`
	Value   float64 `json:"value"`
}

// Results are those of a part.
type Results struct {
	Part   string `json:"part"`
	Kernel string `json:"kernel"`
	CPUs   int    `json:"cpus"`
	// Load is the machine's load average before anything was done.
	Load       float64   `json:"load"`
	Keepalived string    `json:"keepalived"`
	Quick      bool      `json:"quick,omitempty"`
	Began      time.Time `json:"began"`
	Took       float64   `json:"took"`
	Samples    []Sample  `json:"samples"`
	// Problems are runs that did not come to their end, and measures that could not
	// be taken.
	Problems []string `json:"problems,omitempty"`
}

// player carries out a plan.
type player struct {
	ctx  context.Context
	plan Plan
	self string
	log  io.Writer
	res  *Results
}

// Run carries out the plan; log gets a line for each run.
func Run(ctx context.Context, plan Plan, log io.Writer) (*Results, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(plan.Seconds*float64(time.Second)))
	defer cancel()
	if os.Geteuid() != 0 {
		return nil, fmt.Errorf("the %s part makes network namespaces and needs root", plan.Part)
	}
	var needed, wanted []string
	if plan.Part == Guest {
		needed, wanted = []string{"ip_vs"}, []string{"ip_vs_rr"}
	}
	kernel, err := runner.Prepare(ctx, needed, wanted)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &player{ctx: ctx, plan: plan, self: self, log: log, res: &Results{
		Part: plan.Part, Kernel: kernel, CPUs: runtime.NumCPU(), Quick: plan.Quick, Began: time.Now().UTC(),
	}}
	if p.res.CPUs < 2 {
		p.problem("there is one CPU only: daemon and backend share it, and nothing here is comparable with another machine's")
	}
	if p.res.Load, err = load("/proc"); err != nil {
		return nil, err
	}
	if err := pinSelf(backendCPU); err != nil && p.res.CPUs > 1 {
		p.problem("cannot keep off the daemon's CPU: %v", err)
	}
	steps := p.native()
	if plan.Part == Guest {
		if err := mountTracefs(); err != nil {
			p.problem("system calls are not counted: %v", err)
		}
		steps = p.guest()
	}
	p.carryOut(steps)
	p.res.Took = time.Since(p.res.Began).Seconds()
	return p.res, nil
}

// reloadRounds are the first rounds of a step, in which there are reloads as well.
const reloadRounds = 2

// step is a sequence of rounds in which the same things are done.
type step struct {
	name   string
	rounds int
	// runs are done one after another in each round.
	runs []func(round int) error
}

func (p *player) carryOut(steps []step) {
	for _, s := range steps {
		if p.plan.Only != "" && !strings.Contains(s.name, p.plan.Only) {
			continue
		}
		for round := range s.rounds {
			runs := slices.Clone(s.runs)
			if round%2 == 1 {
				slices.Reverse(runs)
			}
			for _, run := range runs {
				if p.ctx.Err() != nil {
					p.problem("%s, round %d: left out, the time was over", s.name, round+1)
					continue
				}
				begun, before := time.Now(), len(p.res.Samples)
				err := run(round)
				p.report(s.name, round, before, time.Since(begun), err)
			}
		}
	}
}

func (p *player) report(name string, round, before int, took time.Duration, err error) {
	if err != nil {
		p.problem("%s, round %d: %v", name, round+1, err)
	}
	var words []string
	who := ""
	for _, s := range p.res.Samples[before:] {
		who = s.Actor
		words = append(words, fmt.Sprintf("%s %.4g", s.Measure, s.Value))
	}
	fmt.Fprintf(p.log, "%-22s %d %-11s %4.0fs  %s\n", name, round+1, who, took.Seconds(), strings.Join(words, ", "))
}

func (p *player) problem(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	fmt.Fprintln(p.log, "problem:", text)
	p.res.Problems = append(p.res.Problems, text)
}

func (p *player) sample(group, measure, actor string, round int, value float64) {
	p.res.Samples = append(p.res.Samples, Sample{group, measure, actor, round, value})
}

// pairs is how many rounds a step has: its own number, the one asked for, or one.
func (p *player) pairs(own int) int {
	switch {
	case p.plan.Pairs > 0:
		return p.plan.Pairs
	case p.plan.Quick:
		return 1
	}
	return own
}

// seconds is a span that a quick run makes shorter.
func (p *player) seconds(full, quick float64) time.Duration {
	if p.plan.Quick {
		full = quick
	}
	return time.Duration(full * float64(time.Second))
}

// either is a number that a quick run takes smaller.
func (p *player) either(full, quick int) int {
	if p.plan.Quick {
		return quick
	}
	return full
}

// CPUs.
const (
	daemonCPU  = 0
	backendCPU = 1
)

// pinned puts the program that ties a process to a CPU in front of a command.
func (p *player) pinned(cpu int, argv ...string) []string {
	if p.res.CPUs < 2 {
		return argv
	}
	return append([]string{"taskset", "-c", fmt.Sprint(cpu)}, argv...)
}

// pinSelf ties this process to a CPU; threads that come later are where the one is
// that makes them.
func pinSelf(cpu int) error {
	var set unix.CPUSet
	set.Set(cpu)
	tids, err := threads("/proc", os.Getpid())
	if err != nil {
		return err
	}
	for _, tid := range tids {
		if err := unix.SchedSetaffinity(tid, &set); err != nil && err != unix.ESRCH {
			return err
		}
	}
	return nil
}

// on plays something and returns what failed in it.
func on(fn func(st *testkit.Stage)) error {
	st := &testkit.Stage{}
	st.Play(func() { fn(st) })
	if len(st.Failures) > 0 {
		return fmt.Errorf("%s", strings.Join(st.Failures, "; "))
	}
	return nil
}

// write makes a file in one step: a daemon never sees half of it.
func write(t testkit.T, path, text string) {
	if err := os.WriteFile(path+".new", []byte(text), 0o644); err != nil {
		t.Fatalf("%v", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatalf("%v", err)
	}
}

func confFile(dir string) string { return filepath.Join(dir, "bench.conf") }
