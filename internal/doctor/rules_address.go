package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/host"
)

const groupAddress = "addresses and routes"

var addressRules = []rule{
	{
		id: "virtual_address", group: groupAddress, title: "virtual addresses are on this machine", when: "a virtual server has an address",
		why:  "A packet for an address that this machine does not have is forwarded or dropped and never reaches IPVS. Where VRRP keeps the address, only the active director has it.",
		help: "Make it stay by the distribution's network configuration, or have keepalived -P or another VRRP daemon keep it.",
		find: virtualAddress,
	},
	{
		id: "virtual_prefix", group: groupAddress, title: "virtual addresses have networks of their own", when: "a virtual address is on this machine",
		why:  "A virtual address with its whole network on lo makes all of that network local: nothing in it can be reached any more, real servers neither.",
		find: virtualPrefix,
	},
	{
		id: "firewall_mark", group: groupAddress, title: "packets get their marks", when: "a virtual server has a firewall mark (fwmark)",
		why:  "A mark is set by a firewall rule in the mangle table before routing, and packets for addresses that are not on this machine need a route that makes them local. Neither is looked at here: without them nothing meets the service.",
		help: "See them with: nft list ruleset, or iptables -t mangle -S PREROUTING; and: ip rule; ip route show table all type local",
		find: func(x *exam) []Finding {
			marks := x.use.which(marked)
			if len(marks) == 0 {
				return nil
			}
			return []Finding{Finding{Status: Note, Found: "firewall rules are not looked at", Do: x.now.help}.about(marks)}
		},
	},
	{
		id: "real_route", group: groupAddress, title: "real servers can be reached", when: "there is a real or sorry server",
		why:  "The kernel drops what it cannot route: connections that are sent to such a server hang.",
		help: "Add the route, or bring up the device that has it: ip route get ADDRESS shows what the kernel would do.",
		find: realRoute,
	},
	{
		id: "dr_gateway", group: groupAddress, title: "DR servers are on a network of this machine", when: "a server is reached by DR",
		why:  "DR changes the Ethernet address alone. Behind a router the packet, still for the virtual address, goes to the router, which sends it back here: it circles until it is dropped.",
		help: "Use lvs_method TUN for it, or NAT where answers come back through here.",
		find: func(x *exam) []Finding {
			dr := x.use.with(config.DR)
			if len(dr) == 0 {
				return nil
			}
			for _, s := range x.use.servers {
				if s.fwd.Method == config.DR && s.route == (host.Route{}) || s.route.Unknown != "" {
					return nil // real_route says why nothing is known
				}
			}
			var via netip.Addr
			behind := x.use.whose(func(s server) bool {
				if s.fwd.Method == config.DR && s.route.Gateway.IsValid() {
					via = s.route.Gateway
					return true
				}
				return false
			})
			if len(behind) == 0 {
				return ok("%s reached by DR without a router between", plural(len(dr), "server is", "servers are"))
			}
			return []Finding{Finding{Status: Fail, Found: fmt.Sprintf("the route leads through a gateway (%s)", via), Wanted: "a route without a gateway", Do: x.now.help}.about(behind)}
		},
	},
	{
		id: "nat_loopback", group: groupAddress, title: "no NAT to a loopback address", when: "a server is reached by NAT",
		why:  "The kernel does not translate packets from outside to 127.0.0.0/8: connections to this server hang.",
		help: "Use lvs_method DR for it, with a local server that listens on the virtual address, or another address of this machine.",
		find: func(x *exam) []Finding {
			loop := x.use.whose(func(s server) bool { return s.fwd.Method == config.NAT && s.addr.Addr().Unmap().IsLoopback() })
			if len(loop) == 0 {
				return nil
			}
			return []Finding{Finding{Status: Fail, Found: "a server reached by NAT has a loopback address", Wanted: "DR, or another address", Do: x.now.help}.about(loop)}
		},
	},
	{
		id: "local_server", group: groupAddress, title: "servers on this machine listen where packets arrive", when: "a server reached by DR or TUN is this machine itself",
		why:  "With DR and TUN a packet keeps the virtual address: a local server that listens only on the address of its real_server line refuses the connection, though its checks are good.",
		help: "See with: ss -ltn",
		find: func(x *exam) []Finding {
			local := x.use.whose(func(s server) bool {
				return (s.fwd.Method == config.DR || s.fwd.Method == config.TUN) && s.route.Local
			})
			if len(local) == 0 {
				return nil
			}
			return []Finding{Finding{Status: Note, Found: "a server is this machine itself; it must listen on the virtual address", Do: x.now.help}.about(local)}
		},
	},
}

