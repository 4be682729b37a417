// Package play measures, on a kernel with ip_vs, what clients lose of several
// directors that announce one virtual address to one router: each scenario in each
// mode with each kind of director, in network namespaces of their own.
//
//	client -- router ==== d1, d2, d3 (, d4) and b1, b2, b3 on one segment
//
// The router is a Linux that spreads connections over equal routes (ECMP), which it
// learns from BIRD's BGP sessions with the directors. A director has the virtual
// address on a dummy device; its own BIRD announces what is there. The servers have it
// on lo and answer through the router.
//
// Decisions that were close:
//
//   - A switch lies between router and directors, so that the router sees no link go
//     down: a director that dies is noticed when its BGP session's hold time is over.
//     That is the common case, and the worse one.
//   - Clients are patient: a connection that a router moves goes on with a
//     retransmission, seconds later. Only one that never goes on is lost.
//   - What the machine costs is not the directors': as many short requests as to the
//     virtual address go past it, to a server's own, and a run in which one of them is
//     lost is void.
//   - How many connections the router moves is asked of the router, by its own routing
//     decision for each connection before and after, not derived from the losses.
//   - Directors are driven through an interface: by hand, with ip and ipvsadm alone,
//     and by sluiced. What is lost must not depend on which.
package play

import (
	"context"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/runner"
)

// The kinds of directors.
const (
	Hand   = "hand"
	Sluice = "sluice"
)

// Kinds are all of them.
var Kinds = []string{Hand, Sluice}

// Mode is what directors know of each other's connections.
type Mode struct {
	Name string `json:"name"`
	// Sloppy is net.ipv4.vs.sloppy_tcp: a connection is scheduled in its middle.
	Sloppy bool `json:"sloppy"`
	// Sync is the kernel's sync daemon, master and backup on every director.
	Sync bool `json:"sync"`
}

// Modes are the columns of the table.
var Modes = []Mode{
	{Name: "neither"},
	{Name: "sloppy_tcp", Sloppy: true},
	{Name: "sync", Sync: true},
	{Name: "both", Sloppy: true, Sync: true},
}

// Plan is what the host asks for.
type Plan struct {
	// Scenarios are names, as are Kinds. Quick takes those of the
	// Modes alone that a scenario names.
	Scenarios []string `json:"scenarios"`
	Kinds     []string `json:"kinds"`
	Quick     bool     `json:"quick"`
	Modes     []string `json:"modes"`
	// Bird is the command of the routing daemon, Sluiced that of the director's.
	Bird    []string `json:"bird"`
	Sluiced string   `json:"sluiced"`
	// Long and Short are connections, and requests a second, of a run.
	Long     int     `json:"long"`
	Short    int     `json:"short"`
	Parallel int     `json:"parallel"`
	Seconds  float64 `json:"seconds"`
}

// Count is what became of the clients of one kind.
type Count struct {
	Opened int    `json:"opened"`
	Lost   int    `json:"lost"`
	How    string `json:"how"` // "reset 10, timeout 1"
}

// String is "2 of 60 (reset 2)".
func (c Count) String() string { return fmt.Sprintf("%d of %d (%s)", c.Lost, c.Opened, c.How) }

// Result is one run.
type Result struct {
	Scenario string `json:"scenario"`
	Mode     string `json:"mode"`
	Kind     string `json:"kind"`
	Long     Count  `json:"long"`
	Short    Count  `json:"short"`
	// Moved are the long-lived connections that the router sent to another director
	// afterwards; Noticed is how long it took to, in seconds.
	Moved   int     `json:"moved"`
	Noticed float64 `json:"noticed"`
	// Left are the connections that a drained director held to be established after
	// the router had moved them, Unheard those that it still did when their clients had
	// ended them.
	Left    int `json:"left"`
	Unheard int `json:"unheard"`
	// Problems kept the run from being one.
	Problems []string `json:"problems"`
	Log      []string `json:"log"`
	// Excused is why short requests are not judged, if they are not.
	Excused string `json:"excused"`
	// Voids are why attempts before this one do not count.
	Voids []string `json:"voids"`
	Took  float64  `json:"took"`
}

// Results are what comes back.
type Results struct {
	Kernel string   `json:"kernel"`
	Runs   []Result `json:"runs"`
}

// job is one run to be done.
type job struct {
	s    *Scenario
	mode Mode
	kind string
}

