package engine

import (
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/framework"
)

// situation is what people are told of one real server: its state since when and why.
// It is not changed once it is made: the loop and its readers share it. What never
// changes (its address, its method, what is checked) is not in it, but is put into
// words when somebody reads.
type situation struct {
	reason string
	// failed is the outcome that took it down.
	failed string
	// since is in nanoseconds since 1970.
	since int64
	// rest is nil for most.
	rest *rest
	// verdicts has two bits for each of the first checkers.
	verdicts uint32
	// wanted is the weight that should be in the table, -1 for none.
	wanted int32
	state  stateCode
}

// rest is what is told of few servers.
type rest struct {
	heldUntil, risesUntil time.Time
	files                 []framework.FileValue
	dynamic               []framework.Dynamic
	// verdicts are all, if they do not fit into the situation.
	verdicts []framework.Verdict
}

// packed is how many verdicts fit into a situation.
const packed = 16

// stateCode is a State in one byte.
type stateCode uint8

var stateCodes = [...]State{"", StateUp, StateDown, StateUnverified, StateMaintenance, StateWithdrawn, StateHeld, StateKept, StateDamped, StatePassive}

// Counts are numbers of real servers by their states.
type Counts [len(stateCodes)]int

// Of returns how many are in a state.
func (c *Counts) Of(s State) int { return c[codeOf(s)] }

func (c stateCode) word() State { return stateCodes[c] }

func codeOf(s State) stateCode { return stateCode(max(slices.Index(stateCodes[:], s), 0)) }

// newSituation is that of a server of which nothing was told yet.
func newSituation(now time.Time) *situation {
	return &situation{since: now.UnixNano(), wanted: -1}
}

func (s *situation) verdict(checker int) framework.Verdict {
	if s.rest != nil && s.rest.verdicts != nil {
		return s.rest.verdicts[checker]
	}
	if checker >= packed {
		return framework.Unknown
	}
	return framework.Verdict(s.verdicts >> (2 * checker) & 3)
}

// proven reports whether all of a server's checks vouch for it.
func (s *situation) proven(checkers int) bool {
	for k := range checkers {
		if s.verdict(k) != framework.Up {
			return false
		}
	}
	return true
}

// same reports whether two tell the same.
func (s *situation) same(o *situation) bool {
	a, b := *s, *o
	a.rest, b.rest = nil, nil
	if a != b || (s.rest == nil) != (o.rest == nil) {
		return false
	}
	return s.rest == nil || s.rest.heldUntil.Equal(o.rest.heldUntil) && s.rest.risesUntil.Equal(o.rest.risesUntil) &&
		slices.Equal(s.rest.files, o.rest.files) && slices.Equal(s.rest.dynamic, o.rest.dynamic) && slices.Equal(s.rest.verdicts, o.rest.verdicts)
}

// failed records what took a server down.
func (vs *server) failed(server int, why string) {
	if vs.rs[server].failed == why {
		return
	}
	s := *vs.rs[server]
	s.failed = why
	vs.rs[server] = &s
}

// situation makes the present one of a server, or returns the last if it tells the
// same.
func (e *Engine) situation(vs *server, i int, wanted int64, now time.Time) *situation {
	rs, was := vs.Servers[i], vs.rs[i]
	state, reason := e.explain(vs, rs, was)
	s := situation{reason: reason, failed: was.failed, since: was.since, wanted: int32(wanted), state: codeOf(state)}
	if s.state != was.state {
		s.since = now.UnixNano()
	}
	for k, v := range rs.Checkers[:min(len(rs.Checkers), packed)] {
		s.verdicts |= uint32(v) << (2 * k)
	}
	held, rises, files, dynamic := rs.HeldUntil(), rs.RisesUntil(), rs.Files(), rs.Dynamic()
	if !held.IsZero() || !rises.IsZero() || files != nil || dynamic != nil || len(rs.Checkers) > packed {
		s.rest = &rest{heldUntil: held, risesUntil: rises, files: slices.Clone(files), dynamic: slices.Clone(dynamic)}
		if len(rs.Checkers) > packed {
			s.rest.verdicts = slices.Clone(rs.Checkers)
		}
	}
	if s.same(was) {
		return was
	}
	kept := s
	return &kept
}
