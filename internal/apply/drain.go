package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/event"
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

// drainList is the list of parked destinations.
type drainList struct {
	drains map[parkedKey]*drain
	// services counts those of each service.
	services map[ipvs.ServiceKey]int
	// next is the earliest deadline if known.
	next  time.Time
	known bool
}

func (l *drainList) get(k parkedKey) *drain {
	if len(l.drains) == 0 {
		return nil
	}
	return l.drains[k]
}

// in returns how many of a service's destinations are parked.
func (l *drainList) in(k ipvs.ServiceKey) int {
	if len(l.services) == 0 {
		return 0
	}
	return l.services[k]
}

func (l *drainList) add(k parkedKey, d *drain) {
	if l.drains == nil {
		l.drains, l.services = map[parkedKey]*drain{}, map[ipvs.ServiceKey]int{}
	}
	if l.drains[k] == nil {
		l.services[k.service]++
	}
	l.drains[k], l.known = d, false
}

func (l *drainList) remove(k parkedKey) {
	if l.get(k) == nil {
		return
	}
	l.known = false
	delete(l.drains, k)
	if l.services[k.service]--; l.services[k.service] == 0 {
		delete(l.services, k.service)
	}
	if len(l.drains) == 0 {
		l.drains, l.services = nil, nil
	}
}

// keys returns the parked destinations, those of a service together.
func (l *drainList) keys() []parkedKey {
	keys := make([]parkedKey, 0, len(l.drains))
	for k := range l.drains {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(x, y parkedKey) int {
		return cmp.Or(compareServices(x.service, y.service), x.dest.Addr.Compare(y.dest.Addr), cmp.Compare(x.dest.Port, y.dest.Port))
	})
	return keys
}

// unpark takes destinations off the drain list that are wanted again. Their weight
// comes back in place, with the plan that was just made.
func (a *Applier) unpark(w *work) {
	if w.want == nil || a.parked.in(w.key) == 0 {
		return
	}
	for i := range w.want.dests {
		k := parkedKey{w.key, w.want.dests[i].dest.DestinationKey}
		if d := a.parked.get(k); d != nil && w.want.dests[i].fate == wanted {
			a.parked.remove(k)
			a.log.Info("Drain cancelled, the destination is wanted again", event.Key, event.DrainCancelled, "service", w.key.String(), "destination", k.dest.String(), "draining_since", d.since)
		}
	}
}

// park puts the departing destinations that are not on the drain list yet there.
// Their weight is 0 by now, so their counters can only fall: those already at zero
// are returned to be deleted.
func (a *Applier) park(ctx context.Context, w *work, now time.Time) (done []ipvs.Op) {
	m := a.mirror[w.key]
	if m == nil {
		return nil
	}
	fresh := map[ipvs.DestinationKey]ipvs.DestinationInfo{}
	var order []parkedKey
	for _, dep := range w.plan.depart {
		k := parkedKey{w.key, dep.key}
		if !m.has(dep.key) || m.weight(dep.key) != 0 || a.parked.get(k) != nil {
			continue // it is parked, or the cut was refused or held back
		}
		why := dep.why
		switch {
		case why != whyNone:
		case w.want == nil:
			why = whyVSRemoved
		default:
			why = whyRemoved
		}
		a.parked.add(k, &drain{since: now, why: why.String(), limit: a.limit(k)})
		order = append(order, k)
		fresh[dep.key] = ipvs.DestinationInfo{}
	}
	if len(order) == 0 {
		return nil
	}
	infos, err := a.destinations(ctx, nil, w.key)
	if err != nil {
		return nil // the ticker reads again
	}
	for i := range infos {
		if _, ok := fresh[infos[i].DestinationKey]; ok {
			fresh[infos[i].DestinationKey] = infos[i]
		}
	}
	for _, k := range order {
		info, d := fresh[k.dest], a.parked.get(k)
		c := info.Counters
		a.observe(k, info, now)
		if idle(c) {
			a.log.Info("Removing destination, it has no connections", event.Key, event.DrainDone, "service", k.service.String(), "destination", k.dest.String(), "why", d.why)
			done = append(done, a.deletion(k))
			continue
		}
		a.log.Info("Draining destination", event.Key, event.DrainBegun, "service", k.service.String(), "destination", k.dest.String(),
			"why", d.why, "active", c.Active, "inactive", c.Inactive, "persistent", c.Persistent, "drain_timeout", d.limit)
	}
	return done
}

func (a *Applier) deletion(k parkedKey) ipvs.Op {
	m := a.mirror[k.service]
	d, ok := m.get(k.dest)
	if !ok {
		d.DestinationKey = k.dest
	}
	return ipvs.Op{Kind: ipvs.OpDelDest, Service: m.service, Destination: d}
}

// idle is the whole condition for the end of a drain. The sum is 64 bits wide:
// each counter may use all of its 32.
func idle(c ipvs.Counters) bool { return uint64(c.Active)+uint64(c.Inactive) == 0 }

