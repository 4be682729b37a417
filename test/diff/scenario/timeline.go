package scenario

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Step is the beginning of a command of the script, in seconds since the first
// start was done. Nominal is how long it is meant to last: that of a settle.
type Step struct {
	At      float64 `json:"at"`
	Nominal float64 `json:"nominal,omitempty"`
}

// Change is what a look at the table found new about a destination.
type Change struct {
	At float64 `json:"at"`
	// Dest is the service and the destination.
	Dest string `json:"dest"`
	// Weight is Absent for a destination that is not in the table.
	Weight int `json:"weight"`
}

// Absent is the weight of what is not there.
const Absent = -1

// blink is what looks at every tenth of a second cannot tell apart from nothing.
const blink = 0.3

// scriptTime turns the time of a run into that of the script. The commands of two
// runs do not take the same time; what a daemon does is measured from the command
// before it, as if every command but settle took none.
func scriptTime(steps []Step, at float64) float64 {
	if at < 0 {
		return 0
	}
	sum := 0.0
	for i, s := range steps {
		if i+1 == len(steps) || steps[i+1].At > at {
			return sum + max(0, at-s.At)
		}
		sum += s.Nominal
	}
	return at
}

// phase is a stretch of time in which a destination stays the same.
type phase struct {
	from   float64
	weight int
}

// phases turns the changes of a run into the history of each destination.
func phases(run *Run) map[string][]phase {
	all := map[string][]phase{}
	for _, c := range run.Changes {
		all[c.Dest] = append(all[c.Dest], phase{scriptTime(run.Steps, c.At), c.Weight})
	}
	for dest, history := range all {
		all[dest] = steady(history)
	}
	return all
}

// steady leaves blinks out, and joins what is then alike.
func steady(history []phase) []phase {
	var out []phase
	for i, p := range history {
		if i+1 < len(history) && history[i+1].from-p.from < blink {
			continue
		}
		if last := len(out) - 1; last >= 0 && out[last].weight == p.weight || last < 0 && p.weight == Absent {
			continue
		}
		out = append(out, p)
	}
	return out
}

// compareTimelines says what differs, "" for nothing.
func compareTimelines(keepalived, sluice *Run, tolerance float64) string {
	k, s := phases(keepalived), phases(sluice)
	both := maps.Clone(k)
	maps.Copy(both, s)
	var out strings.Builder
	for _, dest := range slices.Sorted(maps.Keys(both)) {
		if !near(k[dest], s[dest], tolerance) {
			fmt.Fprintf(&out, "%s\n- %s\n+ %s\n", dest, showPhases(k[dest]), showPhases(s[dest]))
		}
	}
	return out.String()
}

// near says whether two histories are the same. What a daemon installs unchecked
// may be gone at its first check, which keepalived makes a second after the start
// and sluice at once: that first phase may be missing when it is short.
func near(a, b []phase, tolerance float64) bool {
	return nearly(a, b, tolerance) || nearly(checked(a, tolerance), b, tolerance) || nearly(a, checked(b, tolerance), tolerance)
}

func nearly(a, b []phase, tolerance float64) bool {
	return slices.EqualFunc(a, b, func(p, q phase) bool {
		return p.weight == q.weight && math.Abs(p.from-q.from) <= tolerance
	})
}

// checked leaves a short first phase out.
func checked(history []phase, tolerance float64) []phase {
	if len(history) < 2 || history[1].from > tolerance {
		return history
	}
	return steady(history[1:])
}

func showPhases(history []phase) string {
	if len(history) == 0 {
		return "never there"
	}
	var parts []string
	for _, p := range history {
		what := fmt.Sprintf("weight %d", p.weight)
		if p.weight == Absent {
			what = "absent"
		}
		parts = append(parts, fmt.Sprintf("%s from %.1f s", what, p.from))
	}
	return strings.Join(parts, ", ")
}
