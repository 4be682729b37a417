package keyword

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// draft is a virtual server on its way into the configuration.
type draft struct {
	raw *rawVirtual
	vs  *config.VirtualServer
	// real finds a real server by what the kernel tells apart.
	real map[config.RSKey]*realDraft
	// order keeps them as written.
	order []*realDraft
	// group is set for a virtual server of a group.
	group *rawGroup
	// told remembers whose services this one's collide with.
	told map[*draft]bool
	// via are its checkers that are to ask the virtual address, bound those of UDP with a
	// source address.
	via   map[*config.Checker]viaUse
	bound []*rawChecker
}

type realDraft struct {
	raw *rawReal
	rs  *config.RealServer
}

// resolve makes the configuration of what was read.
func (b *builder) resolve() *config.Config {
	cfg := &config.Config{Global: b.globals(), SSL: b.raw.ssl}
	byKey := map[config.VSKey]*draft{}
	ordinals := map[config.VSKey]int{}
	var drafts []*draft
	for _, r := range b.raw.virtuals {
		d := b.virtual(r)
		if r.kind == byGroup {
			// The ordinal counts declarations, so that one that is refused does
			// not give its identity to the next.
			k := config.VSKey{Group: r.group, Protocol: protocolOf(r, b.raw.groups[r.group])}
			ordinal := ordinals[k]
			ordinals[k]++
			if d != nil {
				d.vs.Key = k
				d.vs.Key.Ordinal = ordinal
			}
		}
		if d == nil {
			continue
		}
		if before := byKey[d.vs.Key]; before != nil {
			b.sameVirtual(before, d)
			continue
		}
		byKey[d.vs.Key] = d
		drafts = append(drafts, d)
	}
	drafts = b.collisions(drafts)
	b.host(drafts)
	for _, d := range drafts {
		d.collect()
		b.quorum(d)
		b.minAlive(d)
		b.slowStart(d)
		cfg.VirtualServers = append(cfg.VirtualServers, d.vs)
	}
	for _, t := range b.raw.trackOrder {
		if b.usesTrack(cfg, t.track.Name) {
			cfg.TrackFiles = append(cfg.TrackFiles, &t.track)
		}
	}
	return cfg
}

// usesTrack tells whether something depends on a file: a real server's weight or state,
// or what global_defs says.
func (b *builder) usesTrack(cfg *config.Config, name string) bool {
	if b.trackUsers == nil {
		b.trackUsers = map[string]bool{}
		for _, name := range b.globalTracks {
			b.trackUsers[name] = true
		}
		for _, vs := range cfg.VirtualServers {
			for _, rs := range vs.RealServers {
				for _, u := range rs.TrackFiles {
					b.trackUsers[u.Name] = true
				}
				for _, c := range rs.Checkers {
					if c.File != nil {
						b.trackUsers[c.File.Name] = true
					}
				}
			}
		}
	}
	return b.trackUsers[name]
}

// protocolOf is the protocol of a virtual server after its defaults.
func protocolOf(r *rawVirtual, g *rawGroup) config.Protocol {
	if r.kind == byMark || (r.kind == byGroup && g != nil && len(g.addrs) == 0) {
		return config.None
	}
	return r.protocol.or(config.UDP)
}

