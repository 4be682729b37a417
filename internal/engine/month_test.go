package engine

import (
	"context"
	"encoding/json"
	"log/slog"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/state"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// pulse is a probe that notes when it runs, and that fails for one minute of each
// hour if flaps is set.
type pulse struct {
	took  time.Duration
	flaps bool
	begun time.Time

	mu    sync.Mutex
	last  time.Time
	runs  int
	every map[time.Duration]int // how often each pause occurred
}

func (p *pulse) Run(context.Context) checker.Outcome {
	p.mu.Lock()
	now := time.Now()
	if !p.last.IsZero() {
		p.every[now.Sub(p.last)]++
	}
	p.last = now
	p.runs++
	p.mu.Unlock()
	time.Sleep(p.took)
	if p.flaps && now.Sub(p.begun)/time.Minute%60 == 7 {
		return checker.Outcome{Result: checker.Failed, Reason: "the minute", Took: p.took}
	}
	return checker.Outcome{Result: checker.OK, Took: p.took}
}

// size is what the daemon amounts to at one moment.
type size struct {
	heap                          int64
	goroutines, snapshot, saved   int
	operations, generation, tasks uint64
}

// TestThirtyDays: each check runs a delay_loop after the last, to the nanosecond, over
// verdicts and reloads; and neither the heap nor the snapshot nor what is saved grows.
func TestThirtyDays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const day = 24 * time.Hour
		cfg := func(generation int) *config.Config {
			c := each(conf(1, 2, 3, 4, 5), func(rs *config.RealServer) {
				rs.Checkers[0].DelayLoop, rs.Checkers[0].Warmup = time.Minute, time.Minute
			})
			c.Global.ReconcileInterval = time.Minute
			// Every other day it is another file.
			c.VirtualServers[0].RealServers[4].Weight += int64(generation % 2)
			return c
		}
		table := ipvstest.New()
		table.KeepLog(false)
		var mu sync.Mutex
		var last *state.State
		pulses := map[string]*pulse{}
		sched := checker.NewScheduler(checker.Options{})
		e := New(Options{
			Log:  slog.New(slog.DiscardHandler),
			Dial: func(context.Context) (apply.IPVS, error) { return table, nil },
			Read: func(context.Context) (Reader, error) { return table, nil },
			Probe: func(_ *config.Config, c *config.Checker) (checker.Probe, error) {
				at := c.Conn.Target.String()
				if pulses[at] == nil {
					n := len(pulses)
					pulses[at] = &pulse{took: time.Duration(7*n) * time.Millisecond, flaps: n == 2, begun: time.Now(), every: map[time.Duration]int{}}
				}
				return pulses[at], nil
			},
			Scheduler: sched, Files: fakeFiles{},
			Save: func(s *state.State) { mu.Lock(); defer mu.Unlock(); last = s },
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		if err := e.Start(ctx, cfg(0)); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 2)
		go func() { done <- e.Run(ctx) }()
		go func() { _ = sched.Run(ctx); done <- nil }()

		measure := func() size {
			synctest.Wait()
			snapshot, err := json.Marshal(e.Snapshot().VirtualServers)
			if err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			saved, err := json.Marshal(last)
			mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			runtime.GC()
			runtime.GC()
			var m runtime.MemStats
			runtime.ReadMemStats(&m)
			s := e.Snapshot()
			return size{heap: int64(m.HeapAlloc), goroutines: runtime.NumGoroutine(), snapshot: len(snapshot), saved: len(saved),
				operations: s.Kernel.Operations, generation: s.Generation, tasks: uint64(sched.Stats().Tasks)}
		}
		var first size
		for d := range 30 {
			time.Sleep(day)
			if err := e.Reload(ctx, cfg(d)); err != nil {
				t.Fatal(err)
			}
			if d == 1 {
				first = measure()
			}
		}
		after := measure()
		t.Logf("after 2 days %+v", first)
		t.Logf("after 30     %+v", after)
		for at, p := range pulses {
			if len(p.every) != 1 || p.every[time.Minute+p.took] == 0 {
				t.Errorf("%s, each of whose checks takes %v, was checked at intervals of %v", at, p.took, p.every)
			}
			if want := int(30 * day / (time.Minute + p.took)); p.runs < want || p.runs > want+1 {
				t.Errorf("%s was checked %d times, want %d", at, p.runs, want)
			}
		}
		if after.generation != 31 || after.operations < 2*24*29 {
			t.Errorf("generation %d, %d operations: that was no life", after.generation, after.operations)
		}
		if grown := after.heap - first.heap; grown > 256<<10 {
			t.Errorf("the heap has grown by %d octets", grown)
		}
		if after.goroutines > first.goroutines || after.tasks != first.tasks {
			t.Errorf("%d goroutines and %d tasks, were %d and %d", after.goroutines, after.tasks, first.goroutines, first.tasks)
		}
		// Times are printed with as many digits as they have.
		if after.snapshot > first.snapshot+200 || after.saved > first.saved+200 {
			t.Errorf("snapshot %d and state %d octets, were %d and %d", after.snapshot, after.saved, first.snapshot, first.saved)
		}
		cancel(nil)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
