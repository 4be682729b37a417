package ipvstest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// What a Kernel may offer beyond its methods, for the parts of the suite that
// need it.
type (
	// Saver gives what ipvsadm -Sn prints for the table: a reader independent of
	// the one under test.
	Saver interface{ Save(t *testing.T) string }

	// Connector opens one connection that lasts for the rest of the test through
	// a service of 127.0.0.1 whose only destination is on 127.0.0.1 too, reached
	// by Masquerade.
	Connector interface {
		Connect(t *testing.T, s ipvs.ServiceKey, d ipvs.DestinationKey)
	}

	// Sharer gives another way to the same table, as another process has.
	Sharer interface{ Share(t *testing.T) Kernel }

	// Chooser says which schedulers it has; without it, all of Schedulers.
	Chooser interface{ Schedulers() []string }
)

// Conformance runs the suite. open gives an empty table of its own to each
// subtest and closes it by t.Cleanup. It must stand in a place where the loopback
// interface is up and no synchronisation daemon runs.
func Conformance(t *testing.T, open func(t *testing.T) Kernel) {
	for _, s := range []struct {
		name string
		run  func(t *testing.T, k Kernel)
	}{
		{"empty table", emptyTable},
		{"schedulers", schedulers},
		{"services", services},
		{"forwarding methods", forwardingMethods},
		{"set service", setService},
		{"set destination", setDestination},
		{"service errors", serviceErrors},
		{"destination errors", destinationErrors},
		{"order", order},
		{"delete", deletes},
		{"same address, other key", sameAddress},
		{"batch", batch},
		{"big batch", bigBatch},
		{"concurrent change", concurrentChange},
		{"counters", counters},
		{"timeouts", timeouts},
		{"info", info},
		{"zero and flush", zeroAndFlush},
		{"cancelled", cancelled},
		{"closed", closed},
	} {
		t.Run(s.name, func(t *testing.T) { s.run(t, open(t)) })
	}
}

// Addresses are those for documentation (RFC 5737, RFC 3849).
func address(proto ipvs.Protocol, ap string, more ...func(*ipvs.Service)) ipvs.Service {
	a := netip.MustParseAddrPort(ap)
	return with(ipvs.Service{
		ServiceKey: ipvs.ServiceKey{Family: ipvs.FamilyOf(a.Addr()), Protocol: proto, Addr: a.Addr(), Port: a.Port()},
		Scheduler:  "wlc",
	}, more)
}

func mark(f ipvs.Family, m uint32, more ...func(*ipvs.Service)) ipvs.Service {
	return with(ipvs.Service{ServiceKey: ipvs.ServiceKey{Family: f, FWMark: m}, Scheduler: "wlc"}, more)
}

func with(s ipvs.Service, more []func(*ipvs.Service)) ipvs.Service {
	for _, f := range more {
		f(&s)
	}
	return s
}

func scheduler(n string) func(*ipvs.Service)    { return func(s *ipvs.Service) { s.Scheduler = n } }
func flags(f ipvs.Flags) func(*ipvs.Service)    { return func(s *ipvs.Service) { s.Flags |= f } }
func persistent(sec uint32) func(*ipvs.Service) { return persistentMask(sec, 0) }
func engine(name string) func(s *ipvs.Service) {
	return func(s *ipvs.Service) { s.PersistenceEngine = name }
}
func netmask(mask uint32) func(s *ipvs.Service) { return func(s *ipvs.Service) { s.Netmask = mask } }
func persistentMask(sec, mask uint32) func(*ipvs.Service) {
	return func(s *ipvs.Service) {
		s.Flags |= ipvs.Persistent
		s.Timeout, s.Netmask = sec, mask
	}
}

func dest(ap string, more ...func(*ipvs.Destination)) ipvs.Destination {
	a := netip.MustParseAddrPort(ap)
	d := ipvs.Destination{DestinationKey: ipvs.DestinationKey{Addr: a.Addr(), Port: a.Port()}, Weight: 1}
	for _, f := range more {
		f(&d)
	}
	return d
}

func method(m ipvs.ForwardMethod) func(*ipvs.Destination) {
	return func(d *ipvs.Destination) { d.Forward = m }
}

func tunnel(typ ipvs.TunnelType, port uint16, f ipvs.TunnelFlags) func(*ipvs.Destination) {
	return func(d *ipvs.Destination) {
		d.Forward, d.TunnelType, d.TunnelPort, d.TunnelFlags = ipvs.Tunnel, typ, port, f
	}
}

