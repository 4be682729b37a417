package engine

import (
	"sync/atomic"
	"time"
)

// maxBuckets bounds how many bounds a histogram has.
const maxBuckets = 18

// Histogram is how many things took how long.
type Histogram struct {
	// Bounds are the buckets' upper ones, which belong to them.
	Bounds []time.Duration
	// Counts has a number for each bound, not those below it included, and one more
	// for what is beyond the last.
	Counts [maxBuckets + 1]uint64
	Sum    time.Duration
}

// Count is how many things there were.
func (h *Histogram) Count() (n uint64) {
	for _, c := range h.Counts[:len(h.Bounds)+1] {
		n += c
	}
	return n
}

// Bounds of the histograms. They are fixed: a scrape of another version is to be
// comparable.
var (
	// checkBounds are from a connection in the same rack to the longest timeouts.
	checkBounds = []time.Duration{
		500 * time.Microsecond, time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond, 10 * time.Millisecond,
		25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
		time.Second, 2500 * time.Millisecond, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	}
	// loopBounds are close where a verdict's way is to be judged by single
	// milliseconds.
	loopBounds = []time.Duration{
		50 * time.Microsecond, 100 * time.Microsecond, 250 * time.Microsecond, 500 * time.Microsecond, time.Millisecond,
		2 * time.Millisecond, 3 * time.Millisecond, 5 * time.Millisecond, 7500 * time.Microsecond, 10 * time.Millisecond,
		15 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond,
		time.Second, 5 * time.Second, 30 * time.Second,
	}
	// callBounds are those of single exchanges with the kernel, which is given 5 s.
	callBounds = []time.Duration{
		10 * time.Microsecond, 50 * time.Microsecond, 100 * time.Microsecond, 500 * time.Microsecond, time.Millisecond,
		5 * time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond,
		time.Second, 5 * time.Second,
	}
)

// histogram is counted by anyone and read by anyone, without a lock.
type histogram struct {
	counts [maxBuckets + 1]atomic.Uint64
	sum    atomic.Int64
}

func (h *histogram) observe(bounds []time.Duration, d time.Duration) {
	d = max(d, 0)
	i := 0
	for i < len(bounds) && d > bounds[i] {
		i++
	}
	h.counts[i].Add(1)
	h.sum.Add(int64(d))
}

func (h *histogram) read(bounds []time.Duration) Histogram {
	out := Histogram{Bounds: bounds, Sum: time.Duration(h.sum.Load())}
	for i := range out.Counts[:len(bounds)+1] {
		out.Counts[i] = h.counts[i].Load()
	}
	return out
}
