package framework

import (
	"fmt"
	"math"
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
	// Trusted makes unknown checkers count as up.
	Trusted bool
	// Checkers are the verdicts, in the order of Config.Checkers.
	Checkers []Verdict
	// Files are the watched values: those of Config.TrackFiles in their order,
	// then one for each FILE_CHECK.
	Files []FileValue
	// Dynamic are the weights that checkers ask for, in the order of
	// Config.Checkers.
	Dynamic []Dynamic
	// Order is what an operator asked of it.
	Order Order

	standing
	// passing: no check says that it is bad and all that count as unknown are
	// trusted. failing: a check says so.
	passing, failing bool
	// failedAs numbers the failures of the virtual server's servers in their order; 0
	// is one that has not been good yet.
	failedAs uint64
	flaps    flaps
	// rising is when a slow start began; zero for none. cold: it has not served
	// since its virtual server was new.
	rising time.Time
	cold   bool
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
func (rs *RealServer) Weight() int64 { return rs.weight }

// Maintenance reports whether an operator, files or checks drain a server that would
// have a weight.
func (rs *RealServer) Maintenance() bool {
	return rs.weight == 0 && (rs.Order != Order{} || rs.Config.Weight > 0)
}

// setFile records a value; for a FILE_CHECK it is the verdict too, at once and
// without retries (facts 8.3).
func (rs *RealServer) setFile(use int, value int64) {
	f := &rs.Files[use]
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
	for _, v := range rs.Checkers {
		if v == Down {
			return true
		}
	}
	return false
}

// computeWeight sums the configured weight and every contribution, as facts 4.13
// and 8.3 have them: a check that asks for a weight contributes the difference to
// the configured one, so that two such checks add up, and while it is down it
// contributes nothing. A fault of a weightless track_file is the operator's "out":
// weight 0, a drain.
func (rs *RealServer) computeWeight() int64 {
	if rs.Order.Drain {
		return 0
	}
	base := rs.BaseWeight()
	sum := base
	for i, d := range rs.Dynamic {
		if d.Set && rs.Checkers[i] != Down {
			sum += d.Weight - base
		}
	}
	for _, f := range rs.Files {
		c, fault := f.Status()
		if fault && f.Checker < 0 {
			return 0
		}
		sum += c
	}
	return min(max(sum, 0), MaxWeight)
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
	// let it go.
	ShareChanged, KeptChanged, HeldChanged bool
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

	sum      int64
	quorumUp bool

	// protected: a server's standing depends on the others or on time. now is the
	// virtual server's clock, next when it changes something by itself.
	protected bool
	now, next time.Time
	failures  uint64
}

// Sum returns the weight that is alive.
func (vs *VirtualServer) Sum() int64 { return vs.sum }

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
	if server < 0 || server >= len(vs.Servers) || checker < 0 || checker >= len(vs.Servers[server].Dynamic) {
		return Change{}, fmt.Errorf("weight of checker %d of real server %d: no such checker", checker, server)
	}
	vs.Servers[server].Dynamic[checker] = d
	return vs.update(server), nil
}

// SetFile records a watched file's value for one use of it and returns what it
// changes.
func (vs *VirtualServer) SetFile(server, use int, value int64) (Change, error) {
	if server < 0 || server >= len(vs.Servers) || use < 0 || use >= len(vs.Servers[server].Files) {
		return Change{}, fmt.Errorf("value for track_file use %d of real server %d: no such use", use, server)
	}
	vs.Servers[server].setFile(use, value)
	return vs.update(server), nil
}

// update works out what a new fact about one server changes. Without protection
// that is this server alone, and the sum is kept by its difference.
func (vs *VirtualServer) update(i int) Change {
	if vs.protected {
		return vs.settle(i)
	}
	rs := vs.Servers[i]
	was, before := rs.standing, rs.counted()
	vs.judge(rs)
	rs.alive, rs.share = rs.passing, rs.weight
	vs.sum += rs.counted() - before
	var c Change
	if sc, changed := rs.compare(was, i); changed {
		c.Servers = []ServerChange{sc}
	}
	c.Quorum = vs.evaluate()
	return c
}

// counted is what the server adds to the quorum's sum.
func (rs *RealServer) counted() int64 {
	if !rs.alive {
		return 0
	}
	return rs.weight
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
