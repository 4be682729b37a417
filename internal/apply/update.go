package apply

import (
	"slices"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Update is Replace for a reload that changes a part: changed are the virtual servers
// that are new or different, order names all that there are, in file order. What is
// neither changed nor gone keeps its facts and costs nothing; nothing of it becomes due.
// Init must follow for each that changed.
func (a *Applier) Update(order []config.VSKey, changed []*VirtualServer) {
	fresh := make(map[config.VSKey]*VirtualServer, len(changed))
	for _, vs := range changed {
		fresh[vs.Key] = vs
	}
	// affected are the services whose claimants may be others, or in another order.
	affected := map[ipvs.ServiceKey]bool{}
	touch := func(vs *VirtualServer) {
		for _, s := range vs.Services {
			affected[s.ServiceKey] = true
		}
	}
	stays := make(map[config.VSKey]bool, len(order))
	vss := make([]*claim, len(order))
	for i, k := range order {
		stays[k] = true
		c := a.byKey[k]
		if vs := fresh[k]; vs != nil {
			if c != nil {
				a.keepLimitsOf(c)
				touch(c.vs)
			}
			touch(vs)
			withheld := c != nil && c.withheld
			c = newClaim(vs)
			c.withheld = withheld
			a.byKey[k] = c
		}
		c.order = i
		vss[i] = c
	}
	for _, c := range a.vss {
		if !stays[c.vs.Key] {
			a.keepLimitsOf(c)
			touch(c.vs)
			delete(a.byKey, c.vs.Key)
		}
	}
	for k, cs := range a.owners {
		if len(cs) > 1 {
			affected[k] = true
		}
	}
	a.vss = vss
	a.reclaim(affected)
	a.relimit(affected)
}

// reclaim works out who claims some services, and lets those go that nobody does any
// more.
func (a *Applier) reclaim(services map[ipvs.ServiceKey]bool) {
	if len(services) == 0 {
		return
	}
	was := make(map[ipvs.ServiceKey][]*claim, len(services))
	for k := range services {
		was[k] = a.owners[k]
		delete(a.owners, k)
		delete(a.away, k)
	}
	for _, c := range a.vss {
		for _, s := range c.vs.Services {
			if services[s.ServiceKey] {
				a.claimService(s.ServiceKey, c)
			}
		}
	}
	var others []ipvs.ServiceKey
	for k := range services {
		// What is due by a claim that is gone is due as a whole.
		if a.due.urgent.has(k) {
			a.due.urgent.whole(k)
		}
		if m := a.mirror[k]; m != nil {
			m.serving = 0
		}
		if len(a.owners[k]) > 0 {
			delete(a.staying, k)
		}
		if !slices.Equal(was[k], a.owners[k]) {
			others = append(others, k)
		}
	}
	slices.SortFunc(others, compareServices)
	for _, k := range others {
		a.due.bulk.whole(k)
	}
	for k := range services {
		if len(a.owners[k]) == 0 && a.mirror[k] != nil {
			a.leave(k, was[k])
		}
	}
}
