package checker

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"time"
)

// run is the goroutine of one probe.
func (s *Scheduler) run(ctx context.Context, t *task, p Probe, began int64) {
	c := completion{t: t}
	returned := false
	cancel := t.cancel // read before the completion gives t back
	defer func() {
		if !returned {
			c.outcome, c.panicked = PanicOutcome(recover()), true
		}
		cancel()
		c.at = s.now()
		if c.outcome.Took <= 0 {
			c.outcome.Took = time.Duration(c.at - began)
		}
		s.finish(c)
	}()
	c.outcome = p.Run(ctx)
	returned = true
}

// finish queues a completion. It never blocks, so that a probe that returns long
// after the scheduler stopped does not leak.
func (s *Scheduler) finish(c completion) {
	s.mu.Lock()
	s.done = append(s.done, c)
	s.mu.Unlock()
	s.poke()
}

// PanicOutcome makes a reason of what a probe panicked with (nil if it left by
// runtime.Goexit), with the place: a report without it helps nobody. It is for who
// runs probes, and is called by what recovers.
func PanicOutcome(v any) Outcome {
	if v == nil {
		return broken("probe ended without an outcome")
	}
	return broken(fmt.Sprintf("probe panicked: %v (%s)", v, panicSite()))
}

// broken is a probe that did not say anything itself.
func broken(reason string) Outcome {
	return Outcome{Result: Unable, Reason: reason, Fault: &Fault{Stage: StagePrepare}}
}

// panicSite is the innermost frame outside the runtime, below the panic.
func panicSite() string {
	pcs := make([]uintptr, 64)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	panicking := false
	for {
		f, more := frames.Next()
		switch {
		case f.Function == "runtime.gopanic":
			panicking = true
		case panicking && !strings.HasPrefix(f.Function, "runtime."):
			return fmt.Sprintf("%s:%d", f.File[strings.LastIndexByte(f.File, '/')+1:], f.Line)
		}
		if !more {
			return "place unknown"
		}
	}
}
