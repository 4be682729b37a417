package pace

import (
	"sync"
	"sync/atomic"
	"testing"
)

func TestOneAtATime(t *testing.T) {
	g := New()
	var inside, most atomic.Int32
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				g.Step(func() {
					most.Store(max(most.Load(), inside.Add(1)))
					inside.Add(-1)
				})
			}
		})
	}
	wg.Wait()
	if most.Load() != 1 {
		t.Errorf("%d at a time", most.Load())
	}
}

func TestAPanicLeaves(t *testing.T) {
	g := New()
	func() {
		defer func() { _ = recover() }()
		g.Step(func() { panic("x") })
	}()
	g.Step(func() {}) // would wait for ever
}

func TestNoGateLetsAllIn(t *testing.T) {
	var g *Gate
	done := false
	g.Step(func() { g.Step(func() { done = true }) })
	if !done {
		t.Error("not let in")
	}
}
