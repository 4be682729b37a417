package doctor

import (
	"net/netip"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/keyword"
	"github.com/sluice-lb/sluice/internal/host"
)

// The pieces of which cases make their configurations.
const (
	web    = "virtual_server 192.0.2.10 80 {\n lvs_sched wlc\n lvs_method NAT\n protocol TCP\n EXTRA\n real_server 10.0.0.1 80 {\n  weight 1\n  TCP_CHECK {\n  }\n }\n}\n"
	six    = "virtual_server 2001:db8::10 80 {\n lvs_sched wlc\n lvs_method NAT\n protocol TCP\n real_server fd00::1 80 {\n  weight 1\n }\n}\n"
	direct = "virtual_server 192.0.2.10 80 {\n lvs_sched wlc\n lvs_method DR\n protocol TCP\n real_server 192.0.2.21 80 {\n  weight 1\n  PING_CHECK {\n  }\n }\n}\n"
	tunnel = "virtual_server 192.0.2.10 80 {\n lvs_sched mh\n lvs_method TUN\n protocol TCP\n real_server 10.0.0.1 80 {\n  weight 1\n }\n}\n"
	mark   = "virtual_server fwmark 7 {\n lvs_sched rr\n lvs_method DR\n real_server 192.0.2.21 0 {\n  weight 1\n }\n}\n"
	names  = "virtual_server 192.0.2.10 53 {\n lvs_sched rr\n lvs_method NAT\n protocol UDP\n real_server 10.0.0.1 53 {\n  weight 1\n }\n}\n"
)

func extra(text, more string) string { return strings.Replace(text, "EXTRA", more, 1) }

func parse(t *testing.T, text string) *config.Config {
	t.Helper()
	if text == "" {
		return nil
	}
	cfg, list := keyword.LoadString("t.conf", strings.Replace(text, "EXTRA", "", 1), keyword.Options{})
	if cfg == nil || len(list.Errors()) > 0 {
		t.Fatalf("the configuration does not load: %v", list)
	}
	return cfg
}

// sound is a machine on which every configuration above works, and the daemon on it.
func sound(cfg *config.Config) Input {
	f := &host.Facts{
		Kernel: "6.1.0-57-amd64", Root: true,
		Modules: host.Modules{Loaded: map[string]bool{"ip_vs": true, "ip_vs_wlc": true, "nf_tables": true},
			Builtin: map[string]bool{"ip_vs_mh": true}, OnDisk: map[string]bool{"ip_vs": true, "ip_vs_rr": true, "ip_vs_pe_sip": true, "nft_reject_inet": true, "ipip": true, "fou": true, "ip_gre": true}},
		Table:    host.Table{Present: true, Size: 4096, Connections: 100},
		Settings: map[string]host.Setting{},
		Devices: []host.Device{
			{Name: "eth0", Up: true, Multicast: true, MTU: 1500, Addresses: []host.Address{
				{Prefix: netip.MustParsePrefix("192.0.2.2/24")}, {Prefix: netip.MustParsePrefix("192.0.2.10/32")}, {Prefix: netip.MustParsePrefix("2001:db8::10/128")}}},
			{Name: "eth1", Up: true, Multicast: true, MTU: 1500, Addresses: []host.Address{{Prefix: netip.MustParsePrefix("10.0.0.254/24")}}},
			{Name: "lo", Up: true, Loopback: true, MTU: 65536, Addresses: []host.Address{{Prefix: netip.MustParsePrefix("127.0.0.1/8")}}},
		},
		Routes: map[netip.Addr]host.Route{
			netip.MustParseAddr("192.0.2.10"):   {Local: true, Device: "lo"},
			netip.MustParseAddr("2001:db8::10"): {Local: true, Device: "lo"},
			netip.MustParseAddr("10.0.0.1"):     {Device: "eth1"},
			netip.MustParseAddr("192.0.2.21"):   {Device: "eth0"},
			netip.MustParseAddr("fd00::1"):      {Device: "eth1"},
			netip.MustParseAddr("127.0.0.1"):    {Local: true, Device: "lo"},
		},
		Daemon: host.Credentials{PID: 77, Effective: 1<<12 | 1<<13, Files: 20000, FilesHard: 20000},
		Paths:  map[string]host.Path{"/run/s": {Mode: 0o140660}, "/var/lib/sluice": {Mode: 0o40700}},
	}
	good := map[string]string{
		"net.ipv4.ping_group_range": "1 0", "net.ipv4.ip_forward": "1", "net.ipv6.conf.all.forwarding": "1",
		"net.ipv4.ip_local_port_range": "32768 60999", "net.ipv4.tcp_tw_reuse": "2",
		"net.netfilter.nf_conntrack_count": "10", "net.netfilter.nf_conntrack_max": "262144", "net.ipv6.conf.all.disable_ipv6": "0",
		"net.ipv4.vs.expire_nodest_conn": "1", "net.ipv4.vs.expire_quiescent_template": "1", "net.ipv4.vs.conntrack": "0",
		"net.ipv4.vs.conn_reuse_mode": "3", "net.ipv4.vs.sloppy_tcp": "0", "net.ipv4.vs.drop_entry": "0", "net.ipv4.vs.drop_packet": "0",
		"net.ipv4.vs.secure_tcp": "0", "net.ipv4.vs.snat_reroute": "1", "net.ipv4.vs.pmtu_disc": "1", "net.ipv4.vs.sync_version": "1", "net.ipv4.vs.sync_threshold": "3 50",
	}
	for _, dev := range []string{"all", "eth0", "eth1", "lo"} {
		for name, v := range map[string]string{"rp_filter": "0", "arp_ignore": "0", "arp_announce": "0", "send_redirects": "0", "forwarding": "1", "accept_local": "1"} {
			good["net.ipv4.conf."+dev+"."+name] = v
		}
	}
	for name, v := range good {
		f.Settings[name] = host.Setting{Value: v}
	}
	return Input{Facts: f, Config: cfg, File: "/etc/k.conf", Version: "1.0", Socket: "/run/s", StateDir: "/var/lib/sluice",
		Daemon: &Daemon{Version: "1.0", PID: 77, ConfigFile: "/etc/k.conf"}, Timeouts: &Timeouts{900, 120, 300}}
}

