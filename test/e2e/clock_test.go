package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// wallClock steps the clock on the wall, and puts it right at the end.
type wallClock struct {
	t       *testing.T
	stepped time.Duration
}

func (w *wallClock) step(d time.Duration) {
	w.t.Helper()
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_REALTIME, &now); err != nil {
		w.t.Fatal(err)
	}
	then := unix.NsecToTimespec(now.Nano() + int64(d))
	if err := unix.ClockSettime(unix.CLOCK_REALTIME, &then); err != nil {
		w.t.Fatal(err)
	}
	w.stepped += d
}

// TestKernelClockSteps: the clock on the wall is set a day ahead, two days back and an
// hour ahead. Checks go on each second, no verdict changes, a drain lasts as long as
// drain_timeout says, and what is to survive is saved. Only a guest's clock is set;
// elsewhere this is a test of the rest.
func TestKernelClockSteps(t *testing.T) {
	const (
		members = 50
		window  = 6 * time.Second
		timeout = 45 * time.Second
	)
	b := newBed(t, testkit.NewNAT, 2)
	c := newCrowd(t, b.Backends[0].NS, 7001, members)
	clock := &wallClock{t: t}
	t.Cleanup(func() {
		if clock.stepped != 0 {
			clock.step(-clock.stepped)
		}
	})
	config := func(servers ...int) string {
		return globals + pool(fmt.Sprintf("#sluice drain_timeout %d", timeout/time.Second), servers...) + c.pool(81, "")
	}
	b.write(config(1, 2))
	b.start()
	b.until("1:1 2:1")
	b.hold(4)
	all := members
	testkit.Eventually(t, patience, func() string {
		if least, _ := spread(c.between(time.Time{}, time.Now())); least == 0 {
			return fmt.Sprintf("not all of %d members were asked", all)
		}
		return ""
	})
	b.write(config(2))
	b.reload()
	draining := time.Now()
	b.until("1:0 2:1")
	seen := len(b.daemon.Lines())

	steps := []time.Duration{0, 24 * time.Hour, -48 * time.Hour, time.Hour}
	for i, d := range steps {
		if d != 0 && guest() {
			clock.step(d)
		}
		begin := time.Now()
		b.stays("1:0 2:1", window)
		end := time.Now()
		least, most := spread(c.between(begin, end))
		due := int(end.Sub(begin) / time.Second)
		t.Logf("step %v: in %v each member was asked %d to %d times", d, end.Sub(begin).Round(time.Millisecond), least, most)
		// An emulated machine stands still for a second now and then; a burst would be
		// thousands, a gap all of the window.
		if least < due-3 || most > due+3 {
			t.Errorf("step %v: want %d", d, due)
		}
		// What an operator asks for is saved at once.
		vs, rs := b.VIP.String()+":80", b.Backends[1].Addr.String()
		b.says(0, "weight", "weight", vs, rs, fmt.Sprint(10+i))
		b.until(fmt.Sprintf("1:0 2:%d", 10+i))
		b.saved(fmt.Sprintf(`"weight": ?%d\b`, 10+i))
		b.says(0, "configured weight", "weight", vs, rs, "default")
		b.until("1:0 2:1")
	}
	if took := time.Since(draining); took > timeout {
		t.Fatalf("the steps took %v, too long to see the drain", took)
	}
	testkit.Eventually(t, timeout+patience, func() string {
		if got := b.table(); got != "2:1" {
			return fmt.Sprintf("the table holds %q", got)
		}
		return ""
	})
	if took := time.Since(draining); took < timeout-2*time.Second || took > timeout+10*time.Second {
		t.Errorf("the drain took %v, want %v", took, timeout)
	} else {
		t.Logf("the drain took %v", took.Round(time.Millisecond))
	}
	for _, line := range b.daemon.Lines()[seen:] {
		if strings.Contains(line, "Check failed") || strings.Contains(line, "Check passed") || strings.Contains(line, "quorum") || strings.Contains(line, " ERROR ") {
			t.Errorf("in the log: %s", line)
		}
	}
}

// saved waits until the state file matches.
func (b *bed) saved(pattern string) {
	b.Helper()
	re := regexp.MustCompile(pattern)
	testkit.Eventually(b.T, patience, func() string {
		text, err := os.ReadFile(filepath.Join(b.stateDir(), "state.json"))
		if err != nil {
			return err.Error()
		}
		if !re.Match(text) {
			return fmt.Sprintf("the state file does not match %q:\n%s", pattern, text)
		}
		return ""
	})
}
