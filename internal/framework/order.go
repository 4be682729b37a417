package framework

import (
	"fmt"

	"github.com/sluice-lb/sluice/internal/config"
)

// Order is what an operator asked of a real server by command. It is a fact like a
// file's value: it outlives reloads, and whoever owns the VirtualServer says when it
// ends.
type Order struct {
	// Drain takes the weight to 0, whatever else is asked for.
	Drain bool
	// Weight stands in for the configured weight if Weighed.
	Weight  int64
	Weighed bool
}

// Orders returns what is asked of a real server; the zero Order for nothing.
type Orders func(config.RSKey) Order

// BaseWeight is the weight before files and checks add to it: an operator's, else
// the configured one.
func (rs *RealServer) BaseWeight() int64 {
	return rs.baseUnder(rs.Order())
}

func (rs *RealServer) baseUnder(o Order) int64 {
	if o.Weighed {
		return o.Weight
	}
	return rs.Config.Weight
}

// Order is what an operator asked of it.
func (rs *RealServer) Order() Order {
	if rs.more == nil {
		return Order{}
	}
	return rs.more.order
}

func (rs *RealServer) setOrder(o Order) {
	if o != rs.Order() {
		rs.rest().order = o
	}
}

func (rs *RealServer) order(orders []Orders) {
	for _, o := range orders {
		rs.setOrder(o(rs.Config.Key))
	}
}

// SetOrder records what an operator asks of a server and returns what it changes.
func (vs *VirtualServer) SetOrder(server int, o Order) (Change, error) {
	if server < 0 || server >= len(vs.Servers) {
		return Change{}, fmt.Errorf("order for real server %d: no such server", server)
	}
	vs.Servers[server].setOrder(o)
	return vs.update(server), nil
}

// Ordered returns the weight that would be left alive under an order, and whether the
// order takes some away and leaves less than the quorum stands on.
func (vs *VirtualServer) Ordered(orders map[int]Order) (left int64, short bool) {
	left = vs.sum
	for i, o := range orders {
		rs := *vs.Servers[i]
		left -= rs.counted()
		rs.weight = rs.weightUnder(o)
		left += rs.counted()
	}
	return left, left < vs.sum && left < vs.Needed()
}

// Needed is the weight below which a quorum that stands is lost.
func (vs *VirtualServer) Needed() int64 {
	return max(int64(vs.Config.Quorum)-int64(vs.Config.Hysteresis), 1)
}

// Proven sums the weight of the servers that all their checks vouch for, those left
// out that skip names. A server without checks needs no proof.
func (vs *VirtualServer) Proven(skip map[config.RSKey]bool) int64 {
	var sum int64
	for _, rs := range vs.Servers {
		if !skip[rs.Config.Key] && rs.Proven() {
			sum += rs.counted()
		}
	}
	return sum
}

// Proven reports whether all of its checks vouch for a server.
func (rs *RealServer) Proven() bool {
	for _, v := range rs.Checkers {
		if v != Up {
			return false
		}
	}
	return true
}

// Usable reports whether new connections can go to a server: it is alive and has a
// weight.
func (rs *RealServer) Usable() bool { return rs.counted() > 0 }

// TrustUnverified makes a server that waits for its first good check serve without
// it, and returns what that changes.
func (vs *VirtualServer) TrustUnverified(server int) Change {
	vs.Servers[server].Trusted = true
	return vs.update(server)
}