func set(name, value string) func(*Input) {
	return func(in *Input) { in.Facts.Settings[name] = host.Setting{Value: value} }
}

func route(a string, r host.Route) func(*Input) {
	return func(in *Input) { in.Facts.Routes[netip.MustParseAddr(a)] = r }
}

func stopped(in *Input) { in.Daemon = nil }

func both(all ...func(*Input)) func(*Input) {
	return func(in *Input) {
		for _, f := range all {
			f(in)
		}
	}
}

func writer(name string, args ...string) func(*Input) {
	return func(in *Input) {
		in.Facts.Writers = append(in.Facts.Writers, host.Writer{PID: 9, Name: name, Args: append([]string{name}, args...)})
	}
}

// withAddress puts an address on a device instead of where it was.
func withAddress(dev, prefix string, secondaries ...string) func(*Input) {
	return func(in *Input) {
		p := netip.MustParsePrefix(prefix)
		for i := range in.Facts.Devices {
			d := &in.Facts.Devices[i]
			d.Addresses = slices.DeleteFunc(d.Addresses, func(a host.Address) bool { return a.Addr() == p.Addr() })
			if d.Name == dev {
				d.Addresses = append(d.Addresses, host.Address{Prefix: p})
				for _, s := range secondaries {
					d.Addresses = append(d.Addresses, host.Address{Prefix: netip.MustParsePrefix(s), Secondary: true})
				}
			}
		}
	}
}

// away takes the virtual address off the machine.
var away = both(withAddress("none", "192.0.2.10/32"), route("192.0.2.10", host.Route{Device: "eth0"}))

type example struct {
	name, text string
	do         func(*Input)
	id         string
	status     Status
	found      string
	mend       []string
}

// cases: what is done to the sound machine, and what a rule then finds.
var cases = slices.Concat(tableCases, aroundCases)

