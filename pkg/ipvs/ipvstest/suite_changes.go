package ipvstest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Order, sequences of changes, and what goes on beside them.

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
	if err := k.StartSyncDaemon(ctx, ipvs.SyncDaemon{State: ipvs.SyncMaster, Interface: "lo"}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want context.Canceled", err)
	}
	checkDaemons(t, k)
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
	if err := k.StopSyncDaemon(t.Context(), ipvs.SyncMaster); !errors.Is(err, fs.ErrClosed) {
		t.Errorf("got %v, want fs.ErrClosed", err)
	}
}
