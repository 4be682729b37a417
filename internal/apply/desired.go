package apply

import (
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Facts are what desired is computed from besides the configuration: one element
// for each real server, and the quorum. A server that is neither Alive nor Failed
// waits for its first good check: it is not put into the table, but if it is there,
// draining since an earlier reload dropped it, it is not torn out either.
type Facts struct {
	Alive  []bool
	Failed []bool
	Weight []int64
	Quorum bool
	// Maintenance marks a drain that an operator asked for by command. One by a
	// weight of 0 where the configuration has another needs no mark.
	Maintenance []bool
}

// Reasons for leaving, as people read them.
const (
	whyRemoved   = "removed from the configuration"
	whyWithdrawn = "withdrawn while the sorry server serves"
	whySorry     = "sorry server no longer needed"
	whyVSRemoved = "virtual server removed from the configuration"
	whyUnchecked = "waits for its first good check"
	whyUnknown   = "found in the table but not in the configuration"
	whyFailed    = "failed its check"
)

// target is what one service of the kernel should hold.
type target struct {
	service ipvs.Service
	// order and wants are the destinations that should be there.
	order []ipvs.DestinationKey
	wants map[ipvs.DestinationKey]ipvs.Destination
	// gone are destinations that must leave at once, not drain.
	gone map[ipvs.DestinationKey]bool
	// atOnce: what is not wanted is deleted without a drain.
	atOnce bool
	// why says of known destinations that are neither wanted nor gone why they
	// leave.
	why map[ipvs.DestinationKey]string
}

// want adds a destination or raises what is asked of it: the highest weight of all
// claims counts, and any claim outweighs a removal.
func (t *target) want(d ipvs.Destination) {
	have, ok := t.wants[d.DestinationKey]
	if !ok {
		t.order = append(t.order, d.DestinationKey)
	}
	if !ok || d.Weight > have.Weight {
		t.wants[d.DestinationKey] = d
	}
}

// usable reports whether the service should have somewhere to send a connection.
func (t *target) usable() bool {
	for _, d := range t.wants {
		if d.Weight > 0 {
			return true
		}
	}
	return false
}

// sorryServes reports whether the sorry server is in and the real servers are out.
func sorryServes(vs *VirtualServer, f Facts) bool { return vs.SorryServer != nil && !f.Quorum }

// desired adds to t what one virtual server wants of the service. It is the whole
// policy: which server is in the table, with which weight, and how one that is not
// leaves.
func desired(t *target, vs *VirtualServer, f Facts) {
	sorry := sorryServes(vs, f)
	for i, rs := range vs.Servers {
		d := at(rs.Dest, t.service.ServiceKey)
		d.Weight = uint32(f.Weight[i])
		switch {
		case d.Weight == 0 && (rs.Weight > 0 || f.Maintenance[i]):
			// A maintenance drain outranks the check and the sorry server.
			t.want(d)
		case f.Alive[i] && !sorry:
			t.want(d)
		case rs.Inhibit:
			d.Weight = 0
			t.want(d)
		case f.Alive[i] && d.Weight == 0:
			t.want(d)
		case f.Alive[i]:
			t.why[d.DestinationKey] = whyWithdrawn
		case !f.Failed[i]:
			t.why[d.DestinationKey] = whyUnchecked
		case vs.DrainFailed && !datagram(t.service.ServiceKey):
			t.why[d.DestinationKey] = whyFailed
		default:
			t.gone[d.DestinationKey] = true
		}
	}
	if vs.SorryServer == nil {
		return
	}
	d := at(vs.SorryServer.Dest, t.service.ServiceKey)
	switch {
	case sorry:
		t.want(d)
	case vs.SorryServer.Inhibit:
		d.Weight = 0
		t.want(d)
	default:
		if _, ok := t.why[d.DestinationKey]; !ok {
			t.why[d.DestinationKey] = whySorry
		}
	}
}

func newTarget(s ipvs.Service) *target {
	return &target{
		service: s,
		wants:   map[ipvs.DestinationKey]ipvs.Destination{},
		gone:    map[ipvs.DestinationKey]bool{},
		why:     map[ipvs.DestinationKey]string{},
	}
}
