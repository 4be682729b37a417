package reactor

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/config"
)

// after has every peer answer so late.
func after(d time.Duration) func(*dial.Address) (time.Duration, syscall.Errno) {
	return func(*dial.Address) (time.Duration, syscall.Errno) { return d, 0 }
}

func TestFirstRunThenDelayFromCompletion(t *testing.T) {
	w := newWorld(t, Options{})
	w.peer = after(2 * time.Second)
	w.Add(checker.Task{ID: 1, Probe: to(1, 5*time.Second), Judge: w.judge("a", 10*time.Second), First: 3 * time.Second})
	w.simulate(30 * time.Second)
	w.want("5s a ok", "17s a ok", "29s a ok")
}

func TestDeadlineIsTheEarlierOfRunAndConnection(t *testing.T) {
	w := newWorld(t, Options{})
	w.peer = after(-1)
	w.Add(checker.Task{ID: 1, Probe: to(1, time.Minute), Judge: w.judge("run", time.Minute), Timeout: 3 * time.Second})
	w.Add(checker.Task{ID: 2, Probe: to(2, 2*time.Second), Judge: w.judge("connection", time.Minute), Timeout: 3 * time.Second})
	w.Add(checker.Task{ID: 3, Probe: to(3, 0), Judge: w.judge("default", time.Minute)})
	w.simulate(30 * time.Second)
	w.want("2s connection failed", "3s run failed", "5s default failed")
}

func TestSecondConnectionHasWhatIsLeftOfTheRun(t *testing.T) {
	w := newWorld(t, Options{})
	w.peer = after(2 * time.Second)
	s := &script{conns: []*config.Connection{target(1, 3*time.Second), target(2, 3*time.Second)}}
	w.Add(checker.Task{ID: 1, Probe: s, Judge: w.judge("both", time.Minute), Timeout: 3 * time.Second})
	// The second is begun when its deadline has passed: this machine was too slow.
	late := &script{conns: []*config.Connection{target(3, 0), target(4, 0)}}
	w.Add(checker.Task{ID: 2, Probe: late, Timeout: 2 * time.Second, Judge: func(o checker.Outcome) time.Duration {
		w.note(o.Result.String())
		return time.Minute
	}})
	w.in(1*time.Second, func() {})
	w.simulate(30 * time.Second)
	w.want("2s unable", "3s both failed")
	if !errors.Is(s.err, os.ErrDeadlineExceeded) || !strings.Contains(late.err.Error(), "this machine is too busy") {
		t.Errorf("%v; %v", s.err, late.err)
	}
}

func TestRemoveDiscardsARunAndClosesItsConnection(t *testing.T) {
	w := newWorld(t, Options{})
	w.peer = after(time.Second)
	w.Add(checker.Task{ID: 1, Probe: to(1, 5*time.Second), Judge: w.judge("a", time.Second)})
	w.in(2500*time.Millisecond, func() { // the second run is under way
		if len(w.sockets) != 1 || !w.Has(1) {
			t.Errorf("%d connections", len(w.sockets))
		}
		w.Remove(1)
		w.Remove(1)
		w.Remove(7)
		// The ID is free at once.
		w.Add(checker.Task{ID: 1, Probe: to(2, 5*time.Second), Judge: w.judge("b", time.Hour), First: time.Second})
	})
	w.in(3*time.Second, func() {
		if len(w.sockets) != 0 {
			t.Errorf("%d connections after Remove", len(w.sockets))
		}
	})
	w.simulate(time.Minute)
	w.want("1s a ok", "4.5s b ok")
	if s := w.Stats(); s.Tasks != 1 || s.Runs != 2 || s.Running != 0 {
		t.Errorf("%+v", s)
	}
}

func TestUpdateTakesTheProbeFromTheNextRun(t *testing.T) {
	w := newWorld(t, Options{})
	w.peer = after(time.Second)
	w.Add(checker.Task{ID: 1, Probe: to(1, 5*time.Second), Judge: w.judge("old", 9*time.Second)})
	other := to(2, 5*time.Second)
	w.in(10500*time.Millisecond, func() { // in the second run
		w.Update(checker.Task{ID: 1, Probe: other, Judge: w.judge("new", 9*time.Second), First: time.Hour})
	})
	w.in(12*time.Second, func() {
		if other.at != 0 || other.err != nil {
			t.Error("the new probe ran early")
		}
		w.Update(checker.Task{ID: 99, Probe: other, Judge: w.judge("?", 0)})
	})
	w.in(22*time.Second, func() {
		if other.at != 1 {
			t.Error("the new probe has not run")
		}
	})
	w.simulate(25 * time.Second)
	w.want("1s old ok", "11s new ok", "21s new ok")
}

