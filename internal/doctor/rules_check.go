package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
)

const (
	groupCheck = "checks"
	pingGroups = "net.ipv4.ping_group_range"
	// timeWait is how long the kernel keeps a port after the end of its connection.
	timeWait = 60
)

var checkRules = []rule{
	{
		id: "ping_group", group: groupCheck, title: "PING_CHECK may send", when: "there is a PING_CHECK",
		why:    "Without CAP_NET_RAW a process may send pings only if one of its groups is in this range. Otherwise no PING_CHECK runs: what they check keeps its last state, whatever happens to it.",
		sysctl: pingGroups, value: "0 0",
		find: ping,
	},
	{
		id: "source_ports", group: groupCheck, title: "checks do not run out of source ports", when: "there are checks over TCP",
		why: "A port stays taken for a minute after its connection, for the same target. When a target is checked so often that all are taken, connecting fails here, " +
			"and checks say nothing about a server that is well.",
		sysctl: "net.ipv4.ip_local_port_range", value: "10240 65535",
		help: "checker_close reset leaves no port behind; share_checks runs equal checks once; a longer delay_loop needs fewer.",
		find: ports,
	},
	{
		id: "script_security", group: groupCheck, title: "scripts cannot be replaced by others", when: "there is a script",
		why:  "Without enable_script_security a script that others may write runs all the same, as root unless script_user says otherwise.",
		help: "Set enable_script_security and script_user in global_defs.",
		find: func(x *exam) []Finding {
			switch {
			case len(x.use.scripts) == 0:
				return nil
			case x.use.global.EnableScriptSecurity:
				return ok("enable_script_security is on")
			}
			return []Finding{{Status: Note, Found: "enable_script_security is off", Do: x.now.help}}
		},
	},
}

func ping(x *exam) []Finding {
	n := x.use.kinds[config.PingCheck]
	if n == 0 {
		return nil
	}
	c := x.Facts.Daemon
	if c.Unknown != "" {
		return unknown("whether process %d may send pings: %s", c.PID, c.Unknown)
	}
	low, high, read := pingRange(x.Facts)
	switch {
	case c.Has(unix.CAP_NET_RAW):
		return ok("%s sent by CAP_NET_RAW", plural(n, "PING_CHECK is", "PING_CHECKs are"))
	case !read:
		s := x.Facts.Settings[pingGroups]
		return unknown("%s cannot be read: %s%s", pingGroups, s.Unknown, s.Value)
	case PingAllowed(x.Facts):
		return ok("%s is %d %d", pingGroups, low, high)
	}
	from, to := c.GID, c.GID
	if low <= high {
		from, to = min(low, from), max(high, to)
	}
	f := Finding{Status: Fail, Found: fmt.Sprintf("%s is %d %d, sluiced has group %d and no CAP_NET_RAW", pingGroups, low, high, c.GID), Wanted: fmt.Sprintf("%d in the range, or CAP_NET_RAW", c.GID)}
	if x.Daemon == nil {
		f.Status, f.Found = Note, fmt.Sprintf("%s is %d %d: this process, if it were sluiced, could not ping", pingGroups, low, high)
	}
	return []Finding{f.mended(pingGroups, fmt.Sprintf("%d %d", from, to)).about(pinged(x.use))}
}

func pinged(u *use) (names []string) {
	for _, vs := range u.virtual {
		for _, rs := range vs.RealServers {
			if slices.ContainsFunc(rs.Checkers, func(c *config.Checker) bool { return c.Kind == config.PingCheck }) {
				names = append(names, fmt.Sprintf("real server %s of %s", labelled(rs.Key.String(), rs.Label), vsName(vs)))
			}
		}
	}
	return names
}

func ports(x *exam) []Finding {
	if len(x.use.pace) == 0 {
		return nil
	}
	value, done := x.setting(x.now.sysctl)
	if done != nil {
		return done
	}
	var low, high int
	if n, _ := fmt.Sscan(value, &low, &high); n != 2 || high < low {
		return unknown("%s is %q", x.now.sysctl, value)
	}
	kept := float64(timeWait)
	if x.Facts.Settings["net.ipv4.tcp_tw_reuse"].Value == "1" {
		kept = 1 // a port is used again after a second
	}
	room := float64(high-low+1) * 0.8
	var worst netip.AddrPort
	var names []string
	for target, pace := range x.use.pace {
		if pace*kept <= room {
			continue
		}
		names = append(names, target.String())
		if p := x.use.pace[worst]; pace > p || pace == p && target.Compare(worst) < 0 {
			worst = target
		}
	}
	if names == nil {
		return ok("%s is %d %d, enough for all targets", x.now.sysctl, low, high)
	}
	slices.Sort(names)
	f := Finding{Status: Warn, Found: fmt.Sprintf("%s is checked %.0f times a second, with %d ports that stay taken for %.0f seconds", worst, x.use.pace[worst], high-low+1, kept),
		Wanted: fmt.Sprintf("%.0f ports or fewer checks", x.use.pace[worst]*kept/0.8), Do: x.now.help}
	if wide := x.use.pace[worst] * kept; wide <= 55296*0.8 && (low > 10240 || high < 65535) {
		f = f.mended(x.now.sysctl, x.now.value)
	} else if kept > 1 {
		f = f.mended("net.ipv4.tcp_tw_reuse", "1")
	}
	return []Finding{f.about(names)}
}
