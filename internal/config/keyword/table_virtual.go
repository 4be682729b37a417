package keyword

import (
	"time"

	"github.com/sluice-lb/sluice/internal/config"
)

// schedulers are those of Linux, in the manual's order.
var schedulers = []string{"rr", "wrr", "lc", "wlc", "lblc", "sh", "mh", "dh", "fo", "ovf", "lblcr", "sed", "nq", "twos"}

const methodGrammar = "NAT | DR | TUN [type ipip|gue|gre] [port 1..65535] [nocsum|csum|remcsum]"

// defaultsRows are the settings of checks that virtual and real servers have
// alike.
func defaultsRows(of func(*frame) *checkDefaults, from string) []keyword {
	def := func(own string) string {
		if from == "" {
			return own
		}
		return from
	}
	return []keyword{
		{name: "delay_loop", arg: timer(time.Microsecond, maxTimer), def: def("60"), doc: "seconds between checks",
			set: func(f *frame, v *value) { of(f).delayLoop.set(v.dur) }},
		{name: "delay_before_retry", arg: timer(0, maxTimer), def: def("the checker type's"), doc: "seconds before a failed check is repeated",
			set: func(f *frame, v *value) { of(f).beforeRetry.set(v.dur) }},
		{name: "retry", arg: strictNumber(1, maxUint32), def: def("the checker type's"), doc: "failures that are forgiven",
			set: func(f *frame, v *value) { of(f).retry.set(uint32(v.num)) }},
		{name: "warmup", arg: timer(0, maxTimer), def: def("delay_loop"), doc: "first checks are spread over this time",
			set: func(f *frame, v *value) { of(f).warmup.set(v.dur) }},
		{name: "connect_timeout", arg: timer(time.Microsecond, maxConnect), def: def("5"), doc: "deadline of a check",
			set: func(f *frame, v *value) { of(f).timeout.set(v.dur) }},
		{name: "rise", arg: strictNumber(1, maxUint32), extension: true, def: def("1; 2 for HTTP_GET and SSL_GET without fast_recovery"), doc: "successes in a row that bring a real server back",
			set: func(f *frame, v *value) { of(f).rise.set(uint32(v.num)) }},
		closeRow(def("global_defs' checker_close"), func(f *frame) *opt[config.Close] { return &of(f).close }),
	}
}

