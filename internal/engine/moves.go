package engine

import (
	"container/heap"
	"time"
)

// moves are the virtual servers in which time alone will change something, with the
// first of all at the top.
type moves []*server

func (m moves) Len() int           { return len(m) }
func (m moves) Less(i, j int) bool { return m[i].moveAt.Before(m[j].moveAt) }

func (m moves) Swap(i, j int) {
	m[i], m[j] = m[j], m[i]
	m[i].move, m[j].move = i+1, j+1
}

// Push implements heap.Interface.
func (m *moves) Push(x any) {
	vs := x.(*server)
	*m = append(*m, vs)
	vs.move = len(*m)
}

// Pop implements heap.Interface.
func (m *moves) Pop() any {
	last := (*m)[len(*m)-1]
	(*m)[len(*m)-1] = nil
	*m = (*m)[:len(*m)-1]
	last.move = 0
	return last
}

// arm keeps a virtual server at its place.
func (m *moves) arm(vs *server) {
	at := vs.NextAt()
	placed := vs.move > 0
	switch {
	case !placed && at.IsZero(), placed && at.Equal(vs.moveAt):
	case at.IsZero():
		heap.Remove(m, vs.move-1)
	case placed:
		vs.moveAt = at
		heap.Fix(m, vs.move-1)
	default:
		vs.moveAt = at
		heap.Push(m, vs)
	}
}

// disarm forgets a virtual server.
func (m *moves) disarm(vs *server) {
	if vs.move > 0 {
		heap.Remove(m, vs.move-1)
	}
}

// next is when time alone changes something; zero for never.
func (m moves) next() time.Time {
	if len(m) == 0 {
		return time.Time{}
	}
	return m[0].moveAt
}

// advanceDue lets time pass where it changes something: holds end and weights rise.
func (e *Engine) advanceDue(now time.Time) {
	for len(e.moves) > 0 && !now.Before(e.moves[0].moveAt) {
		e.catchUp(e.moves[0], now)
	}
}
