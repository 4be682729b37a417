package doctor

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
)

const (
	groupIPVS = "IPVS settings"
	always    = "always"
)

var ipvsRules = []rule{
	{
		id: "ipvs_settings", group: groupIPVS, title: "net.ipv4.vs.* can be read", when: "there is a virtual server",
		why:  "What is wrong with these settings shows only once ip_vs is in the kernel.",
		help: "Start sluiced, which loads ip_vs, and run the doctor again.",
		find: func(x *exam) []Finding {
			if x.Facts.Table.Present || len(x.use.virtual) == 0 {
				return nil
			}
			return []Finding{{Status: Unknown, Found: "ip_vs is not in the kernel, so that net.ipv4.vs.* is not there", Do: x.now.help}}
		},
	},
	{
		id: "expire_nodest_conn", group: groupIPVS, title: "connections of a deleted server end", when: "there is a TCP or SCTP service or a mark",
		why: "A client whose server was deleted hangs until it gives up, rather than be reset and connect anew. " +
			"It happens whenever a drain runs into its bound, and when on_stop removes services.",
		sysctl: "net.ipv4.vs.expire_nodest_conn", value: "1",
		find: func(x *exam) []Finding { return x.managed(x.use.global.ManageSysctls, x.use.which(connected)) },
	},
	{
		id: "expire_quiescent_template", group: groupIPVS, title: "persistence does not lead to a drained server", when: "a virtual server has persistence_timeout",
		why:    "Clients of a persistent service are sent to a server at weight 0, drained or failed with inhibit_on_failure, for as long as they come back: its drain need never end.",
		sysctl: "net.ipv4.vs.expire_quiescent_template", value: "1",
		find: func(x *exam) []Finding {
			return x.managed(x.use.global.ManageSysctls, x.use.which(func(vs *config.VirtualServer) bool { return vs.Persistence > 0 }))
		},
	},
	{
		id: "vs_conntrack", group: groupIPVS, title: "netfilter knows balanced connections", when: "ipvs_conntrack is on, or it is on in the kernel without",
		why:    "Without it balanced connections are unknown to netfilter, and rules that match them by state drop or do not see them; with it each connection costs an entry of nf_conntrack and throughput.",
		sysctl: "net.ipv4.vs.conntrack", value: "1",
		find: conntrack,
	},
	{
		id: "conn_reuse_mode", group: groupIPVS, title: "a client that uses a port again gets a server that serves", when: "there is a TCP service or a mark",
		why: "Under load a client uses its ports again before the kernel has forgotten their last connection. Where such a connection is not scheduled anew it goes to the old server, " +
			"though that one is drained: new connections keep a drain alive and end with it. " +
			"The kernel recognises the end of a connection by TIME_WAIT with NAT (1 is enough), and only by FIN_WAIT with DR and TUN, where it sees one direction (3).",
		sysctl: "net.ipv4.vs.conn_reuse_mode", value: "1",
		find: reuse,
	},
	{
		id: "sloppy_tcp", group: groupIPVS, title: "a connection begins with a SYN, or goes on at any director", when: "there is a TCP service or a mark",
		why: "With sloppy_tcp any packet of an unknown connection is scheduled. A connection that the kernel has forgotten is so sent to another server, which resets it. " +
			"Where several directors share an address (vip_follow quorum) and choose by the same hash (mh), it is what lets a connection go on that the routers have moved to another director.",
		sysctl: "net.ipv4.vs.sloppy_tcp", value: "0",
		find: sloppy,
	},
	{
		id: "drop_entry", group: groupIPVS, title: "the kernel drops no connections by chance", when: "there is a virtual server",
		why:    "In mode 3 the kernel always forgets connections by chance, in mode 1 when memory is short (it shows 2 while that lasts). Whoever is hit is cut off.",
		sysctl: "net.ipv4.vs.drop_entry", value: "0",
		find: func(x *exam) []Finding { return x.mode("1") },
	},
	{
		id: "drop_packet", group: groupIPVS, title: "the kernel drops no packets by chance", when: "there is a virtual server",
		why:    "In mode 3 the kernel always drops one in a few of the packets that begin connections, in mode 1 when memory is short (it shows 2 while that lasts). Connections begin seconds late.",
		sysctl: "net.ipv4.vs.drop_packet", value: "0",
		find: func(x *exam) []Finding { return x.mode("1") },
	},
	{
		id: "secure_tcp", group: groupIPVS, title: "the usual table of TCP states is in force", when: "there is a TCP service or a mark",
		why:    "In mode 3 connections are always forgotten by other, shorter timeouts than those of ipvsadm --set or lvs_timeouts, in mode 1 when memory is short (it shows 2 while that lasts).",
		sysctl: "net.ipv4.vs.secure_tcp", value: "0",
		find: func(x *exam) []Finding { return x.mode("1") },
	},
	{
		id: "snat_reroute", group: groupIPVS, title: "answers are routed by the virtual address", when: "a remote real server is reached by NAT (IPv4)",
		why:    "With 0 an answer leaves by the route that fits the real server's address. With more than one way out, or policy routing by source address, it takes the wrong one.",
		sysctl: "net.ipv4.vs.snat_reroute", value: "1",
		find: func(x *exam) []Finding { return x.is(x.use.remoteNAT(config.IPv4), Note, "1") },
	},
	{
		id: "pmtu_disc", group: groupIPVS, title: "packets that a tunnel makes too long are told to their senders", when: "a server is reached by TUN",
		why:    "With 0 the kernel cuts packets in two that are too long for the tunnel: each full packet becomes two, which costs throughput, and firewalls and some networks drop the second half. It helps where clients never hear that their packets are too long.",
		sysctl: "net.ipv4.vs.pmtu_disc", value: "1",
		find: func(x *exam) []Finding { return x.is(x.use.with(config.TUN), Note, "1") },
	},
	{
		id: "sync_version", group: groupIPVS, title: "connection synchronisation speaks version 1", when: "lvs_sync_daemon is configured",
		why:    "Version 0 does not carry IPv6, marks, persistence engines and timeouts: after a failover such connections are unknown and end.",
		sysctl: "net.ipv4.vs.sync_version", value: "1",
		find: func(x *exam) []Finding {
			if x.use.global.Sync == nil {
				return nil
			}
			return x.is([]string{"lvs_sync_daemon " + x.use.global.Sync.Interface}, Warn, "1")
		},
	},
	{
		id: "sync_threshold", group: groupIPVS, title: "when a connection is told to the other director", when: "lvs_sync_daemon is configured",
		why:    "A connection is told once it has had as many packets as the first number. Below it is lost by a failover; a high number saves packets and loses more.",
		sysctl: "net.ipv4.vs.sync_threshold", value: "3 50",
		find: threshold,
	},
	{
		id: "ipvs_timeouts", group: groupIPVS, title: "the kernel's connection timeouts fit the configuration", when: "lvs_timeouts is set, or a drain is bounded",
		why: "A drain waits until the kernel has forgotten the last connection, which takes the fin timeout after its end. " +
			"A shorter drain_timeout is always exceeded, so that no drain tells whether clients had gone.",
		help: "Set lvs_timeouts tcpfin in global_defs, or a longer drain_timeout.",
		find: timeouts,
	},
}

