package engine

import (
	"time"

	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Snapshot is everything a reader may know of the engine at one moment. It is
// immutable once published: readers share it and never ask the loop. The field
// tags are the control API's JSON.
type Snapshot struct {
	Version string    `json:"version"` // of the daemon's program
	Started time.Time `json:"started"` // when the daemon was started
	// At is when the snapshot was made.
	At         time.Time `json:"at"`
	ConfigFile string    `json:"config_file"` // the file that it reads
	// Generation counts the configurations applied, from 1; a start counts on where
	// the state file ends.
	Generation uint64 `json:"generation"`
	Reload     Reload `json:"last_reload"`
	// Applied is when the running configuration was applied.
	Applied time.Time `json:"config_applied,omitzero"`
	// Checks are the runs of checks since the start, by kind; kinds of which none has
	// run are not here.
	Checks []Checks `json:"checks,omitempty"`
	// Measured is how long the engine's own work takes.
	Measured *Measured `json:"-"`
	// Observe: nothing is written to the kernel.
	Observe bool   `json:"observe"`
	Kernel  Kernel `json:"kernel"` // whether the kernel's table can be written and read
	// Sync is lvs_sync_daemon; nil without it.
	Sync *Sync `json:"sync_daemon,omitempty"`
	// Overdue is how late the scheduler's most overdue check is.
	Overdue        time.Duration   `json:"overdue_ns"`
	VirtualServers []VirtualServer `json:"virtual_servers"`
	// Leaving are services no longer configured whose destinations still drain.
	Leaving []Service `json:"leaving,omitempty"`
	// Overrides are what operators asked for by command, in the order of time.
	Overrides []Override `json:"overrides,omitempty"`
	// Passive is set while this director withholds its services.
	Passive *Passive `json:"passive,omitempty"`
	// Edge is what goes with the services on the machine, nil without anything.
	Edge *Edge `json:"edge,omitempty"`
	// MissingCapabilities are those that the configuration needs and the process lacks,
	// each with what it is needed for.
	MissingCapabilities []string `json:"missing_capabilities,omitempty"`
	// Foreign is what else the kernel's table holds; nil unless it was asked for.
	Foreign *Foreign `json:"foreign,omitempty"`
}

// Foreign are the services that are not ours; they are never touched.
type Foreign struct {
	Services []Service `json:"services"`
	// Error says why they could not be read.
	Error string `json:"error,omitempty"`
}

// Reload is how the last reload ended; the start counts as the first.
type Reload struct {
	At    time.Time `json:"at"`              // when it ended
	OK    bool      `json:"ok"`              // false: it was refused, and the configuration before goes on
	Error string    `json:"error,omitempty"` // why it was refused
	// Findings are those of the file, and Done what was done; both only in the answer
	// to who asked for the reload.
	Findings []diag.Finding `json:"findings,omitempty"`
	Done     *Reloaded      `json:"done,omitempty"`
}

// Kernel tells whether the kernel's table can be written and read.
type Kernel struct {
	OK bool `json:"ok"` // the last attempt went well
	// Error is the last failure while not OK, with what is done about it.
	Error string    `json:"error,omitempty"`
	Since time.Time `json:"since"` // when OK changed last
	// Operations counts what was written since the start.
	Operations uint64 `json:"operations"`
	// Errors counts the attempts to write or read it that failed since the start.
	Errors uint64 `json:"errors"`
	// DriftRepaired counts what somebody else changed in our services and was put
	// back since the start.
	DriftRepaired uint64 `json:"drift_repaired"`
	// LastSuccess is when it last did what it was asked, be it to read or to write.
	LastSuccess time.Time `json:"last_success,omitzero"`
}

// VirtualServer is one virtual server's state.
type VirtualServer struct {
	// Name is keepalived's: "[192.0.2.1]:tcp:80", "FWM 5" or "[group]:0".
	Name string `json:"name"`
	// Label is what its people call it, "" for nothing.
	Label string `json:"label,omitempty"`
	// Group is the group that it serves, "" for none. Its name can be another's too,
	// that has another protocol.
	Group string `json:"group,omitempty"`
	// Protocol is "TCP", "UDP" or "SCTP", "" for a mark.
	Protocol  string `json:"protocol,omitempty"`
	Scheduler string `json:"scheduler"` // lvs_sched's name
	// Quorum, Hysteresis and Alive are weights: Alive is the sum over the real
	// servers that are up.
	Quorum     uint32    `json:"quorum"`
	Hysteresis uint32    `json:"hysteresis"`
	Alive      int64     `json:"alive_weight"`
	QuorumUp   bool      `json:"quorum_up"` // enough weight is alive: it serves
	Since      time.Time `json:"since"`     // when QuorumUp changed last
	// Suspended: its address is not on this host, so that nothing of it is checked
	// (ha_suspend).
	Suspended bool `json:"suspended,omitempty"`
	// MinAlive is how many real servers failures leave in service, 0 for no floor.
	// AtFloor: failed ones are kept in service for it, since FloorSince. That is an
	// alarm of its own.
	MinAlive   int       `json:"min_alive,omitempty"`
	AtFloor    bool      `json:"at_floor,omitempty"`
	FloorSince time.Time `json:"floor_since,omitzero"` // when it came to it
	// Withheld: this director is passive, and nothing of it is to be in the table.
	Withheld bool `json:"withheld,omitempty"`
	// VIP is what becomes of its addresses on this host, nil without vip_device.
	VIP *VIP `json:"vip,omitempty"`
	// Marked is how nftables_ipvs carries its group, nil where it does not.
	Marked *Marked `json:"nftables_ipvs,omitempty"`
	// SorryServing: the sorry server is in, the real servers are out.
	SorryServing bool `json:"sorry_serving"`
	// Hold is set while servers that a reload took away go on serving.
	Hold        *Hold        `json:"departure_hold,omitempty"`
	Sorry       *SorryServer `json:"sorry_server,omitempty"`
	RealServers []RealServer `json:"real_servers"`
	// CertificateEnds is when the first certificate does that its checks have seen; zero
	// without one.
	CertificateEnds time.Time `json:"certificate_ends,omitzero"`
	// Counts are the numbers of real servers by their states.
	Counts Counts `json:"-"`
	// Services are the kernel services this virtual server stands for.
	Services []Service `json:"services"`
}

// SorryServer is the last resort's state.
type SorryServer struct {
	Address string `json:"address"` // address and port
	Serving bool   `json:"serving"` // it is in the table
}

// State is a real server's situation in one word.
type State string

// States of a real server.
const (
	// StateUp: in the table with a weight above 0 (or about to be).
	StateUp State = "up"
	// StateDown: its checks failed.
	StateDown State = "down"
	// StateUnverified: not checked yet and not trusted unchecked (alpha, or
	// added by a reload).
	StateUnverified State = "unverified"
	// StateMaintenance: a track file or a configured weight of 0 drains it.
	StateMaintenance State = "maintenance"
	// StateWithdrawn: healthy, but the sorry server serves.
	StateWithdrawn State = "withdrawn"
	// StateHeld: no longer configured, but it serves until those that replace it
	// have passed a check (departure_hold).
	StateHeld State = "held"
	// StateKept: its checks failed and min_alive keeps it in service.
	StateKept State = "kept"
	// StatePassive: it would serve, but this director is passive.
	StatePassive State = "passive"
	// StateDamped: its checks pass, but it flapped and is held back for a while.
	StateDamped State = "damped"
)

// RealServer is one real server's state within its virtual server.
type RealServer struct {
	Address string `json:"address"` // address and port, as configured
	// Label is what its people call it, "" for nothing.
	Label string `json:"label,omitempty"`
	State State  `json:"state"` // its situation in one word
	// Reason is why it is in this state, for people.
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`  // when State changed last
	Method string    `json:"method"` // how packets are forwarded to it
	// WeightConfigured is the file's; WeightWanted what should be in the kernel,
	// -1 when it should not be there.
	WeightConfigured int64 `json:"weight_configured"`
	WeightWanted     int64 `json:"weight_wanted"`
	Inhibit          bool  `json:"inhibit_on_failure"` // a failure takes it to weight 0 and not out of the table
	// HeldUntil is when flap damping lets it back; RisesUntil when its slow start
	// ends. Zero for neither.
	HeldUntil  time.Time `json:"held_until,omitzero"`
	RisesUntil time.Time `json:"rises_until,omitzero"`
	Checkers   []Checker `json:"checkers,omitempty"`
	// TrackFiles are the files that move its weight.
	TrackFiles []TrackFile `json:"track_files,omitempty"`
	// Dynamic are the weights that its checks ask for, in the checks' order; a
	// check that asks for none is not here.
	Dynamic []Dynamic `json:"dynamic_weights,omitempty"`
}

// Dynamic is the weight that a check asks for by misc_dynamic.
type Dynamic struct {
	Checker string `json:"checker"` // kind and target of the check
	Weight  int64  `json:"weight"`  // what it asks for
}

// TrackFile is a file's present contribution to a weight.
type TrackFile struct {
	Name         string `json:"name"`            // the track_file block's name
	Path         string `json:"path"`            // the file
	Value        int64  `json:"value"`           // the number in it
	Contribution int64  `json:"contribution"`    // what it adds to the weight
	Fault        bool   `json:"fault,omitempty"` // its value takes the server down
}

// Checker is one checker's state.
type Checker struct {
	Kind   string `json:"kind"`   // the block's keyword
	Target string `json:"target"` // what is asked: address and port, url or the path of a script
	// Verdict is "up", "down" or "unknown".
	Verdict string `json:"verdict"`
	// Last is the last outcome's result ("ok", "failed", "unable"), "" before
	// the first run; LastReason its reason.
	Last       string        `json:"last"`
	LastReason string        `json:"last_reason,omitempty"`
	LastAt     time.Time     `json:"last_at,omitzero"` // when the last run ended
	Took       time.Duration `json:"took_ns"`          // how long the last run took
	// Next is when it runs next, zero if it does not; one that is past runs now.
	Next time.Time `json:"next_at,omitzero"`
	// Failures is how many attempts in a row have failed; Limit how many take
	// the server down.
	Failures uint32 `json:"failures"`
	Limit    uint32 `json:"limit"`
	// Shared is how many real servers the same run decides for, if it is more than
	// this one (share_checks).
	Shared int `json:"shared,omitempty"`
	// CertificateEnds is when the server's certificate does, or of several the first;
	// zero unless the check is over TLS.
	CertificateEnds time.Time `json:"certificate_ends,omitzero"`
}

// Service is one service of the kernel's table.
type Service struct {
	// Name is "192.0.2.1:80/tcp" or "fwmark 5/inet".
	Name string `json:"name"`
	// Key is what Name is made of. It is the zero key with foreign services.
	Key          ipvs.ServiceKey `json:"-"`
	Destinations []Destination   `json:"destinations"`
	// Scheduler is told of foreign services alone.
	Scheduler string `json:"scheduler,omitempty"`
	// Drift is what somebody else changed and is left so (drift report), or is not
	// put back yet.
	Drift []Drift `json:"drift,omitempty"`
}

// Drift is one thing that somebody else changed in a service of ours.
type Drift struct {
	// Destination is "" where the service itself is meant.
	Destination string `json:"destination,omitempty"`
	// What is "service missing", "service changed", "destination missing",
	// "destination added" or "destination changed".
	What   string    `json:"what"`
	Found  string    `json:"found"`  // what is in the table
	Wanted string    `json:"wanted"` // what should be
	Since  time.Time `json:"since"`  // when it was seen first
}

// Destination is one destination of a service, as wanted and as found.
type Destination struct {
	Address string `json:"address"` // address and port
	// Wanted is the weight that should be there, -1 when it should be gone.
	Wanted int64 `json:"weight_wanted"`
	// Kernel is the weight found there, -1 when it is not there (or, while the
	// table could not be read, not known).
	Kernel int64 `json:"weight_kernel"`
	// Active, Inactive and Persistent are connection counts when it was read.
	Active     uint32 `json:"active"`
	Inactive   uint32 `json:"inactive"`
	Persistent uint32 `json:"persistent"`
	// Drain is set while it drains before it is deleted.
	Drain *Drain `json:"drain,omitempty"`
}

// Drain is one destination on its way out.
type Drain struct {
	Since time.Time `json:"since"` // when it began
	// Why is what made it leave: "removed by reload", "withdrawn for the sorry
	// server", "not in the configuration at start".
	Why string `json:"why"`
	// WaitsFor says what is still missing: "3 active and 1 inactive connections".
	WaitsFor string `json:"waits_for"`
	// Deadline is when drain_timeout ends it; zero without one.
	Deadline time.Time `json:"deadline,omitzero"`
	// EndsBy is when the kernel will have forgotten the connections at the latest, if
	// none of them is active; zero if that cannot be said.
	EndsBy time.Time `json:"ends_by,omitzero"`
	// Note says that it gets new connections though its weight is 0, and why.
	Note string `json:"note,omitempty"`
}
