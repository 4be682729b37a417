package checker

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// probeFunc is a Probe made of a function.
type probeFunc func(context.Context) Outcome

func (f probeFunc) Run(ctx context.Context) Outcome { return f(ctx) }

// takes is a probe that needs d, or its deadline if that is earlier.
func takes(d time.Duration) probeFunc {
	return func(ctx context.Context) Outcome {
		t := time.NewTimer(d)
		defer t.Stop()
		select {
		case <-t.C:
			return Outcome{Result: OK}
		case <-ctx.Done():
			if ctx.Err() == context.Canceled {
				return Outcome{Result: Unable, Reason: "cancelled"}
			}
			return Outcome{Result: Failed, Reason: "timeout"}
		}
	}
}

var good = probeFunc(func(context.Context) Outcome { return Outcome{Result: OK} })

func every(d time.Duration) Judge { return func(Outcome) time.Duration { return d } }

// bed is a running scheduler in a bubble, with a log of what was judged.
type bed struct {
	*Scheduler
	t    *testing.T
	from time.Time
	stop context.CancelFunc
	done chan error

	mu  sync.Mutex
	log []string
}

func newBed(t *testing.T, o Options) *bed {
	ctx, stop := context.WithCancel(t.Context())
	b := &bed{Scheduler: NewScheduler(o), t: t, from: time.Now(), stop: stop, done: make(chan error, 1)}
	go func() { b.done <- b.Run(ctx) }()
	return b
}

// judge logs "second name result" and asks for d.
func (b *bed) judge(name string, d time.Duration) Judge {
	return func(o Outcome) time.Duration {
		b.note(name + " " + o.Result.String())
		return d
	}
}

func (b *bed) note(s string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.log = append(b.log, fmt.Sprintf("%v %s", time.Since(b.from), s))
}

// at waits until d after the start and until everything is quiet then.
func (b *bed) at(d time.Duration) {
	b.t.Helper()
	<-time.After(time.Until(b.from.Add(d)))
	synctest.Wait()
}

func (b *bed) want(want ...string) {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if d := cmp.Diff(want, b.log); d != "" {
		b.t.Errorf("judged (-want +got):\n%s", d)
	}
}

func (b *bed) close() {
	b.t.Helper()
	b.stop()
	if err := <-b.done; err != nil {
		b.t.Errorf("Run = %v", err)
	}
}

func TestFirstRunThenDelayFromCompletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{})
		defer b.close()
		b.Add(Task{ID: 1, Probe: takes(2 * time.Second), Judge: b.judge("a", 10*time.Second), First: 3 * time.Second, Timeout: 5 * time.Second})
		b.at(30 * time.Second)
		b.want("5s a ok", "17s a ok", "29s a ok")
	})
}

func TestTasksAddedBeforeRunCountFirstFromRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewScheduler(Options{})
		var ran []time.Duration
		from := time.Now()
		s.Add(Task{ID: 1, Judge: every(time.Hour), First: time.Second, Probe: probeFunc(func(context.Context) Outcome {
			ran = append(ran, time.Since(from))
			return Outcome{}
		})})
		<-time.After(time.Minute)
		if d := s.Overdue(); d != 0 {
			t.Errorf("overdue %v before Run", d)
		}
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		if err := s.Run(ctx); err != nil {
			t.Error(err)
		}
		if d := cmp.Diff([]time.Duration{61 * time.Second}, ran); d != "" {
			t.Error(d)
		}
		if err := s.Run(t.Context()); err == nil {
			t.Error("second Run passed")
		}
	})
}

func TestDeadlineOfARunIsTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{})
		defer b.close()
		b.Add(Task{ID: 1, Probe: takes(time.Hour), Judge: b.judge("slow", time.Second), Timeout: 3 * time.Second})
		b.Add(Task{ID: 2, Probe: takes(time.Hour), Judge: b.judge("default", time.Minute)})
		b.at(8 * time.Second)
		b.want("3s slow failed", "5s default failed", "7s slow failed")
	})
}

func TestTookIsFilledIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{})
		defer b.close()
		var took []time.Duration
		b.Add(Task{ID: 1, Probe: takes(2 * time.Second), Judge: func(o Outcome) time.Duration {
			took = append(took, o.Took)
			return time.Hour
		}})
		b.at(10 * time.Second)
		if d := cmp.Diff([]time.Duration{2 * time.Second}, took); d != "" {
			t.Error(d)
		}
	})
}