var tableCases = []example{
	{"no daemon", web, stopped, "daemon", Note, "does not run", nil},
	{"observing", web, func(in *Input) { in.Daemon.Observe = true }, "daemon", Note, "observe mode", nil},
	{"a daemon that is not for us", web, both(stopped, func(in *Input) { in.DaemonUnknown = "permission denied" }), "daemon", Unknown, "permission denied", nil},
	{"upgraded, not handed over", web, func(in *Input) { in.Version = "1.1" }, "version", Warn, "sluiced is 1.0, sluice is 1.1", []string{"sluice handover"}},
	{"no table", web, func(in *Input) { in.Daemon.KernelError = "operation not permitted" }, "table_written", Fail, "not permitted", nil},
	{"reload refused", web, func(in *Input) { in.Daemon.ReloadError = "k.conf:3: no" }, "last_reload", Warn, "k.conf:3", nil},
	{"another namespace", web, func(in *Input) { in.NamespaceUnknown = "permission denied" }, "namespace", Unknown, "permission", nil},
	{"no rights", web, func(in *Input) { in.Facts.Daemon.Effective = 0 }, "capabilities", Fail, "CAP_NET_ADMIN: needed for the IPVS table", nil},
	{"no rights for pings", direct, func(in *Input) { in.Facts.Daemon.Effective = 1 << 12 }, "capabilities", Fail, "CAP_NET_RAW: needed for PING_CHECK", nil},
	{"no rights, observing", web, func(in *Input) { in.Facts.Daemon.Effective, in.Daemon.Observe = 0, true }, "capabilities", Note, "CAP_NET_ADMIN", nil},
	{"no rights here", web, both(stopped, func(in *Input) { in.Facts.Daemon.Effective = 0 }), "capabilities", Note, "this process, if it were sluiced", nil},
	{"unreadable rights", web, func(in *Input) { in.Facts.Daemon.Unknown = "gone" }, "capabilities", Unknown, "process 77: gone", nil},
	{"few descriptors", web, func(in *Input) { in.Facts.Daemon.Files = 200 }, "descriptors", Warn, "1 check with a limit of 200", []string{"prlimit --pid 77 --nofile=201:20000"}},
	{"state folder of another", web, func(in *Input) { in.Facts.Daemon.UID = 5 }, "state_dir", Warn, "owner 0, sluiced runs as 5", []string{"chown 5 /var/lib/sluice"}},
	{"state folder by its right", web, func(in *Input) { in.Facts.Daemon.UID = 5; in.Facts.Daemon.Effective |= 2 }, "state_dir", OK, "can be written", nil},
	{"no state folder", web, func(in *Input) { in.Facts.Paths["/var/lib/sluice"] = host.Path{Absent: true} }, "state_dir", Warn, "not there", nil},
	{"socket for all", web, func(in *Input) { in.Facts.Paths["/run/s"] = host.Path{Mode: 0o140666} }, "socket", Warn, "mode 0666", []string{"chmod o= /run/s"}},
	{"socket for groups", "global_defs {\n control_group nogroup\n}\n" + web, func(in *Input) { in.Facts.Paths["/run/s"] = host.Path{Mode: 0o140666} }, "socket", OK, "control_group", nil},
	{"keepalived -C", web, writer("keepalived", "-C"), "other_writers", Fail, "writes IPVS too", nil},
	{"keepalived of our file", web, writer("keepalived", "-D", "-f", "/etc/k.conf"), "other_writers", Fail, "writes IPVS too", nil},
	{"keepalived of another file", web, writer("keepalived", "-nlD"), "other_writers", Warn, "if /etc/keepalived/keepalived.conf has", nil},
	{"keepalived -P", web, writer("keepalived", "-nlP"), "other_writers", OK, "VRRP alone", nil},
	{"keepalived --vrrp", web, writer("keepalived", "--vrrp"), "other_writers", OK, "VRRP alone", nil},
	{"keepalived with a P in a name", web, writer("keepalived", "-f/etc/P.conf"), "other_writers", Warn, "", nil},
	{"ldirectord", web, writer("ldirectord"), "other_writers", Fail, "", nil},
	{"kube-proxy in IPVS mode", web, both(writer("kube-proxy"), func(in *Input) { in.Facts.Devices = append(in.Facts.Devices, host.Device{Name: "kube-ipvs0"}) }), "other_writers", Fail, "IPVS mode", nil},
	{"kube-proxy in another mode", web, writer("kube-proxy"), "other_writers", OK, "no other process", nil},
	{"two sluiced", web, writer("sluiced"), "other_writers", Warn, "another sluiced", nil},
	{"processes unseen", web, func(in *Input) { in.Facts.WritersUnknown = "no /proc" }, "other_writers", Unknown, "no /proc", nil},

	{"upgraded kernel", web, func(in *Input) { in.Facts.Modules.NoTree = true }, "kernel_tree", Warn, "no /lib/modules/6.1.0-57-amd64", nil},
	{"upgraded kernel without ip_vs", web, func(in *Input) { in.Facts.Modules.NoTree, in.Facts.Table.Present = true, false }, "kernel_tree", Fail, "", nil},
	{"container", web, func(in *Input) { in.Facts.Modules.NoTree, in.Facts.Container = true, true }, "kernel_tree", Note, "container", nil},
	{"not loaded, though it runs", web, func(in *Input) { in.Facts.Table.Present = false; in.Facts.Modules.Loaded = nil }, "ip_vs", Fail, "not loaded, though sluiced runs", []string{"modprobe ip_vs"}},
	{"not loaded yet", web, both(stopped, func(in *Input) { in.Facts.Table.Present = false }), "ip_vs", Note, "loads it when it starts", []string{"modprobe ip_vs"}},
	{"no ip_vs at all", web, func(in *Input) { in.Facts.Table.Present = false; in.Facts.Modules = host.Modules{} }, "ip_vs", Fail, "no module ip_vs", nil},
	{"no scheduler", tunnel, func(in *Input) { in.Facts.Modules.Builtin = nil }, "schedulers", Fail, "no module ip_vs_mh", nil},
	{"built-in scheduler", tunnel, nil, "schedulers", OK, "ip_vs_mh is built into", nil},
	{"scheduler on disk", mark, nil, "schedulers", OK, "ip_vs_rr is loaded when", nil},
	{"schedulers unseen", tunnel + mark, func(in *Input) { in.Facts.Modules = host.Modules{DiskUnknown: "EIO"} }, "schedulers", Unknown, "modules ip_vs_mh, ip_vs_rr: EIO", nil},
	{"no engine", strings.Replace(names, "protocol UDP", "protocol UDP\n persistence_engine sip\n persistence_timeout 60", 1), func(in *Input) { in.Facts.Modules.OnDisk = nil }, "persistence_engine", Fail, "ip_vs_pe_sip", nil},
	{"IPv6 off", six, set("net.ipv6.conf.all.disable_ipv6", "1"), "ipv6", Fail, "is 1", []string{"sysctl -w net.ipv6.conf.all.disable_ipv6=0"}},
	{"no IPv6", six, func(in *Input) { in.Facts.Settings["net.ipv6.conf.all.disable_ipv6"] = host.Setting{Absent: true} }, "ipv6", Fail, "not in this kernel", nil},
	{"long chains", web, func(in *Input) { in.Facts.Table.Connections = 100000 }, "conn_table", Warn, "100000 connections in a table of 4096", nil},
	{"table unseen", web, func(in *Input) { in.Facts.Table.Unknown = "no right" }, "conn_table", Unknown, "no right", nil},

	{"no settings yet", web, func(in *Input) { in.Facts.Table.Present = false }, "ipvs_settings", Unknown, "ip_vs is not in the kernel", nil},
	{"nodest, put back", web, set("net.ipv4.vs.expire_nodest_conn", "0"), "expire_nodest_conn", Warn, "is 0", []string{"sysctl -w net.ipv4.vs.expire_nodest_conn=1"}},
	{"nodest, before the start", web, both(stopped, set("net.ipv4.vs.expire_nodest_conn", "0")), "expire_nodest_conn", Note, "sluiced sets it", nil},
	{"nodest, unmanaged", "global_defs {\n manage_sysctls off\n}\n" + web, both(stopped, set("net.ipv4.vs.expire_nodest_conn", "0")), "expire_nodest_conn", Warn, "is 0", []string{"sysctl -w net.ipv4.vs.expire_nodest_conn=1"}},
	{"nodest unseen", web, func(in *Input) {
		in.Facts.Settings["net.ipv4.vs.expire_nodest_conn"] = host.Setting{Unknown: "permission denied; run as root"}
	}, "expire_nodest_conn", Unknown, "run as root", nil},
	{"templates", extra(web, "persistence_timeout 60"), set("net.ipv4.vs.expire_quiescent_template", "0"), "expire_quiescent_template", Warn, "is 0", []string{"sysctl -w net.ipv4.vs.expire_quiescent_template=1"}},
	{"conntrack asked for", "global_defs {\n ipvs_conntrack\n}\n" + web, nil, "vs_conntrack", Warn, "is 0", []string{"sysctl -w net.ipv4.vs.conntrack=1"}},
	{"conntrack for nothing", web, set("net.ipv4.vs.conntrack", "1"), "vs_conntrack", Note, "though ipvs_conntrack is not on", []string{"sysctl -w net.ipv4.vs.conntrack=0"}},
	{"no reuse", web, set("net.ipv4.vs.conn_reuse_mode", "0"), "conn_reuse_mode", Warn, "is 0", []string{"sysctl -w net.ipv4.vs.conn_reuse_mode=1"}},
	{"no reuse with DR", direct, set("net.ipv4.vs.conn_reuse_mode", "0"), "conn_reuse_mode", Warn, "is 0", []string{"sysctl -w net.ipv4.vs.conn_reuse_mode=3"}},
	{"reuse of NAT with DR", direct, set("net.ipv4.vs.conn_reuse_mode", "1"), "conn_reuse_mode", Note, "is 1", []string{"sysctl -w net.ipv4.vs.conn_reuse_mode=3"}},
	{"reuse of NAT", web, set("net.ipv4.vs.conn_reuse_mode", "1"), "conn_reuse_mode", OK, "is 1", nil},
	{"the second", web, both(set("net.ipv4.vs.conntrack", "1"), func(in *Input) { in.Facts.Kernel = "5.8.18" }), "conn_reuse_mode", Warn, "on Linux 5.8.18", nil},
	{"no second any more", web, both(set("net.ipv4.vs.conntrack", "1"), func(in *Input) { in.Facts.Kernel = "5.10.0-30" }), "conn_reuse_mode", OK, "", nil},
	{"sloppy", web, set("net.ipv4.vs.sloppy_tcp", "1"), "sloppy_tcp", Note, "is 1", []string{"sysctl -w net.ipv4.vs.sloppy_tcp=0"}},
	{"entries dropped", web, set("net.ipv4.vs.drop_entry", "3"), "drop_entry", Warn, "is 3", []string{"sysctl -w net.ipv4.vs.drop_entry=0"}},
	{"entries dropped at need", web, set("net.ipv4.vs.drop_entry", "1"), "drop_entry", Note, "is 1", []string{"sysctl -w net.ipv4.vs.drop_entry=0"}},
	{"packets dropped", web, set("net.ipv4.vs.drop_packet", "2"), "drop_packet", Warn, "is 2", []string{"sysctl -w net.ipv4.vs.drop_packet=0"}},
	{"other timeouts", web, set("net.ipv4.vs.secure_tcp", "3"), "secure_tcp", Warn, "is 3", []string{"sysctl -w net.ipv4.vs.secure_tcp=0"}},
	{"not routed anew", web, set("net.ipv4.vs.snat_reroute", "0"), "snat_reroute", Note, "is 0", []string{"sysctl -w net.ipv4.vs.snat_reroute=1"}},
	{"old synchronisation", "global_defs {\n lvs_sync_daemon eth0\n}\n" + web, set("net.ipv4.vs.sync_version", "0"), "sync_version", Warn, "is 0", []string{"sysctl -w net.ipv4.vs.sync_version=1"}},
	{"late synchronisation", "global_defs {\n lvs_sync_daemon eth0\n}\n" + web, set("net.ipv4.vs.sync_threshold", "100 200"), "sync_threshold", Note, "fewer than 100 packets", []string{"sysctl -w net.ipv4.vs.sync_threshold='3 50'"}},
	{"timeouts changed", "global_defs {\n lvs_timeouts tcp 600 tcpfin 60 udp 30\n}\n" + web, nil, "ipvs_timeouts", Warn, "tcp 900, tcp_fin 120, udp 300", []string{"ipvsadm --set 600 60 30"}},
	{"timeouts to be set", "global_defs {\n lvs_timeouts tcp 600 tcpfin 60 udp 30\n}\n" + web, stopped, "ipvs_timeouts", Note, "sluiced sets them", nil},
	{"timeouts unseen", "global_defs {\n lvs_timeouts tcp 600 tcpfin 60 udp 30\n}\n" + web, func(in *Input) { in.Timeouts, in.TimeoutsUnknown = nil, "run as root" }, "ipvs_timeouts", Unknown, "run as root", nil},
	{"short drains", "global_defs {\n drain_timeout 30\n}\n" + web, nil, "ipvs_timeouts", Warn, "shorter than the kernel's fin timeout of 120", nil},
	{"drains that fit", "global_defs {\n drain_timeout 120\n}\n" + web, nil, "ipvs_timeouts", OK, "", nil},

	{"no forwarding", web, set("net.ipv4.ip_forward", "0"), "ip_forward", Fail, "is 0", []string{"sysctl -w net.ipv4.ip_forward=1"}},
	{"no forwarding on a VLAN", web, both(route("10.0.0.1", host.Route{Device: "eth1.7"}), set("net.ipv4.conf.eth1.7.forwarding", "0")), "device_forwarding", Fail, "eth1.7.forwarding is 0", []string{"sysctl -w net/ipv4/conf/eth1.7/forwarding=1"}},
	{"no forwarding of IPv6", six, set("net.ipv6.conf.all.forwarding", "0"), "ipv6_forwarding", Fail, "is 0", []string{"sysctl -w net.ipv6.conf.all.forwarding=1"}},
	{"the way back", web, nil, "nat_way_back", Note, "cannot be seen", nil},
	{"one arm", web, both(route("10.0.0.1", host.Route{Device: "eth0"}), set("net.ipv4.conf.all.send_redirects", "1"), set("net.ipv4.conf.eth0.send_redirects", "1")), "send_redirects", Warn, "share that device",
		[]string{"sysctl -w net.ipv4.conf.all.send_redirects=0", "sysctl -w net.ipv4.conf.eth0.send_redirects=0"}},
	{"one arm, quiet", web, route("10.0.0.1", host.Route{Device: "eth0"}), "send_redirects", OK, "eth0", nil},
	{"strict filter", direct, set("net.ipv4.conf.eth0.rp_filter", "1"), "rp_filter", Note, "strict (1) on eth0", []string{"sysctl -w net.ipv4.conf.eth0.rp_filter=2"}},
	{"strict filter and marks", mark, set("net.ipv4.conf.all.rp_filter", "1"), "rp_filter", Warn, "strict (1) on eth0, eth1", []string{"sysctl -w net.ipv4.conf.all.rp_filter=2"}},
	{"loose filter wins", mark, both(set("net.ipv4.conf.all.rp_filter", "2"), set("net.ipv4.conf.eth0.rp_filter", "1")), "rp_filter", OK, "", nil},
	{"director and real server, hidden", direct, both(route("192.0.2.21", host.Route{Local: true}), withAddress("lo", "192.0.2.10/32")), "arp", Warn, "on lo, and net.ipv4.conf.all.arp_ignore is 0",
		[]string{"sysctl -w net.ipv4.conf.all.arp_ignore=1", "sysctl -w net.ipv4.conf.all.arp_announce=2"}},
	{"director and real server, silent", direct, both(route("192.0.2.21", host.Route{Local: true}), withAddress("lo", "192.0.2.10/32"), set("net.ipv4.conf.all.arp_ignore", "1"), set("net.ipv4.conf.all.arp_announce", "2")), "arp", OK, "", nil},
	{"director and real server, active", direct, route("192.0.2.21", host.Route{Local: true}), "arp", Note, "as the active director must", nil},
	{"connections nearly too many", web, set("net.netfilter.nf_conntrack_count", "220000"), "nf_conntrack_table", Warn, "220000 of 262144", []string{"sysctl -w net.netfilter.nf_conntrack_max=524288"}},
	{"connections too many", web, set("net.netfilter.nf_conntrack_count", "262144"), "nf_conntrack_table", Fail, "262144 of 262144", []string{"sysctl -w net.netfilter.nf_conntrack_max=524288"}},
	{"no connection tracking", "global_defs {\n ipvs_conntrack\n}\n" + web, func(in *Input) { in.Facts.Settings["net.netfilter.nf_conntrack_max"] = host.Setting{Absent: true} }, "nf_conntrack", Warn, "not in the kernel", []string{"modprobe nf_conntrack"}},

	{"no address", web, away, "virtual_address", Fail, "192.0.2.10 is not on this machine", []string{"ip addr add 192.0.2.10/32 dev eth0"}},
	{"no address, VRRP", web, both(away, writer("keepalived", "-P")), "virtual_address", Note, "may keep it", nil},
	{"no address, suspended", extra(web, "ha_suspend"), away, "virtual_address", Note, "ha_suspend", nil},
	{"a whole network of them", web, withAddress("none", "192.0.2.10/32"), "virtual_address", OK, "by a local route", nil},
	{"no address, or a local route", web, both(away, route("192.0.2.10", host.Route{Unknown: "EIO"})), "virtual_address", Unknown, "EIO", nil},
	{"a duplicate", six, func(in *Input) { in.Facts.Devices[0].Addresses[2].Unusable = true; in.Facts.Routes = nil }, "virtual_address", Fail, "duplicate address detection", nil},
	{"addresses unseen", web, func(in *Input) { in.Facts.DevicesUnknown = "EIO" }, "virtual_address", Unknown, "EIO", nil},
	{"a network on lo", web, withAddress("lo", "192.0.2.10/24"), "virtual_prefix", Fail, "192.0.2.10/24 is on lo", []string{"ip addr del 192.0.2.10/24 dev lo", "ip addr add 192.0.2.10/32 dev lo"}},
	{"the first address", web, withAddress("eth1", "192.0.2.10/24", "192.0.2.3/24"), "virtual_prefix", Note, "first address of its network on eth1", nil},
	{"marks", mark, nil, "firewall_mark", Note, "not looked at", nil},
	{"no route", web, route("10.0.0.1", host.Route{None: "no route to it"}), "real_route", Fail, "no route", nil},
	{"route unseen", web, route("10.0.0.1", host.Route{Unknown: "EIO"}), "real_route", Unknown, "EIO", nil},
	{"DR behind a router", direct, route("192.0.2.21", host.Route{Device: "eth0", Gateway: netip.MustParseAddr("192.0.2.1")}), "dr_gateway", Fail, "192.0.2.1", nil},
	{"NAT behind a router", web, route("10.0.0.1", host.Route{Device: "eth0", Gateway: netip.MustParseAddr("192.0.2.1")}), "real_route", OK, "", nil},
	{"NAT to itself", extra(web, "sorry_server 127.0.0.1 80"), nil, "nat_loopback", Fail, "loopback", nil},
	{"DR to itself", direct, route("192.0.2.21", host.Route{Local: true}), "local_server", Note, "must listen on the virtual address", nil},

	{"no group for pings", direct, func(in *Input) { in.Facts.Daemon.Effective, in.Facts.Daemon.GID = 1<<12, 60 }, "ping_group", Fail, "is 1 0, sluiced has group 60", []string{"sysctl -w net.ipv4.ping_group_range='60 60'"}},
	{"a group outside", direct, both(set("net.ipv4.ping_group_range", "10 20"), func(in *Input) { in.Facts.Daemon.Effective, in.Facts.Daemon.GID = 1<<12, 60 }), "ping_group", Fail, "is 10 20", []string{"sysctl -w net.ipv4.ping_group_range='10 60'"}},
	{"one of its groups", direct, both(set("net.ipv4.ping_group_range", "10 20"), func(in *Input) {
		in.Facts.Daemon.Effective, in.Facts.Daemon.GID, in.Facts.Daemon.Groups = 1<<12, 60, []int{15}
	}), "ping_group", OK, "", nil},
	{"ports", extra(web, "delay_loop 0.001"), nil, "source_ports", Warn, "10.0.0.1:80 is checked 1000 times a second", []string{"sysctl -w net.ipv4.tcp_tw_reuse=1"}},
	{"ports that would do", extra(web, "delay_loop 0.0025"), nil, "source_ports", Warn, "400 times a second", []string{"sysctl -w net.ipv4.ip_local_port_range='10240 65535'"}},
	{"ports used again", extra(web, "delay_loop 0.001"), set("net.ipv4.tcp_tw_reuse", "1"), "source_ports", OK, "", nil},
	{"scripts", extra(web, "quorum_up /bin/true"), nil, "script_security", Note, "off", nil},
}