// virtualRows are the words of virtual_server.
func virtualRows() []keyword {
	rows := []keyword{
		{name: "ip_family", arg: words("inet", "inet6"), def: "the address's", doc: "family of a firewall mark", set: setFamily},
		{name: "protocol", arg: foldWords("TCP", "UDP", "SCTP"), def: "UDP, with an error", doc: "transport protocol",
			set: func(f *frame, v *value) {
				f.vs.protocol.set(map[string]config.Protocol{"TCP": config.TCP, "UDP": config.UDP, "SCTP": config.SCTP}[v.text])
				f.vs.protoAt = v.n
			}},
		{name: "lvs_sched", arg: custom("rr | wrr | lc | wlc | lblc | sh | mh | dh | fo | ovf | lblcr | sed | nq | twos", 1), def: "wlc, with an error", doc: "scheduler", set: setScheduler},
		{name: "lb_algo", arg: custom("as lvs_sched", 1), doc: "the same as lvs_sched", set: setScheduler},
		{name: "lvs_method", arg: custom(methodGrammar, 1), def: "NAT, with an error", doc: "forwarding method; gue needs a port, ipip and gre have none", set: setMethod},
		{name: "lb_kind", arg: custom("as lvs_method", 1), doc: "the same as lvs_method", set: setMethod},
		{name: "ops", arg: flag(), def: "off", doc: "one-packet scheduling, for UDP",
			set: func(f *frame, v *value) { f.vs.flags.OnePacket, f.vs.opsAt = true, v.n }},
		{name: "flag-1", arg: flag(), def: "off", doc: "the scheduler's first flag", set: func(f *frame, _ *value) { f.vs.flags.Flag1 = true }},
		{name: "flag-2", arg: flag(), def: "off", doc: "the scheduler's second flag", set: func(f *frame, _ *value) { f.vs.flags.Flag2 = true }},
		{name: "flag-3", arg: flag(), def: "off", doc: "the scheduler's third flag", set: func(f *frame, _ *value) { f.vs.flags.Flag3 = true }},
		{name: "sh-fallback", arg: flag(), def: "off", doc: "flag-1 of sh; after lvs_sched sh", set: schedFlag("sh", 1)},
		{name: "sh-port", arg: flag(), def: "off", doc: "flag-2 of sh; after lvs_sched sh", set: schedFlag("sh", 2)},
		{name: "mh-fallback", arg: flag(), def: "off", doc: "flag-1 of mh; after lvs_sched mh", set: schedFlag("mh", 1)},
		{name: "mh-port", arg: flag(), def: "off", doc: "flag-2 of mh; after lvs_sched mh", set: schedFlag("mh", 2)},
		{name: "hashed", arg: flag(), doc: "has no meaning and is an error", set: func(f *frame, v *value) {
			f.report(codeHashed, v.n, v.w, "hashed is set by the kernel and cannot be asked for", "the line is ignored, as keepalived does; delete it")
		}},
		{name: "persistence_timeout", arg: custom("[1..2678400 s]", 0), def: "off; 360 without a number", doc: "clients stay with their real server this long", set: setPersistence},
		{name: "persistence_granularity", arg: custom("dotted IPv4 mask | IPv6 prefix 1..128", 1), def: "each address alone", doc: "clients of one network are one client; implies persistence_timeout 360", set: setGranularity},
		{name: "persistence_engine", arg: textMax(15), def: "none", doc: "name of a persistence engine; Linux has sip", set: func(f *frame, v *value) { f.vs.engine = v.text }},
		{name: "inhibit_on_failure", arg: flag(), def: "off", doc: "weight 0 on failure and not removal; for every real server",
			set: func(f *frame, _ *value) { f.vs.inhibit = true }},
		{name: "alpha", arg: flag(), def: "off", doc: "real servers are down until a check proves them", set: func(f *frame, _ *value) { f.vs.alpha.set(true) }},
		{name: "omega", arg: flag(), def: "off", doc: "run the down scripts at stop", set: func(f *frame, _ *value) { f.vs.omega = true }},
		{name: "quorum", arg: number(1, maxUint32), def: "1", doc: "weight that must be alive",
			set: func(f *frame, v *value) { f.vs.quorum, f.vs.quorumAt = uint32(v.num), v.n }},
		{name: "hysteresis", arg: number(0, maxUint32), def: "0", doc: "quorum is gained at quorum + hysteresis and lost below quorum - hysteresis",
			set: func(f *frame, v *value) { f.vs.hysteresis, f.vs.hystAt = uint32(v.num), v.n }},
		{name: "quorum_up", arg: script(), dup: firstWins, doc: "run when the quorum is gained",
			set: func(f *frame, v *value) { f.vs.quorumUp = f.newScript(v) }},
		{name: "quorum_down", arg: script(), dup: firstWins, doc: "run when the quorum is lost",
			set: func(f *frame, v *value) { f.vs.quorumDown = f.newScript(v) }},
		{name: "weight", arg: number(1, maxInt32), def: "1", doc: "weight of real servers that give none", set: func(f *frame, v *value) { f.vs.weight = v.num }},
		{name: "ha_suspend", arg: flag(), def: "off", doc: "check only while the address is on this host; not with firewall marks",
			set: func(f *frame, v *value) { f.vs.haSuspend, f.vs.haAt = true, v.n }},
		{name: "smtp_alert", arg: boolean(), def: "smtp_alert_checker, else the global smtp_alert, else off", doc: "mail of quorum changes",
			set: func(f *frame, v *value) { f.vs.smtpAlert.set(v.yes) }},
		{name: "virtualhost", arg: text(), dup: lastReported, def: "none", doc: "HTTP Host and server name of checks that give none",
			set: func(f *frame, v *value) { f.vs.virtualHost = v.text }},
		{name: "snmp_name", arg: text(), dup: lastReported, status: Accepted, doc: "name in SNMP",
			set: func(f *frame, v *value) { f.vs.snmpName = v.text }},
		{name: "sorry_server", arg: custom("IP [PORT]", 1), def: "none", doc: "serves while the quorum is lost", set: setSorry},
		{name: "sorry_server_inhibit", arg: flag(), def: "off", doc: "it stays in the table at weight 0; after sorry_server",
			set: func(f *frame, v *value) {
				if f.needSorry(v) {
					f.vs.sorry.inhibit = true
				}
			}},
		{name: "sorry_server_lvs_method", arg: custom("as lvs_method", 1), def: "the virtual server's", doc: "its forwarding method; after sorry_server", set: setSorryMethod},
		{name: "drain_timeout", arg: timer(0, maxTimer), extension: true, def: "global_defs' drain_timeout", doc: "bound of this service's drains; 0 is none",
			set: func(f *frame, v *value) { f.vs.drainTimeout.set(v.dur) }},
		{name: "udp_drain_timeout", arg: timer(0, maxTimer), extension: true, def: "global_defs' udp_drain_timeout", doc: "the same for UDP and SCTP; 0 deletes at once",
			set: func(f *frame, v *value) { f.vs.udpDrainTimeout.set(v.dur) }},
		{name: "on_failure", arg: words("remove", "drain"), extension: true, def: "remove", doc: "a real server whose check failed is deleted at once, or takes no new connections and is deleted after its last one; inhibit_on_failure goes before, and UDP and SCTP always delete",
			set: func(f *frame, v *value) {
				f.vs.onFailure = config.OnFailureRemove
				if v.text == "drain" {
					f.vs.onFailure = config.OnFailureDrain
				}
			}},
		{name: "min_alive", arg: custom("1..4294967295 | 1..100%", 1), extension: true, def: "none", doc: "failures leave at least so many of the real servers in service, or this share of them rounded up", set: setMinAlive},
		{name: "slow_start", arg: timer(0, maxPace), extension: true, def: "0 (none)", doc: "the weight of a real server that came back grows from a tenth in this time",
			set: func(f *frame, v *value) { f.vs.slowStart.set(v.dur) }},
		{name: "flap_damping", arg: dampingArg(), extension: true, def: "off", doc: "a real server that went down so many times within this time is held back before it returns", set: setFlapDamping},
		{name: "real_server", arg: custom("IP [PORT]", 1), opens: blockReal, doc: "a server of the pool", open: openReal},
	}
	rows = append(rows, defaultsRows(func(f *frame) *checkDefaults { return &f.vs.checkDefaults }, "")...)
	return each([]string{blockVirtual}, rows...)
}

