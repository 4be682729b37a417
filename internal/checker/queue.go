package checker

import (
	"context"
	"time"
)

type taskState int

const (
	idle    taskState = iota // in the heap by due time
	waiting                  // due, in the ready list
	running                  // in the heap by deadline plus grace
	hanging                  // in neither
)

// task is a Task with its place in the schedule.
type task struct {
	Task
	state taskState
	// at is the heap's key; for a waiting task when it became due, for a hanging
	// one its deadline.
	at int64
	// keep is the due time that RunNow went ahead of, 0 for none.
	keep int64
	// delay is what Judge said last.
	delay  time.Duration
	cancel context.CancelFunc
	index  int // in the heap, -1 outside
	// prev and next link the ready list.
	prev, next *task

	gone bool // guarded by Scheduler.mu
}

// taskHeap is a binary min-heap by task.at that knows each task's place. It is
// container/heap without the interface calls and conversions, which are half of
// the cost of a simulated hour.
type taskHeap []*task

func (h *taskHeap) push(t *task) {
	t.index = len(*h)
	*h = append(*h, t)
	h.up(t.index)
}

func (h *taskHeap) pop() *task {
	t := (*h)[0]
	h.remove(t)
	return t
}

// remove takes a task out, wherever it is.
func (h *taskHeap) remove(t *task) {
	i, last := t.index, len(*h)-1
	if i < 0 {
		return
	}
	h.swap(i, last)
	(*h)[last] = nil
	*h = (*h)[:last]
	t.index = -1
	if i < last {
		h.down(i)
		h.up(i)
	}
}

func (h taskHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h taskHeap) up(i int) {
	for i > 0 {
		p := (i - 1) / 2
		if h[p].at <= h[i].at {
			return
		}
		h.swap(i, p)
		i = p
	}
}

func (h taskHeap) down(i int) {
	for {
		c := 2*i + 1
		if c >= len(h) {
			return
		}
		if c+1 < len(h) && h[c+1].at < h[c].at {
			c++
		}
		if h[i].at <= h[c].at {
			return
		}
		h.swap(i, c)
		i = c
	}
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
