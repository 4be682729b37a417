package keyword_test

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
)

// drawHost draws what global_defs says of the machine.
func drawHost(t draw, g *config.Global, tracks int) {
	g.VIPDelay = rapid.SampledFrom([]time.Duration{config.DefaultVIPDelay, 0, time.Hour, 1500 * time.Millisecond}).Draw(t, "vip delay")
	g.ViaMark = rapid.SampledFrom([]uint32{config.ViaMark, 0x10000, config.ViaMask}).Draw(t, "check_via_mark")
	if drawBool(t, "nftables") {
		g.NFTables = &config.NFTables{
			Table: rapid.SampledFrom([]string{"keepalived_ipvs", "a b", "x"}).Draw(t, "table"), Priority: rapid.Int32().Draw(t, "priority"),
			FirstMark: rapid.Uint32Min(1).Draw(t, "first mark"), Counters: drawBool(t, "counters"),
		}
	}
	file := func(what string) *config.TrackFileUse {
		if tracks == 0 || !drawBool(t, what) {
			return nil
		}
		return &config.TrackFileUse{Name: trackName(rapid.IntRange(0, tracks-1).Draw(t, what)), Weight: 1}
	}
	g.Passive.File = file("passive file")
	g.Passive.On = g.Passive.File == nil && drawBool(t, "passive")
	if g.Sync != nil {
		if g.Sync.File = file("sync file"); g.Sync.File != nil {
			g.Sync.State = config.SyncOff
		}
	}
}

// drawVIP draws what becomes of a virtual server's addresses. They carry its number, so
// that no two want an address on two devices.
func drawVIP(t draw, vs *config.VirtualServer, i int) {
	if slices.ContainsFunc(vs.Entries, func(e config.Entry) bool { return e.FWMark != 0 }) {
		for j := range rapid.IntRange(0, 20).Draw(t, "vip_address") {
			a := netip.AddrFrom4([4]byte{192, 0, 3, byte(32*i + j)})
			if vs.Entries[0].Family == config.IPv6 {
				a = netip.MustParseAddr(fmt.Sprintf("2001:db8:2::%x", 32*i+j+1))
			}
			vs.VIPAddresses = append(vs.VIPAddresses, a)
		}
	}
	vs.VIP.Guard = drawBool(t, "guard")
	if vs.VIP.Device = rapid.SampledFrom([]string{"", "", "lo", "vip-0.1", "#vip"}).Draw(t, "device"); vs.VIP.Device != "" {
		vs.VIP.Follow = rapid.SampledFrom([]config.VIPFollow{config.VIPAlways, config.VIPQuorum}).Draw(t, "follow")
		vs.HASuspend = false
	}
}

// drawVia turns some of a real server's checks to the virtual address.
func drawVia(t draw, vs *config.VirtualServer, rs *config.RealServer) {
	var vip netip.Addr
	for _, a := range vs.Addresses() {
		if !vip.IsValid() && config.FamilyOf(a) == config.FamilyOf(rs.Key.Addr()) {
			vip = a
		}
	}
	if rs.Forward.Method == config.NAT || !vip.IsValid() {
		return
	}
	via := &config.Via{Server: rs.Key.Addr(), Forward: rs.Forward}
	for _, c := range rs.Checkers {
		if c.Misc != nil || c.File != nil || !drawBool(t, "via") {
			continue
		}
		c.Conn.Via, c.Conn.FWMark, c.Conn.BindIf = via, 0, ""
		c.Conn.Target = netip.AddrPortFrom(vip, c.Conn.Target.Port())
		if c.Conn.BindAddr.Is4() != vip.Is4() {
			c.Conn.BindAddr, c.Conn.BindPort = netip.Addr{}, 0
		}
	}
}

// marked gives a configuration its marks: it is as valid, and prints the same, since no
// operator wrote them.
func marked(t draw, cfg *config.Config) {
	var before, after bytes.Buffer
	_ = config.Print(&before, cfg)
	if _, err := config.Assign(cfg, config.Marks{}); err != nil {
		return // nothing is left above a first mark near the end
	}
	_ = config.Print(&after, cfg)
	if before.String() != after.String() {
		t.Errorf("with marks it prints\n%s\nand without\n%s", after.String(), before.String())
	}
	if err := config.Validate(cfg); err != nil {
		t.Error(err)
	}
}