func TestRunNowKeepsThePhase(t *testing.T) {
	w := newWorld(t, Options{})
	w.Add(checker.Task{ID: 1, Probe: to(1, time.Second), Judge: w.judge("a", 10*time.Second)})
	w.in(4*time.Second, func() { w.RunNow(1); w.RunNow(1); w.RunNow(2) })
	w.simulate(25 * time.Second)
	w.want("0s a ok", "4s a ok", "10s a ok", "20s a ok")
}

type panics struct{ *script }

func (panics) Connected() ([]byte, bool) { panic("oops") }

func TestPanicOfAConversationIsUnableWithItsPlace(t *testing.T) {
	w := newWorld(t, Options{})
	var got checker.Outcome
	w.Add(checker.Task{ID: 1, Probe: panics{to(1, time.Second)}, Judge: func(o checker.Outcome) time.Duration { got = o; return time.Hour }})
	w.Add(checker.Task{ID: 2, Probe: to(2, time.Second), Judge: w.judge("other", time.Hour)})
	w.simulate(time.Minute)
	w.want("0s other ok")
	if got.Result != checker.Unable || !strings.Contains(got.Reason, "probe panicked: oops (schedule_test.go:") || w.Stats().Panics != 1 {
		t.Errorf("%+v", got)
	}
}

func TestRunsBeyondTheLimitWaitInTheirOrder(t *testing.T) {
	w := newWorld(t, Options{Limit: 2})
	w.peer = after(time.Second)
	for i, name := range []string{"a", "b", "c", "d", "e"} {
		w.Add(checker.Task{ID: checker.ID(i), Probe: to(i, 5*time.Second), Judge: w.judge(name, time.Hour), First: time.Duration(int64(i) * tick)})
	}
	w.in(500*time.Millisecond, func() {
		if s := w.Stats(); s.Running != 2 || s.Waiting != 3 || s.Limit != 2 || s.Tasks != 5 {
			t.Errorf("%+v", s)
		}
		if d := w.Overdue().Round(time.Millisecond); d != 492*time.Millisecond {
			t.Errorf("overdue %v", d)
		}
		w.Remove(3)
	})
	w.in(4*time.Second, func() {
		if d := w.Overdue(); d != 0 {
			t.Errorf("overdue %v", d)
		}
	})
	w.simulate(time.Minute)
	w.want("1s a ok", "1.004s b ok", "2s c ok", "2.004s e ok")
}

func TestNoDescriptorIsUnable(t *testing.T) {
	w := newWorld(t, Options{})
	w.opening = func() error { return unix.EMFILE }
	w.Add(checker.Task{ID: 1, Probe: to(1, time.Second), Judge: w.judge("a", 10*time.Second)})
	w.simulate(15 * time.Second)
	w.want("0s a unable", "10s a unable")
}

func TestRefusedIsFailed(t *testing.T) {
	w := newWorld(t, Options{})
	w.peer = func(*dial.Address) (time.Duration, syscall.Errno) { return time.Second, unix.ECONNREFUSED }
	w.Add(checker.Task{ID: 1, Probe: to(1, 5*time.Second), Judge: w.judge("a", 10*time.Second)})
	w.simulate(15 * time.Second)
	w.want("1s a failed", "12s a failed")
}

// An idle loop sleeps until something is due: no ticks.
func TestIdleLoopSleeps(t *testing.T) {
	w := newWorld(t, Options{})
	for i := range 10 {
		w.Add(checker.Task{ID: checker.ID(i), Probe: to(i, time.Second), Judge: func(checker.Outcome) time.Duration { return time.Minute }, First: time.Duration(i) * 6 * time.Second})
	}
	w.simulate(time.Hour)
	if runs := w.Stats().Runs; runs != 600 || w.waits > 3*600 {
		t.Errorf("%d waits for %d runs", w.waits, runs)
	}
}

func TestMistakesOfTheProgramPanic(t *testing.T) {
	for name, f := range map[string]func(*world){
		"twice": func(w *world) {
			for range 2 {
				w.Add(checker.Task{ID: 1, Probe: to(1, 0), Judge: w.judge("", 0)})
			}
		},
		"no judge":       func(w *world) { w.Add(checker.Task{ID: 1, Probe: to(1, 0)}) },
		"no talk":        func(w *world) { w.Add(checker.Task{ID: 1, Judge: w.judge("", 0)}) },
		"update no talk": func(w *world) { w.Update(checker.Task{ID: 1, Judge: w.judge("", 0)}) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if recover() == nil {
					t.Error("no panic")
				}
			}()
			f(newWorld(t, Options{}))
		})
	}
}

