package engine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// hold keeps the servers that a reload took away in their virtual server while those
// that replace them are unproven (departure_hold). A held virtual server runs under
// a configuration of its own: what the file says, and the departing servers behind
// it. So checks, weights, quorum, commands and the table need no second rule for
// them: one that fails its check is out, and they count for the quorum, since its
// loss would run quorum_down for a pool that serves.
//
// The hold ends when the proven weight reaches the quorum, when no held server can
// serve any more, or after departure_hold. At its end keepalived's rule holds:
// newcomers without a verdict are trusted unless alpha. If there is none to trust
// either, no sorry server, and the departing servers still pass their checks, they go
// on: an empty pool is never the better one.
type hold struct {
	since, until time.Time
	// over: the time has passed and nobody else can serve.
	over    bool
	servers map[config.RSKey]bool
	// file is the virtual server as it is configured.
	file *config.VirtualServer
}

// Hold is why servers that are no longer configured still serve.
type Hold struct {
	Since time.Time `json:"since"` // when it began
	Until time.Time `json:"until"` // when it ends at the latest, unless nobody else can serve
	// Over: Until has passed, and they go on since nobody else can serve.
	Over bool `json:"over,omitempty"`
	// Servers are held, WaitsFor are configured and unproven.
	Servers  []string `json:"servers"`
	WaitsFor []string `json:"waits_for"`
}

// held returns the configuration that a virtual server is to run under for that of a
// file: the file's own, or with departing servers behind it and the hold of these.
func (e *Engine) held(was *server, file *config.VirtualServer) (*config.VirtualServer, *hold) {
	leaving := e.toHold(was, file, lookup(e.values))
	if len(leaving) == 0 {
		return file, nil
	}
	now := time.Now()
	h := &hold{since: now, until: now.Add(e.config.Global.DepartureHold), servers: map[config.RSKey]bool{}, file: file}
	// Only other newcomers make another hold: reloads of the same file must not put
	// its end off.
	if was.hold != nil && !adds(file, was.Config) {
		h.since, h.until, h.over = was.hold.since, was.hold.until, was.hold.over
	}
	with := *file
	with.RealServers = slices.Clone(file.RealServers)
	for _, rs := range leaving {
		h.servers[rs.Config.Key] = true
		with.RealServers = append(with.RealServers, frozen(rs))
	}
	e.logHold(was, h)
	return &with, h
}

// toHold returns the departing servers to hold: those known to be good, if without
// them the pool would be empty, or lose its quorum while others come in their place.
// Where the file leaves nobody that could serve, there is nothing to wait for.
func (e *Engine) toHold(was *server, vc *config.VirtualServer, values framework.Values) []*framework.RealServer {
	sorry := was.Config.Sorry != nil && !was.QuorumUp()
	if e.config.Global.DepartureHold == 0 || e.away(vc) || sorry {
		return nil
	}
	stays, known := keys(vc), keys(was.Config)
	var leaving []*framework.RealServer
	for _, rs := range was.Servers {
		if !stays[rs.Config.Key] && rs.Usable() && rs.Proven() {
			leaving = append(leaving, rs)
		}
	}
	some, comes := false, was.hold != nil
	for _, rc := range vc.RealServers {
		if rc.Weight > 0 || len(rc.TrackFiles) > 0 {
			some, comes = true, comes || !known[rc.Key]
		}
	}
	if len(leaving) == 0 || !some {
		return nil
	}
	nobody := func(*config.RealServer) bool { return false }
	then, _ := framework.Next(was.VirtualServer, vc, nobody, values, e.ordersOf(vc.Key))
	left := then.Sum()
	if was.hold != nil {
		left = then.Proven(nil) // trust_new may have let unproven ones in
	}
	// A smaller pool may be meant; an empty one is not.
	if left > 0 && (!comes || !was.QuorumUp() || left >= then.Needed()) {
		return nil
	}
	return leaving
}

// adds reports whether a configuration has servers that another has not.
func adds(vc, was *config.VirtualServer) bool {
	known := keys(was)
	return slices.ContainsFunc(vc.RealServers, func(rc *config.RealServer) bool { return !known[rc.Key] })
}

// frozen is a departing server's configuration. What files add to its weight stays as
// it is: nobody watches them for it any more.
func frozen(rs *framework.RealServer) *config.RealServer {
	if len(rs.Files()) == 0 {
		return rs.Config
	}
	rc := *rs.Config
	for _, f := range rs.Files() {
		add, _ := f.Status()
		rc.Weight += add
	}
	rc.Weight = min(max(rc.Weight, 1), framework.MaxWeight)
	rc.TrackFiles = nil
	rc.Checkers = slices.DeleteFunc(slices.Clone(rc.Checkers), func(c *config.Checker) bool { return c.Kind == config.FileCheck })
	return &rc
}

// strangersServe reports whether all that serves in the table at a start is no longer
// configured: the file changed while nobody ran, or a hold was under way. Its servers
// drain, so that those of the file must not wait for their checks.
func (e *Engine) strangersServe(vc *config.VirtualServer) bool {
	kernel, views := e.applier.Lookup(vc.Key), e.applier.View(vc.Key)
	if kernel == nil || len(views) == 0 {
		return false
	}
	s := views[0].Service.ServiceKey
	ours := map[ipvs.DestinationKey]bool{}
	for _, rc := range vc.RealServers {
		dk, _ := kernel.Destination(rc.Key, s)
		ours[dk] = true
	}
	if vc.Sorry != nil {
		// With every method but NAT the port is the service's.
		ours[ipvs.DestinationKey{Addr: vc.Sorry.Key.Addr().Unmap(), Port: vc.Sorry.Key.Port()}] = true
		ours[ipvs.DestinationKey{Addr: vc.Sorry.Key.Addr().Unmap(), Port: s.Port}] = true
	}
	strangers := false
	for _, d := range views[0].Destinations {
		if d.Mirror > 0 && ours[d.DestinationKey] {
			return false
		}
		strangers = strangers || d.Mirror > 0
	}
	return strangers
}