func weight(w uint32) func(*ipvs.Destination) { return func(d *ipvs.Destination) { d.Weight = w } }

func thresholds(upper, lower uint32) func(*ipvs.Destination) {
	return func(d *ipvs.Destination) { d.UpperThreshold, d.LowerThreshold = upper, lower }
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func add(t *testing.T, k Kernel, s ipvs.Service, ds ...ipvs.Destination) {
	t.Helper()
	must(t, k.AddService(t.Context(), s))
	for _, d := range ds {
		must(t, k.AddDest(t.Context(), s, d))
	}
}

// wantError checks an answer, and that it says what it is about.
func wantError(t *testing.T, err error, errno syscall.Errno, is error) {
	t.Helper()
	e, ok := errors.AsType[*ipvs.Error](err)
	if !ok {
		t.Fatalf("got %v (%T), want an *ipvs.Error with %v", err, err, errno)
	}
	if !errors.Is(err, errno) {
		t.Errorf("got %v, want errno %d (%v)", err, int(errno), errno)
	}
	if is != nil && !errors.Is(err, is) {
		t.Errorf("%v does not match %v", err, is)
	}
	if e.Op == "" || e.Service == (ipvs.ServiceKey{}) {
		t.Errorf("%#v names neither operation nor service", e)
	}
}

// checkTable compares the whole table, as dumped and as an independent reader
// sees it, with what was written.
func checkTable(t *testing.T, k Kernel, want map[ipvs.Service][]ipvs.Destination) {
	t.Helper()
	got, err := k.Services(t.Context())
	must(t, err)
	seen := make(map[ipvs.ServiceKey]ipvs.ServiceInfo, len(got))
	for _, s := range got {
		if s.Flags&ipvs.Hashed == 0 {
			t.Errorf("%s: flags %#x lack Hashed", s.ServiceKey, s.Flags)
		}
		if _, dup := seen[s.ServiceKey]; dup {
			t.Errorf("%s is listed twice", s.ServiceKey)
		}
		seen[s.ServiceKey] = s
	}
	if len(got) != len(want) {
		t.Errorf("%d services listed, want %d", len(got), len(want))
	}
	for s, ds := range want {
		s = s.Canonical()
		listed := seen[s.ServiceKey]
		if listed.Canonical() != s || listed.Flags.Wanted() != s.Flags || listed.Netmask != s.Netmask || listed.Timeout != s.Timeout {
			t.Errorf("listed %+v,\nwrote  %+v", listed.Service, s)
		}
		single, err := k.Service(t.Context(), s.ServiceKey)
		must(t, err)
		if single.Service != listed.Service {
			t.Errorf("got %+v alone,\n%+v in the list", single.Service, listed.Service)
		}
		checkDestinations(t, k, s.ServiceKey, ds)
	}
	if sv, ok := k.(Saver); ok {
		checkSaved(t, sv.Save(t), want)
	}
}

// checkDestinations compares a service's destinations with ds in the order of
// addition.
func checkDestinations(t *testing.T, k Kernel, s ipvs.ServiceKey, ds []ipvs.Destination) {
	t.Helper()
	got, err := k.Destinations(t.Context(), s)
	must(t, err)
	if got == nil {
		t.Errorf("destinations of %s: a nil list", s)
	}
	if len(got) != len(ds) {
		t.Errorf("%s: %d destinations listed, want %d", s, len(got), len(ds))
		return
	}
	for i, d := range slices.Backward(ds) {
		if g := got[len(ds)-1-i].Destination; g != d.Canonical() {
			t.Errorf("%s: listed %+v,\nwrote  %+v", s, g, d.Canonical())
		}
	}
}

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

func serviceErrors(t *testing.T, k Kernel) {
	ctx := t.Context()
	s := address(ipvs.TCP, "192.0.2.1:80")
	v6 := address(ipvs.TCP, "[2001:db8::1]:80")
	missing := address(ipvs.TCP, "192.0.2.9:80")
	add(t, k, s)
	add(t, k, v6)

	wantError(t, k.AddService(ctx, s), syscall.EEXIST, fs.ErrExist)
	// Whether it exists is tested before what else is wrong.
	wantError(t, k.AddService(ctx, address(ipvs.TCP, "192.0.2.1:80", scheduler("no-such"))), syscall.EEXIST, fs.ErrExist)
	wantError(t, k.SetService(ctx, missing), syscall.ESRCH, fs.ErrNotExist)
	wantError(t, k.DelService(ctx, missing), syscall.ESRCH, fs.ErrNotExist)
	_, err := k.Service(ctx, missing.ServiceKey)
	wantError(t, err, syscall.ESRCH, fs.ErrNotExist)
	_, err = k.Service(ctx, mark(ipvs.INET, 3).ServiceKey)
	wantError(t, err, syscall.ESRCH, fs.ErrNotExist)
	wantError(t, k.Zero(ctx, missing.ServiceKey), syscall.ESRCH, fs.ErrNotExist)

	for _, c := range []struct {
		name  string
		like  func(*ipvs.Service)
		errno syscall.Errno
		is    error
	}{
		{"unknown scheduler", scheduler("no-such"), syscall.ENOENT, fs.ErrNotExist},
		{"no scheduler", scheduler(""), syscall.ENOENT, fs.ErrNotExist},
		{"scheduler of 15 bytes", scheduler("123456789012345"), syscall.ENOENT, fs.ErrNotExist},
		{"scheduler of 16 bytes", scheduler("1234567890123456"), syscall.EINVAL, nil},
		{"unknown engine", func(s *ipvs.Service) { persistent(1)(s); engine("no-such")(s) }, syscall.ENOENT, fs.ErrNotExist},
		{"engine of 16 bytes", func(s *ipvs.Service) { persistent(1)(s); engine("1234567890123456")(s) }, syscall.ENOENT, fs.ErrNotExist},
		{"engine of 17 bytes", func(s *ipvs.Service) { persistent(1)(s); engine("12345678901234567")(s) }, syscall.EINVAL, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantError(t, k.AddService(ctx, address(ipvs.TCP, "192.0.2.9:80", c.like)), c.errno, c.is)
			wantError(t, k.SetService(ctx, address(ipvs.TCP, "192.0.2.1:80", c.like)), c.errno, c.is)
		})
	}
	wide := persistentMask(300, 129)
	wantError(t, k.AddService(ctx, address(ipvs.TCP, "[2001:db8::9]:80", wide)), syscall.EINVAL, nil)
	wantError(t, k.SetService(ctx, address(ipvs.TCP, "[2001:db8::1]:80", wide)), syscall.EINVAL, nil)
	wantError(t, k.AddService(ctx, mark(ipvs.INET6, 9, wide)), syscall.EINVAL, nil)
	wantError(t, k.AddService(ctx, mark(0, 9)), syscall.EAFNOSUPPORT, nil)
	wantError(t, k.AddService(ctx, mark(28, 9)), syscall.EAFNOSUPPORT, nil)
	wantError(t, k.AddService(ctx, address(1, "192.0.2.9:80")), syscall.EINVAL, nil)
	wantError(t, k.AddService(ctx, address(ipvs.TCP, "192.0.2.9:80", persistent(ipvs.MaxPersistence+1))), syscall.EINVAL, nil)
	wantError(t, k.DelService(ctx, address(1, "192.0.2.9:80")), syscall.ESRCH, fs.ErrNotExist)
	wrong := s
	wrong.Family = ipvs.INET6
	wantError(t, k.AddService(ctx, wrong), syscall.EINVAL, nil)
	nowhere := ipvs.Service{ServiceKey: ipvs.ServiceKey{Family: ipvs.INET, Protocol: ipvs.TCP, Port: 80}, Scheduler: "rr"}
	wantError(t, k.AddService(ctx, nowhere), syscall.EINVAL, nil)
	_, err = k.Destinations(ctx, nowhere.ServiceKey)
	wantError(t, err, syscall.EINVAL, nil)

	// Nothing of it left a trace.
	checkTable(t, k, map[ipvs.Service][]ipvs.Destination{s: nil, v6: nil})
}

