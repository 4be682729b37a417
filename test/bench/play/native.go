package play

import (
	"fmt"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/daemon"
)

// native are the steps that need no ip_vs: what checking costs. sluiced observes, and
// keepalived is told by the library of test/bench/noipvs that it has changed a table.
func (p *player) native() []step {
	var steps []step
	large := p.either(10000, 1000)
	for _, s := range []struct {
		servers, rounds int
		window          float64
	}{{p.either(1000, 200), 3, 5}, {large, 5, 8}} {
		window := p.seconds(s.window, 2)
		steps = append(steps,
			step{fmt.Sprintf("tcp %d", s.servers), p.pairs(s.rounds), p.checkRuns(s.servers, window, s.servers == large, TCP, Reset)},
			step{fmt.Sprintf("http %d", s.servers), p.pairs(s.rounds), p.checkRuns(s.servers, window, false, HTTP)})
	}
	slope := step{name: "slope", rounds: p.pairs(1)}
	sizes := []int{100, 1000, 10000, 30000}
	if p.plan.Quick {
		sizes = []int{100, 500, 1500}
	}
	for _, n := range sizes {
		slope.runs = append(slope.runs, p.slopeRun(n))
	}
	idle := step{name: "idle", rounds: 1}
	for _, d := range p.plan.Daemons {
		idle.runs = append(idle.runs, p.idleRun(d))
	}
	return append(steps, slope, idle)
}

// checkRuns are keepalived in the first mode, and sluiced in all of them; if asked for
// there are reloads, in the modes that both have.
func (p *player) checkRuns(n int, window time.Duration, reloads bool, modes ...Mode) (runs []func(int) error) {
	for _, d := range p.plan.Daemons {
		for i, mode := range modes {
			if d.Name != Sluice && i > 0 {
				continue
			}
			runs = append(runs, func(round int) error {
				return on(func(st *testkit.Stage) {
					spec := Spec{Mode: mode, Services: n / 10, Each: 10, Delay: 1}
					r := p.place(st, d, spec, fmt.Sprintf("%s %d", modes[0], n), round)
					r.start()
					r.firstRound()
					r.pass(p.seconds(2, 1))
					r.checks(window)
					r.syscalls(p.seconds(1, 1))
					if reloads && mode == TCP && round < reloadRounds {
						r.reloadUnderChecks(p.seconds(4, 4))
					}
				})
			})
		}
	}
	return runs
}

func (p *player) slopeRun(n int) func(int) error {
	return func(round int) error {
		return on(func(st *testkit.Stage) {
			r := p.place(st, p.plan.Daemons[0], Spec{Mode: TCP, Services: n / 10, Each: 10, Delay: 3}, fmt.Sprintf("slope %d", n), round)
			r.start()
			r.firstRound()
			r.pass(p.seconds(2, 1))
			r.checks(p.seconds(9, 6))
		})
	}
}

// idleRun looks at ten seconds in which no check is due.
func (p *player) idleRun(d daemon.Daemon) func(int) error {
	return func(round int) error {
		return on(func(st *testkit.Stage) {
			n := p.either(1000, 100)
			r := p.place(st, d, Spec{Mode: TCP, Services: n / 10, Each: 10, Delay: 3600, Warmup: 1}, "idle", round)
			r.start()
			r.firstRound()
			r.pass(p.seconds(5, 3))
			before := r.usage(r.worker)
			r.pass(p.seconds(10, 3))
			u := r.usage(r.worker).minus(before)
			r.sample(IdleCPU, float64(u.cpu)/1e6)
			r.sample(IdleSwitches, float64(u.switches))
		})
	}
}
