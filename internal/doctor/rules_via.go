package doctor

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/host"
)

const (
	groupVia = "checks through the data path"
	// localRule is where the kernel's rule for local addresses is while there are checks
	// through the data path: what is before it may take their packets away. laneRule is
	// where the last of their own is.
	localRule, laneRule = 100, 50
	// tableLocal is that of local addresses.
	tableLocal = 255
	// lanesTable is the table of nftables that hides checks from IPVS.
	lanesTable = "sluice_lanes"
	// asked is how many questions are put to servers at most.
	asked = 256
)

var viaRules = []rule{
	{
		id: "marks", group: groupVia, title: "nobody else uses sluiced's firewall marks", when: "there is check_via or nftables_ipvs",
		why: "sluiced's rules of policy routing send whatever has one of its marks to a real server, and its services balance it: another program's packets with such a mark get there too. " +
			"A rule of another program that takes in such marks sends checks another way.",
		help: "check_via_mark moves the marks of check_via, nftables_ipvs_start_fwmark those of nftables_ipvs. Marks that firewall rules set are not looked at.",
		find: marks,
	},
	{
		id: "local_rule", group: groupVia, title: "the rule for local addresses comes after those of check_via, once", when: "there is check_via",
		why: "A virtual address is local on a director. The rule that asks the table local, at 0 in every kernel, would answer for it before check_via's rules, at 40 and 50, are asked: such a check would find this machine. " +
			"sluiced moves it to 100 while there is check_via, adds it there before it takes it away at 0, and puts it back the same way. Programs like Cilium do the same. A second one at 0 undoes that; without any, nothing that is meant for this machine arrives.",
		help: "ip rule and ip -6 rule show them. sluiced moves only what it finds at 0, and its log says what it did not do.",
		find: localRules,
	},
	{
		id: "accept_local", group: groupVia, title: "answers from a virtual address are let in", when: "there is check_via (IPv4)",
		why: "The answer to a check through the data path has the virtual address as its sender, which is one of this machine's own here: the kernel drops it as forged unless accept_local is 1 on the device by which it comes. " +
			"Every such check then fails, whatever the server does. One of all and the device's own is enough.",
		find: acceptLocal,
	},
	{
		id: "via_rp_filter", group: groupVia, title: "the reverse path filter lets answers of checks in", when: "there is check_via (IPv4)",
		why:  "The way to the virtual address leads to this machine itself, not through the device by which the answer comes in: a strict filter (1) drops it, and every such check fails. The larger of all and the device's own counts.",
		find: viaReversePath,
	},
	{
		id: "tunnel_modules", group: groupVia, title: "the modules of tunnels can be had", when: "check_via leads through a tunnel",
		why:  "A check through a tunnel is packed by a device of the tunnel's kind. Without its module the check cannot be made, and says nothing of the server.",
		help: "Install the kernel's modules, or take check_via out there.",
		find: func(x *exam) []Finding {
			var names, concerned []string
			for _, s := range x.use.servers {
				if !s.via || s.fwd.Method != config.TUN {
					continue
				}
				concerned = append(concerned, s.String())
				for _, n := range tunnelModules(s) {
					if !slices.Contains(names, n) {
						names = append(names, n)
					}
				}
			}
			if names == nil {
				return nil
			}
			return x.needed(names, concerned)
		},
	},
	{
		id: "dr_arp", group: groupVia, title: "DR servers do not answer neighbours for virtual addresses", when: "a remote server is reached by DR, for root",
		why: "The server has arp_ignore 0, or the address on its network device, and answers for the virtual address, by ARP or in IPv6 by Neighbour Discovery: clients and routers of that network send to it in place of the director, past the table, at random. " +
			"The doctor asks each such server by one ARP request or neighbour solicitation that nobody else hears. Silence does not prove that the server has the address; check_via does.",
		help: "On the real server: the address on lo, as /32 or /128, and for IPv4 sysctl -w net.ipv4.conf.all.arp_ignore=1 net.ipv4.conf.all.arp_announce=2, with lines in /etc/sysctl.d to stay. IPv6 answers only for what is on the device that is asked, or has an entry there for a proxy (ip -6 neigh show proxy). What another machine's settings are cannot be read from here.",
		find: drARP,
	},
}

// tunnelModules are those of the devices that pack for a server.
func tunnelModules(s server) []string {
	six := s.addr.Addr().Unmap().Is6()
	switch {
	case s.fwd.Tunnel == config.GRE && six:
		return []string{"ip6_gre"}
	case s.fwd.Tunnel == config.GRE:
		return []string{"ip_gre"}
	case s.fwd.Tunnel == config.GUE && six:
		return []string{"ip6_tunnel", "fou6"}
	case s.fwd.Tunnel == config.GUE:
		return []string{"ipip", "fou"}
	case six:
		return []string{"ip6_tunnel"}
	}
	return []string{"ipip"}
}

