package doctor

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/host"
)

const groupVIP = "the host around the table"

var vipRules = []rule{
	{
		id: "passive", group: groupVIP, title: "this director serves", when: "passive is on, by keyword, file or command",
		why:  "A passive director checks its servers and withholds all services: its addresses are withdrawn and its table is empty. Clients have to reach another director.",
		help: "sluice passive says who asked for it; sluice passive off ends what a command began.",
		find: func(x *exam) []Finding {
			switch {
			case x.Daemon != nil && x.Daemon.Passive != "":
				return []Finding{Finding{Status: Note, Found: "this director is passive: " + x.Daemon.Passive, Do: x.now.help}.about(x.use.every())}
			case x.Daemon == nil && x.use.global.Passive.On:
				return []Finding{Finding{Status: Note, Found: "this director is passive by its configuration", Do: x.now.help}.about(x.use.every())}
			}
			return nil
		},
	},
	{
		id: "features", group: groupVIP, title: "what sluiced does around the table works", when: "sluiced runs with vip_device, vip_guard or nftables_ipvs",
		why:  "The feature does not work: its addresses are not announced, or its packets are not filtered or marked. Everything else goes on, and it is tried again by itself.",
		help: "See the findings on capabilities and modules.",
		find: func(x *exam) (found []Finding) {
			if x.Daemon == nil || x.Daemon.Observe {
				return nil
			}
			for _, text := range x.Daemon.Failures {
				found = append(found, Finding{Status: Fail, Found: text, Wanted: "no failure", Do: x.now.help})
			}
			if found == nil && (len(x.use.bound) > 0 || len(x.use.guarded()) > 0 || x.use.global.NFTables != nil) {
				return ok("sluiced reports no failure of vip_device, vip_guard and nftables_ipvs")
			}
			return found
		},
	},
	{
		id: "vip_device", group: groupVIP, title: "the device of virtual addresses is a dummy", when: "there is a vip_device",
		why:  "sluiced puts addresses on a device of kind dummy alone: on one with a wire they would be answered for, and with another program's device they would come and go with it. It refuses, and the addresses are nowhere.",
		help: "Name another device: sluiced makes it if there is none.",
		find: vipDevice,
	},
	{
		id: "vip_address", group: groupVIP, title: "virtual addresses are on their device, there alone, each by itself", when: "there is a vip_device",
		why:  "A BGP speaker announces what is on the device: an address that is missing gets no clients, and one that stays after its services went draws clients to a director that does not serve them.",
		help: "sluice status, and the log of sluiced, say why.",
		find: vipAddress,
	},
	{
		id: "nf_tables", group: groupVIP, title: "the kernel has nftables", when: "there is vip_guard, nftables_ipvs or check_via",
		why: "Without nf_tables ports that are no service are not refused, and packets get no marks: what nftables_ipvs carries is not served. " +
			"check_via hides its packets from IPVS with it, which would balance them: without, such a check is not made and says nothing of its server.",
		help: "Install the kernel's modules, or take vip_guard, nftables_ipvs and check_via out.",
		find: func(x *exam) []Finding {
			concerned := append(x.use.filtered(), x.use.throughPath()...)
			if len(concerned) == 0 {
				return nil
			}
			names := []string{"nf_tables"}
			if len(x.use.guarded()) > 0 {
				names = append(names, "nft_reject_inet")
			}
			return x.needed(names, concerned)
		},
	},
	{
		id: "nft_tables", group: groupVIP, title: "sluiced's tables of nftables are there, and nobody else's of the same name", when: "there is vip_guard, nftables_ipvs or check_via, and nf_tables is in the kernel",
		why:  "Without its table the guard refuses nothing, marked packets get no mark, or checks through the data path are balanced. A table that keepalived writes too is emptied and filled by both in turn.",
		help: "sluiced puts its tables back by itself; its log says what failed. nftables_ipvs NAME chooses another name.",
		find: nftTables,
	},
	{
		id: "nft_input", group: groupVIP, title: "other input chains let services and echo requests in", when: "there is vip_guard and nf_tables is in the kernel",
		why:  "An accepted packet is still judged by every other chain of the hook. A chain whose policy is drop has to accept the services' ports, and ICMP for the replies of the guard, itself. Only policies are read here, not rules.",
		help: "See with: nft list ruleset",
		find: nftInput,
	},
}