func destinationErrors(t *testing.T, k Kernel) {
	ctx := t.Context()
	v4, v6 := address(ipvs.TCP, "192.0.2.1:80"), address(ipvs.TCP, "[2001:db8::1]:80")
	missing := address(ipvs.TCP, "192.0.2.9:80")
	there4, there6 := dest("198.51.100.1:80"), dest("[2001:db8::10]:80")
	add(t, k, v4, there4)
	add(t, k, v6, there6)

	wantError(t, k.AddDest(ctx, missing, there4), syscall.ESRCH, fs.ErrNotExist)
	wantError(t, k.SetDest(ctx, missing, there4), syscall.ESRCH, fs.ErrNotExist)
	wantError(t, k.DelDest(ctx, missing, there4), syscall.ESRCH, fs.ErrNotExist)
	wantError(t, k.AddDest(ctx, v4, there4), syscall.EEXIST, fs.ErrExist)
	wantError(t, k.SetDest(ctx, v4, dest("198.51.100.9:80")), syscall.ENOENT, fs.ErrNotExist)
	wantError(t, k.DelDest(ctx, v4, dest("198.51.100.9:80")), syscall.ENOENT, fs.ErrNotExist)
	// A destination of another family is merely missing to a deletion.
	wantError(t, k.DelDest(ctx, v4, there6), syscall.ENOENT, fs.ErrNotExist)
	wantError(t, k.SetDest(ctx, v4, dest("[2001:db8::10]:80", tunnel(ipvs.IPIP, 0, 0))), syscall.ENOENT, fs.ErrNotExist)

	for _, c := range []struct {
		name    string
		service ipvs.Service
		dest    ipvs.Destination
		errno   syscall.Errno
		set     bool // also an answer to a change of the destination that is there
	}{
		{"lower threshold above the upper", v4, dest("198.51.100.1:80", thresholds(4, 5)), syscall.ERANGE, true},
		{"lower threshold without upper", v4, dest("198.51.100.1:80", thresholds(0, 1)), syscall.ERANGE, true},
		{"weight 2^31", v4, dest("198.51.100.1:80", weight(1<<31)), syscall.ERANGE, true},
		{"weight 2^32-1", v6, dest("[2001:db8::10]:80", weight(1<<32-1)), syscall.ERANGE, true},
		{"gue without port", v4, dest("198.51.100.1:80", tunnel(ipvs.GUE, 0, 0)), syscall.EINVAL, true},
		{"other family by DR", v4, dest("[2001:db8::10]:80", method(ipvs.DirectRoute)), syscall.EINVAL, true},
		{"other family by NAT", v4, dest("[2001:db8::10]:80"), syscall.EINVAL, true},
		{"IPv4 in IPv6 by DR", v6, dest("198.51.100.1:80", method(ipvs.DirectRoute)), syscall.EINVAL, true},
		{"IPv4 in IPv6 by NAT", v6, dest("198.51.100.1:80"), syscall.EINVAL, true},
		{"unspecified", v4, dest("0.0.0.0:80"), syscall.EINVAL, false},
		{"multicast", v4, dest("224.0.0.1:80"), syscall.EINVAL, false},
		{"broadcast", v4, dest("255.255.255.255:80"), syscall.EINVAL, false},
		{"broadcast of the loopback network", v4, dest("127.255.255.255:80"), syscall.EINVAL, false},
		{"unspecified IPv6", v6, dest("[::]:80"), syscall.EINVAL, false},
		{"multicast IPv6", v6, dest("[ff02::1]:80"), syscall.EINVAL, false},
		{"link-local IPv6", v6, dest("[fe80::1]:80"), syscall.EINVAL, false},
		// Ranges are tested before existence, and the method of another family
		// before both.
		{"weight and family", v4, dest("[2001:db8::10]:80", weight(1<<31)), syscall.EINVAL, true},
		{"threshold and gue port", v4, dest("198.51.100.1:80", thresholds(4, 5), tunnel(ipvs.GUE, 0, 0), thresholds(4, 5)), syscall.ERANGE, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantError(t, k.AddDest(ctx, c.service, c.dest), c.errno, nil)
			if c.set {
				wantError(t, k.SetDest(ctx, c.service, c.dest), c.errno, nil)
			} else {
				wantError(t, k.SetDest(ctx, c.service, c.dest), syscall.ENOENT, fs.ErrNotExist)
			}
		})
	}
	// What the kernel would take and not work with is refused before it is asked.
	wantError(t, k.AddDest(ctx, missing, dest("198.51.100.2:80", method(5))), syscall.EINVAL, nil)
	wantError(t, k.SetDest(ctx, v4, dest("198.51.100.1:80", tunnel(3, 0, 0))), syscall.EINVAL, nil)
	// Kernels differ on thresholds of 2^31 and more; none of them garbles one.
	high := dest("198.51.100.2:80", thresholds(1<<31, 1<<31-1))
	if err := k.AddDest(ctx, v4, high); err == nil {
		checkDestinations(t, k, v4.ServiceKey, []ipvs.Destination{there4, high})
		must(t, k.DelDest(ctx, v4, high))
	} else {
		wantError(t, err, syscall.EINVAL, nil)
	}
	wantError(t, k.AddDest(ctx, v4, ipvs.Destination{DestinationKey: ipvs.DestinationKey{Port: 80}}), syscall.EINVAL, nil)
	checkTable(t, k, map[ipvs.Service][]ipvs.Destination{v4: {there4}, v6: {there6}})
}

