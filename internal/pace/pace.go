// Package pace decides how much of this machine those who only look may take: one
// processor at a time, all of them together.
//
// Status, metrics and the dashboard are worked out of what the engine published, by
// who asks. Ten of them at once are ten goroutines that the runtime may let run for
// 10 ms each before it looks for others, and a verdict that comes then waits for all
// processors to be given up. With one at a time the loop always finds another one: the
// daemon has at least two (see internal/daemon).
//
// A step is plain work. Whoever waits for something (a client that reads slowly, the
// kernel) leaves before and enters again after.
package pace

import "runtime"

// Gate lets one in. A nil Gate lets all in.
type Gate struct{ turn chan struct{} }

// New returns a gate.
func New() *Gate { return &Gate{make(chan struct{}, 1)} }

// Enter waits for the caller's turn, in the order of coming.
func (g *Gate) Enter() {
	if g != nil {
		g.turn <- struct{}{}
	}
}

// Leave ends it, and lets what decides go before the next one.
func (g *Gate) Leave() {
	if g != nil {
		<-g.turn
		runtime.Gosched()
	}
}

// Step does f in the caller's turn.
func (g *Gate) Step(f func()) {
	g.Enter()
	defer g.Leave()
	f()
}