// U07: a panic in one check is caught, counted and isolated.
func TestU07PanicIsCaughtCountedAndIsolated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{Limit: 1})
		defer b.close()
		var reasons []string
		keep := func(o Outcome) time.Duration {
			if o.Result != Unable {
				t.Errorf("result %v", o.Result)
			}
			reasons = append(reasons, o.Reason)
			return time.Second
		}
		b.Add(Task{ID: 1, Judge: keep, Probe: probeFunc(func(context.Context) Outcome {
			return []Outcome{}[b.Stats().Runs]
		})})
		b.Add(Task{ID: 2, Judge: keep, First: time.Millisecond, Probe: probeFunc(func(context.Context) Outcome {
			runtime.Goexit()
			return Outcome{}
		})})
		b.Add(Task{ID: 3, Judge: b.judge("other", time.Second), Probe: good})
		b.at(1500 * time.Millisecond)
		b.want("0s other ok", "1s other ok")
		if len(reasons) != 4 {
			t.Fatalf("judged %d times, want 4: %q", len(reasons), reasons)
		}
		if r := reasons[0]; !strings.Contains(r, "index out of range [0] with length 0") || !strings.Contains(r, "scheduler_test.go:") {
			t.Errorf("reason %q names neither the panic nor its place", r)
		}
		if r := reasons[1]; !strings.Contains(r, "ended without an outcome") {
			t.Errorf("reason %q", r)
		}
		if s := b.Stats(); s.Panics != 4 || s.Runs != 6 || s.Running != 0 {
			t.Errorf("stats %+v", s)
		}
	})
}

// C19: a probe that ignores its deadline cannot hold the others, and shows.
func TestC19HungProbeCannotHoldTheOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{Limit: 1})
		defer b.close()
		release := make(chan struct{})
		b.Add(Task{ID: 1, Timeout: 3 * time.Second, Judge: b.judge("hung", 10*time.Second), Probe: probeFunc(func(context.Context) Outcome {
			<-release
			return Outcome{Result: OK}
		})})
		b.Add(Task{ID: 2, First: time.Second, Judge: b.judge("other", 30*time.Second), Probe: good})

		b.at(3 * time.Second)
		if d := b.Overdue(); d != 2*time.Second {
			t.Errorf("overdue %v while the slot is taken, want 2s", d)
		}
		b.at(65 * time.Second)
		if d := b.Overdue(); d != 62*time.Second {
			t.Errorf("overdue %v, want 62s since the deadline", d)
		}
		if s := b.Stats(); s.Hung != 1 || s.Hangs != 1 || s.Running != 0 || s.Tasks != 2 {
			t.Errorf("stats %+v", s)
		}
		b.at(70 * time.Second)
		close(release)
		synctest.Wait()
		if d := b.Overdue(); d != 0 {
			t.Errorf("overdue %v after the probe returned", d)
		}
		if s := b.Stats(); s.Hung != 0 || s.Hangs != 1 {
			t.Errorf("stats %+v", s)
		}
		b.at(80 * time.Second)
		b.want("4s hung unable", "4s other ok", "34s other ok", "1m4s other ok", "1m20s hung ok")
	})
}

func TestRemovedHungTaskIsNotOverdue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{})
		release := make(chan struct{})
		b.Add(Task{ID: 1, Timeout: time.Second, Judge: b.judge("hung", time.Second), Probe: probeFunc(func(context.Context) Outcome {
			<-release
			return Outcome{}
		})})
		b.at(10 * time.Second)
		b.Remove(1)
		synctest.Wait()
		if d := b.Overdue(); d != 0 {
			t.Errorf("overdue %v for a removed task", d)
		}
		if s := b.Stats(); s.Hung != 1 || s.Tasks != 0 {
			t.Errorf("stats %+v", s)
		}
		b.stop()
		if err := <-b.done; err == nil || !strings.Contains(err.Error(), "1 probes did not return") {
			t.Errorf("Run = %v, want a word about the probe left behind", err)
		}
		close(release)
		b.want("2s hung unable")
	})
}

func TestOverdueRisesWhileAJudgeBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{})
		defer b.close()
		block := make(chan struct{})
		b.Add(Task{ID: 1, Probe: good, Judge: func(Outcome) time.Duration { <-block; return time.Hour }})
		b.Add(Task{ID: 2, Probe: good, Judge: b.judge("late", time.Hour), First: 5 * time.Second})
		b.at(25 * time.Second)
		if d := b.Overdue(); d < 19*time.Second {
			t.Errorf("overdue %v with the loop stuck for 25s", d)
		}
		b.want()
		close(block)
		synctest.Wait()
		b.want("25s late ok")
		if d := b.Overdue(); d != 0 {
			t.Errorf("overdue %v afterwards", d)
		}
	})
}

func TestRemoveWhileRunningDiscardsTheOutcome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{Limit: 1})
		defer b.close()
		b.Add(Task{ID: 1, Probe: takes(time.Minute), Timeout: time.Hour, Judge: b.judge("removed", time.Second)})
		b.Add(Task{ID: 2, Probe: good, First: time.Second, Judge: b.judge("next", time.Hour)})
		b.at(2 * time.Second)
		b.Remove(1)
		synctest.Wait()
		b.want("2s next ok")
		b.Add(Task{ID: 1, Probe: good, Judge: b.judge("again", time.Hour)})
		b.at(time.Hour)
		b.want("2s next ok", "2s again ok")
	})
}

func TestRemoveInEveryState(t *testing.T) {
	for _, when := range []time.Duration{0, 500 * time.Millisecond, 2 * time.Second, 5 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			b := newBed(t, Options{Limit: 1})
			defer b.close()
			b.Add(Task{ID: 1, Probe: takes(3 * time.Second), Judge: b.judge("blocker", time.Hour)})
			b.Add(Task{ID: 2, Probe: takes(3 * time.Second), First: time.Second, Judge: b.judge("removed", time.Hour)})
			b.at(when)
			b.Remove(2)
			b.Remove(2) // no harm
			b.Remove(99)
			b.RunNow(2)
			b.at(time.Minute)
			b.want("3s blocker ok")
			if s := b.Stats(); s.Tasks != 1 || s.Waiting != 0 || s.Running != 0 {
				t.Errorf("removed at %v: stats %+v", when, s)
			}
		})
	}
}

func TestNoJudgeBeginsAfterRemoveReturned(t *testing.T) {
	// Real time and real parallelism: this one is for the race detector.
	s := NewScheduler(Options{Limit: 8})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	for round := range 200 {
		var judged atomic.Int64
		const n = 8
		for i := range n {
			s.Add(Task{ID: ID(i), Probe: good, Judge: func(Outcome) time.Duration { judged.Add(1); return 0 }})
		}
		for judged.Load() < n {
			runtime.Gosched()
		}
		for i := range n {
			s.Remove(ID(i))
		}
		// One call may have begun before.
		was := judged.Load()
		s.RunNow(ID(round % n))
		for range 20 {
			runtime.Gosched()
		}
		if now := judged.Load(); now > was+1 {
			t.Fatalf("round %d: %d judgements after Remove", round, now-was)
		}
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestRunNowKeepsThePhase(t *testing.T) {
	tests := []struct {
		name  string
		delay []time.Duration // what Judge says, the last for ever
		takes time.Duration
		want  []string
	}{
		{"the run that was due stays due", []time.Duration{10 * time.Second}, 0,
			[]string{"3s a ok", "5s a ok", "13s a ok", "23s a ok"}},
		{"an earlier one wins", []time.Duration{10 * time.Second, time.Second, 10 * time.Second}, 0,
			[]string{"3s a ok", "5s a ok", "6s a ok", "16s a ok"}},
		{"a run over the due time moves the phase", []time.Duration{10 * time.Second}, 9 * time.Second,
			[]string{"12s a ok", "31s a ok"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t, Options{})
				defer b.close()
				n := 0
				b.Add(Task{ID: 1, First: 3 * time.Second, Timeout: time.Minute, Probe: takes(tt.takes), Judge: func(o Outcome) time.Duration {
					b.note("a " + o.Result.String())
					d := tt.delay[min(n, len(tt.delay)-1)]
					n++
					return d
				}})
				b.at(5 * time.Second)
				b.RunNow(1)
				b.RunNow(1)
				b.at(32 * time.Second)
				if got := b.log[:min(len(b.log), len(tt.want))]; !slices.Equal(got, tt.want) {
					t.Errorf("judged %q, want %q first", b.log, tt.want)
				}
			})
		})
	}
}

