package engine

import (
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// shared counts what one version shares with another: situations, and the parts
// that hold them.
func shared(a, b shelf[*situation]) (things, parts int) {
	for i := range a.n {
		if a.at(i) == b.at(i) {
			things++
		}
	}
	for k := range a.parts {
		if &a.parts[k][0] == &b.parts[k][0] {
			parts++
		}
	}
	return things, parts
}

// TestOneVerdictPublishesOneServer: of ten thousand servers of one virtual server, and
// of a thousand virtual servers, all but what a verdict is about stays what it was.
func TestOneVerdictPublishesOneServer(t *testing.T) {
	e := loaded(t, many(1, 3000))
	settle(e)
	before := e.published.Load().pieces.at(0)
	flip(e, e.vss[0].tasks[1234][0])
	e.turn(t.Context())
	after := e.published.Load().pieces.at(0)
	if things, parts := shared(before.situations, after.situations); things != 2999 || parts != len(after.situations.parts)-1 {
		t.Errorf("%d of 3000 situations and %d of %d parts are shared", things, parts, len(after.situations.parts))
	}
	if s := after.read(e.config, time.Now()).RealServers[1234]; s.State != StateDown || s.WeightWanted != -1 {
		t.Errorf("the one that failed is published as %+v", s)
	}

	e = loaded(t, many(300, 2))
	settle(e)
	was := e.published.Load().pieces
	flip(e, e.vss[200].tasks[1][0])
	e.turn(t.Context())
	is := e.published.Load().pieces
	for i := range is.n {
		if same := was.at(i) == is.at(i); same != (i != 200) {
			t.Errorf("virtual server %d: the same piece: %t", i, same)
		}
	}
	if &was.parts[0][0] != &is.parts[0][0] || &was.parts[1][0] == &is.parts[1][0] {
		t.Error("the list of the pieces was copied as a whole, or not at all")
	}
}

// TestADrainPublishesWhatDrains: a look at a drain concerns its virtual server alone.
func TestADrainPublishesWhatDrains(t *testing.T) {
	e := loaded(t, many(200, 2))
	settle(e)
	was := e.published.Load()
	e.tableTouched = true
	e.publish(time.Now())
	is := e.published.Load()
	if was == is {
		t.Fatal("nothing was published")
	}
	for k := range is.pieces.parts {
		if &was.pieces.parts[k][0] != &is.pieces.parts[k][0] {
			t.Errorf("part %d was made anew though nothing drains", k)
		}
	}
}

// TestAVerdictAllocatesLittle, however many servers its virtual server has: what the
// loop does for one verdict, the table apart.
func TestAVerdictAllocatesLittle(t *testing.T) {
	var counts []float64
	for _, n := range []int{100, 3000} {
		e := loaded(t, many(1, n))
		settle(e)
		now, on := time.Now(), 0
		counts = append(counts, testing.AllocsPerRun(100, func() {
			on++
			e.vss[0].failed(on%n, "refused")
			e.mark(e.vss[0], on%n)
			e.publish(now)
			e.survives(now)
		}))
	}
	if counts[0] > 25 || counts[1] > counts[0]+2 {
		t.Errorf("%v allocations with 100 and 3000 servers", counts)
	}
}

// TestABurstIsOneTurn: a thousand verdicts are published once, and cost no more than
// so many single ones.
func TestABurstIsOneTurn(t *testing.T) {
	e := loaded(t, many(1, 2000))
	settle(e)
	before := e.published.Load().pieces.at(0).situations
	for i := range 1000 {
		flip(e, e.vss[0].tasks[i][0])
	}
	if got := e.published.Load().pieces.at(0).situations; !slices.Equal(got.parts[0], before.parts[0]) {
		t.Error("published before the turn was over")
	}
	e.turn(t.Context())
	got := e.published.Load().pieces.at(0).situations
	if things, _ := shared(before, got); things != 1000 {
		t.Errorf("%d situations stay, want 1000", things)
	}
	for i := range 1000 {
		if got.at(i).state.word() != StateDown {
			t.Fatalf("server %d is %s", i, got.at(i).state.word())
		}
	}
	if len(e.vss[0].marked) > 0 || len(e.touched) > 0 {
		t.Error("marks are left")
	}
}

// TestBytesPerServerPublished bounds what telling readers costs for each real server
// while nothing happens to it.
func TestBytesPerServerPublished(t *testing.T) {
	e := loaded(t, many(1, 3000))
	settle(e)
	e.allTouched = true
	e.publish(time.Now())
	var with, without runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&with)
	e.vss[0].rs, e.vss[0].shown = nil, nil
	e.published.Store(&published{})
	runtime.GC()
	runtime.ReadMemStats(&without)
	runtime.KeepAlive(e)
	if b := (int64(with.HeapAlloc) - int64(without.HeapAlloc)) / 3000; b > 120 {
		t.Errorf("%d bytes for each server", b)
	} else {
		t.Logf("%d bytes for each server", b)
	}
}

