package soak

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

var (
	duration = flag.Duration("for", 15*time.Second, "how long the daemon is put under load")
	rate     = flag.Int("rate", 1500, "verdicts a second")
)

// reloads are how often the configuration changes under load.
const reloads = 20

// Every server is checked each interval, and each check is a verdict.
const interval = 200 * time.Millisecond

// pools is a configuration of services with 50 servers each; variant makes it
// another one.
func pools(port, servers int, delay time.Duration, variant int) string {
	const each = 50
	var s strings.Builder
	// A drain from one reload to the next would be no leak.
	s.WriteString("global_defs {\n #sluice departure_hold 0\n}\n")
	for vs := range (servers + each - 1) / each {
		scheduler := "rr"
		if vs == variant%7 {
			scheduler = "wrr"
		}
		fmt.Fprintf(&s, "virtual_server 192.0.2.1 %d {\n delay_loop %g\n delay_before_retry %g\n warmup %g\n lvs_sched %s\n lvs_method NAT\n protocol TCP\n sorry_server 127.0.0.1 1\n",
			vs+1, delay.Seconds(), delay.Seconds(), interval.Seconds(), scheduler)
		for i := vs * each; i < min((vs+1)*each, servers); i++ {
			if i%101 == 1 && variant%2 == 1 {
				continue // it comes and goes
			}
			weight := 1
			if i%97 == variant%97 {
				weight = 2 + variant
			}
			fmt.Fprintf(&s, " real_server 127.1.%d.%d %d {\n  weight %d\n  HTTP_GET {\n   fast_recovery\n   retry 0\n   url {\n    path /\n    status_code 200\n   }\n  }\n }\n", i>>8, i&255, port, weight)
		}
		s.WriteString("}\n")
	}
	return s.String()
}

// taken is what the daemon takes while nothing happens.
type taken struct {
	descriptors, threads, goroutines int
	// heap is what lives after a garbage collection, anonymous the resident memory
	// that is no file's; both in kB.
	heap, anonymous int
}

// settle brings the daemon to a standstill and measures it.
func (d *daemon) settle(config string) taken {
	d.Helper()
	if !d.reload(config) {
		d.Fatal("the reload to the quiet configuration was refused")
	}
	last, still := -1.0, time.Now()
	testkit.Eventually(d.T, patience, func() string {
		m := d.metrics("sluice_checks_total", "sluice_drains", "sluice_virtual_server_real_servers{")
		if m[0] != last || m[1] != 0 {
			last, still = m[0], time.Now()
		}
		if quiet := time.Since(still); quiet < 2*interval+time.Second {
			return fmt.Sprintf("%v checks, %v drains, quiet for %v", m[0], m[1], quiet)
		}
		return ""
	})
	got := taken{descriptors: 1 << 30, goroutines: 1 << 30, heap: 1 << 30}
	// Scrapes make garbage until it is collected; the least of the heap is what is
	// left after that. Two collections, since the first can be one from before.
	collected, before := 0, 0.0
	for n := 0; collected < 3 && n < 20_000; n++ {
		m := d.metrics("go_memstats_heap_alloc_bytes", "go_goroutines")
		if m[0] < before {
			collected++
			got.heap = min(got.heap, int(m[0])>>10)
		}
		before = m[0]
		got.goroutines = min(got.goroutines, int(m[1]))
	}
	for range 20 {
		got.descriptors = min(got.descriptors, d.entries("fd"))
		wait(20 * time.Millisecond)
	}
	got.threads = d.entries("task")
	got.anonymous = field(d.T, d.proc("status"), "RssAnon")
	return got
}

// TestNothingLeaks: verdicts at a high rate, and twenty reloads each of which changes
// something, one in four being refused. Then the daemon has no more descriptors and
// goroutines than before, no more threads than a few, and its live heap is no larger.
func TestNothingLeaks(t *testing.T) {
	servers := int(float64(*rate) * interval.Seconds())
	web := newFlipper(t)
	quiet := pools(web.port, servers, time.Hour, 0)
	busy := func(variant int) string { return pools(web.port, servers, interval, variant) }
	d := start(t, busy(0))

	// The first load and the first reloads take what every one after them takes too.
	load := func(total time.Duration, reloads int) (verdicts, checks float64, took time.Duration) {
		web.flips.Store(true)
		defer web.flips.Store(false)
		// Checks of the quiet configuration are an hour away: a new scheduler entry
		// is what brings them back.
		d.reload(strings.ReplaceAll(busy(0), "path /", "path /again"))
		begun, was := time.Now(), d.metrics("sluice_kernel_operations_total", "sluice_checks_total")
		for n := range reloads {
			wait(total / time.Duration(reloads+1))
			variant := busy(n + 1)
			if n%4 == 3 {
				if d.reload(variant + "virtual_server 192.0.2.1\n}\n") {
					t.Error("a wrong configuration was accepted")
				}
			} else if !d.reload(variant) {
				t.Error("a reload was refused")
			}
		}
		wait(total - time.Since(begun))
		now := d.metrics("sluice_kernel_operations_total", "sluice_checks_total")
		return now[0] - was[0], now[1] - was[1], time.Since(begun)
	}
	load(3*time.Second, 4)
	before := d.settle(quiet)
	operations, checks, took := load(*duration, reloads)
	after := d.settle(quiet)

	perSecond := func(n float64) float64 { return n / took.Seconds() }
	t.Logf("%d servers, %v: %.0f checks and %.0f changes of the table a second", servers, took.Round(time.Second), perSecond(checks), perSecond(operations))
	t.Logf("before %+v", before)
	t.Logf("after  %+v", after)
	if perSecond(operations) < float64(*rate)/20 {
		t.Errorf("%.0f changes of the table a second: that is no load", perSecond(operations))
	}
	if after.descriptors > before.descriptors+2 {
		t.Errorf("descriptors: %d, were %d", after.descriptors, before.descriptors)
	}
	if after.goroutines > before.goroutines+2 {
		t.Errorf("goroutines: %d, were %d", after.goroutines, before.goroutines)
	}
	// A thread that a system call once held is kept by the runtime for the next.
	if after.threads > before.threads+10 {
		t.Errorf("threads: %d, were %d", after.threads, before.threads)
	}
	if limit := before.heap + before.heap/10 + 512; after.heap > limit {
		t.Errorf("live heap: %d kB, was %d, want %d at most", after.heap, before.heap, limit)
	}
	// The runtime gives memory back when it likes: this is to find memory that is not
	// in its heap.
	if limit := 3*before.anonymous + 16<<10; after.anonymous > limit {
		t.Errorf("resident: %d kB, was %d, want %d at most", after.anonymous, before.anonymous, limit)
	}
}
