package framework

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
)

func key(n int) config.RSKey {
	return config.RSKey{AddrPort: netip.MustParseAddrPort(fmt.Sprintf("10.0.0.%d:80", n))}
}

func tcp(target string) *config.Checker {
	return &config.Checker{Kind: config.TCPCheck, Conn: config.Connection{Target: netip.MustParseAddrPort(target)}, Schedule: config.Schedule{Rise: 1}}
}

// pool makes a virtual server of servers with the given weights, one checker each.
func pool(quorum, hysteresis uint32, weights ...int64) *config.VirtualServer {
	vs := &config.VirtualServer{Quorum: quorum, Hysteresis: hysteresis}
	for i, w := range weights {
		vs.RealServers = append(vs.RealServers, &config.RealServer{
			Key: key(i + 1), Weight: w, Checkers: []*config.Checker{tcp(fmt.Sprintf("10.0.0.%d:80", i+1))},
		})
	}
	return vs
}

func trusted(*config.RealServer) bool   { return true }
func untrusted(*config.RealServer) bool { return false }
func noFiles(string) int64              { return 0 }

func mustVerdict(t interface{ Fatal(...any) }, vs *VirtualServer, i int, v Verdict) Change {
	c, err := vs.SetVerdict(i, 0, v)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestStart(t *testing.T) {
	vs, ev := New(pool(1, 0, 1, 1), trusted, noFiles)
	if ev != QuorumGained || vs.Sum() != 2 || !vs.Servers[0].Alive() {
		t.Errorf("trusted: %s, sum %d", ev, vs.Sum())
	}
	vs, ev = New(pool(1, 0, 1, 1), untrusted, noFiles)
	if ev != QuorumUnchanged || vs.QuorumUp() || vs.Servers[0].Alive() || !vs.Servers[0].Unverified() {
		t.Errorf("untrusted: %s, up %t", ev, vs.QuorumUp())
	}
	cfg := pool(1, 0, 1)
	cfg.RealServers[0].Checkers = nil
	if vs, _ = New(cfg, untrusted, noFiles); !vs.Servers[0].Alive() {
		t.Error("a server without checkers is always up, alpha or not")
	}
}

// TestQuorumSequence is keepalived's: quorum 2, hysteresis 1, three servers of
// weight 1, sums 3, 2, 1, 0 and back. It is lost below 1 and gained at 3.
func TestQuorumSequence(t *testing.T) {
	vs, ev := New(pool(2, 1, 1, 1, 1), trusted, noFiles)
	if ev != QuorumGained {
		t.Fatal("3 >= 2+1 must gain at start")
	}
	for _, step := range []struct {
		server int
		v      Verdict
		want   QuorumEvent
		sum    int64
	}{
		{0, Down, QuorumUnchanged, 2}, {1, Down, QuorumUnchanged, 1}, {2, Down, QuorumLost, 0},
		{0, Up, QuorumUnchanged, 1}, {1, Up, QuorumUnchanged, 2}, {2, Up, QuorumGained, 3},
	} {
		c := mustVerdict(t, vs, step.server, step.v)
		if c.Quorum != step.want || vs.Sum() != step.sum {
			t.Errorf("server %d %s: %s with sum %d, want %s with %d", step.server, step.v, c.Quorum, vs.Sum(), step.want, step.sum)
		}
	}
}

// TestQ05Hysteresis holds the quorum to its rule over weights, quorums and
// hystereses, among them hysteresis >= quorum ("up when both, down when none").
func TestQ05Hysteresis(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := rapid.Uint32Range(1, 20).Draw(t, "quorum")
		h := rapid.Uint32Range(0, 20).Draw(t, "hysteresis")
		weights := rapid.SliceOfN(rapid.Int64Range(0, 15), 1, 6).Draw(t, "weights")
		vs, _ := New(pool(q, h, weights...), rapid.SampledFrom([]Trust{trusted, untrusted}).Draw(t, "trust"), noFiles)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			i := rapid.IntRange(0, len(weights)-1).Draw(t, "server")
			v := rapid.SampledFrom([]Verdict{Up, Down}).Draw(t, "verdict")
			was := vs.QuorumUp()
			c := mustVerdict(t, vs, i, v)
			var sum int64
			for _, rs := range vs.Servers {
				if rs.Alive() {
					sum += rs.Weight()
				}
			}
			if vs.Sum() != sum {
				t.Fatalf("kept sum %d, full sum %d", vs.Sum(), sum)
			}
			want := was
			switch {
			case !was && sum >= int64(q)+int64(h):
				want = true
			case was && (sum == 0 || sum < int64(q)-int64(h)):
				want = false
			}
			if vs.QuorumUp() != want {
				t.Fatalf("quorum %d hysteresis %d sum %d: up %t -> %t, want %t", q, h, sum, was, vs.QuorumUp(), want)
			}
			if (c.Quorum != QuorumUnchanged) != (was != want) {
				t.Fatalf("event %s for %t -> %t", c.Quorum, was, want)
			}
		}
	})
}

