package apply

import (
	"cmp"
	"slices"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// facts are what desired is computed from besides the configuration: one element for
// each real server, and the quorum. A server that is neither alive nor failed waits
// for its first good check: it is not put into the table, but if it is there,
// draining since an earlier reload dropped it, it is not torn out either.
type facts struct {
	flags  []factFlags
	weight []int32
	quorum bool
}

type factFlags uint8

const (
	alive factFlags = 1 << iota
	failed
	// maintenance marks a drain that an operator asked for by command. One by a
	// weight of 0 where the configuration has another needs no mark.
	maintenance
)

func newFacts(servers int) facts {
	return facts{flags: make([]factFlags, servers), weight: make([]int32, servers)}
}

func (f *facts) set(i int, flag factFlags, on bool) {
	f.flags[i] &^= flag
	if on {
		f.flags[i] |= flag
	}
}

func (f *facts) is(i int, flag factFlags) bool { return f.flags[i]&flag != 0 }

// reason is why a destination leaves.
type reason uint8

// Reasons for leaving.
const (
	whyNone reason = iota
	whyRemoved
	whyWithdrawn
	whySorry
	whyVSRemoved
	whyUnchecked
	whyUnknown
	whyFailed
	whyWithheld
)

// String is the reason as people read it.
func (r reason) String() string {
	switch r {
	case whyRemoved:
		return "removed from the configuration"
	case whyWithdrawn:
		return "withdrawn while the sorry server serves"
	case whySorry:
		return "sorry server no longer needed"
	case whyVSRemoved:
		return "virtual server removed from the configuration"
	case whyUnchecked:
		return "waits for its first good check"
	case whyUnknown:
		return "found in the table but not in the configuration"
	case whyFailed:
		return "failed its check"
	case whyWithheld:
		return "withheld: passive"
	}
	return ""
}

// fate is what should become of a destination.
type fate uint8

const (
	// leaves: it drains and goes.
	leaves fate = iota
	// gone: it goes at once.
	gone
	// wanted: it should be there.
	wanted
)

// ideal is what should become of one destination.
type ideal struct {
	// dest is the key alone unless it is wanted.
	dest ipvs.Destination
	fate fate
	why  reason
}

// sorryServes reports whether the sorry server is in and the real servers are out.
func sorryServes(vs *VirtualServer, f *facts) bool { return vs.SorryServer != nil && !f.quorum }

// desired says what one virtual server wants of one of its destinations in a service;
// the index behind the last server is the sorry server. It is the whole policy: which
// server is in the table, with which weight, and how one that is not leaves.
func desired(vs *VirtualServer, f *facts, i int, k ipvs.ServiceKey) ideal {
	sorry := sorryServes(vs, f)
	if i == len(vs.Servers) {
		d := ideal{dest: at(vs.SorryServer.Dest, k), fate: wanted}
		switch {
		case sorry:
		case vs.SorryServer.Inhibit:
			d.dest.Weight = 0
		default:
			d.fate, d.why = leaves, whySorry
		}
		return d
	}
	rs := &vs.Servers[i]
	d := ideal{dest: at(rs.Dest, k), fate: wanted}
	d.dest.Weight = uint32(f.weight[i])
	switch {
	case d.dest.Weight == 0 && (rs.Weight > 0 || f.is(i, maintenance)):
		// A maintenance drain outranks the check and the sorry server.
	case f.is(i, alive) && !sorry:
	case rs.Inhibit:
		d.dest.Weight = 0
	case f.is(i, alive) && d.dest.Weight == 0:
	case f.is(i, alive):
		d.fate, d.why = leaves, whyWithdrawn
	case !f.is(i, failed):
		d.fate, d.why = leaves, whyUnchecked
	case vs.DrainFailed && !datagram(k):
		d.fate, d.why = leaves, whyFailed
	default:
		d.fate = gone
	}
	return d
}

// join adds another claim of the same destination: the highest weight of all counts,
// and any claim outweighs a removal.
func (d *ideal) join(o ideal) {
	switch {
	case d.fate == wanted:
		if o.fate == wanted && o.dest.Weight > d.dest.Weight {
			d.dest = o.dest
		}
	case o.fate == wanted:
		*d = o
	default:
		d.fate = max(d.fate, o.fate)
		if o.why != whyNone && (o.why != whySorry || d.why == whyNone) {
			d.why = o.why
		}
	}
}

// target is what one service of the kernel should hold.
type target struct {
	service ipvs.Service
	// atOnce: what is not wanted is deleted without a drain.
	atOnce bool
	// whole: nothing but dests is wanted. Otherwise nothing is said of the rest.
	whole bool
	// dests are in the order of their first claims.
	dests []ideal
}

// position is one claim of a destination: a server of a virtual server, or its sorry
// server behind them.
type position struct {
	claim *claim
	index int32
}

func comparePositions(x, y position) int {
	return cmp.Or(cmp.Compare(x.claim.order, y.claim.order), cmp.Compare(x.index, y.index))
}

func (p position) key(k ipvs.ServiceKey) ipvs.DestinationKey {
	vs := p.claim.vs
	if int(p.index) == len(vs.Servers) {
		return at(vs.SorryServer.Dest, k).DestinationKey
	}
	return at(vs.Servers[p.index].Dest, k).DestinationKey
}

// claims appends all claims of one destination, in order.
func (a *Applier) claims(to []position, k ipvs.ServiceKey, dk ipvs.DestinationKey) []position {
	for _, c := range a.owners[k] {
		from := len(to)
		for i := range c.vs.standFor(k, dk) {
			to = append(to, position{c, i})
		}
		slices.SortFunc(to[from:], comparePositions)
		if s := c.vs.SorryServer; s != nil && at(s.Dest, k).DestinationKey == dk {
			to = append(to, position{c, int32(len(c.vs.Servers))})
		}
	}
	return to
}

// claimed reports whether a service's claimants may want a destination in it.
func (a *Applier) claimed(k ipvs.ServiceKey, dk ipvs.DestinationKey) bool {
	return len(a.claims(nil, k, dk)) > 0
}

// ideals goes over what should become of the destinations at the given positions, or
// of all that are claimed, in the order of their first claims, each once.
func (a *Applier) ideals(k ipvs.ServiceKey, some []position, whole bool, yield func(ideal) bool) {
	cs := a.owners[k]
	if len(cs) == 1 && cs[0].vs.distinct {
		// Each position is a destination of its own.
		c := cs[0]
		if !whole {
			slices.SortFunc(some, comparePositions)
			for i, p := range some {
				if (i == 0 || p != some[i-1]) && !yield(desired(c.vs, &c.facts, int(p.index), k)) {
					return
				}
			}
			return
		}
		for i := range c.vs.positions() {
			if !yield(desired(c.vs, &c.facts, i, k)) {
				return
			}
		}
		return
	}
	if whole {
		some = nil
		for _, c := range cs {
			for i := range c.vs.positions() {
				some = append(some, position{c, int32(i)})
			}
		}
	}
	var all []position
	for i, p := range some {
		all = a.claims(all[:0], k, p.key(k))
		some[i] = all[0]
	}
	slices.SortFunc(some, comparePositions)
	for _, p := range slices.Compact(some) {
		all = a.claims(all[:0], k, p.key(k))
		d := desired(p.claim.vs, &p.claim.facts, int(p.index), k)
		for _, o := range all[1:] {
			d.join(desired(o.claim.vs, &o.claim.facts, int(o.index), k))
		}
		if !yield(d) {
			return
		}
	}
}

// target computes what a service should hold, or only what should become of the
// destinations at some positions; nil when nobody claims it. ready is false while a
// claimant has not been initialised: then nothing is known yet.
func (a *Applier) target(k ipvs.ServiceKey, some []position, whole bool) (t *target, ready bool) {
	cs := a.owners[k]
	if len(cs) == 0 {
		return nil, true
	}
	n := len(some)
	for _, c := range cs {
		if !c.ready {
			return nil, false
		}
		if whole {
			n += c.vs.positions()
		}
	}
	// The first claimant gives the attributes.
	t = &target{service: a.wantedService(k), whole: whole, dests: make([]ideal, 0, n)}
	t.atOnce = datagram(k) && cs[0].vs.UDPDrainTimeout == 0
	a.ideals(k, some, whole, func(d ideal) bool {
		t.dests = append(t.dests, d)
		return true
	})
	return t, true
}

// wantedService are the attributes of a service that is claimed, as its first
// claimant has them. The last entry of several that are the same counts.
func (a *Applier) wantedService(k ipvs.ServiceKey) (service ipvs.Service) {
	for _, s := range a.owners[k][0].vs.Services {
		if s.ServiceKey == k {
			service = s
		}
	}
	return service
}

// usable reports whether a service should have somewhere to send a connection.
func (a *Applier) usable(k ipvs.ServiceKey) bool {
	found := false
	a.ideals(k, nil, true, func(d ideal) bool {
		found = d.fate == wanted && d.dest.Weight > 0
		return !found
	})
	return found
}