func TestFollowing(t *testing.T) {
	for _, tt := range []struct{ due, began, now, delay, want int64 }{
		{100, 100, 103, 50, 153},         // in time: from the completion
		{100, 100, 103, 0, 103},          // at once
		{100, 104, 107, 50, 153},         // a little late: as if it had begun in time
		{100, 130, 131, 50, 131 + 70},    // more than half of it: the next turn of the phase
		{100, 1000, 1001, 50, 1051},      // eighteen turns were missed
		{100, 1010, 1011, 50, 1051},      // with the phase
		{100, 1040, 1041, 50, 1041 + 60}, // at least half of the delay from now
		{0, 0, 5, math.MaxInt64, math.MaxInt64},
		{0, 3, 5, math.MaxInt64, math.MaxInt64 - 3},
	} {
		if got := following(tt.due, tt.began, tt.now, tt.delay); got != tt.want {
			t.Errorf("%v: %d", tt, got)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		n := func(most int64, what string) int64 { return rapid.Int64Range(0, most).Draw(t, what) }
		due, delay := n(1<<40, "due"), n(1<<40, "delay")+1
		began := due + n(1<<40, "late")
		now := began + n(1<<30, "took")
		got := following(due, began, now, delay)
		if wait := got - now; wait < delay/2 || wait > delay+delay/2+1 {
			t.Fatalf("waits %d of %d", wait, delay)
		}
		// The phase is that of a run which began when it was due.
		if off := (got - (due + now - began)) % delay; off != 0 {
			t.Fatalf("phase off by %d", off)
		}
	})
}

// lawful runs many tasks for long and holds their starts to what was asked for.
func lawful(t *testing.T, n int, delay, total time.Duration, jolts func(*world)) {
	const late = 10 * time.Millisecond
	w := newWorld(t, Options{Limit: 4096})
	w.cost = int64(20 * time.Microsecond)
	latency := func(i int) time.Duration { return time.Duration(i%7) * 300 * time.Microsecond }
	w.peer = func(a *dial.Address) (time.Duration, syscall.Errno) {
		b := a.Bytes()
		return latency(int(b[6])<<8 | int(b[7])), 0
	}
	first := make([]int64, n)
	last := make([]int64, n)
	runs := make([]int, n)
	// Starts by windows of 100 ms, of the last two rounds.
	const window = int64(100 * time.Millisecond)
	crowd := make([]int, int64(delay)/window)
	most := 0
	for i := range n {
		s := to(i, 3*time.Second)
		s.begun = func() {
			now := w.clock
			if runs[i] == 0 {
				first[i] = now
			}
			last[i] = now
			runs[i]++
			if now > int64(total-delay) {
				x := now / window % int64(len(crowd))
				crowd[x]++
				most = max(most, crowd[x])
			}
		}
		w.Add(checker.Task{ID: checker.ID(i), Probe: s, Judge: func(checker.Outcome) time.Duration { return delay },
			First: checker.Spread(fmt.Sprint("10.0.0.", i), delay)})
	}
	if jolts != nil {
		jolts(w)
	}
	var links, nodes int
	w.in(total/4, func() { links, nodes = len(w.links), w.queue.Len() })
	w.simulate(total)
	if most > n*3/100 {
		t.Errorf("%d of %d starts within %v", most, n, time.Duration(window))
	}
	if jolts == nil {
		for i := range n {
			// Each period is the delay and what the run took, a connect included.
			k := int64(runs[i] - 1)
			period := int64(delay + latency(i))
			drift := last[i] - first[i] - k*period
			if drift < -int64(late) || drift > k*w.cost*batch+int64(late) || k < int64((total-delay)/(delay+late))-1 {
				t.Fatalf("task %d drifted by %v in %d rounds", i, time.Duration(drift), k)
			}
		}
		if len(w.links) > 2*links+batch || w.queue.Len() != nodes {
			t.Errorf("%d links, %d at first; %d nodes, %d at first", len(w.links), links, w.queue.Len(), nodes)
		}
	}
}

// S07: the checks of a round are spread over it, for hours.
func TestS07ChecksStaySpread(t *testing.T) {
	lawful(t, 1000, 10*time.Second, 20*time.Minute, nil)
}

// S07, a month: neither drift, nor a burst, nor growth.
func TestS07ThirtyDays(t *testing.T) {
	lawful(t, 1000, 2*time.Hour, 30*24*time.Hour, nil)
}

