package play

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/bench/backend"
	"github.com/sluice-lb/sluice/test/bench/stat"
	"github.com/sluice-lb/sluice/test/daemon"
)

// room is how many checks of a run are recorded.
const room = 2_000_000

// patience bounds waits for what takes a moment.
const patience = 60 * time.Second

// running is a daemon at work on a backend.
type running struct {
	p      *player
	st     *testkit.Stage
	d      daemon.Daemon
	spec   Spec
	group  string
	round  int
	dir    string
	ns     *testkit.NS
	back   backend.Client
	server int // the backend's process
	proc   *testkit.Process
	begun  int64
	worker int // the process that checks
	all    []int
}

// place makes a namespace with a backend in it.
func (p *player) place(st *testkit.Stage, d daemon.Daemon, spec Spec, group string, round int) *running {
	r := &running{p: p, st: st, d: d, spec: spec, group: group, round: round, dir: st.TempDir(), ns: testkit.NewNS(st, "bench")}
	r.back.Socket = filepath.Join(r.dir, "backend.sock")
	argv := p.pinned(backendCPU, p.self, "-backend", r.back.Socket, "-room", fmt.Sprint(room), fmt.Sprintf("-http=%v", spec.Mode == HTTP))
	server := r.ns.Start(st, nil, argv[0], argv[1:]...)
	server.WaitLine(st, patience, "^serving$")
	r.server = server.PID()
	write(st, confFile(r.dir), spec.Conf())
	return r
}

// start starts the daemon.
func (r *running) start() {
	argv, env := r.p.argv(r.d, r.dir)
	r.begun = backend.Now()
	r.proc = r.ns.Start(r.st, env, argv[0], argv[1:]...)
	r.worker = r.proc.PID()
	r.all = []int{r.worker}
	if r.d.Name == Sluice {
		return
	}
	testkit.Eventually(r.st, patience, func() string {
		if !r.proc.Running() {
			r.st.Fatalf("%s ended at once: %s", r.d.Name, lastOf(r.proc.Lines()))
		}
		kids, err := children("/proc", r.proc.PID())
		if err != nil || len(kids) == 0 {
			return fmt.Sprintf("%s has no process that checks (%v)", r.d.Name, err)
		}
		r.worker, r.all = kids[0], append([]int{r.proc.PID()}, kids...)
		return ""
	})
	r.st.Cleanup(func() {
		// The parent would start another child, and a child that is asked to end
		// empties the table first, into the time of the next run.
		if r.proc.Running() {
			_ = unix.Kill(r.proc.PID(), unix.SIGSTOP)
			_ = unix.Kill(r.worker, unix.SIGKILL)
		}
	})
}

// argv is the command line of a daemon: without the debug lines that nobody has on
// who has ten thousand servers, and without a syslog, which is not there.
func (p *player) argv(d daemon.Daemon, dir string) (argv, env []string) {
	if d.Name == Sluice {
		argv = d.Argv(dir, confFile(dir))
		if p.plan.Part == Native {
			argv = append(argv, "--observe")
		}
		return p.pinned(daemonCPU, argv...), nil
	}
	argv = slices.DeleteFunc(d.Argv(dir, confFile(dir), "-G"), func(w string) bool { return w == "-D" })
	if p.plan.Part == Native {
		env = []string{"LD_PRELOAD=" + p.plan.Preload}
	}
	return p.pinned(daemonCPU, argv...), env
}

func lastOf(lines []string) string {
	return strings.Join(lines[max(0, len(lines)-4):], " | ")
}

func (r *running) sample(measure string, value float64) {
	r.p.sample(r.group, measure, r.actor(), r.round, value)
}

// actor is who a figure is of; the cheap end is an actor of its own, beside the same
// keepalived.
func (r *running) actor() string {
	if r.spec.Mode == Reset {
		return Sluice + " reset"
	}
	return r.d.Name
}

// pass lets time pass; a daemon that ends meanwhile ends the run.
func (r *running) pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-timer.C:
			return
		case <-r.p.ctx.Done():
			r.st.Fatalf("the time was over")
		case <-tick.C:
			if r.proc != nil && !r.proc.Running() {
				r.st.Fatalf("%s ended: %s", r.d.Name, lastOf(r.proc.Lines()))
			}
		}
	}
}

func (r *running) status() backend.Status {
	s, err := r.back.Status()
	if err != nil {
		r.st.Fatalf("%v", err)
	}
	if s.Lost > 0 {
		r.st.Fatalf("the backend lost %d checks: its record is full", s.Lost)
	}
	return s
}

func (r *running) events(from int64) []stat.Event {
	all, err := r.back.Events(from)
	if err != nil {
		r.st.Fatalf("%v", err)
	}
	return all
}

func (r *running) usage(pid int) usage {
	u, err := readUsage("/proc", pid)
	if err != nil {
		r.st.Fatalf("what %s uses: %v", r.d.Name, err)
	}
	return u
}

