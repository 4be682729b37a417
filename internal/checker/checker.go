package checker

import (
	"context"
	"time"
)

// Result is the class of an Outcome.
type Result int

// Results of a probe.
const (
	// OK: the server answered as it should.
	OK Result = iota
	// Failed: the server, or the way to it, is at fault: refused, unreachable,
	// reset, timed out, wrong answer.
	Failed
	// Unable: this machine is at fault and the server was not asked: no
	// descriptors, bind address missing, no permission. The last verdict stays
	// and an alarm is raised.
	Unable
)

// String returns the lower-case name.
func (r Result) String() string {
	switch r {
	case OK:
		return "ok"
	case Failed:
		return "failed"
	case Unable:
		return "unable"
	}
	return "unknown"
}

// Outcome is what one probe found.
type Outcome struct {
	Result Result
	// Reason is for people: the step, what was expected, what came, the errno.
	// It may be set with OK too ("status 200").
	Reason string
	// Took is from the first system call to the verdict.
	Took time.Duration
	// Weight is what the server's weight shall be, in the kernel's unit, when
	// Weighted: MISC_CHECK with misc_dynamic says so by its exit status. It counts
	// only with OK.
	Weight   int64
	Weighted bool
	// Fault is the reason in parts; nil with OK.
	Fault *Fault
	// Certificate is what the server showed, whether it is good or not: of several the
	// one that ends first. It is nil unless the check is over TLS.
	Certificate *Certificate
}

// Certificate is a server's.
type Certificate struct {
	Subject, Issuer string
	NotAfter        time.Time
}

// Probe is one configured check of one target.
type Probe interface {
	// Run checks once. It returns by the context's deadline, and never an
	// Outcome that says nothing: cancellation of ctx (not its deadline) is
	// Unable. One Probe is never run twice at the same time.
	Run(ctx context.Context) Outcome
}

// Judge takes an outcome and says how long to wait, from its completion, until
// the next run. It is called on the scheduler's side and must not block for long.
// Those of tasks that are run by different loops may be called at the same time.
type Judge func(Outcome) time.Duration

// ID names a task of a Scheduler.
type ID uint64
