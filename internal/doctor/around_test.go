package doctor

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/host"
)

// with changes what the configuration of a case says.
func with(change func(*config.Config)) func(*Input) {
	return func(in *Input) { change(in.Config) }
}

// device puts the virtual server's addresses on vip0, which is as it should be.
func device(follow config.VIPFollow) func(*Input) {
	return both(with(func(c *config.Config) {
		for _, vs := range c.VirtualServers {
			vs.VIP.Device, vs.VIP.Follow = "vip0", follow
		}
	}), func(in *Input) {
		in.Facts.Devices = append(in.Facts.Devices, host.Device{Name: "vip0", Kind: "dummy", Dummy: true, Up: true, MTU: 1500})
	}, withAddress("vip0", "192.0.2.10/32"))
}

func onDevice(name string, change func(*host.Device)) func(*Input) {
	return func(in *Input) {
		for i := range in.Facts.Devices {
			if in.Facts.Devices[i].Name == name {
				change(&in.Facts.Devices[i])
			}
		}
	}
}

func without(name string) func(*Input) {
	return func(in *Input) {
		in.Facts.Devices = slices.DeleteFunc(in.Facts.Devices, func(d host.Device) bool { return d.Name == name })
	}
}

func guarded(in *Input) {
	in.GuardTable = "guard"
	in.Facts.Chains = append(in.Facts.Chains, host.Chain{Family: "inet", Table: "guard", Name: "input", Hook: "input"})
	for _, vs := range in.Config.VirtualServers {
		vs.VIP.Guard = true
	}
}

// groups is a configuration with two groups, which nftables_ipvs maps.
const groups = "virtual_server_group a {\n 192.0.2.10 80\n}\nvirtual_server_group b {\n 192.0.2.10 81\n}\n" +
	"virtual_server group a {\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n real_server 10.0.0.1 80 {\n  weight 1\n }\n}\n" +
	"virtual_server group b {\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n real_server 10.0.0.1 80 {\n  weight 1\n }\n}\n"

var mapped = both(with(func(c *config.Config) {
	c.Global.NFTables = &config.NFTables{Table: "keepalived_ipvs", FirstMark: 1000}
}), func(in *Input) {
	in.Facts.Chains = append(in.Facts.Chains, host.Chain{Family: "ip", Table: "keepalived_ipvs", Name: "prerouting", Hook: "prerouting"})
})

// through has the real servers checked through the data path.
var through = with(func(c *config.Config) {
	for _, vs := range c.VirtualServers {
		for _, rs := range vs.RealServers {
			via := &config.Via{Server: rs.Key.Addr(), Forward: rs.Forward}
			rs.Checkers = append(rs.Checkers, &config.Checker{Kind: config.TCPCheck, Conn: config.Connection{Via: via}})
		}
	}
})

func policy(list ...host.Rule) func(*Input) {
	return func(in *Input) { in.Facts.Rules = list }
}

func local(at uint32) host.Rule { return host.Rule{Priority: at, Table: 255} }

// direct6 is direct in IPv6; network6 is what its server is in.
var direct6 = strings.NewReplacer("192.0.2.10", "2001:db8::10", "192.0.2.21", "2001:db8::21").Replace(direct)

var network6 = both(route("2001:db8::21", host.Route{Device: "eth0"}), onDevice("eth0", func(d *host.Device) {
	d.Addresses = append(d.Addresses, host.Address{Prefix: netip.MustParsePrefix("2001:db8::2/64")})
}))

// said6 is said of the server of direct6.
func said6(about string, a host.Answer) func(*Input) {
	return both(network6, func(in *Input) {
		in.Facts.Answers = map[host.Question]host.Answer{{Server: netip.MustParseAddr("2001:db8::21"), Addr: netip.MustParseAddr(about)}: a}
	})
}

// said is what the DR server answers when it is asked for an address.
func said(about string, a host.Answer) func(*Input) {
	return func(in *Input) {
		in.Facts.Answers = map[host.Question]host.Answer{{Server: netip.MustParseAddr("192.0.2.21"), Addr: netip.MustParseAddr(about)}: a}
	}
}

