package framework

import (
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
)

// flaps is what flap damping remembers of one real server.
type flaps struct {
	// downs are the times at which it went down, as far back as they count; unused
	// once it flaps.
	downs []time.Time
	// level counts the flaps since it began to flap; 0 is a server that does not.
	level uint
	// until is the end of the hold under way, zero without one; back is the end of
	// the last one.
	until, back time.Time
}

// any reports whether it remembers anything.
func (f *flaps) any() bool {
	return f.level > 0 || len(f.downs) > 0 || !f.until.IsZero() || !f.back.IsZero()
}

// holdLimit bounds a hold, in multiples of the time of flap_damping.
const holdLimit = 10

// hold returns how long a server has to stay good at a level from 1 on.
func hold(d config.Damping, level uint) time.Duration {
	h, limit := d.Within/time.Duration(d.Count), holdLimit*d.Within
	for ; level > 1 && h < limit; level-- {
		h *= 2
	}
	return min(h, limit)
}

// down records that the server went down. One that already flaps does so further
// if that happens during its hold or within the time of flap_damping after it;
// after a longer good time counting starts anew.
func (f *flaps) down(now time.Time, d config.Damping) {
	if d.Count == 0 {
		*f = flaps{}
		return
	}
	if f.level > 0 {
		again := !f.until.IsZero() || now.Sub(f.back) < d.Within
		f.until = time.Time{}
		if again {
			f.level = min(f.level+1, 64)
			return
		}
		f.level = 0
	}
	f.downs = slices.DeleteFunc(slices.Clone(f.downs), func(t time.Time) bool { return now.Sub(t) >= d.Within })
	f.downs = append(f.downs, now)
	if len(f.downs) >= int(d.Count) {
		f.level, f.downs = 1, nil
	}
}

// up records that all checks pass again; a server that flaps is held from now on.
func (f *flaps) up(now time.Time, d config.Damping) {
	switch {
	case d.Count == 0:
		*f = flaps{}
	case f.level > 0:
		f.until = now.Add(hold(d, f.level))
	}
}

// end ends a hold that is over or not wanted.
func (f *flaps) end(at time.Time) { f.until, f.back = time.Time{}, at }

// hold says whether one server is held back: a hold that is over, or not wanted any
// more, ends.
func (vs *VirtualServer) hold(rs *RealServer) {
	rs.held = false
	if rs.more == nil {
		return
	}
	f := &rs.more.flaps
	switch {
	case vs.Config.FlapDamping.Count == 0:
		*f = flaps{}
	case !f.until.IsZero() && !vs.now.Before(f.until):
		f.end(f.until)
	}
	rs.held = rs.passing && !f.until.IsZero()
}

// damp decides which servers are held back and returns how many healthy ones are
// left. A hold never leaves a pool darker than it must be: as long as fewer than
// the floor, or none at all, are healthy, the hold that would end first ends now,
// and for good.
func (vs *VirtualServer) damp() (healthy int) {
	for _, rs := range vs.Servers {
		vs.hold(rs)
		if rs.healthy() {
			healthy++
		}
	}
	for healthy < max(vs.Floor(), 1) {
		var next *RealServer
		for _, rs := range vs.Servers {
			if rs.waits() && (next == nil || rs.more.flaps.until.Before(next.more.flaps.until)) {
				next = rs
			}
		}
		if next == nil {
			break
		}
		next.more.flaps.end(vs.now)
		next.held = false
		healthy++
	}
	return healthy
}

// waits reports whether the end of its hold would make the server healthy.
func (rs *RealServer) waits() bool { return rs.held && rs.weight > 0 }

// healthy reports whether the server passes its checks, is not held back, and takes
// connections.
func (rs *RealServer) healthy() bool { return rs.passing && !rs.held && rs.weight > 0 }

// HeldUntil returns when a server that passes its checks but flaps will be back;
// zero for one that is not held.
func (rs *RealServer) HeldUntil() time.Time {
	if rs.held {
		return rs.more.flaps.until
	}
	return time.Time{}
}

// Flaps returns how often the server has flapped since it began to; 0 for one that
// does not flap.
func (rs *RealServer) Flaps() uint {
	if rs.more == nil {
		return 0
	}
	return rs.more.flaps.level
}
