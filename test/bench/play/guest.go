package play

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/bench/backend"
	"github.com/sluice-lb/sluice/test/bench/stat"
	"github.com/sluice-lb/sluice/test/daemon"
)

// guest are the steps that need a table. An emulated machine is slow: the delays are
// those that it can keep.
func (p *player) guest() []step {
	n := p.either(10000, 500)
	var steps []step
	for _, spec := range []Spec{{Mode: TCP, Services: 1, Each: n, Delay: 60}, {Mode: TCP, Services: n / 10, Each: 10, Delay: 60}} {
		s := step{name: "install " + spec.Shape(), rounds: p.pairs(3)}
		for _, d := range p.plan.Daemons {
			s.runs = append(s.runs, p.installRun(d, spec))
		}
		s.runs = append(s.runs, p.restoreRun(spec))
		steps = append(steps, s)
	}
	for _, size := range []struct{ servers, delay, rounds int }{{1000, 5, 2}, {10000, 40, 1}} {
		if p.plan.Quick {
			size.servers, size.delay = size.servers/20, 3
		}
		spec := Spec{Mode: TCP, Services: size.servers / 10, Each: 10, Delay: size.delay}
		s := step{name: fmt.Sprintf("failure %d", size.servers), rounds: p.pairs(size.rounds)}
		for _, d := range p.plan.Daemons {
			s.runs = append(s.runs, p.failureRun(d, spec, s.name))
		}
		steps = append(steps, s)
	}
	return steps
}

// longDelay is from when on the first round is used for what follows it otherwise.
const longDelay = 10

// pollEvery is how exactly a moment of the table is known.
const pollEvery = 5 * time.Millisecond

// until looks at the table until it holds so many destinations, and returns when that
// was, with all that was seen.
func (r *running) until(w *watcher, services, dests int, within time.Duration) (at int64, seen []stat.Count) {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for deadline := time.Now().Add(within); ; <-tick.C {
		have, c := w.look(r.st)
		seen = append(seen, c)
		switch {
		case have == services && c.Total == dests:
			return c.At, seen
		case time.Now().After(deadline):
			r.st.Fatalf("the table has %d services and %d destinations after %v, want %d and %d: %s",
				have, c.Total, within, services, dests, lastOf(r.proc.Lines()))
		case r.p.ctx.Err() != nil:
			r.st.Fatalf("the time was over")
		case !r.proc.Running() && r.d.Name != Ipvsadm:
			r.st.Fatalf("%s ended: %s", r.d.Name, lastOf(r.proc.Lines()))
		}
	}
}

// installRun is a start, and reloads that bring a server and take it away.
func (p *player) installRun(d daemon.Daemon, spec Spec) func(int) error {
	return func(round int) error {
		return on(func(st *testkit.Stage) {
			r := p.place(st, d, spec, "install "+spec.Shape(), round)
			w := watch(st, r.ns)
			r.start()
			r.installed(w, spec)
			if round >= reloadRounds {
				return
			}
			r.settled() // whatever follows a start
			ops := r.changes()
			asked := r.reconfigure(1)
			at, _ := r.until(w, spec.Services, spec.Servers()+1, patience)
			r.sample(AddOne, float64(at-asked)/1e9)
			r.settled()
			r.sample(AddOps, ops())
			asked = r.reconfigure(0)
			at, _ = r.until(w, spec.Services, spec.Servers(), patience)
			r.sample(RemoveOne, float64(at-asked)/1e9)
			r.settled()
			ops = r.changes()
			lines := len(r.proc.Lines())
			r.reconfigure(0)
			// Nothing in the table shows the end of this one.
			if wrong := daemon.Await(r.proc, r.d, lines, daemon.Reloaded); wrong != "" {
				st.Fatalf("%s: a reload without a change: %s", r.d.Name, wrong)
			}
			r.settled()
			r.sample(NoneOps, ops())
		})
	}
}