func synced(state config.SyncState, halves ...SyncHalf) func(*Input) {
	return func(in *Input) {
		in.Config.Global.Sync = &config.SyncDaemon{Interface: "eth0", ID: 7, State: state}
		in.Sync = halves
	}
}

func quorumless(in *Input) {
	in.Daemon.NoQuorum = map[string]bool{in.Config.VirtualServers[0].Key.String(): true}
}

func packed(f config.Forwarding) func(*Input) {
	return with(func(c *config.Config) {
		f.Method = config.TUN
		c.VirtualServers[0].RealServers[0].Forward = f
	})
}

const (
	everyMark = ^uint32(0)
	full      = config.ViaMark + 5
)

var (
	master = SyncHalf{"master", "eth0", 7}
	backup = SyncHalf{"backup", "eth0", 7}
)

var aroundCases = []example{
	{"passive", web, func(in *Input) { in.Daemon.Passive = "by root: kernel upgrade" }, "passive", Note, "is passive: by root: kernel upgrade", nil},
	{"passive by the file, before the start", web, both(stopped, with(func(c *config.Config) { c.Global.Passive.On = true })), "passive", Note, "by its configuration", nil},
	{"a feature that fails", web, func(in *Input) { in.Daemon.Failures = []string{"vip_guard: no nf_tables"} }, "features", Fail, "vip_guard: no nf_tables", nil},
	{"features that work", web, device(config.VIPAlways), "features", OK, "no failure", nil},

	{"a device", web, device(config.VIPAlways), "vip_device", OK, "vip0 is a dummy and up", nil},
	{"a device with a wire", web, both(device(config.VIPAlways), with(func(c *config.Config) { c.VirtualServers[0].VIP.Device = "eth1" })), "vip_device", Fail, "eth1 is hardware", nil},
	{"loopback for a device", web, both(device(config.VIPAlways), with(func(c *config.Config) { c.VirtualServers[0].VIP.Device = "lo" })), "vip_device", Fail, "lo is the loopback device", nil},
	{"a bridge for a device", web, both(device(config.VIPAlways), onDevice("vip0", func(d *host.Device) { d.Dummy, d.Kind = false, "bridge" })), "vip_device", Fail, "vip0 is of kind bridge", nil},
	{"a device that is down", web, both(device(config.VIPAlways), onDevice("vip0", func(d *host.Device) { d.Up = false })), "vip_device", Warn, "vip0 is down", []string{"ip link set dev vip0 up"}},
	{"no device, though it runs", web, both(device(config.VIPAlways), without("vip0")), "vip_device", Fail, "though sluiced runs", nil},
	{"no device yet", web, both(device(config.VIPAlways), without("vip0"), stopped), "vip_device", Note, "makes it when it starts", nil},
	{"devices unseen", web, both(device(config.VIPAlways), func(in *Input) { in.Facts.DevicesUnknown = "EIO" }), "vip_device", Unknown, "EIO", nil},

	{"an address in its place", web, device(config.VIPAlways), "vip_address", OK, "1 virtual address is announced", nil},
	{"an address that is missing", web, both(device(config.VIPAlways), withAddress("none", "192.0.2.10/32")), "vip_address", Fail, "192.0.2.10 is not on the device", nil},
	{"an address that is missing, before the start", web, both(device(config.VIPAlways), stopped, withAddress("none", "192.0.2.10/32")), "vip_address", Note, "when it starts", nil},
	{"an address in two places", web, both(device(config.VIPAlways), onDevice("eth1", func(d *host.Device) {
		d.Addresses = append(d.Addresses, host.Address{Prefix: netip.MustParsePrefix("192.0.2.10/24")})
	})), "vip_address", Fail, "192.0.2.10 is on eth1 too", []string{"ip addr del 192.0.2.10/24 dev eth1"}},
	{"an address with its network", web, both(device(config.VIPAlways), withAddress("vip0", "192.0.2.10/24")), "vip_address", Warn, "is on vip0 as 192.0.2.10/24", []string{"ip addr del 192.0.2.10/24 dev vip0"}},
	{"an address without quorum", web, both(device(config.VIPQuorum), quorumless), "vip_address", Warn, "192.0.2.10 is on the device, though", nil},
	{"an address that needs no quorum", web, both(device(config.VIPAlways), quorumless), "vip_address", OK, "announced", nil},
	{"an address of a passive director", web, both(device(config.VIPAlways), func(in *Input) { in.Daemon.Passive = "x" }), "vip_address", Warn, "though nothing of this director", nil},

	{"no nftables", web, both(guarded, func(in *Input) { in.Facts.Modules = host.Modules{} }), "nf_tables", Fail, "no module nf_tables", nil},
	{"nftables", web, guarded, "nf_tables", OK, "nf_tables, nft_reject_inet can be had", nil},
	{"the guard's table", web, guarded, "nft_tables", OK, "guard of vip_guard is there", nil},
	{"no table of the guard", web, both(guarded, func(in *Input) { in.Facts.Chains = nil }), "nft_tables", Fail, "the table guard of vip_guard is not there", nil},
	{"a table of keepalived's", groups, both(mapped, writer("keepalived", "-D")), "nft_tables", Warn, "table keepalived_ipvs, and keepalived (process 9)", nil},
	{"tables unseen", groups, both(mapped, func(in *Input) { in.Facts.ChainsUnknown = "run as root" }), "nft_tables", Unknown, "run as root", nil},
	{"a firewall", web, both(guarded, func(in *Input) {
		in.Facts.Chains = append(in.Facts.Chains, host.Chain{Family: "inet", Table: "filter", Name: "input", Hook: "input", Drop: true})
	}), "nft_input", Note, "inet filter input (priority 0)", nil},
	{"our own chain", web, both(guarded, func(in *Input) { in.Facts.Chains[0].Drop = true }), "nft_input", OK, "", nil},
	{"a firewall that lets all in", web, guarded, "nft_input", OK, "", nil},

	{"nftables for checks", direct, through, "nf_tables", OK, "nf_tables can be had", nil},
	{"no nftables for checks", direct, both(through, func(in *Input) { in.Facts.Modules = host.Modules{} }), "nf_tables", Fail, "no module nf_tables", nil},
	{"the table of checks", direct, both(through, func(in *Input) {
		in.Facts.Chains = []host.Chain{{Family: "inet", Table: "sluice_lanes", Name: "before_ipvs", Hook: "output"}}
	}), "nft_tables", OK, "sluice_lanes of check_via", nil},
	{"no table of checks, though passive", direct, both(through, func(in *Input) { in.Daemon.Passive = "x" }), "nft_tables", Fail, "the table sluice_lanes of check_via is not there", nil},

	{"the local rule, moved", direct, both(through, policy(local(100), host.Rule{Priority: 40, Mark: config.ViaMark, Mask: config.ViaMask, Not: true, Ours: true})), "local_rule", OK, "IPv4 is at 100", nil},
	{"the local rule before the start", direct, both(through, stopped, policy(local(0))), "local_rule", Note, "moves it to 100 when it starts", nil},
	{"the local rule where it was", direct, both(through, policy(local(0))), "local_rule", Fail, "is at 0, though sluiced runs", nil},
	{"the local rule twice", direct, both(through, policy(local(0), local(100))), "local_rule", Fail, "is there at 0 and at 100", nil},
	{"the local rule twice, behind", direct, both(through, policy(local(100), local(200))), "local_rule", Note, "one is enough", nil},
	{"the local rule too early", direct, both(through, policy(local(9))), "local_rule", Fail, "is at 9, and sluiced moves only", nil},
	{"no local rule", direct, both(through, policy(host.Rule{Priority: 32766, Table: 254}, host.Rule{Six: true, Table: 255})), "local_rule", Fail, "is not there", nil},
	{"local rules unseen", direct, both(through, func(in *Input) { in.Facts.RulesUnknown = "EIO" }), "local_rule", Unknown, "EIO", nil},

	{"another's marks", direct, both(through, policy(host.Rule{Priority: 500, Mark: full, Mask: everyMark, Table: 9})), "marks", Warn, `"500: fwmark 0x53000005 lookup 9" is about the same marks (check_via: 0x53000000 to 0x5300ffff)`, nil},
	{"another's marks by the upper half", direct, both(through, policy(host.Rule{Priority: 500, Mark: config.ViaMark, Mask: config.ViaMask, Table: 9})), "marks", Warn, "is about the same marks", nil},
	{"a rule of some bits, before", direct, both(through, policy(host.Rule{Priority: 50, Mask: 0xff, Table: 9})), "marks", Warn, "takes in such marks, before", nil},
	{"a rule of some bits, behind", direct, both(through, policy(host.Rule{Priority: 500, Mask: 0xff, Table: 9})), "marks", OK, "no rule", nil},
	{"a rule of other bits, before", direct, both(through, policy(host.Rule{Priority: 50, Mark: 1 << 20, Mask: 1 << 20, Table: 9})), "marks", OK, "no rule", nil},
	{"all but another's mark, before", direct, both(through, policy(host.Rule{Priority: 50, Not: true, Mark: 0xca6c, Mask: everyMark, Table: 9})), "marks", Warn, "takes in all marks but its own", nil},
	{"our own rules", direct, both(through, policy(host.Rule{Mark: full, Mask: everyMark, Table: full, Ours: true})), "marks", OK, "no rule", nil},
	{"moved marks", direct, both(through, with(func(c *config.Config) { c.Global.ViaMark = 0x77000000 }), policy(host.Rule{Mark: full, Mask: everyMark})), "marks", OK, "no rule", nil},
	{"a service with a mark of the range", strings.Replace(mark, "fwmark 7", "fwmark 1392508933", 1), through, "marks", Note, "passes them over", nil},
	{"rules unseen", direct, both(through, func(in *Input) { in.Facts.RulesUnknown = "EIO" }), "marks", Unknown, "EIO", nil},
	{"a rule of the groups' marks", groups, both(mapped, policy(host.Rule{Priority: 7, Mark: 1001, Mask: everyMark, Table: 9})), "marks", Warn, "nftables_ipvs: 0x3e8 to 0x3e9", nil},
	{"a rule behind the groups' marks", groups, both(mapped, policy(host.Rule{Priority: 7, Mark: 1002, Mask: everyMark, Table: 9})), "marks", OK, "no rule", nil},
	{"ranges upon each other", groups, both(mapped, through, with(func(c *config.Config) { c.Global.NFTables.FirstMark = config.ViaMark + 1 })), "marks", Warn, "overlap", nil},

	{"forged answers", direct, both(through, set("net.ipv4.conf.all.accept_local", "0"), set("net.ipv4.conf.eth0.accept_local", "0")), "accept_local", Fail, "accept_local is 0 on eth0", []string{"sysctl -w net.ipv4.conf.eth0.accept_local=1"}},
	{"forged answers, before the start", direct, both(through, stopped, set("net.ipv4.conf.all.accept_local", "0"), set("net.ipv4.conf.eth0.accept_local", "0")), "accept_local", Note, "sluiced sets it", nil},
	{"forged answers, unmanaged", direct, both(through, stopped, with(func(c *config.Config) { c.Global.ManageSysctls = false }), set("net.ipv4.conf.all.accept_local", "0"), set("net.ipv4.conf.eth0.accept_local", "0")), "accept_local", Fail, "is 0 on eth0", []string{"sysctl -w net.ipv4.conf.eth0.accept_local=1"}},
	{"answers let in by one of two", direct, both(through, set("net.ipv4.conf.eth0.accept_local", "0")), "accept_local", OK, "eth0", nil},
	{"answers, unseen", direct, both(through, func(in *Input) { delete(in.Facts.Settings, "net.ipv4.conf.eth0.accept_local") }), "accept_local", Unknown, "eth0.accept_local was not read", nil},
	{"strictly filtered answers", direct, both(through, set("net.ipv4.conf.eth0.rp_filter", "1")), "via_rp_filter", Fail, "strict (1) on eth0", []string{"sysctl -w net.ipv4.conf.eth0.rp_filter=2"}},
	{"strictly filtered answers on all", direct, both(through, set("net.ipv4.conf.all.rp_filter", "1")), "via_rp_filter", Fail, "strict (1) on eth0", []string{"sysctl -w net.ipv4.conf.all.rp_filter=2"}},
	{"strict where no answers come", direct, both(through, set("net.ipv4.conf.eth1.rp_filter", "1")), "via_rp_filter", OK, "eth0", nil},
	{"tunnels of checks", tunnel, both(through, packed(config.Forwarding{Tunnel: config.GUE})), "tunnel_modules", OK, "ipip, fou can be had", nil},
	{"no tunnels for checks", tunnel, both(through, packed(config.Forwarding{Tunnel: config.GRE}), func(in *Input) { delete(in.Facts.Modules.OnDisk, "ip_gre") }), "tunnel_modules", Fail, "no module ip_gre", nil},

	{"a server that answers", direct, said("192.0.2.10", host.Answer{Yes: true}), "dr_arp", Fail, "192.0.2.21 answers ARP for 192.0.2.10", nil},
	{"a server that answers nobody", strings.ReplaceAll(direct, "192.0.2.10", "198.51.100.1"), said("198.51.100.1", host.Answer{Yes: true}), "dr_arp", Note, "in no network of the device", nil},
	{"a server that is silent", direct, said("192.0.2.10", host.Answer{}), "dr_arp", OK, "1 DR server does not answer", nil},
	{"a server that cannot be asked", direct, said("192.0.2.10", host.Answer{Unknown: "operation not permitted; run as root"}), "dr_arp", Unknown, "run as root", nil},
	{"a server that answers in IPv6", direct6, said6("2001:db8::10", host.Answer{Yes: true}), "dr_arp", Fail, "2001:db8::21 answers neighbour solicitations for 2001:db8::10", nil},
	{"a server that answers nobody in IPv6", strings.ReplaceAll(direct6, "2001:db8::10", "2001:db8:1::1"), said6("2001:db8:1::1", host.Answer{Yes: true}), "dr_arp", Note, "neighbour solicitations for 2001:db8:1::1, which is in no network of the device", nil},
	{"a server that is silent in IPv6", direct6, said6("2001:db8::10", host.Answer{}), "dr_arp", OK, "1 DR server does not answer", nil},

	{"tunnels in ipip", tunnel, nil, "tun_mtu", Note, "packets of 1500 bytes do not fit: the way by eth1 carries 1500 bytes, 1480 without what ipip adds", nil},
	{"tunnels in gre with checksums", tunnel, packed(config.Forwarding{Tunnel: config.GRE, Checksum: config.Csum}), "tun_mtu", Note, "1472 without what gre adds", nil},
	{"tunnels in gue", tunnel, packed(config.Forwarding{Tunnel: config.GUE}), "tun_mtu", Note, "1468 without what gue adds", nil},
	{"tunnels in gue with remote checksums", tunnel, packed(config.Forwarding{Tunnel: config.GUE, Checksum: config.RemCsum}), "tun_mtu", Note, "1460 without", nil},
	{"tunnels with room", tunnel, onDevice("eth1", func(d *host.Device) { d.MTU = 1520 }), "tun_mtu", OK, "packets of 1500 bytes fit", nil},
	{"tunnels a byte too short", tunnel, onDevice("eth1", func(d *host.Device) { d.MTU = 1519 }), "tun_mtu", Note, "1499 without", nil},
	{"tunnels on a narrow route", tunnel, both(onDevice("eth1", func(d *host.Device) { d.MTU = 9000 }), route("10.0.0.1", host.Route{Device: "eth1", MTU: 1400})), "tun_mtu", Note, "carries 1400 bytes, 1380 without", nil},
	{"tunnels of wide clients", tunnel, both(onDevice("eth1", func(d *host.Device) { d.MTU = 1520 }), onDevice("eth0", func(d *host.Device) { d.MTU = 9000 })), "tun_mtu", Note, "packets of 9000 bytes do not fit", nil},
	{"tunnels of an address on a dummy", tunnel, both(device(config.VIPAlways), onDevice("vip0", func(d *host.Device) { d.MTU = 9000 }), onDevice("eth1", func(d *host.Device) { d.MTU = 1520 })), "tun_mtu", OK, "packets of 1500 bytes fit", nil},
	{"tunnels unseen", tunnel, route("10.0.0.1", host.Route{Unknown: "EIO"}), "tun_mtu", Note, "cannot be seen", nil},
	{"IPv6 in a narrow tunnel", six, both(packed(config.Forwarding{}), route("fd00::1", host.Route{Device: "eth1", MTU: 1310})), "tun_mtu", Fail, "1270 without", nil},
	{"cut packets", tunnel, set("net.ipv4.vs.pmtu_disc", "0"), "pmtu_disc", Note, "is 0", []string{"sysctl -w net.ipv4.vs.pmtu_disc=1"}},
	{"directors that share", tunnel, device(config.VIPQuorum), "sloppy_tcp", Note, "several directors may share", []string{"sysctl -w net.ipv4.vs.sloppy_tcp=1"}},
	{"directors that share, sloppy", tunnel, both(device(config.VIPQuorum), set("net.ipv4.vs.sloppy_tcp", "1")), "sloppy_tcp", OK, "is 1", nil},
	{"one director", tunnel, device(config.VIPAlways), "sloppy_tcp", OK, "is 0", nil},
	{"directors that share some", tunnel + mark, both(device(config.VIPQuorum), set("net.ipv4.vs.sloppy_tcp", "1")), "sloppy_tcp", Note, "do not choose by hash", nil},

	{"no device to synchronise by", web, both(synced(config.SyncBoth, master, backup), without("eth0")), "sync_device", Fail, "no device eth0", nil},
	{"a device down to synchronise by", web, both(synced(config.SyncBoth), onDevice("eth0", func(d *host.Device) { d.Up = false })), "sync_device", Fail, "eth0 is down", []string{"ip link set dev eth0 up"}},
	{"a device that cannot", web, both(synced(config.SyncBoth), onDevice("eth0", func(d *host.Device) { d.Multicast = false })), "sync_device", Fail, "without multicast", []string{"ip link set dev eth0 multicast on"}},
	{"both halves", web, synced(config.SyncBoth, master, backup), "sync_daemon", OK, "master on eth0 with id 7, backup on eth0 with id 7; the other director needs the same id", nil},
	{"a half", web, synced(config.SyncBoth, master), "sync_daemon", Fail, "the backup half does not run", nil},
	{"the half that is wanted", web, synced(config.SyncMaster, master), "sync_daemon", OK, "master on eth0", nil},
	{"another id", web, synced(config.SyncMaster, SyncHalf{"master", "eth0", 8}), "sync_daemon", Warn, "eth0 with id 8", nil},
	{"no half, by a file", web, both(synced(config.SyncBoth), with(func(c *config.Config) { c.Global.Sync.File = &config.TrackFileUse{Name: "f"} })), "sync_daemon", Fail, "neither half runs", nil},
	{"a half by a file", web, both(synced(config.SyncBoth, backup), with(func(c *config.Config) { c.Global.Sync.File = &config.TrackFileUse{Name: "f"} })), "sync_daemon", OK, "backup on eth0", nil},
	{"halves unseen", web, both(synced(config.SyncBoth), func(in *Input) { in.SyncUnknown = "run as root" }), "sync_daemon", Unknown, "run as root", nil},
}

