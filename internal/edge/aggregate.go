package edge

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// aggregate is what all virtual servers together wish, counted.
type aggregate struct {
	wishes   map[config.VSKey]*Wish
	claims   map[netip.Addr]*claim
	services map[ipvs.ServiceKey]int
	marks    map[marked]int
	// guarded is how many addresses are guarded, torn those that are wanted on two devices.
	guarded int
	torn    map[netip.Addr]bool
	// touched are the addresses whose place may be another one since it was last cleared;
	// reguard and remark that the guard or the marks are.
	touched         map[netip.Addr]bool
	reguard, remark bool
}

// claim counts who wants what of an address.
type claim struct {
	devices              []use // by name
	local, guard, mapped int
}

// use counts who wants an address on one device, announced there or not.
type use struct {
	device          string
	announce, total int
}

// marked is a mark and what it is given to.
type marked struct {
	Mapped
	mark uint32
}

func newAggregate() *aggregate {
	return &aggregate{
		wishes: map[config.VSKey]*Wish{}, claims: map[netip.Addr]*claim{}, services: map[ipvs.ServiceKey]int{},
		marks: map[marked]int{}, torn: map[netip.Addr]bool{}, touched: map[netip.Addr]bool{},
	}
}

// set puts a virtual server's wish in the place of the one before. The new one is counted
// before the old one is not, so that what both have never goes through zero.
func (g *aggregate) set(key config.VSKey, w *Wish) {
	old := g.wishes[key]
	if w != nil {
		g.wishes[key] = w
		g.count(w, 1)
	} else {
		delete(g.wishes, key)
	}
	if old != nil {
		g.count(old, -1)
	}
}

func (g *aggregate) count(w *Wish, by int) {
	for _, a := range w.Addresses {
		c := g.claim(a)
		if w.Device != "" {
			c.use(w.Device, w.Announce, by)
			if w.Local {
				c.local += by
			}
			g.touched[a] = true
		}
		if w.Guard {
			g.cross(&c.guard, by, &g.reguard, &g.guarded)
		}
		g.settle(a, c)
	}
	for _, s := range w.Services {
		n := g.services[s] + by
		g.services[s] = n
		if n == 0 {
			delete(g.services, s)
		}
		g.reguard = g.reguard || n == 0 || n == by
	}
	if w.Mark == 0 {
		return
	}
	for _, m := range w.Mapped {
		k := marked{m, w.Mark}
		n := g.marks[k] + by
		g.marks[k] = n
		if n == 0 {
			delete(g.marks, k)
		}
		g.remark = g.remark || n == 0 || n == by
		a := m.Addr.Addr()
		c := g.claim(a)
		c.mapped += by
		g.settle(a, c)
	}
}

// cross counts one thing and how many things there are, and notes when that changes.
func (g *aggregate) cross(n *int, by int, changed *bool, things *int) {
	was := *n > 0
	*n += by
	if is := *n > 0; is != was {
		*changed = true
		if *things++; was {
			*things -= 2
		}
	}
}

func (g *aggregate) claim(a netip.Addr) *claim {
	c := g.claims[a]
	if c == nil {
		c = &claim{}
		g.claims[a] = c
	}
	return c
}

// settle forgets an address that nobody wants, and notes one that is wanted twice.
func (g *aggregate) settle(a netip.Addr, c *claim) {
	if len(c.devices) == 0 && c.guard == 0 && c.mapped == 0 {
		delete(g.claims, a)
	}
	if c.announced() > 1 {
		g.torn[a] = true
	} else {
		delete(g.torn, a)
	}
}

func (c *claim) use(device string, announce bool, by int) {
	i, ok := slices.BinarySearchFunc(c.devices, device, func(u use, name string) int { return cmp.Compare(u.device, name) })
	if !ok {
		c.devices = slices.Insert(c.devices, i, use{device: device})
	}
	u := &c.devices[i]
	u.total += by
	if announce {
		u.announce += by
	}
	if u.total == 0 {
		c.devices = slices.Delete(c.devices, i, i+1)
	}
}

