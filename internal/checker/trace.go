package checker

import (
	"context"
	"fmt"
	"time"
)

// TraceEntry is one line of a transcript.
type TraceEntry struct {
	// After is the time since the run began.
	After time.Duration
	// Stage is how far the check was.
	Stage Stage
	// Text is for people, one line. It holds neither arguments of scripts nor what
	// their environment is, nor header lines that carry credentials.
	Text string
}

// Trace takes what a probe tells of its run. The nil Trace is there for runs that
// nobody watches: who has something to tell asks for nil first, so that it costs
// nothing to word what nobody reads.
type Trace struct {
	began time.Time
	tell  func(TraceEntry)
}

type traceKey struct{}

// WithTrace returns a context in which the probes tell what they do. tell is called
// on the goroutine of the run.
func WithTrace(ctx context.Context, tell func(TraceEntry)) context.Context {
	return context.WithValue(ctx, traceKey{}, &Trace{began: time.Now(), tell: tell})
}

// TraceOf is the trace of a context, nil if there is none.
func TraceOf(ctx context.Context) *Trace {
	t, _ := ctx.Value(traceKey{}).(*Trace)
	return t
}

// Tell adds an entry.
func (t *Trace) Tell(stage Stage, format string, args ...any) {
	if t != nil {
		t.tell(TraceEntry{After: time.Since(t.began), Stage: stage, Text: fmt.Sprintf(format, args...)})
	}
}

// RunTraced runs a probe once, in the foreground, and tells each of its steps as it
// happens. timeout is the deadline of the whole run, 0 for DefaultTimeout. p must not
// be the probe of a task: that one may be running. The last entry is the verdict.
func RunTraced(ctx context.Context, p Probe, timeout time.Duration, tell func(TraceEntry)) (o Outcome) {
	if timeout <= 0 {
		timeout = DefaultTimeout
	}
	ctx, cancel := context.WithTimeout(WithTrace(ctx, tell), timeout)
	defer cancel()
	t := TraceOf(ctx)
	t.Tell(StagePrepare, "begin, to end within %v", timeout)
	returned := false
	defer func() {
		if !returned {
			o = PanicOutcome(recover())
		}
		if o.Took <= 0 {
			o.Took = time.Since(t.began)
		}
		stage := StageReply
		if o.Fault != nil {
			stage = o.Fault.Stage
		}
		t.Tell(stage, "%s: %s", o.Result, o.Reason)
	}()
	o = p.Run(ctx)
	returned = true
	return o
}
