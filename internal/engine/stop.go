package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
)

// A stop that drains looks for connections each drainPoll and tells each drainTell.
const (
	drainPoll = time.Second
	drainTell = 5 * time.Second
)

// stopping is how the engine ends.
type stopping struct {
	// handover: the next process takes the table as it is. The loop's own.
	handover bool
	// draining: the stop waits for connections; hurry, once closed, ends the wait.
	draining *atomic.Bool
	hurry    chan struct{}
	once     *sync.Once
}

func newStopping() stopping {
	return stopping{draining: new(atomic.Bool), hurry: make(chan struct{}), once: new(sync.Once)}
}

// Handover says that the end to come is one that the next process goes on from: it
// leaves the table as it is, whatever on_stop says. The state is handed out for
// saving before this returns. With false it takes that back.
func (e *Engine) Handover(ctx context.Context, will bool) error {
	return e.call(ctx, func(e *Engine) {
		e.stopping.handover = will
		// At the end of this very turn.
		e.saving = saving{due: true}
	})
}

// Hurry ends the wait of a stop that drains, and reports whether there was one.
func (e *Engine) Hurry() bool {
	hurried := false
	if e.stopping.draining.Load() {
		e.stopping.once.Do(func() { close(e.stopping.hurry); hurried = true })
	}
	return hurried
}

// stop leaves the table as on_stop says. The context that ended must not end the
// clean-up too.
func (e *Engine) stop(ctx context.Context) error {
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		// Another part failed. That is a crash, not a wish of the operator's:
		// the next process adopts the table.
		e.log.Error("Ending after a failure, the IPVS table stays as it is", event.Key, event.Failed, "err", cause)
		e.saveNow(time.Now())
		return nil
	}
	if e.opts.Observe {
		return nil // the table is a copy that ends with this process
	}
	onStop := e.config.Global.OnStop
	switch {
	case e.stopping.handover:
		e.log.Info("Handing over, the IPVS table stays as it is", event.Key, event.Stopping)
		e.saveNow(time.Now())
		return nil
	case onStop == config.OnStopKeep:
		e.log.Info("Stopping, the IPVS table stays as it is", event.Key, event.Stopping, "on_stop", onStop.String())
		e.saveNow(time.Now())
		return nil
	case !e.connected:
		// What an earlier process left in the table stays ours.
		e.saveNow(time.Now())
		return nil
	}
	ctx = context.WithoutCancel(ctx)
	if onStop == config.OnStopDrain {
		e.drainAll(ctx)
	}
	kctx, cancel := context.WithTimeout(ctx, e.opts.KernelTimeout)
	defer cancel()
	e.log.Info("Stopping, removing our services from the IPVS table", event.Key, event.Stopping, "on_stop", onStop.String())
	err := e.end(kctx)
	e.handNothing()
	e.allTouched = true
	e.saveNow(time.Now())
	e.noteStop()
	return err
}

// drainAll takes every weight of ours to 0 and waits for the connections to end, as
// long as stop_timeout and the operator's patience allow.
func (e *Engine) drainAll(ctx context.Context) {
	limit := e.config.Global.StopTimeout
	begun := time.Now()
	deadline := begun.Add(limit)
	e.stopping.draining.Store(true)
	defer e.stopping.draining.Store(false)
	e.log.Info("Stopping, draining our services first; a second signal cuts that short", event.Key, event.Stopping, "on_stop", "drain", "stop_timeout", limit)
	timer := time.NewTimer(drainPoll)
	defer timer.Stop()
	var told time.Time
	for {
		active, inactive, err := e.quiesce(ctx)
		now := time.Now()
		left := max(deadline.Sub(now), 0)
		switch {
		case err == nil && active+inactive == 0:
			e.log.Info("Drained, no connection is left", event.Key, event.Stopping, "took", now.Sub(begun).Round(time.Millisecond))
			return
		case left == 0:
			e.log.Warn("stop_timeout is over, cutting the connections that are left", event.Key, event.StopCut, "active", active, "inactive", inactive, "stop_timeout", limit, "err", err)
			return
		case now.Sub(told) >= drainTell:
			told = now
			e.log.Info("Draining before the stop", event.Key, event.Stopping, "active", active, "inactive", inactive, "time_left", left.Round(time.Second), "err", err)
			if e.opts.Draining != nil {
				e.opts.Draining(fmt.Sprintf("draining before the stop: %d active and %d inactive connections are left", active, inactive), min(left, drainTell)+e.opts.KernelTimeout)
			}
		}
		timer.Reset(min(drainPoll, left))
		select {
		case <-timer.C:
		case <-e.stopping.hurry:
			e.log.Warn("Drain cut short by a second signal, cutting the connections that are left", event.Key, event.StopCut, "active", active, "inactive", inactive, "after", now.Sub(begun).Round(time.Millisecond))
			return
		}
	}
}

// quiesce takes what is not at weight 0 there, and returns what is still connected.
func (e *Engine) quiesce(ctx context.Context) (active, inactive uint64, err error) {
	ctx, cancel := context.WithTimeout(ctx, e.opts.KernelTimeout)
	defer cancel()
	err = e.applier.Quiesce(ctx, time.Now())
	active, inactive, rerr := e.applier.Connections(ctx)
	return active, inactive, errors.Join(err, rerr)
}
