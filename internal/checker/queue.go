package checker

import (
	"context"
	"time"

	"github.com/sluice-lb/sluice/internal/checker/due"
)

type taskState int

const (
	idle    taskState = iota // in the queue by due time
	waiting                  // due, in the ready list
	running                  // in the queue by deadline plus grace
	hanging                  // in neither
)

// task is a Task with its place in the schedule.
type task struct {
	Task
	state taskState
	// at is the queue's key; for a waiting task when it became due, for a hanging
	// one its deadline.
	at int64
	// keep is the due time that RunNow went ahead of, 0 for none.
	keep int64
	// delay is what Judge said last.
	delay  time.Duration
	cancel context.CancelFunc
	ref    due.Ref // in the queue, 0 outside
	// prev and next link the ready list.
	prev, next *task

	gone bool // guarded by Scheduler.mu
}

// fifo is the list of due tasks without a slot. First come, first served is
// round robin here: a task that ran comes back at the end.
type fifo struct {
	head, tail *task
	n          int
}

func (f *fifo) push(t *task) {
	t.prev, t.next = f.tail, nil
	if f.tail == nil {
		f.head = t
	} else {
		f.tail.next = t
	}
	f.tail = t
	f.n++
}

// pop returns nil when the list is empty.
func (f *fifo) pop() *task {
	t := f.head
	if t != nil {
		f.remove(t)
	}
	return t
}

func (f *fifo) remove(t *task) {
	if t.prev == nil {
		f.head = t.next
	} else {
		t.prev.next = t.next
	}
	if t.next == nil {
		f.tail = t.prev
	} else {
		t.next.prev = t.prev
	}
	t.prev, t.next = nil, nil
	f.n--
}
