package ipvs

import (
	"encoding/binary"
	"errors"
	"math"
	"net/netip"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

var sameAddrs = cmpopts.EquateComparable(netip.Addr{})

// The literal bytes are those of a little-endian machine.
func littleEndian(t *testing.T) {
	if binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		t.Skip("the expected bytes are little-endian")
	}
}

func TestEncodeLiteral(t *testing.T) {
	littleEndian(t)
	v4 := Service{
		ServiceKey: ServiceKey{Family: INET, Protocol: TCP, Addr: netip.MustParseAddr("192.0.2.1"), Port: 80},
		Scheduler:  "wlc",
	}
	persistent := v4
	persistent.Flags, persistent.Timeout, persistent.Netmask, persistent.PersistenceEngine = Persistent|Hashed|Sched1, 300, 0xffffff00, "sip"
	v6 := Service{
		ServiceKey: ServiceKey{Protocol: SCTP, Addr: netip.MustParseAddr("2001:db8::1"), Port: 443},
		Scheduler:  "rr",
	}
	mark := Service{ServiceKey: ServiceKey{Family: INET6, FWMark: 5}, Scheduler: "rr"}
	nat := Destination{DestinationKey: DestinationKey{Addr: netip.MustParseAddr("198.51.100.1"), Port: 8080}, Weight: 3, UpperThreshold: 100, LowerThreshold: 50}
	gue := Destination{
		DestinationKey: DestinationKey{Addr: netip.MustParseAddr("2001:db8::2"), Port: 80},
		Forward:        Tunnel, TunnelType: GUE, TunnelPort: 6080, TunnelFlags: RemoteChecksum, Weight: 1,
	}
	gre := gue
	gre.TunnelType = GRE
	key4 := `3000 0100  0600 0100 0200 0000  0600 0200 0600 0000
		1400 0300 c0000201 00000000 00000000 00000000  0600 0400 0050 0000`
	for _, c := range []struct {
		name string
		op   Op
		want string
	}{
		{"add service", Op{Kind: OpAddService, Service: v4}, `
			68000000 1c00 0100 2a000000 00000000  01 01 0000
			5400 0100  0600 0100 0200 0000  0600 0200 0600 0000
			1400 0300 c0000201 00000000 00000000 00000000  0600 0400 0050 0000
			0800 0600 776c6300  0c00 0700 00000000 ffffffff
			0800 0800 00000000  0800 0900 ffffffff`},
		{"set persistent service", Op{Kind: OpSetService, Service: persistent}, `
			70000000 1c00 0100 2a000000 00000000  02 01 0000
			5c00 0100  0600 0100 0200 0000  0600 0200 0600 0000
			1400 0300 c0000201 00000000 00000000 00000000  0600 0400 0050 0000
			0800 0600 776c6300  0800 0b00 73697000  0c00 0700 09000000 ffffffff
			0800 0800 2c010000  0800 0900 ffffff00`},
		{"add IPv6 service", Op{Kind: OpAddService, Service: v6}, `
			68000000 1c00 0100 2a000000 00000000  01 01 0000
			5400 0100  0600 0100 0a00 0000  0600 0200 8400 0000
			1400 0300 20010db8 00000000 00000000 00000001  0600 0400 01bb 0000
			0700 0600 72720000  0c00 0700 00000000 ffffffff
			0800 0800 00000000  0800 0900 80000000`},
		{"add service of a mark", Op{Kind: OpAddService, Service: mark}, `
			4c000000 1c00 0100 2a000000 00000000  01 01 0000
			3800 0100  0600 0100 0a00 0000  0800 0500 05000000
			0700 0600 72720000  0c00 0700 00000000 ffffffff
			0800 0800 00000000  0800 0900 80000000`},
		{"delete service", Op{Kind: OpDelService, Service: persistent}, `
			44000000 1c00 0100 2a000000 00000000  03 01 0000` + key4},
		{"add destination", Op{Kind: OpAddDest, Service: persistent, Destination: nat}, `
			8c000000 1c00 0100 2a000000 00000000  05 01 0000` + key4 + `
			4800 0200  0600 0b00 0200 0000
			1400 0100 c6336401 00000000 00000000 00000000  0600 0200 1f90 0000
			0800 0300 00000000  0800 0400 03000000  0800 0500 64000000  0800 0600 32000000`},
		{"set tunnel", Op{Kind: OpSetDest, Service: v4, Destination: gue}, `
			a4000000 1c00 0100 2a000000 00000000  06 01 0000` + key4 + `
			6000 0200  0600 0b00 0a00 0000
			1400 0100 20010db8 00000000 00000000 00000002  0600 0200 0050 0000
			0800 0300 02000000  0800 0400 01000000  0800 0500 00000000  0800 0600 00000000
			0500 0d00 01000000  0600 0e00 17c0 0000  0600 0f00 0200 0000`},
		{"add GRE tunnel", Op{Kind: OpAddDest, Service: v4, Destination: gre}, `
			9c000000 1c00 0100 2a000000 00000000  05 01 0000` + key4 + `
			5800 0200  0600 0b00 0a00 0000
			1400 0100 20010db8 00000000 00000000 00000002  0600 0200 0050 0000
			0800 0300 02000000  0800 0400 01000000  0800 0500 00000000  0800 0600 00000000
			0500 0d00 02000000  0600 0f00 0200 0000`},
		{"delete destination", Op{Kind: OpDelDest, Service: v4, Destination: nat}, `
			6c000000 1c00 0100 2a000000 00000000  07 01 0000` + key4 + `
			2800 0200  0600 0b00 0200 0000
			1400 0100 c6336401 00000000 00000000 00000000  0600 0200 1f90 0000`},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := appendOp(nil, 0x1c, 42, c.op)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(unhex(t, c.want), got); diff != "" {
				t.Errorf("got %x (-want +got):\n%s", got, diff)
			}
			// It also goes behind what is there.
			behind, err := appendOp([]byte("1234"), 0x1c, 42, c.op)
			if err != nil || string(behind) != "1234"+string(got) {
				t.Errorf("appended: %x, %v", behind, err)
			}
		})
	}
}

