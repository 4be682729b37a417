package daemon

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/event"
)

// withdrawTell is how often systemd is told that the wait is in order.
const withdrawTell = 5 * time.Second

// retract has the addresses leave their devices, unless the table stays, and returns how
// long everything else is to go on: vip_delay where there were any.
func (d *daemon) retract(ctx context.Context) time.Duration {
	s := d.engine.Overview()
	if d.keep.Load() || s.Edge == nil || s.Edge.Announced == 0 {
		return 0
	}
	if err := d.engine.Withdraw(ctx); err != nil && ctx.Err() == nil {
		d.log.Error("Stopping, though it is not known whether the addresses are off their devices", event.Key, event.KernelUnset, "err", err)
	}
	return time.Duration(d.vipDelay.Load())
}

// withdraw is the begin of a planned stop: those who ask over HTTP are told to send nothing
// here any more, and everything goes on for withdraw_delay, or longer for what was
// retracted. It ends before that with the context, a handover or another signal to stop.
func (d *daemon) withdraw(ctx context.Context, signals <-chan os.Signal, retract func(context.Context) time.Duration) {
	d.web.Withdraw("stopping")
	delay := max(retract(ctx), time.Duration(d.withdrawDelay.Load()))
	if delay <= 0 {
		return
	}
	begun := time.Now()
	d.log.Info("Stopping: /readyz and /vs answer 503, addresses are withdrawn, and the table is as it was until the delay is over; a second signal cuts that short", event.Key, event.Stopping, "delay", delay)
	for left := delay; left > 0; left = delay - time.Since(begun) {
		step := min(left, withdrawTell)
		d.tell(d.notify.Extend(step+withdrawTell, fmt.Sprintf("stopping: withdrawn, the table is touched in %s", left.Round(time.Second))))
		timer := time.NewTimer(step)
		select {
		case <-timer.C:
			continue
		case <-ctx.Done():
		case <-d.handing:
		case s := <-signals:
			same := time.Since(begun) < secondSignal
			if same || s != unix.SIGTERM && s != unix.SIGINT || s == unix.SIGINT && d.opts.IgnoreInterrupt {
				timer.Stop()
				continue
			}
			d.log.Warn("The delay before the stop is cut short by a second signal", event.Key, event.StopCut, "after", time.Since(begun).Round(time.Millisecond))
		}
		timer.Stop()
		return
	}
}
