package apply

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"
	"sort"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// lookup finds the servers of a virtual server: four bytes for each instead of an
// entry in a map, which a reload of ten thousand would have to build anew.
type lookup struct {
	// sorted are the servers' indexes in the order of their addresses and ports.
	sorted []int32
	// distinct: no two of the servers, nor the sorry server and one of them, can be
	// one destination.
	distinct bool
}

// sort prepares the lookup once all servers are there.
func (vs *VirtualServer) sort() {
	vs.sorted = make([]int32, len(vs.Servers))
	for i := range vs.sorted {
		vs.sorted[i] = int32(i)
	}
	slices.SortFunc(vs.sorted, func(x, y int32) int {
		return cmp.Or(vs.Servers[x].compare(vs.Servers[y].Dest.Addr, vs.Servers[y].Key.Port()), cmp.Compare(x, y))
	})
	vs.distinct = true
	for i := 1; i < len(vs.sorted); i++ {
		x, y := &vs.Servers[vs.sorted[i-1]], &vs.Servers[vs.sorted[i]]
		ported := x.Dest.Forward == ipvs.Masquerade && y.Dest.Forward == ipvs.Masquerade && x.Key.Port() != y.Key.Port()
		if x.Dest.Addr == y.Dest.Addr && !ported {
			vs.distinct = false
		}
	}
	if s := vs.SorryServer; s != nil {
		i := vs.search(s.Dest.Addr, 0)
		if i < len(vs.sorted) && vs.Servers[vs.sorted[i]].Dest.Addr == s.Dest.Addr {
			vs.distinct = false
		}
	}
}

// positions is how many claims of destinations it has in each of its services.
func (vs *VirtualServer) positions() int {
	n := len(vs.Servers)
	if vs.SorryServer != nil {
		n++
	}
	return n
}

func (rs *RealServer) compare(addr netip.Addr, port uint16) int {
	return cmp.Or(rs.Dest.Addr.Compare(addr), cmp.Compare(rs.Key.Port(), port))
}

// search returns where in sorted the servers at an address and from a port on begin.
func (vs *VirtualServer) search(addr netip.Addr, port uint16) int {
	return sort.Search(len(vs.sorted), func(i int) bool { return vs.Servers[vs.sorted[i]].compare(addr, port) >= 0 })
}

// find returns a real server's index, the last one's of several with one key; -1 for
// none.
func (vs *VirtualServer) find(k config.RSKey) int {
	addr, found := k.Addr().Unmap().WithZone(""), -1
	for _, i := range vs.sorted[vs.search(addr, k.Port()):] {
		rs := &vs.Servers[i]
		if rs.compare(addr, k.Port()) != 0 {
			break
		}
		if rs.Key == k {
			found = int(i)
		}
	}
	return found
}

// standFor goes over the servers that are one destination in a service, in the order
// of their ports.
func (vs *VirtualServer) standFor(k ipvs.ServiceKey, dk ipvs.DestinationKey) iter.Seq[int32] {
	return func(yield func(int32) bool) {
		// Only NAT keeps a server's own port, so that only with the service's there
		// may be servers of other ports.
		from := dk.Port
		if dk.Port == k.Port {
			from = 0
		}
		for _, i := range vs.sorted[vs.search(dk.Addr, from):] {
			rs := &vs.Servers[i]
			if rs.Dest.Addr != dk.Addr || from != 0 && rs.Key.Port() != dk.Port {
				return
			}
			if at(rs.Dest, k).DestinationKey == dk && !yield(i) {
				return
			}
		}
	}
}