// TestTimeTouchesWhoItConcerns: a turn looks at no virtual server in which time
// changes nothing.
func TestTimeTouchesWhoItConcerns(t *testing.T) {
	e := loaded(t, many(50, 2))
	settle(e)
	for _, vs := range e.vss {
		vs.VirtualServer = nil // looking at it is a panic
	}
	e.advanceDue(time.Now().Add(time.Hour))
	e.turn(t.Context())
	if d := e.wait(time.Now()); d <= 0 {
		t.Errorf("waits %v", d)
	}
}

// TestMovesAreInOrder: the heap by time and its places.
func TestMovesAreInOrder(t *testing.T) {
	cfg := many(30, 3)
	for _, vs := range cfg.VirtualServers {
		for _, rs := range vs.RealServers {
			rs.Weight, rs.SlowStart = 100, time.Minute
		}
	}
	e := loaded(t, cfg)
	now := time.Now()
	for i, vs := range e.vss {
		e.catchUp(vs, now.Add(time.Duration((i*7)%30)*time.Second))
		for range 2 {
			c, err := vs.SetVerdict(0, 0, 3-vs.Servers[0].Checkers[0])
			if err != nil {
				t.Fatal(err)
			}
			e.apply(vs, c, "")
		}
	}
	if len(e.moves) != 30 {
		t.Fatalf("%d virtual servers move by time", len(e.moves))
	}
	last := time.Time{}
	for steps := 0; len(e.moves) > 0; steps++ {
		at := e.moves.next()
		if at.Before(last) || steps > 30*10 {
			t.Fatalf("step %d: %v after %v", steps, at, last)
		}
		last = at
		e.advanceDue(at)
	}
	for _, vs := range e.vss {
		if vs.Servers[0].Share() != 100 || vs.move != 0 {
			t.Errorf("%s ends at %d", vs.name, vs.Servers[0].Share())
		}
	}
}

// TestPartsOfASnapshot: what reads less than everything reads the same.
func TestPartsOfASnapshot(t *testing.T) {
	e := loaded(t, many(4, 3))
	flip(e, e.vss[2].tasks[1][0])
	e.turn(t.Context())
	flip(e, e.vss[3].tasks[0][0])
	e.publish(time.Now()) // before it is written
	whole, o, unsettled := e.Snapshot(), e.Overview(), e.applier.Unsettled()
	if len(unsettled) != 1 {
		t.Fatalf("unsettled: %v", unsettled)
	}
	i := 0
	for _, vs := range e.Snapshot().VirtualServers {
		want := whole.VirtualServers[i]
		if diff := cmp.Diff(want, vs, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("one at a time (-snapshot +one):\n%s", diff)
		}
		want.RealServers = nil
		for j := range want.Services {
			if s := &want.Services[j]; !unsettled[s.Key] {
				*s = Service{Key: s.Key}
			}
		}
		if diff := cmp.Diff(want, o.VirtualServers[i], cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("overview (-snapshot +overview):\n%s", diff)
		}
		i++
	}
	if i != 4 || o.Kernel != whole.Kernel || o.Generation != whole.Generation {
		t.Errorf("%d virtual servers; %+v and %+v", i, o.Kernel, whole.Kernel)
	}
}