func TestUpdateKeepsThePhase(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{})
		defer b.close()
		b.Add(Task{ID: 1, First: 3 * time.Second, Probe: takes(time.Second), Judge: b.judge("old", 10*time.Second)})
		b.at(5 * time.Second)
		b.Update(Task{ID: 1, First: time.Hour, Probe: takes(2 * time.Second), Judge: b.judge("new", 20*time.Second)})
		b.at(15 * time.Second)
		b.Update(Task{ID: 1, Probe: good, Judge: b.judge("newest", 20*time.Second)})
		b.Update(Task{ID: 2, Probe: good, Judge: b.judge("unknown", 20*time.Second)})
		b.at(37 * time.Second)
		b.want("4s old ok", "16s newest ok", "36s newest ok")
	})
}

func TestLimitIsHeldAndFair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const limit, n = 3, 10
		b := newBed(t, Options{Limit: limit})
		defer b.close()
		var running, most int
		var mu sync.Mutex
		var gap time.Duration // the longest from one run's start to the next
		last := make([]time.Time, n)
		for i := range n {
			b.Add(Task{ID: ID(i), Timeout: time.Minute, Judge: every(0), Probe: probeFunc(func(ctx context.Context) Outcome {
				mu.Lock()
				running++
				most = max(most, running)
				if !last[i].IsZero() {
					gap = max(gap, time.Since(last[i]))
				}
				last[i] = time.Now()
				mu.Unlock()
				defer func() { mu.Lock(); running--; mu.Unlock() }()
				return takes(time.Second)(ctx)
			})})
		}
		b.at(99500 * time.Millisecond)
		if most != limit {
			t.Errorf("%d ran together, want %d", most, limit)
		}
		// Nine others in three slots, and those that end together come back in any
		// order: a round, and one more.
		if gap > 5*time.Second || gap < 3*time.Second {
			t.Errorf("a task waited %v for its next run", gap)
		}
		for i, at := range last {
			if time.Since(at) > 5*time.Second {
				t.Errorf("task %d last ran at %v", i, at.Sub(b.from))
			}
		}
		if s := b.Stats(); s.Running != limit || s.Waiting != n-limit || s.Limit != limit {
			t.Errorf("stats %+v", s)
		}
		if d := b.Overdue(); d < time.Second || d > 4*time.Second {
			t.Errorf("overdue %v, want what is waited for a slot", d)
		}
	})
}

func TestNeverTwoRunsOfOneTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{})
		defer b.close()
		var running atomic.Int32
		b.Add(Task{ID: 1, Timeout: 10 * time.Second, Judge: every(time.Millisecond), Probe: probeFunc(func(ctx context.Context) Outcome {
			if running.Add(1) != 1 {
				t.Error("two runs at once")
			}
			defer running.Add(-1)
			return takes(time.Second)(ctx)
		})})
		for i := range 100 {
			b.at(time.Duration(i) * 130 * time.Millisecond)
			b.RunNow(1)
		}
	})
}

func TestShutdownCancelsAndJudgesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{})
		b.Add(Task{ID: 1, Probe: takes(time.Minute), Timeout: time.Hour, Judge: b.judge("a", time.Second)})
		b.Add(Task{ID: 2, Probe: good, First: time.Hour, Judge: b.judge("b", time.Second)})
		b.at(time.Second)
		b.close()
		if d := time.Since(b.from); d != time.Second {
			t.Errorf("stopped after %v", d)
		}
		b.want()
		if d := b.Overdue(); d != 0 {
			t.Errorf("overdue %v after the end", d)
		}
	})
}

func TestMistakesOfTheProgramPanic(t *testing.T) {
	s := NewScheduler(Options{})
	s.Add(Task{ID: 1, Probe: good, Judge: every(0)})
	for name, f := range map[string]func(){
		"duplicate": func() { s.Add(Task{ID: 1, Probe: good, Judge: every(0)}) },
		"no probe":  func() { s.Add(Task{ID: 2, Judge: every(0)}) },
		"no judge":  func() { s.Update(Task{ID: 1, Probe: good}) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", name)
				}
			}()
			f()
		}()
	}
}

