// Package play runs the scenarios of the loss test on a kernel with ip_vs: each in
// each topology by each actor, in network namespaces of their own, a few at a time.
// It records what clients lose; package judge says what that means.
//
// Decisions that were close:
//
//   - Scenarios are Go, not text: they open clients in the middle, wait for states of
//     the table and roll dice, and what they want is a value that the judge of the
//     last table and kube-proxy's order need as well.
//   - A server that "fails" fails its checks only, on a port of their own. What
//     clients lose was then lost by what was done to the table, not by the server.
//   - A run that loses something is not run again: a loss that comes one time in ten
//     is what is looked for. A run is void, and only then done again, when witnesses
//     that have nothing to do with IPVS say that the machine stood still (pulse).
package play

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/daemon"
	"github.com/sluice-lb/sluice/test/loss/judge"
	"github.com/sluice-lb/sluice/test/runner"
)

// Topologies are how packets reach the servers.
var Topologies = []string{"NAT", "DR"}

// Plan is what the host asks for.
type Plan struct {
	// Scenarios are names.
	Scenarios  []string `json:"scenarios"`
	Topologies []string `json:"topologies"`
	// Daemons are sluice and those that it is measured against.
	Daemons []daemon.Daemon `json:"daemons"`
	// Keywords are what sluice knows.
	Keywords []string `json:"keywords"`
	// Long and Short are connections, and requests a second, of a run.
	Long  int `json:"long"`
	Short int `json:"short"`
	// Kills is how often a daemon is killed, over all topologies.
	Kills    int     `json:"kills"`
	Parallel int     `json:"parallel"`
	Seed     uint64  `json:"seed"`
	Seconds  float64 `json:"seconds"`
}

func (p *Plan) has(keyword string) bool { return slices.Contains(p.Keywords, keyword) }

// KillsIn is the share of a topology.
func (p *Plan) KillsIn(topology string) int {
	n := p.Kills / len(p.Topologies)
	if topology == p.Topologies[0] {
		n += p.Kills % len(p.Topologies)
	}
	return n
}

// killsAtATime is how often one run kills: one that is void costs no more than that.
const killsAtATime = 20

// parts splits what a scenario does in a topology into runs, by how often each kills.
func (p *Plan) parts(s *Scenario, topology string) []int {
	if !s.kills {
		return []int{0}
	}
	var all []int
	for rest := p.KillsIn(topology); rest > 0; rest -= killsAtATime {
		all = append(all, min(rest, killsAtATime))
	}
	return all
}

// Results are what comes back.
type Results struct {
	Kernel string         `json:"kernel"`
	Runs   []judge.Result `json:"runs"`
}

// job is one run to be done.
type job struct {
	s        *Scenario
	topology string
	actor    daemon.Daemon // without a command: kube-proxy's order
	kills    int
	seed     uint64
}

// jobs lists the runs of a plan; those that take longest come first.
func (p *Plan) jobs() (all []job) {
	first := []string{"kill", "rolling"}
	for _, long := range []bool{true, false} {
		for _, s := range Scenarios {
			if !slices.Contains(p.Scenarios, s.Name) || slices.Contains(first, s.Name) != long {
				continue
			}
			for _, t := range p.Topologies {
				actors := p.Daemons
				if s.Alone {
					actors = slices.DeleteFunc(slices.Clone(actors), func(d daemon.Daemon) bool { return d.Name != daemon.Sluice })
				}
				if s.Kube {
					actors = append(slices.Clip(actors), daemon.Daemon{Name: DeleteFirst})
				}
				for i, n := range p.parts(s, t) {
					for _, d := range actors {
						all = append(all, job{s, t, d, n, p.Seed + uint64(i)})
					}
				}
			}
		}
	}
	return all
}

// modules are those that the runs want beside ip_vs.
var modules = []string{"ip_vs_rr", "ip_vs_wrr", "ip_vs_wlc", "ip_vs_sh", "veth", "bridge", "dummy"}

// Run carries out the plan; log gets a line for each run.
func Run(ctx context.Context, p Plan, log io.Writer) (*Results, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.Seconds*float64(time.Second)))
	defer cancel()
	kernel, err := runner.Prepare(ctx, []string{"ip_vs"}, modules)
	if err != nil {
		return nil, err
	}
	results := &Results{Kernel: kernel}
	all := p.jobs()
	queue := make(chan job)
	go func() {
		defer close(queue)
		for _, j := range all {
			select {
			case queue <- j:
			case <-ctx.Done():
				return
			}
		}
	}()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range max(1, p.Parallel) {
		wg.Go(func() {
			for j := range queue {
				res := do(ctx, &p, j)
				mu.Lock()
				results.Runs = append(results.Runs, res)
				fmt.Fprintf(log, "%3d/%d %-16s %-3s %-12s %5.1fs long %d/%d short %d/%d %s\n", len(results.Runs), len(all), j.s.Name, j.topology, j.actor.Name,
					res.Took, res.Long.Lost, res.Long.Opened, res.Short.Lost, res.Short.Opened, strings.Join(res.Problems, "; "))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	results.Runs = merge(results.Runs)
	return results, nil
}

// merge puts the parts of what one actor did together.
func merge(parts []judge.Result) (all []judge.Result) {
	for _, p := range parts {
		i := slices.IndexFunc(all, func(r judge.Result) bool {
			return r.Scenario == p.Scenario && r.Topology == p.Topology && r.Actor == p.Actor
		})
		if i < 0 {
			all = append(all, p)
			continue
		}
		r := &all[i]
		r.Long, r.Short, r.Took = r.Long.Add(p.Long), r.Short.Add(p.Short), r.Took+p.Took
		r.Problems, r.Log, r.Voids = append(r.Problems, p.Problems...), append(r.Log, p.Log...), append(r.Voids, p.Voids...)
	}
	return all
}

// attempts is how often a run is done whose measurement was void.
const attempts = 4

// do does one run, and does it again while the machine was not fit for it. What was
// lost on a machine that was fit counts, however seldom it comes.
func do(ctx context.Context, p *Plan, j job) judge.Result {
	var voids []string
	for n := 1; ; n++ {
		res, why := once(p, j)
		res.Voids = voids
		if why == "" {
			return res
		}
		voids = append(voids, why)
		if n == attempts || ctx.Err() != nil {
			res.Problems = append(res.Problems, fmt.Sprintf("void after %d attempts: %s; -parallel, -long and -short make it easier for the machine", n, why))
			return res
		}
	}
}

// once does one run and says why it is void, if it is.
func once(p *Plan, j job) (judge.Result, string) {
	begun := time.Now()
	st := &testkit.Stage{}
	r := &run{Stage: st, plan: p, s: j.s, kills: j.kills, rand: rand.New(rand.NewPCG(j.seed, 1)),
		res: &judge.Result{Scenario: j.s.Name, Topology: j.topology, Actor: j.actor.Name}}
	if len(j.actor.Command) == 0 {
		r.actor = &kube{r: r}
	} else {
		r.prog = &program{r: r, d: j.actor}
		r.actor = r.prog
	}
	why := ""
	st.Play(func() {
		defer func() {
			if r.pulse != nil {
				why = r.pulse.void()
			}
		}()
		r.play(j.topology)
	})
	if len(st.Failures) > 0 && r.prog != nil && r.prog.p != nil {
		r.prog.keepLog()
	}
	r.res.Problems = st.Failures
	r.res.Took = time.Since(begun).Seconds()
	return *r.res, why
}