// order: addresses before marks, destinations newest first. Among services the
// kernel's order is its hash table's.
func order(t *testing.T, k Kernel) {
	for i := range 20 {
		add(t, k, mark(ipvs.INET, uint32(100+i)))
		add(t, k, address(ipvs.TCP, fmt.Sprintf("192.0.2.1:%d", 100+i)))
	}
	ss, err := k.Services(t.Context())
	must(t, err)
	if !slices.IsSortedFunc(ss, func(a, b ipvs.ServiceInfo) int {
		return cmp.Compare(min(a.FWMark, 1), min(b.FWMark, 1))
	}) {
		t.Error("a service with a mark is listed before one with an address")
	}

	s := address(ipvs.TCP, "192.0.2.2:80")
	one, two, three := dest("198.51.100.3:80"), dest("198.51.100.1:80"), dest("198.51.100.2:80")
	add(t, k, s, one, two, three)
	checkDestinations(t, k, s.ServiceKey, []ipvs.Destination{one, two, three})
	must(t, k.DelDest(t.Context(), s, one))
	must(t, k.AddDest(t.Context(), s, one))
	checkDestinations(t, k, s.ServiceKey, []ipvs.Destination{two, three, one})
}

func deletes(t *testing.T, k Kernel) {
	ctx := t.Context()
	a, b := address(ipvs.TCP, "192.0.2.1:80"), mark(ipvs.INET6, 1)
	d, e, f := dest("198.51.100.1:80"), dest("198.51.100.2:80"), dest("[2001:db8::1]:0")
	add(t, k, a, d, e)
	add(t, k, b, f)
	// Of what is deleted only the key matters.
	must(t, k.DelDest(ctx, ipvs.Service{ServiceKey: a.ServiceKey}, ipvs.Destination{DestinationKey: d.DestinationKey}))
	checkTable(t, k, map[ipvs.Service][]ipvs.Destination{a: {e}, b: {f}})
	// A service takes its destinations along.
	must(t, k.DelService(ctx, ipvs.Service{ServiceKey: b.ServiceKey}))
	checkTable(t, k, map[ipvs.Service][]ipvs.Destination{a: {e}})
	add(t, k, b)
	checkTable(t, k, map[ipvs.Service][]ipvs.Destination{a: {e}, b: nil})
	must(t, k.AddDest(ctx, b, f))
	checkTable(t, k, map[ipvs.Service][]ipvs.Destination{a: {e}, b: {f}})
}