// bare takes an address as devices have it.
func bare(a netip.Addr) netip.Addr { return a.Unmap().WithZone("") }

// place is where an address is.
type place struct {
	device string
	usable bool
}

// on are the devices that have an address, and whether it can be used on one.
func (x *exam) on(a netip.Addr) (devices []string, usable bool) {
	if x.places == nil {
		x.places = map[netip.Addr][]place{}
		for _, d := range x.Facts.Devices {
			for _, has := range d.Addresses {
				x.places[has.Addr()] = append(x.places[has.Addr()], place{d.Name, !has.Unusable})
			}
		}
	}
	for _, p := range x.places[bare(a)] {
		devices = append(devices, p.device)
		usable = usable || p.usable
	}
	return devices, usable
}

func (x *exam) owners(addresses []netip.Addr) (names []string) {
	for _, a := range addresses {
		for _, vs := range x.use.owners[a] {
			if n := vsName(vs); !slices.Contains(names, n) {
				names = append(names, n)
			}
		}
	}
	return names
}

func virtualAddress(x *exam) []Finding {
	if len(x.use.addresses) == 0 {
		return nil
	}
	if x.Facts.DevicesUnknown != "" {
		return unknown("the addresses of this machine: %s", x.Facts.DevicesUnknown)
	}
	var missing, unusable, held, suspended []netip.Addr
	unsure := ""
	var where []string
	for _, a := range x.use.addresses {
		devices, usable := x.on(a)
		switch {
		case usable, x.Facts.Routes[bare(a)].Local:
			held = append(held, a)
			for _, d := range devices {
				if !slices.Contains(where, d) {
					where = append(where, d)
				}
			}
		case devices != nil:
			unusable = append(unusable, a)
		case !slices.ContainsFunc(x.use.owners[a], func(vs *config.VirtualServer) bool { return !vs.HASuspend }):
			suspended = append(suspended, a)
		case x.use.isBound(a): // vip_address says where it is
		case x.Facts.Routes[bare(a)].Unknown != "":
			// A local route may have it.
			unsure = fmt.Sprintf("%s is on no device, and its route cannot be asked for: %s", a, x.Facts.Routes[bare(a)].Unknown)
		default:
			missing = append(missing, a)
		}
	}
	var found []Finding
	if len(missing) > 0 {
		found = append(found, x.missing(missing))
	}
	if unsure != "" {
		found = append(found, unknown("%s", unsure)...)
	}
	if len(unusable) > 0 {
		found = append(found, Finding{Status: Fail, Found: list(unusable) + ": duplicate address detection has not ended, or found another machine with it", Wanted: "an address that is this machine's alone",
			Do: "See with: ip -6 addr show tentative; ip -6 addr show dadfailed"}.about(x.owners(unusable)))
	}
	if len(suspended) > 0 {
		found = append(found, Finding{Status: Note, Found: list(suspended) + " not on this machine; its virtual servers rest until it is (ha_suspend)"}.about(x.owners(suspended)))
	}
	if len(held) > 0 {
		text := plural(len(held), "virtual address is", "virtual addresses are") + " here"
		if where != nil {
			text += " on " + some(where)
		} else {
			text += " by a local route"
		}
		found = append(found, ok("%s", text)...)
	}
	return found
}

