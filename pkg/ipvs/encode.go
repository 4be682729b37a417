package ipvs

import (
	"encoding/binary"
	"fmt"
	"math"
	"net/netip"
	"syscall"
)

// Bounds of what is written.
const (
	// The longest names that the kernel's policy takes (IP_VS_SCHEDNAME_MAXLEN and
	// IP_VS_PENAME_MAXLEN with their NUL).
	maxScheduler = 15
	maxEngine    = 16

	// MaxPersistence is the longest persistence timeout in seconds (49 days). The
	// kernel multiplies it by its clock rate, 1000 Hz at most, in 32 bits, and
	// takes what is left of a longer one without a word.
	MaxPersistence = math.MaxUint32 / 1000
)

// FullMask returns the netmask that groups nothing: 0xffffffff for IPv4, 128 for
// IPv6.
func FullMask(f Family) uint32 {
	if f == INET6 {
		return 128
	}
	return 0xffffffff
}

// Wanted returns the flags that a caller can choose: all but Hashed, which the
// kernel sets on whatever it reports.
func (f Flags) Wanted() Flags { return f &^ Hashed }

// Canonical returns the key as the kernel reports it: an address unmapped, its
// family filled in; for a mark nothing but mark and family.
func (k ServiceKey) Canonical() ServiceKey {
	if k.FWMark != 0 {
		return ServiceKey{Family: k.Family, FWMark: k.FWMark}
	}
	k.Addr = k.Addr.Unmap().WithZone("")
	if k.Family == 0 {
		k.Family = FamilyOf(k.Addr)
	}
	return k
}

// Canonical returns what writing the service leaves in the table, without the
// Hashed flag: two services with the same canonical form need no operation. What
// only persistence uses is at its default without it.
func (s Service) Canonical() Service {
	s.ServiceKey = s.ServiceKey.Canonical()
	s.Flags = s.Flags.Wanted()
	if s.Flags&Persistent == 0 {
		s.Timeout, s.Netmask, s.PersistenceEngine = 0, 0, ""
	}
	if s.Netmask == 0 {
		s.Netmask = FullMask(s.Family)
	}
	return s
}

// Canonical returns the key as the kernel reports it: the address unmapped.
func (k DestinationKey) Canonical() DestinationKey {
	k.Addr = k.Addr.Unmap().WithZone("")
	return k
}

// Canonical returns what writing the destination leaves in the table: two
// destinations with the same canonical form need no operation. What only tunnels
// use is zero without one, and so are an IPIP tunnel's port and flags and a GRE
// tunnel's port.
func (d Destination) Canonical() Destination {
	d.DestinationKey = d.DestinationKey.Canonical()
	switch {
	case d.Forward != Tunnel:
		d.TunnelType, d.TunnelPort, d.TunnelFlags = 0, 0, 0
	case d.TunnelType == IPIP:
		d.TunnelPort, d.TunnelFlags = 0, 0
	case d.TunnelType == GRE:
		d.TunnelPort = 0
	}
	return d
}

// check reports what cannot be put on the wire or would mean something else
// there.
func (k ServiceKey) check() error {
	switch {
	case k.FWMark != 0:
		return nil
	case !k.Addr.IsValid():
		return fmt.Errorf("service has neither address nor mark: %w", syscall.EINVAL)
	case k.Family != FamilyOf(k.Addr):
		return fmt.Errorf("%s is no %s address: %w", k.Addr, k.Family, syscall.EINVAL)
	}
	return nil
}

// checkService and checkDestination refuse what the kernel would take and then
// not work with, or as something else; what the kernel itself refuses is left to
// it. Deleting and reading are not concerned: others may have written it.
func checkService(s Service) error {
	switch {
	case len(s.Scheduler) > maxScheduler, len(s.PersistenceEngine) > maxEngine:
		return fmt.Errorf("name of scheduler or persistence engine is too long: %w", syscall.EINVAL)
	case s.FWMark == 0 && s.Protocol != TCP && s.Protocol != UDP && s.Protocol != SCTP:
		return fmt.Errorf("IPVS does not balance %s: %w", s.Protocol, syscall.EINVAL)
	case s.Timeout > MaxPersistence:
		return fmt.Errorf("persistence timeout %d s is above %d s: %w", s.Timeout, MaxPersistence, syscall.EINVAL)
	}
	return nil
}

func checkDestination(d Destination) error {
	switch {
	case d.Forward > Bypass:
		return fmt.Errorf("unknown forwarding method %d: %w", d.Forward, syscall.EINVAL)
	case d.TunnelType > GRE:
		return fmt.Errorf("unknown tunnel type %d: %w", d.TunnelType, syscall.EINVAL)
	}
	return nil
}

func appendAddr(b []byte, typ uint16, a netip.Addr) []byte {
	// union nf_inet_addr: an IPv4 address in the first four of 16 bytes.
	var raw [16]byte
	if a.Is4() {
		v4 := a.As4()
		copy(raw[:], v4[:])
	} else {
		raw = a.As16()
	}
	return appendBytes(b, typ, raw[:])
}

