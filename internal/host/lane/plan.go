package lane

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/host"
)

// Preferences of rules. Ours end before local's.
const (
	prefSkip  = 40
	prefLane  = 50
	prefLocal = 100
	prefMoved = 101
)

// metric is a lane's route, metricNo what forbids it when that is gone.
const (
	metric   = 1
	metricNo = 9999
)

// rule is a rule as far as it matters here.
type rule struct {
	family, action, protocol    uint8
	pref, table, mark, mask, to uint32
	// not inverts; more is what else it asks for.
	not, more bool
}

// local tells whether a rule leads all packets to the table of local addresses.
func (r rule) local() bool {
	return r.action == unix.FR_ACT_TO_TBL && r.table == unix.RT_TABLE_LOCAL && r.mask == 0 && !r.not && !r.more
}

func (r rule) String() string {
	return fmt.Sprintf("rule %s %d action %d table %#x mark %#x/%#x goto %d not %t protocol %d", familyName(r.family), r.pref, r.action, r.table, r.mark, r.mask, r.to, r.not, r.protocol)
}

// route is a route of a table of ours.
type route struct {
	family, kind    uint8
	table, metric   uint32
	to              netip.Prefix
	gateway, source netip.Addr
	device          string
	encap           encap
}

// encap is a route's encapsulation; dst is invalid for none.
type encap struct {
	dst, src netip.Addr
	csum     bool
}

func (r route) String() string {
	s := fmt.Sprintf("route %s %s table %#x metric %d", map[uint8]string{unix.RTN_UNICAST: "to", unix.RTN_PROHIBIT: "prohibit", unix.RTN_THROW: "throw"}[r.kind], r.to, r.table, r.metric)
	if r.gateway.IsValid() {
		s += " via " + r.gateway.String()
	}
	if r.encap.dst.IsValid() {
		s += " encap to " + r.encap.dst.String()
	}
	if r.device != "" {
		s += " dev " + r.device
	}
	return s
}

// slot is what only one route can have.
func (r route) slot() route {
	return route{family: r.family, table: r.table, metric: r.metric, to: r.to}
}

// device is a tunnel of ours.
type device struct {
	name, kind string
	// external takes the destination from the route; else it is remote.
	external      bool
	local, remote netip.Addr
	// port is GUE's, 0 for no GUE.
	port     uint16
	checksum config.Checksum
	// down: its making was not finished, or somebody set it down. None is wanted so.
	down bool
}

// ends are what the kernel tells tunnels apart by.
type ends struct {
	kind          string
	external      bool
	local, remote netip.Addr
}

func (d device) ends() ends { return ends{d.kind, d.external, d.local, d.remote} }

// way is the kind of tunnel as an operator asked for it.
func (d device) way() string {
	if d.port == 0 {
		return "TUN type ipip"
	}
	s := fmt.Sprintf("TUN type gue port %d", d.port)
	return s + map[config.Checksum]string{config.Csum: " csum", config.RemCsum: " remcsum"}[d.checksum]
}

// ErrTaken is the error of a lane whose tunnel would have the ends of another lane's.
var ErrTaken = errors.New("the kernel takes one tunnel with the same ends, and another lane has it")

func (d device) String() string { return fmt.Sprintf("device %s of kind %s", d.name, d.kind) }

// filter is our table of nftables, by the ranges of marks that it hides, comma
// separated; "" is no table.
type filter string

func (f filter) String() string { return "table " + tableName + " of nftables" }

// state is what of ours the kernel has, and all its rules.
type state struct {
	rules   []rule
	routes  []route
	devices []device
	filter  filter
	moved   map[uint8]bool
}

// way is how a real server is reached.
type way struct {
	device string
	// source is in the server's family, other in the other one, invalid for none.
	source, other netip.Addr
	// gateway: the server is behind one.
	gateway bool
	err     error
}

type verb string

const (
	add    verb = "add"
	remove verb = "remove"
)

// op is one thing to write.
type op struct {
	verb verb
	what any
	// mark and family say whose it is: 0 for everybody's.
	mark   uint32
	family uint8
	// after: not if anything of this family failed.
	after *uint8
	// leads: not if IPVS would see the packets that it leads, or they had no way.
	leads bool
}

func (o op) String() string { return fmt.Sprintf("%s %v", o.verb, o.what) }

// plan is what to write, in that order, and what cannot be done.
type plan struct {
	ops   []op
	lanes []Lane
	errs  map[key]error
	// failed are families for which a rule could not be written.
	failed map[uint8]bool
	// moved tells whether the local rule of a family is ours to put back.
	moved map[uint8]bool
	// unhidden: our table of nftables could not be written.
	unhidden bool
}

// fail makes an operation's error that of its lanes.
func (p *plan) fail(o op, err error) {
	if _, isRule := o.what.(rule); isRule && o.mark == 0 {
		p.failed[o.family] = true
	}
	for _, l := range p.lanes {
		if (o.mark == 0 || o.mark == l.Mark) && (o.family == 0 || o.family == l.family()) && p.errs[key{l.Mark, l.IPv6}] == nil {
			p.errs[key{l.Mark, l.IPv6}] = err
		}
	}
}

