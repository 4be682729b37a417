package engine

import (
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// ghost is what is left in the table of a virtual server that a reload took away, or
// that it took a service from: it wants to be reached until the last connection has
// ended, and nothing of it drains before its address is gone.
type ghost struct {
	vipState
	device   string
	guard    bool
	mark     uint32
	mapped   []edge.Mapped
	services []ipvs.ServiceKey
}

// departing is a virtual server that a reload takes away or changes, with the services
// that it had.
type departing struct {
	vs       *server
	services []ipvs.Service
	// gone: it is no more.
	gone bool
}

// departs notes a virtual server before apply hears of the reload.
func (e *Engine) departs(vs *server, gone bool) {
	if vs.vip == nil {
		return
	}
	if kernel := e.applier.Lookup(vs.Config.Key); kernel != nil {
		e.edge.departing = append(e.edge.departing, departing{vs, kernel.Services, gone})
	}
}

// departed makes ghosts of what a reload leaves behind, once apply has heard of it.
func (e *Engine) departed(changed []renewed, now time.Time) {
	x := &e.edge
	if !x.on {
		return
	}
	for _, r := range changed {
		e.revive(r.vs)
	}
	for _, d := range x.departing {
		left := e.left(d.services)
		key := d.vs.Config.Key
		switch {
		case d.gone && d.vs.vip.wish != nil && len(left) == 0:
			x.ended = append(x.ended, key)
			continue
		case len(left) == 0:
			continue
		}
		v, vc := d.vs.vip, d.vs.Config
		g := &ghost{vipState: *v, device: vc.VIP.Device, guard: vc.VIP.Guard, services: left}
		if v.wish != nil {
			g.device, g.guard, g.mark, g.mapped = v.wish.Device, v.wish.Guard, v.wish.Mark, v.wish.Mapped
		}
		if !d.gone {
			key = keyOf(left[0])
			g.addresses, g.mark, g.mapped = addressesOf(left, v.addresses), 0, nil
			g.before, g.wish = v.announced(), nil
		}
		if v.addressed(now) {
			e.applier.Stay(true, left...)
		}
		if o := x.ghosts[key]; o != nil { // marks of both families
			o.services, o.addresses = append(o.services, g.services...), merged(o.addresses, g.addresses)
			o.before, o.gone = o.before || g.before, g.gone
			continue
		}
		x.ghosts[key] = g
	}
	x.departing = nil
}

// revive has a virtual server that came back take over what its ghost has.
func (e *Engine) revive(vs *server) {
	x := &e.edge
	g := x.ghosts[vs.Config.Key]
	if g == nil {
		return
	}
	delete(x.ghosts, vs.Config.Key)
	if vs.vip == nil {
		vs.vip = &vipState{}
	}
	vs.vip.wish, vs.vip.before, vs.vip.gone = g.wish, g.before, g.gone
	x.dirty[vs] = true
	if g.services = slices.DeleteFunc(g.services, e.settled); len(g.services) > 0 {
		g.before, g.wish = g.announced(), nil
		x.ghosts[keyOf(g.services[0])] = g
	}
}

// settled reports whether a service is none of a ghost's: it is out of the table, or a
// virtual server's again.
func (e *Engine) settled(k ipvs.ServiceKey) bool { return !e.applier.Has(k) || e.applier.Configured(k) }

// left are those of the services that are in the table and no virtual server's.
func (e *Engine) left(services []ipvs.Service) (keys []ipvs.ServiceKey) {
	for i := range services {
		if k := services[i].ServiceKey; !e.settled(k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// haunt adds the wishes of ghosts that are others than before.
func (e *Engine) haunt(changed map[config.VSKey]*edge.Wish, now time.Time) {
	for key, g := range e.edge.ghosts {
		if g.services = slices.DeleteFunc(g.services, e.settled); len(g.services) == 0 {
			delete(e.edge.ghosts, key)
			if g.wish != nil && e.byKey[key] == nil {
				changed[key] = nil
			}
			continue
		}
		w := &edge.Wish{Device: g.device, Addresses: g.addresses, Local: g.device != "", Guard: g.guard}
		for _, k := range g.services {
			if e.open(k) {
				w.Services = append(w.Services, k)
			}
		}
		if g.mark != 0 {
			if w.Mark = g.mark; len(w.Services) > 0 {
				w.Mapped = g.mapped
				w.Services = nil
				for _, m := range g.mapped {
					w.Services = append(w.Services, m.Service())
				}
			}
		}
		if g.take(w, e, now) {
			changed[key] = w
		}
	}
}

// keyOf is the key of a virtual server that would have just this service.
func keyOf(k ipvs.ServiceKey) config.VSKey {
	if k.FWMark != 0 {
		family := config.IPv4
		if k.Family == ipvs.INET6 {
			family = config.IPv6
		}
		return config.VSKey{FWMark: k.FWMark, Family: family}
	}
	p := map[ipvs.Protocol]config.Protocol{ipvs.TCP: config.TCP, ipvs.UDP: config.UDP, ipvs.SCTP: config.SCTP}[k.Protocol]
	return config.VSKey{Protocol: p, Addr: netip.AddrPortFrom(k.Addr, k.Port)}
}

// addressesOf are those of services, and marked ones for one of a mark.
func addressesOf(services []ipvs.ServiceKey, marked []netip.Addr) (as []netip.Addr) {
	for _, k := range services {
		if k.FWMark != 0 {
			as = append(as, marked...)
		} else {
			as = append(as, k.Addr)
		}
	}
	return merged(as, nil)
}

func merged(a, b []netip.Addr) []netip.Addr {
	all := slices.Concat(a, b)
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// postpone reports whether the table hears of a moved quorum later, or need not at all:
// where the addresses follow the quorum they go before the sorry server comes.
func (e *Engine) postpone(vs *server, ev framework.QuorumEvent, now time.Time) bool {
	e.redress(vs)
	switch v := vs.vip; {
	case v == nil:
	case ev == framework.QuorumGained && v.lost:
		v.lost = false
		return true
	case ev == framework.QuorumLost && vs.Config.VIP.Follow == config.VIPQuorum && v.addressed(now):
		v.lost = true
		e.edge.waiting[vs] = true
		return true
	}
	return false
}

// init hands all that is known of a virtual server to apply.
func (e *Engine) init(vs *server) {
	e.must(e.applier.Init(vs.VirtualServer))
	if vs.vip != nil && vs.vip.lost {
		e.edge.waiting[vs] = true
		e.must(e.applier.Quorum(vs.Config.Key, framework.QuorumGained))
	}
}

// sorryServes reports whether the sorry server is in and the real servers are out.
func (vs *server) sorryServes() bool {
	return vs.Config.Sorry != nil && !vs.QuorumUp() && (vs.vip == nil || !vs.vip.lost)
}

// release does what has waited for addresses that are gone by now.
func (e *Engine) release(now time.Time) {
	x := &e.edge
	var withhold []*server
	for vs := range x.waiting {
		v := vs.vip
		withheld := e.passive.on && !vs.withheld
		if v.lost && vs.Sum() == 0 {
			// Nobody healthy is there to be withdrawn, and an empty pool must not wait.
			e.touched[vs] = true
			e.lose(vs)
		}
		nothing := !v.lost && !withheld && !v.stays
		if v.addressed(now) && !(nothing && v.announced()) {
			continue
		}
		delete(x.waiting, vs)
		if nothing {
			continue
		}
		e.touched[vs] = true
		e.redress(vs)
		if v.lost {
			e.lose(vs)
		}
		if withheld {
			withhold = append(withhold, vs)
		}
		if v.stays {
			v.stays = false
			for _, s := range e.applier.Lookup(vs.Config.Key).Services {
				e.applier.Stay(false, s.ServiceKey)
			}
		}
	}
	e.withhold(withhold)
	for _, g := range x.ghosts {
		if !g.addressed(now) {
			e.applier.Stay(false, g.services...)
		}
	}
}

// lose has the table hear of a lost quorum that was postponed.
func (e *Engine) lose(vs *server) {
	vs.vip.lost = false
	e.must(e.applier.Quorum(vs.Config.Key, framework.QuorumLost))
	e.logSorry(vs, framework.QuorumLost)
}

// releaseAt is when the next of what waits need not wait any more; zero for never.
func (e *Engine) releaseAt() (next time.Time) {
	earlier := func(v *vipState) {
		if !v.announced() && !v.gone.at.IsZero() && (next.IsZero() || v.gone.at.Before(next)) {
			next = v.gone.at
		}
	}
	for vs := range e.edge.waiting {
		earlier(vs.vip)
	}
	for _, g := range e.edge.ghosts {
		if slices.ContainsFunc(g.services, e.applier.Staying) {
			earlier(&g.vipState)
		}
	}
	return next
}

// found begins the wishes when the table was reached for the first time. What serves and
// is not to, an earlier process may have announced.
func (e *Engine) found() {
	x := &e.edge
	x.heard = true
	device := ""
	for _, vs := range e.vss {
		if vs.vip == nil || vs.Config.VIP.Device == "" {
			continue
		}
		device = vs.Config.VIP.Device
		if !vs.withheld {
			continue
		}
		for _, s := range e.applier.Lookup(vs.Config.Key).Services {
			if e.applier.Weighted(s.ServiceKey) {
				e.applier.Stay(true, s.ServiceKey)
				vs.vip.before, vs.vip.stays = true, true
				x.waiting[vs] = true
			}
		}
	}
	strays := e.applier.Strays()
	if device == "" && e.opts.EdgeLeft {
		device = "lo" // where routes are that keep an address local, whatever device it was on
	}
	if device == "" || len(strays) == 0 {
		return
	}
	// What takes packets in for an address that is on no device is no device's either.
	g := &ghost{device: device, services: strays, vipState: vipState{addresses: addressesOf(strays, nil)}}
	for _, k := range strays {
		if e.applier.Weighted(k) {
			e.applier.Stay(true, k)
			g.before = true
		}
	}
	x.ghosts[keyOf(strays[0])] = g
}

// forward has everything that waits for an address wait no more, and reports whether
// anything did. It is for a rehearsal, which finds out what will be and not when.
func (e *Engine) forward() (waited bool) {
	past := time.Now()
	for vs := range e.edge.waiting {
		vs.vip.gone.at, waited = past, true
	}
	for _, g := range e.edge.ghosts {
		if slices.ContainsFunc(g.services, e.applier.Staying) {
			g.gone.at, waited = past, true
		}
	}
	return waited
}
