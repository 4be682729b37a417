package config_test

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
)

// pick is what a small configuration has: names of groups, last octets of real servers
// that are checked through the data path, and marks that the file uses.
type pick struct {
	groups  []string
	servers []byte
	marks   []uint32
	fwmarks []uint32
	first   uint32
	via     uint32
}

// groupServers is a virtual server of a group, with entries.
func groupServer(name string, p config.Protocol, ordinal int, entries ...config.Entry) *config.VirtualServer {
	return &config.VirtualServer{Key: config.VSKey{Group: name, Protocol: p, Ordinal: ordinal}, Protocol: p, Entries: entries}
}

func (p pick) config() *config.Config {
	c := &config.Config{}
	c.Global.ViaMark = p.via
	if p.first != 0 {
		c.Global.NFTables = &config.NFTables{Table: "t", FirstMark: p.first}
	}
	address := config.Entry{Addr: netip.MustParseAddrPort("192.0.2.1:80"), Family: config.IPv4}
	for _, g := range p.groups {
		for _, proto := range []config.Protocol{config.TCP, config.UDP} {
			c.VirtualServers = append(c.VirtualServers, groupServer(g, proto, 0, address), groupServer(g, proto, 1, address))
		}
	}
	for _, m := range p.marks {
		c.VirtualServers = append(c.VirtualServers, groupServer("marks", config.None, 0, config.Entry{FWMark: m, Family: config.IPv4}))
	}
	vs := &config.VirtualServer{Key: config.VSKey{Addr: address.Addr}, Entries: []config.Entry{address}}
	for _, s := range p.servers {
		for _, m := range []config.Method{config.DR, config.TUN} {
			via := &config.Via{Server: netip.AddrFrom4([4]byte{10, 0, 0, s}), Forward: config.Forwarding{Method: m}}
			vs.RealServers = append(vs.RealServers, &config.RealServer{Checkers: []*config.Checker{
				{Conn: config.Connection{Via: via}}, {Conn: config.Connection{Via: via}}, {},
			}})
		}
	}
	for _, m := range p.fwmarks {
		vs.RealServers = append(vs.RealServers, &config.RealServer{Checkers: []*config.Checker{{Conn: config.Connection{FWMark: m}}}})
	}
	c.VirtualServers = append(c.VirtualServers, vs)
	return c
}

func drawPick(t *rapid.T, what string) pick {
	// Few numbers, so that they meet: marks of the file lie where ours are given.
	mark := rapid.OneOf(rapid.Uint32Range(1, 12), rapid.Uint32Range(0x20000, 0x20008))
	return pick{
		groups:  rapid.SliceOfNDistinct(rapid.SampledFrom(strings.Fields("a b c d e")), 0, 5, rapid.ID).Draw(t, what+" groups"),
		servers: rapid.SliceOfNDistinct(rapid.ByteRange(1, 6), 0, 6, rapid.ID).Draw(t, what+" servers"),
		marks:   rapid.SliceOfN(mark, 0, 4).Draw(t, what+" marks"),
		fwmarks: rapid.SliceOfN(mark, 0, 4).Draw(t, what+" fwmarks"),
		first:   rapid.SampledFrom([]uint32{0, 1, 5, 0x1fffe}).Draw(t, what+" first"),
		via:     rapid.SampledFrom([]uint32{0x20000, 0x20000, 0}).Draw(t, what+" via"),
	}
}