// TestWhoUsesNothingHearsNothing: without the features none of their rules speaks, and
// nothing is asked of the kernel for them.
func TestWhoUsesNothingHearsNothing(t *testing.T) {
	for _, text := range []string{"", web, six, tunnel, mark, names} {
		in := sound(parse(t, text))
		in.Facts.Rules = []host.Rule{{Mark: full, Mask: everyMark}}
		in.Facts.Chains = []host.Chain{{Family: "inet", Table: "filter", Name: "input", Hook: "input", Drop: true}}
		for _, f := range Examine(in).Findings {
			if f.Group == groupVIP || f.Group == groupVia || f.Group == groupSync {
				t.Errorf("%+v for\n%s", f, text)
			}
		}
		if q := Ask(in.Config); q.Rules || q.Chains || len(q.Questions) > 0 {
			t.Errorf("asked for %+v", q)
		}
	}
}

// TestOneRuleSpeaksOfAnAddress: what sluiced puts on a device by itself is not asked of
// the operator besides, and a server of this machine has no device by which answers come.
func TestOneRuleSpeaksOfAnAddress(t *testing.T) {
	in := sound(parse(t, web))
	both(device(config.VIPQuorum), quorumless, away)(&in)
	if f := find(Examine(in), "virtual_address", Fail); f != nil {
		t.Errorf("%+v", f)
	}
	in = sound(parse(t, direct))
	both(through, route("192.0.2.21", host.Route{Local: true, Device: "lo"}))(&in)
	if f := find(Examine(in), "accept_local", ""); f != nil {
		t.Errorf("%+v", f)
	}
}

