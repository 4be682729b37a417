package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// ErrNoTable is returned while no table is connected.
var ErrNoTable = errors.New("apply: no IPVS table to write to")

// rounds bounds how often one Flush reads a service back and tries again after
// the table turned out to differ from the mirror.
const rounds = 3

// Flush writes what the facts recorded since the last one call for. Whatever could
// not be written stays due: the error says what, and calling Flush again retries.
func (a *Applier) Flush(ctx context.Context, now time.Time) error {
	if a.conn == nil {
		return ErrNoTable
	}
	var errs []error
	for round := range rounds {
		keys := a.dirty.take()
		if len(keys) == 0 {
			break
		}
		var stale staleSet
		stale, errs = a.write(ctx, keys, now)
		// A refusal that means "the table is not what you think" is mended by
		// reading it; any other has to wait for the next Flush. What is written to
		// has to be known, so that even drift report puts such a service right.
		errs = append(errs, a.resync(ctx, stale, now, modeRepair))
		if len(stale) == 0 || round == rounds-1 {
			break
		}
		errs = nil
	}
	return errors.Join(errs...)
}

// Pending reports whether a Flush has work left.
func (a *Applier) Pending() bool { return len(a.dirty.order) > 0 }

// work is one service's part of a Flush.
type work struct {
	key  ipvs.ServiceKey
	want *target
	plan plan
}

// write brings the given services from what they hold to what they should, and
// returns those whose mirror proved wrong. Services that met an error stay dirty.
func (a *Applier) write(ctx context.Context, keys []ipvs.ServiceKey, now time.Time) (stale staleSet, errs []error) {
	var ws []*work
	for _, k := range keys {
		want, ready := a.target(k)
		if !ready {
			a.dirty.add(k)
			continue
		}
		w := &work{key: k, want: want, plan: diff(a.mirror[k], want)}
		ws = append(ws, w)
		a.unpark(w)
	}
	stale = staleSet{}
	run := func(ops []ipvs.Op) {
		for i, err := range a.batch(ctx, ops) {
			if err == nil {
				continue
			}
			k := ops[i].Service.ServiceKey
			a.dirty.add(k)
			errs = append(errs, err)
			stale.add(k, err)
		}
	}

	var ops []ipvs.Op
	for _, w := range ws {
		ops = append(ops, w.plan.raise...)
	}
	run(ops)

	ops = ops[:0]
	for _, w := range ws {
		safe, held := a.safe(w, w.plan.cut)
		ops = append(ops, safe...)
		errs = append(errs, held...)
	}
	run(ops)

	ops = ops[:0]
	for _, w := range ws {
		if stale.has(w.key) {
			continue
		}
		safe, held := a.safe(w, w.plan.remove)
		ops = append(ops, safe...)
		errs = append(errs, held...)
		done, err := a.park(ctx, w, now)
		ops = append(ops, done...)
		if err != nil {
			a.dirty.add(w.key)
			errs = append(errs, err)
		}
	}
	run(ops)

	ops = ops[:0]
	for _, w := range ws {
		if m := a.mirror[w.key]; w.want == nil && m != nil && len(m.dests) == 0 && !stale.has(w.key) {
			// It takes its destinations along, those too that somebody added since
			// we looked.
			strangers, err := a.destinations(ctx, w.key)
			if err != nil {
				a.dirty.add(w.key)
				errs = append(errs, err)
				continue
			}
			if len(strangers) > 0 {
				a.dirty.add(w.key)
				stale[w.key] = false
				continue
			}
			ops = append(ops, ipvs.Op{Kind: ipvs.OpDelService, Service: m.service})
		}
	}
	run(ops)
	for _, w := range ws {
		if !a.dirty.set[w.key] {
			a.settle(w.key)
		}
	}
	return stale, errs
}

// safe returns the cuts or deletions that may be done now. If carrying them all
// out would leave a pool that should be usable without a usable destination, which
// can only be since a raise before them failed, none may.
func (a *Applier) safe(w *work, ops []ipvs.Op) (ok []ipvs.Op, held []error) {
	m := a.mirror[w.key]
	if len(ops) == 0 || m == nil || w.want == nil || !w.want.usable() {
		return ops, nil
	}
	left := m.usable()
	for _, op := range ops {
		if m.dests[op.Destination.DestinationKey].Weight > 0 && (op.Kind == ipvs.OpDelDest || op.Destination.Weight == 0) {
			left--
		}
	}
	if left > 0 {
		return ops, nil
	}
	a.dirty.add(w.key)
	return nil, []error{fmt.Errorf("%s: %d changes held back: without the additions that failed they would leave the service with no usable destination", w.key, len(ops))}
}

// batch applies operations and keeps the mirror in step with what was accepted.
func (a *Applier) batch(ctx context.Context, ops []ipvs.Op) []error {
	var errs []error
	switch len(ops) {
	case 0:
		return nil
	case 1:
		errs = []error{a.one(ctx, ops[0])}
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
		a.mirror[k] = newActual(op.Service)
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
		delete(a.parked, parkedKey{k, dk})
		delete(a.why, parkedKey{k, dk})
		delete(a.limits, parkedKey{k, dk})
	}
}

func (a *Applier) forget(k ipvs.ServiceKey) {
	m := a.mirror[k]
	if m == nil {
		return
	}
	for dk := range m.dests {
		delete(a.parked, parkedKey{k, dk})
		delete(a.why, parkedKey{k, dk})
		delete(a.limits, parkedKey{k, dk})
	}
	delete(a.mirror, k)
}