// announced is on how many devices an address is wanted.
func (c *claim) announced() (n int) {
	for _, u := range c.devices {
		if u.announce > 0 {
			n++
		}
	}
	return n
}

// place is where an address should be.
func (g *aggregate) place(a netip.Addr) Place {
	c := g.claims[a]
	if c == nil || len(c.devices) == 0 {
		return Place{}
	}
	p := Place{Device: c.devices[0].device, Local: c.local > 0}
	for _, u := range c.devices {
		if u.announce > 0 {
			p.Device, p.Announce = u.device, true
			break
		}
	}
	return p
}

// mapped says whether an address needs a mark.
func (g *aggregate) mapped(a netip.Addr) bool {
	c := g.claims[a]
	return c != nil && c.mapped > 0
}

// guard is what the guard should hold, nil for no guard.
func (g *aggregate) guard() *Guard {
	if g.guarded == 0 {
		return nil
	}
	want := &Guard{Addresses: make([]netip.Addr, 0, g.guarded)}
	for a, c := range g.claims {
		if c.guard > 0 {
			want.Addresses = append(want.Addresses, a)
		}
	}
	for s := range g.services {
		if c := g.claims[s.Addr]; s.FWMark != 0 || c != nil && c.guard > 0 {
			want.Services = append(want.Services, s)
		}
	}
	want.sort()
	return want
}

// marking is what the table of nftables_ipvs should hold, nil for none. Where two marks
// are wanted for one thing the lower one is it.
func (g *aggregate) marking(n *config.NFTables) *Marking {
	if n == nil || len(g.marks) == 0 {
		return nil
	}
	want := &Marking{NFTables: *n, Marks: make(map[Mapped]uint32, len(g.marks))}
	for k := range g.marks {
		if other, ok := want.Marks[k.Mapped]; !ok || k.mark < other {
			want.Marks[k.Mapped] = k.mark
		}
	}
	return want
}

func (w *Guard) sort() {
	slices.SortFunc(w.Addresses, netip.Addr.Compare)
	w.Addresses = slices.Compact(w.Addresses)
	slices.SortFunc(w.Services, func(a, b ipvs.ServiceKey) int {
		return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol),
			cmp.Compare(a.FWMark, b.FWMark), cmp.Compare(a.Family, b.Family))
	})
	w.Services = slices.Compact(w.Services)
}

// opening is what the guard holds between what it held and what is wanted: the addresses
// of both, and the services that either lets in there.
func (g *aggregate) opening(want, held *Guard) *Guard {
	switch {
	case held == nil:
		return want
	case want == nil:
		want = &Guard{}
	}
	sum := &Guard{Addresses: slices.Concat(want.Addresses, held.Addresses), Services: slices.Concat(want.Services, held.Services)}
	for s := range g.services {
		if _, ok := slices.BinarySearchFunc(held.Addresses, s.Addr, netip.Addr.Compare); ok {
			sum.Services = append(sum.Services, s)
		}
	}
	sum.sort()
	return sum
}

func (w *Guard) equal(other *Guard) bool {
	if w == nil || other == nil {
		return w == other
	}
	return slices.Equal(w.Addresses, other.Addresses) && slices.Equal(w.Services, other.Services)
}

// both is what is in either, and where they differ, what w says.
func (w *Marking) both(other *Marking) *Marking {
	switch {
	case w == nil:
		return other
	case other == nil:
		return w
	}
	sum := &Marking{NFTables: w.NFTables, Marks: maps.Clone(other.Marks)}
	maps.Copy(sum.Marks, w.Marks)
	return sum
}

func (w *Marking) equal(other *Marking) bool {
	if w == nil || other == nil {
		return w == other
	}
	return w.same(other) && maps.Equal(w.Marks, other.Marks)
}

// same says whether the tables have the same form, wherever the file says so.
func (w *Marking) same(other *Marking) bool {
	a, b := w.NFTables, other.NFTables
	a.Pos = b.Pos
	return a == b
}
