package framework

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func at(s float64) time.Time { return epoch.Add(time.Duration(s * float64(time.Second))) }

// floored makes a pool of n servers of weight 10 with a floor.
func floored(n int, floor config.Floor) *config.VirtualServer {
	vs := pool(1, 0, slices.Repeat([]int64{10}, n)...)
	vs.MinAlive = floor
	return vs
}

// standings writes who serves: a digit for a server that serves, in brackets one
// that the floor keeps, "-" for one that is out, "h" for one that is held.
func drawn(vs *VirtualServer) string {
	var b strings.Builder
	for i, rs := range vs.Servers {
		switch {
		case rs.Kept():
			fmt.Fprintf(&b, "(%d)", i+1)
		case rs.Alive() && rs.Weight() > 0:
			fmt.Fprintf(&b, "%d", i+1)
		case !rs.HeldUntil().IsZero():
			b.WriteString("h")
		default:
			b.WriteString("-")
		}
	}
	return b.String()
}

// play sets verdicts, "+2" for server 2 up and "-2" for down, and checks who serves
// after each.
func play(t *testing.T, vs *VirtualServer, steps ...string) {
	t.Helper()
	for i := 0; i < len(steps); i += 2 {
		v, n := Down, int(steps[i][1]-'1')
		if steps[i][0] == '+' {
			v = Up
		}
		mustVerdict(t, vs, n, v)
		if got := drawn(vs); got != steps[i+1] {
			t.Errorf("after %s: %s, want %s", strings.Join(steps[:i+1], " "), got, steps[i+1])
		}
	}
}

func TestFloorKeepsThoseThatFailedLast(t *testing.T) {
	vs, _ := New(floored(4, config.Floor{Servers: 2}), trusted, noFiles)
	play(t, vs,
		"-2", "1-34",
		"-1", "--34",
		"-3", "--(3)4",
		"-4", "--(3)(4)",
		"-4", "--(3)(4)", // a second failure changes nothing
		"+1", "1--(4)",
		"-1", "(1)--(4)",
		"+2", "(1)2--", // 1 failed after 4
		"+3", "-23-",
		"+1", "123-",
	)
	if vs.AtFloor() {
		t.Error("at the floor with three good servers")
	}
}

func TestFloorOfAShareIsRoundedUp(t *testing.T) {
	for _, tc := range []struct {
		floor   config.Floor
		n, want int
	}{
		{config.Floor{}, 4, 0}, {config.Floor{Percent: 50}, 4, 2}, {config.Floor{Percent: 50}, 5, 3}, {config.Floor{Percent: 1}, 4, 1},
		{config.Floor{Percent: 34}, 3, 2}, {config.Floor{Percent: 33}, 3, 1}, {config.Floor{Percent: 100}, 7, 7},
		{config.Floor{Servers: 3}, 4, 3}, {config.Floor{Servers: 9}, 4, 4}, {config.Floor{Servers: 1<<32 - 1}, 4, 4},
	} {
		vs, _ := New(floored(tc.n, tc.floor), trusted, noFiles)
		if got := vs.Floor(); got != tc.want {
			t.Errorf("min_alive %s of %d: %d, want %d", tc.floor, tc.n, got, tc.want)
		}
	}
}

// TestQ10DisabledServersCountAsOut: 4 servers, floor 50 %, 2 disabled, 1 fails: two
// must go on serving, and the failed one is marked.
func TestQ10DisabledServersCountAsOut(t *testing.T) {
	cfg := floored(4, config.Floor{Percent: 50})
	cfg.RealServers[0].Weight = 0
	cfg.RealServers[1].TrackFiles = []config.TrackFileUse{{Name: "maintenance"}}
	vs, _ := New(cfg, trusted, noFiles)
	if _, err := vs.SetFile(1, 0, 1); err != nil {
		t.Fatal(err)
	}
	play(t, vs,
		"-3", "--(3)4",
		"-4", "--(3)(4)",
		"-2", "--(3)(4)", // a drained server is never kept, whenever it failed
		"-1", "--(3)(4)",
	)
	// Its drain over, it is a failed server that is out: no exchange.
	if _, err := vs.SetFile(1, 0, 0); err != nil {
		t.Fatal(err)
	}
	if got := drawn(vs); got != "--(3)(4)" {
		t.Errorf("after the drain: %s", got)
	}
	// A healthy server that is disabled makes room for a failed one.
	play(t, vs, "+4", "--(3)4", "+3", "--34")
	if _, err := vs.SetFile(1, 0, 1); err != nil {
		t.Fatal(err)
	}
	play(t, vs, "+2", "--34", "-3", "--(3)4")
}

