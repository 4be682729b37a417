package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/host"
)

// use is what a configuration uses.
type use struct {
	global  config.Global
	virtual []*config.VirtualServer
	servers []server
	// addresses are the virtual addresses in the order of the file, with who has them.
	addresses []netip.Addr
	owners    map[netip.Addr][]*config.VirtualServer
	// bound are the addresses that go on a device, boundAt where each is among them.
	bound   []bound
	boundAt map[netip.Addr]int
	// checks is how many checkers there are; kinds counts them.
	checks int
	kinds  map[config.CheckerKind]int
	// pace is how often a target is connected to, by those whose end stays with us.
	pace map[netip.AddrPort]float64
	// scripts are the users that scripts ask for, "" for none named.
	scripts map[string]bool
	needs   []host.Need
}

// server is a real or sorry server.
type server struct {
	vs    *config.VirtualServer
	addr  netip.AddrPort
	fwd   config.Forwarding
	label string
	sorry bool
	// via: it is checked through the data path.
	via   bool
	route host.Route
}

func (s server) String() string {
	what := "real server"
	if s.sorry {
		what = "sorry server"
	}
	return fmt.Sprintf("%s %s of %s", what, labelled(s.addr.String(), s.label), vsName(s.vs))
}

// vsName is a virtual server's name with what its people call it.
func vsName(vs *config.VirtualServer) string { return labelled(vs.Key.String(), vs.Label) }

func labelled(name, label string) string {
	if label == "" {
		return name
	}
	return name + " (" + label + ")"
}

// useOf reads a configuration, nil for none.
func useOf(cfg *config.Config, f *host.Facts) *use {
	u := &use{owners: map[netip.Addr][]*config.VirtualServer{}, boundAt: map[netip.Addr]int{}, kinds: map[config.CheckerKind]int{},
		pace: map[netip.AddrPort]float64{}, scripts: map[string]bool{}}
	if cfg == nil {
		return u
	}
	u.global, u.virtual = cfg.Global, cfg.VirtualServers
	for _, vs := range cfg.VirtualServers {
		for _, e := range vs.Entries {
			if !e.Addr.IsValid() {
				continue
			}
			a := e.Addr.Addr()
			if u.owners[a] == nil {
				u.addresses = append(u.addresses, a)
			}
			u.owners[a] = append(u.owners[a], vs)
		}
		u.bind(vs)
		if s := vs.Sorry; s != nil {
			u.add(server{vs: vs, addr: s.Key.AddrPort, fwd: s.Forward, sorry: true}, f)
		}
		u.script(vs.QuorumUp)
		u.script(vs.QuorumDown)
		for _, rs := range vs.RealServers {
			u.add(server{vs: vs, addr: rs.Key.AddrPort, fwd: rs.Forward, label: rs.Label, via: throughPath(rs)}, f)
			u.script(rs.NotifyUp)
			u.script(rs.NotifyDown)
			for _, c := range rs.Checkers {
				u.checker(c)
			}
		}
	}
	u.script(cfg.Global.StartupScript)
	u.script(cfg.Global.ShutdownScript)
	u.needs = Needs(cfg, PingAllowed(f))
	return u
}

func (u *use) add(s server, f *host.Facts) {
	s.route = f.Routes[s.addr.Addr().Unmap()]
	u.servers = append(u.servers, s)
}

func throughPath(rs *config.RealServer) bool {
	return slices.ContainsFunc(rs.Checkers, func(c *config.Checker) bool { return c.Conn.Via != nil })
}

func (u *use) checker(c *config.Checker) {
	u.checks++
	u.kinds[c.Kind]++
	switch c.Kind {
	case config.TCPCheck, config.HTTPGet, config.SSLGet, config.SMTPCheck:
		if c.Conn.Close != config.CloseReset && c.DelayLoop > 0 {
			u.pace[c.Conn.Target] += float64(time.Second) / float64(c.DelayLoop)
		}
	case config.MiscCheck:
		u.script(c.Misc.Script)
	}
}

func (u *use) script(s *config.Script) {
	if s != nil {
		u.scripts[s.User] = true
	}
}

// which names the virtual servers that pass.
func (u *use) which(pass func(*config.VirtualServer) bool) (names []string) {
	for _, vs := range u.virtual {
		if pass(vs) {
			names = append(names, vsName(vs))
		}
	}
	return names
}

func (u *use) every() []string { return u.which(func(*config.VirtualServer) bool { return true }) }

// whose names the real and sorry servers that pass.
func (u *use) whose(pass func(server) bool) (names []string) {
	for _, s := range u.servers {
		if pass(s) {
			names = append(names, s.String())
		}
	}
	return names
}

// remoteNAT are servers of a family whose answers have to come back through here.
func (u *use) remoteNAT(f config.Family) []string {
	return u.whose(func(s server) bool {
		return s.fwd.Method == config.NAT && !s.route.Local && config.FamilyOf(s.addr.Addr()) == f
	})
}