func (p *Plan) jobs() (all []job) {
	for _, s := range Scenarios {
		if !slices.Contains(p.Scenarios, s.Name) {
			continue
		}
		for _, m := range Modes {
			if p.Quick && !slices.Contains(s.Quick, m.Name) || !slices.Contains(p.Modes, m.Name) {
				continue
			}
			for _, k := range p.Kinds {
				all = append(all, job{s, m, k})
			}
		}
	}
	return all
}

// modules are those that the runs need.
var modules = []string{"ip_vs", "ip_vs_mh", "veth", "bridge", "dummy", "nf_tables", "nft_reject_inet"}

// Run carries out the plan; log gets a line for each run.
func Run(ctx context.Context, p Plan, log io.Writer) (*Results, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(p.Seconds*float64(time.Second)))
	defer cancel()
	kernel, err := runner.Prepare(ctx, modules, nil)
	if err != nil {
		return nil, err
	}
	results := &Results{Kernel: kernel}
	all := p.jobs()
	queue := make(chan job, len(all))
	for _, j := range all {
		queue <- j
	}
	close(queue)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for range max(1, p.Parallel) {
		wg.Go(func() {
			for j := range queue {
				if ctx.Err() != nil { // what was measured is worth more than what was not
					fmt.Fprintf(log, "      %s with %s, directors by %s: no time is left for it\n", j.s.Name, j.mode.Name, j.kind)
					continue
				}
				res := do(ctx, &p, j, log)
				mu.Lock()
				results.Runs = append(results.Runs, res)
				fmt.Fprintf(log, "%2d/%d %s\n", len(results.Runs), len(all), res)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return results, nil
}

// String is a run in one line.
func (r Result) String() string {
	text := fmt.Sprintf("%-8s %-10s %-6s %4.0fs  long %d/%d (%s)  short %d/%d (%s)  moved %d, router after %.1fs",
		r.Scenario, r.Mode, r.Kind, r.Took, r.Long.Lost, r.Long.Opened, r.Long.How, r.Short.Lost, r.Short.Opened, r.Short.How, r.Moved, r.Noticed)
	if r.Left > 0 {
		text += fmt.Sprintf(", left behind %d, then %d", r.Left, r.Unheard)
	}
	for _, p := range r.Problems {
		text += "\n    " + p
	}
	if r.Excused != "" {
		text += "\n    short requests are not judged: " + r.Excused
	}
	for _, v := range r.Voids {
		text += "\n    an attempt was void: " + v
	}
	return text
}

// attempts is how often a run is done whose measurement is void, quickAttempts in the
// short run.
const attempts, quickAttempts = 4, 2

// do does one run, and does it again while the machine was not fit for it. What was
// lost on a machine that was fit counts, however seldom it comes. The short run is no
// measurement: what is as it should be on a bad machine is well, and where that does not
// become fit, the long-lived connections are judged alone, which are patient.
func do(ctx context.Context, p *Plan, j job, log io.Writer) Result {
	var voids []string
	for n := 1; ; n++ {
		res, why := once(p, j)
		res.Voids = voids
		if why == "" || p.Quick && len(Judge(j.s, res)) == 0 {
			return res
		}
		voids = append(voids, why)
		fmt.Fprintf(log, "      %s with %s, directors by %s, attempt %d was void: %s\n", j.s.Name, j.mode.Name, j.kind, n, why)
		if p.Quick && n >= quickAttempts {
			excused := res
			if excused.Excused = why; len(Judge(j.s, excused)) == 0 {
				return excused
			}
		}
		if n == attempts || ctx.Err() != nil {
			res.Problems = []string{fmt.Sprintf("void after %d attempts: %s; -parallel, -long and -short make it easier for the machine", n, why)}
			return res
		}
	}
}

// once does one run and says why it is void, if it is.
func once(p *Plan, j job) (Result, string) {
	begun := time.Now()
	st := &testkit.Stage{}
	r := &run{Stage: st, plan: p, job: j, res: &Result{Scenario: j.s.Name, Mode: j.mode.Name, Kind: j.kind}}
	why := ""
	st.Play(func() {
		defer func() { why = r.void() }()
		r.play()
	})
	r.res.Problems = st.Failures
	r.res.Took = time.Since(begun).Seconds()
	return *r.res, why
}

// ModeNames are the names of Modes.
func ModeNames() (names []string) {
	for _, m := range Modes {
		names = append(names, m.Name)
	}
	return names
}
