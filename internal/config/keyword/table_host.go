package keyword

import (
	"fmt"

	"github.com/sluice-lb/sluice/internal/config"
)

// hostRows are the words about the machine around the kernel's table: addresses, the
// guard, marks, and checks that take the clients' way.
func hostRows() []keyword {
	inVirtual := func(f *frame) *rawVIP { return &f.vs.vip }
	rows := append(hostGlobalRows(), nftablesRows()...)
	rows = append(rows, each([]string{blockVirtual}, vipRows("global_defs' ", inVirtual)...)...)
	rows = append(rows, each([]string{blockVirtual},
		keyword{name: "vip_address", arg: custom("IP | IP-IP | IP-N | IP/M ...", 1), extension: true, dup: cumulative, def: "none", doc: "the addresses that a firewall mark stands for, written as in a group; they go to vip_device, are guarded and are asked by check_via; may be repeated", set: setVIPAddress},
		viaRow("off", "the default of its real servers' check_via", func(f *frame) *viaWord { return &f.vs.via }))...)
	return append(rows, each([]string{blockReal},
		viaRow("the virtual server's", "its checks ask the virtual address, through this real server alone; with DR and TUN", func(f *frame) *viaWord { return &f.rs.via }))...)
}

// vipRows are those that global_defs and virtual servers have alike.
func vipRows(from string, of func(*frame) *rawVIP) []keyword {
	def := func(name, own string) string {
		if from == "" {
			return own
		}
		return from + name
	}
	return []keyword{
		{name: "vip_device", arg: custom("NAME of at most 15 bytes | none", 1), extension: true, def: def("vip_device", "none"), doc: "the device that virtual addresses are put on; a dummy of this name is made if there is no such device", set: setVIPDevice(of)},
		{name: "vip_follow", arg: words("always", "quorum"), extension: true, def: def("vip_follow", "always"), doc: "a virtual address is on vip_device as long as its virtual server is configured, or only while that has its quorum",
			set: func(f *frame, v *value) {
				follow := config.VIPAlways
				if v.text == "quorum" {
					follow = config.VIPQuorum
				}
				of(f).follow.set(follow)
				of(f).followAt = said{f, v.n}
			}},
		{name: "vip_guard", arg: boolean(), extension: true, def: def("vip_guard", "off"), doc: "new connections to ports of virtual addresses that are no service are refused",
			set: func(f *frame, v *value) { of(f).guard.set(v.yes) }},
	}
}

func viaRow(def, doc string, of func(*frame) *viaWord) keyword {
	return keyword{name: "check_via", arg: words("vip", "off"), extension: true, def: def, doc: doc,
		set: func(f *frame, v *value) { *of(f) = viaWord{on: v.text == "vip", at: said{f, v.n}} }}
}

func hostGlobalRows() []keyword {
	rows := append(vipRows("", func(f *frame) *rawVIP { return &f.b.raw.vip }), []keyword{
		{name: "vip_delay", arg: timer(0, config.MaxVIPDelay), extension: true, def: seconds(config.DefaultVIPDelay), doc: "how long the services behind an address that was taken off its device go on untouched, so that routers have heard of it",
			set: func(f *frame, v *value) { f.b.raw.global.VIPDelay = v.dur }},
		{name: "check_via_mark", arg: custom("0x10000..0xffff0000, a multiple of 0x10000", 1), extension: true, def: fmt.Sprintf("%#x", config.ViaMark), doc: "where the 65535 marks and routing tables of check_via begin; nothing else may use them", set: setViaMark},
		{name: "passive", arg: custom("on | off | track_file NAME", 1), extension: true, def: "off", doc: "checks run, and no service is in the table and no address on its device; with a file: unless its number is 0", set: setPassive},
	}...)
	return each([]string{blockGlobal}, rows...)
}

// nftablesRows are keepalived's.
func nftablesRows() []keyword {
	return each([]string{blockGlobal},
		keyword{name: "nftables_ipvs", arg: arg{kind: argText, optional: true}, dup: firstWins, def: "off; the table is " + defaultNFTable + " without a name", doc: "the addresses of each group are one service for each protocol and family, by a firewall mark that this table of nftables gives to their packets", set: setNFTables},
		keyword{name: "nftables_ipvs_priority", arg: strictNumber(-1<<31, maxInt32), def: "-1", doc: "priority of the chain that gives the marks; after nftables_ipvs",
			set: nftablesWord(func(t *config.NFTables, v *value) { t.Priority = int32(v.num) })},
		keyword{name: "nftables_ipvs_start_fwmark", arg: strictNumber(1, maxUint32), def: "1000", doc: "the first of these marks; those that the file uses itself are left out; after nftables_ipvs",
			set: nftablesWord(func(t *config.NFTables, v *value) { t.FirstMark = uint32(v.num) })},
		keyword{name: "nftables_counters", arg: none(), def: "off", doc: "count what is marked", set: func(f *frame, _ *value) { f.b.raw.nftCounters = true }})
}

// hostDefaults are what global_defs has without these words.
func hostDefaults(g *config.Global) {
	g.VIPDelay, g.ViaMark = config.DefaultVIPDelay, config.ViaMark
}
