package lane

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"

	"github.com/jsimonetti/rtnetlink/v2"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/host"
)

// What follows is what package rtnetlink does not have: rules with attributes that it
// does not know, routes with an encapsulation, tunnels.

var nativeEndian = binary.NativeEndian

const (
	sizeofRule = 12
	// invert is FIB_RULE_INVERT.
	invert = 2
)

// Attributes of tunnels, linux/if_tunnel.h, and of encapsulations, linux/lwtunnel.h.
const (
	iptunLocal, iptunRemote, iptunFlags                      = 2, 3, 8
	iptunEncapType, iptunEncapFlags, iptunDPort, iptunExtern = 15, 16, 18, 19
	greFlags, greExtern                                      = 13, 18

	encapGUE                     = 2
	encapCsum, encapCsum6        = 1, 2
	encapRemCsum                 = 4
	ignoreEncapLimit             = 1
	lwtIP, lwtIP6                = 2, 4
	lwtID, lwtDst, lwtSrc        = 1, 2, 3
	lwtFlags                     = 6
	tunnelCsum            uint16 = 1
)

// alias is what people see of a device of ours.
const alias = "sluice check_via"

func encodeRule(r rule, v verb) ([]byte, error) {
	head := make([]byte, sizeofRule)
	head[0], head[7] = r.family, r.action
	if r.not {
		nativeEndian.PutUint32(head[8:], invert)
	}
	e := netlink.NewAttributeEncoder()
	e.Uint32(unix.FRA_PRIORITY, r.pref)
	// Who made the local rule, we do not ask when it is moved.
	if v == add || r.protocol == host.Protocol {
		e.Uint8(unix.FRA_PROTOCOL, r.protocol)
	}
	if r.table != 0 {
		e.Uint32(unix.FRA_TABLE, r.table)
	}
	if r.mask != 0 {
		e.Uint32(unix.FRA_FWMARK, r.mark)
		e.Uint32(unix.FRA_FWMASK, r.mask)
	}
	if r.to != 0 {
		e.Uint32(unix.FRA_GOTO, r.to)
	}
	attrs, err := e.Encode()
	return append(head, attrs...), err
}

var errShort = errors.New("a message is too short")

func decodeRule(b []byte) (rule, error) {
	if len(b) < sizeofRule {
		return rule{}, errShort
	}
	r := rule{family: b[0], table: uint32(b[4]), action: b[7], not: nativeEndian.Uint32(b[8:])&invert != 0}
	r.more = b[1] != 0 || b[2] != 0 || b[3] != 0
	d, err := netlink.NewAttributeDecoder(b[sizeofRule:])
	if err != nil {
		return r, err
	}
	for d.Next() {
		switch d.Type() {
		case unix.FRA_PRIORITY:
			r.pref = d.Uint32()
		case unix.FRA_PROTOCOL:
			r.protocol = d.Uint8()
		case unix.FRA_TABLE:
			r.table = d.Uint32()
		case unix.FRA_FWMARK:
			r.mark = d.Uint32()
		case unix.FRA_FWMASK:
			r.mask = d.Uint32()
		case unix.FRA_GOTO:
			r.to = d.Uint32()
		case unix.FRA_SUPPRESS_PREFIXLEN, unix.FRA_SUPPRESS_IFGROUP:
			r.more = r.more || d.Uint32() != 0xffffffff
		case unix.FRA_UNSPEC, unix.FRA_PAD:
		default:
			r.more = true
		}
	}
	return r, d.Err()
}

