package apply

import (
	"cmp"
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
	since time.Time
	why   string
	// limit bounds it; 0 is no bound.
	limit    time.Duration
	counters ipvs.Counters
	watched
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
		a.parked[k] = &drain{since: now, why: a.whyLeaves(w.want, k), limit: a.limit(k)}
	}
	infos, err := a.destinations(ctx, w.key)
	if err != nil {
		// They are parked: the ticker reads again.
		return nil, nil
	}
	seen := make(map[ipvs.DestinationKey]ipvs.DestinationInfo, len(infos))
	for _, d := range infos {
		seen[d.DestinationKey] = d
	}
	for _, k := range fresh {
		c := seen[k.dest].Counters
		a.observe(k, seen[k.dest], now)
		if idle(c) {
			a.log.Info("Removing destination, it has no connections", "service", k.service.String(), "destination", k.dest.String(), "why", a.parked[k].why)
			done = append(done, a.deletion(k))
			continue
		}
		a.log.Info("Draining destination", "service", k.service.String(), "destination", k.dest.String(),
			"why", a.parked[k].why, "active", c.Active, "inactive", c.Inactive, "persistent", c.Persistent, "drain_timeout", a.parked[k].limit)
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

// drainList returns the parked destinations, those of a service together.
func (a *Applier) drainList() []parkedKey {
	keys := make([]parkedKey, 0, len(a.parked))
	for k := range a.parked {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(x, y parkedKey) int {
		return cmp.Or(compareServices(x.service, y.service), strings.Compare(x.dest.String(), y.dest.String()))
	})
	return keys
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
	keys := a.drainList()
	seen := map[parkedKey]ipvs.DestinationInfo{}
	unread := map[ipvs.ServiceKey]bool{}
	var errs []error
	for i, k := range keys {
		if i > 0 && keys[i-1].service == k.service {
			continue
		}
		infos, err := a.destinations(ctx, k.service)
		if err != nil {
			unread[k.service] = true
			errs = append(errs, fmt.Errorf("drain of %s waits for the next tick: %w", k.service, err))
			continue
		}
		for _, d := range infos {
			seen[parkedKey{k.service, d.DestinationKey}] = d
		}
	}
	keys = slices.DeleteFunc(keys, func(k parkedKey) bool { return unread[k.service] })
	return errors.Join(append(errs, a.endDrains(ctx, keys, seen, now))...)
}

// endDrains deletes, of the given destinations, those that have no connections or
// no time left. seen is what they were when they were parked already.
func (a *Applier) endDrains(ctx context.Context, keys []parkedKey, seen map[parkedKey]ipvs.DestinationInfo, now time.Time) error {
	var errs []error
	var ops []ipvs.Op
	stale := staleSet{}
	for _, k := range keys {
		d := a.parked[k]
		if d == nil {
			continue // it is wanted again
		}
		info, there := seen[k]
		if !there {
			// Somebody else deleted it, or its whole service.
			stale[k.service] = false
			continue
		}
		deadline := d.deadline()
		expired := !deadline.IsZero() && !now.Before(deadline)
		if info.Weight != 0 && !expired {
			stale[k.service] = false // somebody gave it its weight back
			continue
		}
		a.observe(k, info, now)
		switch c := info.Counters; {
		case idle(c):
			a.log.Info("Drained, removing destination", "service", k.service.String(), "destination", k.dest.String(), "why", d.why, "took", now.Sub(d.since).Round(time.Millisecond))
			ops = append(ops, a.deletion(k))
		case expired:
			a.log.Warn("Drain timed out, removing destination and cutting its connections", "service", k.service.String(), "destination", k.dest.String(),
				"why", d.why, "active", c.Active, "inactive", c.Inactive, "drain_timeout", d.limit)
			ops = append(ops, a.deletion(k))
		}
	}
	for i, err := range a.batch(ctx, ops) {
		if err != nil {
			errs = append(errs, err)
			stale.add(ops[i].Service.ServiceKey, err)
		}
	}
	errs = append(errs, a.resync(ctx, stale, now, a.mode()))
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

// limit returns the bound of one destination's drain: that of its real server as it
// is configured, or was when it last had one of its own; else its service's.
func (a *Applier) limit(k parkedKey) time.Duration {
	cs := a.owners[k.service]
	if len(cs) > 0 && datagram(k.service) {
		return cs[0].vs.UDPDrainTimeout
	}
	for _, c := range cs {
		for _, rs := range c.vs.Servers {
			if at(rs.Dest, k.service).DestinationKey == k.dest {
				return rs.DrainTimeout
			}
		}
	}
	if t, ok := a.limits[k]; ok && !datagram(k.service) {
		return t
	}
	if len(cs) > 0 {
		return cs[0].vs.DrainTimeout
	}
	if m := a.mirror[k.service]; m != nil {
		return m.timeout
	}
	return 0
}

// keepLimits remembers, before a configuration is replaced, which destinations have
// a drain_timeout of their own.
func (a *Applier) keepLimits() {
	for _, c := range a.vss {
		a.keepLimitsOf(c)
	}
}

func (a *Applier) keepLimitsOf(c *claim) {
	for _, rs := range c.vs.Servers {
		for _, s := range c.vs.Services {
			k := parkedKey{s.ServiceKey, at(rs.Dest, s.ServiceKey).DestinationKey}
			m := a.mirror[s.ServiceKey]
			switch {
			case m == nil || !m.has(k.dest):
			case rs.DrainTimeout != c.vs.DrainTimeout:
				a.limits[k] = rs.DrainTimeout
			default:
				delete(a.limits, k)
			}
		}
	}
}

func (d *drain) deadline() time.Time {
	if d.limit > 0 {
		return d.since.Add(d.limit)
	}
	return time.Time{}
}

// Draining returns how many destinations are parked and the earliest moment at
// which a drain_timeout ends one; zero without any.
func (a *Applier) Draining() (n int, next time.Time) {
	for _, p := range a.parked {
		if d := p.deadline(); !d.IsZero() && (next.IsZero() || d.Before(next)) {
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
