package trackfile

import "time"

// How long a reading that is not a number must hold before it counts, measured
// from the last sign of a change; and how long a file that never comes to rest
// can put that off.
const (
	settleTime = 100 * time.Millisecond
	settleMax  = time.Second
)

// Value is a file's present number.
type Value struct {
	Value int64
	// State is what the last reading that counted found.
	State State
	// Warning says, for people, why the value is not what the file says; "" if
	// it is.
	Warning string
}

// reading is what Read returned.
type reading struct {
	value int64
	state State
	err   error
}

// settler decides which readings of one file count. It reads no clock.
type settler struct {
	now Value
	// unsettled is when the present run of readings that are not numbers began.
	unsettled time.Time
	// touched is when the file last showed a sign of a change.
	touched time.Time
}

// accept takes a reading without conditions and tells whether it changed
// anything that is to be told.
func (s *settler) accept(r reading) (changed bool) {
	old := s.now
	s.unsettled = time.Time{}
	s.now.State, s.now.Warning = r.state, ""
	if r.err != nil {
		s.now.Warning = r.err.Error()
	}
	if !r.state.keeps() {
		s.now.Value = r.value
	}
	return s.now.Value != old.Value || s.now.Warning != old.Warning
}

// offer takes a reading of time t. It tells whether the reading changed
// anything, or, with again above 0, that the file must be read again after that
// long before the reading counts.
func (s *settler) offer(t time.Time, r reading) (changed bool, again time.Duration) {
	if r.state == OK || r.state == s.now.State && !r.state.keeps() {
		return s.accept(r), 0
	}
	if s.unsettled.IsZero() {
		s.unsettled = t
	}
	quiet := s.unsettled
	if s.touched.After(quiet) {
		quiet = s.touched
	}
	due := quiet.Add(settleTime)
	if last := s.unsettled.Add(settleMax); last.Before(due) {
		due = last
	}
	if d := due.Sub(t); d > 0 {
		return false, d
	}
	return s.accept(r), 0
}
