package filter

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/edge"
)

// marksChain is the one chain of a table of nftables_ipvs.
const marksChain = "in"

// protocols that a group's addresses can have, with the word in the names of their maps.
var protocols = []struct {
	number byte
	name   string
}{{unix.IPPROTO_TCP, "tcp"}, {unix.IPPROTO_UDP, "udp"}, {unix.IPPROTO_SCTP, "sctp"}}

// markingOf returns the tables of nftables_ipvs: one for each family that has addresses.
func markingOf(want *edge.Marking) []*table {
	if want == nil {
		return nil
	}
	four := marksOf(want, nftables.TableFamilyIPv4, nftables.TypeIPAddr)
	six := marksOf(want, nftables.TableFamilyIPv6, nftables.TypeIP6Addr)
	for m, value := range want.Marks {
		t := four
		a := m.Addr.Addr().Unmap().WithZone("")
		if a.Is6() {
			t = six
		}
		for i, p := range protocols {
			switch {
			case p.number != byte(m.Protocol):
			case m.Addr.Port() == 0:
				t.sets[2*i].elements[address(a)] = valueOf(value)
			default:
				t.sets[2*i+1].elements[address(a)+port(m.Addr.Port())] = valueOf(value)
			}
		}
	}
	return slices.DeleteFunc([]*table{four, six}, func(t *table) bool {
		return !slices.ContainsFunc(t.sets, func(s *set) bool { return len(s.elements) > 0 })
	})
}

// valueOf is a mark as the value of a map.
func valueOf(m uint32) string { return string(binary.BigEndian.AppendUint32(nil, m)) }

// marksOf returns one family's table with maps that are empty, two for each protocol: of
// addresses with every port, and of addresses with one, which counts if both match.
func marksOf(want *edge.Marking, family nftables.TableFamily, addr nftables.SetDatatype) *table {
	t := &table{id: id{family, want.Table}}
	ch := &chain{name: marksChain, base: true, priority: want.Priority}
	t.chains = []*chain{ch}
	daddr := &expr.Payload{DestRegister: first, Base: expr.PayloadBaseNetworkHeader, Offset: 16, Len: 4}
	behind := uint32(second)
	if family == nftables.TableFamilyIPv6 {
		daddr.Offset, daddr.Len, behind = 24, 16, unix.NFT_REG_2
	}
	for _, p := range protocols {
		every := newSet(p.name+"_every_map", addr, 0)
		one := newSet(p.name+"_map", nftables.MustConcatSetType(addr, nftables.TypeInetService), len(want.Marks))
		for _, s := range []*set{every, one} {
			s.data = nftables.TypeMark
			rule := []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: first}, equal(p.number), daddr}
			if s == one {
				rule = append(rule, dport(behind))
			}
			rule = append(rule, &expr.Lookup{SourceRegister: first, DestRegister: first, IsDestRegSet: true, SetName: s.name})
			// A map says of its keys in which order their bytes are and not of its values,
			// which people would read the wrong way round in any but the network's.
			rule = append(rule, &expr.Byteorder{SourceRegister: first, DestRegister: first, Op: expr.ByteorderNtoh, Len: 4, Size: 4})
			if want.Counters {
				rule = append(rule, &expr.Counter{})
			}
			rule = append(rule, &expr.Meta{Key: expr.MetaKeyMARK, SourceRegister: true, Register: first})
			ch.rules = append(ch.rules, rule)
			t.sets = append(t.sets, s)
		}
	}
	return t
}

// replaceable says why a table with the name of ours must not be replaced: it is neither
// ours nor keepalived's.
func replaceable(t *table) error {
	if t.ours {
		return nil
	}
	var foreign []string
	for _, c := range t.chains {
		if c.name != marksChain {
			foreign = append(foreign, "chain "+c.name)
		}
	}
	for _, s := range t.sets {
		if !strings.HasSuffix(s.name, "_map") && !strings.HasPrefix(s.name, "__") {
			foreign = append(foreign, "set "+s.name)
		}
	}
	if len(foreign) == 0 {
		return nil
	}
	slices.Sort(foreign)
	const most = 3
	more := ""
	if len(foreign) > most {
		more = fmt.Sprintf(" and %d more", len(foreign)-most)
		foreign = foreign[:most]
	}
	return fmt.Errorf("table %s is somebody else's, it has %s%s, and is left alone; give nftables_ipvs the name of a table that is free",
		t, strings.Join(foreign, ", "), more)
}