// sameAddress: nothing but the whole key identifies a service or destination.
func sameAddress(t *testing.T, k Kernel) {
	want := make(map[ipvs.Service][]ipvs.Destination)
	for i, s := range []ipvs.Service{
		address(ipvs.TCP, "192.0.2.1:80"), address(ipvs.UDP, "192.0.2.1:80"), address(ipvs.SCTP, "192.0.2.1:80"),
		address(ipvs.TCP, "192.0.2.1:81"), address(ipvs.TCP, "192.0.2.2:80"),
		mark(ipvs.INET, 80), mark(ipvs.INET6, 80), mark(ipvs.INET, 81),
	} {
		v4 := i != 6
		var ds []ipvs.Destination
		if v4 {
			ds = []ipvs.Destination{dest("198.51.100.1:80", weight(uint32(i))), dest("198.51.100.1:81", weight(uint32(i+10)))}
		}
		add(t, k, s, ds...)
		want[s] = ds
	}
	checkTable(t, k, want)
}

func batch(t *testing.T, k Kernel) {
	ctx := t.Context()
	s, other := address(ipvs.TCP, "192.0.2.1:80"), mark(ipvs.INET, 7)
	missing := address(ipvs.UDP, "192.0.2.9:80")
	d := func(n int, more ...func(*ipvs.Destination)) ipvs.Destination {
		return dest(fmt.Sprintf("198.51.100.%d:80", n), more...)
	}
	if errs := k.Batch(ctx, nil); len(errs) != 0 {
		t.Errorf("an empty batch gives %v", errs)
	}
	steps := []struct {
		op    ipvs.Op
		errno syscall.Errno
	}{
		{ipvs.Op{Kind: ipvs.OpAddDest, Service: s, Destination: d(1)}, syscall.ESRCH},
		{ipvs.Op{Kind: ipvs.OpAddService, Service: s}, 0},
		{ipvs.Op{Kind: ipvs.OpAddService, Service: s}, syscall.EEXIST},
		{ipvs.Op{Kind: ipvs.OpAddDest, Service: s, Destination: d(1)}, 0},
		{ipvs.Op{Kind: ipvs.OpAddDest, Service: s, Destination: d(1)}, syscall.EEXIST},
		{ipvs.Op{Kind: ipvs.OpAddDest, Service: s, Destination: d(2)}, 0},
		{ipvs.Op{Kind: ipvs.OpAddDest, Service: missing, Destination: d(2)}, syscall.ESRCH},
		{ipvs.Op{Kind: ipvs.OpSetDest, Service: s, Destination: d(1, weight(0))}, 0},
		{ipvs.Op{Kind: ipvs.OpSetDest, Service: s, Destination: d(3, weight(0))}, syscall.ENOENT},
		{ipvs.Op{Kind: ipvs.OpAddDest, Service: s, Destination: d(3, weight(1<<31))}, syscall.ERANGE},
		{ipvs.Op{Kind: ipvs.OpAddDest, Service: s, Destination: d(3)}, 0},
		{ipvs.Op{Kind: ipvs.OpAddService, Service: with(other, []func(*ipvs.Service){scheduler("no-such")})}, syscall.ENOENT},
		// Not even sent.
		{ipvs.Op{Kind: ipvs.OpAddDest, Service: s}, syscall.EINVAL},
		{ipvs.Op{}, syscall.EINVAL},
		{ipvs.Op{Kind: 99, Service: s, Destination: d(1)}, syscall.EINVAL},
		{ipvs.Op{Kind: ipvs.OpAddService, Service: other}, 0},
		{ipvs.Op{Kind: ipvs.OpSetService, Service: with(other, []func(*ipvs.Service){scheduler("rr")})}, 0},
		{ipvs.Op{Kind: ipvs.OpDelDest, Service: s, Destination: d(2)}, 0},
		{ipvs.Op{Kind: ipvs.OpDelService, Service: missing}, syscall.ESRCH},
	}
	ops := make([]ipvs.Op, len(steps))
	for i, st := range steps {
		ops[i] = st.op
	}
	check := func(t *testing.T, errs []error, from int) {
		t.Helper()
		for i, err := range errs {
			st := steps[from+i]
			if st.errno == 0 && err != nil || st.errno != 0 && !errors.Is(err, st.errno) {
				t.Errorf("step %d, %s: got %v, want errno %d", from+i, st.op, err, int(st.errno))
			}
		}
	}
	errs := k.Batch(ctx, ops)
	if len(errs) != len(ops) {
		t.Fatalf("%d errors for %d operations", len(errs), len(ops))
	}
	check(t, errs, 0)
	want := map[ipvs.Service][]ipvs.Destination{
		s: {d(1, weight(0)), d(3)},
		with(other, []func(*ipvs.Service){scheduler("rr")}): nil,
	}
	checkTable(t, k, want)
	// The last one of a send is the one that is acknowledged: its failure counts
	// like any other, and so does a success after failures.
	check(t, k.Batch(ctx, ops[2:5:5][0:1]), 2)
	check(t, k.Batch(ctx, ops[12:15]), 12)
	checkTable(t, k, want)
}

