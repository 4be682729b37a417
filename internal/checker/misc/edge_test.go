package misc

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/script"
)

// edge is a crowd of checks whose scripts end within a millisecond of their
// timeout, before it or behind it.
type edge struct {
	timeout time.Duration
	each    int // runs of each check
	tasks   int
	step    time.Duration // by which late changes

	// late is how much later than asked for a script ends, as far as it is known:
	// it is lowered by each run that was in time and raised by each that was not,
	// so that the two balance however busy the machine is.
	late atomic.Int64

	running atomic.Int64 // runs that have begun and not returned
	most    atomic.Int64 // of them together
	begun   atomic.Int64

	mu       sync.Mutex
	outcomes map[string]int // what was judged, by kind
	raced    int            // ended by themselves behind the timeout, before SIGTERM took effect
	distance map[string]int // runs by how far from the timeout they ended
	waited   time.Duration  // for the exec, at most
	longest  time.Duration  // run
	finished int            // checks that had all their runs
	over     chan struct{}
}

// aim is the argument of the next sleep.
func (e *edge) aim() string {
	jitter := time.Duration(rand.Int64N(int64(2*time.Millisecond))) - time.Millisecond
	return strconv.FormatFloat(max(e.timeout+jitter-time.Duration(e.late.Load()), time.Millisecond).Seconds(), 'f', 6, 64)
}

// task is one check. Its argument changes between its runs, which never overlap.
// Its deadline has a minute to spare: it is no business of this test if the machine
// has so much else to do that scripts wait to be started.
func (e *edge) task(t *testing.T, id int) checker.Task {
	c := check("/usr/bin/sleep", e.aim())
	c.Misc.Timeout = e.timeout
	p := probeOf(t, c, Options{})
	run, inside, left := p.run, atomic.Bool{}, e.each
	p.run = func(ctx context.Context, cmd script.Command) script.Result {
		if inside.Swap(true) {
			t.Errorf("check %d runs twice at the same time", id)
		}
		defer inside.Store(false)
		e.begun.Add(1)
		e.most.Store(max(e.most.Load(), e.running.Add(1)))
		defer e.running.Add(-1)
		began := time.Now()
		r := run(ctx, cmd)
		e.note(r, time.Since(began)-r.Took)
		return r
	}
	return checker.Task{ID: checker.ID(id), Probe: p, Timeout: e.timeout + Overtime + time.Minute, First: time.Duration(rand.Int64N(int64(e.timeout))), Judge: func(o checker.Outcome) time.Duration {
		c.Misc.Script.Argv[1] = e.aim()
		left--
		if e.judge(o, left); left > 0 {
			return e.timeout + time.Duration(rand.Int64N(int64(6*e.timeout)))
		}
		return time.Hour
	}}
}

