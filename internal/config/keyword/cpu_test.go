package keyword_test

import (
	"runtime"
	"syscall"
	"testing"
	"time"
)

// cpuTime is what a function takes of a processor, whatever else the machine is
// doing.
func cpuTime(t *testing.T, f func()) time.Duration {
	t.Helper()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	used := func() time.Duration {
		var r syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_THREAD, &r); err != nil {
			t.Fatal(err)
		}
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	before := used()
	f()
	return used() - before
}