func (u *use) with(methods ...config.Method) []string {
	return u.whose(func(s server) bool {
		return slices.Contains(methods, s.fwd.Method)
	})
}

func marked(vs *config.VirtualServer) bool { return vs.Key.FWMark != 0 || anyMark(vs) }

func anyMark(vs *config.VirtualServer) bool {
	for _, e := range vs.Entries {
		if e.FWMark != 0 {
			return true
		}
	}
	return false
}

func connected(vs *config.VirtualServer) bool { return vs.Protocol != config.UDP }

// PingAllowed says whether the daemon's groups may open ICMP sockets without a
// capability, as far as known.
func PingAllowed(f *host.Facts) bool {
	low, high, ok := pingRange(f)
	if !ok || f.Daemon.Unknown != "" {
		return false
	}
	for _, g := range append([]int{f.Daemon.GID}, f.Daemon.Groups...) {
		if g >= low && g <= high {
			return true
		}
	}
	return false
}

func pingRange(f *host.Facts) (low, high int, ok bool) {
	s := f.Settings[pingGroups]
	n, err := fmt.Sscan(s.Value, &low, &high)
	return low, high, n == 2 && err == nil
}

// Needs returns what a configuration needs capabilities for. ping: PING_CHECK can do
// without one.
func Needs(cfg *config.Config, ping bool) []host.Need {
	if cfg == nil {
		return nil
	}
	found := map[host.Need]bool{}
	g := &cfg.Global
	found[host.NeedNamespace] = g.NetNamespace != "" || g.NetNamespaceIPVSSet
	script := func(s *config.Script) {
		if s != nil && (s.User != "" && s.User != "root" || g.ScriptUser != "" && g.ScriptUser != "root") {
			found[host.NeedScripts] = true
		}
	}
	script(g.StartupScript)
	script(g.ShutdownScript)
	found[host.NeedMarks] = g.NFTables != nil
	for _, vs := range cfg.VirtualServers {
		script(vs.QuorumUp)
		script(vs.QuorumDown)
		found[host.NeedVIP] = found[host.NeedVIP] || vs.VIP.Device != ""
		found[host.NeedGuard] = found[host.NeedGuard] || vs.VIP.Guard
		for _, rs := range vs.RealServers {
			script(rs.NotifyUp)
			script(rs.NotifyDown)
			found[host.NeedVia] = found[host.NeedVia] || throughPath(rs)
			for _, c := range rs.Checkers {
				found[host.NeedLowPort] = found[host.NeedLowPort] || c.Conn.BindPort > 0 && c.Conn.BindPort < 1024
				found[host.NeedDevice] = found[host.NeedDevice] || c.Conn.BindIf != ""
				found[host.NeedPing] = found[host.NeedPing] || c.Kind == config.PingCheck && !ping
				if c.Misc != nil {
					script(c.Misc.Script)
				}
			}
		}
	}
	var needs []host.Need
	for _, n := range []host.Need{host.NeedNamespace, host.NeedScripts, host.NeedLowPort, host.NeedDevice, host.NeedPing, host.NeedVIP, host.NeedGuard, host.NeedMarks, host.NeedVia} {
		if found[n] {
			needs = append(needs, n)
		}
	}
	return needs
}

// Ask is what has to be known to judge a configuration, nil for none.
func Ask(cfg *config.Config) host.Query {
	q := host.Query{Settings: []string{
		pingGroups, "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding",
		"net.ipv4.ip_local_port_range", "net.ipv4.tcp_tw_reuse",
		"net.netfilter.nf_conntrack_count", "net.netfilter.nf_conntrack_max",
		"net.ipv6.conf.all.disable_ipv6",
	}}
	for _, list := range allRules {
		for _, r := range list {
			if r.sysctl != "" {
				q.Settings = append(q.Settings, r.sysctl)
			}
		}
	}
	for _, name := range []string{"rp_filter", "arp_ignore", "arp_announce", "send_redirects", "forwarding", "accept_local"} {
		q.Settings = append(q.Settings, "net.ipv4.conf.*."+name)
	}
	if cfg == nil {
		return q
	}
	seen := map[netip.Addr]bool{}
	ask := func(a netip.Addr) {
		if a = a.Unmap(); a.IsValid() && !seen[a] {
			seen[a] = true
			q.Routes = append(q.Routes, a)
		}
	}
	for _, vs := range cfg.VirtualServers {
		for _, e := range vs.Entries {
			ask(e.Addr.Addr())
		}
		if vs.Sorry != nil {
			ask(vs.Sorry.Key.Addr())
		}
		for _, rs := range vs.RealServers {
			ask(rs.Key.Addr())
			q.Rules = q.Rules || throughPath(rs)
			q.Chains = q.Chains || throughPath(rs)
		}
		q.Chains = q.Chains || vs.VIP.Guard
	}
	q.Chains = q.Chains || cfg.Global.NFTables != nil
	q.Rules = q.Rules || cfg.Global.NFTables != nil
	q.Questions = questions(cfg)
	return q
}
