package ipvstest

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// What is written is what is read.

func emptyTable(t *testing.T, k Kernel) {
	ss, err := k.Services(t.Context())
	must(t, err)
	if ss == nil || len(ss) != 0 {
		t.Errorf("services of an empty table: %#v, want an empty list", ss)
	}
	checkDestinations(t, k, address(ipvs.TCP, "192.0.2.1:80").ServiceKey, nil)
	checkTable(t, k, nil)
}

func schedulers(t *testing.T, k Kernel) {
	names := Schedulers()
	if c, ok := k.(Chooser); ok {
		names = c.Schedulers()
	}
	want := make(map[ipvs.Service][]ipvs.Destination)
	for i, n := range names {
		s := address(ipvs.TCP, fmt.Sprintf("192.0.2.1:%d", 1000+i), scheduler(n))
		ds := []ipvs.Destination{dest("198.51.100.1:80"), dest("198.51.100.2:80", weight(3))}
		add(t, k, s, ds...)
		want[s] = ds
	}
	checkTable(t, k, want)
}

func services(t *testing.T, k Kernel) {
	want := make(map[ipvs.Service][]ipvs.Destination)
	for _, s := range []ipvs.Service{
		address(ipvs.TCP, "192.0.2.1:80"),
		address(ipvs.UDP, "192.0.2.1:80"),
		address(ipvs.SCTP, "192.0.2.1:80"),
		address(ipvs.TCP, "[2001:db8::1]:80"),
		address(ipvs.UDP, "[2001:db8::1]:80"),
		address(ipvs.SCTP, "[2001:db8::1]:80"),
		// Twelve zero bytes at the end make an IPv6 address look like IPv4.
		address(ipvs.TCP, "[2001:db8::]:80"),
		address(ipvs.TCP, "[c000:201::]:80"),
		mark(ipvs.INET, 1),
		mark(ipvs.INET, 0xffffffff),
		mark(ipvs.INET6, 1, scheduler("rr")),

		address(ipvs.TCP, "192.0.2.2:80", persistent(300)),
		address(ipvs.TCP, "192.0.2.3:80", persistentMask(1, 0xffffff00)),
		address(ipvs.TCP, "192.0.2.4:0", persistentMask(86400, 0xffff0000)),
		address(ipvs.TCP, "192.0.2.4:1", persistentMask(ipvs.MaxPersistence, 0x80000000)),
		address(ipvs.TCP, "[2001:db8::2]:80", persistent(300)),
		address(ipvs.TCP, "[2001:db8::3]:80", persistentMask(60, 64)),
		address(ipvs.TCP, "[2001:db8::4]:80", persistentMask(60, 1)),
		mark(ipvs.INET, 2, persistentMask(300, 0xfffffffe)),
		mark(ipvs.INET6, 2, persistentMask(300, 48)),
		address(ipvs.UDP, "192.0.2.5:5060", persistent(300), engine("sip")),
		address(ipvs.UDP, "[2001:db8::5]:5060", persistentMask(300, 128), engine("sip"), flags(ipvs.OnePacket)),

		address(ipvs.UDP, "192.0.2.6:53", flags(ipvs.OnePacket)),
		address(ipvs.TCP, "192.0.2.7:80", scheduler("sh"), flags(ipvs.Sched1)),
		address(ipvs.TCP, "192.0.2.8:80", scheduler("sh"), flags(ipvs.Sched1|ipvs.Sched2)),
		address(ipvs.TCP, "192.0.2.9:80", scheduler("mh"), flags(ipvs.Sched2)),
		address(ipvs.TCP, "192.0.2.10:80", flags(ipvs.Sched1|ipvs.Sched2|ipvs.Sched3)),

		// What only persistence uses is not written without it.
		address(ipvs.TCP, "192.0.2.11:80", netmask(0xffffff00), engine("sip"),
			func(s *ipvs.Service) { s.Timeout = 7 }),
		// Hashed is the kernel's.
		address(ipvs.TCP, "192.0.2.12:80", flags(ipvs.Hashed)),
		// A mapped address is an IPv4 address.
		address(ipvs.TCP, "192.0.2.13:80", func(s *ipvs.Service) { s.Addr = netip.MustParseAddr("::ffff:192.0.2.13") }),
		// The family may be left to the address.
		address(ipvs.TCP, "[2001:db8::6]:80", func(s *ipvs.Service) { s.Family = 0 }),
		// No port and no persistence: ipvsadm refuses it, the kernel does not.
		address(ipvs.TCP, "192.0.2.14:0"),
	} {
		add(t, k, s)
		want[s] = nil
	}
	checkTable(t, k, want)
}

