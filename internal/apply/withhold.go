package apply

import (
	"slices"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Withhold has the services of some virtual servers leave the table as if these were
// not configured, or has them back. Facts are taken in all the while. What drained when
// they are back gets its weight in place.
func (a *Applier) Withhold(yes bool, vss ...config.VSKey) error {
	affected := map[ipvs.ServiceKey]bool{}
	for _, k := range vss {
		c, ok := a.byKey[k]
		if !ok {
			return ErrUnknown
		}
		if c.withheld == yes {
			continue
		}
		if yes {
			a.keepLimitsOf(c)
		}
		c.withheld = yes
		for _, s := range c.vs.Services {
			affected[s.ServiceKey] = true
		}
	}
	a.reclaim(affected)
	a.relimit(affected)
	return nil
}

// Stay has services that nobody claims stay in the table as they are for now, or lets
// them leave. One that is claimed again stays no longer by itself.
func (a *Applier) Stay(yes bool, services ...ipvs.ServiceKey) {
	for _, k := range services {
		switch {
		case yes && (a.mirror[k] == nil || len(a.owners[k]) > 0):
		case yes:
			if a.staying == nil {
				a.staying = map[ipvs.ServiceKey]bool{}
			}
			a.staying[k] = true
		case a.staying[k]:
			delete(a.staying, k)
			a.due.bulk.whole(k)
		}
	}
}

// leave notes why what nobody claims any more leaves, and within which bounds: those of
// its virtual server, which nobody can say later.
func (a *Applier) leave(k ipvs.ServiceKey, was []*claim) {
	switch c := a.away[k]; {
	case c != nil:
		a.abandon(k, c.vs, whyWithheld)
	case len(was) > 0:
		a.abandon(k, was[0].vs, whyVSRemoved)
	}
}

// claimService takes a claim of a service up, in file order.
func (a *Applier) claimService(k ipvs.ServiceKey, c *claim) {
	if c.withheld {
		if a.away == nil {
			a.away = map[ipvs.ServiceKey]*claim{}
		}
		if a.away[k] == nil {
			a.away[k] = c
		}
		return
	}
	// The same entry twice is one claim.
	if cs := a.owners[k]; len(cs) == 0 || cs[len(cs)-1] != c {
		a.owners[k] = append(cs, c)
	}
}

// relimit bounds drains by who claims them now.
func (a *Applier) relimit(services map[ipvs.ServiceKey]bool) {
	for k, d := range a.parked.drains {
		if services[k.service] {
			d.limit = a.limit(k)
		}
	}
	a.parked.known = false
}

// Serving reports whether a service is written: it is in the table, and so is what of it
// should take connections, as far as anything should.
func (a *Applier) Serving(k ipvs.ServiceKey) bool {
	m := a.mirror[k]
	return m != nil && len(a.owners[k]) > 0 && !a.due.bulk.has(k) && !a.due.urgent.has(k) && (m.usable > 0 || !a.usable(k))
}

// Weighted reports whether a service in the table still takes new connections.
func (a *Applier) Weighted(k ipvs.ServiceKey) bool {
	m := a.mirror[k]
	return m != nil && m.usable > 0
}

// Claimed reports whether a service is wanted in the table: by a virtual server that is
// not withheld.
func (a *Applier) Claimed(k ipvs.ServiceKey) bool { return len(a.owners[k]) > 0 }

// Follow has the applier note which services come into the table and leave it.
func (a *Applier) Follow(yes bool) {
	a.follows = yes
	if !yes {
		a.moved = nil
	}
}

// Moved returns those that came or went since the last call.
func (a *Applier) Moved() []ipvs.ServiceKey {
	moved := a.moved
	a.moved = nil
	return moved
}

func (a *Applier) move(k ipvs.ServiceKey) {
	if a.follows {
		a.moved = append(a.moved, k)
	}
}

// Configured reports whether a virtual server has a service, withheld or not.
func (a *Applier) Configured(k ipvs.ServiceKey) bool { return len(a.owners[k]) > 0 || a.away[k] != nil }

// Staying reports whether a service that leaves stays for now.
func (a *Applier) Staying(k ipvs.ServiceKey) bool { return a.staying[k] }

// Strays are the services in the table that no virtual server has, in order.
func (a *Applier) Strays() (keys []ipvs.ServiceKey) {
	for k := range a.mirror {
		if !a.Configured(k) {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, compareServices)
	return keys
}
