package apply

import (
	"errors"
	"slices"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// due is what a Flush has to look at.
//
// What cannot wait is urgent: single destinations that a verdict or a weight moved,
// and services that lost their quorum. What a start, a reload, a quorum that is back
// or a table read anew asks for is bulk: whole services, which are written in
// portions so that what is urgent never waits for more than one of them.
type due struct {
	urgent, bulk queue
	// held met an error, or belong to a virtual server that is not initialised. They
	// wait for the next run of Flush.
	held queue
}

// queue keeps the order in which services were marked.
type queue struct {
	order []ipvs.ServiceKey
	marks map[ipvs.ServiceKey]*mark
}

// mark is what is due of a service.
type mark struct {
	// whole: all of it; else what is at these positions.
	whole bool
	some  []position
	// from is how many of its claims have been raised already, in their order. It saves
	// a long installation from looking at all of them with every portion.
	from int
	// urgent: it was, before it was held.
	urgent bool
	errs   []error
}

func (q *queue) len() int { return len(q.marks) }

func (q *queue) has(k ipvs.ServiceKey) bool { return q.marks[k] != nil }

func (q *queue) mark(k ipvs.ServiceKey) *mark {
	if q.marks == nil {
		q.marks = map[ipvs.ServiceKey]*mark{}
	}
	m := q.marks[k]
	if m == nil {
		m = &mark{}
		q.marks[k] = m
		q.order = append(q.order, k)
	}
	return m
}

// whole marks all of a service.
func (q *queue) whole(k ipvs.ServiceKey) {
	m := q.mark(k)
	m.whole, m.some, m.from = true, nil, 0
}

// part marks one destination, by a claim of it.
func (q *queue) part(k ipvs.ServiceKey, p position) {
	m := q.mark(k)
	if n := len(m.some); !m.whole && (n == 0 || m.some[n-1] != p) {
		m.some = append(m.some, p)
	}
}

// drop unmarks a service; its place in the order stays.
func (q *queue) drop(k ipvs.ServiceKey) { delete(q.marks, k) }

// take empties the queue.
func (q *queue) take() (order []ipvs.ServiceKey, marks map[ipvs.ServiceKey]*mark) {
	order, marks = slices.DeleteFunc(q.order, func(k ipvs.ServiceKey) bool { return !q.has(k) }), q.marks
	*q = queue{}
	return order, marks
}

// first returns the service that has waited longest.
func (q *queue) first() (k ipvs.ServiceKey, ok bool) {
	for len(q.order) > 0 {
		if k = q.order[0]; q.has(k) {
			return k, true
		}
		q.order = q.order[1:]
	}
	*q = queue{}
	return k, false
}

func (d *due) pending() bool { return d.urgent.len()+d.bulk.len()+d.held.len() > 0 }

// hold puts a service aside until the next run.
func (d *due) hold(k ipvs.ServiceKey, urgent bool, err error) {
	m := d.held.mark(k)
	m.urgent = m.urgent || urgent
	if err != nil {
		m.errs = append(m.errs, err)
	}
}

// resume has what was put aside tried again.
func (d *due) resume() {
	order, marks := d.held.take()
	for _, k := range order {
		if marks[k].urgent {
			d.urgent.whole(k)
		} else {
			d.bulk.whole(k)
		}
	}
}

// abandon puts everything aside.
func (d *due) abandon() {
	for _, q := range []*queue{&d.urgent, &d.bulk} {
		order, _ := q.take()
		for _, k := range order {
			d.hold(k, q == &d.urgent, nil)
		}
	}
}

// errs are those of what is put aside.
func (d *due) errs() error {
	var all []error
	for _, k := range d.held.order {
		if m := d.held.marks[k]; m != nil {
			all = append(all, m.errs...)
		}
	}
	return errors.Join(all...)
}

// replaced makes whole what is marked by positions of a configuration that is gone.
func (d *due) replaced() {
	for _, m := range d.urgent.marks {
		m.whole, m.some = true, nil
	}
}
