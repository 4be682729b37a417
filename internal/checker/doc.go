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
// # A reactor
//
// The goroutine for each run costs a stack and a few allocations. Where that
// matters, a TCP connect or a plain HTTP request can run on an epoll loop of its
// own thread. The place for it is behind Task.Probe: a probe that also offers
//
//	Start(deadline time.Time, done func(Outcome)) (cancel func())
//
// would be started by Scheduler.start on the scheduler's goroutine in place of
// the go statement, the reactor would register its descriptor and call done from
// its thread, and done is what a probe's goroutine calls already (finish: put
// the completion on the queue, wake the scheduler; it never blocks). Slots,
// hanging, removal, judging and the statistics do not change, nor does anything
// that owns a Task.
package checker
