package trackfile

import (
	"errors"
	"testing"
	"time"
)

func TestSettler(t *testing.T) {
	bad := errors.New("bad")
	ok := func(v int64) reading { return reading{value: v} }
	empty, missing := reading{state: Empty}, reading{state: Missing}
	garbage := reading{state: Garbage, err: bad}
	type step struct {
		at      time.Duration // since the start
		touched bool          // an event came at this moment
		r       reading
		changed bool
		again   time.Duration
		value   int64
		warning string
	}
	ms := time.Millisecond
	for _, tc := range []struct {
		name  string
		steps []step
	}{
		{"a number counts at once", []step{
			{0, true, ok(5), true, 0, 5, ""},
			{1 * ms, true, ok(6), true, 0, 6, ""},
			{2 * ms, true, ok(6), false, 0, 6, ""},
		}},
		{"truncate and write is never 0", []step{
			{0, true, ok(5), true, 0, 5, ""},
			{1 * ms, true, empty, false, 100 * ms, 5, ""},
			{2 * ms, true, ok(6), true, 0, 6, ""},
		}},
		{"the same number after a truncation is no change", []step{
			{0, true, ok(5), true, 0, 5, ""},
			{1 * ms, true, empty, false, 100 * ms, 5, ""},
			{2 * ms, true, ok(5), false, 0, 5, ""},
		}},
		{"emptiness that stays is 0", []step{
			{0, true, ok(5), true, 0, 5, ""},
			{1 * ms, true, empty, false, 100 * ms, 5, ""},
			{101 * ms, false, empty, true, 0, 0, ""},
			{500 * ms, true, empty, false, 0, 0, ""},
		}},
		{"removal that stays is 0", []step{
			{0, true, ok(5), true, 0, 5, ""},
			{1 * ms, true, missing, false, 100 * ms, 5, ""},
			{50 * ms, false, missing, false, 51 * ms, 5, ""},
			{101 * ms, false, missing, true, 0, 0, ""},
		}},
		{"a new event starts the quiet period again", []step{
			{0, true, ok(5), true, 0, 5, ""},
			{10 * ms, true, missing, false, 100 * ms, 5, ""},
			{90 * ms, true, empty, false, 100 * ms, 5, ""},
			{110 * ms, false, empty, false, 80 * ms, 5, ""},
			{190 * ms, false, empty, true, 0, 0, ""},
		}},
		{"but not for ever", []step{
			{0, true, ok(5), true, 0, 5, ""},
			{10 * ms, true, empty, false, 100 * ms, 5, ""},
			{950 * ms, true, empty, false, 60 * ms, 5, ""},
			{1010 * ms, true, empty, true, 0, 0, ""},
		}},
		{"a poll that finds it empty without an event waits too", []step{
			{0, true, ok(5), true, 0, 5, ""},
			{time.Minute, false, empty, false, 100 * ms, 5, ""},
			{time.Minute + 100*ms, false, empty, true, 0, 0, ""},
		}},
		{"garbage keeps the value and warns, once", []step{
			{0, true, ok(5), true, 0, 5, ""},
			{1 * ms, true, garbage, false, 100 * ms, 5, ""},
			{101 * ms, false, garbage, true, 0, 5, "bad"},
			{400 * ms, true, garbage, false, 100 * ms, 5, "bad"},
			{500 * ms, false, garbage, false, 0, 5, "bad"},
			{600 * ms, true, ok(5), true, 0, 5, ""},
		}},
		{"removal after garbage is 0", []step{
			{0, true, ok(5), true, 0, 5, ""},
			{1 * ms, true, garbage, false, 100 * ms, 5, ""},
			{101 * ms, false, garbage, true, 0, 5, "bad"},
			{200 * ms, true, missing, false, 100 * ms, 5, "bad"},
			{300 * ms, false, missing, true, 0, 0, ""},
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			start := time.Unix(1e9, 0)
			var s settler
			for i, st := range tc.steps {
				now := start.Add(st.at)
				if st.touched {
					s.touched = now
				}
				changed, again := s.offer(now, st.r)
				if changed != st.changed || again != st.again || s.now.Value != st.value || s.now.Warning != st.warning {
					t.Fatalf("step %d: changed %v, again %v, value %d, warning %q; want %v, %v, %d, %q", i,
						changed, again, s.now.Value, s.now.Warning, st.changed, st.again, st.value, st.warning)
				}
			}
		})
	}
}
