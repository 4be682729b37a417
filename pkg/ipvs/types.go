package ipvs

import (
	"fmt"
	"net/netip"
	"strconv"
)

// Protocol is the transport protocol of a service, as in <netinet/in.h>.
type Protocol uint16

// The protocols that the kernel's IPVS balances.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// String returns the protocol's lower-case name.
func (p Protocol) String() string {
	switch p {
	case 0:
		return "none"
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return "protocol-" + strconv.Itoa(int(p))
}

// Family is an address family, as in <sys/socket.h>.
type Family uint16

// The two families that IPVS knows. The zero Family on a destination means the
// family of its service, as kernels before 3.18 report none.
const (
	INET  Family = 2
	INET6 Family = 10
)

// String returns "inet" or "inet6".
func (f Family) String() string {
	switch f {
	case INET:
		return "inet"
	case INET6:
		return "inet6"
	}
	return "family-" + strconv.Itoa(int(f))
}

// FamilyOf returns the family of an address; 0 for the zero Addr.
func FamilyOf(a netip.Addr) Family {
	switch {
	case a.Is4(), a.Is4In6():
		return INET
	case a.Is6():
		return INET6
	}
	return 0
}

// ServiceKey identifies a service in the kernel's table: protocol, address and
// port; or, when FWMark is not 0, family and mark alone. It is comparable. For
// an address service Family is that of Addr; for a mark Addr, Port and Protocol
// are zero.
type ServiceKey struct {
	Family   Family
	Protocol Protocol
	Addr     netip.Addr
	Port     uint16
	FWMark   uint32
}

// String returns "192.0.2.1:80/tcp" or "fwmark 5/inet".
func (k ServiceKey) String() string {
	if k.FWMark != 0 {
		return fmt.Sprintf("fwmark %d/%s", k.FWMark, k.Family)
	}
	return netip.AddrPortFrom(k.Addr, k.Port).String() + "/" + k.Protocol.String()
}

// Flags are a service's scheduling flags, from <linux/ip_vs.h>.
type Flags uint32

// Service flags. Hashed is set by the kernel on what it reports and ignored
// when comparing what is wanted with what is there. Sched1 is sh-fallback and
// mh-fallback, Sched2 is sh-port and mh-port (IP_VS_SVC_F_SCHED1..3).
const (
	Persistent Flags = 0x0001
	Hashed     Flags = 0x0002
	OnePacket  Flags = 0x0004
	Sched1     Flags = 0x0008
	Sched2     Flags = 0x0010
	Sched3     Flags = 0x0020
)

// Service is a virtual service as the kernel's table holds it, without
// statistics.
type Service struct {
	ServiceKey
	// Scheduler is the name of a scheduler module without "ip_vs_": "rr", "wlc".
	Scheduler string
	Flags     Flags
	// Timeout is the persistence timeout in seconds; 0 when not persistent.
	Timeout uint32
	// Netmask groups persistent clients: for IPv4 the 32 bits of a dotted mask
	// (255.255.255.255 is 0xffffffff), for IPv6 a prefix length of 1..128. Zero
	// is written as the full mask, which the kernel requires.
	Netmask uint32
	// PersistenceEngine is "" or the name of one ("sip"); only with persistence.
	PersistenceEngine string
}

// ForwardMethod is how a packet reaches a destination (IP_VS_CONN_F_FWD_MASK).
type ForwardMethod uint32

// Forwarding methods, from <linux/ip_vs.h>.
const (
	Masquerade  ForwardMethod = 0
	Local       ForwardMethod = 1
	Tunnel      ForwardMethod = 2
	DirectRoute ForwardMethod = 3
	Bypass      ForwardMethod = 4
)

// String returns the name in keepalived's spelling where it has one.
func (m ForwardMethod) String() string {
	switch m {
	case Masquerade:
		return "NAT"
	case Local:
		return "LOCAL"
	case Tunnel:
		return "TUN"
	case DirectRoute:
		return "DR"
	case Bypass:
		return "BYPASS"
	}
	return "method-" + strconv.Itoa(int(m))
}

// TunnelType is the encapsulation of a Tunnel destination (IP_VS_CONN_F_TUNNEL_TYPE_*).
type TunnelType uint8

// Tunnel types.
const (
	IPIP TunnelType = 0
	GUE  TunnelType = 1
	GRE  TunnelType = 2
)

// TunnelFlags are the checksum flags of a GUE or GRE tunnel
// (IP_VS_TUNNEL_ENCAP_FLAG_*).
type TunnelFlags uint16

// Tunnel checksum flags.
const (
	NoChecksum     TunnelFlags = 0
	Checksum       TunnelFlags = 1
	RemoteChecksum TunnelFlags = 2
)

// DestinationKey identifies a destination within its service.
type DestinationKey struct {
	Addr netip.Addr
	Port uint16
}

// String returns "10.0.0.1:80" or "[2001:db8::1]:80".
func (k DestinationKey) String() string {
	return netip.AddrPortFrom(k.Addr, k.Port).String()
}

// Destination is a real server as the kernel's table holds it, without
// counters. Its family is that of Addr and may differ from the service's (TUN).
type Destination struct {
	DestinationKey
	Forward     ForwardMethod
	TunnelType  TunnelType
	TunnelPort  uint16
	TunnelFlags TunnelFlags
	// Weight is 0..2147483647; 0 means that no new connection is scheduled.
	Weight uint32
	// UpperThreshold and LowerThreshold are connection counts; 0 is no limit.
	UpperThreshold uint32
	LowerThreshold uint32
}

// Counters are a destination's connection counts at the time of a dump, 32 bits
// each as in the kernel.
type Counters struct {
	Active     uint32
	Inactive   uint32
	Persistent uint32
}

// Stats are the kernel's traffic totals and rates (bytes and packets; rates for
// each second).
type Stats struct {
	Connections uint64
	InPackets   uint64
	OutPackets  uint64
	InBytes     uint64
	OutBytes    uint64
	CPS         uint64
	InPPS       uint64
	OutPPS      uint64
	InBPS       uint64
	OutBPS      uint64
}

// ServiceInfo is a service in a dump.
type ServiceInfo struct {
	Service
	Stats Stats
}

// DestinationInfo is a destination in a dump.
type DestinationInfo struct {
	Destination
	Counters Counters
	Stats    Stats
}

// OpKind is what an Op does.
type OpKind uint8

// Operations on the table. Those on a destination need Op.Service only for its
// key.
const (
	OpAddService OpKind = iota + 1
	OpSetService
	OpDelService
	OpAddDest
	OpSetDest
	OpDelDest
)

// String returns a phrase such as "add destination".
func (k OpKind) String() string {
	switch k {
	case OpAddService:
		return "add service"
	case OpSetService:
		return "set service"
	case OpDelService:
		return "delete service"
	case OpAddDest:
		return "add destination"
	case OpSetDest:
		return "set destination"
	case OpDelDest:
		return "delete destination"
	}
	return "operation-" + strconv.Itoa(int(k))
}

// Op is one change of the table, as a value: Batch sends many of them at once.
type Op struct {
	Kind        OpKind
	Service     Service
	Destination Destination
}

// String says what the operation does and to what.
func (o Op) String() string {
	switch o.Kind {
	case OpAddDest, OpSetDest, OpDelDest:
		return fmt.Sprintf("%s %s to %s", o.Kind, o.Destination.DestinationKey, o.Service.ServiceKey)
	default:
		return fmt.Sprintf("%s %s", o.Kind, o.Service.ServiceKey)
	}
}

// Timeouts are the kernel's connection timeouts in seconds (IPVS_CMD_SET_CONFIG).
// Zero leaves a value as it is.
type Timeouts struct {
	TCP    uint32
	TCPFin uint32
	UDP    uint32
}

// Info is what the kernel says of its IPVS (IPVS_CMD_GET_INFO).
type Info struct {
	// Version is the kernel's IPVS version, such as 1.2.1.
	Version [3]uint8
	// ConnTableSize is the number of buckets of the connection table.
	ConnTableSize uint32
}
