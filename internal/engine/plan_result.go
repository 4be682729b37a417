package engine

import (
	"time"

	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Plan is what a reload would do. The field tags are the control API's JSON.
type Plan struct {
	At time.Time `json:"at"`
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

	Added   []string            `json:"virtual_servers_added"`
	Removed []string            `json:"virtual_servers_removed"`
	Changed []PlanVirtualServer `json:"virtual_servers_changed"`
	// Checks are those of real servers that stay which begin anew, unproven.
	Checks []PlanCheck `json:"checks_restarting"`
	Orders []PlanOrder `json:"orders"`
	// Settings are those of no virtual server that change, Restart those that change
	// and are only taken up at a start.
	Settings []PlanSetting `json:"settings"`
	Restart  []string      `json:"needs_restart"`

	// Operations are all that is written to the table, in order.
	Operations []PlanOperation `json:"operations"`

	ops []ipvs.Op
}

// PlanPool is a virtual server with its numbers before and after the reload.
type PlanPool struct {
	VS string `json:"virtual_server"`
	// BelowQuorum: its quorum stands and would be lost. AtFloor: min_alive would keep
	// failed servers in it, or has too few to keep. Empty: it serves, and nobody would.
	BelowQuorum bool `json:"below_quorum"`
	AtFloor     bool `json:"at_floor"`
	Empty       bool `json:"empty"`
	// Weights are sums over the real servers that are alive; Needed is what the quorum
	// needs after the reload.
	WeightBefore int64 `json:"weight_before"`
	WeightAfter  int64 `json:"weight_after"`
	Needed       int64 `json:"weight_needed"`
	// Serving are real servers that are alive with a weight.
	ServingBefore int `json:"serving_before"`
	ServingAfter  int `json:"serving_after"`
	MinAlive      int `json:"min_alive,omitempty"`
	// Sorry is the sorry server that would serve.
	Sorry string `json:"sorry_server,omitempty"`
}

// PlanDestination is a destination of the table with what it carries now.
type PlanDestination struct {
	Service  string `json:"service"`
	Address  string `json:"destination"`
	Active   uint32 `json:"active"`
	Inactive uint32 `json:"inactive"`
}

// PlanDrain is a destination that would begin to drain.
type PlanDrain struct {
	PlanDestination
	Why string `json:"why"`
	// Limit is when it is removed with what is left on it, in nanoseconds; 0 for never.
	Limit time.Duration `json:"limit_ns,omitempty"`
}

// PlanServer is a real server.
type PlanServer struct {
	VS     string `json:"virtual_server"`
	Server string `json:"real_server"`
}

// PlanHeld is a real server that departure_hold keeps.
type PlanHeld struct {
	PlanServer
	// For is how long at most.
	For time.Duration `json:"for_ns"`
}

// PlanVirtualServer is what would change in a virtual server.
type PlanVirtualServer struct {
	VS       string           `json:"virtual_server"`
	Settings []PlanSetting    `json:"settings,omitempty"`
	Added    []string         `json:"real_servers_added,omitempty"`
	Removed  []string         `json:"real_servers_removed,omitempty"`
	Changed  []PlanRealServer `json:"real_servers_changed,omitempty"`
}

// PlanRealServer is what would change in a real server.
type PlanRealServer struct {
	Server   string        `json:"real_server"`
	Settings []PlanSetting `json:"settings"`
}

// PlanSetting is a keyword whose effect changes. Values that may be secret, or are long,
// are left out.
type PlanSetting struct {
	Keyword string `json:"keyword"`
	From    string `json:"from,omitempty"`
	To      string `json:"to,omitempty"`
}

// PlanCheck is a check that begins anew.
type PlanCheck struct {
	PlanServer
	Kind   string `json:"kind"`
	Target string `json:"target"`
}

// PlanOrder is an operator's order that would cease to have an effect since its server
// goes, or come to have one since its server comes.
type PlanOrder struct {
	PlanServer
	Kind  Verb   `json:"kind"`
	Who   string `json:"who"`
	Comes bool   `json:"comes"`
}

// PlanOperation is one write to the table. A destination is "" where the service itself
// is meant.
type PlanOperation struct {
	// Op is "add", "change" or "remove".
	Op          string     `json:"op"`
	Service     string     `json:"service"`
	Destination string     `json:"destination,omitempty"`
	From        *PlanEntry `json:"from,omitempty"`
	To          *PlanEntry `json:"to,omitempty"`
	// Active and Inactive are the connections of the destination now.
	Active   uint32 `json:"active,omitempty"`
	Inactive uint32 `json:"inactive,omitempty"`
}

// PlanEntry is a service or a destination as the table has it.
type PlanEntry struct {
	Scheduler   string   `json:"scheduler,omitempty"`
	Flags       []string `json:"flags,omitempty"`
	Persistence uint32   `json:"persistence,omitempty"`
	Netmask     string   `json:"netmask,omitempty"`
	Engine      string   `json:"persistence_engine,omitempty"`

	Method string `json:"method,omitempty"`
	Weight uint32 `json:"weight"`
	Upper  uint32 `json:"uthreshold,omitempty"`
	Lower  uint32 `json:"lthreshold,omitempty"`
	Tunnel string `json:"tunnel,omitempty"`
}