func (e *Engine) logHold(was *server, h *hold) {
	if was.hold != nil {
		if !h.until.Equal(was.hold.until) {
			e.log.Info("Other servers come in place of those that are held, the time of the hold begins anew", event.Key, event.HoldRenewed, "vs", was.name, "until", h.until.Format(time.RFC3339))
		}
		return
	}
	var held []string
	for _, rs := range was.Servers {
		if h.servers[rs.Config.Key] {
			held = append(held, rs.Config.Key.String())
		}
	}
	e.log.Warn("The reload takes away servers that this pool needs, they serve until those in their place have passed a check", event.Key, event.HoldBegun,
		"vs", was.name, "held", strings.Join(held, " "), "until", h.until.Format(time.RFC3339), "why", "departure_hold")
}

// endHolds ends the holds that have nothing to wait for.
func (e *Engine) endHolds(now time.Time) {
	var changed []renewed
	for i, vs := range e.vss {
		if vs.hold == nil {
			continue
		}
		// Nothing but an event or its time ends one.
		if _, touched := e.touched[vs]; !touched && !e.allTouched && now.Before(vs.hold.until) || !e.ends(vs, now) {
			continue
		}
		e.catchUp(vs, now)
		file := vs.hold.file
		e.vss[i] = e.replace(vs, file, nil)
		changed = append(changed, renewed{e.vss[i], apply.Translate(file)})
	}
	if len(changed) > 0 {
		e.hand(changed)
	}
}

// ends decides about one hold.
func (e *Engine) ends(vs *server, now time.Time) bool {
	h := vs.hold
	why := "no departing server can serve any more"
	switch {
	case vs.Proven(h.servers) >= vs.Needed():
		e.log.Info("The servers in their place have passed their checks, departing ones drain", event.Key, event.HoldEnded, "vs", vs.name, "took", now.Sub(h.since).Round(time.Millisecond))
		return true
	case !serves(vs, true):
	case now.Before(h.until):
		return false
	default:
		why = "departure_hold is over"
	}
	e.catchUp(vs, now)
	for _, i := range unverified(vs) {
		e.mark(vs, i)
		e.apply(vs, vs.TrustUnverified(i), "")
	}
	if serves(vs, true) && !serves(vs, false) && vs.Config.Sorry == nil {
		if !h.over {
			h.over = true
			e.touched[vs] = true
			e.log.Error("departure_hold is over and no configured server can serve: those that the reload took away go on, or nothing would", event.Key, event.HoldStuck,
				"vs", vs.name, "waits_for", strings.Join(h.view(vs, func(i int) bool { return vs.Servers[i].Proven() }).WaitsFor, " "))
		}
		return false
	}
	e.log.Warn("Departing servers are held no longer, though those in their place have not passed their checks", event.Key, event.HoldExpired, "vs", vs.name, "why", why)
	return true
}

// serves reports whether any server can serve, of the held or of the others.
func serves(vs *server, held bool) bool {
	return slices.ContainsFunc(vs.Servers, func(rs *framework.RealServer) bool {
		return vs.hold.servers[rs.Config.Key] == held && rs.Usable()
	})
}

// unverified are the newcomers of a held virtual server that may serve on trust when
// it is held no longer.
func unverified(vs *server) []int {
	var is []int
	for i, rs := range vs.Servers {
		if !vs.hold.servers[rs.Config.Key] && rs.Unverified() && !alpha(rs.Config) {
			is = append(is, i)
		}
	}
	return is
}

// letGo prepares a virtual server whose hold a reload ends: without one that serves
// already, its newcomers do on trust.
func letGo(was *server) {
	if serves(was, false) {
		return
	}
	for _, i := range unverified(was) {
		was.TrustUnverified(i)
	}
}

// view describes a hold; proven tells of which servers all checks vouch.
func (h *hold) view(vs *server, proven func(server int) bool) *Hold {
	if h == nil {
		return nil
	}
	v := &Hold{Since: h.since, Until: h.until, Over: h.over, Servers: []string{}, WaitsFor: []string{}}
	for i, rs := range vs.Servers {
		switch name := rs.Config.Key.String(); {
		case h.servers[rs.Config.Key]:
			v.Servers = append(v.Servers, name)
		case !proven(i):
			v.WaitsFor = append(v.WaitsFor, name)
		}
	}
	return v
}

// explain is situate with what holds, operators and passive add to it.
func (e *Engine) explain(vs *server, rs *framework.RealServer, sit *situation) (State, string) {
	state, reason := situate(vs, rs, sit)
	if h := vs.hold; h != nil && h.servers[rs.Config.Key] {
		switch {
		case state != StateUp:
			reason += "; no longer configured"
		case h.over:
			state, reason = StateHeld, "no longer configured, serves since no configured server can"
		default:
			state, reason = StateHeld, fmt.Sprintf("no longer configured, serves until those in its place pass a check, at most until %s", h.until.Format(time.TimeOnly))
		}
	}
	reason = e.ordered(vs, rs, reason)
	if vs.withheld && (state == StateUp || state == StateKept || state == StateWithdrawn || state == StateHeld) {
		return StatePassive, e.withheldReason()
	}
	return state, reason
}
