package framework

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
)

// MaxWeight is the largest weight the kernel takes (keepalived clamps to
// 0..2147483647).
const MaxWeight = math.MaxInt32

// RealServer is what is known of one real server. Only its VirtualServer changes
// it.
type RealServer struct {
	Config *config.RealServer
	// Checkers are the verdicts, in the order of Config.Checkers.
	Checkers []Verdict

	// more is nil for a server that needs nothing of it, as most do.
	more *more
	// failedAs numbers the failures of the virtual server's servers in their order; 0
	// is one that has not been good yet.
	failedAs uint64
	standing
	// Trusted makes unknown checkers count as up.
	Trusted bool
	// passing: no check says that it is bad and all that count as unknown are
	// trusted. failing: a check says so.
	passing, failing bool
	// cold: it has not served since its virtual server was new.
	cold bool
}

// more is what few real servers need.
type more struct {
	files   []FileValue
	dynamic []Dynamic
	order   Order
	flaps   flaps
	// rises is when a slow start began; zero for none.
	rises time.Time
	// place is where the server stands among those that time alone moves, from 1; 0
	// for one that is not among them.
	place int
}

// rest returns what few servers need, for writing.
func (rs *RealServer) rest() *more {
	if rs.more == nil {
		rs.more = &more{}
	}
	return rs.more
}

// Files are the watched values: those of Config.TrackFiles in their order, then one
// for each FILE_CHECK.
func (rs *RealServer) Files() []FileValue {
	if rs.more == nil {
		return nil
	}
	return rs.more.files
}

// Dynamic are the weights that checkers ask for, in the order of Config.Checkers;
// nil as long as none has.
func (rs *RealServer) Dynamic() []Dynamic {
	if rs.more == nil {
		return nil
	}
	return rs.more.dynamic
}

// setDynamic records the weight that a checker asks for and reports whether it is
// another than before.
func (rs *RealServer) setDynamic(checker int, d Dynamic) bool {
	ds := rs.Dynamic()
	if ds == nil {
		if d == (Dynamic{}) {
			return false
		}
		ds = make([]Dynamic, len(rs.Checkers))
		rs.rest().dynamic = ds
	}
	was := ds[checker]
	ds[checker] = d
	return d != was
}

// FileValue is a watched file's number with the rule that weighs it.
type FileValue struct {
	Value  int64
	Weight int64
	// Reverse negates.
	Reverse bool
	// Name is the track_file's.
	Name string
	// Checker is the index of the FILE_CHECK that this is the value of; -1 for
	// track_file in the real server itself, where a fault is a drain and not a
	// failure.
	Checker int
}

// Dynamic is the weight that a MISC_CHECK with misc_dynamic asks for by its exit
// status. It is an absolute weight, and what it adds is computed from it whenever
// it is wanted: keepalived stores the difference, which a timeout leaves behind
// for good (case C06).
type Dynamic struct {
	Weight int64
	Set    bool
}

// Status returns the file's contribution to a weight and whether it means
// FAULT, by keepalived's track_file rule (facts 8.3): with weight 0 any value but
// 0 is a fault (reverse: 0 is); otherwise value x weight clamped to 32 bits is
// the contribution and the lowest number alone is a fault.
func (f FileValue) Status() (contribution int64, fault bool) {
	if f.Weight == 0 {
		return 0, (f.Value != 0) != f.Reverse
	}
	// Both factors have at most 33 bits, so the product cannot overflow.
	p := f.Value * f.Weight
	if f.Reverse {
		p = -p
	}
	p = min(max(p, math.MinInt32), math.MaxInt32)
	if p == math.MinInt32 {
		return 0, true
	}
	return p, false
}

// Alive reports whether the server may serve as far as its checks go, or the floor
// keeps it in service all the same.
func (rs *RealServer) Alive() bool { return rs.alive }

// Weight returns the effective weight, 0..MaxWeight. It is what counts for the
// quorum; Share is what goes into the table.
func (rs *RealServer) Weight() int64 { return int64(rs.weight) }

// Maintenance reports whether an operator, files or checks drain a server that would
// have a weight.
func (rs *RealServer) Maintenance() bool {
	return rs.weight == 0 && (rs.Order() != Order{} || rs.Config.Weight > 0)
}

// setFile records a value; for a FILE_CHECK it is the verdict too, at once and
// without retries (facts 8.3).
func (rs *RealServer) setFile(use int, value int64) {
	f := &rs.more.files[use]
	f.Value = value
	if f.Checker < 0 {
		return
	}
	rs.Checkers[f.Checker] = Up
	if _, fault := f.Status(); fault {
		rs.Checkers[f.Checker] = Down
	}
}

// computePassing ANDs the checkers, as keepalived does.
func (rs *RealServer) computePassing() bool {
	for _, v := range rs.Checkers {
		if v == Down || v == Unknown && !rs.Trusted {
			return false
		}
	}
	return true
}

// Unverified reports that no check says the server is bad but none has vouched
// for it either.
func (rs *RealServer) Unverified() bool { return !rs.passing && !rs.failing }

func (rs *RealServer) anyDown() bool {
	return slices.Contains(rs.Checkers, Down)
}

// computeWeight sums the configured weight and every contribution, as facts 4.13
// and 8.3 have them: a check that asks for a weight contributes the difference to
// the configured one, so that two such checks add up, and while it is down it
// contributes nothing. A fault of a weightless track_file is the operator's "out":
// weight 0, a drain.
func (rs *RealServer) computeWeight() int32 { return rs.weightUnder(rs.Order()) }

