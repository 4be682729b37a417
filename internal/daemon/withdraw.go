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

// withdraw begins a planned stop: those who ask over HTTP are told to send nothing here
// any more, and have withdraw_delay to act on it while everything goes on. It ends
// before that with the context, a handover or another signal to stop.
func (d *daemon) withdraw(ctx context.Context, signals <-chan os.Signal) {
	d.web.Withdraw("stopping")
	delay := time.Duration(d.withdrawDelay.Load())
	if delay <= 0 {
		return
	}
	begun := time.Now()
	d.log.Info("Stopping: /readyz and /vs answer 503, and nothing else changes until withdraw_delay is over; a second signal cuts that short", event.Key, event.Stopping, "withdraw_delay", delay)
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
			d.log.Warn("withdraw_delay cut short by a second signal", event.Key, event.StopCut, "after", time.Since(begun).Round(time.Millisecond))
		}
		timer.Stop()
		return
	}
}