func TestEncodeTimeouts(t *testing.T) {
	littleEndian(t)
	for _, c := range []struct {
		in   Timeouts
		want string
	}{
		{Timeouts{}, ""},
		{Timeouts{TCP: 900, TCPFin: 120, UDP: 300}, "0800 0400 84030000 0800 0500 78000000 0800 0600 2c010000"},
		{Timeouts{UDP: 1}, "0800 0600 01000000"},
	} {
		if diff := cmp.Diff(unhex(t, c.want), appendTimeouts([]byte{}, c.in)); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.in, diff)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	good := Service{ServiceKey: ServiceKey{Protocol: TCP, Addr: netip.MustParseAddr("192.0.2.1"), Port: 80}, Scheduler: "rr"}
	dest := Destination{DestinationKey: DestinationKey{Addr: netip.MustParseAddr("198.51.100.1"), Port: 80}}
	service := func(f func(*Service)) Op {
		s := good
		f(&s)
		return Op{Kind: OpAddService, Service: s}
	}
	destination := func(f func(*Destination)) Op {
		d := dest
		f(&d)
		return Op{Kind: OpAddDest, Service: good, Destination: d}
	}
	for name, op := range map[string]Op{
		"no kind":           {Service: good, Destination: dest},
		"unknown kind":      {Kind: OpDelDest + 1, Service: good, Destination: dest},
		"no address":        service(func(s *Service) { s.Addr = netip.Addr{} }),
		"wrong family":      service(func(s *Service) { s.Family = INET6 }),
		"long scheduler":    service(func(s *Service) { s.Scheduler = "1234567890123456" }),
		"protocol":          service(func(s *Service) { s.Protocol = 1 }),
		"no protocol":       service(func(s *Service) { s.Protocol = 0 }),
		"endless":           service(func(s *Service) { s.Flags, s.Timeout = Persistent, MaxPersistence+1 }),
		"no destination":    destination(func(d *Destination) { d.Addr = netip.Addr{} }),
		"forwarding method": destination(func(d *Destination) { d.Forward = 5 }),
		"huge method":       destination(func(d *Destination) { d.Forward = 8 }),
		"tunnel type":       destination(func(d *Destination) { d.Forward, d.TunnelType = Tunnel, 3 }),
	} {
		b, err := appendOp([]byte("kept"), 1, 1, op)
		if !errors.Is(err, syscall.EINVAL) || string(b) != "kept" {
			t.Errorf("%s: %q, %v, want EINVAL and nothing appended", name, b, err)
		}
	}
	// What another tool wrote can be deleted.
	for _, op := range []Op{
		{Kind: OpDelService, Service: Service{ServiceKey: ServiceKey{Addr: good.Addr, Protocol: 1}}},
		{Kind: OpDelDest, Service: good, Destination: Destination{DestinationKey: dest.DestinationKey, Forward: 7, TunnelType: 9}},
	} {
		if _, err := appendOp(nil, 1, 1, op); err != nil {
			t.Errorf("%s: %v", op, err)
		}
	}
}