// holds checks what is given: every one that needs a mark has one that is its own.
func holds(t *rapid.T, p pick, cfg *config.Config, m config.Marks) {
	base := p.via
	if base == 0 {
		base = config.ViaMark
	}
	owner := map[uint32]string{}
	for _, u := range slices.Concat(p.marks, p.fwmarks) {
		owner[u] = "the file"
	}
	own := func(mark uint32, who string) {
		if was, taken := owner[mark]; mark == 0 || taken && was != who {
			t.Fatalf("mark %#x of %s is that of %q too", mark, who, was)
		}
		owner[mark] = who
	}
	seen := config.Marks{Groups: map[config.MarkKey]uint32{}, Via: map[config.ViaKey]uint32{}}
	for _, vs := range cfg.VirtualServers {
		if g := vs.Key.Group; g != "" && vs.Protocol != config.None && p.first != 0 {
			own(vs.Mark, fmt.Sprint(g, vs.Protocol))
			if vs.Mark < p.first || vs.Mark&config.ViaMask == base {
				t.Fatalf("group %s has the mark %#x", g, vs.Mark)
			}
			seen.Groups[config.MarkKey{Group: g, Protocol: vs.Protocol}] = vs.Mark
		} else if vs.Mark != 0 {
			t.Fatalf("%s has a mark", vs.Key)
		}
		for _, rs := range vs.RealServers {
			for _, c := range rs.Checkers {
				v := c.Conn.Via
				if v == nil {
					continue
				}
				own(v.Mark, fmt.Sprint(v.Server, v.Forward))
				if v.Mark != c.Conn.FWMark || v.Mark&config.ViaMask != base || v.Mark == base {
					t.Fatalf("%+v with the mark %#x", *v, c.Conn.FWMark)
				}
				seen.Via[config.ViaKey{Server: v.Server, Forward: v.Forward}] = v.Mark
			}
		}
	}
	if !maps.Equal(seen.Groups, m.Groups) || !maps.Equal(seen.Via, m.Via) {
		t.Fatalf("given %v, told %v", seen, m)
	}
}

func TestMarksAreUniqueAndStay(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, marks := pick{}, config.Marks{}
		for i := range rapid.IntRange(1, 5).Draw(t, "reloads") {
			before := p
			p = drawPick(t, fmt.Sprint(i))
			cfg := p.config()
			now, err := config.Assign(cfg, marks)
			if err != nil {
				t.Fatal(err)
			}
			holds(t, p, cfg, now)
			if again, err := config.Assign(p.config(), marks); err != nil || !maps.Equal(again.Groups, now.Groups) || !maps.Equal(again.Via, now.Via) {
				t.Fatalf("the second time it is %v and not %v (%v)", again, now, err)
			}
			if again, err := config.Assign(cfg, now); err != nil || !maps.Equal(again.Groups, now.Groups) || !maps.Equal(again.Via, now.Via) {
				t.Fatalf("the same configuration gets %v after %v (%v)", again, now, err)
			}
			// Sticky, unless the file forbids it now.
			file := slices.Concat(p.marks, p.fwmarks)
			for k, m := range now.Groups {
				if old := marks.Groups[k]; old != 0 && old != m && old >= p.first && !slices.Contains(file, old) && old&config.ViaMask != max(p.via, config.ViaMark*b2u(p.via == 0)) {
					t.Fatalf("%v had %d and has %d", k, old, m)
				}
			}
			for k, m := range now.Via {
				if old := marks.Via[k]; old != 0 && old != m && p.via == before.via && !slices.Contains(file, old) {
					t.Fatalf("%v had %#x and has %#x", k, old, m)
				}
			}
			// What goes with this reload is nobody else's yet.
			for k, m := range now.Groups {
				for old, mark := range marks.Groups {
					if mark == m && old != k {
						t.Fatalf("%v has the mark that %v had just now", k, old)
					}
				}
			}
			marks = now
		}
	})
}

func b2u(b bool) uint32 {
	if b {
		return 1
	}
	return 0
}

// TestMarksAreTheLowestFree in file order, so that a restart gives the same ones.
func TestMarksAreTheLowestFree(t *testing.T) {
	p := pick{groups: []string{"z", "a"}, servers: []byte{9, 1}, marks: []uint32{6}, fwmarks: []uint32{7, 0x20001}, first: 5, via: 0x20000}
	m, err := config.Assign(p.config(), config.Marks{})
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(m.Groups[config.MarkKey{"z", config.TCP}], m.Groups[config.MarkKey{"z", config.UDP}], m.Groups[config.MarkKey{"a", config.TCP}]); got != "5 8 9" {
		t.Error(got)
	}
	at := func(s byte, m config.Method) config.ViaKey {
		return config.ViaKey{Server: netip.AddrFrom4([4]byte{10, 0, 0, s}), Forward: config.Forwarding{Method: m}}
	}
	if got := fmt.Sprintf("%#x %#x %#x", m.Via[at(9, config.DR)], m.Via[at(9, config.TUN)], m.Via[at(1, config.DR)]); got != "0x20002 0x20003 0x20004" {
		t.Error(got)
	}
	// A group that replaces another does not get its mark while that may still drain;
	// the next reload gives it.
	p.groups = []string{"b", "a"}
	next, _ := config.Assign(p.config(), m)
	if got := next.Groups[config.MarkKey{"b", config.TCP}]; got != 11 {
		t.Error(got)
	}
	p.groups = []string{"b", "a", "c"}
	next, _ = config.Assign(p.config(), next)
	if got := next.Groups[config.MarkKey{"c", config.TCP}]; got != 5 {
		t.Error(got)
	}
}

