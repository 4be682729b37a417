package apply

import (
	"cmp"
	"slices"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// plan is what leads from actual to a target: three lists, executed in this order.
type plan struct {
	// raise: the service, added destinations, higher weights, changed attributes.
	raise []ipvs.Op
	// cut: lower weights, departures to weight 0 among them.
	cut []ipvs.Op
	// remove: deletions that do not wait for connections.
	remove []ipvs.Op
	// depart are the destinations that have to drain; each is at weight 0 once
	// cut is done.
	depart []departure
	// more: there is more to do than was asked for.
	more bool
}

// departure is a destination that has to drain, and why.
type departure struct {
	key ipvs.DestinationKey
	why reason
}

func (p *plan) size() int { return len(p.raise) + len(p.cut) + len(p.remove) }

// leaver is a destination in the table that is not wanted, by its slot.
type leaver struct {
	slot int32
	fate fate
	why  reason
}

// diff computes the plan, up to about limit operations. A nil have means that the
// service does not exist; a nil want that it should not, which leaves its own deletion
// to the caller, once the last destination is gone.
//
// A plan that is cut short has nothing of the later lists: no cut is made before all
// raises are.
func diff(have *actual, want *target, limit int) plan {
	var p plan
	var out []leaver
	if want == nil {
		if have == nil {
			return p
		}
		out = have.leavers(make([]fateAt, len(have.slots)))
		return p.leave(have, have.service, have.atOnce, out, limit)
	}
	s := want.service
	switch {
	case have == nil:
		p.raise = append(p.raise, ipvs.Op{Kind: ipvs.OpAddService, Service: s})
		have = newActual(s, 0)
	case !sameService(have.service, s):
		p.raise = append(p.raise, ipvs.Op{Kind: ipvs.OpSetService, Service: s})
	}
	var of []fateAt
	if want.whole {
		of = make([]fateAt, len(have.slots))
	}
	for i := range want.dests {
		w := &want.dests[i]
		at := have.at(w.dest.DestinationKey)
		switch {
		case at >= 0 && of != nil:
			of[at] = fateAt{true, w.fate, w.why}
		case at >= 0 && w.fate != wanted:
			out = append(out, leaver{int32(at), w.fate, w.why})
		}
		if w.fate != wanted {
			continue
		}
		op := ipvs.Op{Kind: ipvs.OpSetDest, Service: s, Destination: w.dest}
		switch {
		case at >= 0 && sameDestination(have.slots[at].dest(), w.dest):
			continue
		case at >= 0 && w.dest.Weight < have.slots[at].weight:
			p.cut = append(p.cut, op)
			continue
		case at < 0:
			op.Kind = ipvs.OpAddDest
		}
		if len(p.raise) >= limit {
			return plan{raise: p.raise, more: true}
		}
		p.raise = append(p.raise, op)
	}
	if left := max(limit-len(p.raise), 0); len(p.cut) > left {
		p.cut, p.more = p.cut[:left], true
		return p
	}
	if want.whole {
		out = have.leavers(of)
	} else {
		slices.SortFunc(out, func(x, y leaver) int { return cmp.Compare(x.slot, y.slot) })
	}
	return p.leave(have, have.service, want.atOnce, out, limit)
}

// fateAt is what a target says of the destination in a slot, if it says something.
type fateAt struct {
	claimed bool
	fate    fate
	why     reason
}

// leavers are the destinations that a whole target does not want.
func (a *actual) leavers(of []fateAt) (out []leaver) {
	for i := range a.slots {
		s := &a.slots[i]
		switch f := of[i]; {
		case !s.live || f.claimed && f.fate == wanted:
		case f.claimed:
			out = append(out, leaver{int32(i), f.fate, f.why})
		default:
			out = append(out, leaver{int32(i), leaves, s.why})
		}
	}
	return out
}

// leave adds to a plan what takes destinations out.
func (p plan) leave(have *actual, s ipvs.Service, atOnce bool, out []leaver, limit int) plan {
	for _, l := range out {
		slot := &have.slots[l.slot]
		drains := !atOnce && l.fate != gone
		if p.size() >= limit && (!drains || slot.weight > 0) {
			p.more = true
			return p
		}
		d := slot.dest()
		if !drains {
			p.remove = append(p.remove, ipvs.Op{Kind: ipvs.OpDelDest, Service: s, Destination: d})
			continue
		}
		if d.Weight > 0 {
			d.Weight = 0
			p.cut = append(p.cut, ipvs.Op{Kind: ipvs.OpSetDest, Service: s, Destination: d})
		}
		p.depart = append(p.depart, departure{d.DestinationKey, l.why})
	}
	return p
}

// datagram reports whether a service has drains of its own kind: a failed server
// goes at once, and a departure is short. A mark may carry any protocol, so it is
// taken for TCP, unless it is one of nftables_ipvs, which carries that of its group.
func datagram(k ipvs.ServiceKey) bool { return k.Protocol == ipvs.UDP || k.Protocol == ipvs.SCTP }

// datagram is that of one of the virtual server's services.
func (vs *VirtualServer) datagram(k ipvs.ServiceKey) bool {
	return datagram(k) || k.FWMark != 0 && k.FWMark == vs.Mark && vs.Datagram
}

// datagram is that of a service's first claimant.
func (a *Applier) datagram(k ipvs.ServiceKey) bool {
	if cs := a.owners[k]; len(cs) > 0 {
		return cs[0].vs.datagram(k)
	}
	return datagram(k)
}

// sameService compares what can be written.
func sameService(a, b ipvs.Service) bool { return a.Canonical() == b.Canonical() }

// sameDestination compares what can be written.
func sameDestination(a, b ipvs.Destination) bool { return a.Canonical() == b.Canonical() }