// missing is about addresses that this machine lacks.
func (x *exam) missing(missing []netip.Addr) Finding {
	f := Finding{Found: list(missing) + " not on this machine", Wanted: "the address on a device", Do: x.now.help}.about(x.owners(missing))
	if keeper := x.keeper(); keeper != "" {
		f.Status, f.Wanted, f.Do = Note, "", ""
		f.Found += "; " + keeper + " runs, and may keep it on the active director"
		return f
	}
	f.Status = Fail
	for _, a := range missing[:min(few, len(missing))] {
		dev := x.Facts.Routes[bare(a)].Device
		if dev == "" {
			dev = "lo"
		}
		f.Mend = append(f.Mend, fmt.Sprintf("ip addr add %s/%d dev %s", bare(a), bare(a).BitLen(), dev))
	}
	return f
}

// keeper names a process that may move addresses.
func (x *exam) keeper() string {
	for _, w := range x.Facts.Writers {
		if strings.HasPrefix(w.Name, "keepalived") && !w.Elsewhere && !writes(w) {
			return fmt.Sprintf("keepalived (process %d)", w.PID)
		}
	}
	return ""
}

func list(addresses []netip.Addr) string {
	var names []string
	for _, a := range addresses {
		names = append(names, a.String())
	}
	if len(names) == 1 {
		return names[0] + " is"
	}
	return some(names) + " are"
}

func virtualPrefix(x *exam) (found []Finding) {
	for _, d := range x.Facts.Devices {
		for _, a := range d.Addresses {
			wide := a.Bits() < a.Addr().BitLen()
			if x.use.owners[a.Addr()] == nil || !wide || a.Addr().IsLoopback() {
				continue
			}
			names := x.owners([]netip.Addr{a.Addr()})
			if d.Loopback {
				found = append(found, Finding{Status: Fail, Found: fmt.Sprintf("%s is on %s", a.Prefix, d.Name), Wanted: fmt.Sprintf("%s/%d", a.Addr(), a.Addr().BitLen()), Mend: []string{
					fmt.Sprintf("ip addr del %s dev %s", a.Prefix, d.Name),
					fmt.Sprintf("ip addr add %s/%d dev %s", a.Addr(), a.Addr().BitLen(), d.Name),
				}}.about(names))
				continue
			}
			if !a.Secondary && slices.ContainsFunc(d.Addresses, func(o host.Address) bool { return o.Secondary && a.Masked() == o.Masked() }) {
				found = append(found, Finding{Status: Note, Found: fmt.Sprintf("%s is the first address of its network on %s", a.Prefix, d.Name), Wanted: fmt.Sprintf("/%d", a.Addr().BitLen()),
					Why: "What this machine sends into that network, checks too, has the virtual address as its source."}.about(names))
			}
		}
	}
	return found
}

func realRoute(x *exam) (found []Finding) {
	if len(x.use.servers) == 0 {
		return nil
	}
	reasons := map[string][]string{}
	var order []string
	good := 0
	for _, s := range x.use.servers {
		r := s.route
		key := ""
		switch {
		case r.None != "":
			key = "-" + r.None
		case r.Unknown != "":
			key = "?" + r.Unknown
		default:
			good++
			continue
		}
		if reasons[key] == nil {
			order = append(order, key)
		}
		reasons[key] = append(reasons[key], s.String())
	}
	for _, key := range order {
		f := Finding{Status: Fail, Found: key[1:], Wanted: "a route", Do: x.now.help}
		if key[0] == '?' {
			f = Finding{Status: Unknown, Found: "the route cannot be asked for: " + key[1:]}
		}
		found = append(found, f.about(reasons[key]))
	}
	if good > 0 {
		found = append(found, ok("%s a route", plural(good, "real or sorry server has", "real and sorry servers have"))...)
	}
	return found
}
