// Package judge says what the losses of a run mean. It is pure, so that tests can
// give it runs that never were: a judge that passes a run with losses is the one
// failure that no run would show.
package judge

import (
	"fmt"
	"slices"
	"strings"
)

// Count is what became of the clients of one kind. Lost and Apart exclude each
// other: Apart are those that no order of operations could have kept, or that a
// scenario counts by themselves for the reason that it gives.
type Count struct {
	Opened int `json:"opened"`
	Lost   int `json:"lost"`
	Apart  int `json:"apart"`
	// How names the losses of both kinds, "reset 10, timeout 1".
	How string `json:"how"`
}

// Add sums two counts up.
func (c Count) Add(o Count) Count {
	how := strings.Join(slices.DeleteFunc([]string{c.How, o.How}, func(s string) bool { return s == "" }), ", ")
	return Count{c.Opened + o.Opened, c.Lost + o.Lost, c.Apart + o.Apart, how}
}

// Result is one run: a scenario, in a topology, by an actor.
type Result struct {
	Scenario string `json:"scenario"`
	Topology string `json:"topology"`
	Actor    string `json:"actor"`
	Long     Count  `json:"long"`
	Short    Count  `json:"short"`
	// Problems are what kept the run from being one: a step that did not come
	// about, a process that ended, a table that is not as it should be at the end.
	Problems []string `json:"problems"`
	Log      []string `json:"log"`
	// Voids are why attempts before this one do not count.
	Voids []string `json:"voids"`
	Took  float64  `json:"took"`
}

// Rules are what a scenario demands.
type Rules struct {
	// Zero is the actor that must not lose anything.
	Zero string
	// Costs are the actors that are known to lose something here. If they do not,
	// the clients do not see what they should, and a zero beside it means nothing.
	Costs []string
	// Apart is why some losses are counted by themselves; "" if none are.
	Apart string
}

// Judge returns what is wrong with the runs of a scenario in a topology.
func Judge(rules Rules, runs []Result) (wrong []string) {
	found := false
	for _, r := range runs {
		found = found || r.Actor == rules.Zero
		wrong = append(wrong, run(rules, r)...)
	}
	if !found {
		wrong = append(wrong, fmt.Sprintf("%s did not run", rules.Zero))
	}
	return wrong
}

func run(rules Rules, r Result) (wrong []string) {
	say := func(format string, args ...any) {
		wrong = append(wrong, r.Actor+": "+fmt.Sprintf(format, args...))
	}
	for _, p := range r.Problems {
		say("%s", p)
	}
	lost := 0
	for _, k := range []struct {
		kind string
		Count
	}{{"long-lived", r.Long}, {"short", r.Short}} {
		lost += k.Lost + k.Apart
		switch {
		case k.Lost < 0 || k.Apart < 0 || k.Lost+k.Apart > k.Opened:
			say("%s: %d lost and %d apart of %d cannot be", k.kind, k.Lost, k.Apart, k.Opened)
		case k.Opened == 0:
			say("no %s connection was opened", k.kind)
		case k.Apart > 0 && rules.Apart == "":
			say("%s: %d counted apart without a reason", k.kind, k.Apart)
		}
		if k.Lost > 0 && r.Actor == rules.Zero {
			say("%d of %d %s connections lost (%s)", k.Lost, k.Opened, k.kind, k.How)
		}
	}
	if lost == 0 && len(r.Problems) == 0 && slices.Contains(rules.Costs, r.Actor) {
		say("lost nothing where it is known to: the clients may be blind")
	}
	return wrong
}
