package apply

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// ErrNoTable is returned while no table is connected.
var ErrNoTable = errors.New("apply: no IPVS table to write to")

const (
	// rounds bounds how often one Flush reads a service back and tries again after
	// the table turned out to differ from the mirror.
	rounds = 3
	// portion is about how many operations of bulk work one Flush makes. It takes
	// eight sends, a few milliseconds.
	portion = 1024
)

// Flush writes what the facts recorded since the last one call for: all that is
// urgent, then one portion of the bulk. While portions are left (More), it returns nil
// and wants to be called again at once, after what else has happened was recorded; the
// last one returns what was refused in all of them. Whatever could not be written
// stays due: the error says what, and calling Flush again retries.
func (a *Applier) Flush(ctx context.Context, now time.Time) error {
	if a.conn == nil {
		return ErrNoTable
	}
	if !a.more {
		a.due.resume()
	}
	a.more = false
	left := a.portion
	for round := range rounds {
		stale := staleSet{}
		ws, before := a.urgentWork(), a.operations
		a.write(ctx, ws, stale, now)
		a.toldUrgent(ws, before)
		ws, left = a.bulkWork(left)
		a.write(ctx, ws, stale, now)
		if len(stale) == 0 {
			break
		}
		// A refusal that means "the table is not what you think" is mended by
		// reading it; any other has to wait for the next run. What is written to
		// has to be known, so that even drift report puts such a service right.
		if err := a.resync(ctx, stale, now, modeRepair); err != nil {
			a.due.abandon()
			return errors.Join(a.due.errs(), err)
		}
		for _, k := range slices.SortedFunc(maps.Keys(stale), compareServices) {
			a.due.bulk.drop(k)
			if round == rounds-1 {
				a.due.hold(k, true, nil)
				continue
			}
			a.due.held.drop(k)
			a.due.urgent.whole(k)
		}
	}
	if ctx.Err() != nil {
		a.due.abandon()
	}
	_, bulk := a.due.bulk.first()
	if a.more = bulk || a.due.urgent.len() > 0; a.more {
		return nil
	}
	return a.due.errs()
}

// Pending reports whether a Flush has work left, be it only to try again.
func (a *Applier) Pending() bool { return a.due.pending() }

// More reports whether the last Flush stopped at the end of a portion.
func (a *Applier) More() bool { return a.more }

// work is one service's part of a Flush.
type work struct {
	key  ipvs.ServiceKey
	want *target
	plan plan
	// urgent: it goes before the bulk, and again if it fails.
	urgent bool
	// later: its bulk is still to come, and makes what cannot be made safely now.
	later bool
	// failed: it met an error.
	failed bool
}

// urgentWork takes everything urgent.
func (a *Applier) urgentWork() (ws []*work) {
	order, marks := a.due.urgent.take()
	for _, k := range order {
		m := marks[k]
		if m.whole {
			a.due.bulk.drop(k)
		} else if a.mirror[k] == nil {
			// There is nothing to take out of it yet.
			a.due.bulk.whole(k)
			continue
		}
		if w := a.newWork(k, m.some, m.whole, true, math.MaxInt); w != nil {
			w.later = a.due.bulk.has(k)
			ws = append(ws, w)
		}
	}
	return ws
}

// bulkWork takes the services that wait longest, up to about limit operations.
func (a *Applier) bulkWork(limit int) (ws []*work, left int) {
	for limit > 0 {
		k, ok := a.due.bulk.first()
		if !ok {
			break
		}
		m := a.due.bulk.marks[k]
		long := a.room(k)-m.from > limit
		var w *work
		if long {
			// All raises come before the first cut, so that it does to look at the
			// next claims and to take their raises. The last portion looks at all.
			w = a.newWork(k, a.positions(k, m.from, limit), false, false, math.MaxInt)
			m.from += limit
		} else {
			w = a.newWork(k, nil, true, false, limit)
		}
		if w == nil {
			a.due.bulk.drop(k)
			continue
		}
		if long {
			if w.plan = (plan{raise: w.plan.raise, more: true}); w.plan.size() == 0 {
				continue
			}
		}
		limit -= w.plan.size()
		if ws = append(ws, w); w.plan.more {
			w.later = true
			break // what is left of it is the first of the next portion
		}
		a.due.bulk.drop(k)
	}
	return ws, limit
}

// newWork computes what there is to do; nil for a service that is not initialised.
func (a *Applier) newWork(k ipvs.ServiceKey, some []position, whole, urgent bool, limit int) *work {
	if a.staying[k] && len(a.owners[k]) == 0 {
		return nil
	}
	want, ready := a.target(k, some, whole)
	if !ready {
		a.due.hold(k, urgent, nil)
		return nil
	}
	w := &work{key: k, want: want, plan: diff(a.mirror[k], want, limit), urgent: urgent}
	a.unpark(w)
	return w
}

// positions are n of a service's claims, in order.
func (a *Applier) positions(k ipvs.ServiceKey, from, n int) []position {
	some := make([]position, 0, n)
	for _, c := range a.owners[k] {
		for i := from; i < c.vs.positions() && len(some) < n; i++ {
			some = append(some, position{c, int32(i)})
		}
		from = max(from-c.vs.positions(), 0)
	}
	return some
}

// fail puts a service aside.
func (a *Applier) fail(w *work, err error) {
	w.failed = true
	a.due.bulk.drop(w.key)
	a.due.hold(w.key, w.urgent, err)
}