func (p *plan) add(o op) { o.verb = add; p.ops = append(p.ops, o) }

func (p *plan) remove(o op) { o.verb = remove; p.ops = append(p.ops, o) }

// makePlan compares what there is with what should be. What is missing comes first, and
// a lane's rule after its route; what is too much goes at last.
func makePlan(have state, lanes []Lane, ways map[Lane]way) *plan {
	p := &plan{lanes: lanes, errs: map[key]error{}, failed: map[uint8]bool{}, moved: map[uint8]bool{}}
	var devices []device
	routes, rules := map[route]bool{}, map[rule]bool{}
	slots := map[route]bool{}
	var marks []uint32
	families := map[uint8]bool{}
	var wanted []op
	for _, l := range lanes {
		d, want, err := l.routes(ways[l])
		if err != nil {
			p.errs[key{l.Mark, l.IPv6}] = err
			continue
		}
		if d != nil {
			i := slices.IndexFunc(devices, func(o device) bool { return o.ends() == d.ends() })
			if i >= 0 && devices[i] != *d {
				p.errs[key{l.Mark, l.IPv6}] = fmt.Errorf("check_via: real server %s by %s: %w (%s, by %s); use one kind of tunnel for the real server, or write check_via off", l.Server, d.way(), ErrTaken, devices[i].name, devices[i].way())
				continue
			}
			if i < 0 {
				devices = append(devices, *d)
			}
		}
		families[l.family()] = true
		if base := l.Mark & Mask; !slices.Contains(marks, base) {
			marks = append(marks, base)
		}
		for _, r := range want {
			routes[r], slots[r.slot()] = true, true
			wanted = append(wanted, op{what: r, mark: l.Mark, family: l.family()})
		}
	}
	slices.Sort(marks)
	// A device of that name, or with its ends, that is another one goes first, and its
	// routes with it.
	gone, lost := map[device]bool{}, map[string]bool{}
	for _, d := range devices {
		if slices.Contains(have.devices, d) {
			continue
		}
		for _, h := range have.devices {
			if (h.name == d.name || h.ends() == d.ends()) && !gone[h] && !slices.Contains(devices, h) {
				gone[h], lost[h.name] = true, true
				p.remove(op{what: h})
			}
		}
		p.add(op{what: d})
	}
	for _, o := range wanted {
		if r := o.what.(route); lost[r.device] || !slices.Contains(have.routes, r) {
			p.add(o)
		}
	}
	if want := filterOf(marks); want != "" && want != have.filter {
		p.add(op{what: want})
	}
	for _, f := range []uint8{unix.AF_INET, unix.AF_INET6} {
		p.rules(have, f, families[f], marks, rules)
	}
	for _, r := range have.rules {
		if r.protocol == host.Protocol && !rules[r] && r.pref != prefMoved {
			p.remove(op{what: r, family: r.family, mark: r.table})
		}
	}
	for _, r := range have.routes {
		if !routes[r] && !slots[r.slot()] {
			p.remove(op{what: r, mark: r.table})
		}
	}
	if len(marks) == 0 && have.filter != "" {
		p.remove(op{what: have.filter})
	}
	for _, h := range have.devices {
		if !gone[h] && !slices.ContainsFunc(devices, func(d device) bool { return d.name == h.name }) {
			p.remove(op{what: h})
		}
	}
	return p
}

// rules plans the rules of one family and the place of the local rule.
func (p *plan) rules(have state, f uint8, needed bool, marks []uint32, want map[rule]bool) {
	var mine, locals []rule
	for _, r := range have.rules {
		if r.family != f {
			continue
		}
		mine = append(mine, r)
		if r.local() {
			locals = append(locals, r)
		}
	}
	first := func(zero bool) (uint32, bool) {
		at, found := uint32(0), false
		for _, r := range locals {
			if (r.pref == 0) == zero && (!found || r.pref < at) {
				at, found = r.pref, true
			}
		}
		return at, found
	}
	_, zero := first(true)
	behind, moved := first(false)
	moved100 := slices.ContainsFunc(locals, func(r rule) bool { return r.pref == prefLocal })
	sign := rule{family: f, action: unix.FR_ACT_NOP, protocol: host.Protocol, pref: prefMoved}
	signed := slices.Contains(mine, sign)
	ours := signed || have.moved[f]
	local := func(pref uint32) op {
		return op{family: f, what: rule{family: f, action: unix.FR_ACT_TO_TBL, protocol: unix.RTPROT_KERNEL, pref: pref, table: unix.RT_TABLE_LOCAL}}
	}
	after := func(o op) op { o.after = &f; return o }
	if !needed {
		if !ours {
			return
		}
		p.moved[f] = false
		if !zero {
			p.add(local(0))
		}
		if moved100 {
			p.remove(after(local(prefLocal)))
		}
		if signed {
			p.remove(after(op{family: f, what: sign}))
		}
		return
	}
	switch {
	case zero && moved && !ours:
		p.fail(op{family: f}, fmt.Errorf("check_via: there are two %s rules for the table local, at 0 and at %d; delete one of them", familyName(f), behind))
		return
	case !zero && !moved && !ours:
		p.fail(op{family: f}, fmt.Errorf("check_via: there is no %s rule for the table local; add one: ip rule add pref 0 table local", familyName(f)))
		return
	case !zero && moved && behind <= prefLane:
		p.fail(op{family: f}, fmt.Errorf("check_via: the %s rule for the table local is at %d, and those of check_via, at %d, would have to come before", familyName(f), behind, prefLane))
		return
	case zero || ours:
		p.moved[f] = true
		if !signed {
			p.add(op{family: f, what: sign})
		}
		if !moved100 && (zero || !moved) {
			p.add(local(prefLocal))
			behind = prefLocal
		}
	}
	ensure := func(r rule, mark uint32) {
		want[r] = true
		if !slices.Contains(mine, r) {
			p.add(op{family: f, mark: mark, what: r, leads: true})
		}
	}
	for _, l := range p.lanes {
		if l.family() == f && p.errs[key{l.Mark, l.IPv6}] == nil {
			ensure(rule{family: f, action: unix.FR_ACT_TO_TBL, protocol: host.Protocol, pref: prefLane, table: l.Mark, mark: l.Mark, mask: 0xffffffff}, l.Mark)
		}
	}
	if len(marks) == 1 { // of two ranges, for the time of a reload, it would let none by
		ensure(rule{family: f, action: unix.FR_ACT_GOTO, protocol: host.Protocol, pref: prefSkip, mark: marks[0], mask: Mask, to: behind, not: true}, 0)
	}
	if zero {
		away := after(local(0))
		away.leads = true
		p.remove(away)
	}
}

