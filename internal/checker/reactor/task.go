package reactor

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/checker/due"
	"github.com/sluice-lb/sluice/internal/config"
)

type state uint8

const (
	fresh   state = iota // its command is still in the inbox
	idle                 // in the queue by due time
	waiting              // due and without a place, in the line by due time
	running              // in the queue by the deadline of its connection
	removed
)

// task is a checker.Task with its place in the schedule. There are many of them:
// what only a run under way needs is in its link.
type task struct {
	id           checker.ID
	conversation checker.Conversation
	judge        checker.Judge
	timeout      int64
	// due is when the run under way was due, began when it began, and keep the due
	// time that RunNow went ahead of, 0 for none.
	due, began, keep int64
	// next replaces the conversation and the timeout once the run has ended.
	next *checker.Task
	link *link

	// to is the target of the connection; it stays for as long as runs ask for the
	// same.
	connection *config.Connection
	pool       *pool
	to         dial.Address

	ref   due.Ref // in the queue or the line
	state state
	// selfish: the kernel may draw the target's port as source port.
	selfish bool

	// gone: Remove was called, even if its command is still in the inbox.
	gone atomic.Bool
}

// until is the deadline of the whole run.
func (t *task) until() int64 { return later(t.began, t.timeout) }

// following is when a task runs again whose run ended now and shall be followed by
// another after delay. What the loop was late to begin is not passed on: the
// period stays what was asked for, and tasks that had to wait together, for
// whatever reason, do not go on together.
func following(due, began, now, delay int64) int64 {
	at := later(now, delay)
	late := began - due
	switch {
	case late <= 0 || delay == 0:
		return at
	case late > delay/2:
		// So late that turns were missed, as after a suspension: the phase is kept, and
		// half of the delay at least.
		if late %= delay; late > delay/2 {
			return later(at, delay-late)
		}
	}
	return at - late
}

// later adds without overflow.
func later(at, d int64) int64 {
	if d > math.MaxInt64-at {
		return math.MaxInt64
	}
	return at + d
}

type verb uint8

const (
	add verb = iota
	remove
	update
	runNow
)

type command struct {
	t    *task
	with *checker.Task // for update
	at   int64
	verb verb
}

// link is a connection under way, or a socket that waits to be used again.
type link struct {
	t    *task
	pool *pool // where it goes back to; nil if it is closed
	send []byte
	fd   int
	tag  tag
	// seen is what was reported and not dealt with.
	seen uint32
	step checker.Step
	// listen: the conversation wants to hear the answer.
	listen bool
	again  bool // in Loop.again
}

// pool holds sockets to use again: of one family, source, interface and mark.
type pool struct {
	key  poolKey
	idle []*link
	// users are the tasks whose connections are of this kind.
	users int
}

type poolKey struct {
	family int32
	conn   config.Connection // without target, timeout and port
}

// kept bounds the sockets that wait in a pool: more than a batch needs are of use
// only in a crowd.
const kept = 64

const (
	defaultTimeout = int64(checker.DefaultTimeout)
	// tick is what wakeups are rounded up to.
	tick = int64(4 * time.Millisecond)
	// batch is how many connections are begun before their events are looked for.
	batch = 32
	// reads bounds the reads for one event: who sends without end must not keep the
	// loop.
	reads = 8
)
