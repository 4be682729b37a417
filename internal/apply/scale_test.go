package apply

import (
	"fmt"
	"net/netip"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// farm makes services with so many servers each, all with addresses of their own.
func farm(services, servers int) []*config.VirtualServer {
	cfgs := make([]*config.VirtualServer, services)
	n := 0
	for i := range cfgs {
		addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{198, 51, byte(i >> 8), byte(i)}), 80)
		vs := &config.VirtualServer{
			Key: config.VSKey{Protocol: config.TCP, Addr: addr}, Entries: []config.Entry{{Addr: addr, Family: config.IPv4}},
			Protocol: config.TCP, Scheduler: "rr", Quorum: 1,
		}
		for range servers {
			k := config.RSKey{AddrPort: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 80)}
			vs.RealServers = append(vs.RealServers, &config.RealServer{
				Key: k, Weight: 1, Forward: config.Forwarding{Method: config.NAT},
				Checkers: []*config.Checker{{Kind: config.TCPCheck, Conn: config.Connection{Target: k.AddrPort}}},
			})
			n++
		}
		cfgs[i] = vs
	}
	return cfgs
}

// writeAll has the rig flush until no portion is left, and returns how often it did.
func (r *rig) writeAll() (flushes int) {
	r.t.Helper()
	for more := true; more; more = r.a.More() {
		r.flush()
		flushes++
	}
	if r.a.Pending() {
		r.t.Fatal("work is pending and no portion is left")
	}
	return flushes
}

// loaded is a rig whose table is written.
func loaded(t testing.TB, cfgs ...*config.VirtualServer) *rig {
	t.Helper()
	r := newRig(t, trust, cfgs...)
	r.writeAll()
	r.table.ResetLog()
	return r
}

// fail takes servers of a virtual server down, without a flush.
func (r *rig) fail(c *config.VirtualServer, servers ...int) {
	r.t.Helper()
	f := r.vss[c.Key]
	for _, i := range servers {
		ch, err := f.SetVerdict(i, 0, framework.Down)
		r.must(err)
		r.hand(f, ch)
	}
}

func upTo(n int) []int {
	is := make([]int, n)
	for i := range is {
		is[i] = i
	}
	return is
}

func sends(operations int) int { return (operations + ipvs.BatchSize - 1) / ipvs.BatchSize }

// TestS05UrgentBeforeBulk: a verdict that comes while ten thousand servers are being
// installed is the first thing that is sent next, and no portion is much larger than
// it should be.
func TestS05UrgentBeforeBulk(t *testing.T) {
	for _, c := range []struct{ services, servers int }{{1, 10000}, {1000, 10}} {
		t.Run(fmt.Sprintf("%dx%d", c.services, c.servers), func(t *testing.T) {
			cfgs := farm(c.services, c.servers)
			r := newRig(t, trust, cfgs...)
			first := len(r.table.Log())
			if !r.a.More() || first < portion/2 || first > portion+c.servers+1 && c.services > 1 || first > portion+1 && c.services == 1 {
				t.Fatalf("the first portion has %d operations, more %t", first, r.a.More())
			}
			if n := len(r.table.Sends()); n > sends(portion)+2 {
				t.Errorf("the first portion takes %d sends", n)
			}
			r.table.ResetLog()
			r.fail(cfgs[0], 3)
			r.flush()
			log := r.table.Log()
			if log[0].Kind != ipvs.OpDelDest || log[0].Destination.Addr != cfgs[0].RealServers[3].Key.Addr() {
				t.Errorf("the first operation after the verdict is %s", log[0])
			}
			// One that is not installed yet never is.
			last := cfgs[c.services-1]
			r.fail(last, c.servers-1)
			r.writeAll()
			for _, op := range r.table.Log() {
				if op.Destination.Addr == last.RealServers[c.servers-1].Key.Addr() {
					t.Errorf("a server that failed before its turn: %s", op)
				}
			}
			if n := len(r.table.Log()) + first; n != c.services*(1+c.servers)-1+1 {
				t.Errorf("%d operations in all", n)
			}
		})
	}
}

