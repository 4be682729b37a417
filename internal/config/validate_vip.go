package config

import (
	"net/netip"
	"slices"
	"time"
)

// BadDevice says why a text can be no network device's name, "" if it can: the rules are
// the kernel's, which would take % for a pattern besides.
func BadDevice(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > 15:
		return "is longer than 15 bytes"
	case s == "." || s == "..":
		return "is no name"
	}
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == 0x7f || c == '/' || c == ':' || c == '%' || c == '"' || c == '\\' || c == '$' {
			return "has a character that no device's name has"
		}
	}
	return ""
}

// MaxVIPDelay bounds vip_delay.
const MaxVIPDelay = time.Hour

func (v *validator) host(g *Global, files map[string]bool) {
	v.need(g.VIPDelay >= 0 && g.VIPDelay <= MaxVIPDelay, "vip_delay %v", g.VIPDelay)
	v.need(g.ViaMark&^ViaMask == 0, "check_via_mark %#x", g.ViaMark)
	if n := g.NFTables; n != nil {
		v.need(n.Table != "" && n.FirstMark != 0, "nftables_ipvs %q from mark %d", n.Table, n.FirstMark)
	}
	if u := g.Passive.File; u != nil {
		v.need(files[u.Name] && !g.Passive.On, "passive: track file %q", u.Name)
	}
	if s := g.Sync; s != nil && s.File != nil {
		v.need(files[s.File.Name] && s.State == SyncOff, "lvs_sync_state: track file %q", s.File.Name)
	}
}

func (v *validator) vip(vs *VirtualServer) {
	v.need(vs.VIP.Device == "" || BadDevice(vs.VIP.Device) == "", "vip_device %q", vs.VIP.Device)
	v.need(vs.Mark == 0 || vs.Key.Group != "", "a mark of nftables_ipvs without a group")
	if len(vs.VIPAddresses) == 0 {
		return
	}
	v.need(slices.ContainsFunc(vs.Entries, func(e Entry) bool { return e.FWMark != 0 }), "vip_address without a mark")
	v.need(slices.IsSortedFunc(vs.VIPAddresses, netip.Addr.Compare), "vip_address is not sorted")
	for i, a := range vs.VIPAddresses {
		if !a.IsValid() || i > 0 && a == vs.VIPAddresses[i-1] {
			v.fail("vip_address %s", a)
		}
	}
}

func (v *validator) via(rs *RealServer, c *Checker, via *Via) {
	if via.Server != rs.Key.Addr() || via.Forward != rs.Forward || via.Mark != c.Conn.FWMark {
		v.fail("real server %s: %s: check_via through %+v", rs.Key, c.Kind, *via)
	}
	if via.Forward.Method != DR && via.Forward.Method != TUN {
		v.fail("real server %s: %s: check_via with %s", rs.Key, c.Kind, via.Forward.Method)
	}
}