func find(r *Report, id string, s Status) *Finding {
	for i := range r.Findings {
		if r.Findings[i].ID == id && (s == "" || r.Findings[i].Status == s) {
			return &r.Findings[i]
		}
	}
	return nil
}

func TestRules(t *testing.T) {
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			in := sound(parse(t, c.text))
			if c.do != nil {
				c.do(&in)
			}
			r := Examine(in)
			f := find(r, c.id, c.status)
			if f == nil {
				t.Fatalf("no %s of %s, but %+v", c.status, c.id, find(r, c.id, ""))
			}
			if !strings.Contains(f.Found, c.found) {
				t.Errorf("found %q, want %q in it", f.Found, c.found)
			}
			if d := cmp.Diff(c.mend, f.Mend); d != "" {
				t.Errorf("mend (-want +got):\n%s", d)
			}
			if f.Status != OK && f.Why == "" {
				t.Error("it does not say why")
			}
			if len(f.Concerns) > few || len(f.Concerns) > f.ConcernsCount {
				t.Errorf("concerns %v of %d", f.Concerns, f.ConcernsCount)
			}
			for i := range r.Findings {
				pasteable(t, &r.Findings[i])
			}
		})
	}
}

// TestEveryRuleHasACase: a rule that no case makes speak of a problem is not tested.
func TestEveryRuleHasACase(t *testing.T) {
	seen := map[string]bool{}
	for _, list := range allRules {
		for _, r := range list {
			if seen[r.id] || !regexp.MustCompile(`^[a-z0-9_]+$`).MatchString(r.id) {
				t.Errorf("%q is no id, or not the only one", r.id)
			}
			seen[r.id] = true
			if !slices.ContainsFunc(cases, func(c example) bool { return c.id == r.id && c.status != OK }) {
				t.Errorf("%s has no case", r.id)
			}
			if r.title == "" || r.when == "" || r.why == "" || r.group == "" {
				t.Errorf("%s is not explained", r.id)
			}
		}
	}
}

