package engine

import (
	"fmt"
	"time"

	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/framework"
)

// Texts of alerts about what checks alone do not explain.
const (
	mailKept     = "=> Kept by min_alive, its checks fail <="
	mailReleased = "=> No longer kept by min_alive, its checks fail <="
	mailHeld     = "=> Held back by flap_damping until now <="
)

// catchUp lets time pass in one virtual server, so that what is set next happens
// now.
func (e *Engine) catchUp(vs *server, now time.Time) {
	if c := vs.Advance(now); len(c.Servers) > 0 || c.Quorum != framework.QuorumUnchanged {
		e.apply(vs, c, "")
	}
	e.moves.arm(vs)
}

// logProtection logs what the floor, flap damping and slow start do with a server.
func (e *Engine) logProtection(vs *server, c framework.ServerChange, name string) {
	if !c.KeptChanged && !c.HeldChanged && !c.ShareChanged {
		return
	}
	rs := vs.Servers[c.Index]
	args := []any{"rs", name, "vs", vs.name}
	switch {
	case !c.KeptChanged:
	case rs.Kept():
		e.log.Warn(fmt.Sprintf("Keeping service %s in VS %s, though its checks fail", name, vs.name),
			append(args, event.Key, event.ServerKept, "min_alive", vs.Config.MinAlive, "reason", vs.rs[c.Index].failed)...)
	case rs.Alive():
		e.log.Info(fmt.Sprintf("Service %s of VS %s is good again, min_alive need not keep it", name, vs.name), append(args, event.Key, event.ServerUnkept)...)
	}
	if c.HeldChanged && !rs.HeldUntil().IsZero() {
		e.log.Warn(fmt.Sprintf("Holding back service %s of VS %s, it flaps", name, vs.name),
			append(args, event.Key, event.FlapHeld, "flaps", rs.Flaps(), "until", rs.HeldUntil(), "for", time.Until(rs.HeldUntil()).Round(time.Second), "why", "flap_damping")...)
	}
	if c.HeldChanged && rs.HeldUntil().IsZero() {
		e.log.Info(fmt.Sprintf("Holding back service %s of VS %s no longer", name, vs.name), append(args, event.Key, event.FlapReleased, "why", "flap_damping")...)
	}
	until := rs.RisesUntil()
	switch {
	case !c.ShareChanged || !rs.Alive() || rs.Weight() == 0:
	case until.IsZero() && !c.AliveChanged && !c.WeightChanged:
		e.log.Info("Slow start over", append(args, event.Key, event.SlowStartOver, "weight", rs.Share())...)
	case !until.IsZero() && (c.AliveChanged || c.WeightChanged):
		e.log.Info("Slow start", append(args, event.Key, event.SlowStart, "weight", rs.Share(), "full", rs.Weight(), "until", until)...)
	case !until.IsZero():
		e.log.Debug("Slow start goes on", append(args, "weight", rs.Share(), "full", rs.Weight(), "until", until)...)
	}
}

// mailAbout is the text of an alert about a server that went up or down: that of
// the check, or what else moved it.
func mailAbout(rs *framework.RealServer, c framework.ServerChange, check string) string {
	switch {
	case c.KeptChanged && rs.Kept():
		return mailKept
	case c.KeptChanged && !rs.Alive():
		return mailReleased
	case c.HeldChanged && rs.Alive():
		return mailHeld
	}
	return check
}

// watchFloor tells when a virtual server comes to its floor and when it leaves it:
// a pool that only the floor keeps up looks well to its clients until they meet the
// servers that fail, and somebody has to know before that.
func (e *Engine) watchFloor(vs *server) {
	if vs.AtFloor() == !vs.floorSince.IsZero() {
		return
	}
	kept, good := 0, 0
	for _, rs := range vs.Servers {
		switch {
		case rs.Kept():
			kept++
		case rs.Alive() && rs.Weight() > 0:
			good++
		}
	}
	args := []any{"vs", vs.name, "min_alive", vs.Config.MinAlive, "floor", vs.Floor(), "kept", kept, "good", good, "configured", len(vs.Servers)}
	if vs.AtFloor() {
		vs.floorSince = time.Now()
		e.log.Error(fmt.Sprintf("VS %s is at its floor, real servers whose checks fail are kept in service", vs.name), append(args, event.Key, event.FloorReached)...)
		return
	}
	e.log.Info(fmt.Sprintf("VS %s is off its floor, no failed real server is kept in service", vs.name),
		append(args, event.Key, event.FloorLeft, "after", time.Since(vs.floorSince).Round(time.Second))...)
	vs.floorSince = time.Time{}
}