// bound is an address that belongs on a device.
type bound struct {
	addr   netip.Addr
	device string
	owners []*config.VirtualServer
}

// bind takes in what a virtual server has on a device.
func (u *use) bind(vs *config.VirtualServer) {
	if vs.VIP.Device == "" {
		return
	}
	for _, a := range vs.Addresses() {
		i, seen := u.boundAt[a]
		if !seen {
			i = len(u.bound)
			u.boundAt[a] = i
			u.bound = append(u.bound, bound{addr: a, device: vs.VIP.Device})
		}
		u.bound[i].owners = append(u.bound[i].owners, vs)
	}
}

// isBound says whether sluiced itself puts an address on a device.
func (u *use) isBound(a netip.Addr) bool {
	_, is := u.boundAt[bare(a)]
	return is
}

func (u *use) guarded() []string {
	return u.which(func(vs *config.VirtualServer) bool { return vs.VIP.Guard })
}

// mapped are the virtual servers whose addresses nftables_ipvs maps to marks.
func (u *use) mapped() []string {
	return u.which(func(vs *config.VirtualServer) bool { return u.global.NFTables != nil && vs.Key.Group != "" })
}

func (u *use) filtered() []string {
	return u.which(func(vs *config.VirtualServer) bool {
		return vs.VIP.Guard || u.global.NFTables != nil && vs.Key.Group != ""
	})
}

// needed judges modules that the kernel loads by itself when sluiced asks for what is in
// them.
func (x *exam) needed(names, concerned []string) (found []Finding) {
	var good []string
	for _, n := range names {
		f := x.module(n, concerned)
		switch f[0].Status {
		case OK:
			good = append(good, n)
		default:
			found = append(found, f...)
		}
	}
	if len(good) > 0 {
		found = append(found, ok("%s can be had", some(good))...)
	}
	return found
}

func vipDevice(x *exam) (found []Finding) {
	var names []string
	concerned := map[string][]string{}
	for _, vs := range x.use.virtual {
		if d := vs.VIP.Device; d != "" {
			if concerned[d] == nil {
				names = append(names, d)
			}
			concerned[d] = append(concerned[d], vsName(vs))
		}
	}
	if len(names) == 0 {
		return nil
	}
	if x.Facts.DevicesUnknown != "" {
		return unknown("the devices of this machine: %s", x.Facts.DevicesUnknown)
	}
	for _, name := range names {
		i := slices.IndexFunc(x.Facts.Devices, func(d host.Device) bool { return d.Name == name })
		switch {
		case i < 0 && x.writing():
			found = append(found, Finding{Status: Fail, Found: "there is no device " + name + ", though sluiced runs", Wanted: name + " of kind dummy", Do: "sluiced makes it; its log says what failed."}.about(concerned[name]))
		case i < 0:
			found = append(found, Finding{Status: Note, Found: "there is no device " + name + "; sluiced makes it when it starts"}.about(concerned[name]))
		case !x.Facts.Devices[i].Dummy:
			kind := "hardware"
			switch d := x.Facts.Devices[i]; {
			case d.Loopback:
				kind = "the loopback device"
			case d.Kind != "":
				kind = "of kind " + d.Kind
			}
			found = append(found, Finding{Status: Fail, Found: name + " is " + kind, Wanted: "a dummy, or a name that no device has", Do: x.now.help}.about(concerned[name]))
		case !x.Facts.Devices[i].Up:
			found = append(found, Finding{Status: Warn, Found: name + " is down", Wanted: name + " up", Why: "The routes of a device that is down are no routes: no BGP speaker announces them.",
				Mend: []string{"ip link set dev " + name + " up"}, Do: "sluiced puts it up when it next looks."}.about(concerned[name]))
		default:
			found = append(found, ok("%s is a dummy and up", name)...)
		}
	}
	return found
}

