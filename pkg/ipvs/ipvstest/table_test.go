package ipvstest_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

var sameAddrs = cmpopts.EquateComparable(netip.Addr{})

// connecting is a table in which a connection is a counter.
type connecting struct{ *ipvstest.Table }

func (c connecting) Connect(t *testing.T, s ipvs.ServiceKey, d ipvs.DestinationKey) {
	if err := c.SetCounters(s, d, ipvs.Counters{Active: 1}); err != nil {
		t.Fatal(err)
	}
}

func (c connecting) AddInterface(_ *testing.T, name string, mtu int) {
	c.SetInterfaces(map[string]int{"lo": 65536, name: mtu})
}

func TestTableConformance(t *testing.T) {
	ipvstest.Conformance(t, func(*testing.T) ipvstest.Kernel { return connecting{ipvstest.New()} })
}

var (
	service = ipvs.Service{
		ServiceKey: ipvs.ServiceKey{Family: ipvs.INET, Protocol: ipvs.TCP, Addr: netip.MustParseAddr("192.0.2.1"), Port: 80},
		Scheduler:  "rr",
	}
	one = destination(1)
	two = destination(2)
)

func destination(n int) ipvs.Destination {
	return ipvs.Destination{DestinationKey: ipvs.DestinationKey{Addr: netip.AddrFrom4([4]byte{198, 51, 100, byte(n)}), Port: 80}, Weight: 1}
}

func filled(t *testing.T) *ipvstest.Table {
	t.Helper()
	k := ipvstest.New()
	if err := errors.Join(k.AddService(t.Context(), service), k.AddDest(t.Context(), service, one), k.AddDest(t.Context(), service, two)); err != nil {
		t.Fatal(err)
	}
	return k
}

func counters(t *testing.T, k *ipvstest.Table, d ipvs.Destination) ipvs.Counters {
	t.Helper()
	ds, err := k.Destinations(t.Context(), service.ServiceKey)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(ds, func(x ipvs.DestinationInfo) bool { return x.DestinationKey == d.DestinationKey })
	if i < 0 {
		t.Fatalf("no %s", d.DestinationKey)
	}
	return ds[i].Counters
}

func TestCounters(t *testing.T) {
	ctx := t.Context()
	k := filled(t)
	busy := ipvs.Counters{Active: 3, Inactive: 2, Persistent: 1}
	if err := k.SetCounters(service.ServiceKey, one.DestinationKey, busy); err != nil {
		t.Fatal(err)
	}
	if got := counters(t, k, one); got != busy {
		t.Errorf("%+v, want %+v", got, busy)
	}
	if got := counters(t, k, two); got != (ipvs.Counters{}) {
		t.Errorf("the other one has %+v", got)
	}
	cycle := func() error {
		return errors.Join(k.DelDest(ctx, service, one), k.AddDest(ctx, service, one))
	}
	if err := cycle(); err != nil || counters(t, k, one) != busy {
		t.Errorf("deleted and added with connections: %+v, %v", counters(t, k, one), err)
	}
	if err := k.SetCounters(service.ServiceKey, one.DestinationKey, ipvs.Counters{}); err != nil {
		t.Fatal(err)
	}
	if err := cycle(); err != nil || counters(t, k, one) != (ipvs.Counters{}) {
		t.Errorf("deleted and added when idle: %+v, %v", counters(t, k, one), err)
	}
	// Another service's destination of that name is another one.
	other := service
	other.Port = 81
	if err := errors.Join(
		k.SetCounters(service.ServiceKey, one.DestinationKey, busy), k.DelDest(ctx, service, one),
		k.AddService(ctx, other), k.AddDest(ctx, other, one)); err != nil {
		t.Fatal(err)
	}
	if ds, err := k.Destinations(ctx, other.ServiceKey); err != nil || ds[0].Counters != (ipvs.Counters{}) {
		t.Errorf("in another service: %+v, %v", ds, err)
	}
	if err := k.SetCounters(service.ServiceKey, one.DestinationKey, busy); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("of a missing destination: %v", err)
	}
	if err := k.SetCounters(ipvs.ServiceKey{Family: ipvs.INET, FWMark: 1}, one.DestinationKey, busy); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("of a missing service: %v", err)
	}
}