// TestASoundMachineIsWell: nothing to do, whatever the configuration; and who uses
// nothing hears of nothing.
func TestASoundMachineIsWell(t *testing.T) {
	for _, text := range []string{"", web, six, direct, tunnel, mark, names} {
		r := Examine(sound(parse(t, text)))
		for _, f := range r.Findings {
			if f.Status != OK && f.Status != Note {
				t.Errorf("%+v for\n%s", f, text)
			}
		}
		if r.Worst() != OK {
			t.Errorf("worst is %s", r.Worst())
		}
	}
	in := sound(parse(t, direct))
	set("net.ipv4.ip_forward", "0")(&in)
	if f := find(Examine(in), "ip_forward", ""); f != nil {
		t.Errorf("DR is told of forwarding: %+v", f)
	}
	in = sound(parse(t, web))
	both(set("net.ipv4.ip_forward", "0"), route("10.0.0.1", host.Route{Local: true}))(&in)
	if f := find(Examine(in), "ip_forward", ""); f != nil {
		t.Errorf("a server on this machine itself is told of forwarding: %+v", f)
	}
}

// TestBlindnessIsNoHealth: where nothing of the network can be read, nothing of it is
// well.
func TestBlindnessIsNoHealth(t *testing.T) {
	for _, text := range []string{web, six, direct, tunnel, mark} {
		in := sound(parse(t, "global_defs {\n ipvs_conntrack\n lvs_timeouts tcp 1 tcpfin 2 udp 3\n}\n"+text))
		in.Facts.Blind("elsewhere")
		in.Timeouts, in.TimeoutsUnknown = nil, "elsewhere"
		for _, f := range Examine(in).Findings {
			if f.Group != groupSluice && f.Group != groupModules && f.Status != Unknown && f.Status != Note && f.ID != "ping_group" {
				t.Errorf("%+v", f)
			}
		}
	}
}

