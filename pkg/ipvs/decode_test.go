package ipvs

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
)

// encodeAnswer builds an answer with the library's encoder.
func encodeAnswer(t testing.TB, f func(e *netlink.AttributeEncoder)) []byte {
	t.Helper()
	e := netlink.NewAttributeEncoder()
	f(e)
	b, err := e.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte{1, 1, 0, 0}, b...)
}

func nest(e *netlink.AttributeEncoder, typ uint16, f func(e *netlink.AttributeEncoder)) {
	e.Nested(typ, func(e *netlink.AttributeEncoder) error { f(e); return nil })
}

func stats32(e *netlink.AttributeEncoder) {
	for i := uint16(1); i <= 10; i++ {
		if i == statsInBytes || i == statsOutBytes {
			e.Uint64(i, uint64(i)<<40)
		} else {
			e.Uint32(i, uint32(i))
		}
	}
}

func stats64(e *netlink.AttributeEncoder) {
	for i := uint16(1); i <= 10; i++ {
		e.Uint64(i, uint64(i)<<33)
	}
	e.Bytes(11, nil) // padding
}

var (
	want32 = Stats{Connections: 1, InPackets: 2, OutPackets: 3, InBytes: 4 << 40, OutBytes: 5 << 40, CPS: 6, InPPS: 7, OutPPS: 8, InBPS: 9, OutBPS: 10}
	want64 = Stats{Connections: 1 << 33, InPackets: 2 << 33, OutPackets: 3 << 33, InBytes: 4 << 33, OutBytes: 5 << 33, CPS: 6 << 33, InPPS: 7 << 33, OutPPS: 8 << 33, InBPS: 9 << 33, OutBPS: 10 << 33}
)

func raw16(s string) []byte {
	a := netip.MustParseAddr(s)
	if a.Is4() {
		return append(a.AsSlice(), make([]byte, 12)...)
	}
	return a.AsSlice()
}

func bigEndian16(v uint16) []byte { return binary.BigEndian.AppendUint16(nil, v) }