func TestStats(t *testing.T) {
	ctx := t.Context()
	k := filled(t)
	s, d := ipvs.Stats{Connections: 7}, ipvs.Stats{InBytes: 9}
	if err := errors.Join(k.SetServiceStats(service.ServiceKey, s), k.SetDestinationStats(service.ServiceKey, one.DestinationKey, d)); err != nil {
		t.Fatal(err)
	}
	read := func() (ipvs.Stats, ipvs.Stats) {
		t.Helper()
		svc, err := k.Service(ctx, service.ServiceKey)
		if err != nil {
			t.Fatal(err)
		}
		ds, err := k.Destinations(ctx, service.ServiceKey)
		if err != nil {
			t.Fatal(err)
		}
		return svc.Stats, ds[1].Stats
	}
	if gs, gd := read(); gs != s || gd != d {
		t.Errorf("%+v and %+v", gs, gd)
	}
	if err := errors.Join(k.SetService(ctx, service), k.SetDest(ctx, service, one)); err != nil {
		t.Fatal(err)
	}
	if gs, gd := read(); gs != s || gd != d {
		t.Errorf("after a change in place: %+v and %+v", gs, gd)
	}
	if err := k.Zero(ctx, service.ServiceKey); err != nil {
		t.Fatal(err)
	}
	if gs, gd := read(); gs != (ipvs.Stats{}) || gd != (ipvs.Stats{}) {
		t.Errorf("after zeroing: %+v and %+v", gs, gd)
	}
	if err := k.SetServiceStats(ipvs.ServiceKey{Family: ipvs.INET, FWMark: 1}, s); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of a missing service: %v", err)
	}
}

func TestFail(t *testing.T) {
	ctx := t.Context()
	k := filled(t)
	own := errors.New("own")
	for _, c := range []struct {
		fault error
		want  error
	}{
		{syscall.EEXIST, fs.ErrExist},
		{ipvs.ErrUnknownResult, ipvs.ErrUnknownResult},
		{ipvs.ErrNoModule, ipvs.ErrNoModule},
		{fmt.Errorf("wrapped: %w", syscall.EPERM), fs.ErrPermission},
		{ipvs.NewError(ipvs.Op{}, syscall.ENOMEM), syscall.ENOMEM},
		{own, own},
	} {
		k.Fail(func(op ipvs.Op) error {
			if op.Destination.DestinationKey == two.DestinationKey {
				return c.fault
			}
			return nil
		})
		k.ResetLog()
		errs := k.Batch(ctx, []ipvs.Op{
			{Kind: ipvs.OpSetDest, Service: service, Destination: one},
			{Kind: ipvs.OpDelDest, Service: service, Destination: two},
			{Kind: ipvs.OpSetDest, Service: service, Destination: one},
		})
		if errs[0] != nil || errs[2] != nil || !errors.Is(errs[1], c.want) {
			t.Errorf("%v: %v", c.fault, errs)
		}
		if _, ok := errors.AsType[*ipvs.Error](errs[1]); !ok {
			t.Errorf("%v comes as %T", c.fault, errs[1])
		}
		if a := k.Attempts(); len(a) != 3 || a[1].Err == nil || len(k.Log()) != 2 {
			t.Errorf("%v: attempts %v, log %v", c.fault, a, k.Log())
		}
		if ds, _ := k.Destinations(ctx, service.ServiceKey); len(ds) != 2 {
			t.Errorf("%v: applied all the same", c.fault)
		}
	}
	k.Fail(nil)
	if err := k.DelDest(ctx, service, two); err != nil {
		t.Errorf("without faults: %v", err)
	}
}

func TestFailReads(t *testing.T) {
	ctx := t.Context()
	k := filled(t)
	k.FailReads(func(key ipvs.ServiceKey) error {
		if key == service.ServiceKey {
			return ipvs.ErrInterrupted
		}
		return nil
	})
	if _, err := k.Destinations(ctx, service.ServiceKey); !errors.Is(err, ipvs.ErrInterrupted) {
		t.Errorf("got %v", err)
	}
	if _, err := k.Services(ctx); err != nil {
		t.Errorf("the list of services: %v", err)
	}
	k.FailReads(nil)
	if ds, err := k.Destinations(ctx, service.ServiceKey); err != nil || len(ds) != 2 {
		t.Errorf("without faults: %v, %v", ds, err)
	}
}