// appendServiceKey appends the service attribute of a command that needs only to
// find it. k is canonical.
func appendServiceKey(b []byte, k ServiceKey) []byte {
	start := len(b)
	b = appendKeyFields(beginNested(b, attrService), k)
	endNested(b, start)
	return b
}

func appendKeyFields(b []byte, k ServiceKey) []byte {
	b = appendUint16(b, svcAF, uint16(k.Family))
	if k.FWMark != 0 {
		return appendUint32(b, svcFWMark, k.FWMark)
	}
	b = appendUint16(b, svcProtocol, uint16(k.Protocol))
	b = appendAddr(b, svcAddr, k.Addr)
	return appendPort(b, svcPort, k.Port)
}

// appendService appends the service attribute of a command that writes it. s is
// canonical.
func appendService(b []byte, s Service) []byte {
	start := len(b)
	b = appendKeyFields(beginNested(b, attrService), s.ServiceKey)
	b = appendString(b, svcSchedName, s.Scheduler)
	if s.PersistenceEngine != "" {
		b = appendString(b, svcPEName, s.PersistenceEngine)
	}
	// struct ip_vs_flags. The mask is all ones: what is not wanted is cleared.
	b = appendAttrHeader(b, svcFlags, 8)
	b = binary.NativeEndian.AppendUint32(b, uint32(s.Flags))
	b = binary.NativeEndian.AppendUint32(b, 0xffffffff)
	b = appendUint32(b, svcTimeout, s.Timeout)
	if s.Family == INET6 {
		b = appendUint32(b, svcNetmask, s.Netmask) // a prefix length
	} else {
		b = binary.BigEndian.AppendUint32(appendAttrHeader(b, svcNetmask, 4), s.Netmask)
	}
	endNested(b, start)
	return b
}

// appendDestination appends the destination attribute; without full only what
// finds it. d is canonical.
func appendDestination(b []byte, d Destination, full bool) []byte {
	start := len(b)
	b = beginNested(b, attrDest)
	b = appendUint16(b, destAddrFamily, uint16(FamilyOf(d.Addr)))
	b = appendAddr(b, destAddr, d.Addr)
	b = appendPort(b, destPort, d.Port)
	if full {
		b = appendUint32(b, destFwdMethod, uint32(d.Forward))
		b = appendUint32(b, destWeight, d.Weight)
		b = appendUint32(b, destUThresh, d.UpperThreshold)
		b = appendUint32(b, destLThresh, d.LowerThreshold)
		if d.Forward == Tunnel {
			b = appendUint8(b, destTunType, uint8(d.TunnelType))
			if d.TunnelType == GUE {
				b = appendPort(b, destTunPort, d.TunnelPort)
			}
			if d.TunnelType != IPIP {
				b = appendUint16(b, destTunFlags, uint16(d.TunnelFlags))
			}
		}
	}
	endNested(b, start)
	return b
}

var opCommands = [...]uint8{
	OpAddService: cmdNewService,
	OpSetService: cmdSetService,
	OpDelService: cmdDelService,
	OpAddDest:    cmdNewDest,
	OpSetDest:    cmdSetDest,
	OpDelDest:    cmdDelDest,
}

// appendOp appends the request for one operation. An error leaves b as it was.
func appendOp(b []byte, family uint16, seq uint32, op Op) ([]byte, error) {
	if op.Kind < OpAddService || op.Kind > OpDelDest {
		return b, fmt.Errorf("unknown operation: %w", syscall.EINVAL)
	}
	s := op.Service.Canonical()
	if err := s.ServiceKey.check(); err != nil {
		return b, err
	}
	start := len(b)
	out := beginMessage(b, family, flagRequest, seq, opCommands[op.Kind])
	switch op.Kind {
	case OpAddService, OpSetService:
		if err := checkService(s); err != nil {
			return b, err
		}
		out = appendService(out, s)
	case OpDelService:
		out = appendServiceKey(out, s.ServiceKey)
	default:
		d := op.Destination.Canonical()
		if !d.Addr.IsValid() {
			return b, fmt.Errorf("destination has no address: %w", syscall.EINVAL)
		}
		full := op.Kind != OpDelDest
		if full {
			if err := checkDestination(d); err != nil {
				return b, err
			}
		}
		out = appendServiceKey(out, s.ServiceKey)
		out = appendDestination(out, d, full)
	}
	endMessage(out, start)
	return out, nil
}

// appendTimeouts appends the attributes of cmdSetConfig; a zero is left out.
func appendTimeouts(b []byte, t Timeouts) []byte {
	for _, v := range [...]struct {
		typ   uint16
		value uint32
	}{{attrTimeoutTCP, t.TCP}, {attrTimeoutTCPFin, t.TCPFin}, {attrTimeoutUDP, t.UDP}} {
		if v.value != 0 {
			b = appendUint32(b, v.typ, v.value)
		}
	}
	return b
}
