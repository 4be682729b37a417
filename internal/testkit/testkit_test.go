package testkit

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// failed is what fakeT's Fatalf panics with.
type failed string

// fakeT lets a test see a helper fail.
type fakeT struct{ *testing.T }

func (fakeT) Fatalf(format string, args ...any) { panic(failed(fmt.Sprintf(format, args...))) }

// fatal runs fn and returns what it failed with, "" if it did not.
func fatal(fn func()) (message string) {
	defer func() {
		if p := recover(); p != nil {
			message = string(p.(failed))
		}
	}()
	fn()
	return ""
}

func TestEventuallyFailsWithTheLastReason(t *testing.T) {
	t.Parallel()
	calls := 0
	got := fatal(func() {
		Eventually(fakeT{t}, 50*time.Millisecond, func() string { calls++; return fmt.Sprint("reason ", calls) })
	})
	if want := fmt.Sprintf("still not after 50ms: reason %d", calls); got != want {
		t.Errorf("failed with %q, want %q", got, want)
	}
	if calls < 2 {
		t.Errorf("the condition was asked %d times", calls)
	}
	if got := fatal(func() { Eventually(fakeT{t}, 0, func() string { return "" }) }); got != "" {
		t.Errorf("a condition that holds failed with %q", got)
	}
}

func TestNewFilesSeesALeak(t *testing.T) {
	before := openFiles()
	f, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	left := newFiles(before, openFiles())
	if len(left) != 1 || !strings.Contains(left[0], "/status") {
		t.Errorf("with one file open: %v", left)
	}
	f.Close()
	if left := newFiles(before, openFiles()); len(left) != 0 {
		t.Errorf("after closing it: %v", left)
	}
}

// TestLostSeesACloseTooMany: what was open before the tests and is not any more.
func TestLostSeesACloseTooMany(t *testing.T) {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	before := openFiles()
	if gone := lost(before, openFiles()); len(gone) != 0 {
		t.Errorf("with all open: %v", gone)
	}
	f.Close()
	if gone := lost(before, openFiles()); len(gone) != 1 || !strings.Contains(gone[0], "/status") {
		t.Errorf("with one closed: %v", gone)
	}
}

func TestReportsReadWell(t *testing.T) {
	t.Parallel()
	long := LongReport{Opened: 30, Kept: 20, KeptBy: map[string]int{"b2": 12, "b1": 8}, Losses: map[Loss]int{Reset: 9, TimedOut: 1}}
	short := ShortReport{OK: 5, By: map[string]int{"b1": 4, "": 1}, Losses: map[Loss]int{}}
	got := []string{long.String(), short.String()}
	want := []string{"30 opened, 20 kept (b1 8, b2 12), 10 lost (reset 9, timeout 1)", "5 ok (? 1, b1 4), 0 lost"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("reports (-want +got):\n%s", diff)
	}
}

func TestSysctlPath(t *testing.T) {
	t.Parallel()
	if got, want := sysctlPath("net.ipv4.vs.conntrack"), "/proc/sys/net/ipv4/vs/conntrack"; got != want {
		t.Errorf("sysctlPath = %q, want %q", got, want)
	}
}
