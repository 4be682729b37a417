package engine

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// published is what readers see: a head and one immutable piece for each virtual
// server. A turn makes new pieces only for what it touched, and in those new
// situations only for the real servers that it touched.
type published struct {
	head   Snapshot
	config *config.Config
	pieces shelf[*piece]
	// unsettled are the services that need a view.
	unsettled map[ipvs.ServiceKey]bool
	// leaving are what is behind head.Leaving.
	leaving []*serviceView
	// orders are what is behind head.Overrides, and places where their servers are
	// in the table.
	orders []Order
	places [][]place
	// report is how the machine around the table was.
	report edge.Report
}

// piece is one virtual server. Of what it points to readers use only what never
// changes: configurations, names, the lists of tasks.
type piece struct {
	of *server
	// vs has no lists: they are made when somebody reads.
	vs     VirtualServer
	kernel *apply.VirtualServer
	// situations are those of the real servers.
	situations shelf[*situation]
	// views describe the services that do not hold just what the situations say; nil
	// for one that does. sorry is the weight of the sorry server in the others, -1
	// for none.
	views []*serviceView
	sorry int64
	hold  *hold
	// addresses are behind vs.VIP.
	addresses []netip.Addr
	// tls: some of its checks see certificates.
	tls bool
}

// serviceView is a service with what of it is to be saved.
type serviceView struct {
	apply.ServiceView
	owned *apply.Owned
}

// mark has a turn publish one real server anew.
func (e *Engine) mark(vs *server, i int) {
	e.markHead(vs)
	vs.marked = append(vs.marked, int32(i))
}

// markHead has a turn publish what is told of a virtual server as a whole. What is
// told of all its real servers is due with e.touched[vs] = true.
func (e *Engine) markHead(vs *server) {
	if _, ok := e.touched[vs]; !ok {
		e.touched[vs] = false
	}
}

// publish makes the pieces that are out of date.
func (e *Engine) publish(now time.Time) {
	if e.rehearsal {
		e.told()
		return
	}
	was := e.published.Load()
	first := was.head.Generation == 0
	if len(e.touched) == 0 && !e.allTouched && !e.headTouched && !e.tableTouched && !e.moved && !first {
		return
	}
	all := e.allTouched || first
	p := &published{config: e.config, unsettled: e.applier.Unsettled(), head: Snapshot{
		Version: e.opts.Version, Started: e.started, At: now, ConfigFile: e.opts.ConfigFile,
		Generation: e.generation, Reload: e.reload, Applied: e.applied, Observe: e.opts.Observe, Kernel: e.kernel, Edge: e.toldEdge(), Sync: e.syncs.shown,
	}, report: e.edge.report}
	if e.passive.on {
		p.head.Passive = e.passive.told()
	}
	if first {
		e.claims()
	}
	pieces := was.pieces.revise()
	if all || e.moved {
		pieces = newShelf[*piece](len(e.vss)).revise()
	}
	show := func(vs *server, was *piece, whole bool) {
		vs.shown = e.piece(vs, p.unsettled, was, whole, now)
		pieces.set(vs.place, vs.shown)
	}
	if all {
		for _, vs := range e.vss {
			show(vs, nil, true)
		}
	} else {
		if e.moved {
			for _, vs := range e.vss {
				pieces.set(vs.place, vs.shown)
			}
		}
		e.touchUnsettled(was.unsettled, p.unsettled)
		for vs, whole := range e.touched {
			show(vs, vs.shown, whole)
		}
	}
	p.pieces = pieces.shelf
	if n := e.unclaimed(p.unsettled); !all && !e.tableTouched && n == len(was.leaving) {
		p.leaving = was.leaving
	} else {
		for _, v := range e.applier.Leaving() {
			p.leaving = append(p.leaving, e.saved(v))
		}
	}
	if all || e.moved || e.headTouched {
		e.publishOrders(p)
	} else {
		p.orders, p.places, p.head.Overrides = was.orders, was.places, was.head.Overrides
	}
	e.told()
	e.published.Store(p)
}

// told has nothing to be published any more.
func (e *Engine) told() {
	for vs := range e.touched {
		vs.marked = vs.marked[:0]
		if cap(vs.marked) > 1000 {
			vs.marked = nil
		}
	}
	if len(e.touched) > 64 {
		e.touched = map[*server]bool{} // a big one stays slow to look through
	}
	clear(e.touched)
	e.allTouched, e.headTouched, e.tableTouched, e.moved = false, false, false, false
}

// unclaimed counts the services that leave: each of them drains or is to be deleted.
func (e *Engine) unclaimed(unsettled map[ipvs.ServiceKey]bool) (n int) {
	for k := range unsettled {
		if len(e.owners[k]) == 0 {
			n++
		}
	}
	return n
}

// claims finds out where each virtual server stands and which have which services, at
// the start and after a reload. One that comes to share a service, or ceases to, is
// published again.
func (e *Engine) claims() {
	e.owners = make(map[ipvs.ServiceKey][]*server, len(e.vss))
	plain := make(map[*server]bool, len(e.vss))
	for i, vs := range e.vss {
		vs.place = i
		if vs.plain {
			plain[vs] = true
		}
		vs.plain = false
		if kernel := e.applier.Lookup(vs.Config.Key); kernel != nil {
			vs.plain = kernel.Plain()
			for _, s := range kernel.Services {
				e.owners[s.ServiceKey] = append(e.owners[s.ServiceKey], vs)
			}
		}
	}
	for _, vss := range e.owners {
		for _, vs := range vss {
			vs.plain = vs.plain && len(vss) == 1
		}
	}
	for _, vs := range e.vss {
		if vs.plain != plain[vs] {
			e.touched[vs] = true
		}
	}
}