// TestWhatIsAsked: what the rules rest on is asked for.
func TestWhatIsAsked(t *testing.T) {
	in := sound(parse(t, direct))
	both(through, guarded)(&in)
	q := Ask(in.Config)
	want := host.Question{Server: netip.MustParseAddr("192.0.2.21"), Addr: netip.MustParseAddr("192.0.2.10")}
	if !q.Rules || !q.Chains || !slices.Equal(q.Questions, []host.Question{want}) || !slices.Contains(q.Settings, "net.ipv4.conf.*.accept_local") {
		t.Errorf("%+v", q)
	}
	want6 := host.Question{Server: netip.MustParseAddr("2001:db8::21"), Addr: netip.MustParseAddr("2001:db8::10")}
	if got := Ask(parse(t, direct6)).Questions; !slices.Equal(got, []host.Question{want6}) {
		t.Errorf("in IPv6: %+v", got)
	}
	in.Config.VirtualServers[0].VIP.Device = "vip0"
	in.Config.Global.NFTables = &config.NFTables{}
	if got := Needs(in.Config, true); !slices.Equal(got, []host.Need{host.NeedVIP, host.NeedGuard, host.NeedMarks, host.NeedVia}) {
		t.Errorf("needs %v", got)
	}
}

// TestBlindAround: what cannot be read around the table is not said to be well.
func TestBlindAround(t *testing.T) {
	in := sound(parse(t, direct))
	both(through, guarded, device(config.VIPQuorum), said("192.0.2.10", host.Answer{}), synced(config.SyncBoth))(&in)
	in.Facts.Blind("elsewhere")
	in.SyncUnknown = "elsewhere"
	seen := map[string]bool{}
	for _, f := range Examine(in).Findings {
		if f.Group != groupVIP && f.Group != groupVia && f.Group != groupSync || f.ID == "nf_tables" || f.ID == "features" {
			continue
		}
		seen[f.ID] = true
		if f.Status != Unknown && f.Status != Note {
			t.Errorf("%+v", f)
		}
	}
	for _, id := range []string{"vip_device", "vip_address", "nft_tables", "nft_input", "marks", "dr_arp", "sync_device", "sync_daemon"} {
		if !seen[id] {
			t.Errorf("%s says nothing", id)
		}
	}
}
