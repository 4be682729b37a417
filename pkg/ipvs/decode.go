package ipvs

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

var errIncomplete = errors.New("answer lacks a mandatory attribute")

// body strips the generic netlink header.
func body(data []byte) ([]byte, error) {
	if len(data) < genlHeaderLen {
		return nil, errShort
	}
	return data[genlHeaderLen:], nil
}

// nested finds the first attribute of a type.
func nested(b []byte, typ uint16) ([]byte, error) {
	a := attrs{b: b}
	for a.next() {
		if a.typ == typ {
			return a.data, nil
		}
	}
	if a.err != nil {
		return nil, a.err
	}
	return nil, errIncomplete
}

// decodeAddr reads a union nf_inet_addr. The family is never guessed from the
// bytes: an IPv6 address may well end in twelve zeros.
func decodeAddr(raw []byte, f Family) (netip.Addr, error) {
	switch {
	case f == INET && (len(raw) == 16 || len(raw) == 4):
		return netip.AddrFrom4([4]byte(raw[:4])), nil
	case f == INET6 && len(raw) == 16:
		return netip.AddrFrom16([16]byte(raw)), nil
	case f != INET && f != INET6:
		return netip.Addr{}, fmt.Errorf("unknown address family %d", f)
	}
	return netip.Addr{}, errShort
}

// decodeService reads one message of a service dump or the answer to a get, from
// behind the netlink header.
func decodeService(data []byte) (ServiceInfo, error) {
	var s ServiceInfo
	b, err := body(data)
	if err != nil {
		return s, err
	}
	if b, err = nested(b, attrService); err != nil {
		return s, err
	}
	var (
		addr     []byte
		mask     [4]byte
		hasMask  bool
		hasProto bool
		stats64  bool
	)
	a := attrs{b: b}
	for a.next() {
		switch a.typ {
		case svcAF:
			s.Family = Family(a.uint16())
		case svcProtocol:
			s.Protocol, hasProto = Protocol(a.uint16()), true
		case svcAddr:
			addr = a.data
		case svcPort:
			s.Port = a.port()
		case svcFWMark:
			s.FWMark = a.uint32()
		case svcSchedName:
			s.Scheduler = a.name()
		case svcPEName:
			s.PersistenceEngine = a.name()
		case svcFlags:
			// struct ip_vs_flags: flags, mask.
			if a.sized(8) {
				s.Flags = Flags(binary.NativeEndian.Uint32(a.data))
			}
		case svcTimeout:
			s.Timeout = a.uint32()
		case svcNetmask:
			if a.sized(4) {
				mask, hasMask = [4]byte(a.data), true
			}
		case svcStats:
			if !stats64 {
				a.stats(&s.Stats)
			}
		case svcStats64:
			stats64 = true
			a.stats(&s.Stats)
		}
	}
	if a.err != nil {
		return ServiceInfo{}, a.err
	}
	switch {
	case s.FWMark != 0:
		if s.Family != INET && s.Family != INET6 {
			return ServiceInfo{}, fmt.Errorf("unknown address family %d", s.Family)
		}
		s.ServiceKey = ServiceKey{Family: s.Family, FWMark: s.FWMark}
	case addr == nil || !hasProto:
		return ServiceInfo{}, errIncomplete
	default:
		if s.Addr, err = decodeAddr(addr, s.Family); err != nil {
			return ServiceInfo{}, err
		}
	}
	switch {
	case !hasMask:
	case s.Family == INET6:
		s.Netmask = binary.NativeEndian.Uint32(mask[:]) // a prefix length
	default:
		s.Netmask = binary.BigEndian.Uint32(mask[:])
	}
	return s, nil
}

// decodeDestination reads one message of a destination dump. A kernel that names
// no family means that of the service.
func decodeDestination(data []byte, service Family) (DestinationInfo, error) {
	var d DestinationInfo
	b, err := body(data)
	if err != nil {
		return d, err
	}
	if b, err = nested(b, attrDest); err != nil {
		return d, err
	}
	var (
		addr    []byte
		family  Family
		stats64 bool
	)
	a := attrs{b: b}
	for a.next() {
		switch a.typ {
		case destAddrFamily:
			family = Family(a.uint16())
		case destAddr:
			addr = a.data
		case destPort:
			d.Port = a.port()
		case destFwdMethod:
			d.Forward = ForwardMethod(a.uint32() & fwdMask)
		case destWeight:
			d.Weight = a.uint32()
		case destUThresh:
			d.UpperThreshold = a.uint32()
		case destLThresh:
			d.LowerThreshold = a.uint32()
		case destActiveConns:
			d.Counters.Active = a.uint32()
		case destInactConns:
			d.Counters.Inactive = a.uint32()
		case destPersistConns:
			d.Counters.Persistent = a.uint32()
		case destTunType:
			d.TunnelType = TunnelType(a.uint8())
		case destTunPort:
			d.TunnelPort = a.port()
		case destTunFlags:
			d.TunnelFlags = TunnelFlags(a.uint16())
		case destStats:
			if !stats64 {
				a.stats(&d.Stats)
			}
		case destStats64:
			stats64 = true
			a.stats(&d.Stats)
		}
	}
	if a.err != nil {
		return DestinationInfo{}, a.err
	}
	if addr == nil {
		return DestinationInfo{}, errIncomplete
	}
	if family == 0 {
		family = service
	}
	if d.Addr, err = decodeAddr(addr, family); err != nil {
		return DestinationInfo{}, err
	}
	return d, nil
}

// stats replaces s by the current attribute's content.
func (a *attrs) stats(s *Stats) {
	*s = Stats{}
	n := attrs{b: a.data}
	for n.next() {
		switch n.typ {
		case statsConns:
			s.Connections = n.uint()
		case statsInPkts:
			s.InPackets = n.uint()
		case statsOutPkts:
			s.OutPackets = n.uint()
		case statsInBytes:
			s.InBytes = n.uint()
		case statsOutBytes:
			s.OutBytes = n.uint()
		case statsCPS:
			s.CPS = n.uint()
		case statsInPPS:
			s.InPPS = n.uint()
		case statsOutPPS:
			s.OutPPS = n.uint()
		case statsInBPS:
			s.InBPS = n.uint()
		case statsOutBPS:
			s.OutBPS = n.uint()
		}
	}
	if n.err != nil {
		a.err = n.err
	}
}

// decodeTimeouts reads the answer to cmdGetConfig.
func decodeTimeouts(data []byte) (Timeouts, error) {
	b, err := body(data)
	if err != nil {
		return Timeouts{}, err
	}
	var t Timeouts
	a := attrs{b: b}
	for a.next() {
		switch a.typ {
		case attrTimeoutTCP:
			t.TCP = a.uint32()
		case attrTimeoutTCPFin:
			t.TCPFin = a.uint32()
		case attrTimeoutUDP:
			t.UDP = a.uint32()
		}
	}
	return t, a.err
}

// decodeInfo reads the answer to cmdGetInfo.
func decodeInfo(data []byte) (Info, error) {
	b, err := body(data)
	if err != nil {
		return Info{}, err
	}
	var i Info
	a := attrs{b: b}
	for a.next() {
		switch a.typ {
		case infoVersion:
			v := a.uint32() // NVERSION: 0x010201 is 1.2.1
			i.Version = [3]uint8{uint8(v >> 16), uint8(v >> 8), uint8(v)}
		case infoConnTabSize:
			i.ConnTableSize = a.uint32()
		}
	}
	return i, a.err
}