// TestQ09FloorHoldsOnReload: all checks fail, and a reload adds a server and takes
// one away; the guard holds for the newcomer's first result too.
func TestQ09FloorHoldsOnReload(t *testing.T) {
	vs, _ := New(floored(4, config.Floor{Percent: 50}), trusted, noFiles)
	play(t, vs, "-1", "-234", "-2", "--34", "-3", "--(3)4", "-4", "--(3)(4)")
	same, ev := Next(vs, floored(4, config.Floor{Percent: 50}), untrusted, noFiles)
	if got := drawn(same); got != "--(3)(4)" || ev != QuorumUnchanged {
		t.Errorf("the same file again: %s, %s", got, ev)
	}
	// What fails from now on has failed after what failed before the reload.
	play(t, same, "+1", "1--(4)", "-1", "(1)--(4)", "+2", "(1)2--")
	// Half of five is three. One that waits fills its place soon, so no failed one
	// is brought back for it.
	more, _ := Next(vs, floored(5, config.Floor{Percent: 50}), untrusted, noFiles)
	if got := drawn(more); got != "--(3)(4)-" {
		t.Errorf("one more, not trusted: %s", got)
	}
	play(t, more, "-5", "-(2)(3)(4)-", "+5", "--(3)(4)5") // 2 was good once
	more, _ = Next(vs, floored(5, config.Floor{Percent: 50}), trusted, noFiles)
	if got := drawn(more); got != "--(3)(4)5" {
		t.Errorf("one more, trusted: %s", got)
	}
	play(t, more, "-5", "--(3)(4)(5)")
	if more.Sum() != 30 || !more.QuorumUp() {
		t.Errorf("sum %d, quorum %t", more.Sum(), more.QuorumUp())
	}
	// Those that were kept are gone from the file.
	cfg := floored(4, config.Floor{Percent: 50})
	cfg.RealServers = cfg.RealServers[:3]
	less, _ := Next(vs, cfg, untrusted, noFiles)
	if got := drawn(less); got != "-(2)(3)" {
		t.Errorf("one less: %s", got)
	}
	// The failing checks are gone from the file: nobody vouches for these servers,
	// and they stay as long as nobody else can.
	cfg = floored(4, config.Floor{Percent: 50})
	for i, rs := range cfg.RealServers {
		rs.Checkers[0] = tcp(fmt.Sprintf("10.0.0.%d:81", i+1))
	}
	other, _ := Next(vs, cfg, untrusted, noFiles)
	if got := drawn(other); got != "--(3)(4)" || !other.Servers[2].Unverified() {
		t.Errorf("other checks: %s", got)
	}
	play(t, other, "-1", "--(3)(4)", "-2", "--(3)(4)", "-4", "--(3)(4)", "+1", "1--(4)", "+2", "12--")
	// Without the floor they go.
	off, ev := Next(vs, floored(4, config.Floor{}), untrusted, noFiles)
	if got := drawn(off); got != "----" || ev != QuorumLost {
		t.Errorf("floor off: %s, %s", got, ev)
	}
}

// TestFloorAtStart: with alpha nothing serves before its first check, and a server
// that fails is not brought in while others may still prove good.
func TestFloorAtStart(t *testing.T) {
	vs, _ := New(floored(4, config.Floor{Servers: 2}), untrusted, noFiles)
	if got := drawn(vs); got != "----" {
		t.Errorf("at start: %s", got)
	}
	play(t, vs, "-1", "----", "-2", "----", "-3", "(1)---", "-4", "(1)(2)--")
	vs, _ = New(floored(4, config.Floor{Servers: 2}), trusted, noFiles)
	play(t, vs, "-1", "-234", "-3", "-2-4", "-4", "-2-(4)", "-2", "-(2)-(4)")
}