func TestCanonical(t *testing.T) {
	mapped := netip.MustParseAddr("::ffff:192.0.2.1")
	for _, c := range []struct{ in, want Service }{
		{
			Service{ServiceKey: ServiceKey{Addr: mapped, Port: 80, Protocol: TCP}, Flags: Hashed | OnePacket, Timeout: 5, Netmask: 7, PersistenceEngine: "sip"},
			Service{ServiceKey: ServiceKey{Family: INET, Addr: mapped.Unmap(), Port: 80, Protocol: TCP}, Flags: OnePacket, Netmask: math.MaxUint32},
		},
		{
			Service{ServiceKey: ServiceKey{Family: INET6, FWMark: 3, Addr: mapped, Port: 80, Protocol: TCP}, Flags: Persistent, Timeout: 5},
			Service{ServiceKey: ServiceKey{Family: INET6, FWMark: 3}, Flags: Persistent, Timeout: 5, Netmask: 128},
		},
		{
			Service{ServiceKey: ServiceKey{Addr: netip.MustParseAddr("2001:db8::1%eth0")}, Flags: Persistent, Netmask: 64, PersistenceEngine: "sip"},
			Service{ServiceKey: ServiceKey{Family: INET6, Addr: netip.MustParseAddr("2001:db8::1")}, Flags: Persistent, Netmask: 64, PersistenceEngine: "sip"},
		},
	} {
		got := c.in.Canonical()
		if diff := cmp.Diff(c.want, got, sameAddrs); diff != "" {
			t.Errorf("%+v (-want +got):\n%s", c.in, diff)
		}
		if again := got.Canonical(); again != got {
			t.Errorf("twice gives %+v, once %+v", again, got)
		}
	}
}

func drawAddr(t *rapid.T, f Family, label string) netip.Addr {
	if f == INET {
		return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, label)))
	}
	// Not a mapped one: that is an IPv4 address.
	a := netip.AddrFrom16([16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, label)))
	if a.Is4In6() {
		return netip.IPv6Unspecified()
	}
	return a
}

func drawFamily(t *rapid.T, label string) Family {
	return rapid.SampledFrom([]Family{INET, INET6}).Draw(t, label)
}

func drawService(t *rapid.T) Service {
	f := drawFamily(t, "family")
	s := Service{
		Scheduler:         rapid.StringMatching(`[a-z]{1,15}`).Draw(t, "scheduler"),
		Flags:             Flags(rapid.Uint32().Draw(t, "flags")),
		Timeout:           rapid.Uint32Max(MaxPersistence).Draw(t, "timeout"),
		PersistenceEngine: rapid.StringMatching(`[a-z]{0,16}`).Draw(t, "engine"),
	}
	if f == INET6 {
		s.Netmask = rapid.Uint32Max(128).Draw(t, "prefix")
	} else {
		s.Netmask = rapid.Uint32().Draw(t, "netmask")
	}
	if rapid.Bool().Draw(t, "is a mark") {
		s.ServiceKey = ServiceKey{Family: f, FWMark: rapid.Uint32Min(1).Draw(t, "mark")}
		return s
	}
	s.ServiceKey = ServiceKey{
		Family:   f,
		Protocol: rapid.SampledFrom([]Protocol{TCP, UDP, SCTP}).Draw(t, "protocol"),
		Addr:     drawAddr(t, f, "address"),
		Port:     rapid.Uint16().Draw(t, "port"),
	}
	return s
}

func drawDestination(t *rapid.T, f Family) Destination {
	return Destination{
		DestinationKey: DestinationKey{Addr: drawAddr(t, f, "destination"), Port: rapid.Uint16().Draw(t, "port")},
		Forward:        ForwardMethod(rapid.Uint32Max(uint32(Bypass)).Draw(t, "method")),
		TunnelType:     TunnelType(rapid.Uint8Max(uint8(GRE)).Draw(t, "tunnel type")),
		TunnelPort:     rapid.Uint16().Draw(t, "tunnel port"),
		TunnelFlags:    TunnelFlags(rapid.Uint16().Draw(t, "tunnel flags")),
		Weight:         rapid.Uint32().Draw(t, "weight"),
		UpperThreshold: rapid.Uint32().Draw(t, "upper"),
		LowerThreshold: rapid.Uint32().Draw(t, "lower"),
	}
}

// TestRoundTrip: what is written in canonical form is what is read. The kernel
// reports in the attributes that it takes.
func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawService(t)
		msg, err := appendOp(nil, 1, 1, Op{Kind: OpAddService, Service: s})
		if err != nil {
			t.Fatal(err)
		}
		got, err := decodeService(msg[headerLen:])
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(ServiceInfo{Service: s.Canonical()}, got, sameAddrs); diff != "" {
			t.Fatalf("service (-want +got):\n%s", diff)
		}

		d := drawDestination(t, drawFamily(t, "destination's family"))
		msg, err = appendOp(nil, 1, 1, Op{Kind: OpAddDest, Service: s, Destination: d})
		if err != nil {
			t.Fatal(err)
		}
		// The service's family must not matter where the destination's is given.
		for _, f := range []Family{INET, INET6} {
			got, err := decodeDestination(msg[headerLen:], f)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(DestinationInfo{Destination: d.Canonical()}, got, sameAddrs); diff != "" {
				t.Fatalf("destination (-want +got):\n%s", diff)
			}
		}
	})
}