func encodeRoute(r route, index uint32) ([]byte, error) {
	m := &rtnetlink.RouteMessage{Family: r.family, DstLength: uint8(r.to.Bits()), Protocol: host.Protocol, Type: r.kind}
	m.Attributes = rtnetlink.RouteAttributes{Table: r.table, Priority: r.metric, OutIface: index}
	if r.to.Bits() != 0 {
		m.Attributes.Dst = r.to.Addr().AsSlice()
	}
	if r.source.IsValid() {
		m.Attributes.Src = r.source.AsSlice()
	}
	switch {
	case r.gateway.IsValid():
		m.Attributes.Gateway, m.Flags = r.gateway.AsSlice(), unix.RTNH_F_ONLINK
	case r.kind == unix.RTN_UNICAST && r.family == unix.AF_INET:
		m.Scope = unix.RT_SCOPE_LINK
	}
	b, err := m.MarshalBinary()
	if err != nil || !r.encap.dst.IsValid() {
		return b, err
	}
	kind := uint16(lwtIP)
	if r.encap.dst.Is6() {
		kind = lwtIP6
	}
	e := netlink.NewAttributeEncoder()
	e.Uint16(unix.RTA_ENCAP_TYPE, kind)
	e.Nested(unix.RTA_ENCAP, func(e *netlink.AttributeEncoder) error {
		e.Bytes(lwtDst, r.encap.dst.AsSlice())
		e.Bytes(lwtSrc, r.encap.src.AsSlice())
		if r.encap.csum {
			e.Bytes(lwtFlags, binary.BigEndian.AppendUint16(nil, tunnelCsum))
		}
		return nil
	})
	attrs, err := e.Encode()
	return append(b, attrs...), err
}

// decodeRoute tells besides whether a route is in a table of ours.
func (k *linux) decodeRoute(b []byte) (route, bool, error) {
	var m rtnetlink.RouteMessage
	if err := m.UnmarshalBinary(b); err != nil {
		return route{}, false, err
	}
	table := m.Attributes.Table
	if m.Protocol != host.Protocol || table < 256 || m.Flags&unix.RTM_F_CLONED != 0 {
		return route{}, false, nil
	}
	r := route{family: m.Family, kind: m.Type, table: table, metric: m.Attributes.Priority}
	addr := netip.IPv4Unspecified()
	if m.Family == unix.AF_INET6 {
		addr = netip.IPv6Unspecified()
	}
	if a, ok := netip.AddrFromSlice(m.Attributes.Dst); ok {
		addr = a
	}
	r.to = netip.PrefixFrom(addr, int(m.DstLength))
	r.source, _ = netip.AddrFromSlice(m.Attributes.Src)
	r.gateway, _ = netip.AddrFromSlice(m.Attributes.Gateway)
	if m.Type == unix.RTN_UNICAST {
		r.device = k.names[m.Attributes.OutIface]
	}
	d, err := netlink.NewAttributeDecoder(b[unix.SizeofRtMsg:])
	if err != nil {
		return r, false, err
	}
	for d.Next() {
		if d.Type() == unix.RTA_ENCAP {
			d.Nested(func(d *netlink.AttributeDecoder) error {
				for d.Next() {
					switch d.Type() {
					case lwtDst:
						r.encap.dst, _ = netip.AddrFromSlice(d.Bytes())
					case lwtSrc:
						r.encap.src, _ = netip.AddrFromSlice(d.Bytes())
					case lwtFlags:
						if f := d.Bytes(); len(f) == 2 {
							r.encap.csum = binary.BigEndian.Uint16(f)&tunnelCsum != 0
						}
					}
				}
				return nil
			})
		}
	}
	return r, true, d.Err()
}

func encodeDevice(d device) ([]byte, error) {
	e := netlink.NewAttributeEncoder()
	e.String(unix.IFLA_IFNAME, d.name)
	e.Uint32(unix.IFLA_GROUP, host.Protocol)
	e.Nested(unix.IFLA_LINKINFO, func(e *netlink.AttributeEncoder) error {
		e.String(unix.IFLA_INFO_KIND, d.kind)
		e.Nested(unix.IFLA_INFO_DATA, func(e *netlink.AttributeEncoder) error {
			switch d.kind {
			case "ip6tnl":
				e.Uint32(iptunFlags, ignoreEncapLimit) // as IPVS sends
			case "ip6gre":
				e.Uint32(greFlags, ignoreEncapLimit)
			}
			switch {
			case d.external && (d.kind == "gre" || d.kind == "ip6gre"):
				e.Flag(greExtern, true)
			case d.external:
				e.Flag(iptunExtern, true)
			default:
				e.Bytes(iptunLocal, d.local.AsSlice())
				e.Bytes(iptunRemote, d.remote.AsSlice())
			}
			if d.port != 0 {
				e.Uint16(iptunEncapType, encapGUE)
				e.Bytes(iptunDPort, binary.BigEndian.AppendUint16(nil, d.port))
				e.Uint16(iptunEncapFlags, encapFlags(d.checksum))
			}
			return nil
		})
		return nil
	})
	attrs, err := e.Encode()
	return append(make([]byte, unix.SizeofIfInfomsg), attrs...), err
}