func TestKeptServersCountForTheQuorum(t *testing.T) {
	cfg := floored(2, config.Floor{Servers: 1})
	vs, _ := New(cfg, trusted, noFiles)
	mustVerdict(t, vs, 0, Down)
	if c := mustVerdict(t, vs, 1, Down); c.Quorum != QuorumUnchanged || vs.Sum() != 10 {
		t.Errorf("%s with sum %d", c.Quorum, vs.Sum())
	}
}

func TestWeightAt(t *testing.T) {
	const full, d = 1000, 100 * time.Second
	for _, tc := range []struct {
		full int64
		s    float64
		d    time.Duration
		want int64
	}{
		{full, 0, d, 100}, {full, 9.999, d, 100}, {full, 10, d, 190}, {full, 55, d, 550}, {full, 99.999, d, 910}, {full, 100, d, full}, {full, 1e6, d, full},
		{full, -5, d, 100}, {5, 0, d, 1}, {1, 50, d, 1}, {0, 0, d, 0}, {MaxWeight, 0, d, MaxWeight / 10}, {full, 0, 0, full},
	} {
		if got := weightAt(tc.full, at(0), at(tc.s), tc.d); got != tc.want {
			t.Errorf("weight %d after %v of %v: %d, want %d", tc.full, tc.s, tc.d, got, tc.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		full, d := rapid.Int64Range(1, MaxWeight).Draw(t, "full"), time.Duration(rapid.Int64Range(1, int64(7*24*time.Hour)).Draw(t, "duration"))
		now, last, steps := at(0), int64(0), 0
		for ; ; steps++ {
			w := weightAt(full, at(0), now, d)
			if w < last || w < 1 || w > full {
				t.Fatalf("weight %d after %d", w, last)
			}
			last = w
			next := rampNext(at(0), now, d)
			if next.IsZero() {
				break
			}
			if !next.After(now) {
				t.Fatalf("the step after %v is due at %v", now, next)
			}
			now = next
		}
		if last != full || now != at(0).Add(d) || d >= rampSteps && steps != rampSteps {
			t.Fatalf("after %d steps and %v the weight is %d of %d", steps, now.Sub(at(0)), last, full)
		}
	})
}

// shares are the weights in the table.
func shares(vs *VirtualServer) string {
	var out []string
	for _, rs := range vs.Servers {
		w := rs.Share()
		if !rs.Alive() {
			w = -1
		}
		out = append(out, fmt.Sprint(w))
	}
	return strings.Join(out, " ")
}

func TestSlowStart(t *testing.T) {
	slow := func(n int, floor config.Floor) *config.VirtualServer {
		cfg := floored(n, floor)
		for _, rs := range cfg.RealServers {
			rs.SlowStart, rs.Weight = 10*time.Second, 100
		}
		return cfg
	}
	vs, _ := New(slow(3, config.Floor{}), trusted, noFiles)
	check := func(what, want string) {
		t.Helper()
		if got := shares(vs); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	vs.Advance(at(0))
	check("a cold start is not slow", "100 100 100")
	mustVerdict(t, vs, 0, Down)
	vs.Advance(at(5))
	if c := mustVerdict(t, vs, 0, Up); c.Quorum != QuorumUnchanged || vs.Sum() != 300 || !c.Of(0).ShareChanged {
		t.Errorf("%+v with sum %d: the whole weight counts for the quorum", c, vs.Sum())
	}
	check("back", "10 100 100")
	if vs.NextAt() != at(6) || vs.Servers[0].RisesUntil() != at(15) {
		t.Errorf("next at %v until %v", vs.NextAt(), vs.Servers[0].RisesUntil())
	}
	if c := vs.Advance(at(5.9)); len(c.Servers) != 0 {
		t.Errorf("too early: %+v", c)
	}
	if c := vs.Advance(at(6)); len(c.Servers) != 1 || !c.Of(0).ShareChanged || c.Of(0).WeightChanged {
		t.Errorf("a step: %+v", c)
	}
	check("one step", "19 100 100")
	// A reload keeps the ramp and starts one for what it adds.
	vs, _ = Next(vs, slow(4, config.Floor{}), trusted, noFiles)
	check("reload", "19 100 100 10")
	vs.Advance(at(14))
	check("later", "91 100 100 82")
	vs.Advance(at(20))
	check("over", "100 100 100 100")
	if !vs.NextAt().IsZero() {
		t.Errorf("next at %v", vs.NextAt())
	}
	// The only one that is left rises at once; one that comes back to it does not.
	for i := range 3 {
		mustVerdict(t, vs, i, Down)
	}
	mustVerdict(t, vs, 0, Up)
	check("two", "10 -1 -1 100")
	mustVerdict(t, vs, 3, Down)
	check("one", "100 -1 -1 -1")
	mustVerdict(t, vs, 3, Up)
	mustVerdict(t, vs, 3, Down)
	mustVerdict(t, vs, 0, Down)
	mustVerdict(t, vs, 1, Up)
	check("the first to come back", "-1 100 -1 -1")

	// At the floor the good ones must not stand back behind those that fail.
	vs, _ = New(slow(4, config.Floor{Servers: 3}), trusted, noFiles)
	vs.Advance(at(0))
	play(t, vs, "-1", "-234", "-2", "-(2)34", "-3", "-(2)(3)4", "-4", "-(2)(3)(4)", "+1", "1-(3)(4)", "+2", "12-(4)")
	check("at the floor", "100 100 -1 100")
	mustVerdict(t, vs, 3, Up)
	mustVerdict(t, vs, 2, Up)
	check("off the floor", "100 100 10 100")

	// Back from maintenance is back.
	cfg := slow(2, config.Floor{})
	cfg.RealServers[0].TrackFiles = []config.TrackFileUse{{Name: "f"}}
	vs, _ = New(cfg, trusted, func(string) int64 { return 1 })
	vs.Advance(at(0))
	check("drained", "0 100")
	if _, err := vs.SetFile(0, 0, 0); err != nil {
		t.Fatal(err)
	}
	check("the first time it serves", "100 100")
	for _, v := range []int64{1, 0} {
		if _, err := vs.SetFile(0, 0, v); err != nil {
			t.Fatal(err)
		}
	}
	check("back from maintenance", "10 100")
}

func TestHold(t *testing.T) {
	d := config.Damping{Count: 3, Within: time.Minute}
	for level, want := range map[uint]time.Duration{1: 20 * time.Second, 2: 40 * time.Second, 3: 80 * time.Second, 5: 320 * time.Second, 6: 10 * time.Minute, 64: 10 * time.Minute} {
		if got := hold(d, level); got != want {
			t.Errorf("level %d: %v, want %v", level, got, want)
		}
	}
}

func TestFlapDamping(t *testing.T) {
	damped := func() *config.VirtualServer {
		cfg := floored(2, config.Floor{})
		cfg.FlapDamping = config.Damping{Count: 3, Within: time.Minute}
		return cfg
	}
	vs, _ := New(damped(), trusted, noFiles)
	step := func(s float64, v Verdict, want string, until float64) {
		t.Helper()
		vs.Advance(at(s))
		if v != Unknown {
			mustVerdict(t, vs, 0, v)
		}
		held := time.Time{}
		if until > 0 {
			held = at(until)
		}
		if got := drawn(vs); got != want || vs.Servers[0].HeldUntil() != held {
			t.Errorf("at %v: %s until %v, want %s until %v", s, got, vs.Servers[0].HeldUntil(), want, held)
		}
	}
	step(0, Down, "-2", 0)
	step(1, Up, "12", 0)
	step(10, Down, "-2", 0)
	step(11, Up, "12", 0)
	step(20, Down, "-2", 0) // the third within a minute
	step(21, Up, "h2", 41)
	step(40.9, Unknown, "h2", 41)
	step(41, Unknown, "12", 0)
	step(50, Down, "-2", 0) // again within a minute of its return
	step(51, Up, "h2", 91)
	step(60, Down, "-2", 0) // and within its hold
	step(70, Up, "h2", 150)
	vs, _ = Next(vs, damped(), untrusted, noFiles)
	step(71, Unknown, "h2", 150)
	step(150, Unknown, "12", 0)
	step(211, Down, "-2", 0) // more than a minute good: forgotten
	step(212, Up, "12", 0)
	if n := vs.Servers[0].Flaps(); n != 0 {
		t.Errorf("%d flaps", n)
	}
	step(213, Down, "-2", 0)
	step(214, Up, "12", 0)
	step(215, Down, "-2", 0)
	step(216, Up, "h2", 236)
	// The other one fails: an unsteady server is better than none, and stays.
	mustVerdict(t, vs, 1, Down)
	step(217, Unknown, "1-", 0)
	mustVerdict(t, vs, 1, Up)
	step(218, Unknown, "12", 0)
	step(219, Down, "-2", 0)
	step(220, Up, "h2", 260)
	// Damping is off: it is back.
	vs, _ = Next(vs, floored(2, config.Floor{}), untrusted, noFiles)
	step(221, Unknown, "12", 0)

	// Down three times, but not within the minute.
	vs, _ = New(damped(), trusted, noFiles)
	for i := range 9 {
		step(float64(31*i), Down, "-2", 0)
		step(float64(31*i)+1, Up, "12", 0)
	}
}

// TestHeldServersComeBackForTheFloor: a server that passes its checks is better than
// one that does not.
func TestHeldServersComeBackForTheFloor(t *testing.T) {
	cfg := floored(3, config.Floor{Servers: 2})
	cfg.FlapDamping = config.Damping{Count: 1, Within: time.Minute}
	vs, _ := New(cfg, trusted, noFiles)
	vs.Advance(at(0))
	play(t, vs, "-1", "-23", "+1", "h23", "-2", "1-3", "-1", "(1)-3")
}

// protectedPool is a random configuration of up to six servers, some of which a
// file drains.
func protectedPool(t *rapid.T) *config.VirtualServer {
	n := rapid.IntRange(1, 6).Draw(t, "servers")
	cfg := floored(n, config.Floor{})
	switch rapid.IntRange(0, 2).Draw(t, "floor") {
	case 1:
		cfg.MinAlive.Percent = rapid.Uint32Range(1, 100).Draw(t, "percent")
	case 2:
		cfg.MinAlive.Servers = rapid.Uint32Range(1, 7).Draw(t, "number")
	}
	if rapid.Bool().Draw(t, "damping") {
		cfg.FlapDamping = config.Damping{Count: rapid.Uint32Range(1, 3).Draw(t, "count"), Within: time.Minute}
	}
	for _, rs := range cfg.RealServers {
		rs.Weight = rapid.Int64Range(0, 20).Draw(t, "weight")
		rs.SlowStart = time.Duration(rapid.IntRange(0, 30).Draw(t, "slow")) * time.Second
		rs.TrackFiles = []config.TrackFileUse{{Name: "f"}}
		if rapid.IntRange(0, 4).Draw(t, "other check") == 0 {
			rs.Checkers[0] = tcp("10.0.0.99:99")
		}
	}
	return cfg
}

// TestProtection holds random sequences of verdicts, drains, waits and reloads to
// what floor, damping and slow start promise.
func TestProtection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		trusts := map[string]Trust{"trusted": trusted, "untrusted": untrusted, "some": func(rc *config.RealServer) bool { return rc.Key.Addr().As4()[3]%2 == 0 }}
		pickTrust := func() Trust {
			return trusts[rapid.SampledFrom([]string{"trusted", "untrusted", "some"}).Draw(t, "trust")]
		}
		cfg, trust := protectedPool(t), pickTrust()
		vs, _ := New(cfg, trust, noFiles)
		twin, _ := New(cfg, trust, noFiles)
		clock := epoch
		vs.Advance(clock)
		twin.Advance(clock)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			i := rapid.IntRange(0, len(vs.Servers)-1).Draw(t, "server")
			was := map[config.RSKey]standing{}
			for _, rs := range vs.Servers {
				was[rs.Config.Key] = rs.standing
			}
			var c Change
			reloaded := false
			switch rapid.IntRange(0, 9).Draw(t, "event") {
			case 0:
				v := rapid.Int64Range(0, 1).Draw(t, "drained")
				c, _ = vs.SetFile(i, 0, v)
				_, _ = twin.SetFile(i, 0, v)
			case 1, 2:
				clock = clock.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "seconds")) * time.Second)
				c = vs.Advance(clock)
				twin.Advance(clock)
			case 3:
				next, how := protectedPool(t), pickTrust()
				vs, _ = Next(vs, next, how, noFiles)
				twin, _ = Next(twin, next, how, noFiles)
				reloaded = true
			default:
				v := rapid.SampledFrom([]Verdict{Up, Down, Down}).Draw(t, "verdict")
				c = mustVerdict(t, vs, i, v)
				mustVerdict(t, twin, i, v)
			}
			if drawn(vs) != drawn(twin) || shares(vs) != shares(twin) {
				t.Fatalf("the same events made %s and %s", drawn(vs), drawn(twin))
			}
			if !reloaded {
				reported(t, vs, was, c)
			}
			promised(t, vs, was)
		}
	})
}