func TestGroupMarksLeaveOutTheRangeOfChecks(t *testing.T) {
	p := pick{groups: []string{"a", "b"}, first: 0x1ffff, via: 0x20000}
	m, err := config.Assign(p.config(), config.Marks{})
	if err != nil || m.Groups[config.MarkKey{"a", config.TCP}] != 0x1ffff || m.Groups[config.MarkKey{"a", config.UDP}] != 0x30000 {
		t.Error(m, err)
	}
}

func TestMarksThatDoNotSuffice(t *testing.T) {
	p := pick{groups: []string{"a", "b"}, first: 0xfffffffd}
	cfg := p.config()
	if _, err := config.Assign(cfg, config.Marks{}); err == nil || !strings.Contains(err.Error(), "nftables_ipvs_start_fwmark 4294967293") || cfg.VirtualServers[0].Mark != 0 {
		t.Error(err)
	}
	// The last of the range is used, and one more is one too many.
	cfg = &config.Config{VirtualServers: []*config.VirtualServer{{}}}
	add := func(n int) {
		vs := cfg.VirtualServers[0]
		for range n {
			i := len(vs.RealServers)
			via := &config.Via{Server: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})}
			vs.RealServers = append(vs.RealServers, &config.RealServer{Checkers: []*config.Checker{{Conn: config.Connection{Via: via}}}})
		}
	}
	add(65535)
	m, err := config.Assign(cfg, config.Marks{})
	if err != nil || len(m.Via) != 65535 {
		t.Fatal(len(m.Via), err)
	}
	// All of them are new: what the old ones had has to do.
	for _, rs := range cfg.VirtualServers[0].RealServers {
		v := rs.Checkers[0].Conn.Via
		v.Forward.Method = config.TUN
	}
	if m, err = config.Assign(cfg, m); err != nil || len(m.Via) != 65535 {
		t.Fatal(len(m.Via), err)
	}
	add(1)
	if _, err := config.Assign(cfg, m); err == nil || !strings.Contains(err.Error(), "65536 real servers") {
		t.Error(err)
	}
}

// TestAddressesOfAVirtualServer: each once, sorted, with those of its marks.
func TestAddressesOfAVirtualServer(t *testing.T) {
	a := netip.MustParseAddr
	vs := groupServer("g", config.TCP, 0,
		config.Entry{Addr: netip.MustParseAddrPort("[2001:db8::1]:80")}, config.Entry{Addr: netip.MustParseAddrPort("192.0.2.9:80")},
		config.Entry{Addr: netip.MustParseAddrPort("192.0.2.9:443")}, config.Entry{FWMark: 3})
	vs.VIPAddresses = []netip.Addr{a("192.0.2.1"), a("192.0.2.9")}
	if got := vs.Addresses(); !slices.Equal(got, []netip.Addr{a("192.0.2.1"), a("192.0.2.9"), a("2001:db8::1")}) {
		t.Error(got)
	}
}

func TestDeviceNames(t *testing.T) {
	for _, s := range []string{"lo", "vip0", "eth0.100", "a", "fifteen_letters", "-", "é"} {
		if bad := config.BadDevice(s); bad != "" {
			t.Errorf("%q %s", s, bad)
		}
	}
	for _, s := range []string{"", ".", "..", "sixteen_letters_", "a b", "a/b", "a:b", "a%d", "a\n", "\x7f"} {
		if config.BadDevice(s) == "" {
			t.Errorf("%q is a name", s)
		}
	}
}