// throughPath names the servers that are checked through the data path.
func (u *use) throughPath() []string { return u.whose(func(s server) bool { return s.via }) }

// localRules judges where the rules for local addresses are, of the families that are
// checked through the data path.
func localRules(x *exam) (found []Finding) {
	for _, six := range []bool{false, true} {
		concerned := x.use.whose(func(s server) bool { return s.via && s.addr.Addr().Unmap().Is6() == six })
		switch {
		case len(concerned) == 0:
		case x.Facts.RulesUnknown != "":
			return unknown("the rules of policy routing: %s", x.Facts.RulesUnknown)
		default:
			f := x.localRule(six)
			if f.Status != OK {
				f = f.about(concerned)
			}
			found = append(found, f)
		}
	}
	return found
}

func (x *exam) localRule(six bool) Finding {
	ip, family := "ip", "IPv4"
	if six {
		ip, family = "ip -6", "IPv6"
	}
	var at []uint32
	for _, r := range x.Facts.Rules {
		if r.Six == six && r.Table == tableLocal && r.Mask == 0 && !r.Not {
			at = append(at, r.Priority)
		}
	}
	slices.Sort(at)
	wanted := fmt.Sprintf("one, after %d", laneRule)
	bad := func(do, text string, args ...any) Finding {
		return Finding{Status: Fail, Found: fmt.Sprintf("the rule for local addresses of "+family+" "+text, args...), Wanted: wanted, Do: do}
	}
	switch {
	case len(at) == 0:
		return bad("At once: "+ip+" rule add pref 0 table local protocol kernel", "is not there")
	case len(at) > 1 && at[0] <= laneRule:
		do := fmt.Sprintf("Delete the first: %s rule del pref %d table local", ip, at[0])
		if x.writing() {
			do = "sluiced deletes the first once nothing that check_via needs is missing: see nf_tables, capabilities and its log."
		}
		return bad(do, "is there at %d and at %d", at[0], at[1])
	case at[0] > laneRule && len(at) > 1:
		return Finding{Status: Note, Found: fmt.Sprintf("the rule for local addresses of %s is there at %d and at %d; one is enough", family, at[0], at[1])}
	case at[0] > laneRule:
		return ok("the rule for local addresses of %s is at %d", family, at[0])[0]
	case at[0] == 0 && !x.writing():
		return Finding{Status: Note, Found: fmt.Sprintf("the rule for local addresses of %s is at 0; sluiced moves it to %d when it starts", family, localRule)}
	case at[0] == 0:
		return bad("sluiced moves it: its log says why it could not.", "is at 0, though sluiced runs")
	}
	return bad(fmt.Sprintf("Whoever put it there has to put it after %d.", laneRule), "is at %d, and sluiced moves only one that is at 0", at[0])
}

// span is a range of marks with who uses it.
type span struct {
	low, high uint32
	keyword   string
}

func (s span) has(m uint32) bool { return s.low <= m && m <= s.high }

// spans are the marks that sluiced hands out.
func (u *use) spans() (all []span) {
	if len(u.throughPath()) > 0 {
		low := cmp.Or(u.global.ViaMark, config.ViaMark)
		all = append(all, span{low, low | ^config.ViaMask, "check_via"})
	}
	pairs := map[config.MarkKey]bool{}
	for _, vs := range u.virtual {
		if u.global.NFTables != nil && vs.Key.Group != "" {
			pairs[config.MarkKey{Group: vs.Key.Group, Protocol: vs.Protocol}] = true
		}
	}
	if len(pairs) > 0 {
		low := u.global.NFTables.FirstMark
		all = append(all, span{low, low + uint32(len(pairs)) - 1, "nftables_ipvs"})
	}
	return all
}

