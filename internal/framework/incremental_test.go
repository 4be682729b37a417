package framework

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
)

// anyPool draws a virtual server with or without each protection and with every kind
// of checker and file that moves something.
func anyPool(t *rapid.T) *config.VirtualServer {
	n := rapid.IntRange(1, 7).Draw(t, "servers")
	cfg := pool(uint32(rapid.IntRange(1, 40).Draw(t, "quorum")), uint32(rapid.IntRange(0, 3).Draw(t, "hysteresis")))
	for i := range n {
		rc := &config.RealServer{Key: key(i), Weight: rapid.SampledFrom([]int64{0, 1, 10, 10, 100}).Draw(t, "weight"), Checkers: []*config.Checker{tcp("10.0.0.1:80")}}
		if rapid.Bool().Draw(t, "two checkers") {
			rc.Checkers = append(rc.Checkers, tcp("10.0.0.2:80"))
		}
		if rapid.Bool().Draw(t, "file") {
			rc.TrackFiles = []config.TrackFileUse{{Name: "f", Weight: rapid.Int64Range(-3, 3).Draw(t, "file weight")}}
		}
		if rapid.IntRange(0, 2).Draw(t, "slow") == 0 {
			rc.SlowStart = 20 * time.Second
		}
		cfg.RealServers = append(cfg.RealServers, rc)
	}
	switch rapid.IntRange(0, 3).Draw(t, "floor") {
	case 0:
		cfg.MinAlive.Servers = uint32(rapid.IntRange(1, n).Draw(t, "min_alive"))
	case 1:
		cfg.MinAlive.Percent = 50
	}
	if rapid.Bool().Draw(t, "damped") {
		cfg.FlapDamping = config.Damping{Count: uint32(rapid.IntRange(1, 2).Draw(t, "count")), Within: 40 * time.Second}
	}
	return cfg
}

// everything is all that can be asked of a virtual server.
func everything(vs *VirtualServer) string {
	var b strings.Builder
	fmt.Fprintf(&b, "sum %d alive %d quorum %t threshold %d next %v floor %t\n", vs.Sum(), vs.Alive(), vs.QuorumUp(), vs.Threshold(), vs.NextAt(), vs.AtFloor())
	for _, rs := range vs.Servers {
		fmt.Fprintf(&b, "%+v unverified %t held %v rises %v flaps %d maintenance %t failed as %d, %v %v %v %v\n", rs.standing, rs.Unverified(),
			rs.HeldUntil(), rs.RisesUntil(), rs.Flaps(), rs.Maintenance(), rs.failedAs, rs.Checkers, rs.Files(), rs.Dynamic(), rs.Order())
	}
	return b.String()
}

// audit holds what is kept by differences to a full count.
func audit(t *rapid.T, vs *VirtualServer) {
	var want tally
	var next time.Time
	waiting := 0
	for _, rs := range vs.Servers {
		want.count(rs, 1)
		if at := rs.moment(vs.now); !at.IsZero() {
			waiting++
			if next.IsZero() || at.Before(next) {
				next = at
			}
		}
	}
	if vs.tally != want || waiting != len(vs.moments) || !vs.NextAt().Equal(next) {
		t.Fatalf("kept %+v, %d moments, next %v; counted %+v, %d, %v", vs.tally, len(vs.moments), vs.NextAt(), want, waiting, next)
	}
	for k, m := range vs.moments {
		if vs.Servers[m.server].more.place != k+1 {
			t.Fatalf("server %d is at place %d and believes %d", m.server, k+1, vs.Servers[m.server].more.place)
		}
	}
}

// TestIncrementalIsFull: after any sequence of events, what was worked out for the
// servers concerned alone is what working out everything gives, and so is what is
// reported.
func TestIncrementalIsFull(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := anyPool(t)
		trust := func(rc *config.RealServer) bool { return rc.Weight != 10 || len(rc.Checkers) == 1 }
		vs, _ := New(cfg, trust, noFiles)
		ref, _ := New(cfg, trust, noFiles)
		clock := epoch
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			i := rapid.IntRange(0, len(vs.Servers)-1).Draw(t, "server")
			rs := ref.Servers[i]
			was := []standing{rs.standing}
			var got, want Change
			switch event := rapid.IntRange(0, 11).Draw(t, "event"); event {
			case 0, 1, 2:
				clock = clock.Add(time.Duration(rapid.IntRange(0, 25).Draw(t, "seconds")) * time.Second)
				got = vs.Advance(clock)
				ref.now = clock
				want = ref.settle(nil, nil)
			case 3:
				if len(rs.Files()) == 0 {
					continue
				}
				v := rapid.Int64Range(-1, 3).Draw(t, "value")
				got, _ = vs.SetFile(i, 0, v)
				rs.setFile(0, v)
				want = ref.settle([]int{i}, was)
			case 4:
				o := Order{Drain: rapid.Bool().Draw(t, "drain"), Weighed: rapid.Bool().Draw(t, "weighed"), Weight: 7}
				got, _ = vs.SetOrder(i, o)
				rs.setOrder(o)
				want = ref.settle([]int{i}, was)
			case 5:
				d := Dynamic{Weight: rapid.Int64Range(0, 20).Draw(t, "dynamic"), Set: true}
				if rapid.Bool().Draw(t, "none") {
					d = Dynamic{}
				}
				got, _ = vs.SetDynamic(i, 0, d)
				rs.setDynamic(0, d)
				want = ref.settle([]int{i}, was)
			case 6:
				got = vs.TrustUnverified(i)
				rs.Trusted = true
				want = ref.settle([]int{i}, was)
			case 7:
				if rapid.IntRange(0, 3).Draw(t, "reload") > 0 {
					continue
				}
				next := anyPool(t)
				vs, _ = Next(vs, next, trust, noFiles)
				ref, _ = Next(ref, next, trust, noFiles)
			default:
				c := rapid.IntRange(0, len(rs.Checkers)-1).Draw(t, "checker")
				v := rapid.SampledFrom([]Verdict{Up, Up, Down, Down, Unknown}).Draw(t, "verdict")
				got, _ = vs.SetVerdict(i, c, v)
				rs.Checkers[c] = v
				want = ref.settle([]int{i}, was)
			}
			if len(got.Servers) > 0 && got.Of(i) != (ServerChange{Index: i}) && want.Servers[0].Index == i && got.Servers[0].Index != i {
				t.Fatalf("the server of the event is not first: %+v", got)
			}
			for _, c := range []Change{got, want} {
				slices.SortFunc(c.Servers, func(a, b ServerChange) int { return cmp.Compare(a.Index, b.Index) })
			}
			if !slices.Equal(got.Servers, want.Servers) || got.Quorum != want.Quorum {
				t.Fatalf("reported %+v, want %+v", got, want)
			}
			if a, b := everything(vs), everything(ref); a != b {
				t.Fatalf("by differences:\n%sin full:\n%s", a, b)
			}
			audit(t, vs)
		}
	})
}