// note is told of each result, and adjusts the aim.
func (e *edge) note(r script.Result, waited time.Duration) {
	if r.TimedOut {
		e.late.Add(int64(e.step))
	} else {
		e.late.Add(-int64(e.step))
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waited = max(e.waited, waited)
	e.longest = max(e.longest, r.Took)
	if r.TimedOut && r.Signal == 0 {
		e.raced++
	}
	switch d := (r.Took - e.timeout).Abs(); {
	case d <= time.Millisecond:
		e.distance["1ms"]++
	case d <= 3*time.Millisecond:
		e.distance["3ms"]++
	case d <= 10*time.Millisecond:
		e.distance["10ms"]++
	default:
		e.distance["more"]++
	}
}

func (e *edge) judge(o checker.Outcome, left int) {
	kind := o.Result.String() + ", " + bare(o).Reason
	e.mu.Lock()
	defer e.mu.Unlock()
	e.outcomes[kind]++
	if left == 0 {
		if e.finished++; e.finished == e.tasks {
			close(e.over)
		}
	}
}

// stalls measures how long the machine let this process wait, at most.
func stalls(stop <-chan struct{}) <-chan time.Duration {
	most := make(chan time.Duration, 1)
	go func() {
		const beat = 20 * time.Millisecond
		tick := time.NewTicker(beat)
		defer tick.Stop()
		var longest time.Duration
		for last := time.Now(); ; last = time.Now() {
			select {
			case <-stop:
				most <- longest
				return
			case <-tick.C:
				longest = max(longest, time.Since(last)-beat)
			}
		}
	}()
	return most
}

// children counts this process's children, and those of them that are zombies.
func children(t *testing.T) (all, zombies int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Fatalf("no processes in /proc: %v", err)
	}
	own := strconv.Itoa(os.Getpid())
	for _, name := range stats {
		b, err := os.ReadFile(name)
		if err != nil {
			continue // gone by now
		}
		_, rest, _ := strings.Cut(string(b), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == own {
			all++
			if f[0] == "Z" {
				zombies++
			}
		}
	}
	return all, zombies
}

// TestC05ScriptsThatEndAtTheirTimeout: every run has exactly one outcome, no check
// is lost, and no zombie is left. SLUICE_LONG=1 makes it 100,000 runs, which take
// some minutes; run it alone and with -timeout=30m.
func TestC05ScriptsThatEndAtTheirTimeout(t *testing.T) {
	e := &edge{timeout: 100 * time.Millisecond, tasks: 60, each: 5, step: 100 * time.Microsecond}
	patience, long := time.Minute, os.Getenv("SLUICE_LONG") == "1"
	if long {
		e.timeout, e.tasks, e.each, e.step, patience = 300*time.Millisecond, 400, 250, 10*time.Microsecond, 25*time.Minute
	}
	e.late.Store(int64(2 * time.Millisecond))
	e.outcomes, e.distance, e.over = map[string]int{}, map[string]int{}, make(chan struct{})
	var tasks []checker.Task
	for id := range e.tasks {
		tasks = append(tasks, e.task(t, id+1))
	}
	began, beaten := time.Now(), make(chan struct{})
	stalled := stalls(beaten)
	s, stop := schedule(t, checker.Options{}, tasks...)
	select {
	case <-e.over:
	case <-time.After(patience):
		e.mu.Lock()
		t.Errorf("%d of %d checks had all their runs within %v: the others are lost", e.finished, e.tasks, patience)
		e.mu.Unlock()
	}
	took := time.Since(began)
	st := s.Stats()
	stop()
	close(beaten)
	all, zombies := children(t)
	e.mu.Lock()
	defer e.mu.Unlock()

	want, judged := e.tasks*e.each, 0
	for n := range maps.Values(e.outcomes) {
		judged += n
	}
	t.Logf("%d runs of %d checks, at most %d together, in %v (%.0f a second): %v; ended behind the timeout and before SIGTERM: %d; distance from the timeout: %v; longest wait for an exec %v, run %v, stall of this process %v; children left: %d, zombies: %d",
		judged, e.tasks, e.most.Load(), took.Round(time.Millisecond), float64(judged)/took.Seconds(), e.outcomes, e.raced, e.distance, e.waited.Round(time.Millisecond), e.longest.Round(time.Millisecond), (<-stalled).Round(time.Millisecond), all, zombies)
	if judged != want || e.begun.Load() != int64(want) || st.Runs != uint64(want) {
		t.Errorf("%d runs began, %d ended, %d were judged; want %d of each", e.begun.Load(), st.Runs, judged, want)
	}
	if st.Hangs != 0 || st.Panics != 0 || st.Hung != 0 {
		t.Errorf("%+v", st)
	}
	good, late := "ok, exit status 0", fmt.Sprintf("failed, timed out at its misc_timeout of %v", e.timeout)
	if e.outcomes[good]+e.outcomes[late] != judged {
		t.Errorf("outcomes %v: want %q and %q, and no other", e.outcomes, good, late)
	}
	// A few runs on a machine that has much else to do may all be late.
	if long && (e.outcomes[good] < want/10 || e.outcomes[late] < want/10) {
		t.Errorf("outcomes %v: want a good part of both", e.outcomes)
	}
	if all != 0 {
		t.Errorf("%d children are left, %d of them zombies", all, zombies)
	}
}