// TestS05Verdicts: 500 verdicts of 5,000 services go out in as few sends as they fit in.
func TestS05Verdicts(t *testing.T) {
	cfgs := farm(5000, 4)
	r := loaded(t, cfgs...)
	for i := range 500 {
		r.fail(cfgs[i*10], 1)
	}
	r.flush()
	if got := r.table.Sends(); len(got) != sends(500) || len(r.table.Log()) != 500 {
		t.Errorf("%d operations in sends of %d", len(r.table.Log()), got)
	}
	if r.a.Pending() {
		t.Error("work is pending")
	}
}

// TestHalfFails: 5,000 of 10,000 servers fail in one turn. They go out in the fewest
// sends, behind the sorry server where the quorum is lost.
func TestHalfFails(t *testing.T) {
	plain := farm(1, 10000)
	r := loaded(t, plain...)
	r.fail(plain[0], upTo(5000)...)
	r.flush()
	if got := r.table.Sends(); len(got) != sends(5000) || len(r.table.Log()) != 5000 {
		t.Errorf("without a sorry server: %d operations in %d sends", len(r.table.Log()), len(got))
	}

	dark := farm(1, 10000)
	dark[0].Quorum = 6000
	dark[0].Sorry = &config.SorryServer{Key: config.RSKey{AddrPort: netip.MustParseAddrPort("192.0.2.9:80")}, Forward: config.Forwarding{Method: config.NAT}}
	r = loaded(t, dark...)
	r.fail(dark[0], upTo(5000)...)
	r.flush()
	log := r.table.Log()
	if log[0].Kind != ipvs.OpAddDest || log[0].Destination.Addr != dark[0].Sorry.Key.Addr() {
		t.Errorf("the first operation is %s", log[0])
	}
	// The others are withdrawn: to weight 0, and out, since nothing is connected.
	if got, want := len(r.table.Sends()), 1+sends(5000)+sends(10000); got != want || len(log) != 1+5000+10000 {
		t.Errorf("with a sorry server: %d operations in %d sends, want %d", len(log), got, want)
	}
	if r.a.Pending() {
		t.Error("work is pending")
	}
}

// TestRefusalDoesNotStopPortions: what the kernel refuses waits for the next run, the
// rest is written, and the error comes with the last portion.
func TestRefusalDoesNotStopPortions(t *testing.T) {
	cfgs := farm(1000, 10)
	bad := ipvs.ServiceKey{}
	r := &rig{t: t, table: ipvstest.New(), now: epoch}
	r.table.Fail(func(op ipvs.Op) error {
		if bad == (ipvs.ServiceKey{}) {
			bad = op.Service.ServiceKey
		}
		if op.Service.ServiceKey == bad {
			return syscall.ENOMEM
		}
		return nil
	})
	r.start(trust, cfgs...)
	flushes := 1
	var err error
	for ; r.a.More(); flushes++ {
		if err != nil {
			t.Fatalf("an error before the last portion: %v", err)
		}
		err = r.a.Flush(t.Context(), r.now)
	}
	if err == nil || !strings.Contains(err.Error(), bad.String()) || flushes < 10 {
		t.Fatalf("after %d portions: %v", flushes, err)
	}
	if n := len(r.table.Log()); n != 999*11 || !r.a.Pending() {
		t.Errorf("%d operations accepted, pending %t", n, r.a.Pending())
	}
	r.table.Fail(nil)
	r.writeAll()
	if n := len(r.table.Log()); n != 1000*11 {
		t.Errorf("%d operations accepted in the end", n)
	}
}

