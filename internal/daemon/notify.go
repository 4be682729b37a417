package daemon

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Notifier tells systemd how the daemon fares, by the protocol of sd_notify(3).
// Without a manager that listens every method does nothing; so does a nil
// *Notifier. Its methods may be called from several goroutines.
type Notifier struct {
	addr     *net.UnixAddr
	watchdog time.Duration
}

// notifyTimeout bounds one message: a stuck manager must not stop the daemon.
const notifyTimeout = time.Second

// NewNotifier takes NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID from the
// environment and removes them there, since scripts that the daemon starts must
// not speak in its name.
func NewNotifier() *Notifier {
	n := newNotifier(os.Getenv, os.Getpid())
	for _, v := range []string{"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"} {
		os.Unsetenv(v)
	}
	return n
}

func newNotifier(getenv func(string) string, pid int) *Notifier {
	n := &Notifier{}
	// net writes a leading @ as the NUL of an abstract address.
	if s := getenv("NOTIFY_SOCKET"); strings.HasPrefix(s, "/") || strings.HasPrefix(s, "@") {
		n.addr = &net.UnixAddr{Name: s, Net: "unixgram"}
	}
	if p := getenv("WATCHDOG_PID"); n.addr == nil || p != "" && p != strconv.Itoa(pid) {
		return n
	}
	const most = 1 << 53 // beyond it a Duration would overflow; 285 years
	if us, err := strconv.ParseUint(getenv("WATCHDOG_USEC"), 10, 64); err == nil && us > 0 && us < most {
		n.watchdog = time.Duration(us) * time.Microsecond
	}
	return n
}

// Ready says that the start, or a reload, is complete.
func (n *Notifier) Ready() error { return n.send("READY=1") }

// Reloading says that a reload began; Ready must follow however it ends. The
// time it carries is what Type=notify-reload wants.
func (n *Notifier) Reloading() error {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return fmt.Errorf("notify systemd of a reload: read the monotonic clock: %w", err)
	}
	return n.send(fmt.Sprintf("RELOADING=1\nMONOTONIC_USEC=%d", ts.Nano()/1000))
}

// Stopping says that the daemon is on its way out.
func (n *Notifier) Stopping() error { return n.send("STOPPING=1") }

// Extend says during a stop that it is in order and may take that much longer.
func (n *Notifier) Extend(left time.Duration, status string) error {
	return n.send(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d\nWATCHDOG=1\nSTATUS=%s", left.Microseconds(), strings.Join(strings.Fields(status), " ")))
}

// Listens reports whether there is a manager.
func (n *Notifier) Listens() bool { return n != nil && n.addr != nil }

// Status sets the line that "systemctl status" shows.
func (n *Notifier) Status(text string) error {
	return n.send("STATUS=" + strings.Join(strings.Fields(text), " "))
}

// Alive is the watchdog's sign of life. Send it only when the work goes on.
func (n *Notifier) Alive() error { return n.send("WATCHDOG=1") }

// WatchdogInterval is how often Alive is due: half of what the manager waits;
// 0 when it does not watch.
func (n *Notifier) WatchdogInterval() time.Duration {
	if n == nil {
		return 0
	}
	return n.watchdog / 2
}

// Watchdog calls Alive each interval for as long as healthy says so, and
// returns nil at the end of the context, or at once when nobody watches. A
// healthy that blocks is as good as one that returns false: the manager then
// misses the sign and acts.
func (n *Notifier) Watchdog(ctx context.Context, healthy func() bool) error {
	every := n.WatchdogInterval()
	if every <= 0 {
		return nil
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		if healthy() {
			// A lost sign is followed by the next; the manager allows for one.
			_ = n.Alive()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-t.C:
		}
	}
}

func (n *Notifier) send(state string) error {
	if n == nil || n.addr == nil {
		return nil
	}
	c, err := net.DialUnix("unixgram", nil, n.addr)
	if err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	defer c.Close()
	if err := c.SetWriteDeadline(time.Now().Add(notifyTimeout)); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	if _, err := c.Write([]byte(state)); err != nil {
		return fmt.Errorf("notify systemd: %w", err)
	}
	return nil
}
