package keyword

import (
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// meanings say what it means that a feature is missing.
var meanings = map[string]string{
	blockBFD: unchecked,
}

const unchecked = "the real servers are not checked by it: each has one checker less and stays up unless another one fails"

// topRows are the 25 keywords outside any block.
func topRows() []keyword {
	rows := []keyword{
		{name: "global_defs", opens: blockGlobal, doc: "settings of the whole daemon"},
		{name: "SSL", opens: blockSSL, doc: "the client side of every SSL_GET; a later block replaces an earlier one", open: openSSL},
		{name: "virtual_server_group", arg: custom("NAME", 1), opens: blockGroup, doc: "addresses and marks that share one pool", open: openGroup, close: closeGroup},
		{name: "virtual_server", arg: custom("IP [PORT] | fwmark N | group NAME", 1), opens: blockVirtual, doc: "a service", open: openVirtual, close: closeVirtual},
		{name: "track_file", arg: custom("NAME", 1), opens: blockTrackFile, doc: "a file with a number that moves weights", open: openTrack, close: closeTrack},
		{name: "vrrp_track_file", arg: custom("NAME", 1), opens: blockTrackFile, old: "track_file", doc: "the old name of track_file", open: openTrack, close: closeTrack},
		{name: "net_namespace", arg: text(), dup: firstWins, def: "the namespace it is started in", doc: "name under /run/netns in which the daemon works",
			set: func(f *frame, v *value) { f.b.raw.global.NetNamespace = v.text }},
		{name: "net_namespace_ipvs", arg: arg{kind: argText, optional: true}, dup: firstWins, def: "net_namespace", doc: "namespace whose IPVS table is written; empty is the default one",
			set: func(f *frame, v *value) {
				f.b.raw.global.NetNamespaceIPVS, f.b.raw.global.NetNamespaceIPVSSet = v.text, true
			}},
		{name: "instance", arg: text(), dup: firstWins, doc: "a name that tells several daemons apart",
			set: func(f *frame, v *value) { f.b.raw.global.Instance = v.text }},
		{name: "use_pid_dir", arg: none(), def: "off", doc: "reload_file without a path is in " + pidDir + "; pid files are named on the command line alone",
			set: func(f *frame, _ *value) { f.b.raw.pidDir = true }},
	}
	for _, name := range []string{"namespace_with_ipsets", "linkbeat_use_polling"} {
		rows = append(rows, keyword{name: name, arg: none(), status: Accepted, doc: "of keepalived's process model"})
	}
	rows = append(rows, keyword{name: "child_wait_time", arg: strictNumber(0, maxInt32).in("s"), status: Accepted, def: "5", doc: "there are no children to wait for"})
	for _, name := range []string{"track_group", "static_ipaddress", "static_routes", "static_rules", "vrrp_sync_group", "garp_group", "linkbeat_interfaces",
		"vrrp_instance", "vrrp_script", "vrrp_track_process", "interface_up_down_delays", blockBFDInstance} {
		rows = append(rows, keyword{name: name, arg: anything(), status: Skipped, doc: "VRRP, BFD and static addresses are not for this daemon"})
	}
	return rows
}

// globalRows are the words of global_defs that matter here.
func globalRows() []keyword {
	g := func(set func(g *config.Global, v *value)) func(*frame, *value) {
		return func(f *frame, v *value) { set(&f.b.raw.global, v) }
	}
	rows := []keyword{
		{name: "router_id", arg: text(), def: "the host's name", doc: "names this director", set: g(func(g *config.Global, v *value) { g.RouterID = v.text })},
		{name: "checker_log_all_failures", arg: boolean(), def: "off", doc: "log each failing attempt of every checker",
			set: g(func(g *config.Global, v *value) { g.CheckerLogAllFailures = v.yes })},
		{name: "rs_init_notifies", arg: boolean(), def: "off", doc: "run notify_up also for real servers in service from the start",
			set: g(func(g *config.Global, v *value) { g.RSInitNotifies = v.yes })},
		{name: "lvs_timeouts", arg: custom("[tcp N] [tcpfin N] [udp N], each 0..2678400 s", 1), soft: true, def: "the kernel's", doc: "the kernel's connection timeouts", set: setTimeouts},
		{name: "lvs_flush", arg: none(), def: "off", doc: "empty the whole IPVS table at start", set: g(func(g *config.Global, _ *value) { g.LVSFlush = true })},
		{name: "lvs_flush_on_stop", arg: arg{kind: argWord, words: []string{"VS"}, optional: true}, def: "off", doc: "empty the table at stop; VS: delete services only", set: g(setFlushOnStop)},
		{name: "lvs_flush_onstop", arg: arg{kind: argWord, words: []string{"VS"}, optional: true}, old: "lvs_flush_on_stop", doc: "the old name of lvs_flush_on_stop", set: g(setFlushOnStop)},
		{name: "script_user", arg: custom("USER [GROUP]", 1), def: "keepalived_script if there is such a user, else the daemon's", doc: "identity of scripts that name none",
			set: func(f *frame, v *value) {
				f.b.raw.scriptUsers = [2]string{}
				for i, w := range v.n.Args() {
					if i < 2 {
						f.b.raw.scriptUsers[i] = w.Text
					}
				}
				f.surplus(v.n, 2)
				f.b.raw.global.ScriptUser, f.b.raw.global.ScriptGroup = f.b.raw.scriptUsers[0], f.b.raw.scriptUsers[1]
				f.b.raw.global.ScriptUserPos = v.n.Pos
			}},
		{name: "enable_script_security", arg: none(), def: "off", doc: "do not run scripts that others than root may change",
			set: func(f *frame, _ *value) { f.b.raw.security, f.b.raw.global.EnableScriptSecurity = true, true }},

		{name: "drain_interval", arg: timer(time.Millisecond, maxTimer), extension: true, def: "60", doc: "how often draining destinations are looked at",
			set: g(func(g *config.Global, v *value) { g.DrainInterval = v.dur })},
		{name: "drain_timeout", arg: timer(0, maxTimer), extension: true, def: "0 (none)", doc: "bound of every drain; what is left then is cut",
			set: g(func(g *config.Global, v *value) { g.DrainTimeout = v.dur })},
		{name: "on_stop", arg: words("remove", "drain", "keep"), extension: true, def: "remove", doc: "what becomes of the services when the daemon is stopped; drain: all weights to 0, wait for the connections to end (stop_timeout), then remove",
			set: g(func(g *config.Global, v *value) {
				g.OnStop = map[string]config.OnStop{"keep": config.OnStopKeep, "drain": config.OnStopDrain}[v.text]
			})},
		{name: "stop_timeout", arg: timer(time.Millisecond, maxTimer), extension: true, def: "30", doc: "how long on_stop drain waits; what is left then is cut",
			set: g(func(g *config.Global, v *value) { g.StopTimeout = v.dur })},
		{name: "manage_sysctls", arg: boolean(), extension: true, def: "on", doc: "set expire_nodest_conn and expire_quiescent_template, which drains need",
			set: g(func(g *config.Global, v *value) { g.ManageSysctls = v.yes })},
		{name: "ipvs_conntrack", arg: boolean(), extension: true, def: "off", doc: "set net.ipv4.vs.conntrack; it costs throughput",
			set: g(func(g *config.Global, v *value) { g.Conntrack = v.yes })},
		{name: "conntrack", arg: boolean(), extension: true, def: "off", doc: "the same as ipvs_conntrack",
			set: g(func(g *config.Global, v *value) { g.Conntrack = v.yes })},
		{name: "trust_new", arg: boolean(), extension: true, def: "off", doc: "install a real server that a reload adds before its first good check, as keepalived does",
			set: g(func(g *config.Global, v *value) { g.TrustNew = v.yes })},
		{name: "departure_hold", arg: timer(0, maxTimer), extension: true, def: "60", doc: "how long servers that a reload takes away keep serving while those that replace them have not passed a check; 0 is off",
			set: g(func(g *config.Global, v *value) { g.DepartureHold = v.dur })},
		{name: "udp_drain_timeout", arg: timer(0, maxTimer), extension: true, def: "10", doc: "bound of drains in UDP and SCTP services; 0 deletes at once",
			set: g(func(g *config.Global, v *value) { g.UDPDrainTimeout = v.dur })},
		{name: "reconcile_interval", arg: timer(0, maxTimer), extension: true, def: "60", doc: "how often our services are compared with the kernel's table; 0 is only after a reload and when the kernel refuses a change",
			set: g(func(g *config.Global, v *value) { g.ReconcileInterval = v.dur })},
		{name: "drift", arg: words("repair", "report"), extension: true, def: "repair", doc: "what somebody else changed in our services is put back, or only logged and shown in status",
			set: g(func(g *config.Global, v *value) {
				g.Drift = config.DriftRepair
				if v.text == "report" {
					g.Drift = config.DriftReport
				}
			})},
		{name: "http_listen", arg: custom("ADDR:PORT", 1), extension: true, def: "nowhere", doc: "where the dashboard, /metrics, /healthz, /readyz and /vs/NAME are served over HTTP, to anyone who can connect; `[ADDR]:PORT` for IPv6, `[::]:PORT` for every address", set: setHTTPListen},
		{name: "metrics_detail", arg: words("service", "server"), extension: true, def: "service", doc: "the metrics are of virtual servers alone, or of each real server, destination and check as well",
			set: g(func(g *config.Global, v *value) {
				g.MetricsDetail = config.MetricsService
				if v.text == "server" {
					g.MetricsDetail = config.MetricsServer
				}
			})},
		{name: "control_group", arg: custom("GROUP", 1), extension: true, def: "none", doc: "the group, by name or number, whose members may ask and change everything over the control socket, besides root; without it and `control_read_group` the socket is for root and the group root", set: setGroup(func(g *config.Global) *config.Group { return &g.ControlGroup })},
		{name: "control_read_group", arg: custom("GROUP", 1), extension: true, def: "none", doc: "the group whose members may ask over the control socket and change nothing", set: setGroup(func(g *config.Global) *config.Group { return &g.ControlReadGroup })},
		{name: "share_checks", arg: boolean(), extension: true, def: "on", doc: "real servers of several virtual servers with an equal check, at equal intervals, are asked once for all of them; each virtual server keeps its own retries, rise, weights and quorum",
			set: g(func(g *config.Global, v *value) { g.ShareChecks = v.yes })},
		{name: "checker_threads", arg: strictNumber(1, config.MaxCheckerThreads), extension: true, def: "1", doc: "threads that lead TCP_CHECK and plain HTTP_GET; read at the start",
			set: g(func(g *config.Global, v *value) { g.CheckerThreads = int(v.num) })},
		{name: "http_admin", arg: custom("FILE", 1), extension: true, def: "nobody", doc: "who has the token in FILE may drain and weigh real servers over HTTP (http_listen); the file is read at each reload and must have mode 0600 or 0640", set: setHTTPAdmin},
		{name: "withdraw_delay", arg: timer(0, maxTimer), extension: true, def: "0", doc: "how long a planned stop has /readyz and /vs/NAME answer 503, and goes on checking, before it touches the table: what announces the addresses withdraws them first",
			set: g(func(g *config.Global, v *value) { g.WithdrawDelay = v.dur })},
		closeRow("normal", func(f *frame) *opt[config.Close] { return &f.b.raw.close }),

		{name: "include_check", arg: custom("[+|-]read match wildcard_match brace_match", 0), doc: "which include problems are errors; the language layer reads it"},
	}
	return each([]string{blockGlobal}, rows...)
}

// silentGlobalRows are words of global_defs that have no effect here.
func silentGlobalRows() []keyword {
	var rows []keyword
	accepted := func(doc string, a arg, names ...string) {
		for _, name := range names {
			rows = append(rows, keyword{name: name, arg: a, status: Accepted, doc: doc})
		}
	}
	accepted("a new configuration is always judged before it replaces the running one", arg{kind: argText, optional: true}, "reload_check_config")
	accepted("keepalived's own priority control", arg{kind: argNumber, min: -1, max: 99, optional: true}, "max_auto_priority")
	accepted("keepalived's own priority control", number(1, 10_000_000).in("µs"), "min_auto_priority_delay")
	accepted("no temporary copies of the configuration are made", text(), "tmp_config_directory")
	accepted("of VRRP's dump: SIGUSR2 and the like go to VRRP alone", text(), "stats_dump_file", "json_dump_file")
	accepted("of VRRP's dump: SIGUSR2 and the like go to VRRP alone", number(1, 2), "json_version")
	accepted("has no effect in keepalived either", strictNumber(0, maxUint32), "random_seed")
	accepted("socket buffers are sized by need", strictNumber(0, maxUint32).in("bytes"), "lvs_netlink_cmd_rcv_bufs", "lvs_netlink_monitor_rcv_bufs")
	accepted("socket buffers are sized by need", boolean(), "lvs_netlink_cmd_rcv_bufs_force", "lvs_netlink_monitor_rcv_bufs_force")
	accepted("there is no SNMP agent", none(), "enable_snmp_checker", "enable_traps")
	accepted("there is no SNMP agent", text(), "snmp_socket")
	accepted("there is no SNMP agent", timer(time.Millisecond, 30*time.Second), "snmp_vs_stats_update_interval", "snmp_rs_stats_update_interval")
	for i := range rows {
		if n := rows[i].name; n == "snmp_socket" || n == "tmp_config_directory" {
			rows[i].dup = firstWins
		}
	}
	return each([]string{blockGlobal}, rows...)
}

// ignoredGlobalRows are words of global_defs that concern VRRP and BFD.
func ignoredGlobalRows() []keyword {
	var rows []keyword
	for name := range strings.FieldsSeq(`bfd_cpu_affinity bfd_no_swap bfd_priority bfd_process_name bfd_rlimit_rtime
bfd_rlimit_rttime bfd_rt_priority dbus_no_interface_name dbus_service_name default_interface disable_local_igmp
dynamic_interfaces enable_dbus enable_snmp_keepalived enable_snmp_rfc enable_snmp_rfcv2 enable_snmp_rfcv3
enable_snmp_vrrp fifo_write_vrrp_states_on_reload iproute_etc_dir iproute_usr_dir log_unknown_vrids nftables
nftables_ifindex nftables_priority no_email_faults process_monitor_rcv_bufs process_monitor_rcv_bufs_force
smtp_alert_vrrp v3_checksum_as_v2 vmac_addr_prefix vmac_prefix vrrp_check_unicast_src vrrp_cpu_affinity
vrrp_delay_after_boot vrrp_down_timer_adverts vrrp_garp_extra_if vrrp_garp_interval vrrp_garp_lower_prio_delay
vrrp_garp_lower_prio_repeat vrrp_garp_master_delay vrrp_garp_master_refresh vrrp_garp_master_refresh_repeat
vrrp_garp_master_repeat vrrp_gna_interval vrrp_higher_prio_send_advert vrrp_ipsets vrrp_iptables
vrrp_lower_prio_no_advert vrrp_mcast_group4 vrrp_mcast_group6 vrrp_min_garp vrrp_netlink_cmd_rcv_bufs
vrrp_netlink_cmd_rcv_bufs_force vrrp_netlink_monitor_rcv_bufs vrrp_netlink_monitor_rcv_bufs_force vrrp_no_swap
vrrp_notify_fifo vrrp_notify_fifo_script vrrp_notify_priority_changes vrrp_owner_ignore_adverts vrrp_priority
vrrp_process_name vrrp_rlimit_rtime vrrp_rlimit_rttime vrrp_rt_priority vrrp_rx_bufs_multiplier
vrrp_rx_bufs_policy vrrp_skip_check_adv_addr vrrp_startup_delay vrrp_strict vrrp_version vrrp_vmac_garp_intvl`) {
		k := keyword{block: blockGlobal, name: name, arg: anything(), status: Accepted, doc: "of VRRP or BFD"}
		switch name {
		case "vrrp_notify_fifo", "vrrp_notify_fifo_script":
			k.set = setVRRPFIFO
		}
		rows = append(rows, k)
	}
	return rows
}

func setFlushOnStop(g *config.Global, v *value) {
	g.LVSFlushOnStop = "all"
	if v.text == "VS" {
		g.LVSFlushOnStop = "vs"
	}
}

// setTimeouts reads lvs_timeouts.
func setTimeouts(f *frame, v *value) {
	args := v.n.Args()
	t := &f.b.raw.global.LVSTimeouts
	for i := 0; i < len(args); i += 2 {
		var into *uint32
		switch args[i].Text {
		case "tcp":
			into = &t.TCP
		case "tcpfin":
			into = &t.TCPFin
		case "udp":
			into = &t.UDP
		default:
			f.report(codeWord, v.n, &args[i], "lvs_timeouts: \""+args[i].Text+"\" is not one of tcp, tcpfin, udp", "it and what follows is ignored")
			return
		}
		if i+1 == len(args) {
			f.report(codeMissingSoft, v.n, &args[i], "lvs_timeouts "+args[i].Text+" needs a number", "write 0-2678400 seconds after it; the kernel's value stays")
			return
		}
		if num, ok := f.number(v.n, &args[i+1], strictNumber(0, 2678400), "lvs_timeouts "+args[i].Text, "the kernel's value stays"); ok {
			*into = uint32(num)
		}
	}
}

// sslRows are the words of the SSL block.
func sslRows() []keyword {
	return each([]string{blockSSL},
		keyword{name: "certificate", arg: text(), dup: lastReported, doc: "client certificate chain, PEM", set: func(f *frame, v *value) { f.ssl.Certificate = v.text }},
		keyword{name: "key", arg: text(), dup: lastReported, doc: "private key, PEM", set: func(f *frame, v *value) { f.ssl.Key = v.text }},
		keyword{name: "password", arg: text(), dup: lastReported, doc: "the key's pass phrase", set: func(f *frame, v *value) { f.ssl.Password = v.text }},
		keyword{name: "ca", arg: text(), dup: lastReported, doc: "trust store; read, but peers are not verified", set: func(f *frame, v *value) { f.ssl.CA = v.text }},
	)
}

func openSSL(f *frame, n *syntax.Node, child *frame) bool {
	if old := f.b.raw.ssl; old != nil {
		f.report(codeDuplicate, n, &n.Words[0], "SSL is given twice", "this one replaces the first, as in keepalived", "the first one is on "+lineOf(old.Pos, n.Pos))
	}
	f.b.raw.ssl = &config.SSL{Pos: n.Pos}
	child.ssl = f.b.raw.ssl
	return true
}