// touchUnsettled has virtual servers published again that no event was about: those
// whose services came to hold what they should, or ceased to, or, if the table was
// read, may have other counters; and those that share a service with another one that
// was touched.
func (e *Engine) touchUnsettled(was, is map[ipvs.ServiceKey]bool) {
	owners := func(k ipvs.ServiceKey) {
		for _, vs := range e.owners[k] {
			e.markHead(vs)
		}
	}
	for k := range was {
		if !is[k] {
			owners(k)
		}
	}
	for k := range is {
		if !was[k] || e.tableTouched {
			owners(k)
		}
	}
	for _, vs := range slices.Collect(maps.Keys(e.touched)) {
		if vs.plain {
			continue
		}
		if kernel := e.applier.Lookup(vs.Config.Key); kernel != nil {
			for _, s := range kernel.Services {
				owners(s.ServiceKey)
			}
		}
	}
}

// piece makes one virtual server's piece. Of the one before it takes the situations of
// servers that were not marked, unless whole.
func (e *Engine) piece(vs *server, unsettled map[ipvs.ServiceKey]bool, was *piece, whole bool, now time.Time) *piece {
	p := &piece{of: vs, kernel: e.applier.Lookup(vs.Config.Key), sorry: -1}
	p.vs = VirtualServer{
		Name: vs.name, Label: vs.Config.Label, Group: vs.Config.Key.Group, Protocol: protocolOf(vs.Config), Scheduler: vs.Config.Scheduler,
		Quorum: vs.Config.Quorum, Hysteresis: vs.Config.Hysteresis,
		Alive: vs.Sum(), QuorumUp: vs.QuorumUp(), Since: vs.since,
		Suspended: vs.suspended, SorryServing: vs.sorryServes(),
		MinAlive: vs.Floor(), AtFloor: vs.AtFloor(), FloorSince: vs.floorSince,
		Withheld: vs.withheld, VIP: e.toldVIP(vs), Marked: vs.told,
	}
	if p.vs.VIP != nil {
		p.addresses = vs.vip.addresses
	}
	if vs.hold != nil {
		h := *vs.hold
		p.hold = &h
	}
	if s := vs.Config.Sorry; s != nil {
		p.vs.Sorry = &SorryServer{Address: s.Key.String(), Serving: p.vs.SorryServing}
	}
	for i, s := range p.services() {
		switch dk, sorry := p.kernel.SorryDestination(s.ServiceKey); {
		case unsettled[s.ServiceKey] || !vs.plain || !e.applier.Has(s.ServiceKey):
			if p.views == nil {
				p.views = make([]*serviceView, len(p.kernel.Services))
			}
			p.views[i] = e.saved(e.applier.ViewService(s))
		case sorry:
			p.sorry = e.applier.Weight(s.ServiceKey, dk)
		}
	}
	if was == nil || was.of != vs || p.views != nil || was.views != nil {
		whole = true
	}
	if was == nil || whole {
		p.tls = vs.tls()
	} else {
		p.tls = was.tls
	}
	weight := e.wanted(p)
	if was == nil || was.of != vs {
		p.situations = newShelf[*situation](len(vs.Servers))
	} else {
		p.situations = was.situations
	}
	r := p.situations.revise()
	renew := func(i int) {
		vs.rs[i] = e.situation(vs, i, weight(i), now)
		r.set(i, vs.rs[i])
	}
	if whole {
		for i := range vs.Servers {
			renew(i)
		}
	} else {
		for _, i := range vs.marked {
			renew(int(i))
		}
	}
	p.situations = r.shelf
	return p
}

func protocolOf(vs *config.VirtualServer) string {
	if vs.Protocol == config.None {
		return ""
	}
	return vs.Protocol.String()
}

// services are the kernel's that the virtual server stands for.
func (p *piece) services() []ipvs.Service {
	if p.kernel == nil {
		return nil
	}
	return p.kernel.Services
}

// wanted returns what says which weight of a real server should be in the first
// service, -1 for none.
func (e *Engine) wanted(p *piece) func(server int) int64 {
	services := p.services()
	if len(services) == 0 {
		return func(int) int64 { return -1 }
	}
	first := services[0].ServiceKey
	weight := func(dk ipvs.DestinationKey) int64 { return e.applier.Weight(first, dk) }
	if p.views != nil && p.views[0] != nil {
		wanted := make(map[ipvs.DestinationKey]int64, len(p.views[0].Destinations))
		for _, d := range p.views[0].Destinations {
			wanted[d.DestinationKey] = d.Wanted
		}
		weight = func(dk ipvs.DestinationKey) int64 {
			if w, ok := wanted[dk]; ok {
				return w
			}
			return -1
		}
	}
	return func(server int) int64 {
		dk, ok := p.kernel.Destination(p.of.Servers[server].Config.Key, first)
		if !ok {
			return -1
		}
		return weight(dk)
	}
}

// saved adds to a view what is to be saved of it.
func (e *Engine) saved(v apply.ServiceView) *serviceView {
	sv := &serviceView{ServiceView: v}
	if e.opts.Save == nil {
		return sv
	}
	if o, ok := e.applier.OwnedService(v.Service.ServiceKey); ok {
		sv.owned = &o
	}
	return sv
}