// S07: a machine that stood still, for a part of a round or for an hour, catches up
// and has its checks spread as before.
func TestS07SuspendedMachineKeepsTheSpread(t *testing.T) {
	for _, pause := range []time.Duration{500 * time.Millisecond, 4 * time.Second, time.Hour} {
		lawful(t, 1000, 10*time.Second, 25*time.Minute+3*pause, func(w *world) {
			n := 0
			var jolt func()
			jolt = func() {
				if n++; n < 3 {
					defer func() { w.at(w.clock+int64(7*time.Minute), jolt) }()
				}
				before := w.Stats().Runs
				w.clock += int64(pause)
				w.at(w.clock+int64(time.Second), func() {
					if pause == time.Hour && w.Stats().Runs < before+1000 {
						t.Errorf("%d runs a second after the pause", w.Stats().Runs-before)
					}
					if d := w.Overdue(); d > 20*time.Millisecond {
						t.Errorf("overdue %v a second after the pause", d)
					}
				})
			}
			w.in(7*time.Minute, jolt)
		})
	}
}

// Due times are met to within 10 ms, at ten thousand checks a second too.
func TestDueTimesAreMet(t *testing.T) {
	w := newWorld(t, Options{})
	w.cost = int64(30 * time.Microsecond)
	w.peer = after(200 * time.Microsecond)
	const n = 10000
	var worst time.Duration
	for i := range n {
		s := to(i, time.Second)
		var due int64
		s.begun = func() {
			if due != 0 {
				worst = max(worst, time.Duration(w.clock-due))
			}
		}
		w.Add(checker.Task{ID: checker.ID(i), Probe: s, First: checker.Spread(checker.ID(i), time.Second), Judge: func(checker.Outcome) time.Duration {
			due = w.clock + int64(time.Second)
			return time.Second
		}})
	}
	w.simulate(6 * time.Second)
	if runs := w.Stats().Runs; worst > 10*time.Millisecond || runs < 5*n {
		t.Errorf("%v late at worst, %d runs", worst, runs)
	}
}

// Remove counts at once, also for what is due, or has ended, in the same turn.
func TestRemoveByAJudgeCountsInTheSameTurn(t *testing.T) {
	w := newWorld(t, Options{})
	removes := func(name string, other checker.ID) checker.Judge {
		return func(o checker.Outcome) time.Duration {
			w.note(name + " " + o.Result.String())
			w.Remove(other)
			return 10 * time.Second
		}
	}
	// Both are answered at the same time; whichever is judged first removes the other.
	w.Add(checker.Task{ID: 1, Probe: to(1, time.Second), Judge: removes("one", 2)})
	w.Add(checker.Task{ID: 2, Probe: to(2, time.Second), Judge: removes("one", 1)})
	// These end as they are begun.
	w.Add(checker.Task{ID: 3, Probe: hopeless(), Judge: removes("other", 4), First: 5 * time.Second})
	w.Add(checker.Task{ID: 4, Probe: hopeless(), Judge: removes("other", 3), First: 5 * time.Second})
	w.simulate(18 * time.Second)
	w.want("0s one ok", "5s other unable", "10s one ok", "15s other unable")
	if n := w.Stats().Tasks; n != 2 {
		t.Errorf("%d tasks", n)
	}
}

// hopeless is a conversation whose connection cannot be begun.
func hopeless() *script {
	return &script{conns: []*config.Connection{{Target: netip.MustParseAddrPort("[fe80::1%nosuch0]:80"), Timeout: time.Second}}}
}

// What was reported for a connection that is closed is not taken for news of the
// one that has its place now.
func TestStaleEventsAreDropped(t *testing.T) {
	w := newWorld(t, Options{})
	w.peer = after(-1)
	w.Add(checker.Task{ID: 1, Probe: to(1, time.Second), Judge: w.judge("a", 0)})
	stale := unix.EpollEvent{Events: unix.EPOLLOUT}
	w.in(1500*time.Millisecond, func() {
		stale.Fd, stale.Pad = int32(w.links[0].tag.index), int32(w.links[0].tag.generation-1)
		w.happen = append(w.happen, stale)
	})
	w.simulate(2500 * time.Millisecond)
	w.want("1s a failed", "2s a failed")

	// Nor is what a socket that waits to be used again reports.
	w = newWorld(t, Options{})
	s := to(1, time.Second)
	s.conns[0].Close = config.CloseReset
	w.Add(checker.Task{ID: 1, Probe: s, Judge: w.judge("b", 10*time.Second)})
	w.in(5*time.Second, func() {
		if w.pooled != 1 || len(w.sockets) != 1 {
			t.Errorf("%d sockets wait, %d open", w.pooled, len(w.sockets))
		}
		w.happen = append(w.happen, unix.EpollEvent{Events: unix.EPOLLHUP | unix.EPOLLOUT})
	})
	w.in(15*time.Second, func() { w.Remove(1) })
	w.in(16*time.Second, func() {
		if w.pooled != 0 || len(w.sockets) != 0 || len(w.pools) != 0 {
			t.Errorf("%d sockets wait, %d open, %d pools", w.pooled, len(w.sockets), len(w.pools))
		}
	})
	w.simulate(20 * time.Second)
	w.want("0s b ok", "10s b ok")
}