// Tick looks at every parked destination: one read for each service that has one,
// then the deletion of those without connections or past their drain_timeout, then
// of the leaving services that are empty. A service that cannot be read whole is
// left for the next tick: nothing is ever deleted on the strength of a partial
// read.
func (a *Applier) Tick(ctx context.Context, now time.Time) error {
	if a.conn == nil {
		return ErrNoTable
	}
	keys := a.parked.keys()
	seen := map[parkedKey]ipvs.DestinationInfo{}
	unread := map[ipvs.ServiceKey]bool{}
	var infos []ipvs.DestinationInfo
	var errs []error
	for i, k := range keys {
		if i > 0 && keys[i-1].service == k.service {
			continue
		}
		var err error
		if infos, err = a.destinations(ctx, infos, k.service); err != nil {
			unread[k.service] = true
			errs = append(errs, fmt.Errorf("drain of %s waits for the next tick: %w", k.service, err))
			continue
		}
		a.noteParked(seen, k.service, infos)
	}
	keys = slices.DeleteFunc(keys, func(k parkedKey) bool { return unread[k.service] })
	return errors.Join(append(errs, a.endDrains(ctx, keys, seen, now))...)
}

// noteParked keeps, of a reading, what is parked.
func (a *Applier) noteParked(seen map[parkedKey]ipvs.DestinationInfo, k ipvs.ServiceKey, infos []ipvs.DestinationInfo) {
	if a.parked.in(k) == 0 {
		return
	}
	for i := range infos {
		if pk := (parkedKey{k, infos[i].DestinationKey}); a.parked.get(pk) != nil {
			seen[pk] = infos[i]
		}
	}
}

// endDrains deletes, of the given destinations, those that have no connections or
// no time left. seen is what they were when they were parked already.
func (a *Applier) endDrains(ctx context.Context, keys []parkedKey, seen map[parkedKey]ipvs.DestinationInfo, now time.Time) error {
	var errs []error
	var ops []ipvs.Op
	stale := staleSet{}
	for _, k := range keys {
		d := a.parked.get(k)
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
			a.log.Info("Drained, removing destination", event.Key, event.DrainDone, "service", k.service.String(), "destination", k.dest.String(), "why", d.why, "took", now.Sub(d.since).Round(time.Millisecond))
			ops = append(ops, a.deletion(k))
		case expired:
			a.log.Warn("Drain timed out, removing destination and cutting its connections", event.Key, event.DrainTimeout, "service", k.service.String(), "destination", k.dest.String(),
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
		if len(a.owners[k]) == 0 && m.len() == 0 {
			a.due.bulk.whole(k)
		}
	}
	// While portions are left the caller comes back at once anyway.
	if a.Pending() && !a.more {
		errs = append(errs, a.Flush(ctx, now))
	}
	return errors.Join(errs...)
}

// limit returns the bound of one destination's drain: that of its real server as it
// is configured, or was when it last had one of its own; else its service's.
func (a *Applier) limit(k parkedKey) time.Duration {
	cs := a.owners[k.service]
	if len(cs) > 0 && cs[0].vs.datagram(k.service) {
		return cs[0].vs.UDPDrainTimeout
	}
	if c, i := a.speaks(k); c != nil {
		return c.vs.Servers[i].DrainTimeout
	}
	if t, ok := a.limits[k]; ok && !a.datagram(k.service) {
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

// speaks returns the real server whose drain_timeout counts for a destination: of the
// first virtual server that has it, the first; nil if none has.
func (a *Applier) speaks(k parkedKey) (*claim, int32) {
	for _, c := range a.owners[k.service] {
		first := int32(-1)
		for i := range c.vs.standFor(k.service, k.dest) {
			if first < 0 || i < first {
				first = i
			}
		}
		if first >= 0 {
			return c, first
		}
	}
	return nil, 0
}

// keepLimits remembers, before a configuration is replaced, which destinations have
// a drain_timeout of their own. What it had configured is no stranger any more.
func (a *Applier) keepLimits() {
	for _, c := range a.vss {
		a.keepLimitsOf(c)
	}
}

func (a *Applier) keepLimitsOf(c *claim) {
	for _, s := range c.vs.Services {
		m := a.mirror[s.ServiceKey]
		if m == nil {
			continue
		}
		for i := range c.vs.Servers {
			rs := &c.vs.Servers[i]
			dk := at(rs.Dest, s.ServiceKey).DestinationKey
			slot := m.at(dk)
			if slot < 0 {
				continue
			}
			m.slots[slot].why = whyNone
			k := parkedKey{s.ServiceKey, dk}
			if speaker, n := a.speaks(k); speaker != c || int(n) != i {
				continue
			}
			if rs.DrainTimeout != c.vs.DrainTimeout {
				a.limits[k] = rs.DrainTimeout
			} else if len(a.limits) > 0 {
				delete(a.limits, k)
			}
		}
		if rs := c.vs.SorryServer; rs != nil {
			if slot := m.at(at(rs.Dest, s.ServiceKey).DestinationKey); slot >= 0 {
				m.slots[slot].why = whyNone
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
	if l := &a.parked; !l.known {
		l.next, l.known = time.Time{}, true
		for _, p := range l.drains {
			if d := p.deadline(); !d.IsZero() && (l.next.IsZero() || d.Before(l.next)) {
				l.next = d
			}
		}
	}
	return len(a.parked.drains), a.parked.next
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