func TestSeveralCheckersAreANDed(t *testing.T) {
	cfg := pool(1, 0, 1)
	cfg.RealServers[0].Checkers = append(cfg.RealServers[0].Checkers, tcp("10.0.0.1:81"))
	vs, _ := New(cfg, trusted, noFiles)
	set := func(check int, v Verdict) bool {
		if _, err := vs.SetVerdict(0, check, v); err != nil {
			t.Fatal(err)
		}
		return vs.Servers[0].Alive()
	}
	if set(0, Down) || set(1, Down) || set(0, Up) {
		t.Error("up although a checker says down")
	}
	if !set(1, Up) {
		t.Error("down although all checkers say up")
	}
}

func TestFileStatus(t *testing.T) {
	for _, tt := range []struct {
		value, weight int64
		reverse       bool
		contribution  int64
		fault         bool
	}{
		{0, 0, false, 0, false},
		{1, 0, false, 0, true},
		{-1, 0, false, 0, true},
		{0, 0, true, 0, true},
		{5, 0, true, 0, false},
		{-3, 1, false, -3, false},
		{3, 10, false, 30, false},
		{3, 10, true, -30, false},
		{1 << 31, 254, false, 2147483647, false},
		{-1 << 31, 254, false, 0, true},
		{-1 << 31, 1, false, 0, true},
		{1 << 31, 1, true, 0, true},
		{-2147483647, 1, false, -2147483647, false},
		{1 << 31, -2147483647, false, 0, true},
	} {
		c, fault := FileValue{Value: tt.value, Weight: tt.weight, Reverse: tt.reverse}.Status()
		if c != tt.contribution || fault != tt.fault {
			t.Errorf("value %d weight %d reverse %t: %d fault %t, want %d fault %t", tt.value, tt.weight, tt.reverse, c, fault, tt.contribution, tt.fault)
		}
	}
}

func withFile(weight int64, check bool) *config.VirtualServer {
	cfg := pool(1, 0, 5, 5)
	use := config.TrackFileUse{Name: "m", Weight: weight}
	if check {
		cfg.RealServers[0].Checkers = []*config.Checker{{Kind: config.FileCheck, File: &use}}
	} else {
		cfg.RealServers[0].TrackFiles = []config.TrackFileUse{use}
	}
	return cfg
}

func TestTrackFileMovesWeight(t *testing.T) {
	vs, _ := New(withFile(1, false), trusted, noFiles)
	for _, step := range []struct {
		value, weight, sum int64
		maintenance        bool
	}{
		{-2, 3, 8, false}, {-5, 0, 5, true}, {-100, 0, 5, true}, {0, 5, 10, false}, {10, 15, 20, false},
		{1 << 31, MaxWeight, MaxWeight + 5, false}, {0, 5, 10, false},
	} {
		if _, err := vs.SetFile(0, 0, step.value); err != nil {
			t.Fatal(err)
		}
		rs := vs.Servers[0]
		if rs.Weight() != step.weight || vs.Sum() != step.sum || rs.Maintenance() != step.maintenance || !rs.Alive() {
			t.Errorf("value %d: weight %d sum %d maintenance %t alive %t", step.value, rs.Weight(), vs.Sum(), rs.Maintenance(), rs.Alive())
		}
	}
}

// TestTrackFileFaultIsADrain: in the real server itself a weightless track_file
// drains; as a FILE_CHECK it takes the server down.
func TestTrackFileFaultIsADrain(t *testing.T) {
	vs, _ := New(withFile(0, false), trusted, noFiles)
	c, _ := vs.SetFile(0, 0, 1)
	if rs := vs.Servers[0]; !rs.Alive() || !rs.Maintenance() || len(c.Servers) != 1 || c.Servers[0].AliveChanged {
		t.Errorf("track_file: alive %t, maintenance %t, change %+v", rs.Alive(), rs.Maintenance(), c)
	}
	vs, _ = New(withFile(0, true), trusted, noFiles)
	c, _ = vs.SetFile(0, 0, 1)
	if rs := vs.Servers[0]; rs.Alive() || len(c.Servers) != 1 || !c.Servers[0].AliveChanged {
		t.Errorf("FILE_CHECK: alive %t, change %+v", rs.Alive(), c)
	}
}