// writing says whether a sluiced runs that writes.
func (x *exam) writing() bool { return x.Daemon != nil && !x.Daemon.Observe }

func vipAddress(x *exam) (found []Finding) {
	if len(x.use.bound) == 0 {
		return nil
	}
	if x.Facts.DevicesUnknown != "" {
		return unknown("the addresses of this machine: %s", x.Facts.DevicesUnknown)
	}
	var missing, stale, quiet []netip.Addr
	good := 0
	for _, b := range x.use.bound {
		on, others, wide := x.held(b)
		for _, o := range others {
			found = append(found, Finding{Status: Fail, Found: fmt.Sprintf("%s is on %s too", b.addr, o.device), Wanted: "it on " + b.device + " alone",
				Why:  "sluiced leaves an address alone that is on another device: vip_follow and the order of a withdrawal do not hold for it, for it never goes.",
				Mend: []string{fmt.Sprintf("ip addr del %s dev %s", o.Prefix, o.device)}, Do: "Take it out of what puts it there as well: the distribution's network configuration, or VRRP."}.about(namesOf(b.owners)))
		}
		if wide.IsValid() {
			found = append(found, Finding{Status: Warn, Found: fmt.Sprintf("%s is on %s as %s", b.addr, b.device, wide), Wanted: fmt.Sprintf("%s/%d", b.addr, b.addr.BitLen()),
				Why:  "With its whole network on the device, the network is this machine's: nothing else in it can be reached, and all of it may be announced.",
				Mend: []string{fmt.Sprintf("ip addr del %s dev %s", wide, b.device)}, Do: "sluiced puts it back by itself as it should be."}.about(namesOf(b.owners)))
		}
		switch wanted := x.writing() && x.announced(b); {
		case !x.writing():
			if !on {
				quiet = append(quiet, b.addr)
			}
		case on && !wanted:
			stale = append(stale, b.addr)
		case !on && wanted && len(others) == 0:
			missing = append(missing, b.addr)
		case on:
			good++
		}
	}
	if len(missing) > 0 {
		found = append(found, Finding{Status: Fail, Found: list(missing) + " not on the device", Wanted: "each on its device", Do: x.now.help}.about(x.boundOwners(missing)))
	}
	if len(stale) > 0 {
		found = append(found, Finding{Status: Warn, Found: list(stale) + " on the device, though nothing of this director should draw clients to it", Wanted: "no address without a quorum (vip_follow quorum), and none of a passive director", Do: x.now.help}.about(x.boundOwners(stale)))
	}
	if len(quiet) > 0 && x.Daemon == nil && x.DaemonUnknown == "" {
		found = append(found, Finding{Status: Note, Found: list(quiet) + " not on the device; sluiced puts them there when it starts"}.about(x.boundOwners(quiet)))
	}
	if good > 0 {
		found = append(found, ok("%s announced", plural(good, "virtual address is", "virtual addresses are"))...)
	}
	return found
}

// elsewhere is an address on another device than its own.
type elsewhere struct {
	netip.Prefix
	device string
}

// held says whether an address is on its device, where else it is, and with what network
// if that is wider than the address.
func (x *exam) held(b bound) (on bool, others []elsewhere, wide netip.Prefix) {
	devices, _ := x.on(b.addr)
	if devices == nil {
		return false, nil, wide
	}
	for _, d := range x.Facts.Devices {
		if !slices.Contains(devices, d.Name) {
			continue
		}
		for _, a := range d.Addresses {
			switch {
			case a.Addr() != bare(b.addr):
			case d.Name != b.device:
				others = append(others, elsewhere{a.Prefix, d.Name})
			default:
				on = true
				if a.Bits() < a.Addr().BitLen() {
					wide = a.Prefix
				}
			}
		}
	}
	return on, others, wide
}