// TestReloadOfOne: a reload that changes one of 10,000 servers makes the operations of
// that one, and one that changes nothing makes none.
func TestReloadOfOne(t *testing.T) {
	cfgs := farm(1, 10000)
	r := loaded(t, cfgs...)
	next := farm(1, 10000)
	r.reload(trust, next...)
	if n := r.writeAll(); n != 1 || len(r.table.Attempts()) != 0 {
		t.Errorf("the same configuration: %d operations", len(r.table.Attempts()))
	}
	next = farm(1, 10000)
	next[0].RealServers = slices.Delete(next[0].RealServers, 4711, 4712)
	gone := cfgs[0].RealServers[4711].Key.Addr()
	r.reload(trust, next...)
	r.writeAll()
	log := r.table.Log()
	if len(log) != 2 || log[0].Destination.Addr != gone || log[1].Destination.Addr != gone || log[1].Kind != ipvs.OpDelDest {
		t.Errorf("without one server: %v", log)
	}
}

// TestPortionsRaiseBeforeTheyCut: a reload that gives 2,000 servers less weight, drops
// 1,000 and adds 3,000 adds all of them, over several portions, before it takes anything
// away.
func TestPortionsRaiseBeforeTheyCut(t *testing.T) {
	both := farm(2, 3000)
	for _, rs := range both[0].RealServers {
		rs.Weight = 2
	}
	r := loaded(t, both[0])
	next := farm(1, 1)[0]
	next.RealServers = nil
	for _, rs := range both[0].RealServers[:2000] {
		less := *rs
		less.Weight = 1
		next.RealServers = append(next.RealServers, &less)
	}
	next.RealServers = append(next.RealServers, both[1].RealServers...)
	r.reload(trust, next)
	if n := 1 + r.writeAll(); n < 5 {
		t.Errorf("written in %d portions", n)
	}
	cuts := 0
	for _, op := range r.table.Log() {
		switch {
		case op.Kind != ipvs.OpAddDest:
			cuts++
		case cuts > 0:
			t.Fatalf("%s after %d cuts", op, cuts)
		}
	}
	if cuts != 2000+2*1000 { // to weight 0, and out
		t.Errorf("%d operations that take something away", cuts)
	}
}

// TestWorkIsInProportion: what one verdict costs does not depend on how many servers
// there are.
func TestWorkIsInProportion(t *testing.T) {
	var allocs [2]float64
	for i, n := range []int{100, 10000} {
		cfgs := farm(1, n)
		r := loaded(t, cfgs...)
		r.table.KeepLog(false)
		up := false
		k, rs := cfgs[0].Key, cfgs[0].RealServers[n/2].Key
		allocs[i] = testing.AllocsPerRun(20, func() {
			r.must(r.a.SetAlive(k, rs, up))
			up = !up
			r.flush()
		})
	}
	t.Logf("allocations for a verdict: %.0f of 100 servers, %.0f of 10,000", allocs[0], allocs[1])
	if allocs[1] > allocs[0]+2 || allocs[1] > 40 {
		t.Errorf("a verdict allocates %.0f times with 100 servers, %.0f times with 10,000", allocs[0], allocs[1])
	}
}

// TestReconcileAllocations: to read a table that is as believed allocates once or twice
// for each service and not for a destination.
func TestReconcileAllocations(t *testing.T) {
	for _, c := range []struct{ services, servers, most int }{{1, 10000, 40}, {1000, 10, 1100}} {
		r := loaded(t, farm(c.services, c.servers)...)
		n := testing.AllocsPerRun(3, func() { r.must(r.a.Reconcile(t.Context(), r.now)) })
		t.Logf("%d x %d: %.0f allocations", c.services, c.servers, n)
		if n > float64(c.most) {
			t.Errorf("%d x %d: %.0f allocations, want at most %d", c.services, c.servers, n, c.most)
		}
	}
}

