package engine

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/internal/state"
)

// A saved "up" is believed as long as it is not older than freshLoops times the
// checker's delay_loop, and than freshFor in any case.
const (
	freshLoops = 10
	freshFor   = 5 * time.Minute
)

// recollection is what an earlier process saved, by what it is of.
type recollection struct {
	generation uint64
	verdicts   map[state.Key][]state.Verdict
	quorum     map[string]bool
}

// remember takes what an earlier process saved, before the table is connected.
func (e *Engine) remember(s *state.State) {
	e.memory = recollection{verdicts: map[state.Key][]state.Verdict{}, quorum: map[string]bool{}}
	if s == nil {
		return
	}
	e.memory.generation, e.operator = s.Generation, s.Operator
	e.restoreOrders(s.Operator)
	for _, v := range s.Verdicts {
		e.memory.verdicts[v.Key] = append(e.memory.verdicts[v.Key], v)
	}
	for _, vs := range s.VirtualServers {
		e.memory.quorum[vs.VirtualServer] = vs.Quorum
	}
	owned := make([]apply.Owned, 0, len(s.Services))
	for _, svc := range s.Services {
		o := apply.Owned{Service: svc.Service, Timeout: svc.DrainTimeout}
		for _, d := range svc.Destinations {
			od := apply.OwnedDestination{Destination: d.Destination}
			if d.Drain != nil {
				od.Since, od.Why, od.Limit = d.Drain.Since, d.Drain.Why, d.Drain.Limit
			}
			o.Destinations = append(o.Destinations, od)
		}
		owned = append(owned, o)
	}
	e.applier.Remember(owned)
	e.log.Info("State of an earlier process found", event.Key, event.StateFound, "saved", s.Saved, "generation", s.Generation, "services", len(s.Services), "verdicts", len(s.Verdicts))
}

// resume makes the state of a virtual server at the start of the process, from what
// the table and the state file say of its servers.
func (e *Engine) resume(vc *config.VirtualServer, values framework.Values, now time.Time) *server {
	believed := make(map[*config.RealServer]belief, len(vc.RealServers))
	adopted, trust := e.applier.AdoptedIn(e.applier.Lookup(vc.Key)), e.trustAtStart(vc)
	for _, rc := range vc.RealServers {
		believed[rc] = e.believe(vc, rc, adopted, trust, now)
	}
	fvs, _ := framework.Resume(vc,
		func(rc *config.RealServer) bool { return believed[rc].trusted }, values,
		framework.Saved{
			Quorum: e.memory.quorum[vc.Key.String()],
			Verdict: func(rc *config.RealServer, i int) framework.Verdict {
				return believed[rc].verdict(i)
			},
		}, e.ordersOf(vc.Key))
	vs := e.adopt(fvs, nil, true)
	for i, rs := range vs.Servers {
		for k, v := range believed[rs.Config].saved {
			t := vs.tasks[i][k]
			if v == nil || t == nil || rs.Checkers[k] == framework.Unknown {
				continue
			}
			t.recall(v)
			if !v.Up {
				vs.failed(i, v.Reason)
			}
		}
	}
	return vs
}

// belief is what is taken for true of a real server before its first check.
type belief struct {
	trusted bool
	// saved are the verdicts that count, nil for a checker without one.
	saved []*state.Verdict
}

func (b belief) verdict(checker int) framework.Verdict {
	switch v := b.saved[checker]; {
	case v == nil:
		return framework.Unknown
	case v.Up:
		return framework.Up
	}
	return framework.Down
}

// adopted tells what the table held of a real server (apply.Applier.AdoptedIn).
type adopted func(config.RSKey) (exists, usable bool, weight int64)

// believe weighs the table against the saved verdicts. The table is the stronger
// evidence of the two: it was written before the state was saved, and others may
// have changed it on purpose.
//
//   - A server that is in the table with a weight serves, whatever was saved.
//   - A server that was down has to pass a check first, however old that is and
//     even if the table was lost: it is probed at once.
//   - A server whose checks were all up a short while ago serves, alpha or not,
//     unless the table speaks against it: others serve there and it is out, or it is
//     at weight 0 with inhibit_on_failure.
//   - Otherwise what trustAtStart says.
func (e *Engine) believe(vc *config.VirtualServer, rc *config.RealServer, adopted adopted, trust framework.Trust, now time.Time) belief {
	saved, down, up := e.recollect(vc, rc, now)
	exists, usable, weight := adopted(rc.Key)
	contradicted := exists && usable && weight < 0 || weight == 0 && (rc.Inhibit || vc.OnFailure == config.OnFailureDrain)
	switch {
	case weight > 0:
		for i, v := range saved {
			if v != nil && !v.Up {
				saved[i] = nil
			}
		}
		return belief{true, saved}
	case down:
		return belief{false, saved}
	case up && !contradicted:
		return belief{true, saved}
	}
	return belief{trust(rc), make([]*state.Verdict, len(rc.Checkers))}
}

// recollect returns the saved verdicts of a real server's checkers: those that are
// down, and those that are up and fresh; and whether any is down and all are up.
func (e *Engine) recollect(vc *config.VirtualServer, rc *config.RealServer, now time.Time) (saved []*state.Verdict, down, up bool) {
	saved = make([]*state.Verdict, len(rc.Checkers))
	if len(e.memory.verdicts) == 0 {
		return saved, false, false
	}
	used := map[state.Key]int{}
	checks, fresh := 0, 0
	for i, c := range rc.Checkers {
		if c.Kind == config.FileCheck {
			continue // its value is there already
		}
		checks++
		k := verdictKey(vc, rc, definition(c))
		vs := e.memory.verdicts[k][used[k]:]
		if len(vs) == 0 {
			continue
		}
		used[k]++
		switch v := &vs[0]; {
		case !v.Up:
			saved[i], down = v, true
		case !v.At.After(now) && now.Sub(v.At) <= max(freshFor, freshLoops*c.DelayLoop):
			saved[i] = v
			fresh++
		}
	}
	return saved, down, checks > 0 && fresh == checks
}

func verdictKey(vc *config.VirtualServer, rc *config.RealServer, definition string) state.Key {
	return state.Key{VirtualServer: vc.Key.String(), RealServer: rc.Key.String(), Checker: definition}
}

// digest is what a checker asks, short and without what of it may be secret;
// definition is that as text.
func digest(c *config.Checker) [16]byte {
	sum := sha256.Sum256([]byte(framework.Definition(c)))
	return [16]byte(sum[:16])
}

func definition(c *config.Checker) string {
	d := digest(c)
	return hex.EncodeToString(d[:])
}