// realRows are the words of real_server.
func realRows() []keyword {
	rows := []keyword{
		{name: "weight", arg: number(0, maxInt32), def: "the virtual server's weight", doc: "share of the connections; 0 takes no new ones",
			set: func(f *frame, v *value) { f.rs.weight.set(v.num) }},
		{name: "lvs_method", arg: custom(methodGrammar, 1), def: "the virtual server's", doc: "forwarding method", set: setMethod},
		{name: "uthreshold", arg: number(0, maxUint32), def: "0 (none)", doc: "no new connections above this many", set: func(f *frame, v *value) { f.rs.upper = uint32(v.num) }},
		{name: "lthreshold", arg: number(0, maxUint32), def: "0 (none)", doc: "new connections again below this many", set: func(f *frame, v *value) { f.rs.lower = uint32(v.num) }},
		{name: "inhibit_on_failure", arg: boolean(), def: "the virtual server's", doc: "weight 0 on failure and not removal",
			set: func(f *frame, v *value) { f.rs.inhibit.set(v.yes) }},
		{name: "alpha", arg: boolean(), def: "the virtual server's", doc: "down until a check proves it", set: func(f *frame, v *value) { f.rs.alpha.set(v.yes) }},
		{name: "notify_up", arg: script(), dup: firstWins, doc: "run when it comes up",
			set: func(f *frame, v *value) { f.rs.up = f.newScript(v) }},
		{name: "notify_down", arg: script(), dup: firstWins, doc: "run when it goes down",
			set: func(f *frame, v *value) { f.rs.down = f.newScript(v) }},
		{name: "smtp_alert", arg: boolean(), def: "smtp_alert_checker, else the global smtp_alert, else on", doc: "mail of its changes",
			set: func(f *frame, v *value) { f.rs.smtpAlert.set(v.yes) }},
		{name: "virtualhost", arg: text(), dup: lastReported, def: "the virtual server's", doc: "HTTP Host of checks that give none",
			set: func(f *frame, v *value) { f.rs.virtualHost = v.text }},
		{name: "snmp_name", arg: text(), dup: lastReported, status: Accepted, doc: "name in SNMP",
			set: func(f *frame, v *value) { f.rs.snmpName = v.text }},
		{name: "track_file", arg: custom("NAME [weight -2147483647..2147483647 [reverse|noreverse]]", 1), extension: true, dup: cumulative, def: "none", doc: "the file's number moves the weight, down to 0 (maintenance), without being a check", set: setTrackUse},
		{name: "drain_timeout", arg: timer(0, maxTimer), extension: true, def: "the virtual server's", doc: "bound of this server's drains; 0 is none; not for UDP and SCTP",
			set: func(f *frame, v *value) { f.rs.drainTimeout.set(v.dur) }},
		{name: "slow_start", arg: timer(0, maxPace), extension: true, def: "the virtual server's", doc: "its weight grows from a tenth in this time after it came back",
			set: func(f *frame, v *value) { f.rs.slowStart.set(v.dur) }},
	}
	rows = append(rows, defaultsRows(func(f *frame) *checkDefaults { return &f.rs.checkDefaults }, "the virtual server's")...)
	for _, c := range []struct {
		name string
		kind config.CheckerKind
		doc  string
	}{
		{blockTCP, config.TCPCheck, "a connection can be made"},
		{blockHTTP, config.HTTPGet, "urls answer as they should"},
		{blockTLS, config.SSLGet, "the same over TLS; certificates are verified with tls_verify only"},
		{blockSMTP, config.SMTPCheck, "a mail server greets"},
		{blockDNS, config.DNSCheck, "a name server answers"},
		{blockUDP, config.UDPCheck, "a datagram is answered, or not refused"},
		{blockPing, config.PingCheck, "an echo comes back"},
		{blockMisc, config.MiscCheck, "a script succeeds"},
		{blockFile, config.FileCheck, "a track file decides"},
		{blockBFD, config.BFDCheck, "a BFD session is up"},
	} {
		k := keyword{name: c.name, opens: c.name, doc: c.doc, open: openChecker(c.kind), close: closeChecker}
		if c.kind == config.BFDCheck {
			k.status, k.feature, k.close = NotServed, c.name, closeBFD
		}
		rows = append(rows, k)
	}
	return each([]string{blockReal}, rows...)
}

// trackFileRows are the words of track_file.
func trackFileRows() []keyword {
	return each([]string{blockTrackFile},
		keyword{name: "file", arg: text(), dup: firstWins, doc: "its path; required", set: func(f *frame, v *value) { f.trk.track.Path = v.text }},
		keyword{name: "weight", arg: custom("-254..254 [reverse]", 1), def: "1", doc: "multiplies the number in the file", set: setTrackWeight},
		keyword{name: "init_file", arg: custom("[N] [overwrite]", 0), def: "not written", doc: "written at first start if the file is missing, or always", set: setTrackInit},
	)
}
