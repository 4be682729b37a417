package doctor

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/host"
)

const (
	// ethernet is what clients' packets are sized for where nothing is known of them.
	ethernet = 1500
	// leastSix is the least that an IPv6 link carries (RFC 8200): no packet may be asked
	// to be smaller.
	leastSix = 1280
	// headers of IP and TCP without options, by family, which an MSS leaves out.
	headersFour, headersSix = 40, 60
)

// overhead is what a tunnel adds to a packet, as the kernel's IPVS reckons it.
func overhead(fwd config.Forwarding, to netip.Addr) (bytes uint32, name string) {
	bytes, name = 20, "ipip"
	if to.Unmap().Is6() {
		bytes = 40
	}
	switch fwd.Tunnel {
	case config.GRE:
		name, bytes = "gre", bytes+4
		if fwd.Checksum == config.Csum {
			bytes += 4
		}
	case config.GUE:
		// UDP's header and GUE's own.
		name, bytes = "gue", bytes+8+4
		if fwd.Checksum == config.RemCsum {
			bytes += 4 + 4 // private flags, and the option
		}
	}
	return bytes, name
}

// way is how packets to some servers are packed.
type way struct {
	device, tunnel string
	mtu, overhead  uint32
	six            bool // what is packed
}

// inner is how large a packet may be that is packed.
func (w way) inner() uint32 { return w.mtu - min(w.overhead, w.mtu) }

// clientMTU is how large the packets of clients are: by the device that an address is on,
// if that has a wire.
func (x *exam) clientMTU(a netip.Addr) uint32 {
	devices, _ := x.on(a)
	for _, d := range x.Facts.Devices {
		if slices.Contains(devices, d.Name) && !d.Loopback && !d.Dummy && d.MTU != 0 {
			return d.MTU
		}
	}
	return ethernet
}

func tunnelMTU(x *exam) (found []Finding) {
	all := x.use.with(config.TUN)
	if len(all) == 0 {
		return nil
	}
	ways := map[way][]string{}
	sizes := map[way]uint32{}
	var order []way
	var unseen []string
	for _, s := range x.use.servers {
		if s.fwd.Method != config.TUN || s.route.Local {
			continue
		}
		mtu := s.route.MTU
		i := slices.IndexFunc(x.Facts.Devices, func(d host.Device) bool { return d.Name == s.route.Device })
		if mtu == 0 && i >= 0 {
			mtu = x.Facts.Devices[i].MTU
		}
		if mtu == 0 {
			unseen = append(unseen, s.String())
			continue
		}
		n, name := overhead(s.fwd, s.addr.Addr())
		for _, a := range s.vs.Addresses() {
			w := way{device: s.route.Device, tunnel: name, mtu: mtu, overhead: n, six: a.Is6()}
			if ways[w] == nil {
				order = append(order, w)
			}
			sizes[w] = max(sizes[w], x.clientMTU(a))
			if list := ways[w]; list == nil || list[len(list)-1] != s.String() {
				ways[w] = append(list, s.String())
			}
		}
	}
	for _, w := range order {
		found = append(found, w.judge(sizes[w], x.now.help).about(ways[w]))
	}
	if unseen != nil {
		found = append(found, Finding{Status: Note, Found: "how large packets may be on the way to it cannot be seen from here", Do: x.now.help}.about(unseen))
	}
	return found
}

// judge says whether packets of a size fit. What servers do about it, and what the path
// beyond this machine's own route carries, is not seen from here.
func (w way) judge(size uint32, help string) Finding {
	path := fmt.Sprintf("the way by %s carries %d bytes, %d without what %s adds", w.device, w.mtu, w.inner(), w.tunnel)
	if w.inner() >= size {
		return Finding{Status: OK, Found: fmt.Sprintf("packets of %d bytes fit as far as this machine sees: %s", size, path)}
	}
	headers := uint32(headersFour)
	if w.six {
		headers = headersSix
	}
	f := Finding{Status: Note, Found: fmt.Sprintf("clients' packets of %d bytes do not fit: %s", size, path),
		Wanted: fmt.Sprintf("an MTU of %d on the way, or servers that announce an MSS of %d", size+w.overhead, w.inner()-min(headers, w.inner())), Do: help}
	if w.six && w.inner() < leastSix {
		f.Status, f.Wanted = Fail, fmt.Sprintf("an MTU of %d or more on the way", leastSix+w.overhead)
		f.Why = fmt.Sprintf("No IPv6 packet may be asked to be smaller than %d bytes: full ones are lost, and uploads hang.", leastSix)
	}
	return f
}
