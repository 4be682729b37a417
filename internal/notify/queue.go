package notify

import "container/list"

// queue is what waits. It is a plain value without clock or lock.
type queue struct {
	max   int // most notices that may wait
	size  int // notices that wait
	lines map[string]*line
	// ready holds the virtual servers with something that may start now, the one
	// that has waited longest first.
	ready []string
}

// line is one virtual server's part: at most one notice for each subject.
type line struct {
	order   list.List // of Notice
	bySubj  map[string]*list.Element
	running bool
}

func newQueue(most int) *queue { return &queue{max: most, lines: map[string]*line{}} }

// put appends a notice and removes the one about the same subject that waits. It
// is false if there is no room.
func (q *queue) put(n Notice) bool {
	l := q.lines[n.VS]
	old := (*list.Element)(nil)
	if l != nil {
		old = l.bySubj[n.RS]
	}
	switch {
	case old != nil:
		l.order.Remove(old)
	case q.size >= q.max:
		return false
	default:
		q.size++
	}
	if l == nil {
		l = &line{bySubj: map[string]*list.Element{}}
		q.lines[n.VS] = l
	}
	if old == nil && l.order.Len() == 0 && !l.running {
		q.ready = append(q.ready, n.VS)
	}
	l.bySubj[n.RS] = l.order.PushBack(n)
	return true
}

// take hands out the next notice whose virtual server has none running. With
// quorumFirst a quorum is told of before the servers.
func (q *queue) take(quorumFirst bool) (Notice, bool) {
	if len(q.ready) == 0 {
		return Notice{}, false
	}
	l := q.lines[q.ready[0]]
	q.ready = q.ready[1:]
	e := l.order.Front()
	if quorum := l.bySubj[""]; quorumFirst && quorum != nil {
		e = quorum
	}
	n := l.order.Remove(e).(Notice)
	delete(l.bySubj, n.RS)
	l.running = true
	q.size--
	return n, true
}

// done says that what take handed out for the virtual server has ended.
func (q *queue) done(vs string) {
	l := q.lines[vs]
	l.running = false
	if l.order.Len() > 0 {
		q.ready = append(q.ready, vs)
		return
	}
	delete(q.lines, vs)
}

// clear forgets what waits and says how much that was.
func (q *queue) clear() int {
	n := q.size
	for vs, l := range q.lines {
		l.order.Init()
		clear(l.bySubj)
		if !l.running {
			delete(q.lines, vs)
		}
	}
	q.size, q.ready = 0, nil
	return n
}