func encapFlags(c config.Checksum) uint16 {
	switch c {
	case config.Csum:
		return encapCsum | encapCsum6
	case config.RemCsum:
		return encapCsum | encapCsum6 | encapRemCsum
	}
	return 0
}

// decodeDevice reads a device's attributes; ours are told by group and name.
func decodeDevice(b []byte) (dev device, ours bool) {
	a, err := netlink.NewAttributeDecoder(b)
	if err != nil {
		return device{}, false
	}
	group := uint32(0)
	for a.Next() {
		switch a.Type() {
		case unix.IFLA_IFNAME:
			dev.name = a.String()
		case unix.IFLA_GROUP:
			group = a.Uint32()
		case unix.IFLA_LINKINFO:
			a.Nested(func(a *netlink.AttributeDecoder) error {
				for a.Next() {
					switch a.Type() {
					case unix.IFLA_INFO_KIND:
						dev.kind = a.String()
					case unix.IFLA_INFO_DATA:
						if dev.kind != "gre" && dev.kind != "ip6gre" && dev.kind != "ipip" && dev.kind != "sit" && dev.kind != "ip6tnl" {
							continue // of kinds that others know
						}
						a.Nested(dev.decodeTunnel)
					}
				}
				return nil
			})
		}
	}
	ours = a.Err() == nil && group == host.Protocol && (strings.HasPrefix(dev.name, prefixAll) || strings.HasPrefix(dev.name, prefixOne)) &&
		(dev.external || dev.remote.IsValid())
	return dev, ours
}

func (d *device) decodeTunnel(a *netlink.AttributeDecoder) error {
	gre := strings.HasSuffix(d.kind, "gre")
	var port, flags, kind uint16
	for a.Next() {
		switch t := a.Type(); {
		case gre && t == greExtern, !gre && t == iptunExtern:
			d.external = true
		case gre:
		case t == iptunLocal:
			d.local, _ = netip.AddrFromSlice(a.Bytes())
		case t == iptunRemote:
			d.remote, _ = netip.AddrFromSlice(a.Bytes())
		case t == iptunEncapType:
			kind = a.Uint16()
		case t == iptunEncapFlags:
			flags = a.Uint16()
		case t == iptunDPort:
			if b := a.Bytes(); len(b) == 2 {
				port = binary.BigEndian.Uint16(b)
			}
		}
	}
	if d.external {
		d.local, d.remote = netip.Addr{}, netip.Addr{}
	}
	if kind == encapGUE {
		d.port = port
		for _, c := range []config.Checksum{config.Csum, config.RemCsum} {
			if flags&7 == encapFlags(c) {
				d.checksum = c
			}
		}
	}
	return nil
}

// encodeName asks for one device.
func encodeName(name string) []byte {
	e := netlink.NewAttributeEncoder()
	e.String(unix.IFLA_IFNAME, name)
	attrs, _ := e.Encode() // of one string there is no error
	return append(make([]byte, unix.SizeofIfInfomsg), attrs...)
}

// encodeUp sets a device up and names it for people.
func encodeUp(index uint32) ([]byte, error) {
	head := make([]byte, unix.SizeofIfInfomsg)
	nativeEndian.PutUint32(head[4:], index)
	nativeEndian.PutUint32(head[8:], unix.IFF_UP)
	nativeEndian.PutUint32(head[12:], unix.IFF_UP)
	e := netlink.NewAttributeEncoder()
	e.String(unix.IFLA_IFALIAS, alias)
	attrs, err := e.Encode()
	return append(head, attrs...), err
}