// managed judges a setting that sluiced sets by itself where manages says so.
func (x *exam) managed(manages bool, concerned []string) []Finding {
	found := x.is(concerned, Warn, x.now.value)
	if !manages || len(found) == 0 || found[0].Status != Warn {
		return found
	}
	f := &found[0]
	if x.Daemon == nil || x.Daemon.Observe {
		*f = Finding{Status: Note, Found: f.Found + "; sluiced sets it when it starts (manage_sysctls)", Wanted: f.Wanted}.about(concerned)
		return found
	}
	f.Do = "sluiced sets it at its start (manage_sysctls): somebody has set it back since, or its log says why it could not."
	return found
}

// hashed says whether other directors choose the same server for a connection.
func hashed(vs *config.VirtualServer) bool {
	return vs.Scheduler == "mh" && vs.VIP.Device != "" && vs.VIP.Follow == config.VIPQuorum && connected(vs)
}

func sloppy(x *exam) []Finding {
	shared := x.use.which(hashed)
	others := x.use.which(func(vs *config.VirtualServer) bool { return connected(vs) && !hashed(vs) })
	if len(shared) == 0 {
		return x.is(others, Note, "0")
	}
	value, done := x.setting(x.now.sysctl)
	switch {
	case done != nil:
		return done
	case value == "0":
		f := Finding{Status: Note, Found: x.now.sysctl + " is 0, and several directors may share a virtual address", Wanted: "1, unless lvs_sync_daemon tells each of the others' connections",
			Why: "When the routers move a connection to another director, that one does not know it and drops its packets, though its hash names the same server."}
		return []Finding{f.mended(x.now.sysctl, "1").about(shared)}
	case len(others) > 0:
		return []Finding{Finding{Status: Note, Found: x.now.sysctl + " is " + value + ": right for virtual servers that directors share, but these do not choose by hash", Wanted: "mh for all, or 0"}.about(others)}
	}
	return ok("%s is %s", x.now.sysctl, value)
}