func forwardingMethods(t *testing.T, k Kernel) {
	v4 := []ipvs.Destination{
		dest("198.51.100.1:8080", method(ipvs.Masquerade)),
		dest("198.51.100.2:80", method(ipvs.DirectRoute)),
		dest("198.51.100.3:80", tunnel(ipvs.IPIP, 0, 0)),
		dest("198.51.100.4:80", tunnel(ipvs.GUE, 6080, ipvs.NoChecksum)),
		dest("198.51.100.5:80", tunnel(ipvs.GUE, 65535, ipvs.Checksum)),
		dest("198.51.100.6:80", tunnel(ipvs.GUE, 1, ipvs.RemoteChecksum)),
		dest("198.51.100.7:80", tunnel(ipvs.GRE, 0, ipvs.NoChecksum)),
		dest("198.51.100.8:80", tunnel(ipvs.GRE, 0, ipvs.Checksum)),
		dest("198.51.100.9:80", method(ipvs.Local)),
		dest("198.51.100.10:80", method(ipvs.Bypass)),
		dest("[2001:db8::10]:80", tunnel(ipvs.IPIP, 0, 0)),
		dest("[2001:db8:1::]:80", tunnel(ipvs.GUE, 6080, ipvs.Checksum)),
		dest("198.51.100.11:0", weight(0)),
		dest("198.51.100.11:80", weight(1<<31-1)),
		dest("198.51.100.12:80", thresholds(100, 0)),
		dest("198.51.100.12:81", thresholds(100, 100)),
		dest("198.51.100.12:82", thresholds(1<<31-1, 1<<31-1)),
		// What only tunnels use is not written without one.
		dest("198.51.100.13:80", func(d *ipvs.Destination) { d.TunnelType, d.TunnelPort, d.TunnelFlags = ipvs.GUE, 9, 1 }),
		dest("198.51.100.13:81", tunnel(ipvs.IPIP, 9, ipvs.Checksum)),
		dest("198.51.100.13:82", tunnel(ipvs.GRE, 9, ipvs.Checksum)),
		dest("198.51.100.14:80", func(d *ipvs.Destination) { d.Addr = netip.MustParseAddr("::ffff:198.51.100.14") }),
		dest("127.0.0.1:80"),
		dest("240.0.0.1:80"),
		dest("0.1.2.3:80"),
	}
	v6 := []ipvs.Destination{
		dest("[2001:db8::1]:8080", method(ipvs.Masquerade)),
		dest("[2001:db8::2]:80", method(ipvs.DirectRoute)),
		dest("[2001:db8::3]:80", tunnel(ipvs.IPIP, 0, 0)),
		dest("[2001:db8::4]:80", tunnel(ipvs.GUE, 6080, ipvs.RemoteChecksum)),
		dest("[2001:db8::5]:80", tunnel(ipvs.GRE, 0, ipvs.Checksum)),
		dest("[2001:db8::]:80"),
		dest("[c633:6401::]:80"), // the bytes of 198.51.100.1 and twelve zeros
		dest("198.51.100.1:80", tunnel(ipvs.IPIP, 0, 0)),
	}
	want := map[ipvs.Service][]ipvs.Destination{
		address(ipvs.TCP, "192.0.2.1:80"):      v4,
		address(ipvs.UDP, "192.0.2.1:80"):      v4,
		address(ipvs.SCTP, "192.0.2.1:80"):     v4,
		mark(ipvs.INET, 1):                     v4,
		address(ipvs.TCP, "[2001:db8::1]:80"):  v6,
		address(ipvs.UDP, "[2001:db8::1]:80"):  v6,
		address(ipvs.SCTP, "[2001:db8::1]:80"): v6,
		mark(ipvs.INET6, 1):                    v6,
	}
	for s, ds := range want {
		add(t, k, s, ds...)
	}
	checkTable(t, k, want)
}

func setService(t *testing.T, k Kernel) {
	first := address(ipvs.TCP, "192.0.2.1:80")
	ds := []ipvs.Destination{dest("198.51.100.1:80"), dest("198.51.100.2:80")}
	add(t, k, first, ds...)
	for _, s := range []ipvs.Service{
		address(ipvs.TCP, "192.0.2.1:80", scheduler("sh"), flags(ipvs.Sched1|ipvs.Sched2)),
		address(ipvs.TCP, "192.0.2.1:80", persistentMask(300, 0xffffff00)),
		address(ipvs.TCP, "192.0.2.1:80", persistent(20), engine("sip")),
		// The mask of flags is all ones: what is not given is cleared.
		address(ipvs.TCP, "192.0.2.1:80"),
		address(ipvs.TCP, "192.0.2.1:80", flags(ipvs.OnePacket)),
		address(ipvs.TCP, "192.0.2.1:80", scheduler("rr")),
	} {
		must(t, k.SetService(t.Context(), s))
		checkTable(t, k, map[ipvs.Service][]ipvs.Destination{s: ds})
	}
}

func setDestination(t *testing.T, k Kernel) {
	s := address(ipvs.TCP, "192.0.2.1:80")
	first, last := dest("198.51.100.1:80"), dest("198.51.100.3:80")
	add(t, k, s, first, dest("198.51.100.2:80"), last)
	for _, d := range []ipvs.Destination{
		dest("198.51.100.2:80", weight(0)),
		dest("198.51.100.2:80", weight(5), thresholds(10, 5)),
		dest("198.51.100.2:80", tunnel(ipvs.GUE, 6080, ipvs.Checksum)),
		// A method without tunnel puts the tunnel's type back to its default.
		dest("198.51.100.2:80", method(ipvs.DirectRoute)),
		dest("198.51.100.2:80"),
	} {
		must(t, k.SetDest(t.Context(), s, d))
		// It stays where it was in the list.
		checkTable(t, k, map[ipvs.Service][]ipvs.Destination{s: {first, d, last}})
	}
	// Of the service only the key matters.
	bare := ipvs.Service{ServiceKey: s.ServiceKey, Scheduler: "no-such", Flags: ipvs.Persistent}
	must(t, k.SetDest(t.Context(), bare, dest("198.51.100.2:80", weight(9))))
	checkTable(t, k, map[ipvs.Service][]ipvs.Destination{s: {first, dest("198.51.100.2:80", weight(9)), last}})
}
