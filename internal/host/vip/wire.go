package vip

import (
	"encoding/binary"
	"net/netip"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/host"
)

const (
	dummy = "dummy"
	// ifaProto is IFA_PROTO of linux/if_addr.h, since 5.18.
	ifaProto = 11
)

// Sizes of the fixed part of messages.
const (
	sizeAddress = unix.SizeofIfAddrmsg
	sizeLink    = unix.SizeofIfInfomsg
	sizeRoute   = unix.SizeofRtMsg
)

func family(a netip.Addr) uint8 {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

// encode makes an op's messages. A device is made by two: the kernel takes no alias while
// it makes one.
func encode(o op) ([]netlink.Message, error) {
	switch o.do {
	case makeLink:
		alias := Alias
		made, err := message(unix.RTM_NEWLINK, netlink.Create|netlink.Excl, &rtnetlink.LinkMessage{
			Attributes: &rtnetlink.LinkAttributes{Name: o.name, Info: &rtnetlink.LinkInfo{Kind: dummy}},
		})
		if err != nil {
			return nil, err
		}
		named, err := message(unix.RTM_NEWLINK, 0, &rtnetlink.LinkMessage{
			Flags: unix.IFF_UP, Change: unix.IFF_UP,
			Attributes: &rtnetlink.LinkAttributes{Name: o.name, Alias: &alias},
		})
		return []netlink.Message{made, named}, err
	case raiseLink:
		return one(message(unix.RTM_NEWLINK, 0, &rtnetlink.LinkMessage{Index: o.index, Flags: unix.IFF_UP, Change: unix.IFF_UP}))
	case dropLink:
		return one(message(unix.RTM_DELLINK, 0, &rtnetlink.LinkMessage{Index: o.index}))
	case addAddress:
		return one(addressMessage(unix.RTM_NEWADDR, netlink.Create|netlink.Excl, o))
	case dropAddress:
		return one(addressMessage(unix.RTM_DELADDR, 0, o))
	case addRoute:
		// Appended: the kernel's own route of the same address must not be replaced.
		return one(message(unix.RTM_NEWROUTE, netlink.Create|netlink.Append, routeMessage(o)))
	default:
		return one(message(unix.RTM_DELROUTE, 0, routeMessage(o)))
	}
}

func one(m netlink.Message, err error) ([]netlink.Message, error) {
	return []netlink.Message{m}, err
}

func message(kind netlink.HeaderType, flags netlink.HeaderFlags, m rtnetlink.Message) (netlink.Message, error) {
	b, err := m.MarshalBinary()
	return netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request | flags}, Data: b}, err
}

func routeMessage(o op) *rtnetlink.RouteMessage {
	scope := uint8(unix.RT_SCOPE_HOST)
	if !o.addr.Is4() {
		scope = unix.RT_SCOPE_UNIVERSE
	}
	return &rtnetlink.RouteMessage{
		Family: family(o.addr), DstLength: uint8(o.addr.BitLen()), Table: unix.RT_TABLE_LOCAL,
		Protocol: host.Protocol, Scope: scope, Type: unix.RTN_LOCAL,
		Attributes: rtnetlink.RouteAttributes{Dst: o.addr.AsSlice(), OutIface: o.index, Table: unix.RT_TABLE_LOCAL},
	}
}

// addressMessage is written here, as the library's has no IFA_PROTO.
func addressMessage(kind netlink.HeaderType, flags netlink.HeaderFlags, o op) (netlink.Message, error) {
	ae := netlink.NewAttributeEncoder()
	ae.Bytes(unix.IFA_LOCAL, o.addr.AsSlice())
	ae.Bytes(unix.IFA_ADDRESS, o.addr.AsSlice())
	if kind == unix.RTM_NEWADDR {
		ae.Uint8(ifaProto, host.Protocol)
		if !o.addr.Is4() {
			ae.Uint32(unix.IFA_FLAGS, unix.IFA_F_NODAD)
		}
	}
	attributes, err := ae.Encode()
	b := make([]byte, sizeAddress, sizeAddress+len(attributes))
	b[0], b[1] = family(o.addr), uint8(o.addr.BitLen())
	b[3] = unix.RT_SCOPE_UNIVERSE
	binary.NativeEndian.PutUint32(b[4:], o.index)
	return netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request | flags}, Data: append(b, attributes...)}, err
}

// decodeLink reads what we need of a device, and nothing of what drivers say. ok is false
// of a message that is none.
func decodeLink(b []byte) (l link, ok bool) {
	if len(b) < sizeLink {
		return l, false
	}
	l.index, l.flags = binary.NativeEndian.Uint32(b[4:]), binary.NativeEndian.Uint32(b[8:])
	ad, err := netlink.NewAttributeDecoder(b[sizeLink:])
	if err != nil {
		return l, false
	}
	for ad.Next() {
		switch ad.Type() {
		case unix.IFLA_IFNAME:
			l.name = ad.String()
		case unix.IFLA_IFALIAS:
			l.alias = ad.String()
		case unix.IFLA_LINKINFO:
			ad.Nested(func(ad *netlink.AttributeDecoder) error {
				for ad.Next() {
					if ad.Type() == unix.IFLA_INFO_KIND {
						l.kind = ad.String()
					}
				}
				return nil
			})
		}
	}
	return l, ad.Err() == nil && l.name != ""
}

// decodeAddress reads an address and where it is. ok is false of a message that is none,
// and of an address that means something on its link only.
func decodeAddress(b []byte) (a netip.Addr, s spot, ok bool) {
	if len(b) < sizeAddress {
		return a, s, false
	}
	s.bits, s.index = b[1], binary.NativeEndian.Uint32(b[4:])
	ad, err := netlink.NewAttributeDecoder(b[sizeAddress:])
	if err != nil {
		return a, s, false
	}
	var local, address []byte
	for ad.Next() {
		switch ad.Type() {
		case unix.IFA_LOCAL:
			local = ad.Bytes()
		case unix.IFA_ADDRESS:
			address = ad.Bytes()
		case ifaProto:
			s.proto = ad.Uint8()
		}
	}
	if local == nil { // IPv6 has it with a peer only
		local = address
	}
	a, ok = netip.AddrFromSlice(local)
	return a, s, ok && ad.Err() == nil && family(a) == b[0] && !(a.Is6() && a.IsLinkLocalUnicast())
}

// decodeRoute reads a route of ours in the table local.
func decodeRoute(b []byte) (a netip.Addr, ok bool) {
	if len(b) < sizeRoute || b[4] != unix.RT_TABLE_LOCAL || b[5] != host.Protocol || b[7] != unix.RTN_LOCAL {
		return a, false
	}
	ad, err := netlink.NewAttributeDecoder(b[sizeRoute:])
	if err != nil {
		return a, false
	}
	for ad.Next() {
		if ad.Type() == unix.RTA_DST {
			a, ok = netip.AddrFromSlice(ad.Bytes())
		}
	}
	return a, ok && ad.Err() == nil && int(b[1]) == a.BitLen() && family(a) == b[0]
}
