package daemon

import (
	"os"
	"os/signal"
	"time"

	"golang.org/x/sys/unix"
)

// secondSignal is how long after the first a signal to stop is taken for the same:
// some that stop a process signal its group as well, as timeout(1).
const secondSignal = time.Second

// again handles the signals that come during the stop, until the run is over. The
// next one to stop ends the wait of on_stop drain; one more, or the first without
// such a wait, kills.
func (d *daemon) again(signals <-chan os.Signal, over <-chan struct{}) {
	timer := time.NewTimer(secondSignal)
	defer timer.Stop()
	for same := true; ; {
		select {
		case <-over:
			return
		case <-timer.C:
			same = false
		case s := <-signals:
			switch {
			case same, s != unix.SIGTERM && s != unix.SIGINT, s == unix.SIGINT && d.opts.IgnoreInterrupt:
			case d.engine.Hurry():
			default:
				signal.Reset(s)
				_ = unix.Kill(os.Getpid(), s.(unix.Signal))
			}
		}
	}
}