// reported checks that a change names exactly what changed.
func reported(t *rapid.T, vs *VirtualServer, was map[config.RSKey]standing, c Change) {
	for i, rs := range vs.Servers {
		want, _ := rs.compare(was[rs.Config.Key], i)
		if got := c.Of(i); got != want {
			t.Fatalf("server %d: reported %+v, want %+v", i+1, got, want)
		}
	}
}

func promised(t *rapid.T, vs *VirtualServer, was map[config.RSKey]standing) {
	serving, waiting, enabled, healthy, kept := 0, 0, 0, 0, 0
	var sum int64
	// The failures of those that are kept or brought back, and of those let go or
	// left out.
	stay, back, gone, out := ^uint64(0), ^uint64(0), uint64(0), uint64(0)
	for i, rs := range vs.Servers {
		if rs.Alive() {
			sum += rs.Weight()
		}
		if rs.Weight() == 0 {
			if rs.Kept() {
				t.Fatalf("server %d is kept at weight 0", i+1)
			}
			continue
		}
		enabled++
		before := was[rs.Config.Key]
		served := before.alive && before.weight > 0
		switch {
		case rs.Kept():
			kept++
			serving++
			if rs.passing {
				t.Fatalf("server %d is kept, and passes its checks", i+1)
			}
			if served {
				stay = min(stay, rs.failedAs)
			} else {
				back = min(back, rs.failedAs)
			}
		case rs.Alive():
			healthy++
			serving++
			if !rs.passing {
				t.Fatalf("server %d serves without passing", i+1)
			}
		case rs.Unverified():
			waiting++
		case rs.failing:
			if served {
				gone = max(gone, rs.failedAs)
			} else {
				out = max(out, rs.failedAs)
			}
		}
		if !rs.HeldUntil().IsZero() && !rs.HeldUntil().After(vs.now) {
			t.Fatalf("server %d is held until %v at %v", i+1, rs.HeldUntil(), vs.now)
		}
		if s := rs.Share(); s < 1 || s > rs.Weight() {
			t.Fatalf("server %d has share %d of %d", i+1, s, rs.Weight())
		}
		if rs.Share() < rs.Weight() && vs.AtFloor() {
			t.Fatalf("server %d starts slowly at the floor", i+1)
		}
	}
	floor := min(vs.Floor(), enabled)
	if serving+waiting < floor {
		t.Fatalf("%s: %d serve and %d wait, the floor is %d", drawn(vs), serving, waiting, floor)
	}
	if serving < floor {
		for i, rs := range vs.Servers {
			if before := was[rs.Config.Key]; rs.Weight() > 0 && before.alive && before.weight > 0 && !rs.Alive() {
				t.Fatalf("%s: server %d was taken out below the floor of %d", drawn(vs), i+1, floor)
			}
		}
	}
	if gone > stay || out > back {
		t.Fatalf("%s: number %d was let go and %d is kept, %d is out and %d is back", drawn(vs), gone, stay, out, back)
	}
	if gone > 0 && back != ^uint64(0) {
		t.Fatalf("%s: one failed server was exchanged for another", drawn(vs))
	}
	if kept > 0 && kept+healthy > vs.Floor() {
		t.Fatalf("%s: more are kept than the floor of %d needs", drawn(vs), vs.Floor())
	}
	for _, rs := range vs.Servers {
		if rs.held && rs.weight > 0 && healthy < max(vs.Floor(), 1) {
			t.Fatalf("%s: one is held though only %d are healthy", drawn(vs), healthy)
		}
	}
	if sum != vs.Sum() {
		t.Fatalf("sum %d, want %d", vs.Sum(), sum)
	}
	if n := vs.NextAt(); !n.IsZero() && !n.After(vs.now) {
		t.Fatalf("at %v the next move is due at %v", vs.now, n)
	}
}
