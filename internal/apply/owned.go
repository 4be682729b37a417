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

// Owned is a service of the table that is ours, by the names of keys: what a process
// leaves to the next.
type Owned struct {
	Service string
	// Timeout is the drain_timeout of one that nobody claims any more.
	Timeout      time.Duration
	Destinations []OwnedDestination
}

// OwnedDestination is one of ours. Since is the zero time unless it drains, and Limit
// nil unless its real server had a drain_timeout of its own.
type OwnedDestination struct {
	Destination string
	Since       time.Time
	Why         string
	Limit       *time.Duration
}

// Remember says what an earlier process had. Call it before the first Adopt, which
// takes over what of it is still in the table: services that are not configured any
// more drain and go, and drains go on with their time and reason.
func (a *Applier) Remember(owned []Owned) {
	a.remembered = make(map[string]*memory, len(owned))
	for _, o := range owned {
		m := &memory{timeout: o.Timeout, dests: make(map[string]OwnedDestination, len(o.Destinations))}
		for _, d := range o.Destinations {
			m.dests[d.Destination] = d
		}
		a.remembered[o.Service] = m
	}
}

// memory is a service that an earlier process had.
type memory struct {
	timeout time.Duration
	dests   map[string]OwnedDestination
}

// Owned returns what is ours, in the order of names. What is remembered and was not
// looked for in the table yet counts.
func (a *Applier) Owned() []Owned {
	all := make([]Owned, 0, len(a.mirror)+len(a.remembered))
	looked := map[string]bool{}
	for k, m := range a.mirror {
		o := a.owned(k, m)
		all = append(all, o)
		looked[o.Service] = true
	}
	for name, m := range a.remembered {
		if looked[name] {
			continue
		}
		o := Owned{Service: name, Timeout: m.timeout}
		for _, d := range m.dests {
			o.Destinations = append(o.Destinations, d)
		}
		slices.SortFunc(o.Destinations, func(x, y OwnedDestination) int { return cmp.Compare(x.Destination, y.Destination) })
		all = append(all, o)
	}
	slices.SortFunc(all, func(x, y Owned) int { return cmp.Compare(x.Service, y.Service) })
	return all
}

// owned describes one service of ours.
func (a *Applier) owned(k ipvs.ServiceKey, m *actual) Owned {
	o := Owned{Service: k.String(), Destinations: make([]OwnedDestination, 0, m.len())}
	if len(a.owners[k]) == 0 {
		o.Timeout = m.timeout
	}
	draining := a.parked.in(k) > 0
	for have := range m.all() {
		d := OwnedDestination{Destination: have.DestinationKey.String()}
		if draining {
			pk := parkedKey{k, have.DestinationKey}
			if p := a.parked.get(pk); p != nil {
				d.Since, d.Why = p.since, p.why
				if l, ok := a.limits[pk]; ok {
					d.Limit = &l
				}
			}
		}
		o.Destinations = append(o.Destinations, d)
	}
	return o
}

// leftBehind returns the services of an earlier process that the configuration
// lacks. One that holds a destination which was not that process's has become
// somebody else's, and is left alone.
func (a *Applier) leftBehind(ctx context.Context) (left []ipvs.ServiceKey, err error) {
	if len(a.remembered) == 0 {
		return nil, nil
	}
	there, err := a.conn.Services(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the IPVS table: %w", err)
	}
	var errs []error
	for _, s := range there {
		k := s.ServiceKey
		m := a.remembered[k.String()]
		if m == nil || len(a.owners[k]) > 0 || a.mirror[k] != nil {
			continue
		}
		ds, err := a.conn.Destinations(ctx, k)
		if err != nil {
			errs = append(errs, fmt.Errorf("read the destinations of %s: %w", k, err))
			continue
		}
		i := slices.IndexFunc(ds, func(d ipvs.DestinationInfo) bool { _, ours := m.dests[d.DestinationKey.String()]; return !ours })
		if i >= 0 {
			a.log.Warn("Leaving a service alone that was ours: it holds a destination that is not", event.Key, event.ServiceLeft, "service", k.String(), "destination", ds[i].DestinationKey.String())
			continue
		}
		left = append(left, k)
	}
	return left, errors.Join(errs...)
}

// recall has a service that was just read go on where an earlier process stopped.
func (a *Applier) recall(k ipvs.ServiceKey, r reading) {
	m := a.mirror[k]
	was, known := a.remembered[k.String()]
	claimed := len(a.owners[k]) > 0
	if known && !claimed && a.away[k] == nil {
		m.timeout = was.timeout
	}
	draining := 0
	var strange []string
	for i := range r.infos {
		d := &r.infos[i]
		pk := parkedKey{k, d.DestinationKey}
		slot := &m.slots[m.at(pk.dest)]
		var o OwnedDestination
		ours, name := false, pk.dest.String()
		if known {
			o, ours = was.dests[name]
		}
		switch {
		case ours && a.away[k] != nil && !claimed:
			// It says so already.
		case ours && !claimed:
			slot.why = whyVSRemoved
		case ours:
			slot.why = whyRemoved
		default:
			strange = append(strange, name)
		}
		if !o.Since.IsZero() && d.Weight == 0 {
			if o.Limit != nil {
				a.limits[pk] = *o.Limit
			}
			a.parked.add(pk, &drain{since: o.Since, why: o.Why, counters: d.Counters, limit: a.limit(pk)})
			draining++
		}
	}
	switch {
	case !claimed && a.away[k] != nil:
		a.log.Info("Adopting a service of ours that is withheld, draining it", event.Key, event.ServiceAdopted, "service", k.String(), "destinations", len(r.infos))
	case !claimed:
		a.log.Info("Adopting a service of ours that is no longer configured, draining it", event.Key, event.ServiceAdopted, "service", k.String(), "destinations", len(r.infos))
	case len(strange) > 0:
		a.log.Warn("Adopting a service with destinations that are not ours; those not configured are drained", event.Key, event.ServiceDiffers, "service", k.String(), "destinations", len(r.infos), "not_ours", strange)
	case draining > 0:
		a.log.Info("Adopting a service of ours, drains go on", event.Key, event.ServiceAdopted, "service", k.String(), "destinations", len(r.infos), "draining", draining)
	}
}
