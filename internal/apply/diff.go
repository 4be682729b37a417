package apply

import (
	"slices"
	"time"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// actual is one of our services as it is believed to be in the kernel.
type actual struct {
	service ipvs.Service
	// order keeps operations reproducible; dests are the destinations.
	order []ipvs.DestinationKey
	dests map[ipvs.DestinationKey]ipvs.Destination
	// timeout is the drain_timeout of a service that nobody claims any more, and
	// atOnce says that it has no drains.
	timeout time.Duration
	atOnce  bool
}

func newActual(s ipvs.Service) *actual {
	return &actual{service: s, dests: map[ipvs.DestinationKey]ipvs.Destination{}}
}

func (a *actual) put(d ipvs.Destination) {
	if _, ok := a.dests[d.DestinationKey]; !ok {
		a.order = append(a.order, d.DestinationKey)
	}
	a.dests[d.DestinationKey] = d
}

func (a *actual) has(k ipvs.DestinationKey) bool {
	_, ok := a.dests[k]
	return ok
}

func (a *actual) drop(k ipvs.DestinationKey) {
	if _, ok := a.dests[k]; !ok {
		return
	}
	delete(a.dests, k)
	a.order = slices.DeleteFunc(a.order, func(o ipvs.DestinationKey) bool { return o == k })
}

// usable counts the destinations that new connections can go to.
func (a *actual) usable() int {
	n := 0
	for _, d := range a.dests {
		if d.Weight > 0 {
			n++
		}
	}
	return n
}

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
	depart []ipvs.DestinationKey
}

// diff computes the plan. A nil have means that the service does not exist; a nil
// want that it should not, which leaves its own deletion to the caller, once the
// last destination is gone.
func diff(have *actual, want *target) plan {
	var p plan
	if want != nil {
		s := want.service
		switch {
		case have == nil:
			p.raise = append(p.raise, ipvs.Op{Kind: ipvs.OpAddService, Service: s})
			have = newActual(s)
		case !sameService(have.service, s):
			p.raise = append(p.raise, ipvs.Op{Kind: ipvs.OpSetService, Service: s})
		}
		for _, k := range want.order {
			d := want.wants[k]
			was, ok := have.dests[k]
			op := ipvs.Op{Kind: ipvs.OpSetDest, Service: s, Destination: d}
			switch {
			case !ok:
				op.Kind = ipvs.OpAddDest
				p.raise = append(p.raise, op)
			case sameDestination(was, d):
			case d.Weight < was.Weight:
				p.cut = append(p.cut, op)
			default:
				p.raise = append(p.raise, op)
			}
		}
	}
	if have == nil {
		return p
	}
	s, atOnce := have.service, have.atOnce
	if want != nil {
		atOnce = want.atOnce
	}
	for _, k := range have.order {
		d := have.dests[k]
		if want != nil {
			if _, ok := want.wants[k]; ok {
				continue
			}
		}
		if atOnce || want != nil && want.gone[k] {
			p.remove = append(p.remove, ipvs.Op{Kind: ipvs.OpDelDest, Service: s, Destination: d})
			continue
		}
		if d.Weight > 0 {
			d.Weight = 0
			p.cut = append(p.cut, ipvs.Op{Kind: ipvs.OpSetDest, Service: s, Destination: d})
		}
		p.depart = append(p.depart, k)
	}
	return p
}

// datagram reports whether a service has drains of its own kind: a failed server
// goes at once, and a departure is short. A mark may carry any protocol, so it is
// taken for TCP.
func datagram(k ipvs.ServiceKey) bool { return k.Protocol == ipvs.UDP || k.Protocol == ipvs.SCTP }

// sameService compares what can be written.
func sameService(a, b ipvs.Service) bool { return a.Canonical() == b.Canonical() }

// sameDestination compares what can be written.
func sameDestination(a, b ipvs.Destination) bool { return a.Canonical() == b.Canonical() }