func marks(x *exam) (found []Finding) {
	spans := x.use.spans()
	if len(spans) == 0 {
		return nil
	}
	concerned := append(x.use.throughPath(), x.use.mapped()...)
	if len(spans) == 2 && (spans[0].has(spans[1].low) || spans[1].has(spans[0].low)) {
		found = append(found, Finding{Status: Warn, Found: fmt.Sprintf("the marks of check_via (from %#x) and of nftables_ipvs (from %#x) overlap", spans[0].low, spans[1].low), Wanted: "ranges apart", Do: x.now.help}.about(concerned))
	}
	for _, s := range spans {
		if own := x.use.uses(s); own != nil {
			found = append(found, Finding{Status: Note, Found: fmt.Sprintf("the configuration itself uses marks of the range of %s (%#x to %#x), which passes them over", s.keyword, s.low, s.high)}.about(own))
		}
	}
	if x.Facts.RulesUnknown != "" {
		return append(found, unknown("the rules of policy routing: %s", x.Facts.RulesUnknown)...)
	}
	for _, s := range spans {
		for _, r := range x.Facts.Rules {
			if why := collides(s, r); why != "" {
				found = append(found, Finding{Status: Warn, Found: fmt.Sprintf("the rule \"%s\" %s (%s: %#x to %#x)", r, why, s.keyword, s.low, s.high), Wanted: "marks apart", Do: x.now.help}.about(concerned))
			}
		}
	}
	if len(found) == 0 || found[0].Status == Note {
		found = append(found, ok("no rule of policy routing uses sluiced's marks")...)
	}
	return found
}

// collides says how a rule that is not ours meets a range of marks, "" for not at all.
func collides(s span, r host.Rule) string {
	switch {
	case r.Ours || r.Mask == 0:
		return ""
	case r.Mask&config.ViaMask == config.ViaMask && !r.Not:
		// It is about a few marks, which its owner then gives to packets.
		if r.Takes(s.low, s.high) {
			return "is about the same marks"
		}
		return ""
	case r.Priority >= localRule:
		return "" // ours, or the one for local addresses, has taken the packet by then
	case r.Not:
		return "takes in all marks but its own, before sluiced's"
	case r.Takes(s.low, s.high):
		return "takes in such marks, before sluiced's"
	}
	return ""
}

// uses names who has a mark of a range in the configuration.
func (u *use) uses(s span) (who []string) {
	for _, vs := range u.virtual {
		if slices.ContainsFunc(vs.Entries, func(e config.Entry) bool { return e.FWMark != 0 && s.has(e.FWMark) }) {
			who = append(who, vsName(vs))
		}
		for _, rs := range vs.RealServers {
			for _, c := range rs.Checkers {
				if c.Conn.Via == nil && c.Conn.FWMark != 0 && s.has(c.Conn.FWMark) {
					who = append(who, fmt.Sprintf("a check of %s of %s", rs.Key.AddrPort, vsName(vs)))
				}
			}
		}
	}
	return who
}

// viaDevices are the devices by which servers are reached that are checked through the
// data path (IPv4), with those servers.
func (x *exam) viaDevices() (devices []string, servers map[string][]string) {
	servers = map[string][]string{}
	for _, s := range x.use.servers {
		if d := s.route.Device; s.via && d != "" && !s.route.Local && x.viaFour(s) {
			if servers[d] == nil {
				devices = append(devices, d)
			}
			servers[d] = append(servers[d], s.String())
		}
	}
	return devices, servers
}

// viaFour says whether a server is asked for an IPv4 address.
func (x *exam) viaFour(s server) bool {
	return s.addr.Addr().Unmap().Is4() && slices.ContainsFunc(s.vs.Addresses(), func(a netip.Addr) bool { return a.Is4() })
}

// perDevice judges a setting of all and of each device that checks through the data path
// use. combined is what the kernel makes of the two.
func (x *exam) perDevice(name string, combined func(all, own int) int, good func(int) bool) (bad []string, concerned []string, known bool, found []Finding) {
	devices, servers := x.viaDevices()
	if len(devices) == 0 {
		return nil, nil, false, nil
	}
	all, read := x.device("all", name)
	if !read {
		return nil, nil, false, unknown("net.ipv4.conf.all.%s was not read", name)
	}
	for _, d := range devices {
		own, read := x.device(d, name)
		if !read {
			return nil, nil, false, unknown("net.ipv4.conf.%s.%s was not read", d, name)
		}
		if !good(combined(all, own)) {
			bad = append(bad, d)
			concerned = append(concerned, servers[d]...)
		}
	}
	if bad == nil {
		return nil, nil, false, ok("%s is right on %s", name, some(devices))
	}
	return bad, concerned, true, nil
}

