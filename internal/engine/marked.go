package engine

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-lb/sluice/internal/config"
)

// Marked is a group whose addresses one firewall mark stands for (nftables_ipvs): the
// kernel's services are of the mark, and do not say which addresses those are.
type Marked struct {
	Mark uint32 `json:"mark"` // given to the packets of all of them
	// Count is how many addresses, with their ports, have the mark; Ranges are those,
	// sorted, as a group of the configuration says them: "192.0.2.1-192.0.2.9 80".
	Count  int      `json:"addresses"`
	Ranges []string `json:"ranges"`
}

// marked is made once for each configuration and virtual server.
func marked(vc *config.VirtualServer) *Marked {
	if vc.Mark == 0 {
		return nil
	}
	all := make([]netip.AddrPort, 0, len(vc.Entries))
	for _, en := range vc.Entries {
		if en.Addr.IsValid() {
			all = append(all, netip.AddrPortFrom(en.Addr.Addr().Unmap(), en.Addr.Port()))
		}
	}
	// Port first, so that what follows each other is side by side.
	slices.SortFunc(all, func(a, b netip.AddrPort) int {
		if c := int(a.Port()) - int(b.Port()); c != 0 {
			return c
		}
		return a.Addr().Compare(b.Addr())
	})
	all = slices.Compact(all)
	m := &Marked{Mark: vc.Mark, Count: len(all), Ranges: []string{}}
	for i := 0; i < len(all); {
		first, last := all[i], all[i]
		for i++; i < len(all) && all[i].Port() == last.Port() && all[i].Addr() == last.Addr().Next(); i++ {
			last = all[i]
		}
		m.Ranges = append(m.Ranges, rangeOf(first, last))
	}
	return m
}

func rangeOf(first, last netip.AddrPort) string {
	s := first.Addr().String()
	if last != first {
		s += "-" + last.Addr().String()
	}
	if p := first.Port(); p != 0 {
		s += fmt.Sprintf(" %d", p)
	}
	return s
}