func TestAThousandServersAreOneFinding(t *testing.T) {
	text := ""
	for i := range 50 {
		text += strings.Replace(web, "80 {", string(rune('1'+i/10))+string(rune('0'+i%10))+" {", 1)
	}
	in := sound(parse(t, strings.ReplaceAll(text, "EXTRA", "")))
	set("net.ipv4.ip_forward", "0")(&in)
	f := find(Examine(in), "ip_forward", Fail)
	if f == nil || len(f.Concerns) != few || f.ConcernsCount != 50 || f.Concerns[0] != "real server 10.0.0.1:80 of [192.0.2.10]:tcp:10" {
		t.Errorf("%+v", f)
	}
}

// TestConcernsHaveLabels: whom a finding concerns is called as its people call it.
func TestConcernsHaveLabels(t *testing.T) {
	cfg := parse(t, strings.ReplaceAll(web, "EXTRA", ""))
	cfg.VirtualServers[0].Label, cfg.VirtualServers[0].RealServers[0].Label = "shop", "rack 4"
	in := sound(cfg)
	both(set("net.ipv4.ip_forward", "0"), away)(&in)
	r := Examine(in)
	if f := find(r, "ip_forward", Fail); f == nil || f.Concerns[0] != "real server 10.0.0.1:80 (rack 4) of [192.0.2.10]:tcp:80 (shop)" {
		t.Errorf("%+v", f)
	}
	if f := find(r, "virtual_address", Fail); f == nil || f.Concerns[0] != "[192.0.2.10]:tcp:80 (shop)" {
		t.Errorf("%+v", f)
	}
	if got, want := pinged(useOf(cfg, in.Facts)), 0; len(got) != want {
		t.Errorf("%v", got)
	}
	cfg.VirtualServers[0].RealServers[0].Checkers = []*config.Checker{{Kind: config.PingCheck}}
	if got := pinged(useOf(cfg, in.Facts)); len(got) != 1 || !strings.Contains(got[0], "(rack 4) of ") || !strings.HasSuffix(got[0], " (shop)") {
		t.Errorf("%v", got)
	}
}