func TestDecodeService(t *testing.T) {
	service := func(f func(e *netlink.AttributeEncoder)) []byte {
		return encodeAnswer(t, func(e *netlink.AttributeEncoder) { nest(e, attrService, f) })
	}
	flags := func(v uint32) []byte {
		return binary.NativeEndian.AppendUint32(binary.NativeEndian.AppendUint32(nil, v), 0xffffffff)
	}
	base := func(e *netlink.AttributeEncoder) {
		e.Uint16(svcAF, uint16(INET))
		e.Uint16(svcProtocol, uint16(TCP))
		e.Bytes(svcAddr, raw16("192.0.2.1"))
		e.Bytes(svcPort, bigEndian16(80))
	}
	v4 := ServiceKey{Family: INET, Protocol: TCP, Addr: netip.MustParseAddr("192.0.2.1"), Port: 80}
	for _, c := range []struct {
		name string
		in   []byte
		want ServiceInfo
	}{
		{"all of it", service(func(e *netlink.AttributeEncoder) {
			base(e)
			e.String(svcSchedName, "wlc")
			e.String(svcPEName, "sip")
			e.Bytes(svcFlags, flags(3))
			e.Uint32(svcTimeout, 300)
			e.Bytes(svcNetmask, []byte{255, 255, 255, 0})
			nest(e, svcStats, stats32)
			nest(e, svcStats64, stats64)
			e.Uint32(99, 1) // of a newer kernel
		}), ServiceInfo{Service{v4, "wlc", Persistent | Hashed, 300, 0xffffff00, "sip"}, want64}},
		{"64-bit statistics first", service(func(e *netlink.AttributeEncoder) {
			base(e)
			nest(e, svcStats64, stats64)
			nest(e, svcStats, stats32)
		}), ServiceInfo{Service{ServiceKey: v4}, want64}},
		{"a kernel without 64-bit statistics", service(func(e *netlink.AttributeEncoder) {
			base(e)
			nest(e, svcStats, stats32)
		}), ServiceInfo{Service{ServiceKey: v4}, want32}},
		{"address before family", service(func(e *netlink.AttributeEncoder) {
			e.Bytes(svcAddr, raw16("2001:db8::"))
			e.Bytes(svcNetmask, binary.NativeEndian.AppendUint32(nil, 64))
			e.Uint16(svcProtocol, uint16(UDP))
			e.Uint16(svcAF, uint16(INET6))
		}), ServiceInfo{Service: Service{ServiceKey: ServiceKey{Family: INET6, Protocol: UDP, Addr: netip.MustParseAddr("2001:db8::")}, Netmask: 64}}},
		{"IPv4 address of four bytes", service(func(e *netlink.AttributeEncoder) {
			e.Uint16(svcAF, uint16(INET))
			e.Uint16(svcProtocol, 0) // of a tool that may write what it likes
			e.Bytes(svcAddr, []byte{192, 0, 2, 1})
		}), ServiceInfo{Service: Service{ServiceKey: ServiceKey{Family: INET, Addr: v4.Addr}}}},
		{"mark", service(func(e *netlink.AttributeEncoder) {
			e.Uint16(svcAF, uint16(INET6))
			e.Uint32(svcFWMark, 5)
			e.Uint16(svcProtocol, uint16(TCP))
		}), ServiceInfo{Service: Service{ServiceKey: ServiceKey{Family: INET6, FWMark: 5}}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := decodeService(c.in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, sameAddrs); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}

	for name, in := range map[string][]byte{
		"nothing":         nil,
		"header only":     {1, 1, 0, 0},
		"short header":    {1, 1, 0},
		"no service":      encodeAnswer(t, func(e *netlink.AttributeEncoder) { e.Uint32(attrTimeoutTCP, 1) }),
		"empty service":   service(func(*netlink.AttributeEncoder) {}),
		"no address":      service(func(e *netlink.AttributeEncoder) { e.Uint16(svcAF, 2); e.Uint16(svcProtocol, 6) }),
		"no protocol":     service(func(e *netlink.AttributeEncoder) { e.Uint16(svcAF, 2); e.Bytes(svcAddr, raw16("192.0.2.1")) }),
		"no family":       service(func(e *netlink.AttributeEncoder) { e.Uint16(svcProtocol, 6); e.Bytes(svcAddr, raw16("192.0.2.1")) }),
		"mark, no family": service(func(e *netlink.AttributeEncoder) { e.Uint32(svcFWMark, 6) }),
		"family 3":        service(func(e *netlink.AttributeEncoder) { base(e); e.Uint16(svcAF, 3) }),
		"short address":   service(func(e *netlink.AttributeEncoder) { base(e); e.Bytes(svcAddr, []byte{192, 0}) }),
		"short IPv6":      service(func(e *netlink.AttributeEncoder) { base(e); e.Uint16(svcAF, 10); e.Bytes(svcAddr, make([]byte, 4)) }),
		"long address":    service(func(e *netlink.AttributeEncoder) { base(e); e.Bytes(svcAddr, make([]byte, 17)) }),
		"short port":      service(func(e *netlink.AttributeEncoder) { base(e); e.Bytes(svcPort, []byte{1}) }),
		"short flags":     service(func(e *netlink.AttributeEncoder) { base(e); e.Uint32(svcFlags, 1) }),
		"short netmask":   service(func(e *netlink.AttributeEncoder) { base(e); e.Uint16(svcNetmask, 1) }),
		"short statistic": service(func(e *netlink.AttributeEncoder) {
			base(e)
			nest(e, svcStats64, func(e *netlink.AttributeEncoder) { e.Uint16(1, 1) })
		}),
		"torn statistics":   service(func(e *netlink.AttributeEncoder) { base(e); e.Bytes(svcStats, []byte{9, 0, 1, 0, 0}) }),
		"torn service":      encodeAnswer(t, func(e *netlink.AttributeEncoder) { e.Bytes(attrService, []byte{9, 0, 1, 0, 0}) }),
		"torn first level":  {1, 1, 0, 0, 9, 0, 1, 0},
		"timeout of 2":      service(func(e *netlink.AttributeEncoder) { base(e); e.Uint16(svcTimeout, 1) }),
		"mark of two bytes": service(func(e *netlink.AttributeEncoder) { base(e); e.Uint16(svcFWMark, 1) }),
	} {
		if got, err := decodeService(in); err == nil || got != (ServiceInfo{}) {
			t.Errorf("%s: %+v, %v, want an error and nothing else", name, got, err)
		}
	}
}

// TestD14DecodeDestination: a destination without a family, as old kernels send it, has
// its service's, whatever its bytes look like.
func TestD14DecodeDestination(t *testing.T) {
	dest := func(f func(e *netlink.AttributeEncoder)) []byte {
		return encodeAnswer(t, func(e *netlink.AttributeEncoder) { nest(e, attrDest, f) })
	}
	all := func(e *netlink.AttributeEncoder) {
		e.Bytes(destAddr, raw16("198.51.100.1"))
		e.Bytes(destPort, bigEndian16(8080))
		e.Uint32(destFwdMethod, uint32(Tunnel)|0x100) // more connection flags
		e.Uint32(destWeight, 3)
		e.Uint32(destUThresh, 100)
		e.Uint32(destLThresh, 50)
		e.Uint32(destActiveConns, 7)
		e.Uint32(destInactConns, 8)
		e.Uint32(destPersistConns, 9)
		e.Uint8(destTunType, uint8(GUE))
		e.Bytes(destTunPort, bigEndian16(6080))
		e.Uint16(destTunFlags, uint16(Checksum))
		nest(e, destStats, stats32)
	}
	want := DestinationInfo{
		Destination: Destination{
			DestinationKey: DestinationKey{netip.MustParseAddr("198.51.100.1"), 8080},
			Forward:        Tunnel, TunnelType: GUE, TunnelPort: 6080, TunnelFlags: Checksum,
			Weight: 3, UpperThreshold: 100, LowerThreshold: 50,
		},
		Counters: Counters{Active: 7, Inactive: 8, Persistent: 9},
		Stats:    want32,
	}
	wantWide := want
	wantWide.Stats = want64
	// The same 16 bytes are another address to another family.
	wantV6 := want
	wantV6.Addr = netip.MustParseAddr("c633:6401::")
	for _, c := range []struct {
		name    string
		in      []byte
		service Family
		want    DestinationInfo
	}{
		{"family given", dest(func(e *netlink.AttributeEncoder) { all(e); e.Uint16(destAddrFamily, uint16(INET)) }), INET6, want},
		{"family missing, in IPv4", dest(all), INET, want},
		{"family missing, in IPv6", dest(all), INET6, wantV6},
		{"family 0", dest(func(e *netlink.AttributeEncoder) { all(e); e.Uint16(destAddrFamily, 0) }), INET6, wantV6},
		{"IPv6 in IPv4", dest(func(e *netlink.AttributeEncoder) { all(e); e.Uint16(destAddrFamily, uint16(INET6)) }), INET, wantV6},
		{"64-bit statistics", dest(func(e *netlink.AttributeEncoder) { all(e); nest(e, destStats64, stats64) }), INET, wantWide},
		{"64-bit statistics first", dest(func(e *netlink.AttributeEncoder) { nest(e, destStats64, stats64); all(e) }), INET, wantWide},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := decodeDestination(c.in, c.service)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, got, sameAddrs); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	for name, in := range map[string][]byte{
		"nothing":        nil,
		"no destination": {1, 1, 0, 0},
		"no address":     dest(func(e *netlink.AttributeEncoder) { e.Uint32(destWeight, 1) }),
		"family 3":       dest(func(e *netlink.AttributeEncoder) { all(e); e.Uint16(destAddrFamily, 3) }),
		"short address":  dest(func(e *netlink.AttributeEncoder) { all(e); e.Bytes(destAddr, []byte{1, 2, 3}) }),
		"short counter":  dest(func(e *netlink.AttributeEncoder) { all(e); e.Uint16(destActiveConns, 1) }),
		"wide counter":   dest(func(e *netlink.AttributeEncoder) { all(e); e.Uint64(destActiveConns, 1) }),
		"tunnel type":    dest(func(e *netlink.AttributeEncoder) { all(e); e.Uint16(destTunType, 1) }),
	} {
		if got, err := decodeDestination(in, INET); err == nil || got != (DestinationInfo{}) {
			t.Errorf("%s: %+v, %v, want an error and nothing else", name, got, err)
		}
	}
}

func TestDecodeConfigAndInfo(t *testing.T) {
	timeouts, err := decodeTimeouts(encodeAnswer(t, func(e *netlink.AttributeEncoder) {
		e.Uint32(attrTimeoutTCP, 900)
		e.Uint32(attrTimeoutTCPFin, 120)
		e.Uint32(attrTimeoutUDP, 300)
	}))
	if want := (Timeouts{900, 120, 300}); err != nil || timeouts != want {
		t.Errorf("%+v, %v, want %+v", timeouts, err, want)
	}
	info, err := decodeInfo(encodeAnswer(t, func(e *netlink.AttributeEncoder) {
		e.Uint32(infoVersion, 0x010201)
		e.Uint32(infoConnTabSize, 4096)
	}))
	if want := (Info{[3]uint8{1, 2, 1}, 4096}); err != nil || info != want {
		t.Errorf("%+v, %v, want %+v", info, err, want)
	}
	short := encodeAnswer(t, func(e *netlink.AttributeEncoder) { e.Uint16(attrTimeoutTCP, 1); e.Uint16(infoVersion, 1) })
	if _, err := decodeTimeouts(short); err == nil {
		t.Error("a timeout of two bytes is taken")
	}
	if _, err := decodeInfo(short); err == nil {
		t.Error("a version of two bytes is taken")
	}
	if _, err := decodeTimeouts(nil); err == nil {
		t.Error("an empty answer is taken")
	}
	if _, err := decodeInfo(bytes.Repeat([]byte{1}, 3)); err == nil {
		t.Error("an answer of three bytes is taken")
	}
}

// The bytes that Linux 6.1 sends for one service and one destination.
const (
	kernelService = `
		010100002c0101000600010002000000060002000600000014000300c000020100000000000000000000000006000400
		0050000007000600727200000c00070003000000ffffffff080008002c01000008000900ffffffff5c000a0008000100
		00000000080002000000000008000300000000000c00040000000000000000000c000500000000000000000008000600
		0000000008000700000000000800080000000000080009000000000008000a00000000007c000c000c00010000000000
		000000000c00020000000000000000000c00030000000000000000000c00040000000000000000000c00050000000000
		000000000c00060000000000000000000c00070000000000000000000c00080000000000000000000c00090000000000
		000000000c000a000000000000000000`
	kernelDestination = `
		05010000500102001400010020010db80000000000000000000000010600020000500000080003000200000008000400
		0500000005000d000100000006000e0017c0000006000f00010000000800050009000000080006000400000008000700
		000000000800080000000000080009000000000006000b000a0000005c000a0008000100000000000800020000000000
		08000300000000000c00040000000000000000000c000500000000000000000008000600000000000800070000000000
		0800080000000000080009000000000008000a00000000007c000c000c00010000000000000000000c00020000000000
		000000000c00030000000000000000000c00040000000000000000000c00050000000000000000000c00060000000000
		000000000c00070000000000000000000c00080000000000000000000c00090000000000000000000c000a0000000000
		00000000`
)

func TestDecodeKernelBytes(t *testing.T) {
	littleEndian(t)
	s, err := decodeService(unhex(t, kernelService))
	if err != nil {
		t.Fatal(err)
	}
	want := ServiceInfo{Service: testService}
	want.Flags, want.Timeout, want.Netmask = Persistent|Hashed, 300, 0xffffffff
	if diff := cmp.Diff(want, s, sameAddrs); diff != "" {
		t.Errorf("service (-want +got):\n%s", diff)
	}
	d, err := decodeDestination(unhex(t, kernelDestination), INET)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(DestinationInfo{Destination: Destination{
		DestinationKey: DestinationKey{netip.MustParseAddr("2001:db8::1"), 80}, Forward: Tunnel,
		TunnelType: GUE, TunnelPort: 6080, TunnelFlags: Checksum, Weight: 5, UpperThreshold: 9, LowerThreshold: 4,
	}}, d, sameAddrs); diff != "" {
		t.Errorf("destination (-want +got):\n%s", diff)
	}
	// Cut off anywhere, it is refused or has less in it, without a panic.
	for _, text := range []string{kernelService, kernelDestination} {
		whole := unhex(t, text)
		for n := range whole {
			_, _ = decodeService(whole[:n])
			_, _ = decodeDestination(whole[:n], INET)
		}
	}
}

func seeds(f *testing.F) {
	f.Add(unhex(f, kernelService))
	f.Add(unhex(f, kernelDestination))
	s := Service{ServiceKey: ServiceKey{Protocol: TCP, Addr: netip.MustParseAddr("192.0.2.1"), Port: 80}, Scheduler: "rr", Flags: Persistent}
	d := Destination{DestinationKey: DestinationKey{netip.MustParseAddr("2001:db8::1"), 80}, Forward: Tunnel, TunnelType: GUE, TunnelPort: 1}
	for k := OpAddService; k <= OpDelDest; k++ {
		b, err := appendOp(nil, 1, 1, Op{Kind: k, Service: s, Destination: d})
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[headerLen:])
	}
	f.Add(encodeAnswer(f, func(e *netlink.AttributeEncoder) {
		nest(e, attrService, func(e *netlink.AttributeEncoder) { nest(e, svcStats64, stats64); nest(e, svcStats, stats32) })
	}))
}

// FuzzDecodeService: an answer is refused or says what could be written again.
func FuzzDecodeService(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := decodeService(data)
		if err != nil {
			return
		}
		if s.FWMark == 0 && FamilyOf(s.Addr) != s.Family && !s.Addr.Is4In6() {
			t.Errorf("%s of family %s", s.Addr, s.Family)
		}
		if s.Family != INET && s.Family != INET6 {
			t.Errorf("family %s", s.Family)
		}
		_, _ = decodeTimeouts(data)
		_, _ = decodeInfo(data)
	})
}

