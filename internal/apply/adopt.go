package apply

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Adopt reads the table and takes over, as they are, the services that are
// configured or leaving. Nothing is written; everything configured becomes due for
// the next Flush. Services of nobody here are left alone.
func (a *Applier) Adopt(ctx context.Context) error {
	if a.conn == nil {
		return ErrNoTable
	}
	all, err := a.conn.Services(ctx)
	if err != nil {
		return fmt.Errorf("read the IPVS table: %w", err)
	}
	there := make(map[ipvs.ServiceKey]ipvs.Service, len(all))
	for _, s := range all {
		there[s.ServiceKey] = s.Service
	}
	ours := make([]ipvs.ServiceKey, 0, len(a.mirror)+len(a.owners))
	for k := range a.mirror {
		ours = append(ours, k)
	}
	for _, c := range a.vss {
		for _, s := range c.vs.Services {
			if _, ok := a.mirror[s.ServiceKey]; !ok {
				ours = append(ours, s.ServiceKey)
			}
		}
	}
	var errs []error
	for _, k := range ours {
		s, ok := there[k]
		errs = append(errs, a.load(ctx, k, s, ok))
	}
	return errors.Join(errs...)
}

// resync reads one service again after the table proved to differ from the mirror.
func (a *Applier) resync(ctx context.Context, k ipvs.ServiceKey) error {
	// A read of the destinations alone cannot tell an empty service from one
	// that does not exist, so all services are read.
	all, err := a.conn.Services(ctx)
	if err != nil {
		a.dirty.add(k)
		return fmt.Errorf("read the IPVS table again: %w", err)
	}
	for _, s := range all {
		if s.ServiceKey == k {
			return a.load(ctx, k, s.Service, true)
		}
	}
	return a.load(ctx, k, ipvs.Service{}, false)
}

// load makes the mirror of one service what the table holds.
func (a *Applier) load(ctx context.Context, k ipvs.ServiceKey, s ipvs.Service, exists bool) error {
	a.dirty.add(k)
	if !exists {
		a.forget(k)
		return nil
	}
	ds, err := a.conn.Destinations(ctx, k)
	if err != nil {
		return fmt.Errorf("read the destinations of %s: %w", k, err)
	}
	m, was := newActual(s), a.mirror[k]
	if was != nil {
		m.timeout = was.timeout
	}
	for _, d := range ds {
		m.put(d.Destination)
		if was == nil || !was.has(d.DestinationKey) {
			a.why[parkedKey{k, d.DestinationKey}] = whyUnknown
		}
	}
	a.mirror[k] = m
	for pk := range a.parked {
		if _, ok := m.dests[pk.dest]; pk.service == k && !ok {
			delete(a.parked, pk)
		}
	}
	return nil
}

// Adopted tells what the table held of a real server when it was last read or
// written: whether its service exists, whether that has any usable destination,
// and the server's own weight there, -1 when it is not in. Of a group the first
// service speaks for all.
func (a *Applier) Adopted(vs *VirtualServer, rs config.RSKey) (exists, usable bool, weight int64) {
	if vs == nil || len(vs.Services) == 0 {
		return false, false, -1
	}
	k := vs.Services[0].ServiceKey
	m := a.mirror[k]
	if m == nil {
		return false, false, -1
	}
	weight = -1
	if dk, ok := vs.Destination(rs, k); ok {
		if d, ok := m.dests[dk]; ok {
			weight = int64(d.Weight)
		}
	}
	return true, m.usable() > 0, weight
}

// Remove deletes every service that is ours, leaving ones included, each with all
// its destinations in one operation.
func (a *Applier) Remove(ctx context.Context) error {
	if a.conn == nil {
		return ErrNoTable
	}
	var ops []ipvs.Op
	for _, m := range a.mirror {
		ops = append(ops, ipvs.Op{Kind: ipvs.OpDelService, Service: m.service})
	}
	var errs []error
	for _, err := range a.batch(ctx, ops) {
		if err != nil && !stalest(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ServiceView is one service of ours as it should be and as it is believed to be.
type ServiceView struct {
	Service      ipvs.Service
	Destinations []DestinationView
}

// DestinationView is one destination; a weight of -1 means "not in the table".
type DestinationView struct {
	ipvs.DestinationKey
	Wanted, Mirror int64
	Drain          *DrainView
}

// DrainView is a parked destination.
type DrainView struct {
	Since    time.Time
	Why      string
	WaitsFor string
	Counters ipvs.Counters
	Deadline time.Time
}

// View describes the services of one virtual server.
func (a *Applier) View(vs config.VSKey) []ServiceView {
	c, ok := a.byKey[vs]
	if !ok {
		return nil
	}
	views := make([]ServiceView, 0, len(c.vs.Services))
	for _, s := range c.vs.Services {
		views = append(views, a.view(s))
	}
	return views
}

// Leaving describes the services that nobody claims any more.
func (a *Applier) Leaving() []ServiceView {
	var views []ServiceView
	for k, m := range a.mirror {
		if len(a.owners[k]) == 0 {
			views = append(views, a.view(m.service))
		}
	}
	return views
}

func (a *Applier) view(s ipvs.Service) ServiceView {
	v := ServiceView{Service: s}
	t, _ := a.target(s.ServiceKey)
	m := a.mirror[s.ServiceKey]
	seen := map[ipvs.DestinationKey]bool{}
	add := func(dk ipvs.DestinationKey) {
		if seen[dk] {
			return
		}
		seen[dk] = true
		d := DestinationView{DestinationKey: dk, Wanted: -1, Mirror: -1}
		if t != nil {
			if w, ok := t.wants[dk]; ok {
				d.Wanted = int64(w.Weight)
			}
		}
		if m != nil {
			if h, ok := m.dests[dk]; ok {
				d.Mirror = int64(h.Weight)
			}
		}
		k := parkedKey{s.ServiceKey, dk}
		if p, ok := a.parked[k]; ok {
			d.Drain = &DrainView{Since: p.since, Why: p.why, WaitsFor: WaitsFor(p.counters), Counters: p.counters, Deadline: a.deadline(k)}
		}
		v.Destinations = append(v.Destinations, d)
	}
	if t != nil {
		for _, dk := range t.order {
			add(dk)
		}
	}
	if m != nil {
		for _, dk := range m.order {
			add(dk)
		}
	}
	return v
}
