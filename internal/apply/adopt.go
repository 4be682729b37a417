package apply

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Adopt reads the table and takes over, as they are, the services that are
// configured, leaving or remembered. Nothing is written; all of it becomes due for
// the next Flush. Services of nobody here are left alone.
func (a *Applier) Adopt(ctx context.Context) error {
	if a.conn == nil {
		return ErrNoTable
	}
	left, leftErr := a.leftBehind(ctx)
	ours := slices.Concat(a.ours(), left)
	for _, k := range ours {
		a.due.bulk.whole(k)
	}
	errs := []error{leftErr}
	adopted := 0
	err := a.read(ctx, ours, func(k ipvs.ServiceKey, r reading, err error) {
		if err != nil {
			errs = append(errs, err)
			return
		}
		held := r.held()
		if held != nil {
			adopted++
			a.tellAdopted(k, held)
		}
		fresh := a.mirror[k] == nil
		a.take(k, held)
		if !fresh || held == nil {
			return
		}
		if len(a.owners[k]) == 0 && a.away[k] != nil {
			a.keepLimitsOf(a.away[k])
			a.leave(k, nil)
		}
		if a.remembered != nil {
			a.recall(k, r)
		}
	})
	err = errors.Join(append(errs, err)...)
	if err == nil {
		a.remembered = nil
	}
	if adopted > 0 {
		a.log.Info("Services that are configured were in the IPVS table, taking them over as they are", event.Key, event.ServiceAdopted, "services", adopted)
	}
	return err
}

// tellAdopted logs what of a service that is taken over will change.
func (a *Applier) tellAdopted(k ipvs.ServiceKey, held *actual) {
	cs := a.owners[k]
	if len(cs) == 0 {
		return
	}
	args := []any{"service", k.String(), "destinations", held.len()}
	for i, c := range cs {
		for _, s := range c.vs.Services {
			if i == 0 && s.ServiceKey == k && !sameService(s, held.service) {
				found, wanted := serviceTexts(held.service, s)
				args = append(args, "found", found, "wanted", wanted)
			}
		}
	}
	var strangers []string
	for d := range held.all() {
		if !a.claimed(k, d.DestinationKey) {
			strangers = append(strangers, d.DestinationKey.String())
		}
	}
	if len(strangers) > 0 {
		args = append(args, "not_configured", strings.Join(strangers, " "))
	}
	if len(args) > 4 {
		a.log.Warn("Taking over a service that was in the IPVS table and is not as configured; what is not configured drains", append(args, event.Key, event.ServiceDiffers)...)
	}
}

// Adopted tells what the table held of a real server when it was last read or
// written: whether its service exists, whether that has a usable destination that is
// configured (what else it has will drain, and leaves nothing to wait with), and the server's own weight there, -1 when it is not in. Of a group the first
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
		if d, ok := m.get(dk); ok {
			weight = int64(d.Weight)
		}
	}
	return true, a.serves(k, m), weight
}

// serves reports whether a destination that is configured has a weight.
func (a *Applier) serves(k ipvs.ServiceKey, m *actual) bool {
	if m.serving == 0 {
		m.serving = -1
		for i := range m.slots {
			if s := &m.slots[i]; s.weight > 0 && a.claimed(k, s.key.unpack()) {
				m.serving = 1
				break
			}
		}
	}
	return m.serving > 0
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
		if err != nil && !isStale(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// ServiceView is one service of ours as it should be and as it is believed to be.
type ServiceView struct {
	Service      ipvs.Service
	Destinations []DestinationView
	// Drift is what somebody else changed and is not put back, or not yet.
	Drift []Difference
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
	// EndsBy is when the kernel will have forgotten the connections that are left at
	// the latest; zero while one is active, or may be made anew.
	EndsBy time.Time
	// Note says that it gets new connections all the same, and why.
	Note string
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

// Leaving describes the services that nobody claims any more, but for those of virtual
// servers that are withheld.
func (a *Applier) Leaving() []ServiceView {
	var views []ServiceView
	for k, m := range a.mirror {
		if len(a.owners[k]) == 0 && a.away[k] == nil {
			views = append(views, a.view(m.service))
		}
	}
	return views
}

func (a *Applier) view(s ipvs.Service) ServiceView {
	v := ServiceView{Service: s}
	if d := a.drift[s.ServiceKey]; d != nil {
		v.Drift = slices.Clone(d.found)
	}
	t, _ := a.target(s.ServiceKey, nil, true)
	m := a.mirror[s.ServiceKey]
	add := func(dk ipvs.DestinationKey, wanted int64) {
		d := DestinationView{DestinationKey: dk, Wanted: wanted, Mirror: -1}
		if m != nil {
			if h, ok := m.get(dk); ok {
				d.Mirror = int64(h.Weight)
			}
		}
		k := parkedKey{s.ServiceKey, dk}
		if p := a.parked.get(k); p != nil {
			d.Drain = &DrainView{Since: p.since, Why: p.why, WaitsFor: WaitsFor(p.counters), Counters: p.counters, Deadline: p.deadline(), EndsBy: a.endsBy(k), Note: p.note}
		}
		v.Destinations = append(v.Destinations, d)
	}
	var shown []bool // of what is in the table
	if m != nil {
		shown = make([]bool, len(m.slots))
	}
	if t != nil {
		v.Destinations = make([]DestinationView, 0, len(t.dests))
		for _, d := range t.dests {
			if d.fate != wanted {
				continue
			}
			add(d.dest.DestinationKey, int64(d.dest.Weight))
			if m != nil {
				if at := m.at(d.dest.DestinationKey); at >= 0 {
					shown[at] = true
				}
			}
		}
	}
	if m != nil {
		for i := range m.slots {
			if !m.slots[i].live || shown[i] {
				continue
			}
			wanted := int64(-1)
			if a.staying[s.ServiceKey] {
				wanted = int64(m.slots[i].weight)
			}
			add(m.slots[i].key.unpack(), wanted)
		}
	}
	return v
}