// virtual resolves one virtual server but for its quorum; nil if it is not to
// be served.
func (b *builder) virtual(r *rawVirtual) *draft {
	d := &draft{raw: r}
	f := r.f
	served := !r.schedBad && !r.method.v.bad
	if r.kind == byGroup {
		g := b.raw.groups[r.group]
		if g == nil {
			f.parent.report(codeNoGroup, f.n, &f.n.Words[2], fmt.Sprintf("there is no virtual_server_group %s", r.group),
				b.didYouMean(r.group, b.raw.groupNames, "this virtual server is not served, as with keepalived"))
			return nil
		}
		d.group = g
	}
	family, ok := b.family(d)
	if !ok {
		return nil
	}
	if len(r.reals) == 0 {
		f.reportBlock(codeNoRealServer, title(f.n)+" has no real server", "it is not served, as with keepalived")
		return nil
	}
	d.real = make(map[config.RSKey]*realDraft, len(r.reals))
	d.order = make([]*realDraft, 0, len(r.reals))
	d.vs = &config.VirtualServer{
		Pos: f.n.Pos, Protocol: b.protocol(d), Flags: r.flags, Persistence: r.persistence,
		Granularity: r.granularity, Engine: r.engine, QuorumUp: r.quorumUp, QuorumDown: r.quorumDown,
		Omega: r.omega, HASuspend: r.haSuspend, VirtualHost: r.virtualHost, SNMPName: r.snmpName,
		SMTPAlert:    first(false, r.smtpAlert, b.raw.smtpAlertChecker, b.raw.smtpAlert),
		DrainTimeout: r.drainTimeout.or(b.raw.global.DrainTimeout),

		UDPDrainTimeout: r.udpDrainTimeout.or(b.raw.global.UDPDrainTimeout),
		OnFailure:       r.onFailure,
		MinAlive:        r.minAlive, FlapDamping: r.flapDamping,
		Label: b.pool.text(r.label),
	}
	b.serviceRules(d)
	b.entries(d, family)
	b.vip(d, family)
	if !r.sched.ok {
		f.reportBlock(codeNoScheduler, title(f.n)+" has no lvs_sched", "wlc is used, as keepalived does")
	}
	d.vs.Scheduler = r.sched.or("wlc")
	b.defaultMethod(d)
	for _, rr := range r.reals {
		b.realServer(d, rr, family)
	}
	b.sorry(d, family)
	if !served {
		return nil
	}
	if len(d.order) == 0 {
		f.reportBlock(codeNoRealServer, title(f.n)+" has no usable real server", "it is not served")
		return nil
	}
	return d
}

func (d *draft) collect() {
	d.vs.RealServers = make([]*config.RealServer, 0, len(d.order))
	for _, rd := range d.order {
		d.vs.RealServers = append(d.vs.RealServers, rd.rs)
	}
}

// methodOf resolves a method that is its own, the virtual server's where it was
// declared, or the virtual server's in the end.
func methodOf(own, virtual opt[methodWord]) config.Forwarding {
	switch {
	case own.ok && !own.v.bad:
		return own.v.fwd
	case virtual.ok && !virtual.v.bad:
		return virtual.v.fwd
	}
	return config.Forwarding{Method: config.NAT}
}

// defaultMethod reports a virtual server without lvs_method if somebody needs it.
func (b *builder) defaultMethod(d *draft) {
	r := d.raw
	if r.method.ok {
		return
	}
	needs := r.sorry != nil && !r.sorry.method.ok
	for _, rs := range r.reals {
		needs = needs || !rs.method.ok
	}
	if needs {
		r.f.reportBlock(codeNoMethod, title(r.f.n)+" has no lvs_method", "NAT is used, as keepalived does")
	}
}

// protocol applies the default; a mark has none.
func (b *builder) protocol(d *draft) config.Protocol {
	r := d.raw
	p := protocolOf(r, d.group)
	switch {
	case p == config.None:
		if r.protocol.ok {
			r.f.report(codeMarkProtocol, r.protoAt, &r.protoAt.Words[1], "a firewall mark takes packets of any protocol", "protocol is cleared, as keepalived does; delete the line")
		}
	case !r.protocol.ok:
		r.f.reportBlock(codeNoProtocol, title(r.f.n)+" has no protocol", "UDP is used, as keepalived does; write protocol TCP for TCP")
	}
	return p
}

// serviceRules corrects what does not go with the kind of service.
func (b *builder) serviceRules(d *draft) {
	r, vs, f := d.raw, d.vs, d.raw.f
	if r.haSuspend && (r.kind == byMark || (d.group != nil && len(d.group.marks) > 0)) {
		f.report(codeHASuspend, r.haAt, &r.haAt.Words[0], "ha_suspend needs an address to look for, and a firewall mark has none", "it is cleared, as keepalived does")
		vs.HASuspend = false
	}
	if vs.HASuspend && r.kind == byGroup {
		f.report(codeHAGroup, r.haAt, &r.haAt.Words[0], "ha_suspend works for this group", "its real servers are checked while one of its addresses is on this host; in keepalived the word has no effect for groups")
	}
	if r.kind == byAddress && vs.Flags.OnePacket && vs.Protocol != config.UDP {
		f.report(codeOPS, r.opsAt, &r.opsAt.Words[0], "ops is only for protocol UDP, and this is "+vs.Protocol.String(), "it is cleared, as keepalived does")
		vs.Flags.OnePacket = false
	}
	if vs.Persistence == 0 {
		switch {
		case r.kind == byAddress && r.port == 0:
			f.reportBlock(codePortZero, title(f.n)+": a service for every port needs persistence", "persistence_timeout 360 is used, as keepalived does; write it, or a port")
			vs.Persistence = 360
		case d.group != nil && d.group.noPort != nil:
			f.reportBlock(codePortZero, title(f.n)+": an entry for every port needs persistence", "persistence_timeout 360 is used, as keepalived does; write it, or ports in the group",
				"the entry is on "+lineOf(d.group.noPort.Pos, f.n.Pos))
			vs.Persistence = 360
		}
	}
	if r.kind == byGroup && r.granAt != nil {
		f.report(codeGranGroup, r.granAt, &r.granAt.Words[0], "persistence_granularity works for this group", "keepalived loses it for groups, so that this service differs from keepalived's")
	}
}

