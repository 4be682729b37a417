package engine

import (
	"context"
	"os"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/state"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// TestSoak: ten thousand verdicts a second, each server going up and down, with a
// reload from time to time, leave nothing behind: goroutines and heap are what they
// were. With SLUICE_LONG it takes ten minutes of virtual time.
func TestSoak(t *testing.T) {
	services, seconds, reloads := 100, 6, 3
	if os.Getenv("SLUICE_LONG") != "" {
		services, seconds, reloads = 1000, 600, 20
	}
	synctest.Test(t, func(t *testing.T) {
		cfg := many(services, 10)
		cfg.Global.ShareChecks = true
		less := again(cfg)
		for i, vc := range less.VirtualServers {
			if i%10 == 0 {
				vc.RealServers = vc.RealServers[:9]
				vc.Scheduler = "wlc"
			}
		}
		files := [2]*config.Config{cfg, less}

		sched := &counting{tasks: map[checker.ID]checker.Task{}}
		table := ipvstest.New()
		table.KeepLog(false)
		e := New(Options{
			Dial:      func(context.Context) (apply.IPVS, error) { return table, nil },
			Probe:     func(*config.Config, *config.Checker) (checker.Probe, error) { return farmProbe{}, nil },
			Scheduler: sched, Files: fakeFiles{}, Notify: func(Notice) {}, Save: func(*state.State) {},
		})
		ctx, cancel := context.WithCancelCause(t.Context())
		if err := e.Start(ctx, cfg); err != nil {
			t.Fatal(err)
		}
		done := make(chan error)
		go func() { done <- e.Run(ctx) }()

		second := func(r checker.Result) {
			for _, task := range sched.tasks {
				task.Judge(checker.Outcome{Result: r, Reason: "soak", Took: time.Millisecond})
			}
			time.Sleep(time.Second)
			synctest.Wait()
		}
		round := func(i int) {
			second([]checker.Result{checker.OK, checker.Failed}[i%2])
			if every := seconds / reloads; i%every == every-1 {
				// There and back, so that the baseline's file is the one at the end.
				for _, f := range []*config.Config{files[1], files[0]} {
					if err := e.Reload(ctx, again(f)); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		calm := func() (uint64, int) {
			second(checker.OK)
			// Old states of the virtual servers end with the turns that replace them.
			time.Sleep(2 * time.Minute)
			synctest.Wait()
			return heapBytes(), runtime.NumGoroutine()
		}
		for i := range seconds / reloads {
			round(i)
		}
		before, goroutines := calm()
		for i := range seconds {
			round(i)
		}
		after, left := calm()
		if left != goroutines {
			t.Errorf("%d goroutines, there were %d", left, goroutines)
		}
		if bound := before + before/20 + 64<<10; after > bound {
			t.Errorf("the heap has %d bytes after %d verdicts, it had %d", after, seconds*services*10, before)
		}
		if len(sched.tasks) != services*10 || sched.added-sched.removed != len(sched.tasks) {
			t.Errorf("%d tasks, %+v", len(sched.tasks), sched.counts)
		}
		cancel(errPart)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
