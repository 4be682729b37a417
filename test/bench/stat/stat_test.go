package stat_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/test/bench/stat"
)

func TestMedianAndPercentile(t *testing.T) {
	t.Parallel()
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"median of one", stat.Median([]float64{3}), 3},
		{"of an odd number", stat.Median([]float64{9, 1, 4}), 4},
		{"of an even number", stat.Median([]float64{9, 1, 4, 5}), 4.5},
		{"of a hundred", stat.Median(hundred), 50.5},
		{"p99 of a hundred", stat.Percentile(hundred, 99), 99},
		{"p50", stat.Percentile(hundred, 50), 50},
		{"p100", stat.Percentile(hundred, 100), 100},
		{"p0", stat.Percentile(hundred, 0), 1},
		{"p99 of few is the last", stat.Percentile([]float64{1, 2, 30}, 99), 30},
	} {
		if c.got != c.want {
			t.Errorf("%s: %v, want %v", c.name, c.got, c.want)
		}
	}
	if !math.IsNaN(stat.Median(nil)) || !math.IsNaN(stat.Percentile(nil, 50)) {
		t.Error("nothing has a median or a percentile, want NaN")
	}
}

// The answer is one of the values, enough are not above it, and no smaller one would
// do.
func TestPercentileIsTheSmallestThatCoversEnough(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 1, 200).Draw(t, "values")
		p := float64(rapid.IntRange(1, 100).Draw(t, "p"))
		before := slices.Clone(values)
		got := stat.Percentile(values, p)
		if !slices.Equal(values, before) {
			t.Fatal("the values were changed")
		}
		covers := func(v float64) bool {
			n := 0
			for _, x := range values {
				if x <= v {
					n++
				}
			}
			return float64(n) >= p/100*float64(len(values))-1e-9
		}
		if !slices.Contains(values, got) || !covers(got) {
			t.Fatalf("p%v is %v", p, got)
		}
		for _, x := range values {
			if x < got && covers(x) {
				t.Fatalf("p%v is %v, and %v covers enough", p, got, x)
			}
		}
	})
}

func TestRatios(t *testing.T) {
	t.Parallel()
	got := stat.Ratios([]float64{1, 2, 3, 0}, []float64{2, 0, 4, 0, 7})
	if diff := cmp.Diff([]float64{0.5, 0.75}, got); diff != "" {
		t.Error(diff)
	}
}

const ms = int64(time.Millisecond)

func at(msec int64, target int) stat.Event { return stat.Event{At: msec * ms, Target: target} }

func TestLatenessIsByTarget(t *testing.T) {
	t.Parallel()
	events := []stat.Event{at(0, 1), at(500, 2), at(1000, 1), at(1530, 2), at(1990, 1), at(2530, 2), at(9000, 1)}
	if diff := cmp.Diff([]float64{30, -10, 0}, stat.Lateness(events, time.Second, 1001*ms, 9000*ms)); diff != "" {
		t.Errorf("lateness (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]float64{30, 6010}, stat.Worst(events, time.Second, 1001*ms, 9001*ms)); diff != "" {
		t.Errorf("worst (-want +got):\n%s", diff)
	}
}

func TestGapReachesToTheEdges(t *testing.T) {
	t.Parallel()
	events := []stat.Event{at(100, 1), at(150, 2), at(350, 1)}
	for _, c := range []struct{ from, to, want int64 }{
		{100, 351, 200},
		{0, 200, 100},
		{100, 1000, 650},
		{400, 500, 100},
	} {
		if got := stat.Gap(events, c.from*ms, c.to*ms); got != float64(c.want) {
			t.Errorf("from %d to %d: %v ms, want %d", c.from, c.to, got, c.want)
		}
	}
}

func TestOutsAreCountedOneByOne(t *testing.T) {
	t.Parallel()
	second := int64(time.Second)
	counts := []stat.Count{{At: second, Total: 10}, {At: 2 * second, Total: 9}, {At: 3 * second, Total: 9}, {At: 4 * second, Total: 6}}
	if diff := cmp.Diff([]float64{1.5, 3.5, 3.5, 3.5}, stat.Outs(counts, second/2, 5)); diff != "" {
		t.Errorf("outs (-want +got):\n%s", diff)
	}
	if got := stat.Outs(counts, 0, 2); len(got) != 2 {
		t.Errorf("%d of 2 asked for", len(got))
	}
	if got := stat.Outs(nil, 0, 2); got != nil {
		t.Errorf("%v of no counts", got)
	}
}

func TestGrowth(t *testing.T) {
	t.Parallel()
	near := func(a, b float64) bool { return math.Abs(a-b) < 1e-9 }
	line := []stat.Point{{Size: 1000, Cost: 45}, {Size: 100, Cost: 9}, {Size: 10000, Cost: 405}, {Size: 30000, Cost: 1205}}
	if g := stat.Growth(line); g != 1 {
		t.Errorf("a line with a fixed cost grows by %v", g)
	}
	square := []stat.Point{{Size: 100, Cost: 1}, {Size: 1000, Cost: 100}, {Size: 500, Cost: 25}}
	if g := stat.Growth(square); !near(g, 10) {
		t.Errorf("a square grows by %v, want 10", g)
	}
	dip := []stat.Point{{Size: 1, Cost: 2}, {Size: 10, Cost: 10}, {Size: 100, Cost: 150}}
	if g := stat.Growth(dip); !near(g, 1.5) {
		t.Errorf("from the cheapest it grows by %v, want 1.5", g)
	}
	if g := stat.Growth(line[:1]); !math.IsNaN(g) {
		t.Errorf("one size grows by %v", g)
	}
}