func TestLogAndOnApply(t *testing.T) {
	ctx := t.Context()
	k := ipvstest.New()
	var sizes []int
	k.OnApply(func(op ipvs.Op, v ipvstest.View) {
		if op.Kind != ipvs.OpDelService && !v.Has(op.Service.ServiceKey) {
			t.Errorf("%s: the view is of another time", op)
		}
		if n := len(v.Services()); n > 1 {
			t.Errorf("%d services", n)
		}
		sizes = append(sizes, len(v.Destinations(op.Service.ServiceKey)))
	})
	ops := []ipvs.Op{
		{Kind: ipvs.OpAddService, Service: service},
		{Kind: ipvs.OpAddDest, Service: service, Destination: one},
		{Kind: ipvs.OpAddDest, Service: service, Destination: one}, // fails
		{Kind: ipvs.OpAddDest, Service: service, Destination: two},
		{Kind: ipvs.OpSetDest, Service: service, Destination: one},
		{Kind: ipvs.OpDelDest, Service: service, Destination: one},
		{Kind: ipvs.OpDelService, Service: service},
	}
	k.Batch(ctx, ops)
	if want := []int{0, 1, 2, 2, 1, 0}; !slices.Equal(sizes, want) {
		t.Errorf("destinations after each operation: %v, want %v", sizes, want)
	}
	if diff := cmp.Diff(slices.Delete(slices.Clone(ops), 2, 3), k.Log(), sameAddrs); diff != "" {
		t.Errorf("log (-want +got):\n%s", diff)
	}
	if a := k.Attempts(); len(a) != len(ops) || !errors.Is(a[2].Err, fs.ErrExist) {
		t.Errorf("attempts %v", a)
	}
	k.KeepLog(false)
	k.OnApply(nil)
	k.Batch(ctx, ops)
	if len(k.Attempts()) != 0 || len(sizes) != 6 {
		t.Errorf("attempts %v, %d calls", k.Attempts(), len(sizes))
	}
	k.KeepLog(true)
	k.Batch(ctx, ops[:1])
	if len(k.Log()) != 1 {
		t.Errorf("log %v", k.Log())
	}
}

// TestCopies: what the table hands out is the caller's.
func TestCopies(t *testing.T) {
	ctx := t.Context()
	k := filled(t)
	ss, _ := k.Services(ctx)
	ds, _ := k.Destinations(ctx, service.ServiceKey)
	log, attempts := k.Log(), k.Attempts()
	ss[0].Scheduler, ds[0].Weight, log[0].Kind, attempts[0].Op.Kind = "x", 99, 0, 0
	if s, _ := k.Service(ctx, service.ServiceKey); s.Scheduler != "rr" {
		t.Error("a service is shared")
	}
	if again, _ := k.Destinations(ctx, service.ServiceKey); again[0].Weight != 1 {
		t.Error("a destination is shared")
	}
	if k.Log()[0].Kind == 0 || k.Attempts()[0].Op.Kind == 0 {
		t.Error("the log is shared")
	}
}

func TestSetSchedulers(t *testing.T) {
	k := ipvstest.New()
	k.SetSchedulers("rr")
	other := service
	other.Scheduler = "wlc"
	if err := k.AddService(t.Context(), other); !errors.Is(err, syscall.ENOENT) {
		t.Errorf("wlc: %v", err)
	}
	if err := k.AddService(t.Context(), service); err != nil {
		t.Errorf("rr: %v", err)
	}
}

func TestBatchCancelledMidway(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	k := ipvstest.New()
	k.OnApply(func(ipvs.Op, ipvstest.View) { cancel() })
	errs := k.Batch(ctx, []ipvs.Op{{Kind: ipvs.OpAddService, Service: service}, {Kind: ipvs.OpDelService, Service: service}})
	if errs[0] != nil || !errors.Is(errs[1], context.Canceled) {
		t.Errorf("got %v", errs)
	}
}

// TestRace is for the race detector.
func TestRace(t *testing.T) {
	ctx := t.Context()
	k := filled(t)
	k.OnApply(func(op ipvs.Op, v ipvstest.View) { v.Destinations(op.Service.ServiceKey) })
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 50 {
				d := destination(10 + w)
				k.Batch(ctx, []ipvs.Op{{Kind: ipvs.OpAddDest, Service: service, Destination: d}, {Kind: ipvs.OpSetDest, Service: service, Destination: d}})
				k.Services(ctx)
				k.Destinations(ctx, service.ServiceKey)
				k.SetCounters(service.ServiceKey, d.DestinationKey, ipvs.Counters{Active: uint32(i)})
				k.Fail(nil)
				k.Log()
				k.DelDest(ctx, service, d)
			}
		})
	}
	wg.Wait()
	if ds, err := k.Destinations(ctx, service.ServiceKey); err != nil || len(ds) != 2 {
		t.Errorf("%d destinations in the end, %v", len(ds), err)
	}
}