func FuzzDecodeDestination(f *testing.F) {
	seeds(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, family := range []Family{INET, INET6, 0} {
			d, err := decodeDestination(data, family)
			if err == nil && !d.Addr.IsValid() {
				t.Errorf("no address in %+v", d)
			}
		}
	})
}

// FuzzReceive: a datagram of any content ends an exchange, or is skipped.
func FuzzReceive(f *testing.F) {
	f.Add([]byte{20, 0, 0, 0, 2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{20, 0, 0, 0, 3, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Add([]byte{52, 0, 0, 0, 2, 0, 0, 3, 1, 0, 0, 0, 0, 0, 0, 0, 234, 255, 255, 255, 20, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 12, 0, 1, 0, 'b', 'a', 'd', 0, 0, 0, 0, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		op := Op{Kind: OpDelService, Service: Service{ServiceKey: ServiceKey{Family: INET, FWMark: 1}}}
		s := &scripted{answer: func([]byte) []any { return []any{data} }}
		c := newConn(s, DefaultTimeout)
		c.seq = 0
		_ = c.batch(t.Context(), []Op{op, op}, make([]error, 2))
		c.seq = 0
		_, _ = list(t.Context(), c, nil, cmdGetService, nil, decodeService,
			func(x, y *ServiceInfo) int { return compareServices(&x.ServiceKey, &y.ServiceKey) })
		c.seq = 0
		_, _ = c.call(t.Context(), cmdGetInfo, nil, func([]byte) error { return nil })
	})
}