// installed waits until the table is complete. As long as services are missing it asks
// for their number alone: to list a thousand of them every 5 ms would hold up whoever
// writes.
func (r *running) installed(w *watcher, spec Spec) {
	from := r.begun
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for deadline := time.Now().Add(2 * patience); time.Now().Before(deadline); <-tick.C {
		now := backend.Now()
		n, err := w.services()
		if err != nil {
			r.st.Fatalf("look at the table: %v", err)
		}
		if n == 0 {
			from = now
		}
		if n == spec.Services {
			break
		}
	}
	at, _ := r.until(w, spec.Services, spec.Servers(), 2*patience)
	r.sample(Install, float64(at-r.begun)/1e9)
	r.sample(Installing, float64(at-from)/1e9)
}

// settled waits until a reload is over in any case: the file is read, and what was to
// be written is.
func (r *running) settled() { r.pass(r.p.seconds(2.5, 2)) }

// changes counts what is done to the table from now on. sluiced counts itself, since
// one call can carry many; keepalived makes one for each, which the kernel counts.
func (r *running) changes() func() float64 {
	if r.d.Name == Sluice {
		before := r.operations()
		return func() float64 { return float64(r.operations() - before) }
	}
	return r.sends()
}

// sends counts the system calls that carry messages to the kernel.
func (r *running) sends() func() float64 {
	c, err := count(r.worker, sending...)
	if err != nil {
		r.p.problem("%s: messages are not counted: %v", r.group, err)
		return func() float64 { return -1 }
	}
	return func() float64 {
		defer c.close()
		n, err := c.total()
		if err != nil {
			r.st.Fatalf("%v", err)
		}
		return float64(n)
	}
}

// restoreRun is the tool that reads a table from a file.
func (p *player) restoreRun(spec Spec) func(int) error {
	return func(round int) error {
		return on(func(st *testkit.Stage) {
			r := &running{p: p, st: st, d: daemon.Daemon{Name: Ipvsadm}, spec: spec, group: "install " + spec.Shape(), round: round,
				dir: st.TempDir(), ns: testkit.NewNS(st, "bench")}
			w := watch(st, r.ns)
			rules := filepath.Join(r.dir, "rules")
			write(st, rules, spec.Rules())
			argv := p.pinned(daemonCPU, "sh", "-c", `exec ipvsadm -R < "$0"`, rules)
			r.begun = backend.Now()
			r.proc = r.ns.Start(st, nil, argv[0], argv[1:]...)
			r.installed(w, spec)
		})
	}
}

// failureRun is a round of checks, then one server that fails, then half of them.
func (p *player) failureRun(d daemon.Daemon, spec Spec, group string) func(int) error {
	return func(round int) error {
		return on(func(st *testkit.Stage) {
			r := p.place(st, d, spec, group, round)
			w := watch(st, r.ns)
			r.start()
			r.until(w, spec.Services, spec.Servers(), 2*patience)
			if spec.Delay > longDelay { // a round is long, and its checks are spread over it
				r.pass(p.seconds(5, 1))
				r.cost(p.seconds(15, 3))
				r.syscalls(p.seconds(4, 2))
				r.firstRound()
			} else {
				r.firstRound()
				r.checks(p.seconds(8, 3))
				r.syscalls(p.seconds(4, 2))
			}
			delay := time.Duration(spec.Delay) * time.Second
			shut := r.shut(portOne)
			at, _ := r.until(w, spec.Services, spec.Servers()-1, delay+patience)
			r.sample(OutOne, float64(at-shut)/1e9)
			ops, sends := r.changes(), r.sends()
			failing := spec.failing()
			shut = r.shut(portHalf)
			_, seen := r.until(w, spec.Services, spec.Servers()-1-failing, delay+patience)
			outs := stat.Outs(seen, shut, failing)
			r.sample(Out50, stat.Percentile(outs, 50))
			r.sample(Out99, stat.Percentile(outs, 99))
			r.sample(OutMax, stat.Percentile(outs, 100)-delay.Seconds())
			r.sample(OutOps, ops())
			r.sample(OutCall, sends())
		})
	}
}

func (r *running) shut(port int) int64 {
	at := backend.Now()
	if err := r.back.Shut(port); err != nil {
		r.st.Fatalf("%v", err)
	}
	return at
}
