// Package checker says what a probe is and runs many of them.
//
// A Probe checks one target once. A Scheduler decides when each probe runs and
// how many run together; it deliberately knows nothing of what a failure means:
// retries, rises and alpha live behind the Judge that comes with each Task, and
// so does every interval. There is no I/O in this package.
//
// # Decisions
//
// One goroutine owns the schedule, a heap of due times, so that an idle checker
// costs a heap node and no stack. A probe gets a goroutine for as long as it
// runs. The alternatives were a goroutine for each checker (ten times the
// memory at ten thousand checkers, and no common limit) and a fixed pool of
// workers (idle stacks, and a hung probe keeps its worker for good).
//
// All times are read from the monotonic clock through time.Since: a step of the
// wall clock neither delays nor hastens a probe.
//
// A task has at most one run. Its next one is counted from the completion of
// the last, so a slow server is asked less often rather than twice at once.
//
// A run that ignores its deadline loses its slot a grace period later. The
// goroutine cannot be killed, but it is counted (Stats.Hung), holds nobody
// else, makes Overdue rise, and its Judge is told once, as Unable. What it says
// when it returns after all is discarded, and the task goes on from there.
//
// # Why a check failed
//
// An outcome that is not OK has a reason for people and a Fault for programs. Both are
// made of one Problem, in one place, so that they cannot say different things. It is
// made when a check fails: a good one allocates nothing.
//
// RunTraced runs one probe in the foreground and hears every step of it: what is set
// on the socket, what is sent and received, the certificate, the script's end. The
// probe finds its Trace in the context, which all of them are given anyway; a field
// in each probe would cost the ten thousand idle ones, and a second set of probes
// would not be the ones that run. A conversation, which a loop leads otherwise, is led
// by its own Run, with the same bytes. A transcript shows no argument of a script and
// no header that carries credentials.
//
// # Where a probe runs
//
// A goroutine for each run costs a stack, a timer and two dozen allocations, which
// for a TCP connect is more than the connect. A probe that is a Conversation says
// what it wants and leaves the system calls to others, so that one thread can lead
// any number of them (package reactor). Front sends each task to where it belongs:
// conversations to a loop, always the same one, all others to the Scheduler. Both
// keep the same rules, and whoever owns a Task sees no difference.
//
// Descriptors are shared out between the two at the start (Limits) and not drawn
// from a common store: a thousand connections that nobody answers must not keep
// scripts and DNS queries from their turn, nor the other way round.
package checker