// TestC18FileIsReadBeforeTheFirstInstall: at start the value counts from the first
// moment, for both kinds of use.
func TestC18FileIsReadBeforeTheFirstInstall(t *testing.T) {
	out := func(string) int64 { return 1 }
	if vs, _ := New(withFile(0, true), trusted, out); vs.Servers[0].Alive() {
		t.Error("FILE_CHECK: alive before the file was heard")
	}
	if vs, _ := New(withFile(-9, false), trusted, out); vs.Servers[0].Weight() != 0 {
		t.Error("track_file: has a weight before the file was heard")
	}
}

// TestC06WeightFromFacts: the weight after any sequence of values is that of the
// last one.
func TestC06WeightFromFacts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := rapid.Int64Range(-254, 254).Draw(t, "weight")
		vs, _ := New(withFile(w, false), trusted, noFiles)
		last := int64(0)
		for _, v := range rapid.SliceOf(rapid.Int64Range(-1<<31, 1<<31)).Draw(t, "values") {
			last = v
			if _, err := vs.SetFile(0, 0, v); err != nil {
				t.Fatal(err)
			}
		}
		fresh, _ := New(withFile(w, false), trusted, func(string) int64 { return last })
		if vs.Servers[0].Weight() != fresh.Servers[0].Weight() {
			t.Fatalf("after a history %d, fresh %d", vs.Servers[0].Weight(), fresh.Servers[0].Weight())
		}
	})
}

// TestC06DynamicWeights: the weight is what the checks ask for now, whatever they
// asked for before and however often they failed in between.
func TestC06DynamicWeights(t *testing.T) {
	type step struct {
		check   int
		verdict Verdict
		dynamic Dynamic
		want    int64
	}
	ask := func(w int64) Dynamic { return Dynamic{Weight: w, Set: true} }
	for name, steps := range map[string][]step{
		"exit 12, timeout, exit 12, timeout": {{0, Up, ask(10), 10}, {0, Down, ask(10), 5}, {0, Up, ask(10), 10}, {0, Down, ask(10), 5}, {0, Up, Dynamic{}, 5}},
		"exit 12, timeout, exit 22":          {{0, Up, ask(10), 10}, {0, Down, ask(10), 5}, {0, Up, ask(20), 20}},
		"two scripts add up":                 {{0, Up, ask(10), 10}, {1, Up, ask(7), 12}, {1, Up, Dynamic{}, 10}},
		"their sum may be nothing":           {{0, Up, ask(0), 0}, {1, Up, ask(2), 0}, {1, Up, ask(9), 4}},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := pool(1, 0, 5)
			cfg.RealServers[0].Checkers = []*config.Checker{tcp("10.0.0.1:80"), tcp("10.0.0.1:81")}
			vs, _ := New(cfg, trusted, noFiles)
			for i, s := range steps {
				if _, err := vs.SetDynamic(0, s.check, s.dynamic); err != nil {
					t.Fatal(err)
				}
				if _, err := vs.SetVerdict(0, s.check, s.verdict); err != nil {
					t.Fatal(err)
				}
				if got := vs.Servers[0].Weight(); got != s.want {
					t.Errorf("step %d: weight %d, want %d", i+1, got, s.want)
				}
				if sum := vs.Servers[0].counted(); vs.Sum() != sum {
					t.Errorf("step %d: sum %d, counted %d", i+1, vs.Sum(), sum)
				}
			}
			// A reload with another configured weight keeps what is asked for.
			next := pool(1, 0, 8)
			next.RealServers[0].Checkers = cfg.RealServers[0].Checkers
			after, _ := Next(vs, next, trusted, noFiles)
			if d := vs.Servers[0].Dynamic(); !slices.Equal(d, after.Servers[0].Dynamic()) {
				t.Errorf("dynamic weights %v after the reload, %v before", after.Servers[0].Dynamic(), d)
			}
		})
	}
}

func TestUnknownIndexIsAnError(t *testing.T) {
	vs, _ := New(pool(1, 0, 1), trusted, noFiles)
	for _, i := range [][2]int{{-1, 0}, {1, 0}, {0, 1}, {0, -1}} {
		if _, err := vs.SetDynamic(i[0], i[1], Dynamic{}); err == nil {
			t.Errorf("weight for %v accepted", i)
		}
		if _, err := vs.SetVerdict(i[0], i[1], Up); err == nil {
			t.Errorf("verdict for %v accepted", i)
		}
		if _, err := vs.SetFile(i[0], i[1], 0); err == nil {
			t.Errorf("file value for %v accepted", i)
		}
	}
}
