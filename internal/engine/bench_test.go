package engine

import (
	"context"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// flip has a task's check turn.
func flip(e *Engine, t *task) {
	v, res := framework.Down, checker.Failed
	if t.vs.Servers[t.server].Checkers[t.check] == framework.Down {
		v, res = framework.Up, checker.OK
	}
	verdictEvent{task: t, verdict: v, changed: true, outcome: checker.Outcome{Result: res, Reason: "refused"}}.handle(e)
}

// settle takes an engine past what is made once.
func settle(e *Engine) {
	for _, vs := range e.vss {
		for range 2 {
			flip(e, vs.tasks[0][0])
			e.turn(context.Background())
		}
	}
}

// BenchmarkVerdictToOperations is one verdict, from its event to the table.
func BenchmarkVerdictToOperations(b *testing.B) {
	for _, shape := range [][2]int{{1, 100}, {1, 10_000}, {1000, 10}} {
		b.Run(fmt.Sprintf("services=%d/servers=%d", shape[0], shape[1]), func(b *testing.B) {
			e := loaded(b, many(shape[0], shape[1]))
			settle(e)
			n := 0
			b.ReportAllocs()
			for b.Loop() {
				vs := e.vss[n%len(e.vss)]
				flip(e, vs.tasks[n/len(e.vss)%len(vs.tasks)][0])
				e.turn(b.Context())
				n++
			}
		})
	}
}

// BenchmarkPublish is the part of a turn that tells readers of one verdict.
func BenchmarkPublish(b *testing.B) {
	for _, shape := range [][2]int{{1, 100}, {1, 10_000}, {1000, 10}} {
		b.Run(fmt.Sprintf("services=%d/servers=%d", shape[0], shape[1]), func(b *testing.B) {
			e := loaded(b, many(shape[0], shape[1]))
			settle(e)
			now, n := time.Now(), 0
			b.ReportAllocs()
			for b.Loop() {
				vs := e.vss[n%len(e.vss)]
				i := n / len(e.vss) % len(vs.rs)
				vs.failed(i, "refused")
				e.mark(vs, i)
				e.publish(now)
				n++
			}
		})
	}
}

// BenchmarkBurst5000 is half of ten thousand servers turning in one turn.
func BenchmarkBurst5000(b *testing.B) {
	for _, shape := range [][2]int{{1, 10_000}, {1000, 10}} {
		b.Run(fmt.Sprintf("services=%d/servers=%d", shape[0], shape[1]), func(b *testing.B) {
			e := loaded(b, many(shape[0], shape[1]))
			settle(e)
			b.ReportAllocs()
			for b.Loop() {
				for _, vs := range e.vss {
					for i := range len(vs.tasks) / 2 {
						flip(e, vs.tasks[i][0])
					}
				}
				e.turn(b.Context())
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/5000, "ns/verdict")
		})
	}
}

// BenchmarkSnapshot10000 is what a reader of everything pays; the loop pays nothing.
func BenchmarkSnapshot10000(b *testing.B) {
	e := loaded(b, many(1000, 10))
	b.ReportAllocs()
	for b.Loop() {
		e.Snapshot()
	}
}

// BenchmarkStateSave10000 is what a state to be saved costs the loop, and what
// encoding it costs who writes it.
func BenchmarkStateSave10000(b *testing.B) {
	e := loaded(b, many(1000, 10))
	settle(e)
	b.Run("loop", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			e.survives(time.Now())
		}
	})
	b.Run("writer", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := e.survives(time.Now()).Write(io.Discard); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkIdleTurn is a turn in which nothing happens.
func BenchmarkIdleTurn(b *testing.B) {
	e := loaded(b, many(1000, 10))
	settle(e)
	b.ReportAllocs()
	for b.Loop() {
		e.turn(b.Context())
		e.wait(time.Now())
	}
}

// loaded is an engine that has started and does not run.
func loaded(b testing.TB, cfg *config.Config) *Engine {
	b.Helper()
	table := ipvstest.New()
	table.KeepLog(false)
	e := New(Options{
		Dial:      func(context.Context) (apply.IPVS, error) { return table, nil },
		Probe:     func(_ *config.Config, c *config.Checker) (checker.Probe, error) { return farmProbe{}, nil },
		Scheduler: checker.NewScheduler(checker.Options{}), Files: fakeFiles{},
	})
	if err := e.Start(b.Context(), cfg); err != nil {
		b.Fatal(err)
	}
	for _, vs := range e.vss {
		for i := range vs.Servers {
			verdictEvent{task: vs.tasks[i][0], verdict: framework.Up, changed: true}.handle(e)
		}
	}
	e.turn(b.Context())
	for e.portions {
		e.turn(b.Context())
	}
	return e
}
