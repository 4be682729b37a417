package soak

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

const (
	// churn is how many verdicts a second the daemon has to write.
	churn = 1000
	// allowed is how much later a verdict may reach the table with readers, at the
	// 99th percentile.
	allowed = 5 * time.Millisecond
	// readerPause is between two readings of one reader.
	readerPause = 100 * time.Millisecond
)

// bucket is one of a histogram's, with all that is in those below it.
type bucket struct{ bound, count float64 }

// buckets reads a histogram without labels of its own.
func (d *daemon) buckets(name string) (all []bucket) {
	d.Helper()
	var body []byte
	// One scrape too many at the same time is refused.
	testkit.Eventually(d.T, patience, func() string {
		r, err := d.http.Get("http://sluice/metrics")
		if err != nil {
			return err.Error()
		}
		defer r.Body.Close()
		if body, err = io.ReadAll(r.Body); err != nil {
			return err.Error()
		}
		if r.StatusCode != http.StatusOK {
			return r.Status
		}
		return ""
	})
	for line := range strings.Lines(string(body)) {
		rest, ok := strings.CutPrefix(strings.TrimSpace(line), name+`_bucket{le="`)
		if !ok {
			continue
		}
		le, value, _ := strings.Cut(rest, `"} `)
		bound, err := strconv.ParseFloat(le, 64)
		if err != nil {
			d.Fatal(err)
		}
		count, err := strconv.ParseFloat(value, 64)
		if err != nil {
			d.Fatal(err)
		}
		all = append(all, bucket{bound, count})
	}
	return all
}

// quantile is Prometheus' histogram_quantile of what was counted from one reading to
// another. Beyond the last bound it is that bound.
func quantile(q float64, from, to []bucket) time.Duration {
	counted := slices.Clone(to)
	for i := range from {
		counted[i].count -= from[i].count
	}
	total := counted[len(counted)-1].count
	below := bucket{}
	for _, b := range counted[:len(counted)-1] {
		if b.count >= q*total {
			share := (q*total - below.count) / (b.count - below.count)
			return time.Duration((below.bound + share*(b.bound-below.bound)) * float64(time.Second))
		}
		below = b
	}
	return time.Duration(below.bound * float64(time.Second))
}

// TestReadersDelayNoVerdict: ten scrapers with all detail and two who ask for the whole
// status, each ten times a second, while a thousand verdicts a second are written. A
// verdict's way to the table is no longer for that than without them, but for a few
// milliseconds. The machine that this runs on has other things to do as well, so the
// best of three counts.
func TestReadersDelayNoVerdict(t *testing.T) {
	servers := int(churn * interval.Seconds())
	web := newFlipper(t)
	web.flips.Store(true)
	config := strings.Replace(pools(web.port, servers, interval, 0), "global_defs {\n", "global_defs {\n #sluice metrics_detail server\n", 1)
	d := start(t, config)
	const way = "sluice_verdict_to_kernel_seconds"
	testkit.Eventually(t, patience, func() string {
		if n := d.metric(way + "_count"); n < churn {
			return strconv.FormatFloat(n, 'f', -1, 64) + " verdicts"
		}
		return ""
	})

	const window = 1500 * time.Millisecond
	measure := func() (p50, p99 time.Duration, perSecond float64) {
		from, begun := d.buckets(way), time.Now()
		wait(window)
		to, took := d.buckets(way), time.Since(begun)
		last := len(to) - 1
		return quantile(0.5, from, to), quantile(0.99, from, to), (to[last].count - from[last].count) / took.Seconds()
	}
	read := func() (stop func() int64) {
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		var answers atomic.Int64
		for i := range 12 {
			path := "/metrics"
			if i >= 10 {
				path = "/v1/status"
			}
			wg.Go(func() {
				wait(time.Duration(i) * readerPause / 12) // they do not come all at once
				for ctx.Err() == nil {
					r, err := d.http.Get("http://sluice" + path)
					if err != nil {
						t.Error(err)
						return
					}
					_, err = io.Copy(io.Discard, r.Body)
					r.Body.Close()
					if err == nil && r.StatusCode == http.StatusOK {
						answers.Add(1)
					}
					select {
					case <-ctx.Done():
					case <-time.After(readerPause):
					}
				}
			})
		}
		return func() int64 { cancel(); wg.Wait(); return answers.Load() }
	}
	alone, watched := time.Hour, time.Hour
	for round := 1; round <= 10; round++ {
		p50, p99, perSecond := measure()
		stop := read()
		with50, with99, withPerSecond := measure()
		answers := stop()
		t.Logf("without readers p50 %v, p99 %v at %.0f a second; with readers p50 %v, p99 %v at %.0f a second and %.0f answers a second",
			p50, p99, perSecond, with50, with99, withPerSecond, float64(answers)/window.Seconds())
		if min(perSecond, withPerSecond) < churn/4 || answers < 12 {
			continue // that is no load
		}
		alone, watched = min(alone, p99), min(watched, with99)
		if round >= 3 && watched <= alone+allowed {
			t.Logf("at best p99 is %v without readers, %v with them", alone, watched)
			return
		}
	}
	t.Errorf("at best the 99th percentile of %s is %v without readers, and %v with them: want %v more at most", way, alone, watched, allowed)
}