// TestBytes is what a destination costs in the applier, configuration of its own
// included; the virtual servers of the configuration are not counted.
func TestBytes(t *testing.T) {
	for _, c := range []struct{ services, servers, most int }{{1, 10000, 260}, {1000, 10, 400}} {
		cfgs := farm(c.services, c.servers)
		table := ipvstest.New()
		table.KeepLog(false)
		var fs []*framework.VirtualServer
		for _, c := range cfgs {
			f, _ := framework.New(c, trust, noFiles)
			fs = append(fs, f)
		}
		write := func(a *Applier) {
			for _, f := range fs {
				if err := a.Init(f); err != nil {
					t.Fatal(err)
				}
			}
			for more := true; more; more = a.More() {
				if err := a.Flush(t.Context(), epoch); err != nil {
					t.Fatal(err)
				}
			}
		}
		translated := func() (vss []*VirtualServer) {
			for _, c := range cfgs {
				vss = append(vss, Translate(c))
			}
			return vss
		}
		write(New(table, translated(), nil)) // the table has what it will have
		before := heap()
		vss := translated()
		config := heap() - before
		a := New(table, vss, nil)
		if err := a.Adopt(t.Context()); err != nil {
			t.Fatal(err)
		}
		write(a)
		all := heap() - before
		runtime.KeepAlive(a)
		runtime.KeepAlive(vss)
		runtime.KeepAlive(cfgs)
		runtime.KeepAlive(fs)
		runtime.KeepAlive(table)
		n := int64(c.services * c.servers)
		t.Logf("%d x %d: %d bytes for each destination, %d of them its translation", c.services, c.servers, all/n, config/n)
		if all/n > int64(c.most) {
			t.Errorf("%d x %d: %d bytes for each destination, want at most %d", c.services, c.servers, all/n, c.most)
		}
	}
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func benchmarkSizes(b *testing.B, f func(b *testing.B, r *rig, cfgs []*config.VirtualServer)) {
	for _, c := range []struct{ services, servers int }{{1, 10000}, {1000, 10}} {
		b.Run(fmt.Sprintf("%dx%d", c.services, c.servers), func(b *testing.B) {
			cfgs := farm(c.services, c.servers)
			r := loaded(b, cfgs...)
			r.table.KeepLog(false)
			b.ReportAllocs()
			b.ResetTimer()
			f(b, r, cfgs)
		})
	}
}

// BenchmarkDiff10000 finds that there is nothing to do.
func BenchmarkDiff10000(b *testing.B) {
	benchmarkSizes(b, func(b *testing.B, r *rig, _ []*config.VirtualServer) {
		for b.Loop() {
			for _, k := range r.a.ours() {
				t, _ := r.a.target(k, nil, true)
				if p := diff(r.a.mirror[k], t, portion); p.size() != 0 {
					b.Fatal(p)
				}
			}
		}
	})
}

// BenchmarkReconcile10000 reads a table that is as it should be.
func BenchmarkReconcile10000(b *testing.B) {
	benchmarkSizes(b, func(b *testing.B, r *rig, _ []*config.VirtualServer) {
		for b.Loop() {
			r.must(r.a.Reconcile(b.Context(), r.now))
		}
	})
}

// BenchmarkInstall10000 writes everything into an empty table.
func BenchmarkInstall10000(b *testing.B) {
	benchmarkSizes(b, func(b *testing.B, r *rig, cfgs []*config.VirtualServer) {
		for b.Loop() {
			r.table = ipvstest.New()
			r.table.KeepLog(false)
			r.start(trust, cfgs...)
			r.writeAll()
		}
	})
}

// BenchmarkVerdicts is what it takes from 500 verdicts of 5,000 services to the last
// operation of them (S05), without the kernel's share.
func BenchmarkVerdicts(b *testing.B) {
	cfgs := farm(5000, 4)
	r := loaded(b, cfgs...)
	r.table.KeepLog(false)
	up := false
	var took []time.Duration
	b.ReportAllocs()
	for b.Loop() {
		begun := time.Now()
		for i := range 500 {
			r.must(r.a.SetAlive(cfgs[i*10].Key, cfgs[i*10].RealServers[1].Key, up))
		}
		r.flush()
		took = append(took, time.Since(begun))
		up = !up
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}