// weightUnder is the weight under an order.
func (rs *RealServer) weightUnder(o Order) int32 {
	if o.Drain {
		return 0
	}
	base := rs.baseUnder(o)
	sum := base
	for i, d := range rs.Dynamic() {
		if d.Set && rs.Checkers[i] != Down {
			sum += d.Weight - base
		}
	}
	for _, f := range rs.Files() {
		c, fault := f.Status()
		if fault && f.Checker < 0 {
			return 0
		}
		sum += c
	}
	return int32(min(max(sum, 0), MaxWeight))
}

// QuorumEvent is a move of the quorum.
type QuorumEvent int

// Quorum events.
const (
	QuorumUnchanged QuorumEvent = iota
	QuorumGained
	QuorumLost
)

// String returns keepalived's word for the event.
func (e QuorumEvent) String() string {
	switch e {
	case QuorumGained:
		return "Gained quorum"
	case QuorumLost:
		return "Lost quorum"
	}
	return "quorum unchanged"
}

// ServerChange is one real server's move in a Change.
type ServerChange struct {
	Index int
	// AliveChanged and WeightChanged tell which of the two moved.
	AliveChanged  bool
	WeightChanged bool
	// ShareChanged: the weight in the table moved, by itself or with the effective
	// one. KeptChanged and HeldChanged: the floor, or flap damping, took it up or
	// let it go. RiseChanged: a slow start began or ended.
	ShareChanged, KeptChanged, HeldChanged, RiseChanged bool
}

// Change is what an event changed in a virtual server. The real server that the
// event was about stands first, if it changed; others follow where one server's
// standing depends on the rest.
type Change struct {
	Servers []ServerChange
	Quorum  QuorumEvent
}

// Of returns what moved of one real server.
func (c Change) Of(server int) ServerChange {
	for _, sc := range c.Servers {
		if sc.Index == server {
			return sc
		}
	}
	return ServerChange{Index: server}
}

// VirtualServer is what is known of one virtual server.
type VirtualServer struct {
	Config  *config.VirtualServer
	Servers []*RealServer

	tally
	quorumUp bool
	// now is the virtual server's clock; moments are the servers that time alone
	// moves, with the first of all at the top.
	now      time.Time
	moments  moments
	failures uint64
}

// Sum returns the weight that is alive.
func (vs *VirtualServer) Sum() int64 { return vs.sum }

// Alive returns how many servers are alive.
func (vs *VirtualServer) Alive() int { return vs.tally.alive }

// QuorumUp reports whether the quorum stands.
func (vs *VirtualServer) QuorumUp() bool { return vs.quorumUp }

// Threshold returns the weight at which the quorum changes next: what must be
// reached while it is down, what must not be gone below while it is up.
func (vs *VirtualServer) Threshold() int64 {
	q, h := int64(vs.Config.Quorum), int64(vs.Config.Hysteresis)
	if vs.quorumUp {
		return max(q-h, 1)
	}
	return q + h
}

// SetVerdict records a checker's verdict and returns what it changes.
func (vs *VirtualServer) SetVerdict(server, checker int, v Verdict) (Change, error) {
	if server < 0 || server >= len(vs.Servers) || checker < 0 || checker >= len(vs.Servers[server].Checkers) {
		return Change{}, fmt.Errorf("verdict for checker %d of real server %d: no such checker", checker, server)
	}
	vs.Servers[server].Checkers[checker] = v
	return vs.update(server), nil
}

// SetDynamic records the weight that a checker asks for, or that it asks for none,
// and returns what it changes.
func (vs *VirtualServer) SetDynamic(server, checker int, d Dynamic) (Change, error) {
	if server < 0 || server >= len(vs.Servers) || checker < 0 || checker >= len(vs.Servers[server].Checkers) {
		return Change{}, fmt.Errorf("weight of checker %d of real server %d: no such checker", checker, server)
	}
	if !vs.Servers[server].setDynamic(checker, d) {
		return Change{}, nil
	}
	return vs.update(server), nil
}

// SetFile records a watched file's value for one use of it and returns what it
// changes.
func (vs *VirtualServer) SetFile(server, use int, value int64) (Change, error) {
	if server < 0 || server >= len(vs.Servers) || use < 0 || use >= len(vs.Servers[server].Files()) {
		return Change{}, fmt.Errorf("value for track_file use %d of real server %d: no such use", use, server)
	}
	vs.Servers[server].setFile(use, value)
	return vs.update(server), nil
}

// counted is what the server adds to the quorum's sum.
func (rs *RealServer) counted() int64 {
	if !rs.alive {
		return 0
	}
	return int64(rs.weight)
}

// evaluate moves the quorum by keepalived's rule (facts 5.1): gained at quorum +
// hysteresis, lost at nothing or below quorum - hysteresis.
func (vs *VirtualServer) evaluate() QuorumEvent {
	q, h := int64(vs.Config.Quorum), int64(vs.Config.Hysteresis)
	switch {
	case !vs.quorumUp && vs.sum > 0 && vs.sum >= q+h:
		vs.quorumUp = true
		return QuorumGained
	case vs.quorumUp && (vs.sum == 0 || vs.sum < q-h):
		vs.quorumUp = false
		return QuorumLost
	}
	return QuorumUnchanged
}

// recompute derives everything from the facts; the first evaluation of the
// quorum is left to the caller.
func (vs *VirtualServer) recompute() { vs.derive(vs.standings()) }