func acceptLocal(x *exam) []Finding {
	bad, concerned, judged, found := x.perDevice("accept_local", func(all, own int) int { return max(all, own) }, func(v int) bool { return v != 0 })
	if !judged {
		return found
	}
	f := Finding{Status: Fail, Found: "net.ipv4.conf.*.accept_local is 0 on " + some(bad), Wanted: "1"}
	if x.use.global.ManageSysctls {
		if !x.writing() {
			return []Finding{Finding{Status: Note, Found: f.Found + "; sluiced sets it when it starts (manage_sysctls)"}.about(concerned)}
		}
		f.Do = "sluiced sets it (manage_sysctls): somebody has set it back since, or its log says why it could not."
	}
	for _, d := range bad {
		f = f.mended("net.ipv4.conf."+d+".accept_local", "1")
	}
	return []Finding{f.about(concerned)}
}

func viaReversePath(x *exam) []Finding {
	bad, concerned, judged, found := x.perDevice("rp_filter", func(all, own int) int { return max(all, own) }, func(v int) bool { return v != 1 })
	if !judged {
		return found
	}
	f := Finding{Status: Fail, Found: "rp_filter is strict (1) on " + some(bad), Wanted: "2 (loose) or 0"}
	if all, _ := x.device("all", "rp_filter"); all == 1 {
		f = f.mended("net.ipv4.conf.all.rp_filter", strconv.Itoa(2))
	} else {
		for _, d := range bad {
			f = f.mended("net.ipv4.conf."+d+".rp_filter", strconv.Itoa(2))
		}
	}
	return []Finding{f.about(concerned)}
}

// questions are those for DR servers about their virtual addresses.
func questions(cfg *config.Config) (list []host.Question) {
	seen := map[host.Question]bool{}
	for _, vs := range cfg.VirtualServers {
		add := func(server netip.Addr, fwd config.Forwarding) {
			for _, a := range vs.Addresses() {
				q := host.Question{Server: server.Unmap(), Addr: a}
				if fwd.Method == config.DR && q.Server.Is4() == a.Is4() && !seen[q] && len(list) < asked {
					seen[q] = true
					list = append(list, q)
				}
			}
		}
		for _, rs := range vs.RealServers {
			add(rs.Key.Addr(), rs.Forward)
		}
		if vs.Sorry != nil {
			add(vs.Sorry.Key.Addr(), vs.Sorry.Forward)
		}
	}
	return list
}

func drARP(x *exam) (found []Finding) {
	var answer, apart, good []string
	reasons := map[string][]string{}
	var order []string
	var example, aside host.Question
	for _, s := range x.use.servers {
		if s.fwd.Method != config.DR || s.route.Local || s.route.Gateway.IsValid() || s.route.None != "" {
			continue // other rules speak of those
		}
		for _, a := range s.vs.Addresses() {
			q := host.Question{Server: s.addr.Addr().Unmap(), Addr: a}
			said, put := x.Facts.Answers[q]
			switch {
			case !put:
			case said.Unknown != "":
				if reasons[said.Unknown] == nil {
					order = append(order, said.Unknown)
				}
				reasons[said.Unknown] = append(reasons[said.Unknown], s.String())
			case !said.Yes:
				good = append(good, s.String())
			case x.inNetwork(s.route.Device, a):
				answer, example = append(answer, s.String()), q
			default:
				apart, aside = append(apart, s.String()), q
			}
		}
	}
	if answer != nil {
		found = append(found, Finding{Status: Fail, Found: answers(example), Wanted: "no answer", Do: x.now.help}.about(slices.Compact(answer)))
	}
	if apart != nil {
		found = append(found, Finding{Status: Note, Found: answers(aside) + ", which is in no network of the device between", Wanted: "no answer",
			Why: "Nobody asks for the address there as long as all reach it by a route to this director.", Do: x.now.help}.about(slices.Compact(apart)))
	}
	for _, why := range order {
		found = append(found, Finding{Status: Unknown, Found: "whether it answers neighbours for a virtual address: " + why}.about(slices.Compact(reasons[why])))
	}
	if good != nil {
		found = append(found, ok("%s neighbours for the virtual addresses", plural(len(slices.Compact(good)), "DR server does not answer", "DR servers do not answer"))...)
	}
	return found
}

// answers says what a server does that should be silent.
func answers(q host.Question) string {
	by := "ARP"
	if q.Addr.Is6() {
		by = "neighbour solicitations"
	}
	return fmt.Sprintf("%s answers %s for %s", q.Server, by, q.Addr)
}

// inNetwork says whether an address is in a network of a device, so that others there
// ask for it as for a neighbour.
func (x *exam) inNetwork(device string, a netip.Addr) bool {
	return slices.ContainsFunc(x.Facts.Devices, func(d host.Device) bool {
		return d.Name == device && slices.ContainsFunc(d.Addresses, func(has host.Address) bool {
			return has.Bits() < has.Addr().BitLen() && has.Contains(a)
		})
	})
}