// mode judges one of the defences against floods: 0 is off, one more value is a note.
func (x *exam) mode(note string) []Finding {
	found := x.is(x.use.every(), Warn, "0")
	if len(found) > 0 && found[0].Status == Warn && strings.HasSuffix(found[0].Found, " is "+note) {
		found[0].Status = Note
	}
	return found
}

func conntrack(x *exam) []Finding {
	every := x.use.every()
	if len(every) == 0 {
		return nil
	}
	if x.use.global.Conntrack {
		return x.managed(x.use.global.ManageSysctls, every)
	}
	value, done := x.setting(x.now.sysctl)
	if done != nil || value == "0" {
		return nil // nobody asked for it
	}
	f := Finding{Status: Note, Found: x.now.sysctl + " is " + value + " though ipvs_conntrack is not on", Wanted: "0, unless netfilter rules rely on it",
		Do: "If firewall rules rely on it, say so with ipvs_conntrack in global_defs."}
	return []Finding{f.mended(x.now.sysctl, "0").about(every)}
}

func reuse(x *exam) []Finding {
	concerned := x.use.which(connected)
	if len(concerned) == 0 {
		return nil
	}
	value, done := x.setting(x.now.sysctl)
	if done != nil {
		return done
	}
	n, err := strconv.Atoi(value)
	if err != nil {
		return unknown("%s is %q", x.now.sysctl, value)
	}
	oneWay := x.use.whose(func(s server) bool {
		return (s.fwd.Method == config.DR || s.fwd.Method == config.TUN) && connected(s.vs)
	})
	want := "1"
	if len(oneWay) > 0 {
		want = "3"
	}
	found := fmt.Sprintf("%s is %d", x.now.sysctl, n)
	tracked := x.Facts.Settings["net.ipv4.vs.conntrack"].Value == "1" || x.use.global.Conntrack && x.use.global.ManageSysctls
	old, known := before(x.Facts.Kernel, 5, 9)
	switch {
	case n != 0 && tracked && known && old:
		return []Finding{Finding{Status: Warn, Found: found + " with net.ipv4.vs.conntrack 1 on Linux " + x.Facts.Kernel, Wanted: "a kernel of 5.9 or later, or no ipvs_conntrack",
			Why: "On this kernel the first SYN from a port that is used again is dropped in this combination, and the client sends the next one a second later. " +
				"conn_reuse_mode 0 avoids that second, at the price that drained servers get those connections.",
			Do: "Upgrade the kernel, or take ipvs_conntrack out where no firewall rule needs it."}.about(concerned)}
	case n == 0:
		return []Finding{Finding{Status: Warn, Found: found, Wanted: want}.mended(x.now.sysctl, want).about(concerned)}
	case n&2 == 0 && len(oneWay) > 0:
		return []Finding{Finding{Status: Note, Found: found, Wanted: want}.mended(x.now.sysctl, want).about(oneWay)}
	}
	return ok("%s", found)
}

