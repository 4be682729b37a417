package engine

import (
	"fmt"

	"github.com/sluice-lb/sluice/internal/framework"
)

// weight takes the weight that is wanted apart: what is configured, what moves it, and
// what of it the table is given. The parts add up to what is wanted, whatever they are,
// since the last one says what no other explains.
func (f *found) weight(x *Explanation) []WeightPart {
	rc, sit := f.config(), f.piece.situations.at(f.server)
	var parts []WeightPart
	sum := int64(0)
	add := func(what string, adds int64, format string, args ...any) {
		parts = append(parts, WeightPart{what, fmt.Sprintf(format, args...), adds})
		sum += adds
	}
	base := rc.Weight
	add("configured", base, "configured %d", base)
	drain, out := "", ""
	for _, o := range f.p.orders {
		switch {
		case o.VS != f.piece.of.Config.Key || o.RS != rc.Key:
		case o.Kind == VerbDrain:
			drain = o.said()
		default:
			add("operator_weight", o.Weight-base, "operator's weight %d %s", o.Weight, o.said())
			base = o.Weight
		}
	}
	var files []framework.FileValue
	if sit.rest != nil {
		files = sit.rest.files
		for k, d := range sit.rest.dynamic {
			if d.Set && sit.verdict(k) != framework.Down {
				add("check", d.Weight-base, "%s %s asks for %d (misc_dynamic)", rc.Checkers[k].Kind, targetOf(rc.Checkers[k]), d.Weight)
			}
		}
	}
	for _, v := range files {
		switch adds, fault := v.Status(); {
		case fault && v.Checker < 0:
			out = fmt.Sprintf("track_file %s is %d: out", v.Name, v.Value)
		case adds != 0:
			add("track_file", adds, "track_file %s is %d: %+d", v.Name, v.Value, adds)
		}
	}
	if out != "" {
		add("track_file", -sum, "%s", out)
	}
	if drain != "" {
		add("operator_drain", -sum, "drained %s", drain)
	}
	if full := min(max(sum, 0), framework.MaxWeight); full != sum {
		add("bound", full-sum, "a weight is 0 to %d", int64(framework.MaxWeight))
	}
	full, wanted := sum, max(x.RealServer.WeightWanted, 0)
	why, is := statesWeight[x.RealServer.State]
	switch {
	case full == wanted:
	case is && wanted < full:
		add("state", wanted-full, "%s", why(&x.RealServer))
	case wanted < full && !x.RealServer.RisesUntil.IsZero():
		add("slow_start", wanted-full, "slow start: %d %% of it", wanted*100/full)
	case wanted > full:
		add("shared_destination", wanted-full, "another virtual server wants %d for the same destination", wanted)
	default:
		add("state", wanted-full, "not wanted in the table now")
	}
	return parts
}

// statesWeight say why a state takes a weight away.
var statesWeight = map[State]func(*RealServer) string{
	StateDown: func(rs *RealServer) string {
		if rs.Inhibit {
			return "weight 0 while its checks fail (inhibit_on_failure)"
		}
		return "out while its checks fail"
	},
	StateUnverified: func(*RealServer) string { return "out until its first good check" },
	StateWithdrawn:  func(*RealServer) string { return "out while the sorry server serves" },
	StateDamped:     func(*RealServer) string { return "out while flap_damping holds it back" },
	StatePassive:    func(*RealServer) string { return "out while this director is passive" },
}
