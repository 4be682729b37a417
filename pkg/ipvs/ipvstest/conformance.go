package ipvstest

import (
	"errors"
	"net/netip"
	"slices"
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
// interface is up and has a route for ff05::/16, and no synchronisation daemon runs.
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
		{"sync daemons", syncDaemons},
		{"sync daemon errors", syncErrors},
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
