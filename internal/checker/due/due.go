// Package due is a schedule: which of many things is due next.
//
// # Decisions
//
// A heap and not a timing wheel: the next due time is at its top, so that an idle
// checker sleeps until then and not until the next tick. Four children to a node
// halve its depth, and the keys lie in the heap itself, beside a number in place of
// a pointer: a move touches few cache lines and has nothing to tell the garbage
// collector.
package due

// Ref names a thing for as long as it is in a Queue. The zero Ref names nothing.
type Ref uint32

// Queue holds things by due time. The zero Queue is empty. What it holds may be
// moved and taken out wherever it is; in a steady state nothing allocates.
type Queue[T any] struct {
	heap []node
	// things and place are by Ref: the thing, and where its node is.
	things []*T
	place  []uint32
	free   []Ref
}

type node struct {
	at  int64
	ref Ref
}

// Len is how many things there are.
func (q *Queue[T]) Len() int { return len(q.heap) }

// Min is the thing that is due first, of several any; nil if there is none.
func (q *Queue[T]) Min() (*T, int64) {
	if len(q.heap) == 0 {
		return nil, 0
	}
	return q.things[q.heap[0].ref], q.heap[0].at
}

// Push puts a thing in.
func (q *Queue[T]) Push(thing *T, at int64) Ref {
	var ref Ref
	if n := len(q.free); n > 0 {
		ref, q.free = q.free[n-1], q.free[:n-1]
	} else {
		if len(q.things) == 0 { // the zero Ref
			q.things, q.place = append(q.things, nil), append(q.place, 0)
		}
		ref = Ref(len(q.things))
		q.things, q.place = append(q.things, nil), append(q.place, 0)
	}
	q.things[ref] = thing
	q.heap = append(q.heap, node{})
	q.up(len(q.heap)-1, node{at, ref})
	return ref
}

// Move changes when a thing is due.
func (q *Queue[T]) Move(ref Ref, at int64) {
	i := int(q.place[ref])
	if at < q.heap[i].at {
		q.up(i, node{at, ref})
	} else {
		q.down(i, node{at, ref})
	}
}

// At is when a thing is due.
func (q *Queue[T]) At(ref Ref) int64 { return q.heap[q.place[ref]].at }

// Remove takes a thing out. Its Ref may name another from then on.
func (q *Queue[T]) Remove(ref Ref) {
	i, last := int(q.place[ref]), len(q.heap)-1
	moved := q.heap[last]
	q.heap = q.heap[:last]
	q.things[ref] = nil
	q.free = append(q.free, ref)
	if i == last {
		return
	}
	if i > 0 && moved.at < q.heap[(i-1)/4].at {
		q.up(i, moved)
	} else {
		q.down(i, moved)
	}
}

func (q *Queue[T]) put(i int, n node) {
	q.heap[i] = n
	q.place[n.ref] = uint32(i)
}

// up puts n at the free place i or above it.
func (q *Queue[T]) up(i int, n node) {
	for i > 0 {
		p := (i - 1) / 4
		if q.heap[p].at <= n.at {
			break
		}
		q.put(i, q.heap[p])
		i = p
	}
	q.put(i, n)
}

// down puts n at the free place i or below it.
func (q *Queue[T]) down(i int, n node) {
	for {
		first := 4*i + 1
		if first >= len(q.heap) {
			break
		}
		least := first
		for c := first + 1; c < min(first+4, len(q.heap)); c++ {
			if q.heap[c].at < q.heap[least].at {
				least = c
			}
		}
		if n.at <= q.heap[least].at {
			break
		}
		q.put(i, q.heap[least])
		i = least
	}
	q.put(i, n)
}