func bigBatch(t *testing.T, k Kernel) {
	const n = 3000
	ctx := t.Context()
	s := address(ipvs.TCP, "192.0.2.1:80")
	ops := []ipvs.Op{{Kind: ipvs.OpAddService, Service: s}}
	var want []ipvs.Destination
	for i := range n {
		d := dest(fmt.Sprintf("10.0.%d.%d:80", i/250, i%250+1), weight(uint32(i)))
		want = append(want, d)
		ops = append(ops, ipvs.Op{Kind: ipvs.OpAddDest, Service: s, Destination: d})
	}
	// Every hundredth twice, so that there are failures in most sends.
	for i := 0; i < n; i += 100 {
		ops = append(ops, ipvs.Op{Kind: ipvs.OpAddDest, Service: s, Destination: want[i]})
	}
	for i, err := range k.Batch(ctx, ops) {
		if i <= n && err != nil || i > n && !errors.Is(err, fs.ErrExist) {
			t.Fatalf("operation %d, %s: %v", i, ops[i], err)
		}
	}
	checkDestinations(t, k, s.ServiceKey, want)

	// A send full of failures.
	failing := slices.Repeat(ops[1:2], 1000)
	for i, err := range k.Batch(ctx, failing) {
		if !errors.Is(err, fs.ErrExist) {
			t.Fatalf("operation %d: %v, want fs.ErrExist", i, err)
		}
	}

	var dels []ipvs.Op
	for _, d := range want[:n-1] {
		dels = append(dels, ipvs.Op{Kind: ipvs.OpDelDest, Service: s, Destination: d})
	}
	for i, err := range k.Batch(ctx, dels) {
		if err != nil {
			t.Fatalf("operation %d: %v", i, err)
		}
	}
	checkTable(t, k, map[ipvs.Service][]ipvs.Destination{s: want[n-1:]})
}

