package doctor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/host"
)

const groupPath = "the way of packets"

var pathRules = []rule{
	{
		id: "ip_forward", group: groupPath, title: "answers of real servers are forwarded (IPv4)", when: "a remote real server is reached by NAT (IPv4)",
		why:    "With NAT the answers of real servers come back through this machine, and the kernel drops them unless it forwards: checks pass, and no client ever gets an answer. DR and TUN do not need it.",
		sysctl: "net.ipv4.ip_forward", value: "1",
		find: func(x *exam) []Finding { return x.is(x.use.remoteNAT(config.IPv4), Fail, "1") },
	},
	{
		id: "device_forwarding", group: groupPath, title: "the devices of real servers forward", when: "a remote real server is reached by NAT (IPv4)",
		why:  "Forwarding is on for the machine and off for the device by which answers come in: the kernel drops them there.",
		find: deviceForwarding,
	},
	{
		id: "ipv6_forwarding", group: groupPath, title: "answers of real servers are forwarded (IPv6)", when: "a remote real server is reached by NAT (IPv6)",
		why: "With NAT the answers of real servers come back through this machine, and the kernel drops them unless it forwards. " +
			"A machine that forwards ignores router advertisements: where the default route comes from one, set accept_ra to 2 on that device first.",
		sysctl: "net.ipv6.conf.all.forwarding", value: "1",
		find: func(x *exam) []Finding { return x.is(x.use.remoteNAT(config.IPv6), Fail, "1") },
	},
	{
		id: "nat_way_back", group: groupPath, title: "answers come back through here", when: "a remote real server is reached by NAT",
		why: "An answer that reaches the client past this machine comes from an address that it never spoke to: connections hang, although checks are good. " +
			"A client in the real servers' own network gets its answer directly, and so hangs always.",
		help: "On each real server: ip route get CLIENT must name this machine as the gateway.",
		find: func(x *exam) []Finding {
			concerned := append(x.use.remoteNAT(config.IPv4), x.use.remoteNAT(config.IPv6)...)
			if len(concerned) == 0 {
				return nil
			}
			return []Finding{Finding{Status: Note, Found: "the way back cannot be seen from here", Do: x.now.help}.about(concerned)}
		},
	},
	{
		id: "send_redirects", group: groupPath, title: "real servers are not told of a shorter way", when: "a NAT real server (IPv4) is behind a virtual address's own device",
		why:  "Answers come in and leave by the same device, so the kernel tells the real server by an ICMP redirect to send directly. It then sends past this machine, and connections hang at random. One of all and the device's own is enough to send them.",
		find: redirects,
	},
	{
		id: "rp_filter", group: groupPath, title: "the reverse path filter lets clients' packets in", when: "there is a mark, or a server is reached by DR or TUN (IPv4)",
		why: "A strict filter (1) drops a packet unless the way back to its sender leads through the device by which it came. " +
			"That bites with several ways out, and with packets that policy routing brings by a mark.",
		find: reversePath,
	},
	{
		id: "arp", group: groupPath, title: "only the active director answers for a virtual address", when: "a DR server is this machine itself",
		why: "This machine is a director and a real server. With the virtual address on a device like lo it answers ARP requests for it on every other device, unless arp_ignore is 1 or more: " +
			"it takes traffic from the director that is active. With arp_announce below 2 it also names the virtual address in its own requests, with the same effect.",
		find: arp,
	},
	{
		id: "nf_conntrack_table", group: groupPath, title: "the connection tracking table has room", when: "nf_conntrack is in use",
		why:    "Once it is full the kernel drops the first packet of every new connection, those of checks too: servers fail that are well.",
		sysctl: "net.netfilter.nf_conntrack_max",
		help:   "Each entry takes about 300 bytes. Or exempt balanced traffic by a notrack rule.",
		find:   tracked,
	},
	{
		id: "nf_conntrack", group: groupPath, title: "connection tracking is there", when: "ipvs_conntrack is on",
		why:  "ipvs_conntrack without nf_conntrack does nothing: firewall rules do not see balanced connections.",
		help: "Load it, or take ipvs_conntrack out.",
		find: func(x *exam) []Finding {
			if !x.use.global.Conntrack {
				return nil
			}
			s := x.Facts.Settings["net.netfilter.nf_conntrack_max"]
			switch {
			case s.Unknown != "":
				return unknown("net.netfilter.nf_conntrack_max: %s", s.Unknown)
			case !s.Absent:
				return ok("nf_conntrack is in the kernel")
			}
			f := Finding{Status: Warn, Found: "nf_conntrack is not in the kernel", Wanted: "nf_conntrack", Do: x.now.help,
				Mend: []string{"modprobe nf_conntrack"}, Stay: []Line{{loadFile, "nf_conntrack"}}}
			return []Finding{f.about(x.use.every())}
		},
	},
	{
		id: "tun_mtu", group: groupPath, title: "tunnelled packets fit", when: "a server is reached by TUN",
		why: "A tunnel adds 20 bytes and more (ipip 20, gre 24 or 28, gue 32 or 40; to an IPv6 server 20 more). Where the way to the real server carries no more than the clients' packets are long, " +
			"full ones do not fit: the kernel asks the client for smaller ones by ICMP, and uploads hang where a firewall drops that.",
		help: "Raise the MTU between here and the real servers (ip link set dev DEVICE mtu N, on all that is between), or have the real servers announce a smaller MSS (ip route change default via GATEWAY advmss N); let ICMP type 3 code 4 and ICMPv6 type 2 through.",
		find: tunnelMTU,
	},
}

