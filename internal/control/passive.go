package control

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Passive is whether a director withholds its services, and how far that is.
type Passive struct {
	// Passive: services are withheld.
	Passive bool `json:"passive"`
	// Sources are who wants it so: any of them is enough.
	Sources []engine.PassiveSource `json:"sources"`
	// Delay is how long services go on after their addresses were withdrawn (vip_delay).
	Delay          time.Duration `json:"vip_delay_ns"`
	VirtualServers int           `json:"virtual_servers"` // how many are configured
	// Addresses are those that are still announced.
	Addresses int `json:"addresses"`
	// Pending: not all of that is done and reported yet.
	Pending bool `json:"pending,omitempty"`
	// Failures are the features around the table that do not work now, so that an address
	// may be announced that should not be.
	Failures []engine.EdgeFailure `json:"failures,omitempty"`
	// Services are ours in the kernel's table that have a destination, Connections those
	// of them all, active or not.
	Services    int    `json:"services"`
	Connections uint64 `json:"connections"`
}

// PassiveOf reads it off a state whose connections were counted just now.
func PassiveOf(s *engine.Snapshot, delay time.Duration) Passive {
	p := Passive{Sources: []engine.PassiveSource{}, Delay: delay, VirtualServers: len(s.VirtualServers)}
	if s.Passive != nil {
		p.Passive = s.Passive.On
		p.Sources = append(p.Sources, s.Passive.Sources...)
	}
	if s.Edge != nil {
		p.Addresses, p.Pending, p.Failures = s.Edge.Announced, s.Edge.Pending, s.Edge.Failures
	}
	// Virtual servers can share a service.
	seen := map[ipvs.ServiceKey]bool{}
	for i := range s.VirtualServers {
		p.count(s.VirtualServers[i].Services, seen)
	}
	p.count(s.Leaving, seen)
	return p
}

func (p *Passive) count(services []engine.Service, seen map[ipvs.ServiceKey]bool) {
	for i := range services {
		there := false
		for _, d := range services[i].Destinations {
			if d.Kernel >= 0 && !seen[services[i].Key] {
				there = true
				p.Connections += uint64(d.Active) + uint64(d.Inactive)
			}
		}
		if there {
			seen[services[i].Key] = true
			p.Services++
		}
	}
}

// PassiveOrder is the body of POST /v1/passive.
type PassiveOrder struct {
	Passive bool   `json:"passive"`
	Reason  string `json:"reason,omitempty"`
}

// OfferPassive adds GET and POST /v1/passive. Both answer with how it is, POST after set
// has ended.
func (s *Server) OfferPassive(state func(context.Context) Passive, set func(ctx context.Context, on bool, who, reason string) error) {
	tell := func(w http.ResponseWriter, r *http.Request) { Answer(w, state(r.Context())) }
	s.Offer(Route{Pattern: "GET /v1/passive", Right: Read, Serve: tell})
	s.Offer(Route{Pattern: "POST /v1/passive", Right: Write, Serve: func(w http.ResponseWriter, r *http.Request) {
		var o PassiveOrder
		dec := json.NewDecoder(r.Body)
		dec.DisallowUnknownFields() // a limit that is not understood must not be left out
		if err := dec.Decode(&o); err != nil {
			Refuse(w, &engine.CommandError{Code: engine.CodeInvalid, Message: "the order cannot be read: " + err.Error()})
			return
		}
		if err := set(r.Context(), o.Passive, who(r.Context()), o.Reason); err != nil {
			Refuse(w, err)
			return
		}
		tell(w, r)
	}})
}

// Passive asks whether the director is passive.
func (c *Client) Passive(ctx context.Context) (Passive, error) {
	b, err := c.do(ctx, http.MethodGet, "/v1/passive", nil)
	return decoded[Passive](c, b, err)
}

// SetPassive has the director withhold its services, or ends an earlier such command, and
// returns how it is then. The error is an *engine.CommandError if nothing was done.
func (c *Client) SetPassive(ctx context.Context, o PassiveOrder) (Passive, error) {
	body, err := json.Marshal(o)
	if err != nil {
		return Passive{}, err
	}
	b, err := c.do(ctx, http.MethodPost, "/v1/passive", body)
	return decoded[Passive](c, b, err)
}
