package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
)

// Bounds of what is remembered of a run.
const (
	// maxPast is how many stretches of equal results are remembered.
	maxPast = 8
	// goodAgain is how long a check must have been good for its failures to be
	// forgotten.
	goodAgain = 24 * time.Hour
)

// past is what a run found, once something failed: in peace there is none, and it is
// dropped again after a long time of good results. Equal results in a row are one
// stretch, so that a good result costs no memory then either.
type past struct{ stretches []stretch }

// stretch are results in a row that say the same.
type stretch struct {
	reason string
	fault  *checker.Fault
	// first and last are when the first and the last of them ended, in Unix
	// nanoseconds; first is 0 if it was before anything was remembered.
	first, last int64
	// took is the last one's.
	took   time.Duration
	count  uint32
	result uint8
}

// add takes up one more outcome and returns what is remembered now. was is the last
// one before it.
func (p *past) add(o *checker.Outcome, was *lastOutcome, now time.Time) *past {
	at := now.UnixNano()
	if p == nil {
		p = &past{}
		if was.at != 0 {
			p.stretches = append(p.stretches, stretch{reason: was.reason, last: was.at, took: was.elapsed(), result: was.result})
		}
	}
	if n := len(p.stretches); n > 0 {
		if s := &p.stretches[n-1]; s.alike(o) {
			if o.Result == checker.OK && s.first != 0 && at-s.first >= int64(goodAgain) {
				return nil
			}
			s.reason, s.fault, s.last, s.took = o.Reason, o.Fault, at, o.Took
			if s.count < ^uint32(0) {
				s.count++
			}
			return p
		}
		if n == maxPast {
			p.stretches = slices.Delete(p.stretches, 0, 1)
		}
	}
	p.stretches = append(p.stretches, stretch{reason: o.Reason, fault: o.Fault, first: at, last: at, took: o.Took, count: 1, result: uint8(o.Result)})
	return p
}

// alike reports whether an outcome goes on with a stretch. Good ones are alike, whatever
// else they say; bad ones by their parts, or by their reasons but for the time it took.
func (s *stretch) alike(o *checker.Outcome) bool {
	switch {
	case s.result != uint8(o.Result):
		return false
	case o.Result == checker.OK:
		return true
	case s.fault != nil && o.Fault != nil:
		return *s.fault == *o.Fault
	}
	return timeless(s.reason) == timeless(o.Reason)
}

// timeless is a reason without the "after 1.2ms" at its end.
func timeless(reason string) string {
	const after = " after "
	if i := strings.LastIndex(reason, after); i >= 0 {
		if _, err := time.ParseDuration(reason[i+len(after):]); err == nil {
			return strings.TrimSuffix(reason[:i], ",")
		}
	}
	return reason
}

// clone is for another run that goes on from here.
func (p *past) clone() *past {
	if p == nil {
		return nil
	}
	return &past{slices.Clone(p.stretches)}
}

// told is what people are told of it, oldest first.
func (p *past) told() []Stretch {
	if p == nil {
		return nil
	}
	out := make([]Stretch, len(p.stretches))
	for i, s := range p.stretches {
		out[i] = Stretch{Last: time.Unix(0, s.last), Result: checker.Result(s.result).String(), Reason: s.reason, Took: s.took, Count: s.count}
		if s.first != 0 {
			out[i].First = time.Unix(0, s.first)
		}
		out[i].Fault = faultOf(s.fault)
	}
	return out
}

func faultOf(f *checker.Fault) *Fault {
	if f == nil {
		return nil
	}
	return &Fault{Stage: f.Stage.String(), Target: f.Target, Expected: f.Want, Got: f.Got, Errno: errnoName(f.Errno), Timeout: f.Timeout}
}

func errnoName(e syscall.Errno) string {
	if e == 0 {
		return ""
	}
	return cmp.Or(unix.ErrnoName(e), fmt.Sprintf("errno %d", int(e)))
}
