package engine

import (
	"context"
	"fmt"
	"time"
)

// Written returns when all that was asked for so far is in the kernel, or was refused,
// or it is known that there is no table to write to.
func (e *Engine) Written(ctx context.Context) error {
	done := make(chan struct{})
	e.inbox.send(writtenEvent{done})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("the table is not written yet: %w", context.Cause(ctx))
	}
}

type writtenEvent struct{ done chan struct{} }

func (ev writtenEvent) handle(e *Engine) {
	e.written = append(e.written, func() { close(ev.done) })
}

// betweenPortions is how old what readers see may get while portions are written.
const betweenPortions = 2 * time.Second

// tells reports whether this turn is published. Among portions of bulk work that is
// seldom: to describe a table that is half written takes as long as to write it. Who
// waits for the end of this turn is not kept waiting.
func (e *Engine) tells(now time.Time) bool {
	since := e.published.Load().head.At
	if since.IsZero() {
		since = e.started
	}
	return !e.portions || len(e.after) > 0 || now.Sub(since) >= betweenPortions
}

// settle takes in how this turn's writing ended. While portions of bulk work are left
// the loop comes back at once, with what else happened meanwhile, and the outcome is
// that of all of them.
func (e *Engine) settle(now time.Time, err error) {
	was := e.portions
	e.portions = e.applier.More()
	switch {
	case e.portions && err == nil:
		return
	case e.portions:
		// What failed was not the writing.
		e.outcome(now, err)
		return
	case was:
		// What was published on the way shows a table that is half written.
		e.allTouched = true
	}
	e.outcome(now, err)
	if err == nil && !e.applier.Pending() {
		e.tell()
	}
}
