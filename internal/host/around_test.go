package host

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// TestChainsAreNotAskedForInVain: asking a kernel without nf_tables would load it.
func TestChainsAreNotAskedForInVain(t *testing.T) {
	root := director(t)
	write(t, root+"/proc/modules", "ip_vs 1 0 - Live 0x0\n", 0o644)
	closed := false
	f := Machine{Root: root, Network: netlinked{closed: &closed}}.Facts(Query{Chains: true})
	if f.Chains != nil || f.ChainsUnknown != "" {
		t.Errorf("%+v, %q", f.Chains, f.ChainsUnknown)
	}
}

func TestRuleIsNamedAsItsCommand(t *testing.T) {
	for want, r := range map[string]Rule{
		"0: lookup 255":                       {Table: 255},
		"100: fwmark 0x7 lookup 7":            {Priority: 100, Mark: 7, Mask: ^uint32(0), Table: 7},
		"100: fwmark 0x7/0xff lookup 7":       {Priority: 100, Mark: 7, Mask: 0xff, Table: 7},
		"100: not fwmark 0xca6c lookup 51820": {Priority: 100, Mark: 0xca6c, Mask: ^uint32(0), Table: 51820, Not: true},
	} {
		if r.String() != want {
			t.Errorf("%q, want %q", r, want)
		}
	}
}

// TestRuleTakes holds the arithmetic to trying every mark.
func TestRuleTakes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := Rule{Mark: uint32(rapid.Byte().Draw(t, "mark")), Mask: uint32(rapid.Byte().Draw(t, "mask")) | 0xffffff00}
		low := uint32(rapid.Byte().Draw(t, "low"))
		high := low + uint32(rapid.Byte().Draw(t, "more"))
		want := false
		for m := low; m <= high; m++ {
			want = want || m&r.Mask == r.Mark&r.Mask
		}
		if got := r.Takes(low, high); got != want {
			t.Fatalf("%s takes %#x to %#x: %v", r, low, high, got)
		}
	})
	if all := (Rule{Mask: 1}); !all.Takes(^uint32(0)-1, ^uint32(0)) || all.Takes(^uint32(0), ^uint32(0)) {
		t.Error("the last marks are not as the others")
	}
}

func FuzzARP(f *testing.F) {
	p := arpPacket{operation: arpReply, hw: [hardware]byte{2, 0, 0, 0, 0, 1}, ip: netip.MustParseAddr("192.0.2.10"), target: netip.MustParseAddr("192.0.2.1")}
	f.Add(p.marshal())
	f.Add(p.marshal()[:27])
	f.Fuzz(func(t *testing.T, b []byte) {
		var got arpPacket
		if got.unmarshal(b) && string(got.marshal()) != string(b[:arpLength]) {
			t.Errorf("%x is read as %+v", b, got)
		}
	})
}

// TestKernelAround: rules, chains and neighbours as the kernel has them, in a namespace
// of the thread's own.
func TestKernelAround(t *testing.T) {
	testkit.Kernel(t)
	top := testkit.NewDR(t, 2)
	loud, quiet := top.Backends[0], top.Backends[1]
	loud.Sysctl(t, "net.ipv4.conf.all.arp_ignore", "0")
	quiet.Sysctl(t, "net.ipv4.conf.all.arp_ignore", "1")
	d := top.Director
	loud.IP(t, "address add "+top.VIP6.String()+"/128 dev eth0 nodad")
	for _, b := range top.Backends {
		// The kernel knows a neighbour once it has sent to it.
		for _, a := range []netip.Addr{b.Addr, b.Addr6} {
			if c, err := d.Dial(t.Context(), "tcp", netip.AddrPortFrom(a, 9).String()); err == nil {
				c.Close()
			}
		}
	}
	d.IP(t, "rule add pref 77 fwmark 0x53000005/0xffff0000 lookup 9")
	d.IP(t, "rule add not fwmark 7 pref 78 lookup 9 protocol 115")
	d.IP(t, "link add dum0 type dummy")
	d.Run(t, "nft", "add table inet some; add chain inet some in { type filter hook input priority 7; policy drop; }; add chain inet some plain")
	defer d.Run(t, "nft", "delete table inet some")
	q := Query{Rules: true, Chains: true, Questions: []Question{{loud.Addr, top.VIP}, {quiet.Addr, top.VIP}, {netip.MustParseAddr("203.0.113.9"), top.VIP}, {loud.Addr6, top.VIP6}, {quiet.Addr6, top.VIP6}}}
	for _, ask := range q.Questions {
		q.Routes = append(q.Routes, ask.Server)
	}
	var f *Facts
	if err := d.Do(func() error { f = Machine{}.Facts(q); return nil }); err != nil {
		t.Fatal(err)
	}
	for _, want := range []Rule{
		{Priority: 77, Mark: 0x53000005, Mask: 0xffff0000, Table: 9},
		{Priority: 78, Mark: 7, Mask: ^uint32(0), Not: true, Table: 9, Ours: true},
	} {
		if !slices.Contains(f.Rules, want) {
			t.Errorf("no %+v among %+v (%s)", want, f.Rules, f.RulesUnknown)
		}
	}
	if want := (Chain{Family: "inet", Table: "some", Name: "in", Hook: "input", Priority: 7, Drop: true}); !slices.Contains(f.Chains, want) || len(f.Chains) != 1 {
		t.Errorf("chains %+v (%s)", f.Chains, f.ChainsUnknown)
	}
	if i := slices.IndexFunc(f.Devices, func(d Device) bool { return d.Name == "dum0" }); i < 0 || !f.Devices[i].Dummy || f.Devices[i].Kind != "dummy" {
		t.Errorf("devices %+v", f.Devices)
	}
	for i, want := range []struct {
		what string
		Answer
	}{
		{"a server that answers", Answer{Yes: true}}, {"a server that is silent", Answer{}}, {"a server that is nowhere", Answer{Unknown: "there is no route to it"}},
		{"a server that answers in IPv6", Answer{Yes: true}}, {"a server that is silent in IPv6", Answer{}},
	} {
		if a := f.Answers[q.Questions[i]]; a != want.Answer {
			t.Errorf("%s: %+v, want %+v", want.what, a, want.Answer)
		}
	}
}

// TestARPIsAsDescribed: a request as RFC 826 has it.
func TestARPIsAsDescribed(t *testing.T) {
	p := arpPacket{operation: arpRequest, hw: [hardware]byte{2, 0, 0, 0, 0, 1}, ip: netip.MustParseAddr("192.0.2.1"), target: netip.MustParseAddr("192.0.2.10")}
	want := strings.Join([]string{"\x00\x01\x08\x00\x06\x04\x00\x01", "\x02\x00\x00\x00\x00\x01", "\xc0\x00\x02\x01", "\x00\x00\x00\x00\x00\x00", "\xc0\x00\x02\x0a"}, "")
	if string(p.marshal()) != want {
		t.Errorf("%x", p.marshal())
	}
	var back arpPacket
	wrong := p.marshal()
	binary.BigEndian.PutUint16(wrong[2:], unix.ETH_P_IPV6)
	if back.unmarshal(wrong) {
		t.Error("one for IPv6 is read")
	}
}