// big makes a pool of n servers that are all up.
func big(n int, protect func(*config.VirtualServer)) *VirtualServer {
	cfg := pool(1, 0)
	for i := range n {
		cfg.RealServers = append(cfg.RealServers, &config.RealServer{Key: key(i % 200), Weight: 10, Checkers: []*config.Checker{tcp("10.0.0.1:80")}})
	}
	protect(cfg)
	vs, _ := New(cfg, trusted, noFiles)
	vs.Advance(epoch)
	return vs
}

var protections = map[string]func(*config.VirtualServer){
	"none":  func(*config.VirtualServer) {},
	"floor": func(c *config.VirtualServer) { c.MinAlive.Percent = 50 },
	"damping": func(c *config.VirtualServer) {
		c.FlapDamping = config.Damping{Count: 1000, Within: time.Hour}
	},
	"slow start": func(c *config.VirtualServer) {
		for _, rc := range c.RealServers {
			rc.SlowStart = time.Minute
		}
	},
}

// TestAVerdictLooksAtOneServer: with all others out of reach it is still worked out,
// with no protection and with protections that have nothing to protect.
func TestAVerdictLooksAtOneServer(t *testing.T) {
	for name, protect := range protections {
		vs := big(100, protect)
		one := vs.Servers[42]
		for i := range vs.Servers {
			if i != 42 {
				vs.Servers[i] = nil
			}
		}
		for _, v := range []Verdict{Down, Up, Down, Up} {
			if c := mustVerdict(t, vs, 42, v); len(c.Servers) != 1 || !c.Servers[0].AliveChanged || one.Alive() != (v == Up) {
				t.Errorf("%s: %s: %+v", name, v, c)
			}
		}
		if c := vs.Advance(at(25)); name == "slow start" && len(c.Servers) != 1 {
			t.Errorf("a step of a slow start: %+v", c)
		}
	}
}

func TestAVerdictAllocatesItsChange(t *testing.T) {
	vs := big(1000, protections["none"])
	n := testing.AllocsPerRun(100, func() {
		mustVerdict(t, vs, 7, Down)
		mustVerdict(t, vs, 7, Up)
	})
	same := testing.AllocsPerRun(100, func() { mustVerdict(t, vs, 7, Up) })
	if n > 2 || same > 0 {
		t.Errorf("%v allocations for two changes and %v for none, want 2 and 0", n, same)
	}
}

// TestBytesPerServer bounds what a real server without extras costs here.
func TestBytesPerServer(t *testing.T) {
	cfg := big(10_000, protections["none"]).Config
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	vs, _ := New(cfg, trusted, noFiles)
	runtime.GC()
	runtime.ReadMemStats(&after)
	if b := (int64(after.HeapAlloc) - int64(before.HeapAlloc)) / int64(len(vs.Servers)); b > 100 {
		t.Errorf("%d bytes for each server", b)
	} else {
		t.Logf("%d bytes for each server", b)
	}
}

func BenchmarkVerdict(b *testing.B) {
	for _, n := range []int{100, 10_000} {
		for _, name := range []string{"none", "floor", "damping", "slow start"} {
			b.Run(fmt.Sprintf("protection=%s/servers=%d", strings.ReplaceAll(name, " ", "_"), n), func(b *testing.B) {
				vs := big(n, protections[name])
				r := rand.New(rand.NewPCG(1, 1))
				b.ReportAllocs()
				for b.Loop() {
					i := r.IntN(n / 4)
					v := Down
					if vs.Servers[i].Checkers[0] == Down {
						v = Up
					}
					if _, err := vs.SetVerdict(i, 0, v); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkAtTheFloor is a verdict on one of a pool whose floor keeps a part of it.
func BenchmarkAtTheFloor(b *testing.B) {
	vs := big(10_000, protections["floor"])
	for i := range 7000 {
		mustVerdict(b, vs, i, Down)
	}
	for name, servers := range map[string][2]int{"kept": {6000, 7000}, "good": {7000, 10_000}, "out": {0, 1000}} {
		b.Run(name, func(b *testing.B) {
			n := 0
			for b.Loop() {
				i := servers[0] + n/2%(servers[1]-servers[0])
				v := Down
				if vs.Servers[i].Checkers[0] == Down {
					v = Up
				}
				mustVerdict(b, vs, i, v)
				n++
			}
		})
	}
}
