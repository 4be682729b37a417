package framework

import "time"

// Verdict is what a checker concludes after its retries.
type Verdict uint8

// Verdicts.
const (
	// Unknown: no run has ended in a verdict yet.
	Unknown Verdict = iota
	Up
	Down
)

// String returns the lower-case name.
func (v Verdict) String() string {
	switch v {
	case Up:
		return "up"
	case Down:
		return "down"
	}
	return "unknown"
}

// Rules say how many results make a verdict and when the next run is due.
type Rules struct {
	// DelayLoop is the pause between runs, DelayBeforeRetry the one before a
	// failed check is tried again. Both count from the end of a run.
	DelayLoop        time.Duration
	DelayBeforeRetry time.Duration
	// Retry is how many failures in a row are forgiven.
	Retry uint32
	// Rise is how many successes in a row bring a server back from Down; 0 is
	// taken as 1. From Unknown one success is always enough.
	Rise uint32
	// SlowDown makes the pause after a failure that is final at least
	// DelayBeforeRetry long, as keepalived's HTTP_GET does.
	SlowDown bool
}

// Machine is the retry logic of one checker. The zero Machine is Unknown and
// forgives Rules.Retry failures; NewMachine makes one that forgives none before
// its first verdict.
type Machine struct {
	failures  uint32
	successes uint32
	verdict   Verdict
	strict    bool
}

// NewMachine returns a machine that has not run. With strict, its first failure
// is final: at start keepalived presets the failure counter of every checker, so
// that a server which was never seen working is not given the benefit of its
// retries.
func NewMachine(strict bool) Machine { return Machine{strict: strict} }

// Verdict returns the present verdict.
func (m *Machine) Verdict() Verdict { return m.verdict }

// Failures returns how many runs in a row have failed.
func (m *Machine) Failures() uint32 { return m.failures }

// Missing returns how many good runs in a row make the machine say Up from now; 0 if
// it does.
func (m *Machine) Missing(r Rules) uint32 {
	switch {
	case m.verdict == Up:
		return 0
	case m.verdict == Down && m.successes < r.Rise:
		return r.Rise - m.successes
	}
	return 1
}

// Limit returns how many failures in a row make the machine say Down.
func (m *Machine) Limit(r Rules) uint32 {
	if m.strict && m.verdict == Unknown {
		return 1
	}
	if r.Retry == ^uint32(0) {
		return r.Retry
	}
	return r.Retry + 1
}

// Step takes the result of one run. It reports whether the verdict changed and
// how long to wait until the next run.
func (m *Machine) Step(r Rules, ok bool) (changed bool, next time.Duration) {
	if ok {
		m.failures = 0
		m.successes = saturate(m.successes)
		switch {
		case m.verdict == Up:
			return false, r.DelayLoop
		case m.verdict == Down && m.successes < r.Rise:
			return false, r.DelayLoop
		}
		m.verdict = Up
		return true, r.DelayLoop
	}
	m.successes = 0
	limit := m.Limit(r)
	m.failures = saturate(m.failures)
	if m.verdict != Down && m.failures < limit {
		return false, r.DelayBeforeRetry
	}
	next = r.DelayLoop
	if r.SlowDown {
		next = max(next, r.DelayBeforeRetry)
	}
	if m.verdict == Down {
		return false, next
	}
	m.verdict = Down
	return true, next
}

// saturate counts up without wrapping: a server may stay down for years.
func saturate(n uint32) uint32 {
	if n == ^uint32(0) {
		return n
	}
	return n + 1
}
