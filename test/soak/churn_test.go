package soak

import (
	"context"
	"flag"
	"io"
	"net"
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
	// quiet is what the 99th percentile is below without readers, on a machine that has
	// nothing else to do: otherwise nothing can be said of a few milliseconds.
	quiet = 3 * time.Millisecond
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

// readers are those who look: scrapers of all detail, who ask for the whole state (as
// status and top do), and who have the dashboard open.
const scrapers, askers, watchers = 10, 2, 2

// look has all readers read ten times a second until the returned function is called,
// which returns how many answers they got. aligned: they come at the same moment, as a
// bad day has it; otherwise one after the other.
func (d *daemon) look(page string, aligned bool) (stop func() int64) {
	ctx, cancel := context.WithCancel(d.Context())
	var wg sync.WaitGroup
	var answers atomic.Int64
	read := func(client *http.Client, url string) {
		r, err := client.Get(url)
		if err != nil {
			d.Error(err)
			cancel()
			return
		}
		_, err = io.Copy(io.Discard, r.Body)
		r.Body.Close()
		if err == nil && r.StatusCode == http.StatusOK {
			answers.Add(1)
		}
	}
	const all = scrapers + askers + watchers
	for i := range all {
		client, url := d.http, "http://sluice/metrics"
		switch {
		case i >= scrapers+askers:
			client, url = http.DefaultClient, page
		case i >= scrapers:
			url = "http://sluice/v1/status"
		}
		wg.Go(func() {
			if !aligned {
				wait(time.Duration(i) * readerPause / all)
			}
			tick := time.NewTicker(readerPause)
			defer tick.Stop()
			for ctx.Err() == nil {
				read(client, url)
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	return func() int64 { cancel(); wg.Wait(); return answers.Load() }
}

var alone = flag.Bool("alone", false, "nothing else runs on this machine: measure what readers cost verdicts")

// TestReadersDelayNoVerdict: while a thousand verdicts a second are written, ten
// scrapers with all detail, two who ask for the whole state and two dashboards, each ten
// times a second, make a verdict's way to the table no longer than by a few
// milliseconds at the 99th percentile: the median of the differences of pairs of
// windows, without and with them. Milliseconds of two processors cannot be told beside
// other tests: make test-readers runs it by itself, in up to three series.
func TestReadersDelayNoVerdict(t *testing.T) {
	if !*alone {
		t.Skip("needs a machine to itself: make test-readers")
	}
	servers := int(churn * interval.Seconds())
	web := newFlipper(t)
	web.flips.Store(true)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := l.Addr().String()
	l.Close()
	config := strings.Replace(pools(web.port, servers, interval, 0), "global_defs {\n", "global_defs {\n #sluice metrics_detail server\n #sluice http_listen "+at+"\n", 1)
	d := start(t, config)
	t.Cleanup(http.DefaultClient.CloseIdleConnections)
	const way = "sluice_verdict_to_kernel_seconds"
	testkit.Eventually(t, patience, func() string {
		if n := d.metric(way + "_count"); n < churn {
			return strconv.FormatFloat(n, 'f', -1, 64) + " verdicts"
		}
		return ""
	})
	const window, pairs = 1500 * time.Millisecond, 5
	measure := func() (p50, p99 time.Duration) {
		from, begun := d.buckets(way), time.Now()
		wait(window)
		to, took := d.buckets(way), time.Since(begun)
		last := len(to) - 1
		if n := (to[last].count - from[last].count) / took.Seconds(); n < churn/4 {
			t.Logf("only %.0f verdicts a second", n)
		}
		return quantile(0.5, from, to), quantile(0.99, from, to)
	}
	for series, told := 1, 0; ; series++ {
		good, noisy := true, false
		for _, aligned := range []bool{false, true} {
			var without, more []time.Duration
			for range pairs {
				p50, p99 := measure()
				begun := time.Now()
				stop := d.look("http://"+at+"/", aligned)
				with50, with99 := measure()
				answers := stop()
				t.Logf("aligned %t: p50 %v, p99 %v without readers; p50 %v, p99 %v with %.0f answers a second", aligned,
					p50, p99, with50, with99, float64(answers)/time.Since(begun).Seconds())
				if answers < scrapers {
					t.Fatal("nobody was answered")
				}
				without, more = append(without, p99), append(more, with99-p99)
			}
			slices.Sort(without)
			slices.Sort(more)
			noisy = noisy || without[pairs/2] > quiet
			t.Logf("aligned %t: readers add %v at the 99th percentile, of %v", aligned, more[pairs/2], more)
			good = good && more[pairs/2] <= allowed
		}
		if !noisy {
			told++
		}
		switch {
		case good:
			return
		case series == 3 && told == 0:
			t.Skipf("this machine has other things to do: without any reader the 99th percentile is above %v", quiet)
		case series == 3:
			t.Fatalf("in none of %d series, of which %d on a quiet machine, do readers add less than %v", series, told, allowed)
		}
	}
}
