package control

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
)

// Passive is whether a director withholds its services, and how far that is.
type Passive struct {
	// Passive: services are withheld, whoever asked for it.
	Passive bool `json:"passive"`
	// Command: a command asks for it, which a command ends. Else the configuration does.
	Command bool `json:"command"`
	// By is who or what asks for it, for people: a user, "passive on", a track file. It is
	// "" while nothing does.
	By     string    `json:"by,omitempty"`
	Reason string    `json:"reason,omitempty"` // what the command gave for a reason
	Since  time.Time `json:"since,omitzero"`   // when Passive changed last
	// Delay is how long services go on after their addresses were withdrawn (vip_delay).
	Delay          time.Duration `json:"vip_delay_ns"`
	VirtualServers int           `json:"virtual_servers"` // how many are configured
	// Addresses are those that are still announced.
	Addresses int `json:"addresses"`
	// Services are ours in the kernel's table that have a destination, Connections those
	// of them all, active or not.
	Services    int    `json:"services"`
	Connections uint64 `json:"connections"`
}

// Count fills in what of a state's services is in the table.
func (p *Passive) Count(s *engine.Snapshot) {
	p.VirtualServers, p.Services, p.Connections = len(s.VirtualServers), 0, 0
	take := func(list []engine.Service) {
		for i := range list {
			there := false
			for _, d := range list[i].Destinations {
				if d.Kernel >= 0 {
					there = true
					p.Connections += uint64(d.Active) + uint64(d.Inactive)
				}
			}
			if there {
				p.Services++
			}
		}
	}
	for i := range s.VirtualServers {
		take(s.VirtualServers[i].Services)
	}
	take(s.Leaving)
}

// PassiveOrder is the body of POST /v1/passive.
type PassiveOrder struct {
	Passive bool   `json:"passive"`
	Reason  string `json:"reason,omitempty"`
}

// OfferPassive adds GET and POST /v1/passive. Both answer with how it is, POST after set
// has ended.
func (s *Server) OfferPassive(state func(context.Context) (Passive, error), set func(ctx context.Context, on bool, who, reason string) error) {
	tell := func(w http.ResponseWriter, r *http.Request) {
		p, err := state(r.Context())
		if err != nil {
			Refuse(w, err)
			return
		}
		Answer(w, p)
	}
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