// device reads a setting of a device.
func (x *exam) device(dev, name string) (value int, known bool) {
	n, err := strconv.Atoi(x.Facts.Settings["net.ipv4.conf."+dev+"."+name].Value)
	return n, err == nil
}

// reachedBy are the devices by which remote servers of a method are reached.
func (x *exam) reachedBy(m config.Method) (devices []string) {
	for _, s := range x.use.servers {
		if s.fwd.Method == m && !s.route.Local && s.route.Device != "" && s.addr.Addr().Unmap().Is4() && !slices.Contains(devices, s.route.Device) {
			devices = append(devices, s.route.Device)
		}
	}
	return devices
}

func deviceForwarding(x *exam) (found []Finding) {
	if x.Facts.Settings["net.ipv4.ip_forward"].Value != "1" {
		return nil // ip_forward says it
	}
	for _, dev := range x.reachedBy(config.NAT) {
		name := "net.ipv4.conf." + dev + ".forwarding"
		if v, known := x.device(dev, "forwarding"); known && v == 0 {
			f := Finding{Status: Fail, Found: name + " is 0", Wanted: "1"}
			found = append(found, f.mended(name, "1").about(x.use.whose(func(s server) bool { return s.fwd.Method == config.NAT && s.route.Device == dev })))
		}
	}
	return found
}

// holders are the devices that have an address.
func (x *exam) holders(pass func(host.Device, host.Address) bool) (devices []host.Device) {
	for _, d := range x.Facts.Devices {
		if slices.ContainsFunc(d.Addresses, func(a host.Address) bool { return pass(d, a) }) {
			devices = append(devices, d)
		}
	}
	return devices
}

func redirects(x *exam) (found []Finding) {
	behind := x.reachedBy(config.NAT)
	for _, d := range x.holders(func(d host.Device, a host.Address) bool { return x.use.owners[a.Addr()] != nil && a.Addr().Is4() }) {
		if d.Loopback || !slices.Contains(behind, d.Name) {
			continue
		}
		concerned := x.use.whose(func(s server) bool { return s.fwd.Method == config.NAT && s.route.Device == d.Name })
		f := Finding{Status: Warn, Wanted: "0 for all and for the device"}
		var on []string
		for _, name := range []string{"all", d.Name} {
			v, known := x.device(name, "send_redirects")
			if !known {
				return unknown("net.ipv4.conf.%s.send_redirects was not read", name)
			}
			if v != 0 {
				on = append(on, fmt.Sprintf("net.ipv4.conf.%s.send_redirects is %d", name, v))
				f = f.mended("net.ipv4.conf."+name+".send_redirects", "0")
			}
		}
		if on == nil {
			found = append(found, ok("no redirects are sent on %s", d.Name)...)
			continue
		}
		f.Found = strings.Join(on, ", ") + "; virtual address and real servers share that device"
		found = append(found, f.about(concerned))
	}
	return found
}

