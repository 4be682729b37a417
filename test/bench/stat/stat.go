// Package stat is the arithmetic of the benchmarks: what a list of figures comes to,
// and how late, how far apart and how soon the events of a run were. It is pure.
package stat

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// Median is the middle one, or the mean of the two in the middle; NaN of nothing.
func Median(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	return (s[(n-1)/2] + s[n/2]) / 2
}

// Percentile is the smallest value that at least p of a hundred do not exceed; NaN
// of nothing.
func Percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	s := slices.Sorted(slices.Values(values))
	rank := int(math.Ceil(p / 100 * float64(len(s))))
	return s[min(max(rank, 1), len(s))-1]
}

// Ratios divides pair by pair; a pair that has no ratio is left out.
func Ratios(over, under []float64) (all []float64) {
	for i := range min(len(over), len(under)) {
		r := over[i] / under[i]
		if !math.IsNaN(r) && !math.IsInf(r, 0) {
			all = append(all, r)
		}
	}
	return all
}

// Event is one check that a backend saw: of which target, and when (nanoseconds of
// the monotonic clock).
type Event struct {
	At     int64
	Target int
}

// Lateness says for each check in [from, to) by how much its distance to the one
// before it at the same target exceeds the delay. The events are in the order of
// time; a target's first one has nothing before it and is left out.
func Lateness(events []Event, delay time.Duration, from, to int64) (ms []float64) {
	last := map[int]int64{}
	for _, e := range events {
		if before, ok := last[e.Target]; ok && e.At >= from && e.At < to {
			ms = append(ms, float64(e.At-before-int64(delay))/1e6)
		}
		last[e.Target] = e.At
	}
	return ms
}

// Worst is Lateness with the largest value of each target alone.
func Worst(events []Event, delay time.Duration, from, to int64) (ms []float64) {
	worst, last := map[int]float64{}, map[int]int64{}
	for _, e := range events {
		if before, ok := last[e.Target]; ok && e.At >= from && e.At < to {
			late := float64(e.At-before-int64(delay)) / 1e6
			if w, ok := worst[e.Target]; !ok || late > w {
				worst[e.Target] = late
			}
		}
		last[e.Target] = e.At
	}
	for _, w := range worst {
		ms = append(ms, w)
	}
	slices.Sort(ms)
	return ms
}

// Gap is the longest time in [from, to) in which no check came, in milliseconds.
func Gap(events []Event, from, to int64) float64 {
	longest, last := int64(0), from
	for _, e := range events {
		if e.At >= from && e.At < to {
			longest, last = max(longest, e.At-last), e.At
		}
	}
	return float64(max(longest, to-last)) / 1e6
}

// Count is how many destinations there were at a moment.
type Count struct {
	At    int64
	Total int
}

// Outs says when each of n destinations was seen to be gone, in seconds from begun,
// the first first. The counts are in the order of time; what is not gone at their
// end is missing from the answer.
func Outs(counts []Count, begun int64, n int) (seconds []float64) {
	if len(counts) == 0 {
		return nil
	}
	start := counts[0].Total
	for _, c := range counts {
		for len(seconds) < min(start-c.Total, n) {
			seconds = append(seconds, float64(c.At-begun)/1e9)
		}
	}
	return seconds
}

// Point is what all of a size costs.
type Point struct{ Size, Cost float64 }

// Growth is how much dearer one of a larger size is than one of a smaller size, at
// worst: 1 where the whole grows in proportion or less. NaN of fewer than two sizes.
func Growth(points []Point) float64 {
	p := slices.SortedFunc(slices.Values(points), func(a, b Point) int { return cmp.Compare(a.Size, b.Size) })
	if len(p) < 2 {
		return math.NaN()
	}
	worst, least := 1.0, p[0].Cost/p[0].Size
	for _, q := range p[1:] {
		each := q.Cost / q.Size
		worst, least = max(worst, each/least), min(least, each)
	}
	return worst
}
