// Package guest runs scenarios of the differential test on a kernel with ip_vs:
// each with each daemon, in a network namespace of its own, several at a time. It
// records; it does not judge, except to run again what looks wrong.
//
// Decisions that were close:
//
//   - A run is one scenario with one daemon, and the runs of a scenario are queued
//     side by side: the daemons see the same load, and a slot that waits for a
//     settle to pass costs nothing.
//   - What is not as it should be runs once more when all is done and the machine
//     is quiet. A real difference is there again; a check that came too late on an
//     emulated machine is not. What needed the second run is reported.
//   - Whatever no backend answers vanishes behind a default route into a dummy
//     device, as on a host with a gateway; without a route every check of an
//     address that is not there would fail at once.
package guest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/daemon"
	"github.com/sluice-lb/sluice/test/diff/scenario"
	"github.com/sluice-lb/sluice/test/runner"
)

// Plan is what the host asks for.
type Plan struct {
	Archives []Archive `json:"archives"`
	// Daemons are compared; the last one is sluice.
	Daemons []Daemon `json:"daemons"`
	// Parallel is how many runs there are at a time.
	Parallel int `json:"parallel"`
	// Seconds is when no more run is begun, so that what there is comes back.
	Seconds float64 `json:"seconds"`
}

// Archive is a scenario as text.
type Archive struct {
	Name string `json:"name"`
	Data []byte `json:"data"`
}

// Daemon says how to start one.
type Daemon = daemon.Daemon

// Sluice is the name of the daemon that is not a keepalived.
const Sluice = daemon.Sluice

// Results are what comes back.
type Results struct {
	Kernel string         `json:"kernel"`
	Runs   []scenario.Run `json:"runs"`
	// Again lists the scenarios that were run a second time.
	Again []string `json:"again"`
}

// Run carries out the plan; log gets a line for each run.
func Run(ctx context.Context, p Plan, log io.Writer) (*Results, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.Seconds*float64(time.Second)))
	defer cancel()
	kernel, err := runner.Prepare(ctx, []string{"ip_vs"}, modules)
	if err != nil {
		return nil, err
	}
	var all []*scenario.Scenario
	for _, a := range p.Archives {
		s, err := scenario.Parse(a.Name, a.Data)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	r := &Results{Kernel: kernel}
	r.Runs = pool(ctx, all, p.Daemons, p.Parallel, log)
	r.repeat(ctx, all, p, log)
	return r, nil
}

// repeat runs what is not as it should be once more, with fewer at a time. Where
// the time was over before all daemons had their turn, the first runs stay.
func (r *Results) repeat(ctx context.Context, all []*scenario.Scenario, p Plan, log io.Writer) {
	var again []*scenario.Scenario
	for _, s := range all {
		if !passed(s, r.Runs) {
			again = append(again, s)
		}
	}
	if len(again) == 0 || ctx.Err() != nil {
		return
	}
	n := max(2, p.Parallel/4)
	fmt.Fprintf(log, "again, %d at a time: %d scenarios\n", n, len(again))
	second := pool(ctx, again, p.Daemons, n, log)
	for _, s := range again {
		of := func(run scenario.Run) bool { return run.Scenario == s.Name }
		var runs []scenario.Run
		for _, run := range second {
			if of(run) {
				runs = append(runs, run)
			}
		}
		if len(runs) == len(p.Daemons) {
			r.Again = append(r.Again, s.Name)
			r.Runs = append(slices.DeleteFunc(r.Runs, of), runs...)
		}
	}
}

// passed says whether all keepaliveds agree with sluice on a scenario.
func passed(s *scenario.Scenario, runs []scenario.Run) bool {
	var sluice *scenario.Run
	var others []*scenario.Run
	for i := range runs {
		switch r := &runs[i]; {
		case r.Scenario != s.Name:
		case r.Daemon == Sluice:
			sluice = r
		default:
			others = append(others, r)
		}
	}
	return sluice != nil && !slices.ContainsFunc(others, func(k *scenario.Run) bool { return !scenario.Judge(s, k, sluice).Status.OK() })
}

// pool does all runs, n at a time.
func pool(ctx context.Context, all []*scenario.Scenario, daemons []Daemon, n int, log io.Writer) []scenario.Run {
	type job struct {
		s *scenario.Scenario
		d Daemon
	}
	jobs := make(chan job)
	go func() {
		defer close(jobs)
		for _, s := range all {
			for _, d := range daemons {
				select {
				case jobs <- job{s, d}:
				case <-ctx.Done():
					return
				}
			}
		}
	}()
	var mu sync.Mutex
	var runs []scenario.Run
	var wg sync.WaitGroup
	for range max(1, n) {
		wg.Go(func() {
			for j := range jobs {
				rec := record(j.s, j.d)
				mu.Lock()
				runs = append(runs, rec)
				fmt.Fprintf(log, "%3d/%d %s with %s, %.1fs%s\n", len(runs), len(all)*len(daemons), j.s.Name, j.d.Name, rec.Took, trouble(rec))
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return runs
}

func trouble(rec scenario.Run) string {
	if len(rec.Problems) == 0 {
		return ""
	}
	return ": " + strings.Join(rec.Problems, "; ")
}

// modules are those that the runs want beside ip_vs. Where a kernel lacks a scheduler
// both daemons miss it.
var modules = []string{"dummy", "ip_vs_rr", "ip_vs_wrr", "ip_vs_lc", "ip_vs_wlc", "ip_vs_fo", "ip_vs_ovf", "ip_vs_lblc",
	"ip_vs_lblcr", "ip_vs_dh", "ip_vs_sh", "ip_vs_mh", "ip_vs_sed", "ip_vs_nq", "ip_vs_twos", "ip_vs_pe_sip"}

// record does one run and returns what it saw.
func record(s *scenario.Scenario, d Daemon) scenario.Run {
	begun := time.Now()
	st := &testkit.Stage{}
	r := &run{Stage: st, s: s, d: d, rec: &scenario.Run{Scenario: s.Name, Daemon: d.Name, Records: map[string]string{}}}
	st.Play(r.play)
	r.rec.Problems = append(r.rec.Problems, st.Failures...)
	r.rec.Took = time.Since(begun).Seconds()
	return *r.rec
}