// firstRound waits until each server has been checked once.
func (r *running) firstRound() {
	within := time.Duration(r.spec.Delay)*time.Second + patience
	var s backend.Status
	for deadline := time.Now().Add(within); s.Targets < int64(r.spec.Servers()); s = r.status() {
		if time.Now().After(deadline) {
			r.st.Fatalf("%s has checked %d of %d servers after %v: %s", r.d.Name, s.Targets, r.spec.Servers(), within, lastOf(r.proc.Lines()))
		}
		r.pass(20 * time.Millisecond)
	}
	if why := refused(r.proc.Lines()); why != "" {
		r.st.Fatalf("%s does not do what the file says: %s", r.d.Name, why)
	}
	r.sample(FirstRound, float64(s.Latest-r.begun)/1e9)
}

// refused returns a line of a log that says that a word of the file is not known:
// what is measured then is not what its row says.
func refused(lines []string) string {
	for _, l := range lines {
		if lower := strings.ToLower(l); strings.Contains(lower, "unknown keyword") {
			return l
		}
	}
	return ""
}

// checks measures a window after the first round.
func (r *running) checks(window time.Duration) {
	done, from, to := r.cost(window)
	due := float64(r.spec.Servers()) * float64(to-from) / 1e9 / float64(r.spec.Delay)
	r.sample(Done, 100*done/due)
	late := stat.Lateness(r.events(0), time.Duration(r.spec.Delay)*time.Second, from, to)
	if len(late) > 0 {
		r.sample(Late50, stat.Percentile(late, 50))
		r.sample(Late99, stat.Percentile(late, 99))
	}
}

// cost measures what the checks of a window cost, and returns how many there were.
func (r *running) cost(window time.Duration) (done float64, from, to int64) {
	served := r.usage(r.server)
	before, u, from := r.status(), r.usage(r.worker), backend.Now()
	r.pass(window)
	used, after, to := r.usage(r.worker).minus(u), r.status(), backend.Now()
	served = r.usage(r.server).minus(served)
	done = float64(after.Checks - before.Checks)
	if done == 0 {
		r.st.Fatalf("%s checked nothing in %v: %s", r.d.Name, window, lastOf(r.proc.Lines()))
	}
	r.sample(CPU, float64(used.cpu)/1e6/done*1000)
	r.sample(Waited, 100*float64(used.wait)/float64(to-from))
	r.sample(Backend, 100*float64(served.cpu)/float64(to-from))
	r.sample(RSS, r.rss(r.worker))
	r.sample(RSSAll, r.rss(r.all...))
	return done, from, to
}

// rss is in MiB.
func (r *running) rss(pids ...int) float64 {
	sum := int64(0)
	for _, pid := range pids {
		n, err := readRSS("/proc", pid)
		if err != nil {
			r.st.Fatalf("memory of %s: %v", r.d.Name, err)
		}
		sum += n
	}
	return float64(sum) / 1024
}

// syscalls counts them in a window of its own.
func (r *running) syscalls(window time.Duration) {
	c, err := count(r.worker, everySyscall)
	if err != nil {
		r.p.problem("%s: system calls are not counted: %v", r.group, err)
		return
	}
	defer c.close()
	before := r.status()
	from, err := c.total()
	if err == nil {
		r.pass(window)
		var to uint64
		if to, err = c.total(); err == nil {
			r.sample(Syscalls, float64(to-from)/float64(max(1, r.status().Checks-before.Checks)))
		}
	}
	if err != nil {
		r.p.problem("%s: system calls are not counted: %v", r.group, err)
	}
}

// reconfigure puts the file for some more servers in place and tells the daemon.
func (r *running) reconfigure(extra int) (at int64) {
	r.spec.Extra = extra
	write(r.st, confFile(r.dir), r.spec.Conf())
	at = backend.Now()
	r.proc.Signal(r.st, unix.SIGHUP)
	return at
}

// reloadUnderChecks brings one server more and looks at the checks meanwhile.
func (r *running) reloadUnderChecks(window time.Duration) {
	before := r.spec.Servers()
	at := r.reconfigure(1)
	r.pass(window)
	events := r.events(0)
	to := at + int64(window)
	r.sample(Gap, stat.Gap(events, at, to))
	if worst := stat.Worst(events, time.Duration(r.spec.Delay)*time.Second, at, to); len(worst) > 0 {
		r.sample(Delayed99, stat.Percentile(worst, 99))
		r.sample(DelayedMax, worst[len(worst)-1])
	}
	i := slices.IndexFunc(events, func(e stat.Event) bool { return e.Target == before })
	if i < 0 {
		r.st.Fatalf("%s has not checked the new server %v after the reload: %s", r.d.Name, window, lastOf(r.proc.Lines()))
	}
	r.sample(NewChecked, float64(events[i].At-at)/1e9)
}

// operations is how often sluiced has changed the kernel's table.
func (r *running) operations() uint64 {
	ctx, cancel := context.WithTimeout(r.p.ctx, patience)
	defer cancel()
	for {
		s, err := control.NewClient(daemon.Socket(r.dir)).Status(ctx)
		if err == nil {
			return s.Kernel.Operations
		}
		if ctx.Err() != nil || !r.proc.Running() {
			r.st.Fatalf("status of sluiced: %v", err)
		}
		r.pass(time.Second) // it was too busy to answer
	}
}
