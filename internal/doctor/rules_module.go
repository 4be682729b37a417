package doctor

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
)

const groupModules = "kernel modules"

var moduleRules = []rule{
	{
		id: "kernel_tree", group: groupModules, title: "the running kernel's modules are on disk", when: always,
		why:  "The kernel was upgraded and the machine not rebooted, or its modules were removed: nothing more can be loaded, neither ip_vs nor the scheduler of a service that the next reload adds.",
		help: "Reboot into the installed kernel; until then add no service with another scheduler.",
		find: func(x *exam) []Finding {
			m := x.Facts.Modules
			switch {
			case m.DiskUnknown != "":
				return unknown("the modules on disk cannot be read: %s", m.DiskUnknown)
			case !m.NoTree:
				return ok("/lib/modules/%s is there", x.Facts.Kernel)
			case x.Facts.Container:
				return []Finding{{Status: Note, Found: "this is a container without /lib/modules/" + x.Facts.Kernel, Why: "Modules are loaded on the host: what is missing shows there."}}
			}
			f := Finding{Status: Warn, Found: "there is no /lib/modules/" + x.Facts.Kernel, Wanted: "the modules of the running kernel", Do: x.now.help}
			if !x.Facts.Table.Present && len(x.use.virtual) > 0 {
				f.Status = Fail
			}
			return []Finding{f.about(x.use.every())}
		},
	},
	{
		id: "ip_vs", group: groupModules, title: "ip_vs is in the kernel", when: always,
		why:  "Without ip_vs nothing is balanced at all: packets for virtual addresses meet no service.",
		help: "Install the package with the kernel's modules (on Debian linux-image, on Ubuntu linux-modules-extra), or boot a kernel that has them.",
		find: func(x *exam) []Finding {
			if x.Facts.Table.Present {
				return ok("ip_vs is in the kernel")
			}
			found := x.module("ip_vs", x.use.every())
			if found[0].Status == OK {
				// sluiced loads it; without one nobody has yet.
				found[0] = Finding{Status: Note, Found: "ip_vs is not loaded; sluiced loads it when it starts", Mend: []string{"modprobe ip_vs"}, Stay: []Line{{loadFile, "ip_vs"}}}
				if x.Daemon != nil && !x.Daemon.Observe {
					found[0].Status, found[0].Found, found[0].Wanted = Fail, "ip_vs is not loaded, though sluiced runs", "ip_vs loaded; sluiced goes on by itself then"
				}
			}
			return found
		},
	},
	{
		id: "schedulers", group: groupModules, title: "each scheduler's module can be had", when: "a virtual server names one (lvs_sched)",
		why:  "The kernel refuses a service whose scheduler it does not have: its virtual server balances nothing, while all others do.",
		help: "Install the kernel's modules, or choose another lvs_sched.",
		find: func(x *exam) []Finding {
			return x.modules("ip_vs_", func(vs *config.VirtualServer) string { return vs.Scheduler })
		},
	},
	{
		id: "persistence_engine", group: groupModules, title: "each persistence engine's module can be had", when: "a virtual server has persistence_engine",
		why:  "The kernel refuses a service whose persistence engine it does not have: its virtual server balances nothing.",
		help: "Install the kernel's modules, or take persistence_engine out.",
		find: func(x *exam) []Finding {
			return x.modules("ip_vs_pe_", func(vs *config.VirtualServer) string { return vs.Engine })
		},
	},
	{
		id: "ipv6", group: groupModules, title: "this kernel speaks IPv6", when: "a virtual or real server has an IPv6 address",
		why:    "With IPv6 off no packet for these addresses reaches IPVS, and their checks fail.",
		sysctl: "net.ipv6.conf.all.disable_ipv6", value: "0",
		help: "Boot without ipv6.disable=1.",
		find: func(x *exam) []Finding {
			six := x.use.which(sixth)
			if len(six) == 0 {
				return nil
			}
			if x.Facts.Settings[x.now.sysctl].Absent {
				return []Finding{Finding{Status: Fail, Found: "IPv6 is not in this kernel", Wanted: "IPv6", Do: x.now.help}.about(six)}
			}
			return x.is(six, Fail, "0")
		},
	},
	{
		id: "conn_table", group: groupModules, title: "the connection table is large enough", when: "ip_vs is in the kernel",
		why:  "With several connections to a bucket each packet looks through a list, which costs processor time on every packet and shows as softirq load.",
		help: "The size (2 to the power of conn_tab_bits) is chosen when ip_vs is loaded: write the line and reboot, or unload ip_vs in a quiet hour.",
		find: func(x *exam) []Finding {
			t := x.Facts.Table
			switch {
			case !t.Present:
				return nil
			case t.Unknown != "":
				return unknown("the table cannot be read: %s", t.Unknown)
			case t.Size == 0:
				return unknown("the kernel does not tell the size of its connection table")
			}
			found := fmt.Sprintf("%d connections in a table of %d buckets", t.Connections, t.Size)
			if t.Connections <= 4*uint64(t.Size) {
				return ok("%s", found)
			}
			bits := 12
			for bits < 20 && uint64(1)<<bits < t.Connections {
				bits++
			}
			return []Finding{{Status: Warn, Found: found, Wanted: fmt.Sprintf("conn_tab_bits=%d or more", bits), Do: x.now.help,
				Stay: []Line{{optionFile, fmt.Sprintf("options ip_vs conn_tab_bits=%d", bits)}}}}
		},
	},
}

func sixth(vs *config.VirtualServer) bool {
	for _, e := range vs.Entries {
		if e.Family == config.IPv6 {
			return true
		}
	}
	return slices.ContainsFunc(vs.RealServers, func(rs *config.RealServer) bool { return config.FamilyOf(rs.Key.Addr()) == config.IPv6 })
}

// module says whether a module is loaded or can be.
func (x *exam) module(name string, concerned []string) []Finding {
	m := x.Facts.Modules
	switch {
	case m.Loaded[name]:
		return ok("%s is loaded", name)
	case m.Builtin[name]:
		return ok("%s is built into the kernel", name)
	case m.OnDisk[name]:
		return ok("%s is loaded when a service asks for it", name)
	case m.DiskUnknown != "":
		return unknown("whether there is a module %s: %s", name, m.DiskUnknown)
	case m.NoTree:
		// It may be built in: there is no list of that either.
		return unknown("whether there is a module %s: there is no /lib/modules/%s", name, x.Facts.Kernel)
	}
	return []Finding{Finding{Status: Fail, Found: "this kernel has no module " + name, Wanted: name, Do: x.now.help}.about(concerned)}
}

// modules judges the modules that virtual servers name.
func (x *exam) modules(prefix string, names func(*config.VirtualServer) string) (found []Finding) {
	var good, unsure []string
	var reason Finding
	seen := map[string]bool{}
	for _, vs := range x.use.virtual {
		n := names(vs)
		if n == "" || seen[n] {
			continue
		}
		seen[n] = true
		f := x.module(prefix+n, x.use.which(func(o *config.VirtualServer) bool { return names(o) == n }))
		switch f[0].Status {
		case OK:
			good = append(good, f[0].Found)
		case Unknown:
			unsure, reason = append(unsure, prefix+n), f[0]
		default:
			found = append(found, f...)
		}
	}
	if unsure != nil {
		slices.Sort(unsure)
		_, why, _ := strings.Cut(reason.Found, ": ")
		found = append(found, unknown("whether there are modules %s: %s", some(unsure), why)...)
	}
	slices.Sort(good)
	for _, g := range good {
		found = append(found, ok("%s", g)...)
	}
	return found
}