var (
	errHere     = errors.New("check_via: the real server is this machine, there is no way to lead a check to it")
	errNotDR    = errors.New("check_via: DR reaches only servers in a directly connected network, and this one is behind a gateway")
	errNAT      = errors.New("check_via: a server by NAT has no virtual address to check, use DR or TUN")
	errFamilies = errors.New("check_via: DR needs a real server of the virtual address's family")
)

// routes is what leads a lane's packets to its server.
func (l Lane) routes(w way) (*device, []route, error) {
	if w.err != nil {
		return nil, nil, fmt.Errorf("check_via: real server %s: %w", l.Server, w.err)
	}
	f, six := l.family(), l.Server.Is6()
	everything := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if l.IPv6 {
		everything = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	way := route{family: f, kind: unix.RTN_UNICAST, table: l.Mark, metric: metric, to: everything, source: w.source}
	forbid := route{family: f, kind: unix.RTN_PROHIBIT, table: l.Mark, metric: metricNo, to: everything}
	switch {
	case l.Forward.Method == config.DR && six != l.IPv6:
		return nil, nil, errFamilies
	case l.Forward.Method == config.DR && w.gateway:
		return nil, nil, errNotDR
	case l.Forward.Method == config.DR:
		way.gateway, way.device = l.Server, w.device
		return nil, []route{way, forbid}, nil
	case l.Forward.Method != config.TUN:
		return nil, nil, errNAT
	}
	if six != l.IPv6 {
		if way.source = w.other; !way.source.IsValid() {
			return nil, nil, fmt.Errorf("check_via: device %s, which leads to real server %s, has no address of the virtual address's family", w.device, l.Server)
		}
	}
	d := l.device(w)
	way.device = d.name
	if d.external {
		way.encap = encap{dst: l.Server, src: w.source, csum: l.Forward.Tunnel == config.GRE && l.Forward.Checksum == config.Csum}
	}
	list := []route{way, forbid}
	if six == l.IPv6 {
		list = append(list, route{family: f, kind: unix.RTN_THROW, table: l.Mark, metric: metric, to: netip.PrefixFrom(l.Server, l.Server.BitLen())})
	}
	return &d, list, nil
}

// Names of devices: those of all lanes, and with a mark those of one.
const (
	prefixAll = "sluice-"
	prefixOne = "slu"
)

// device is the tunnel of a lane.
func (l Lane) device(w way) device {
	six, t := l.Server.Is6(), l.Forward.Tunnel
	kind := "ipip"
	switch {
	case t == config.GRE && six:
		kind = "ip6gre"
	case t == config.GRE:
		kind = "gre"
	case six:
		kind = "ip6tnl"
	case l.IPv6:
		kind = "sit"
	}
	if t != config.GUE && kind != "sit" {
		return device{name: prefixAll + kind, kind: kind, external: true}
	}
	d := device{name: fmt.Sprintf("%s%08x", prefixOne, l.Mark), kind: kind, local: w.source, remote: l.Server}
	if kind == "sit" {
		d.name += "-6"
	}
	if t == config.GUE {
		d.port, d.checksum = l.Forward.Port, l.Forward.Checksum
	}
	return d
}

func filterOf(bases []uint32) filter {
	s := ""
	for i, b := range bases {
		if i > 0 {
			s += ","
		}
		s += fmt.Sprintf("%08x", b)
	}
	return filter(s)
}

func familyName(f uint8) string {
	if f == unix.AF_INET6 {
		return "IPv6"
	}
	return "IPv4"
}