// before says whether a release is older than major.minor.
func before(release string, major, minor int) (older, known bool) {
	var a, b int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n != 2 {
		return false, false
	}
	return a < major || a == major && b < minor, true
}

func threshold(x *exam) []Finding {
	if x.use.global.Sync == nil {
		return nil
	}
	value, done := x.setting(x.now.sysctl)
	if done != nil {
		return done
	}
	first, _, _ := strings.Cut(value, " ")
	if n, err := strconv.Atoi(first); err == nil && n > 10 {
		f := Finding{Status: Note, Found: fmt.Sprintf("%s is %s: connections of fewer than %d packets are lost by a failover", x.now.sysctl, value, n), Wanted: x.now.value}
		return []Finding{f.mended(x.now.sysctl, x.now.value)}
	}
	return ok("%s is %s", x.now.sysctl, value)
}

func timeouts(x *exam) []Finding {
	want := x.use.global.LVSTimeouts
	set := want.TCP != 0 || want.TCPFin != 0 || want.UDP != 0
	bounded := x.use.which(func(vs *config.VirtualServer) bool { return vs.Protocol == config.TCP && vs.DrainTimeout > 0 })
	if !set && len(bounded) == 0 || !x.Facts.Table.Present {
		return nil
	}
	if x.Timeouts == nil {
		return unknown("the kernel's timeouts cannot be read: %s", x.TimeoutsUnknown)
	}
	is := *x.Timeouts
	found := fmt.Sprintf("the kernel's timeouts are tcp %d, tcp_fin %d, udp %d seconds", is.TCP, is.TCPFin, is.UDP)
	var list []Finding
	if set && (differs(want.TCP, is.TCP) || differs(want.TCPFin, is.TCPFin) || differs(want.UDP, is.UDP)) {
		f := Finding{Status: Warn, Found: found, Wanted: fmt.Sprintf("lvs_timeouts tcp %d tcpfin %d udp %d (0 leaves one as it is)", want.TCP, want.TCPFin, want.UDP),
			Why:  "Somebody has changed them since: connections are forgotten sooner or later than the configuration says.",
			Mend: []string{fmt.Sprintf("ipvsadm --set %d %d %d", want.TCP, want.TCPFin, want.UDP)}}
		if x.Daemon == nil || x.Daemon.Observe {
			f.Status, f.Why, f.Mend, f.Found = Note, "", nil, f.Found+"; sluiced sets them when it starts"
		}
		list = append(list, f)
	}
	fin := is.TCPFin
	if set && want.TCPFin != 0 {
		fin = want.TCPFin
	}
	short := x.use.which(func(vs *config.VirtualServer) bool {
		return vs.Protocol == config.TCP && vs.DrainTimeout > 0 && vs.DrainTimeout < time.Duration(fin)*time.Second
	})
	if len(short) > 0 {
		list = append(list, Finding{Status: Warn, Found: fmt.Sprintf("a drain_timeout is shorter than the kernel's fin timeout of %d seconds", fin),
			Wanted: fmt.Sprintf("drain_timeout of %d or more, or a shorter fin timeout", fin), Do: x.now.help}.about(short))
	}
	if len(list) == 0 {
		return ok("%s", found)
	}
	return list
}

func differs(want, is uint32) bool { return want != 0 && want != is }