// family decides the family of a virtual server; ok is false when its group
// cannot be used for it.
func (b *builder) family(d *draft) (config.Family, bool) {
	r := d.raw
	known := r.family
	if d.group == nil {
		if known != config.FamilyUnknown {
			return known, true
		}
		return r.guessFamily(), true
	}
	v4, v6, _ := d.group.families()
	refuse := func(why string) (config.Family, bool) {
		r.f.parent.report(codeGroupFamily, r.f.n, &r.f.n.Words[2], fmt.Sprintf("virtual_server_group %s %s", r.group, why), "this virtual server is not served, as with keepalived",
			"the group is on "+lineOf(d.group.f.n.Pos, r.f.n.Pos))
		return config.FamilyUnknown, false
	}
	switch {
	case v4 && v6:
		for _, rs := range r.reals {
			if methodOf(rs.method, r.method).Method != config.TUN {
				return refuse("has both families, which only real servers with TUN can serve")
			}
		}
		if r.sorry != nil && methodOf(r.sorry.method, r.method).Method != config.TUN {
			return refuse("has both families, which only a sorry server with TUN can serve")
		}
		return config.FamilyUnknown, true
	case v4 || v6:
		family := config.IPv4
		if v6 {
			family = config.IPv6
		}
		if known != config.FamilyUnknown && known != family {
			return refuse(fmt.Sprintf("is %s, and this virtual server is %s", family, known))
		}
		return family, true
	case known != config.FamilyUnknown:
		return known, true
	}
	return r.guessFamily(), true
}

// guessFamily takes the family of the first server that is not tunnelled, else
// the one that all have in common, else IPv4.
func (r *rawVirtual) guessFamily() config.Family {
	common, mixed := config.FamilyUnknown, false
	see := func(f config.Family) {
		mixed = mixed || (common != config.FamilyUnknown && common != f)
		common = f
	}
	for _, rs := range r.reals {
		family := config.FamilyOf(rs.addr)
		if methodOf(rs.method, r.method).Method != config.TUN {
			return family
		}
		see(family)
	}
	if s := r.sorry; s != nil {
		if methodOf(s.method, r.method).Method != config.TUN {
			return config.FamilyOf(s.addr)
		}
		see(config.FamilyOf(s.addr))
	}
	if mixed || common == config.FamilyUnknown {
		return config.IPv4
	}
	return common
}

// entries lists the services and the identity.
func (b *builder) entries(d *draft, family config.Family) {
	r, vs := d.raw, d.vs
	switch r.kind {
	case byAddress:
		addr := addrPort(r.addr, r.port)
		vs.Key = config.VSKey{Protocol: vs.Protocol, Addr: addr}
		vs.Entries = []config.Entry{{Addr: addr, Family: family}}
	case byMark:
		vs.Key = config.VSKey{FWMark: r.mark, Family: family}
		vs.Entries = []config.Entry{{FWMark: r.mark, Family: family}}
	case byGroup:
		vs.Entries = make([]config.Entry, 0, len(d.group.addrs)+len(d.group.marks))
		for _, list := range [][]rawEntry{d.group.addrs, d.group.marks} {
			for i := range list {
				e := list[i].Entry
				if e.Family == config.FamilyUnknown {
					e.Family = cmp.Or(family, config.IPv4)
				}
				vs.Entries = append(vs.Entries, e)
			}
		}
		if len(d.group.marks) > 0 {
			// "fwmark 1" and "fwmark 1 inet" are the same entry by now.
			vs.Entries = uniqueEntries(vs.Entries)
		}
	}
}

