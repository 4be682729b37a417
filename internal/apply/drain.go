package apply

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// parkedKey names a destination over all services.
type parkedKey struct {
	service ipvs.ServiceKey
	dest    ipvs.DestinationKey
}

// drain is one destination that waits for its connections to end.
type drain struct {
	since    time.Time
	why      string
	counters ipvs.Counters
}

// unpark takes destinations off the drain list that are wanted again. Their weight
// comes back in place, with the plan that was just made.
func (a *Applier) unpark(w *work) {
	if w.want == nil {
		return
	}
	for _, dk := range w.want.order {
		k := parkedKey{w.key, dk}
		if d, ok := a.parked[k]; ok {
			delete(a.parked, k)
			a.log.Info("Drain cancelled, the destination is wanted again", "service", w.key.String(), "destination", dk.String(), "draining_since", d.since)
		}
		delete(a.why, k)
	}
}

// park puts the departing destinations that are not on the drain list yet there.
// Their weight is 0 by now, so their counters can only fall: those already at zero
// are returned to be deleted.
func (a *Applier) park(ctx context.Context, w *work, now time.Time) (done []ipvs.Op, err error) {
	var fresh []parkedKey
	for _, dk := range w.plan.depart {
		k := parkedKey{w.key, dk}
		m := a.mirror[w.key]
		if m == nil || m.dests[dk].Weight != 0 {
			continue // the cut was refused or held back
		}
		if _, ok := a.parked[k]; !ok {
			fresh = append(fresh, k)
		}
	}
	if len(fresh) == 0 {
		return nil, nil
	}
	for _, k := range fresh {
		a.parked[k] = &drain{since: now, why: a.whyLeaves(w.want, k)}
	}
	counters, err := a.counters(ctx, w.key)
	if err != nil {
		// They are parked: the ticker reads again.
		return nil, nil
	}
	for _, k := range fresh {
		c := counters[k.dest]
		a.parked[k].counters = c
		if idle(c) {
			a.log.Info("Removing destination, it has no connections", "service", k.service.String(), "destination", k.dest.String(), "why", a.parked[k].why)
			done = append(done, a.deletion(k))
			continue
		}
		a.log.Info("Draining destination", "service", k.service.String(), "destination", k.dest.String(),
			"why", a.parked[k].why, "active", c.Active, "inactive", c.Inactive, "persistent", c.Persistent, "drain_timeout", a.timeout(k.service))
	}
	return done, nil
}

func (a *Applier) whyLeaves(want *target, k parkedKey) string {
	if want != nil {
		if w, ok := want.why[k.dest]; ok {
			return w
		}
	}
	if w, ok := a.why[k]; ok {
		return w
	}
	if want == nil {
		return whyVSRemoved
	}
	return whyRemoved
}

func (a *Applier) deletion(k parkedKey) ipvs.Op {
	m := a.mirror[k.service]
	return ipvs.Op{Kind: ipvs.OpDelDest, Service: m.service, Destination: m.dests[k.dest]}
}

// idle is the whole condition for the end of a drain. The sum is 64 bits wide:
// each counter may use all of its 32.
func idle(c ipvs.Counters) bool { return uint64(c.Active)+uint64(c.Inactive) == 0 }

func (a *Applier) counters(ctx context.Context, k ipvs.ServiceKey) (map[ipvs.DestinationKey]ipvs.Counters, error) {
	ds, err := a.conn.Destinations(ctx, k)
	if err != nil {
		return nil, err
	}
	cs := make(map[ipvs.DestinationKey]ipvs.Counters, len(ds))
	for _, d := range ds {
		cs[d.DestinationKey] = d.Counters
	}
	return cs, nil
}

// Tick looks at every parked destination: one read for each service that has one,
// then the deletion of those without connections or past their drain_timeout, then
// of the leaving services that are empty. A service that cannot be read whole is
// left for the next tick: nothing is ever deleted on the strength of a partial
// read.
func (a *Applier) Tick(ctx context.Context, now time.Time) error {
	if a.conn == nil {
		return ErrNoTable
	}
	byService := map[ipvs.ServiceKey][]parkedKey{}
	var services []ipvs.ServiceKey
	for k := range a.parked {
		if len(byService[k.service]) == 0 {
			services = append(services, k.service)
		}
		byService[k.service] = append(byService[k.service], k)
	}
	slices.SortFunc(services, func(x, y ipvs.ServiceKey) int { return strings.Compare(x.String(), y.String()) })
	var errs []error
	var ops []ipvs.Op
	for _, s := range services {
		counters, err := a.counters(ctx, s)
		if err != nil {
			errs = append(errs, fmt.Errorf("drain of %s waits for the next tick: %w", s, err))
			continue
		}
		for _, k := range byService[s] {
			d := a.parked[k]
			c, there := counters[k.dest]
			if !there {
				// Somebody else deleted it, or its whole service. Let Flush find out.
				if err := a.resync(ctx, s); err != nil {
					errs = append(errs, err)
				}
				break
			}
			d.counters = c
			deadline := a.deadline(k)
			switch {
			case idle(c):
				a.log.Info("Drained, removing destination", "service", s.String(), "destination", k.dest.String(), "why", d.why, "took", now.Sub(d.since).Round(time.Millisecond))
				ops = append(ops, a.deletion(k))
			case !deadline.IsZero() && !now.Before(deadline):
				a.log.Warn("Drain timed out, removing destination and cutting its connections", "service", s.String(), "destination", k.dest.String(),
					"why", d.why, "active", c.Active, "inactive", c.Inactive, "drain_timeout", a.timeout(s))
				ops = append(ops, a.deletion(k))
			}
		}
	}
	for i, err := range a.batch(ctx, ops) {
		if err != nil {
			errs = append(errs, err)
			if stalest(err) {
				errs = append(errs, a.resync(ctx, ops[i].Service.ServiceKey))
			}
		}
	}
	// A leaving service goes with its last destination.
	for k, m := range a.mirror {
		if len(a.owners[k]) == 0 && len(m.dests) == 0 {
			a.dirty.add(k)
		}
	}
	if a.Pending() {
		errs = append(errs, a.Flush(ctx, now))
	}
	return errors.Join(errs...)
}

func (a *Applier) deadline(k parkedKey) time.Time {
	if t := a.timeout(k.service); t > 0 {
		return a.parked[k].since.Add(t)
	}
	return time.Time{}
}

// Draining returns how many destinations are parked and the earliest moment at
// which a drain_timeout ends one; zero without any.
func (a *Applier) Draining() (n int, next time.Time) {
	for k := range a.parked {
		if d := a.deadline(k); !d.IsZero() && (next.IsZero() || d.Before(next)) {
			next = d
		}
	}
	return len(a.parked), next
}

// WaitsFor says what a drain still waits for.
func WaitsFor(c ipvs.Counters) string {
	switch {
	case idle(c):
		return "the next tick"
	case c.Inactive == 0:
		return fmt.Sprintf("%d active connections", c.Active)
	case c.Active == 0:
		return fmt.Sprintf("%d inactive connections", c.Inactive)
	}
	return fmt.Sprintf("%d active and %d inactive connections", c.Active, c.Inactive)
}