// announced says whether an address should be on its device now. It is asked only where
// a sluiced runs, which said so.
func (x *exam) announced(b bound) bool {
	if x.Daemon.Passive != "" {
		return false
	}
	return slices.ContainsFunc(b.owners, func(vs *config.VirtualServer) bool {
		return vs.VIP.Follow == config.VIPAlways || !x.Daemon.NoQuorum[vs.Key.String()]
	})
}

func (x *exam) boundOwners(addresses []netip.Addr) (all []string) {
	for _, a := range addresses {
		for _, n := range namesOf(x.use.bound[x.use.boundAt[a]].owners) {
			if !slices.Contains(all, n) {
				all = append(all, n)
			}
		}
	}
	return all
}

func namesOf(list []*config.VirtualServer) (all []string) {
	for _, vs := range list {
		all = append(all, vsName(vs))
	}
	return all
}

// chains says whether nf_tables' chains are known; what to say instead if not.
func (x *exam) chains() (known bool, instead []Finding) {
	switch m := x.Facts.Modules; {
	case x.Facts.ChainsUnknown != "":
		return false, unknown("the tables of nftables: %s", x.Facts.ChainsUnknown)
	case m.LoadedUnknown != "" && !m.Builtin["nf_tables"]:
		return false, unknown("whether nf_tables is in the kernel: %s", m.LoadedUnknown)
	case !m.Loaded["nf_tables"] && !m.Builtin["nf_tables"]:
		return false, nil // nf_tables says whether it can be
	}
	return true, nil
}

func nftTables(x *exam) (found []Finding) {
	if len(x.use.filtered())+len(x.use.throughPath()) == 0 {
		return nil
	}
	known, instead := x.chains()
	if !known {
		return instead
	}
	has := func(table string) bool {
		return slices.ContainsFunc(x.Facts.Chains, func(c host.Chain) bool { return c.Table == table })
	}
	judge := func(keyword, table string, concerned []string, needed bool) {
		switch {
		case table == "" || len(concerned) == 0:
		case has(table):
			found = append(found, ok("the table %s of %s is there", table, keyword)...)
		case x.writing() && needed:
			found = append(found, Finding{Status: Fail, Found: fmt.Sprintf("the table %s of %s is not there, though sluiced runs", table, keyword), Wanted: "the table", Do: x.now.help}.about(concerned))
		}
	}
	active := x.Daemon != nil && x.Daemon.Passive == ""
	judge("vip_guard", x.GuardTable, x.use.guarded(), active)
	judge("check_via", lanesTable, x.use.throughPath(), true) // its checks go on while passive
	n := x.use.global.NFTables
	if n == nil {
		return found
	}
	if w := slices.IndexFunc(x.Facts.Writers, func(w host.Writer) bool {
		return strings.HasPrefix(w.Name, "keepalived") && !w.Elsewhere && !option(w, 'P', "--vrrp")
	}); w >= 0 && has(n.Table) {
		found = append(found, Finding{Status: Warn, Found: fmt.Sprintf("there is a table %s, and keepalived (process %d) runs", n.Table, x.Facts.Writers[w].PID), Wanted: "one writer of the table, or another name", Do: x.now.help}.about(x.use.mapped()))
	}
	judge("nftables_ipvs", n.Table, x.use.mapped(), active)
	return found
}

func nftInput(x *exam) []Finding {
	concerned := x.use.guarded()
	if len(concerned) == 0 {
		return nil
	}
	known, instead := x.chains()
	if !known {
		return instead
	}
	var drop []string
	for _, c := range x.Facts.Chains {
		if c.Hook == "input" && c.Drop && c.Table != x.GuardTable {
			drop = append(drop, fmt.Sprintf("%s %s %s (priority %d)", c.Family, c.Table, c.Name, c.Priority))
		}
	}
	if drop == nil {
		return ok("no input chain has the policy drop")
	}
	return []Finding{Finding{Status: Note, Found: "what it does not accept is dropped by " + some(drop), Do: x.now.help}.about(concerned)}
}
