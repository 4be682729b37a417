package config

import (
	"fmt"
)

// host prints what global_defs says of the machine, where it is not the default. What
// virtual servers inherit they print themselves.
func (p *printer) host(g *Global) {
	if n := g.NFTables; n != nil {
		p.line("nftables_ipvs", word(n.Table))
		p.line("nftables_ipvs_priority", number(n.Priority))
		p.line("nftables_ipvs_start_fwmark", number(n.FirstMark))
		p.flag("nftables_counters", n.Counters)
	}
	if g.VIPDelay != DefaultVIPDelay {
		p.ext("vip_delay", timer(g.VIPDelay))
	}
	if g.ViaMark != ViaMark && g.ViaMark != 0 { // 0 is the default too
		p.ext("check_via_mark", fmt.Sprintf("%#x", g.ViaMark))
	}
	switch s := g.Passive; {
	case s.File != nil:
		p.ext("passive", "track_file", word(s.File.Name))
	case s.On:
		p.ext("passive", "on")
	}
}

// vip prints what becomes of a virtual server's addresses.
func (p *printer) vip(vs *VirtualServer) {
	const perLine = 8
	for list := vs.VIPAddresses; len(list) > 0; {
		n := min(perLine, len(list))
		words := []string{"vip_address"}
		for _, a := range list[:n] {
			words = append(words, a.String())
		}
		p.ext(words...)
		list = list[n:]
	}
	if vs.VIP.Device != "" {
		p.ext("vip_device", word(vs.VIP.Device))
	}
	if vs.VIP.Follow != VIPAlways {
		p.ext("vip_follow", vs.VIP.Follow.String())
	}
	if vs.VIP.Guard {
		p.ext("vip_guard", "on")
	}
}

// via prints that checks go to the virtual address. A check that does not says where it
// goes, which comes first.
func (p *printer) via(rs *RealServer) {
	for _, c := range rs.Checkers {
		if c.Conn.Via != nil {
			p.ext("check_via", "vip")
			return
		}
	}
}
