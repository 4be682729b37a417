package ipvstest

import (
	"net/netip"
	"slices"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// TestDestinationsAreAPlainList holds a service's destinations, few and many, to a
// plain list.
func TestDestinationsAreAPlainList(t *testing.T) {
	svc := ipvs.Service{ServiceKey: ipvs.ServiceKey{Family: ipvs.INET, Protocol: ipvs.TCP, Addr: netip.MustParseAddr("192.0.2.1"), Port: 80}, Scheduler: "rr"}
	rapid.Check(t, func(rt *rapid.T) {
		table := New()
		if err := table.AddService(t.Context(), svc); err != nil {
			rt.Fatal(err)
		}
		var plain []ipvs.DestinationInfo // oldest first
		trash := map[ipvs.DestinationKey]ipvs.Counters{}
		addr := netip.MustParseAddr("10.0.0.1")
		port := rapid.Uint16Range(1, 48)
		find := func(d ipvs.Destination) int {
			return slices.IndexFunc(plain, func(i ipvs.DestinationInfo) bool { return i.DestinationKey == d.DestinationKey })
		}
		draw := func(rt *rapid.T) ipvs.Destination {
			return ipvs.Destination{DestinationKey: ipvs.DestinationKey{Addr: addr, Port: port.Draw(rt, "port")}, Weight: rapid.Uint32Range(0, 9).Draw(rt, "weight")}
		}
		answers := func(rt *rapid.T, err error, want syscall.Errno) {
			e, _ := err.(*ipvs.Error)
			if want == 0 && err != nil || want != 0 && (e == nil || e.Errno != want) {
				rt.Fatalf("%v, want %v", err, want)
			}
		}
		add := func(rt *rapid.T, d ipvs.Destination) {
			err := table.AddDest(t.Context(), svc, d)
			if find(d) >= 0 {
				answers(rt, err, syscall.EEXIST)
				return
			}
			answers(rt, err, 0)
			plain = append(plain, ipvs.DestinationInfo{Destination: d, Counters: trash[d.DestinationKey]})
			delete(trash, d.DestinationKey)
		}
		del := func(rt *rapid.T, d ipvs.Destination) {
			err, i := table.DelDest(t.Context(), svc, d), find(d)
			if i < 0 {
				answers(rt, err, syscall.ENOENT)
				return
			}
			answers(rt, err, 0)
			if c := plain[i].Counters; c != (ipvs.Counters{}) {
				trash[d.DestinationKey] = c
			}
			plain = slices.Delete(plain, i, i+1)
		}
		rt.Repeat(map[string]func(*rapid.T){
			"add": func(rt *rapid.T) { add(rt, draw(rt)) },
			"add many": func(rt *rapid.T) {
				for range rapid.IntRange(1, 40).Draw(rt, "n") {
					add(rt, draw(rt))
				}
			},
			"del": func(rt *rapid.T) { del(rt, draw(rt)) },
			"del many": func(rt *rapid.T) {
				for range min(len(plain), rapid.IntRange(1, 40).Draw(rt, "n")) {
					del(rt, plain[rapid.IntRange(0, len(plain)-1).Draw(rt, "at")].Destination)
				}
			},
			"set": func(rt *rapid.T) {
				d := draw(rt)
				err, i := table.SetDest(t.Context(), svc, d), find(d)
				if i < 0 {
					answers(rt, err, syscall.ENOENT)
					return
				}
				answers(rt, err, 0)
				plain[i].Destination = d
			},
			"traffic": func(rt *rapid.T) {
				d := draw(rt)
				c, s := ipvs.Counters{Active: d.Weight}, ipvs.Stats{InBytes: uint64(rapid.IntRange(0, 1).Draw(rt, "bytes"))}
				if i := find(d); i >= 0 {
					answers(rt, table.SetCounters(svc.ServiceKey, d.DestinationKey, c), 0)
					answers(rt, table.SetDestinationStats(svc.ServiceKey, d.DestinationKey, s), 0)
					plain[i].Counters, plain[i].Stats = c, s
				}
			},
			"zero": func(rt *rapid.T) {
				answers(rt, table.Zero(t.Context(), svc.ServiceKey), 0)
				for i := range plain {
					plain[i].Stats = ipvs.Stats{}
				}
			},
			"": func(rt *rapid.T) {
				want := slices.Clone(plain)
				slices.Reverse(want)
				if got, err := table.Destinations(t.Context(), svc.ServiceKey); err != nil || !slices.Equal(got, want) {
					rt.Fatalf("%v, %v\nwant %v", got, err, want)
				}
				s := table.index[svc.ServiceKey]
				if len(s.dests) > few && s.index == nil || len(s.dests) > 2*len(plain)+16 {
					rt.Fatalf("%d slots for %d destinations, indexed %t", len(s.dests), len(plain), s.index != nil)
				}
			},
		})
	})
}
