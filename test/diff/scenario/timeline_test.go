package scenario

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestScriptTime(t *testing.T) {
	t.Parallel()
	// A settle of 5 that took 5.5, a table that took 2, a settle of 3.
	steps := []Step{{0, 5}, {5.5, 0}, {7.5, 3}, {11, 0}}
	for at, want := range map[float64]float64{-1: 0, 0: 0, 1: 1, 5.4: 5.4, 5.5: 5, 6: 5.5, 7.5: 5, 8.5: 6, 11: 8, 12: 9} {
		if got := scriptTime(steps, at); got < want-1e-9 || got > want+1e-9 {
			t.Errorf("%v is %v of the script, want %v", at, got, want)
		}
	}
	if got := scriptTime(nil, 3); got != 3 {
		t.Errorf("without steps 3 is %v", got)
	}
}

func TestSteady(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name     string
		in, want []phase
	}{
		{name: "nothing"},
		{"as it is", []phase{{0, 1}, {1, 2}, {2, Absent}}, []phase{{0, 1}, {1, 2}, {2, Absent}}},
		{"a blink", []phase{{0, 1}, {1, 2}, {1.2, 3}}, []phase{{0, 1}, {1.2, 3}}},
		{"a blink back", []phase{{0, 1}, {1, Absent}, {1.2, 1}}, []phase{{0, 1}}},
		{"a blink at the beginning", []phase{{0, 1}, {0.2, 5}}, []phase{{0.2, 5}}},
		{"absent at first", []phase{{0, Absent}, {1, 2}}, []phase{{1, 2}}},
		{"only a blink", []phase{{0, 1}, {0.1, Absent}}, nil},
		{"the last is no blink", []phase{{0, 1}, {9.9, Absent}}, []phase{{0, 1}, {9.9, Absent}}},
	} {
		if diff := cmp.Diff(tt.want, steady(tt.in), cmp.AllowUnexported(phase{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// The slower machine of two must not look like the slower daemon.
func TestTimelinesAreComparedByTheScript(t *testing.T) {
	t.Parallel()
	quick := &Run{Steps: []Step{{0, 5}, {5, 0}, {5.1, 5}}, Changes: []Change{{0, "d", 1}, {6.1, "d", 0}}}
	slow := &Run{Steps: []Step{{0, 5}, {5, 0}, {9, 5}}, Changes: []Change{{0, "d", 1}, {10.2, "d", 0}}}
	if got := compareTimelines(quick, slow, 0.5); got != "" {
		t.Errorf("differs:\n%s", got)
	}
	slow.Changes[1].At = 11
	if got := compareTimelines(quick, slow, 0.5); !strings.Contains(got, "weight 0 from 7.0 s") {
		t.Errorf("a change 0.9 s later: %q", got)
	}
}

func TestNear(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		a, b []phase
		want bool
	}{
		{"nothing", nil, nil, true},
		{"the same", []phase{{0, 1}, {5, 2}}, []phase{{1.5, 1}, {3.5, 2}}, true},
		{"too late", []phase{{0, 1}, {5, 2}}, []phase{{0, 1}, {7.5, 2}}, false},
		{"another weight", []phase{{0, 1}}, []phase{{0, 2}}, false},
		{"a phase more", []phase{{0, 1}, {5, 2}}, []phase{{0, 1}}, false},
		{"gone at the first check", []phase{{0, 1}, {1.3, Absent}}, nil, true},
		{"another weight at the first check", []phase{{0, 7}, {1.3, 2}, {9, 3}}, []phase{{0.3, 2}, {9, 3}}, true},
		{"gone too late to be the first check", []phase{{0, 1}, {2.5, Absent}}, nil, false},
		{"gone later", []phase{{0, 1}, {5, 2}, {6, 3}}, []phase{{0, 1}, {6, 3}}, false},
	} {
		if got := near(tt.a, tt.b, 2); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
		if got := near(tt.b, tt.a, 2); got != tt.want {
			t.Errorf("%s, the other way: %v, want %v", tt.name, got, tt.want)
		}
	}
}
