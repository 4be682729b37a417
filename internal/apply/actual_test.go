package apply

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// TestActual holds the packed content of a service to a plain list.
func TestActual(t *testing.T) {
	addrs := []netip.Addr{netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("::ffff:10.0.0.1"), netip.MustParseAddr("2001:db8::1"), {}}
	rapid.Check(t, func(t *rapid.T) {
		a := newActual(ipvs.Service{}, rapid.SampledFrom([]int{0, 5, few + 1}).Draw(t, "room"))
		var plain []ipvs.Destination
		key := func(t *rapid.T) ipvs.DestinationKey {
			return ipvs.DestinationKey{Addr: rapid.SampledFrom(addrs).Draw(t, "addr"), Port: rapid.Uint16Range(0, 15).Draw(t, "port")}
		}
		find := func(k ipvs.DestinationKey) int {
			return slices.IndexFunc(plain, func(d ipvs.Destination) bool { return d.DestinationKey == k })
		}
		t.Repeat(map[string]func(*rapid.T){
			"put": func(t *rapid.T) {
				d := ipvs.Destination{
					DestinationKey: key(t), Forward: ipvs.ForwardMethod(rapid.Uint32Range(0, 4).Draw(t, "forward")),
					TunnelType: ipvs.TunnelType(rapid.Uint8Range(0, 2).Draw(t, "type")), TunnelPort: rapid.Uint16().Draw(t, "tunnel port"),
					TunnelFlags: ipvs.TunnelFlags(rapid.Uint16Range(0, 2).Draw(t, "flags")), Weight: rapid.Uint32Range(0, 1<<31-1).Draw(t, "weight"),
					UpperThreshold: rapid.Uint32().Draw(t, "upper"), LowerThreshold: rapid.Uint32().Draw(t, "lower"),
				}
				a.put(d)
				if i := find(d.DestinationKey); i >= 0 {
					plain[i] = d
				} else {
					plain = append(plain, d)
				}
			},
			"drop": func(t *rapid.T) {
				k := key(t)
				a.drop(k)
				if i := find(k); i >= 0 {
					plain = slices.Delete(plain, i, i+1)
				}
			},
			"": func(t *rapid.T) {
				usable := 0
				for _, d := range plain {
					usable += positive(d.Weight)
					if got, ok := a.get(d.DestinationKey); !ok || got != d {
						t.Fatalf("%+v is %t %+v", d, ok, got)
					}
				}
				if got := slices.Collect(a.all()); !slices.Equal(got, plain) || a.len() != len(plain) || a.usable != usable {
					t.Fatalf("%d %v, %d usable; want %v, %d usable", a.len(), got, a.usable, plain, usable)
				}
				if a.index == nil && len(a.slots) > few {
					t.Fatalf("%d slots without an index", len(a.slots))
				}
				if len(a.slots) > 2*len(plain)+17 {
					t.Fatalf("%d slots for %d destinations", len(a.slots), len(plain))
				}
			},
		})
	})
}

// TestLookup holds the search for servers to a walk over all.
func TestLookup(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := vsOf()
		for range rapid.IntRange(0, 12).Draw(t, "servers") {
			addr := rapid.SampledFrom([]string{"10.0.0.1", "10.0.0.2", "::ffff:10.0.0.1", "2001:db8::1"}).Draw(t, "addr")
			k := config.RSKey{AddrPort: netip.AddrPortFrom(netip.MustParseAddr(addr), rapid.Uint16Range(79, 81).Draw(t, "port"))}
			c.RealServers = append(c.RealServers, &config.RealServer{Key: k, Weight: 1,
				Forward: config.Forwarding{Method: rapid.SampledFrom([]config.Method{config.NAT, config.DR}).Draw(t, "method")}})
		}
		if rapid.Bool().Draw(t, "sorry") {
			withSorry(c, rapid.IntRange(1, 3).Draw(t, "sorry server"), false)
		}
		vs := Translate(c)
		seen := map[ipvs.DestinationKey]bool{}
		distinct := true
		if s := vs.SorryServer; s != nil {
			seen[at(s.Dest, svcKey()).DestinationKey] = true
		}
		for _, rs := range c.RealServers {
			last := -1
			for i := range vs.Servers {
				if vs.Servers[i].Key == rs.Key {
					last = i
				}
			}
			if got := vs.find(rs.Key); got != last {
				t.Fatalf("%s is found at %d, want %d", rs.Key, got, last)
			}
		}
		for i := range vs.Servers {
			dk := at(vs.Servers[i].Dest, svcKey()).DestinationKey
			distinct = distinct && !seen[dk]
			seen[dk] = true
			var want []int32
			for j := range vs.Servers {
				if at(vs.Servers[j].Dest, svcKey()).DestinationKey == dk {
					want = append(want, int32(j))
				}
			}
			got := slices.Sorted(vs.standFor(svcKey(), dk))
			if !slices.Equal(got, want) {
				t.Fatalf("%s is %v, want %v", dk, got, want)
			}
		}
		if vs.distinct && !distinct {
			t.Fatal("it is said to be distinct and is not")
		}
		if missing := (config.RSKey{AddrPort: netip.MustParseAddrPort("10.9.9.9:80")}); vs.find(missing) != -1 {
			t.Fatal("found what is not there")
		}
	})
}