// TestNamespaces: commands enter the namespace that they are about, and files that do
// not reach it are not named.
func TestNamespaces(t *testing.T) {
	in := sound(parse(t, web))
	in.Namespace, in.Enter = "lb", "ip netns exec lb"
	both(set("net.ipv4.ip_forward", "0"), away)(&in)
	r := Examine(in)
	if f := find(r, "ip_forward", Fail); f == nil || f.Mend[0] != "ip netns exec lb sysctl -w net.ipv4.ip_forward=1" || len(f.Stay) != 0 {
		t.Errorf("%+v", f)
	}
	if f := find(r, "virtual_address", Fail); f == nil || f.Mend[0] != "ip netns exec lb ip addr add 192.0.2.10/32 dev eth0" {
		t.Errorf("%+v", f)
	}
	if f := find(r, "namespace", OK); f == nil || !strings.Contains(f.Found, "lb") {
		t.Errorf("%+v", f)
	}
}

// commands are what may be told to be typed.
var commands = []*regexp.Regexp{
	regexp.MustCompile(`^sysctl -w (net[./][a-zA-Z0-9_./-]+)=('[0-9]+ [0-9]+'|[0-9]+)$`),
	regexp.MustCompile(`^ip addr (add|del) [0-9a-f.:]+/[0-9]+ dev [a-z0-9.@-]+$`),
	regexp.MustCompile(`^ip link set dev [a-z0-9.@-]+ (up|multicast on)$`),
	regexp.MustCompile(`^modprobe [a-z_]+$`),
	regexp.MustCompile(`^(sluice handover|ipvsadm --set \d+ \d+ \d+|prlimit --pid \d+ --nofile=\d+:\d+|chown \d+ /\S+|chmod o= /\S+)$`),
}

