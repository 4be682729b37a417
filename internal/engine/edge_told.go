package engine

import (
	"fmt"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/edge"
)

// Edge is what of the machine goes with the services.
type Edge struct {
	// Announced is how many addresses are on their devices; Repaired counts what somebody
	// else took away and was put back since the start.
	Announced int    `json:"addresses_announced"`
	Repaired  uint64 `json:"repaired"`
	// Pending: not all that is wished of the machine is done and reported yet.
	Pending bool `json:"pending,omitempty"`
	// Failures are the features that do not work now.
	Failures []EdgeFailure `json:"failures,omitempty"`
}

// EdgeFailure is a feature that does not work; the rest does.
type EdgeFailure struct {
	Feature string    `json:"feature"` // the keyword that asks for it
	Reason  string    `json:"reason"`  // why it does not, and what now
	Since   time.Time `json:"since"`   // when that began
}

// VIP is what becomes of a virtual server's addresses on this host.
type VIP struct {
	Device string `json:"device"` // where they go
	// Follow is vip_follow: "always" or "quorum".
	Follow string `json:"follow"`
	// Announced: they are on the device, but for those that are missing. If not, Why says
	// what keeps them away.
	Announced bool   `json:"announced"`
	Why       string `json:"why,omitempty"`
	// Addresses is how many there are.
	Addresses int `json:"addresses"`
	// Missing are those that should be on the device and are not.
	Missing []MissingAddress `json:"missing,omitempty"`
}

// MissingAddress is one that should be on its device and is not.
type MissingAddress struct {
	Address string `json:"address"` // the address
	Reason  string `json:"reason"`  // why it is not
}

// toldVIP is what is told of a virtual server's addresses.
func (e *Engine) toldVIP(vs *server) *VIP {
	if vs.vip == nil || vs.Config.VIP.Device == "" {
		return nil
	}
	v := &VIP{
		Device: vs.Config.VIP.Device, Follow: vs.Config.VIP.Follow.String(), Addresses: len(vs.vip.addresses),
		Announced: vs.vip.wish != nil && vs.vip.wish.Announce,
	}
	switch {
	case v.Announced:
	case e.edge.withdrawn:
		v.Why = "this daemon is about to stop"
	case e.passive.on || vs.withheld:
		v.Why = e.withheldReason()
	case vs.Config.VIP.Follow == config.VIPQuorum && !vs.QuorumUp():
		v.Why = fmt.Sprintf("the quorum is lost (weight %d alive, %d needed; vip_follow quorum)", vs.Sum(), vs.Needed())
	case v.Addresses == 0:
		v.Why = "it has no address; with a mark, vip_address names them"
	default:
		v.Why = "its services are not in the table yet"
	}
	return v
}

// toldEdge is what is told of the machine as a whole, nil for nothing.
func (e *Engine) toldEdge() *Edge {
	if e.edge.turn == 0 && e.edge.via == nil {
		return nil
	}
	r := &e.edge.report
	told := &Edge{Announced: r.Announced, Repaired: r.Repaired, Pending: e.edge.pending}
	for _, f := range r.Failures {
		told.Failures = append(told.Failures, EdgeFailure{f.Feature, f.Reason, f.Since})
	}
	if f := e.edge.via; f != nil {
		told.Failures = append(told.Failures, EdgeFailure{f.Feature, f.Reason, f.Since})
	}
	return told
}

// withMissing adds the addresses that are missing, as they were published.
func (p *piece) withMissing(report *edge.Report) *VIP {
	if p.vs.VIP == nil || !p.vs.VIP.Announced || len(report.Missing) == 0 {
		return p.vs.VIP
	}
	v := *p.vs.VIP
	for _, a := range p.addresses {
		if why, ok := report.Missing[a]; ok {
			v.Missing = append(v.Missing, MissingAddress{a.String(), why})
		}
	}
	return &v
}