// concurrentChange reads while others write: a reading is whole or an error.
func concurrentChange(t *testing.T, k Kernel) {
	ctx := t.Context()
	s := address(ipvs.TCP, "192.0.2.1:80")
	const stay = 400
	ops := []ipvs.Op{{Kind: ipvs.OpAddService, Service: s}}
	staying := make(map[ipvs.DestinationKey]bool)
	for i := range stay {
		d := dest(fmt.Sprintf("10.1.%d.%d:80", i/250, i%250+1))
		staying[d.DestinationKey] = true
		ops = append(ops, ipvs.Op{Kind: ipvs.OpAddDest, Service: s, Destination: d})
	}
	for _, err := range k.Batch(ctx, ops) {
		must(t, err)
	}
	other := k
	if sh, ok := k.(Sharer); ok {
		other = sh.Share(t)
	}
	var wg sync.WaitGroup
	for w := range 2 {
		wg.Go(func() {
			d := dest(fmt.Sprintf("198.51.100.%d:80", w+1))
			for range 50 {
				if err := errors.Join(other.AddDest(ctx, s, d), other.DelDest(ctx, s, d)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	whole := 0
	for range 30 {
		got, err := k.Destinations(ctx, s.ServiceKey)
		if errors.Is(err, ipvs.ErrInterrupted) {
			continue
		}
		must(t, err)
		whole++
		left := len(staying)
		for _, d := range got {
			if staying[d.DestinationKey] {
				left--
			}
		}
		if left != 0 {
			t.Fatalf("a reading of %d destinations misses %d that were there all the time", len(got), left)
		}
	}
	wg.Wait()
	got, err := k.Destinations(ctx, s.ServiceKey)
	must(t, err)
	if len(got) != stay {
		t.Errorf("%d destinations in the end, want %d", len(got), stay)
	}
	t.Logf("%d of 30 readings were whole", whole)
}

// counters: only deleting the last connection clears a counter. Neither a change
// in place nor deleting and adding again does.
func counters(t *testing.T, k Kernel) {
	c, ok := k.(Connector)
	if !ok {
		t.Skip("needs a Kernel that is a Connector")
	}
	ctx := t.Context()
	s := address(ipvs.TCP, "127.0.0.1:8000", scheduler("rr"))
	d := dest("127.0.0.1:9000")
	add(t, k, s, d)
	active := func() uint32 {
		t.Helper()
		ds, err := k.Destinations(ctx, s.ServiceKey)
		must(t, err)
		if len(ds) != 1 {
			t.Fatalf("%d destinations, want 1", len(ds))
		}
		return ds[0].Counters.Active
	}
	if n := active(); n != 0 {
		t.Fatalf("%d active connections before the first", n)
	}
	c.Connect(t, s.ServiceKey, d.DestinationKey)
	if n := active(); n != 1 {
		t.Fatalf("%d active connections, want 1", n)
	}
	must(t, k.SetDest(ctx, s, dest("127.0.0.1:9000", weight(0))))
	if n := active(); n != 1 {
		t.Errorf("%d active connections after a change of weight, want 1", n)
	}
	must(t, k.SetService(ctx, address(ipvs.TCP, "127.0.0.1:8000", scheduler("wlc"))))
	if n := active(); n != 1 {
		t.Errorf("%d active connections after a change of scheduler, want 1", n)
	}
	must(t, k.DelDest(ctx, s, d))
	must(t, k.AddDest(ctx, s, d))
	if n := active(); n != 1 {
		t.Errorf("%d active connections after deleting and adding again, want 1", n)
	}
	must(t, k.DelService(ctx, s))
	add(t, k, s, d)
	if n := active(); n != 1 {
		t.Errorf("%d active connections after deleting and adding the service again, want 1", n)
	}
}

func timeouts(t *testing.T, k Kernel) {
	ctx := t.Context()
	got, err := k.Timeouts(ctx)
	must(t, err)
	if want := (ipvs.Timeouts{TCP: 900, TCPFin: 120, UDP: 300}); got != want {
		t.Errorf("the defaults are %+v, want %+v", got, want)
	}
	for _, c := range []struct{ set, want ipvs.Timeouts }{
		{ipvs.Timeouts{TCP: 100, TCPFin: 20, UDP: 30}, ipvs.Timeouts{TCP: 100, TCPFin: 20, UDP: 30}},
		{ipvs.Timeouts{UDP: 40}, ipvs.Timeouts{TCP: 100, TCPFin: 20, UDP: 40}},
		{ipvs.Timeouts{}, ipvs.Timeouts{TCP: 100, TCPFin: 20, UDP: 40}},
		{ipvs.Timeouts{TCP: 86400}, ipvs.Timeouts{TCP: 86400, TCPFin: 20, UDP: 40}},
	} {
		must(t, k.SetTimeouts(ctx, c.set))
		if got, err := k.Timeouts(ctx); err != nil || got != c.want {
			t.Errorf("after %+v: %+v, %v, want %+v", c.set, got, err, c.want)
		}
	}
	if err := k.SetTimeouts(ctx, ipvs.Timeouts{TCP: 1 << 31}); !errors.Is(err, syscall.EINVAL) {
		t.Errorf("a timeout of 2^31 s: %v, want EINVAL", err)
	}
}

func info(t *testing.T, k Kernel) {
	got, err := k.Info(t.Context())
	must(t, err)
	if got.Version != [3]uint8{1, 2, 1} || got.ConnTableSize == 0 {
		t.Errorf("got %+v, want version 1.2.1 and a size", got)
	}
}

func zeroAndFlush(t *testing.T, k Kernel) {
	ctx := t.Context()
	must(t, k.Flush(ctx)) // of an empty table
	a, b := address(ipvs.TCP, "192.0.2.1:80"), mark(ipvs.INET6, 9)
	d := dest("198.51.100.1:80")
	add(t, k, a, d)
	add(t, k, b)
	must(t, k.Zero(ctx, a.ServiceKey))
	must(t, k.Zero(ctx, b.ServiceKey))
	must(t, k.Zero(ctx, ipvs.ServiceKey{}))
	checkTable(t, k, map[ipvs.Service][]ipvs.Destination{a: {d}, b: nil})
	must(t, k.Flush(ctx))
	checkTable(t, k, nil)
	add(t, k, a, d)
	checkTable(t, k, map[ipvs.Service][]ipvs.Destination{a: {d}})
}

func cancelled(t *testing.T, k Kernel) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := address(ipvs.TCP, "192.0.2.1:80")
	if err := k.AddService(ctx, s); !errors.Is(err, context.Canceled) || errors.Is(err, ipvs.ErrUnknownResult) {
		t.Errorf("got %v, want context.Canceled and a known result", err)
	}
	if _, err := k.Services(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	checkTable(t, k, nil)
	add(t, k, s)
	checkTable(t, k, map[ipvs.Service][]ipvs.Destination{s: nil})
}

func closed(t *testing.T, k Kernel) {
	must(t, k.Close())
	must(t, k.Close())
	if err := k.AddService(t.Context(), address(ipvs.TCP, "192.0.2.1:80")); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("got %v, want fs.ErrClosed", err)
	}
	if _, err := k.Services(t.Context()); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("got %v, want fs.ErrClosed", err)
	}
}