func TestHugeDelayDoesNotOverflow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Options{})
		defer b.close()
		b.Add(Task{ID: 1, Probe: good, Judge: b.judge("a", math.MaxInt64)})
		b.Add(Task{ID: 2, Probe: good, Judge: b.judge("b", -time.Second), First: time.Minute})
		b.at(30 * time.Second)
		b.want("0s a ok")
		b.Remove(2)
	})
}

// A simulated hour of a thousand checkers: every one runs when it should.
func TestSimulatedHourOfAThousandCheckers(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: a simulated hour takes seconds")
	}
	synctest.Test(t, func(t *testing.T) {
		const n, loop, took = 1000, 6 * time.Second, 3 * time.Millisecond
		b := newBed(t, Options{Limit: 256})
		defer b.close()
		runs := make([]int, n)
		for i := range n {
			b.Add(Task{
				ID: ID(i), Probe: takes(took), First: Spread(fmt.Sprint(i), loop),
				Judge: func(o Outcome) time.Duration {
					if o.Result != OK {
						t.Errorf("task %d: %+v", i, o)
					}
					runs[i]++
					return loop
				},
			})
		}
		b.at(time.Hour)
		want := int(time.Hour / (loop + took))
		for i, r := range runs {
			if r < want || r > want+1 {
				t.Errorf("task %d ran %d times, want %d or one more", i, r, want)
			}
		}
		if s := b.Stats(); s.Runs < uint64(n*want) || s.Hangs+s.Panics != 0 || s.Tasks != n {
			t.Errorf("stats %+v", s)
		}
	})
}

// S07: no 100 ms window of a 10 s round has more than 3 % of the first runs.
func TestS07SpreadLeavesNoCrowdedWindow(t *testing.T) {
	const n, warmup, window = 1000, 10 * time.Second, 100 * time.Millisecond
	for name, spread := range map[string]func(i int) time.Duration{
		"key": func(i int) time.Duration { return Spread(fmt.Sprintf("10.0.%d.%d:80 TCP_CHECK", i/250, i%250), warmup) },
		"id":  func(i int) time.Duration { return Spread(ID(i), warmup) },
	} {
		at := make([]time.Duration, n)
		for i := range n {
			at[i] = spread(i)
			if at[i] < 0 || at[i] >= warmup {
				t.Fatalf("%s: %v is outside [0, %v)", name, at[i], warmup)
			}
			if at[i] != spread(i) {
				t.Fatalf("%s: not deterministic", name)
			}
		}
		slices.Sort(at)
		for lo, hi := 0, 0; hi < n; hi++ {
			for at[hi]-at[lo] >= window {
				lo++
			}
			if hi-lo+1 > n*3/100 {
				t.Errorf("%s: %d of %d within %v at %v", name, hi-lo+1, n, window, at[lo])
			}
		}
	}
	if d := Spread("x", 0); d != 0 {
		t.Errorf("warmup 0: %v", d)
	}
}

func TestLimitFor(t *testing.T) {
	for _, tt := range []struct {
		nofile uint64
		want   int
	}{{0, 16}, {10, 16}, {1024, 768}, {4096, 3072}, {1 << 20, 4096}, {math.MaxUint64, 4096}} {
		if got := limitFor(tt.nofile); got != tt.want {
			t.Errorf("limitFor(%d) = %d, want %d", tt.nofile, got, tt.want)
		}
	}
	if n := NewScheduler(Options{}).Stats().Limit; n < minLimit || n > maxLimit {
		t.Errorf("default limit %d", n)
	}
}

// BenchmarkScheduler is the cost of one run of a probe that does nothing.
func BenchmarkScheduler(b *testing.B) {
	s := NewScheduler(Options{Limit: 64})
	ctx, stop := context.WithCancel(b.Context())
	done := make(chan error, 1)
	enough := make(chan struct{})
	left := b.N
	for i := range 64 {
		s.Add(Task{ID: ID(i), Probe: good, Judge: func(Outcome) time.Duration {
			if left--; left == 0 {
				close(enough)
			}
			return 0
		}})
	}
	b.ReportAllocs()
	b.ResetTimer()
	go func() { done <- s.Run(ctx) }()
	<-enough
	b.StopTimer()
	stop()
	<-done
}
