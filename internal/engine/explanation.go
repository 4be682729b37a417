package engine

import "time"

// Explanation answers "why is it out?" for one real server. The field tags are the
// control API's JSON.
type Explanation struct {
	At time.Time `json:"at"` // the moment that it is about
	// VirtualServer is keepalived's name of it, VSLabel what its people call it.
	VirtualServer string `json:"virtual_server"`
	VSLabel       string `json:"virtual_server_label,omitempty"`
	Observe       bool   `json:"observe,omitempty"` // nothing is written to the kernel
	// InService: new connections go to it, as far as is known.
	InService bool `json:"in_service"`
	// Summary is the answer in one or two sentences: why, and what ends it.
	Summary string `json:"summary"`
	// Configured is false for one that is on its way out, of which only RealServer's
	// address and Services are told.
	Configured bool       `json:"configured"`
	RealServer RealServer `json:"real_server"` // its state
	// Services are those of the kernel that it should be, or is, in; each has that one
	// destination. They were read just now, or KernelError says why not.
	Services    []Service `json:"services"`
	KernelError string    `json:"kernel_error,omitempty"` // why the kernel's table was not read
	// Checks are RealServer's checkers with what they found before.
	Checks []Check `json:"checks,omitempty"`
	// Weight are parts whose Adds add up to WeightWanted (0 for -1).
	Weight []WeightPart `json:"weight,omitempty"`
	Pool   *Pool        `json:"pool,omitempty"` // what its virtual server does
	// Orders are what operators asked of it.
	Orders []Override `json:"orders,omitempty"`
}

// Check is one checker with what there is to know of it.
type Check struct {
	Checker
	// Since is when its verdict changed last, zero if it never did.
	Since time.Time `json:"verdict_since,omitzero"`
	// Missing is how many good runs in a row bring it up, 0 while it is.
	Missing uint32        `json:"good_runs_missing,omitempty"`
	Every   time.Duration `json:"delay_loop_ns,omitempty"`         // between two runs
	Retry   time.Duration `json:"delay_before_retry_ns,omitempty"` // between two runs while it fails
	Timeout time.Duration `json:"timeout_ns,omitempty"`            // of one run
	// History is what it found, oldest first; nothing as long as nothing has failed.
	History []Stretch `json:"history,omitempty"`
}

// Stretch are results of a check in a row that say the same.
type Stretch struct {
	// First is zero if they began before they were counted.
	First time.Time `json:"first_at,omitzero"`
	Last  time.Time `json:"last_at"`         // when the last of them was
	Count uint32    `json:"count,omitempty"` // how many they are
	// Result is "ok", "failed" or "unable"; Reason and Took are the last one's.
	Result string        `json:"result"`
	Reason string        `json:"reason,omitempty"`
	Took   time.Duration `json:"took_ns"`         // how long the last one took
	Fault  *Fault        `json:"fault,omitempty"` // the last failure in parts
}

// Fault is a failure in parts.
type Fault struct {
	// Stage is how far the check came: "prepare", "connect", "tls", "send", "reply",
	// "status", "body" or "script".
	Stage    string `json:"stage"`
	Target   string `json:"target,omitempty"`   // what was asked
	Expected string `json:"expected,omitempty"` // what should have come
	Got      string `json:"got,omitempty"`      // what came
	// Errno is the system call's error by name: "ECONNREFUSED".
	Errno   string `json:"errno,omitempty"`
	Timeout bool   `json:"timed_out,omitempty"` // the deadline ended it
}

// WeightPart is a part of a weight.
type WeightPart struct {
	// What is "configured", "operator_weight", "operator_drain", "check", "track_file",
	// "bound", "slow_start", "state" or "shared_destination".
	What string `json:"what"`
	Text string `json:"text"` // the same for people
	Adds int64  `json:"adds"` // what it adds
}

// Pool is what its virtual server does.
type Pool struct {
	Alive      int64     `json:"alive_weight"` // sum of the weights of real servers that are up
	Quorum     uint32    `json:"quorum"`       // the weight that is needed
	Hysteresis uint32    `json:"hysteresis"`   // how much more or less changes it
	QuorumUp   bool      `json:"quorum_up"`    // it serves
	Since      time.Time `json:"since"`        // when QuorumUp changed last
	// Threshold is the weight at which the quorum changes next: to be reached while it
	// is lost, not to be gone below while it stands.
	Threshold int64 `json:"threshold"`
	// Servers are all configured ones, Up those in service.
	Servers      int          `json:"real_servers"`
	Up           int          `json:"real_servers_up"`
	MinAlive     int          `json:"min_alive,omitempty"`      // how many real servers failures leave in service
	AtFloor      bool         `json:"at_floor,omitempty"`       // failed ones are kept in service
	SorryServing bool         `json:"sorry_serving,omitempty"`  // the sorry server is in
	Sorry        *SorryServer `json:"sorry_server,omitempty"`   // the last resort
	Suspended    bool         `json:"suspended,omitempty"`      // it is not checked, its address is not on this host
	Withheld     bool         `json:"withheld,omitempty"`       // nothing of it is to be in the table, this director is passive
	Passive      *Passive     `json:"passive,omitempty"`        // who wants this director to be passive
	VIP          *VIP         `json:"vip,omitempty"`            // what becomes of its addresses on this host
	Marked       *Marked      `json:"nftables_ipvs,omitempty"`  // how nftables_ipvs carries its group
	Hold         *Hold        `json:"departure_hold,omitempty"` // servers that a reload took away go on serving
}
