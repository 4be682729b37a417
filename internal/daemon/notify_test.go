package daemon

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// manager is systemd's side: a datagram socket.
func manager(t *testing.T, addr string) (next func() string) {
	t.Helper()
	c, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: addr, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return func() string {
		t.Helper()
		buf := make([]byte, 4096)
		c.SetReadDeadline(time.Now().Add(10 * time.Second))
		n, err := c.Read(buf)
		if err != nil {
			t.Fatal(err)
		}
		return string(buf[:n])
	}
}

func env(pairs ...string) func(string) string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return func(k string) string { return m[k] }
}

func TestNotifierMessages(t *testing.T) {
	for _, addr := range []string{filepath.Join(t.TempDir(), "notify"), fmt.Sprintf("@sluice-test-%d", time.Now().UnixNano())} {
		next := manager(t, addr)
		n := newNotifier(env("NOTIFY_SOCKET", addr), 1)
		for _, tc := range []struct {
			call func() error
			want string
		}{
			{n.Ready, "READY=1"},
			{n.Stopping, "STOPPING=1"},
			{n.Alive, "WATCHDOG=1"},
			{func() error { return n.Status("two\nlines, one status") }, "STATUS=two lines, one status"},
			{func() error { return n.Extend(90*time.Second, "9\nleft") }, "EXTEND_TIMEOUT_USEC=90000000\nWATCHDOG=1\nSTATUS=9 left"},
		} {
			if err := tc.call(); err != nil {
				t.Errorf("%s: %v", tc.want, err)
				continue
			}
			if got := next(); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		}
	}
}

func TestReloadingCarriesTheMonotonicTime(t *testing.T) {
	addr := filepath.Join(t.TempDir(), "notify")
	next := manager(t, addr)
	now := func() int64 {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
			t.Fatal(err)
		}
		return ts.Nano() / 1000
	}
	before := now()
	if err := newNotifier(env("NOTIFY_SOCKET", addr), 1).Reloading(); err != nil {
		t.Fatal(err)
	}
	msg := next()
	usec, ok := strings.CutPrefix(msg, "RELOADING=1\nMONOTONIC_USEC=")
	if v, err := strconv.ParseInt(usec, 10, 64); !ok || err != nil || v < before || v > now() {
		t.Errorf("message %q, want a time between %d and %d", msg, before, now())
	}
}

func TestNotifierWithoutManagerDoesNothing(t *testing.T) {
	var none *Notifier
	for _, n := range []*Notifier{none, newNotifier(env(), 1), newNotifier(env("NOTIFY_SOCKET", "vsock:2:1234"), 1)} {
		for _, call := range []func() error{n.Ready, n.Reloading, n.Stopping, n.Alive} {
			if err := call(); err != nil {
				t.Error(err)
			}
		}
		if err := n.Watchdog(t.Context(), func() bool { t.Error("asked"); return true }); err != nil {
			t.Error(err)
		}
	}
}

func TestNotifierReportsADeafManager(t *testing.T) {
	n := newNotifier(env("NOTIFY_SOCKET", filepath.Join(t.TempDir(), "none")), 1)
	if err := n.Ready(); err == nil || !strings.Contains(err.Error(), "notify systemd") {
		t.Errorf("error %v", err)
	}
}

func TestWatchdogInterval(t *testing.T) {
	for _, tc := range []struct {
		usec, pid string
		want      time.Duration
	}{
		{"", "", 0},
		{"20000000", "", 10 * time.Second},
		{"20000000", "42", 10 * time.Second},
		{"20000000", "43", 0}, // meant for another process
		{"0", "", 0},
		{"-5", "", 0},
		{"soon", "", 0},
		{"18446744073709551615", "", 0}, // systemd's "infinity"
	} {
		n := newNotifier(env("NOTIFY_SOCKET", "/x", "WATCHDOG_USEC", tc.usec, "WATCHDOG_PID", tc.pid), 42)
		if got := n.WatchdogInterval(); got != tc.want {
			t.Errorf("WATCHDOG_USEC=%q WATCHDOG_PID=%q: %v, want %v", tc.usec, tc.pid, got, tc.want)
		}
	}
	if got := newNotifier(env("WATCHDOG_USEC", "1000000"), 1).WatchdogInterval(); got != 0 {
		t.Errorf("without a socket: %v, want 0", got)
	}
}

func TestWatchdogAsksEachHalfInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The address does not exist: what counts here is the rhythm.
		n := newNotifier(env("NOTIFY_SOCKET", "/nonexistent/notify", "WATCHDOG_USEC", "20000000"), 1)
		ctx, cancel := context.WithTimeout(t.Context(), 35*time.Second)
		defer cancel()
		var at []time.Duration
		start := time.Now()
		err := n.Watchdog(ctx, func() bool { at = append(at, time.Since(start)); return false })
		if err != nil || fmt.Sprint(at) != "[0s 10s 20s 30s]" {
			t.Errorf("asked at %v, %v; want every 10 s", at, err)
		}
	})
}

func TestWatchdogIsSilentWhileNotHealthy(t *testing.T) {
	addr := filepath.Join(t.TempDir(), "notify")
	next := manager(t, addr)
	n := newNotifier(env("NOTIFY_SOCKET", addr, "WATCHDOG_USEC", "2000"), 1)
	ctx, cancel := context.WithCancel(t.Context())
	asked := 0
	// Sick three times, then healthy: before the first sign of life four
	// questions must have been put.
	done := make(chan error, 1)
	go func() { done <- n.Watchdog(ctx, func() bool { asked++; return asked > 3 }) }()
	if got := next(); got != "WATCHDOG=1" {
		t.Errorf("got %q", got)
	}
	cancel()
	if err := <-done; err != nil || asked < 4 {
		t.Errorf("%v after %d questions, want none and at least 4", err, asked)
	}
}

func TestNewNotifierTakesTheEnvironmentAway(t *testing.T) {
	addr := filepath.Join(t.TempDir(), "notify")
	next := manager(t, addr)
	t.Setenv("NOTIFY_SOCKET", addr)
	t.Setenv("WATCHDOG_USEC", "4000000")
	n := NewNotifier()
	if n.WatchdogInterval() != 2*time.Second {
		t.Errorf("interval %v, want 2s", n.WatchdogInterval())
	}
	if second := NewNotifier(); second.addr != nil || second.watchdog != 0 {
		t.Errorf("the environment was left: %+v", second)
	}
	if err := n.Ready(); err != nil || next() != "READY=1" {
		t.Errorf("Ready: %v", err)
	}
}
