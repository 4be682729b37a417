package apply

import (
	"iter"
	"net/netip"
	"time"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// actual is one of our services as it is believed to be in the kernel.
//
// Its destinations are packed, in the order in which they came, which keeps
// operations reproducible; one that was dropped leaves a hole until half of the list
// are holes. A destination takes 40 bytes, and in a service of many its share of an
// index without pointers; where there are few, the index would take more room than they
// do and find them no sooner.
type actual struct {
	service ipvs.Service
	slots   []slot
	// index is nil as long as there were few slots.
	index map[packedKey]int32
	live  int
	// usable counts the destinations that new connections can go to.
	usable int
	// timeout is the drain_timeout of a service that nobody claims any more, and
	// atOnce says that it has no drains.
	timeout time.Duration
	atOnce  bool
	// serving is what serves found, 0 for not asked since the last change.
	serving int8
}

// few is how many slots are searched one by one.
const few = 32

// packedKey is a destination's key without a pointer. A destination of the kernel has
// no zone.
type packedKey struct {
	addr  [16]byte
	port  uint16
	bytes uint8 // the length of the address, 0 for none
}

// slot is a destination.
type slot struct {
	key                  packedKey
	live                 bool
	why                  reason
	forward, tunnelType  uint8
	tunnelPort, tunnelFl uint16
	weight, upper, lower uint32
}

func pack(k ipvs.DestinationKey) packedKey {
	p := packedKey{port: k.Port, bytes: uint8(k.Addr.BitLen() / 8)}
	if k.Addr.IsValid() {
		p.addr = k.Addr.As16()
	}
	return p
}

func (p packedKey) unpack() ipvs.DestinationKey {
	k := ipvs.DestinationKey{Port: p.port}
	switch p.bytes {
	case 4:
		k.Addr = netip.AddrFrom4([4]byte(p.addr[12:]))
	case 16:
		k.Addr = netip.AddrFrom16(p.addr)
	}
	return k
}

func (s *slot) set(d ipvs.Destination) {
	s.forward, s.tunnelType, s.tunnelPort, s.tunnelFl = uint8(d.Forward), uint8(d.TunnelType), d.TunnelPort, uint16(d.TunnelFlags)
	s.weight, s.upper, s.lower = d.Weight, d.UpperThreshold, d.LowerThreshold
}

func (s *slot) dest() ipvs.Destination {
	return ipvs.Destination{
		DestinationKey: s.key.unpack(), Forward: ipvs.ForwardMethod(s.forward),
		TunnelType: ipvs.TunnelType(s.tunnelType), TunnelPort: s.tunnelPort, TunnelFlags: ipvs.TunnelFlags(s.tunnelFl),
		Weight: s.weight, UpperThreshold: s.upper, LowerThreshold: s.lower,
	}
}

// newActual returns an empty service with room for n destinations.
func newActual(s ipvs.Service, n int) *actual {
	a := &actual{service: s}
	a.room(n)
	return a
}

// room empties the list and makes room for n destinations.
func (a *actual) room(n int) {
	a.slots, a.index, a.live = make([]slot, 0, n), nil, 0
	if n > few {
		a.index = make(map[packedKey]int32, n)
	}
}

func (a *actual) len() int { return a.live }

// at returns the position of a destination in slots, -1 for none.
func (a *actual) at(k ipvs.DestinationKey) int { return a.find(pack(k)) }

func (a *actual) find(k packedKey) int {
	if a.index != nil {
		if i, ok := a.index[k]; ok {
			return int(i)
		}
		return -1
	}
	for i := range a.slots {
		if s := &a.slots[i]; s.key == k && s.live {
			return i
		}
	}
	return -1
}

// add appends a destination and returns its position.
func (a *actual) add(s slot) int {
	i := len(a.slots)
	a.slots = append(a.slots, s)
	a.live++
	switch {
	case a.index != nil:
		a.index[s.key] = int32(i)
	case len(a.slots) > few:
		a.index = make(map[packedKey]int32, 2*few)
		for i := range a.slots {
			if s := &a.slots[i]; s.live {
				a.index[s.key] = int32(i)
			}
		}
	}
	return i
}

func (a *actual) has(k ipvs.DestinationKey) bool { return a.at(k) >= 0 }

// get returns a destination; the zero one where there is none.
func (a *actual) get(k ipvs.DestinationKey) (ipvs.Destination, bool) {
	if i := a.at(k); i >= 0 {
		return a.slots[i].dest(), true
	}
	return ipvs.Destination{}, false
}

func (a *actual) weight(k ipvs.DestinationKey) uint32 {
	if i := a.at(k); i >= 0 {
		return a.slots[i].weight
	}
	return 0
}

// all goes over the destinations in their order.
func (a *actual) all() iter.Seq[ipvs.Destination] {
	return func(yield func(ipvs.Destination) bool) {
		for i := range a.slots {
			if s := &a.slots[i]; s.live && !yield(s.dest()) {
				return
			}
		}
	}
}

func (a *actual) put(d ipvs.Destination) {
	a.serving = 0
	k := pack(d.DestinationKey)
	i := a.find(k)
	if i < 0 {
		i = a.add(slot{key: k, live: true})
	}
	s := &a.slots[i]
	a.usable += positive(d.Weight) - positive(s.weight)
	s.set(d)
}

func positive(weight uint32) int {
	if weight > 0 {
		return 1
	}
	return 0
}

func (a *actual) drop(k ipvs.DestinationKey) {
	i := a.at(k)
	if i < 0 {
		return
	}
	a.serving = 0
	a.usable -= positive(a.slots[i].weight)
	delete(a.index, a.slots[i].key)
	a.slots[i] = slot{}
	a.live--
	if holes := len(a.slots) - a.live; holes > 16 && holes > a.live {
		a.compact()
	}
}

// compact closes the holes, and gives back what room an index does not give back.
func (a *actual) compact() {
	was := a.slots
	a.room(a.live)
	for _, s := range was {
		if s.live {
			a.add(s)
		}
	}
}
