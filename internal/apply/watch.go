package apply

import (
	"time"

	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// watched is what several readings of a draining destination tell together.
type watched struct {
	// read: there was a reading, the last one at.
	read bool
	at   time.Time
	// connections is the kernel's count of connections that were ever scheduled to
	// it; at weight 0 it should stay.
	connections uint64
	// quiet is since when only inactive connections were seen.
	quiet time.Time
	// note says that it gets new connections all the same, and why.
	note string
}

// Bounds of the kernel's timeouts that no setting changes.
const (
	// timeWait is the longest of the TCP states that are not active, besides FIN_WAIT.
	timeWait = 2 * time.Minute
	// synRecv is how long a connection that was begun may take to become active.
	synRecv = time.Minute
	// lag is added before something is concluded from a timeout.
	lag = 10 * time.Second
)

// Timeouts tells the kernel's connection timeouts, from which the end of a drain is
// estimated.
func (a *Applier) Timeouts(t ipvs.Timeouts) {
	a.fin = max(time.Duration(t.TCPFin)*time.Second, timeWait)
}

// observe takes in one reading of a destination at weight 0 and reports, once, one
// that gets connections all the same.
func (a *Applier) observe(k parkedKey, info ipvs.DestinationInfo, now time.Time) {
	d := a.parked.get(k)
	c := info.Counters
	comes := d.read && a.comesBack(k, d, info, now)
	if !d.read || info.Stats.Connections < d.connections { // somebody zeroed it
		d.connections = info.Stats.Connections
	}
	switch {
	case c.Active > 0:
		d.quiet = time.Time{}
	case d.quiet.IsZero():
		d.quiet = now
	}
	d.counters, d.read, d.at = c, true, now
	if !comes || d.note != "" {
		return
	}
	why, sysctl, hint := "a client reuses its ports", "net.ipv4.vs.conn_reuse_mode", "1 with NAT, 3 with DR and TUN, has such connections scheduled anew"
	if m := a.mirror[k.service]; m != nil && m.service.Flags&ipvs.Persistent != 0 {
		why, sysctl, hint = "clients come back by persistence", "net.ipv4.vs.expire_quiescent_template", "1 has them scheduled anew"
	}
	d.note = "gets new connections at weight 0: " + why + " (sysctl " + sysctl + ": " + hint + ")"
	a.log.Warn("A draining destination gets new connections", event.Key, event.DrainReused, "service", k.service.String(), "destination", k.dest.String(),
		"why", why, "sysctl", sysctl, "hint", hint, "active", c.Active, "inactive", c.Inactive, "drain_timeout", d.limit)
}

// comesBack reports whether a reading shows connections that are younger than the
// drain: scheduled ones, by the kernel's count; more than there were; or, where an
// old entry is used again without being counted, active ones that were not, or
// inactive ones that outlive their time.
func (a *Applier) comesBack(k parkedKey, d *drain, info ipvs.DestinationInfo, now time.Time) bool {
	c := info.Counters
	total := func(c ipvs.Counters) uint64 { return uint64(c.Active) + uint64(c.Inactive) }
	switch {
	case info.Stats.Connections > d.connections, total(c) > total(d.counters):
		return true
	case k.service.Protocol != ipvs.TCP:
		return false
	case c.Active > d.counters.Active:
		return d.at.Sub(d.since) > synRecv
	}
	return c.Active == 0 && c.Inactive > 0 && a.fin > 0 && !d.quiet.IsZero() && now.Sub(d.quiet) > a.fin+lag
}

// endsBy is when a drain that waits for inactive connections alone will have ended,
// at the latest; zero if that cannot be said.
func (a *Applier) endsBy(k parkedKey) time.Time {
	d := a.parked.get(k)
	if d.quiet.IsZero() || a.fin == 0 || d.note != "" || k.service.Protocol != ipvs.TCP {
		return time.Time{}
	}
	return d.quiet.Add(a.fin)
}
