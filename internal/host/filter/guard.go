package filter

import (
	"encoding/binary"
	"net/netip"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// GuardTable is the guard's table, of family inet.
const GuardTable = "sluice_guard"

const guardPriority = 90

// Protocols with ports that pkg/ipvs has none of.
const dccp, udplite = unix.IPPROTO_DCCP, unix.IPPROTO_UDPLITE

// guardOf returns the table of vip_guard, nil for none.
//
// The rest of a packet's way through it:
//
//	chain input    an address of ours? then check4 or check6
//	chain check4   a segment of a connection, a service, or a mark that is one: in
//	chain refuse   TCP: reset; what else has ports: port unreachable; the rest: in
func guardOf(want *edge.Guard) *table {
	if want == nil {
		return nil
	}
	t := &table{id: id{nftables.TableFamilyINet, GuardTable}}
	four, six := newSides(len(want.Addresses), len(want.Services))
	for _, a := range want.Addresses {
		if a = a.Unmap().WithZone(""); a.Is4() {
			four.vip.elements[address(a)] = ""
		} else {
			six.vip.elements[address(a)] = ""
		}
	}
	for _, k := range want.Services {
		side := four
		if k.Family == ipvs.INET6 {
			side = six
		}
		switch proto := string([]byte{byte(k.Protocol), 0, 0, 0}); {
		case k.FWMark != 0:
			side.marks.elements[number(k.FWMark)] = ""
		case k.Port == 0:
			side.every.elements[proto+address(k.Addr)] = ""
		default:
			side.service.elements[proto+address(k.Addr)+port(k.Port)] = ""
		}
	}
	t.sets = append(four.sets(), six.sets()...)
	t.chains = []*chain{
		{name: "input", base: true, priority: guardPriority, rules: [][]expr.Any{four.entry(), six.entry()}},
		{name: "check4", rules: four.rules()},
		{name: "check6", rules: six.rules()},
		{name: "refuse", rules: refuse()},
	}
	return t
}

// side is one family's half of the guard.
type side struct {
	family                     byte
	chain                      string
	daddr                      *expr.Payload
	vip, service, every, marks *set
	// Registers behind the protocol's: of the address, and of the port.
	addr, port uint32
}

func newSides(addresses, services int) (four, six *side) {
	half := func(suffix string, family byte, t nftables.SetDatatype, offset, port uint32) *side {
		proto, service := nftables.TypeInetProto, nftables.TypeInetService
		return &side{
			family: family, chain: "check" + suffix, addr: second, port: port,
			daddr:   &expr.Payload{DestRegister: second, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: t.Bytes},
			vip:     newSet("vip"+suffix, t, addresses),
			service: newSet("service"+suffix, nftables.MustConcatSetType(proto, t, service), services),
			every:   newSet("every"+suffix, nftables.MustConcatSetType(proto, t), 0),
			marks:   newSet("marks"+suffix, nftables.TypeMark, 0),
		}
	}
	return half("4", unix.NFPROTO_IPV4, nftables.TypeIPAddr, 16, third),
		half("6", unix.NFPROTO_IPV6, nftables.TypeIP6Addr, 24, behind6)
}

func newSet(name string, key nftables.SetDatatype, size int) *set {
	return &set{name: name, key: key, elements: make(map[string]string, size)}
}

func (s *side) sets() []*set { return []*set{s.vip, s.service, s.every, s.marks} }

// Registers of 32 bits as the kernel names them: it gives the first of each 16 bytes the
// number of the large register that it is a part of.
const (
	first   = unix.NFT_REG_1
	second  = unix.NFT_REG32_01
	third   = unix.NFT_REG32_02
	behind6 = unix.NFT_REG32_05
)

// entry leads packets to our addresses to their chain.
func (s *side) entry() []expr.Any {
	daddr := *s.daddr
	daddr.DestRegister = first
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyNFPROTO, Register: first}, equal(s.family),
		&daddr, lookup(s.vip, first),
		&expr.Verdict{Kind: expr.VerdictGoto, Chain: s.chain},
	}
}

func (s *side) rules() [][]expr.Any {
	accept := &expr.Verdict{Kind: expr.VerdictAccept}
	// The family is known in this chain, but nft can name the address only if the rule
	// says so.
	family := &expr.Meta{Key: expr.MetaKeyNFPROTO, Register: first}
	proto := &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: first}
	return [][]expr.Any{
		append(noSYN(), accept),
		{family, equal(s.family), proto, s.daddr, dport(s.port), lookup(s.service, first), accept},
		{family, equal(s.family), proto, s.daddr, lookup(s.every, first), accept},
		{&expr.Meta{Key: expr.MetaKeyMARK, Register: first}, lookup(s.marks, first), accept},
		{&expr.Verdict{Kind: expr.VerdictGoto, Chain: "refuse"}},
	}
}

// noSYN matches TCP segments that open no connection.
func noSYN() []expr.Any {
	const fin, syn, rst, ack = 1, 2, 4, 16
	return []expr.Any{
		&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: first}, equal(unix.IPPROTO_TCP),
		&expr.Payload{DestRegister: first, Base: expr.PayloadBaseTransportHeader, Offset: 13, Len: 1},
		&expr.Bitwise{SourceRegister: first, DestRegister: first, Len: 1, Mask: []byte{fin | syn | rst | ack}, Xor: []byte{0}},
		&expr.Cmp{Op: expr.CmpOpNeq, Register: first, Data: []byte{syn}},
	}
}

// refuse looks at the port of what it refuses: a fragment without one would be refused
// otherwise that a refused packet never was the first of.
func refuse() [][]expr.Any {
	anyPort := &expr.Cmp{Op: expr.CmpOpGte, Register: first, Data: []byte{0, 0}}
	one := func(proto byte, r *expr.Reject) []expr.Any {
		return []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: first}, equal(proto), dport(first), anyPort, r}
	}
	rules := [][]expr.Any{one(unix.IPPROTO_TCP, &expr.Reject{Type: unix.NFT_REJECT_TCP_RST})}
	for _, proto := range []byte{unix.IPPROTO_UDP, unix.IPPROTO_SCTP, dccp, udplite} {
		rules = append(rules, one(proto, &expr.Reject{Type: unix.NFT_REJECT_ICMPX_UNREACH, Code: unix.NFT_REJECT_ICMPX_PORT_UNREACH}))
	}
	return rules
}

func equal(b byte) *expr.Cmp {
	return &expr.Cmp{Op: expr.CmpOpEq, Register: first, Data: []byte{b}}
}

func dport(register uint32) *expr.Payload {
	return &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2}
}

func lookup(s *set, register uint32) *expr.Lookup {
	return &expr.Lookup{SourceRegister: register, SetName: s.name}
}

// The kernel's bytes of keys and values: the network's order, filled up to whole
// registers.
func address(a netip.Addr) string { return string(a.AsSlice()) }

func port(p uint16) string { return string([]byte{byte(p >> 8), byte(p), 0, 0}) }

// number is a mark, in the machine's order.
func number(m uint32) string {
	return string(binary.NativeEndian.AppendUint32(nil, m))
}