// write brings services from what they hold to what they should, and adds to stale
// those whose mirror proved wrong. Services that met an error are put aside.
func (a *Applier) write(ctx context.Context, ws []*work, stale staleSet, now time.Time) {
	if len(ws) == 0 {
		return
	}
	byKey := make(map[ipvs.ServiceKey]*work, len(ws))
	for _, w := range ws {
		byKey[w.key] = w
	}
	var ops []ipvs.Op
	run := func() {
		for i, err := range a.batch(ctx, ops) {
			if err == nil {
				continue
			}
			k := ops[i].Service.ServiceKey
			a.fail(byKey[k], err)
			stale.add(k, err)
		}
		ops = ops[:0]
	}

	for _, w := range ws {
		ops = append(ops, w.plan.raise...)
	}
	run()

	for _, w := range ws {
		ops = append(ops, a.safe(w, w.plan.cut)...)
	}
	run()

	for _, w := range ws {
		if stale.has(w.key) {
			continue
		}
		ops = append(ops, a.safe(w, w.plan.remove)...)
		ops = append(ops, a.park(ctx, w, now)...)
	}
	run()

	for _, w := range ws {
		if m := a.mirror[w.key]; w.want == nil && m != nil && m.len() == 0 && !stale.has(w.key) {
			// It takes its destinations along, those too that somebody added since
			// we looked.
			strangers, err := a.destinations(ctx, nil, w.key)
			if err != nil {
				a.fail(w, err)
				continue
			}
			if len(strangers) > 0 {
				a.fail(w, nil)
				stale[w.key] = false
				continue
			}
			ops = append(ops, ipvs.Op{Kind: ipvs.OpDelService, Service: m.service})
		}
	}
	run()
	for _, w := range ws {
		if !w.failed && !w.later && !a.due.held.has(w.key) {
			a.settle(w.key)
		}
	}
}

// safe returns the cuts or deletions that may be done now. If carrying them all
// out would leave a pool that should be usable without a usable destination, which
// can only be since a raise before them failed or is still to come, none may.
func (a *Applier) safe(w *work, ops []ipvs.Op) []ipvs.Op {
	m := a.mirror[w.key]
	if len(ops) == 0 || m == nil || w.want == nil {
		return ops
	}
	left := m.usable
	for _, op := range ops {
		if (op.Kind == ipvs.OpDelDest || op.Destination.Weight == 0) && m.weight(op.Destination.DestinationKey) > 0 {
			left--
		}
	}
	switch {
	case left > 0 || !a.usable(w.key):
		return ops
	case !w.later:
		a.fail(w, fmt.Errorf("%s: %d changes held back: without the additions that failed they would leave the service with no usable destination", w.key, len(ops)))
	}
	return nil
}

// batch applies operations and keeps the mirror in step with what was accepted.
func (a *Applier) batch(ctx context.Context, ops []ipvs.Op) []error {
	var errs []error
	switch len(ops) {
	case 0:
		return nil
	case 1:
		begun := time.Now()
		errs = []error{a.one(ctx, ops[0])}
		a.wrote(ops[0], errs[0], begun)
	default:
		errs = a.conn.Batch(ctx, ops)
	}
	for i, err := range errs {
		if err == nil {
			a.operations++
			a.applied(ops[i])
		}
	}
	return errs
}

func (a *Applier) one(ctx context.Context, op ipvs.Op) error {
	switch op.Kind {
	case ipvs.OpAddService:
		return a.conn.AddService(ctx, op.Service)
	case ipvs.OpSetService:
		return a.conn.SetService(ctx, op.Service)
	case ipvs.OpDelService:
		return a.conn.DelService(ctx, op.Service)
	case ipvs.OpAddDest:
		return a.conn.AddDest(ctx, op.Service, op.Destination)
	case ipvs.OpSetDest:
		return a.conn.SetDest(ctx, op.Service, op.Destination)
	case ipvs.OpDelDest:
		return a.conn.DelDest(ctx, op.Service, op.Destination)
	}
	return fmt.Errorf("%s: unknown operation", op)
}

// applied updates the mirror.
func (a *Applier) applied(op ipvs.Op) {
	k := op.Service.ServiceKey
	m := a.mirror[k]
	switch op.Kind {
	case ipvs.OpAddService:
		a.move(k)
		a.mirror[k] = newActual(op.Service, a.room(k))
	case ipvs.OpSetService:
		if m != nil {
			m.service = op.Service
		}
	case ipvs.OpDelService:
		a.forget(k)
	case ipvs.OpAddDest, ipvs.OpSetDest:
		if m != nil {
			m.put(op.Destination)
		}
	case ipvs.OpDelDest:
		dk := op.Destination.DestinationKey
		if m != nil {
			m.drop(dk)
		}
		a.forgetDest(parkedKey{k, dk})
	}
}

// room is how many destinations a service will hold at most.
func (a *Applier) room(k ipvs.ServiceKey) (n int) {
	for _, c := range a.owners[k] {
		n += c.vs.positions()
	}
	return n
}

// forgetDest forgets what is known of a destination that is gone.
func (a *Applier) forgetDest(k parkedKey) {
	a.parked.remove(k)
	delete(a.limits, k)
}

func (a *Applier) forget(k ipvs.ServiceKey) {
	m := a.mirror[k]
	if m == nil {
		return
	}
	if a.parked.in(k) > 0 || len(a.limits) > 0 {
		for d := range m.all() {
			a.forgetDest(parkedKey{k, d.DestinationKey})
		}
	}
	a.move(k)
	delete(a.staying, k)
	delete(a.mirror, k)
}
