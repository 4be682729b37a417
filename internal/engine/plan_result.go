package engine

import (
	"encoding/json"
	"time"

	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Plan is what a reload would do. The field tags are the control API's JSON.
type Plan struct {
	At time.Time `json:"at"` // the moment that it is about
	// ConfigFile is what was planned, Generation the configuration that runs.
	ConfigFile string `json:"config_file"`
	Generation uint64 `json:"generation"`
	// Observe: nothing is written to the kernel, neither would this be.
	Observe bool `json:"observe"`
	// Changes: the reload would do anything at all.
	Changes bool `json:"changes"`
	// Refused is why the reload would be refused; nothing else is said then but the
	// Findings, as lines for people.
	Refused  string         `json:"refused,omitempty"`
	Findings []diag.Finding `json:"findings,omitempty"`
	// KernelError is why the table cannot be written now.
	KernelError string `json:"kernel_error,omitempty"`
	// Notes are what makes the plan less than exact.
	Notes []string `json:"notes,omitempty"`

	// Pools would fall below their quorum or to their floor, or be left without a
	// server.
	Pools []PlanPool `json:"pools_falling"`
	// Cut are destinations that go at once though they have connections.
	Cut []PlanDestination `json:"connections_cut"`
	// Drains are destinations that would begin to drain.
	Drains []PlanDrain `json:"drains"`
	// Joins are real servers that join after their first good check, Held those that
	// go on serving until others have come in their place.
	Joins []PlanServer `json:"join_later"`
	Held  []PlanHeld   `json:"held"`

	Added   []string            `json:"virtual_servers_added"`   // names of those that come
	Removed []string            `json:"virtual_servers_removed"` // names of those that go
	Changed []PlanVirtualServer `json:"virtual_servers_changed"` // those that stay and change
	// Checks are those of real servers that stay which begin anew, unproven.
	Checks []PlanCheck `json:"checks_restarting"`
	Orders []PlanOrder `json:"orders"` // operators' orders that lose or get their server
	// Settings are those of no virtual server that change, Restart those that change
	// and are only taken up at a start.
	Settings []PlanSetting `json:"settings"`
	Restart  []string      `json:"needs_restart"`

	// Operations are all that is written to the table, in order.
	Operations []PlanOperation `json:"operations"`

	ops []ipvs.Op
}

// MarshalJSON writes lists with nothing in them as such, and never as null.
func (p Plan) MarshalJSON() ([]byte, error) {
	type plain Plan
	full(&p.Pools)
	full(&p.Cut)
	full(&p.Drains)
	full(&p.Joins)
	full(&p.Held)
	full(&p.Added)
	full(&p.Removed)
	full(&p.Changed)
	full(&p.Checks)
	full(&p.Orders)
	full(&p.Settings)
	full(&p.Restart)
	full(&p.Operations)
	return json.Marshal(plain(p))
}

func full[T any](list *[]T) {
	if *list == nil {
		*list = []T{}
	}
}

// PlanPool is a virtual server with its numbers before and after the reload.
type PlanPool struct {
	VS string `json:"virtual_server"` // keepalived's name of it
	// BelowQuorum: its quorum stands and would be lost. AtFloor: min_alive would keep
	// failed servers in it, or has too few to keep. Empty: it serves, and nobody would.
	BelowQuorum bool `json:"below_quorum"`
	AtFloor     bool `json:"at_floor"`
	Empty       bool `json:"empty"`
	// WeightBefore and WeightAfter are sums over the real servers that are alive; Needed is what the quorum
	// needs after the reload.
	WeightBefore int64 `json:"weight_before"`
	WeightAfter  int64 `json:"weight_after"`
	Needed       int64 `json:"weight_needed"`
	// ServingBefore and ServingAfter are real servers that are alive with a weight.
	ServingBefore int `json:"serving_before"`
	ServingAfter  int `json:"serving_after"`
	MinAlive      int `json:"min_alive,omitempty"` // after the reload
	// Sorry is the sorry server that would serve.
	Sorry string `json:"sorry_server,omitempty"`
}

// PlanDestination is a destination of the table with what it carries now.
type PlanDestination struct {
	Service  string `json:"service"`     // the service of the table
	Address  string `json:"destination"` // address and port
	Active   uint32 `json:"active"`      // active connections now
	Inactive uint32 `json:"inactive"`    // inactive connections now
}

// PlanDrain is a destination that would begin to drain.
type PlanDrain struct {
	PlanDestination
	Why string `json:"why"` // what makes it leave
	// Limit is when it is removed with what is left on it, in nanoseconds; 0 for never.
	Limit time.Duration `json:"limit_ns,omitempty"`
}

// PlanServer is a real server.
type PlanServer struct {
	VS     string `json:"virtual_server"` // keepalived's name of the virtual server
	Server string `json:"real_server"`    // address and port
}

// PlanHeld is a real server that departure_hold keeps.
type PlanHeld struct {
	PlanServer
	// For is how long at most.
	For time.Duration `json:"for_ns"`
}

// PlanVirtualServer is what would change in a virtual server.
type PlanVirtualServer struct {
	VS       string           `json:"virtual_server"`                 // keepalived's name of it
	Settings []PlanSetting    `json:"settings,omitempty"`             // its keywords
	Added    []string         `json:"real_servers_added,omitempty"`   // real servers that come
	Removed  []string         `json:"real_servers_removed,omitempty"` // real servers that go
	Changed  []PlanRealServer `json:"real_servers_changed,omitempty"` // real servers that stay and change
}

// PlanRealServer is what would change in a real server.
type PlanRealServer struct {
	Server   string        `json:"real_server"` // address and port
	Settings []PlanSetting `json:"settings"`    // its keywords
}

// PlanSetting is a keyword whose effect changes. Values that may be secret, or are long,
// are left out.
type PlanSetting struct {
	Keyword string `json:"keyword"`        // with the blocks that it is in
	From    string `json:"from,omitempty"` // its value now
	To      string `json:"to,omitempty"`   // its value after the reload
}

// PlanCheck is a check that begins anew.
type PlanCheck struct {
	PlanServer
	Kind   string `json:"kind"`   // the block's keyword
	Target string `json:"target"` // what it asks
}

// PlanOrder is an operator's order that would cease to have an effect since its server
// goes, or come to have one since its server comes.
type PlanOrder struct {
	PlanServer
	Kind  Verb   `json:"kind"`  // what was asked for
	Who   string `json:"who"`   // the user who asked
	Comes bool   `json:"comes"` // it comes to have an effect; else it ceases to
}

// PlanOperation is one write to the table. A destination is "" where the service itself
// is meant.
type PlanOperation struct {
	// Op is "add", "change" or "remove".
	Op          string     `json:"op"`
	Service     string     `json:"service"`               // the service of the table
	Destination string     `json:"destination,omitempty"` // address and port
	From        *PlanEntry `json:"from,omitempty"`        // what is there now
	To          *PlanEntry `json:"to,omitempty"`          // what is there then
	// Active and Inactive are the connections of the destination now.
	Active   uint32 `json:"active,omitempty"`
	Inactive uint32 `json:"inactive,omitempty"`
}

// PlanEntry is a service or a destination as the table has it.
type PlanEntry struct {
	Scheduler   string   `json:"scheduler,omitempty"`          // a service's
	Flags       []string `json:"flags,omitempty"`              // a service's
	Persistence uint32   `json:"persistence,omitempty"`        // in seconds
	Netmask     string   `json:"netmask,omitempty"`            // a service's, of its persistence
	Engine      string   `json:"persistence_engine,omitempty"` // a service's

	Method string `json:"method,omitempty"`     // a destination's: how packets are forwarded to it
	Weight uint32 `json:"weight"`               // a destination's
	Upper  uint32 `json:"uthreshold,omitempty"` // connections from which on it gets no new ones
	Lower  uint32 `json:"lthreshold,omitempty"` // connections below which it gets them again
	Tunnel string `json:"tunnel,omitempty"`     // kind of a tunnel
}