func uniqueEntries(list []config.Entry) []config.Entry {
	seen := make(map[config.Entry]bool, len(list))
	return slices.DeleteFunc(list, func(e config.Entry) bool {
		again := seen[e]
		seen[e] = true
		return again
	})
}

// sameVirtual merges a second declaration of a virtual server into the first.
func (b *builder) sameVirtual(first, second *draft) {
	where := "the first one is on " + lineOf(first.vs.Pos, second.vs.Pos)
	f := second.raw.f
	if what := b.difference(first, second); what != "" {
		f.reportBlock(codeSameVirtual, fmt.Sprintf("%s is declared twice, with another %s", title(f.n), what), "this one is not served; make the two agree and their real servers are merged", where)
		return
	}
	f.reportBlock(codeVirtualMerged, title(f.n)+" is declared twice", "its real servers are added to the first one", where)
	a, z := first.vs, second.vs
	a.QuorumUp, a.QuorumDown = orScript(a.QuorumUp, z.QuorumUp), orScript(a.QuorumDown, z.QuorumDown)
	a.Label = firstText(a.Label, z.Label)
	if a.Sorry == nil {
		a.Sorry = z.Sorry
	}
	first.bound = append(first.bound, second.bound...)
	for ck, u := range second.via {
		first.remember(ck, u)
	}
	known := len(first.order)
	for _, rd := range second.order {
		b.addReal(first, rd)
	}
	if first.vs.Sorry == z.Sorry {
		known = 0 // it is new here, and any of them may be the same server
	}
	b.sorryTwin(first, known)
}

func orScript(a, b *config.Script) *config.Script {
	if a != nil {
		return a
	}
	return b
}

// serviceDifference names the first attribute of the kernel's service in which
// two virtual servers differ.
func serviceDifference(a, b *config.VirtualServer) string {
	switch {
	case a.Scheduler != b.Scheduler:
		return "scheduler (" + a.Scheduler + " and " + b.Scheduler + ")"
	case a.Flags != b.Flags:
		return "scheduler flag"
	case a.Persistence != b.Persistence:
		return "persistence_timeout"
	case a.Granularity != b.Granularity:
		return "persistence_granularity"
	case a.Engine != b.Engine:
		return "persistence_engine"
	}
	return ""
}

// difference names what keeps two declarations from being one.
func (b *builder) difference(x, y *draft) string {
	a, z := x.vs, y.vs
	if what := serviceDifference(a, z); what != "" {
		return what
	}
	scripts := func(p, q *config.Script) bool {
		return p == nil || q == nil || (slices.Equal(p.Argv, q.Argv) && p.User == q.User && p.Group == q.Group)
	}
	switch {
	case x.raw.quorum != y.raw.quorum:
		return "quorum"
	case x.raw.hysteresis != y.raw.hysteresis:
		return "hysteresis"
	case !scripts(a.QuorumUp, z.QuorumUp):
		return "quorum_up"
	case !scripts(a.QuorumDown, z.QuorumDown):
		return "quorum_down"
	case a.Omega != z.Omega:
		return "omega"
	case a.HASuspend != z.HASuspend:
		return "ha_suspend"
	case a.DrainTimeout != z.DrainTimeout:
		return "drain_timeout"
	case a.UDPDrainTimeout != z.UDPDrainTimeout:
		return "udp_drain_timeout"
	case a.OnFailure != z.OnFailure:
		return "on_failure"
	case a.MinAlive != z.MinAlive:
		return "min_alive"
	case a.FlapDamping != z.FlapDamping:
		return "flap_damping"
	case a.VIP != z.VIP:
		return "vip_device, vip_follow or vip_guard"
	case !slices.Equal(a.VIPAddresses, z.VIPAddresses):
		return "vip_address"
	case a.Sorry != nil && z.Sorry != nil && (a.Sorry.Key != z.Sorry.Key || a.Sorry.Forward != z.Sorry.Forward || a.Sorry.Inhibit != z.Sorry.Inhibit):
		return "sorry server"
	}
	return ""
}

const markOfGroup = "mark of nftables_ipvs"