var lines = regexp.MustCompile(`^(\[Service\]|LimitNOFILE=\d+|ip_vs|nf_conntrack|options ip_vs conn_tab_bits=\d+|net[./][a-zA-Z0-9_./-]+ = [0-9]+( [0-9]+)?)$`)

// pasteable: commands and lines are complete, and the shell reads them.
func pasteable(t *testing.T, f *Finding) {
	t.Helper()
	for _, c := range f.Mend {
		if !slices.ContainsFunc(commands, func(r *regexp.Regexp) bool { return r.MatchString(c) }) {
			t.Errorf("%s: %q is no command that is known", f.ID, c)
		}
		if out, err := exec.Command("/bin/sh", "-n", "-c", c).CombinedOutput(); err != nil {
			t.Errorf("%s: the shell refuses %q: %s", f.ID, c, out)
		}
	}
	for _, l := range f.Stay {
		if !strings.HasPrefix(l.File, "/etc/") || !lines.MatchString(l.Text) {
			t.Errorf("%s: %q is no line for %s", f.ID, l.Text, l.File)
		}
	}
}

// TestWhatSluicedSets: what the daemon sets by itself is not asked of the operator
// before the daemon had the chance.
func TestWhatSluicedSets(t *testing.T) {
	for _, s := range host.Sysctls(true) {
		in := sound(parse(t, "global_defs {\n ipvs_conntrack\n}\n"+extra(web, "persistence_timeout 9")))
		both(stopped, set(s.Name, "0"))(&in)
		for _, f := range Examine(in).Findings {
			if strings.Contains(f.Found, s.Name) && f.Status != Note {
				t.Errorf("%s: %+v", s.Name, f)
			}
		}
	}
}
