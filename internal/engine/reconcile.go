package engine

import (
	"context"
	"time"

	"github.com/sluice-lb/sluice/internal/event"
)

// reconciling is when our services are compared with the kernel.
type reconciling struct {
	// due: at once, since a reload asks for it.
	due bool
	// behind: in the next turn, since what the reload changed is written in this one.
	behind bool
	// after is done when a reload's comparison is.
	after []func()
	// at is the next time by reconcile_interval, zero for none.
	at time.Time
	// failed: the last one did not succeed.
	failed bool
	// timeouts: that they could not be read was logged.
	timeouts bool
}

// askReconcile has our services compared because of a reload. Its own changes need not
// wait for that as long as nothing speaks against what we believe of the table.
func (e *Engine) askReconcile() {
	e.reconcile.due = true
	e.reconcile.behind = e.connected && e.kernel.OK && !e.reconcile.failed && !e.applier.Drifted()
}

// done returns what is to be done at the end of a turn, since no comparison is under
// way that a reload waits for, or none can be made.
func (r *reconciling) done(connected bool) (after []func()) {
	r.behind = false
	if !r.due || !connected {
		after, r.after = r.after, nil
	}
	return after
}

// next sets the time after one that was due.
func (r *reconciling) next(now time.Time, interval time.Duration) {
	r.due, r.at = false, time.Time{}
	if interval > 0 {
		r.at = now.Add(interval)
	}
}

// reconcileDue reports whether the whole of our services is to be read in this turn.
// One that a reload asks for is not put off by an earlier failure.
func (e *Engine) reconcileDue(now time.Time) bool {
	return e.reconcile.due || !e.reconcile.at.IsZero() && !now.Before(e.reconcile.at)
}

// reconcileNow reads our services, puts back what somebody else changed and looks at
// the drain list by the same read.
func (e *Engine) reconcileNow(ctx context.Context, now time.Time) error {
	before, drifted := e.applier.Operations(), e.applier.Drifted()
	draining, _ := e.applier.Draining()
	if draining > 0 {
		e.readTimeouts(ctx)
	}
	err := e.applier.Reconcile(ctx, now)
	e.reconcile.next(now, e.config.Global.ReconcileInterval)
	e.reconcile.failed = err != nil
	if err != nil {
		// It is tried again when the table is, and not only after the whole interval.
		if retry := now.Add(e.longer()); e.reconcile.at.IsZero() || retry.Before(e.reconcile.at) {
			e.reconcile.at = retry
		}
	}
	e.tickAt = time.Time{}
	if draining > 0 || e.applier.Operations() != before || drifted || e.applier.Drifted() {
		e.tableTouched = true
	}
	return err
}

// readTimeouts tells the applier how long the kernel keeps connections, for its
// estimates. Without that there are none.
func (e *Engine) readTimeouts(ctx context.Context) {
	table, ok := e.conn.(whole)
	if !ok {
		return
	}
	t, err := table.Timeouts(ctx)
	if err != nil {
		if !e.reconcile.timeouts {
			e.log.Warn("The kernel's connection timeouts could not be read, ends of drains are not estimated", event.Key, event.KernelUnread, "err", err)
		}
		e.reconcile.timeouts = true
		return
	}
	e.reconcile.timeouts = false
	e.applier.Timeouts(t)
}