// collisions leaves a service of the kernel that two virtual servers want in
// different ways to the first of them.
func (b *builder) collisions(drafts []*draft) []*draft {
	type service struct {
		entry    config.Entry
		protocol config.Protocol
	}
	owners := map[service]*draft{}
	return slices.DeleteFunc(drafts, func(d *draft) bool {
		d.vs.Entries = slices.DeleteFunc(d.vs.Entries, func(e config.Entry) bool {
			s := service{entry: e, protocol: d.vs.Protocol}
			if e.FWMark != 0 {
				s.protocol = config.None
			}
			owner := owners[s]
			if owner == nil {
				owners[s] = d
				return false
			}
			what := serviceDifference(owner.vs, d.vs)
			if what == "" && b.raw.global.NFTables != nil && owner.raw.group != d.raw.group && e.FWMark == 0 {
				what = markOfGroup
			}
			if what == "" {
				return false
			}
			if !d.told[owner] {
				if d.told == nil {
					d.told = map[*draft]bool{}
				}
				d.told[owner] = true
				f := d.raw.f
				share := fmt.Sprintf("%s and %s share %s", title(f.n), title(owner.raw.f.n), entryName(e))
				why, hint := "with another "+what, "what they share is left to the first one; keepalived would merge the real servers there"
				if what == markOfGroup {
					why, hint = "and its packets can have one mark of nftables_ipvs only", "what they share is left to the first one; use one group for both, or take it out of one of them"
				}
				f.reportBlock(codeSameVirtual, share+", "+why, hint,
					"the first one is on "+lineOf(owner.vs.Pos, d.vs.Pos))
			}
			return true
		})
		return len(d.vs.Entries) == 0
	})
}

// quorum bounds quorum and hysteresis by the weights.
func (b *builder) quorum(d *draft) {
	r, vs, f := d.raw, d.vs, d.raw.f
	vs.Quorum, vs.Hysteresis = r.quorum, r.hysteresis
	var total uint64
	for _, rs := range vs.RealServers {
		total += uint64(rs.Weight)
	}
	at := func(n *syntax.Node) (*frame, *syntax.Node, *syntax.Word) {
		if n == nil {
			return f.parent, f.n, &f.n.Words[0]
		}
		return f, n, &n.Words[min(1, len(n.Words)-1)]
	}
	switch {
	case total == 0:
		if vs.Quorum > 1 {
			vs.Quorum = 1
		}
		fr, n, w := at(nil)
		fr.report(codeAllZero, n, w, title(f.n)+": all weights are 0", "nothing takes new connections; the quorum stays 1, where keepalived could never gain it again")
	case uint64(vs.Quorum) > total:
		fr, n, w := at(r.quorumAt)
		fr.report(codeQuorum, n, w, fmt.Sprintf("quorum %d cannot be met by total weight %d", vs.Quorum, total), fmt.Sprintf("quorum %d is used, as keepalived does", total))
		vs.Quorum = uint32(total)
	}
	if vs.Hysteresis >= vs.Quorum {
		fr, n, w := at(r.hystAt)
		fr.report(codeHysteresis, n, w, fmt.Sprintf("hysteresis %d is not below quorum %d", vs.Hysteresis, vs.Quorum), fmt.Sprintf("hysteresis %d is used, as keepalived does", vs.Quorum-1))
		vs.Hysteresis = vs.Quorum - 1
	}
}

// defaultDelayLoop is a virtual server's delay_loop.
const defaultDelayLoop = 60 * time.Second

// schedule resolves when a checker runs.
func schedule(kind config.CheckerKind, ck, rs, vs *checkDefaults, fast bool) config.Schedule {
	loop := first(defaultDelayLoop, ck.delayLoop, rs.delayLoop, vs.delayLoop)
	retry, before, rise := uint32(1), time.Second, uint32(1)
	switch kind {
	case config.HTTPGet, config.SSLGet:
		before = 3 * time.Second
		if !fast {
			rise = 2
		}
	case config.DNSCheck:
		retry, before = 3, loop
	case config.MiscCheck:
		retry = 0
	}
	s := config.Schedule{
		DelayLoop:        loop,
		DelayBeforeRetry: first(before, ck.beforeRetry, rs.beforeRetry, vs.beforeRetry),
		Retry:            first(retry, ck.retry, rs.retry, vs.retry),
		Rise:             first(rise, ck.rise, rs.rise, vs.rise),
	}
	s.Warmup = first(s.DelayLoop, ck.warmup, rs.warmup, vs.warmup)
	return s
}
