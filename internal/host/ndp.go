package host

import (
	"encoding/binary"
	"net/netip"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// Neighbour Discovery for IPv6 (RFC 4861), as far as it takes to ask a neighbour whether
// an address is its own.

const (
	// ipHeader is the length of an IPv6 header (RFC 8200, section 3), neighbourMessage that
	// of a solicitation or an advertisement without options (RFC 4861, sections 4.3, 4.4),
	// linkOption that of a link-layer address of Ethernet among those (section 4.6.1, RFC
	// 2464, section 6).
	ipHeader, neighbourMessage, linkOption = 40, 24, 8

	typeSolicitation, typeAdvertisement = 135, 136
	optionSourceLink                    = 1

	// ndHopLimit says that no router has forwarded a packet (sections 4.3 and 7.1).
	ndHopLimit = 255
	// flagSolicited: an advertisement answers a solicitation (section 4.4).
	flagSolicited = 0x40
)

// solicitation is a Neighbor Solicitation (RFC 4861, section 4.3).
type solicitation struct {
	hw             [hardware]byte // the sender's
	source, target netip.Addr
}

// marshal makes a packet of IPv6. It goes to the target's solicited-node address (RFC
// 4291, section 2.7.1), as the question of any neighbour that does not know the answer
// does; to which Ethernet address is for who sends it.
func (s *solicitation) marshal() []byte {
	target := s.target.As16()
	group := netip.AddrFrom16([16]byte{0: 0xff, 1: 2, 11: 1, 12: 0xff, 13: target[13], 14: target[14], 15: target[15]})
	body := []byte{typeSolicitation, 0, 0, 0, 0, 0, 0, 0}
	body = append(body, target[:]...)
	body = append(body, optionSourceLink, linkOption/8)
	body = append(body, s.hw[:]...)
	binary.BigEndian.PutUint16(body[2:], ^onesSum(s.source, group, body))

	b := []byte{6 << 4, 0, 0, 0}
	b = binary.BigEndian.AppendUint16(b, uint16(len(body)))
	b = append(b, unix.IPPROTO_ICMPV6, ndHopLimit)
	b = append(b, s.source.AsSlice()...)
	b = append(b, group.AsSlice()...)
	return append(b, body...)
}

// onesSum is the sum in one's complement of a message of ICMPv6 and its pseudo-header
// (RFC 8200, section 8.1): what is right adds up to 0xffff.
func onesSum(source, destination netip.Addr, body []byte) uint16 {
	sum := uint64(len(body)) + unix.IPPROTO_ICMPV6
	for _, part := range [][]byte{source.AsSlice(), destination.AsSlice(), body} {
		for i, c := range part { // only the last part can have an odd length
			if i%2 == 0 {
				sum += uint64(c) << 8
			} else {
				sum += uint64(c)
			}
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return uint16(sum)
}

// advertisement is a Neighbor Advertisement (RFC 4861, section 4.4).
type advertisement struct {
	target    netip.Addr
	solicited bool
}

// unmarshal says whether bytes are a packet of IPv6 with a valid one (RFC 4861, section
// 7.1.2). One behind extension headers is not looked for: nobody sends it so.
func (a *advertisement) unmarshal(b []byte) bool {
	if len(b) < ipHeader+neighbourMessage || b[0]>>4 != 6 || b[6] != unix.IPPROTO_ICMPV6 || b[7] != ndHopLimit {
		return false
	}
	length := int(binary.BigEndian.Uint16(b[4:]))
	if length < neighbourMessage || len(b) < ipHeader+length { // Ethernet pads what is short
		return false
	}
	source, destination := netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40]))
	body := b[ipHeader : ipHeader+length]
	if body[0] != typeAdvertisement || body[1] != 0 || onesSum(source, destination, body) != 0xffff {
		return false
	}
	a.target, a.solicited = netip.AddrFrom16([16]byte(body[8:24])), body[4]&flagSolicited != 0
	if a.target.IsMulticast() || destination.IsMulticast() && a.solicited {
		return false
	}
	for options := body[neighbourMessage:]; len(options) > 0; {
		if len(options) < 2 || options[1] == 0 || len(options) < 8*int(options[1]) {
			return false
		}
		options = options[8*int(options[1]):]
	}
	return true
}

// discovery asks by Neighbour Discovery.
var discovery = speech{
	name: "neighbour solicitation", ethertype: unix.ETH_P_IPV6,
	// All of IPv6 comes by here: the kernel hands over what may be an advertisement.
	filter: []bpf.Instruction{
		bpf.LoadAbsolute{Off: 6, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.IPPROTO_ICMPV6, SkipTrue: 3},
		bpf.LoadAbsolute{Off: ipHeader, Size: 1},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: typeAdvertisement, SkipTrue: 1},
		bpf.RetConstant{Val: 1 << 16},
		bpf.RetConstant{Val: 0},
	},
	request: func(q *inquiry) []byte {
		s := solicitation{hw: [hardware]byte(q.port.mac), source: q.source, target: q.Addr}
		return s.marshal()
	},
	answer: func(b []byte) (netip.Addr, bool) {
		var a advertisement
		return a.target, a.unmarshal(b) && a.solicited
	},
}