func reversePath(x *exam) (found []Finding) {
	marks := x.use.which(marked)
	concerned := append(marks, x.use.with(config.DR, config.TUN)...)
	if len(concerned) == 0 {
		return nil
	}
	all, known := x.device("all", "rp_filter")
	if !known {
		return unknown("net.ipv4.conf.all.rp_filter was not read")
	}
	var strict []string
	out := Finding{Status: Note, Wanted: "2 (loose), unless there is one way out only"}
	if len(marks) > 0 {
		out.Status = Warn
	}
	for _, d := range x.Facts.Devices {
		own, known := x.device(d.Name, "rp_filter")
		// The larger of the two counts.
		if !d.Loopback && d.Up && known && max(all, own) == 1 {
			strict = append(strict, d.Name)
			if own == 1 {
				out = out.mended("net.ipv4.conf."+d.Name+".rp_filter", "2")
			}
		}
	}
	if strict == nil {
		return ok("rp_filter is strict on no device")
	}
	if all == 1 {
		out.Mend, out.Stay = nil, nil
		out = out.mended("net.ipv4.conf.all.rp_filter", "2")
	}
	out.Found = "rp_filter is strict (1) on " + some(strict)
	return []Finding{out.about(concerned)}
}

// some names a few.
func some(names []string) string {
	if len(names) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:few], ", "), len(names)-few)
	}
	return strings.Join(names, ", ")
}

func arp(x *exam) []Finding {
	concerned := x.use.whose(func(s server) bool {
		return s.fwd.Method == config.DR && s.route.Local && !s.sorry && s.addr.Addr().Unmap().Is4()
	})
	if len(concerned) == 0 {
		return nil
	}
	hidden := x.holders(func(d host.Device, a host.Address) bool {
		return x.use.owners[a.Addr()] != nil && a.Addr().Is4() && (d.Loopback || d.Dummy)
	})
	if len(hidden) == 0 {
		return []Finding{Finding{Status: Note, Found: "this machine answers for the virtual addresses that are on its devices, as the active director must",
			Why: "Where another director has a virtual address too, only one of them may have it on such a device."}.about(concerned)}
	}
	f := Finding{Status: Warn, Wanted: "arp_ignore 1 or more, arp_announce 2"}
	var low []string
	for _, w := range []struct {
		name  string
		least int
	}{{"arp_ignore", 1}, {"arp_announce", 2}} {
		all, known := x.device("all", w.name)
		if !known {
			return unknown("net.ipv4.conf.all.%s was not read", w.name)
		}
		// The larger of all and the device's own counts.
		if all >= w.least || !slices.ContainsFunc(x.Facts.Devices, func(d host.Device) bool {
			own, known := x.device(d.Name, w.name)
			return !d.Loopback && !d.Dummy && d.Up && known && own < w.least
		}) {
			continue
		}
		low = append(low, fmt.Sprintf("net.ipv4.conf.all.%s is %d", w.name, all))
		f = f.mended("net.ipv4.conf.all."+w.name, strconv.Itoa(w.least))
	}
	if low == nil {
		return ok("ARP requests for virtual addresses on %s are not answered", hidden[0].Name)
	}
	f.Found = fmt.Sprintf("a virtual address is on %s, and %s", hidden[0].Name, strings.Join(low, ", "))
	return []Finding{f.about(concerned)}
}

func tracked(x *exam) []Finding {
	count, limit := x.Facts.Settings["net.netfilter.nf_conntrack_count"], x.Facts.Settings["net.netfilter.nf_conntrack_max"]
	if limit.Absent || len(x.use.virtual) == 0 {
		return nil
	}
	for _, s := range []host.Setting{count, limit} {
		if s.Unknown != "" {
			return unknown("the size of the connection tracking table: %s", s.Unknown)
		}
	}
	n, err := strconv.ParseUint(count.Value, 10, 64)
	m, merr := strconv.ParseUint(limit.Value, 10, 64)
	if err != nil || merr != nil {
		return unknown("the size of the connection tracking table: %q of %q", count.Value, limit.Value)
	}
	found := fmt.Sprintf("%d of %d entries of nf_conntrack are in use", n, m)
	if m == 0 || n*5 < m*4 {
		return ok("%s", found)
	}
	f := Finding{Status: Warn, Found: found, Wanted: "less than 80%", Do: x.now.help}
	if n*20 >= m*19 {
		f.Status = Fail
	}
	return []Finding{f.mended(x.now.sysctl, strconv.FormatUint(2*m, 10)).about(x.use.every())}
}
