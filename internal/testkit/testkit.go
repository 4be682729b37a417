// Package testkit is what tests on a real kernel stand on: network namespaces
// and the topologies made of them, backends and clients that carry real
// traffic, processes, and readers of the IPVS table that are independent of our
// own client.
//
// It decides how traffic is produced and how its losses are counted. It
// deliberately knows nothing of sluice: it imports no other package of this
// module, so that every package may use it, and so that what it sees of the
// table comes from ipvsadm and /proc alone.
//
// Decisions that were close:
//
//   - Namespaces are held by file descriptors, not by names under /run/netns:
//     they vanish with the test process however that ends, and parallel runs
//     cannot meet.
//   - Servers and clients live in the test process, with sockets that were
//     created in the namespace: a test can then stop, hang or ask one directly.
//     Only what is tested runs as a process.
//   - Helpers take the interface T, not testing.TB, so that a program which
//     demonstrates the daemon can use them as well.
package testkit

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// T is the part of testing.TB that the helpers use.
type T interface {
	Helper()
	Logf(format string, args ...any)
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	Cleanup(func())
	TempDir() string
}

// Kernel skips the test unless a real ip_vs was promised by SLUICE_KERNEL=1.
// Where it was promised, its absence fails the test.
func Kernel(t testing.TB) {
	t.Helper()
	if os.Getenv("SLUICE_KERNEL") != "1" {
		t.Skipf("needs a kernel with ip_vs; run: make test-kernel RUN='^%s$'", strings.SplitN(t.Name(), "/", 2)[0])
	}
	if err := loadIPVS(); err != nil {
		t.Fatalf("SLUICE_KERNEL=1, and yet: %v", err)
	}
}

// loadIPVS loads the module once; where it is built in, modprobe may fail and
// the table is there all the same.
var loadIPVS = sync.OnceValue(func() error {
	out, err := exec.Command("modprobe", "ip_vs").CombinedOutput()
	if _, statErr := os.Stat("/proc/net/ip_vs"); statErr == nil {
		return nil
	}
	return fmt.Errorf("no ip_vs: modprobe: %w: %s", err, out)
})

// leakExit is the status of a test binary whose tests passed and leaked.
const leakExit = 99

// Main runs the tests of a package and then fails if they left goroutines or
// file descriptors behind, or closed one that was not theirs:
//
//	func TestMain(m *testing.M) { testkit.Main(m) }
func Main(m *testing.M) {
	_, _ = home() // opened once and kept; a failure shows where it is used
	before := openFiles()
	status := m.Run()
	if status == 0 {
		if err := leaks(before); err != nil {
			fmt.Fprintln(os.Stderr, "leak:", err)
			status = leakExit
		}
	}
	os.Exit(status)
}

// leaks waits a moment for what is just ending, then says what is left over.
func leaks(before map[string]bool) error {
	if err := goleak.Find(); err != nil {
		return err
	}
	if gone := lost(before, openFiles()); len(gone) > 0 {
		return fmt.Errorf("closed, and of before the tests: %s", strings.Join(gone, ", "))
	}
	for deadline := time.Now().Add(2 * time.Second); ; <-time.After(20 * time.Millisecond) {
		left := newFiles(before, openFiles())
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("file descriptors: %s", strings.Join(left, ", "))
		}
	}
}

// lost lists what is in before and not in after, apart from what the runtime reads of
// its own: what closes one descriptor too many closes another's one day.
func lost(before, after map[string]bool) []string {
	var gone []string
	for f := range before {
		if !after[f] && !strings.Contains(f, "/cgroup/") {
			gone = append(gone, f)
		}
	}
	return gone
}

// openFiles returns this process's descriptors as "number target".
func openFiles() map[string]bool {
	files := map[string]bool{}
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return files
	}
	for _, e := range entries {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err == nil { // the descriptor of the listing itself is gone by now
			files[e.Name()+" "+target] = true
		}
	}
	return files
}

// newFiles lists what is in after and not in before, apart from what the
// runtime opens once and keeps: its poller, and the profiles of go test.
func newFiles(before, after map[string]bool) []string {
	var left []string
	for f := range after {
		_, target, _ := strings.Cut(f, " ")
		if !before[f] && !strings.HasPrefix(target, "anon_inode:[event") && !strings.HasSuffix(target, ".out") {
			left = append(left, f)
		}
	}
	return left
}

// Eventually polls cond until it holds, and fails the test with what it last
// returned when the time is over. cond returns "" when it holds, else what is
// not as it should be. It looks every 10 ms, or for a quarter of the time where looking
// takes long: an emulated machine has better things to do than to run ipvsadm.
func Eventually(t T, within time.Duration, cond func() string) {
	t.Helper()
	for deadline := time.Now().Add(within); ; {
		begun := time.Now()
		why := cond()
		if why == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still not after %v: %s", within, why)
		}
		<-time.After(max(10*time.Millisecond, 3*time.Since(begun)))
	}
}

// list renders counts as " (b1 10, b2 10)", sorted by key; nothing for none.
func list[K ~string](counts map[K]int) string {
	if len(counts) == 0 {
		return ""
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		name := string(k)
		if name == "" {
			name = "?"
		}
		parts = append(parts, fmt.Sprintf("%s %d", name, counts[k]))
	}
	return " (" + strings.Join(parts, ", ") + ")"
}
