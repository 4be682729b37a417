package apply

import (
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Unsettled returns the services that do not hold just what they should: something of
// them drains, is still to be written, or was changed by somebody else. Of any other
// the table holds what is wanted and nothing else, so that Weight tells both.
func (a *Applier) Unsettled() map[ipvs.ServiceKey]bool {
	if len(a.parked.drains)+len(a.drift)+len(a.staying) == 0 && !a.Pending() {
		return nil
	}
	set := make(map[ipvs.ServiceKey]bool, len(a.drift))
	for k := range a.parked.services {
		set[k] = true
	}
	for k := range a.drift {
		set[k] = true
	}
	for k := range a.staying {
		set[k] = true
	}
	for _, q := range []*queue{&a.due.urgent, &a.due.bulk, &a.due.held} {
		for k := range q.marks {
			set[k] = true
		}
	}
	return set
}

// Weight returns the weight that a destination is believed to have in the table, -1
// for one that is not there.
func (a *Applier) Weight(s ipvs.ServiceKey, d ipvs.DestinationKey) int64 {
	if m := a.mirror[s]; m != nil {
		if i := m.at(d); i >= 0 {
			return int64(m.slots[i].weight)
		}
	}
	return -1
}

// Has reports whether a service is believed to be in the table.
func (a *Applier) Has(s ipvs.ServiceKey) bool { return a.mirror[s] != nil }

// ViewService is View for one service.
func (a *Applier) ViewService(s ipvs.Service) ServiceView { return a.view(s) }

// SorryDestination returns the key of the sorry server's destination in one of the
// virtual server's services; false without a sorry server.
func (vs *VirtualServer) SorryDestination(s ipvs.ServiceKey) (ipvs.DestinationKey, bool) {
	if vs.SorryServer == nil {
		return ipvs.DestinationKey{}, false
	}
	return at(vs.SorryServer.Dest, s).DestinationKey, true
}

// Plain reports whether no two of the real servers, nor the sorry server and one of
// them, can be one destination.
func (vs *VirtualServer) Plain() bool { return vs.distinct }

// OwnedService is Owned for one service; false if it is not ours.
func (a *Applier) OwnedService(k ipvs.ServiceKey) (Owned, bool) {
	m := a.mirror[k]
	if m == nil {
		return Owned{}, false
	}
	return a.owned(k, m), true
}

// Remembers reports whether services of an earlier process were not looked for in the
// table yet.
func (a *Applier) Remembers() bool { return len(a.remembered) > 0 }

// AdoptedIn is Adopted for the real servers of one virtual server, who together ask
// only once whether its service is usable.
func (a *Applier) AdoptedIn(vs *VirtualServer) func(rs config.RSKey) (exists, usable bool, weight int64) {
	if vs == nil || len(vs.Services) == 0 || a.mirror[vs.Services[0].ServiceKey] == nil {
		return func(config.RSKey) (bool, bool, int64) { return false, false, -1 }
	}
	k := vs.Services[0].ServiceKey
	usable := a.serves(k, a.mirror[k])
	return func(rs config.RSKey) (bool, bool, int64) {
		weight := int64(-1)
		if dk, ok := vs.Destination(rs, k); ok {
			weight = a.Weight(k, dk)
		}
		return true, usable, weight
	}
}
