package engine

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/tcp"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// common makes a configuration of services that all have the same hosts with the same
// checks, which they share.
func common(services, hosts int) *config.Config {
	cfg := many(services, 0)
	cfg.Global.ShareChecks = true
	for _, vs := range cfg.VirtualServers {
		for n := range hosts {
			at := netip.MustParseAddrPort(target(n + 1))
			rs := realServer(0)
			rs.Key.AddrPort, rs.Checkers[0].Conn.Target = at, at
			vs.RealServers = append(vs.RealServers, rs)
		}
	}
	return cfg
}

// eachCheck changes every checker.
func eachCheck(cfg *config.Config, f func(service int, c *config.Checker)) *config.Config {
	for i, vs := range cfg.VirtualServers {
		for _, rs := range vs.RealServers {
			for _, c := range rs.Checkers {
				f(i, c)
			}
		}
	}
	return cfg
}

func separate(cfg *config.Config) *config.Config {
	cfg.Global.ShareChecks = false
	return cfg
}

// probed returns how many probes there were since the last call.
func (r *rig) probed() (n int) {
	synctest.Wait()
	r.farm.mu.Lock()
	defer r.farm.mu.Unlock()
	for _, c := range r.farm.probes {
		n += c
	}
	clear(r.farm.probes)
	return n
}

// statesOf are those of one host in every service.
func (r *rig) statesOf(host int) (s []State) {
	synctest.Wait()
	for _, vs := range r.e.Snapshot().VirtualServers {
		for _, rs := range vs.RealServers {
			if rs.Address == target(host) {
				s = append(s, rs.State)
			}
		}
	}
	return s
}

func count[T comparable](s []T, v T) (n int) {
	for _, x := range s {
		if x == v {
			n++
		}
	}
	return n
}

// TestS03OneProbeForEachDistinctCheck: fifty services ask about ten hosts. Each round
// has ten probes, and each service its own retries and quorum.
func TestS03OneProbeForEachDistinctCheck(t *testing.T) {
	in(t, func(r *rig) {
		retries := func(i int, c *config.Checker) { c.Retry = uint32(i % 3) }
		cfg := eachCheck(common(50, 10), retries)
		for i, vs := range cfg.VirtualServers {
			if i%2 == 1 {
				vs.Quorum = 10
			}
		}
		r.start(cfg)
		r.pass(20 * time.Second)
		r.probed()
		r.pass(10 * time.Second)
		if n := r.probed(); n != 10 {
			t.Errorf("%d probes in a round", n)
		}
		if c := r.e.Snapshot().VirtualServers[7].RealServers[3].Checkers[0]; c.Shared != 50 || c.Last != "ok" {
			t.Errorf("status shows %+v", c)
		}

		// No failure forgiven: 17 services; one: 17; two: 16. A second between them.
		r.farm.set(1, checker.Failed, "refused")
		// The probe is at some moment of the next ten seconds.
		for count(r.statesOf(1), StateDown) == 0 {
			r.pass(100 * time.Millisecond)
		}
		for _, want := range []int{17, 34, 50} {
			if n := count(r.statesOf(1), StateDown); n != want {
				t.Errorf("down in %d services, want %d", n, want)
			}
			r.pass(time.Second)
		}
		lost := 0
		for _, vs := range r.e.Snapshot().VirtualServers {
			if !vs.QuorumUp {
				lost++
			}
		}
		if lost != 25 {
			t.Errorf("%d services lost their quorum, want those 25 that need all ten", lost)
		}
		if n := strings.Count(r.logged(), `msg="Check failed"`); n != 50 {
			t.Errorf("%d lines of failed checks, want one for each service", n)
		}
		r.farm.set(1, checker.OK, "")
		r.pass(10 * time.Second)
		if n := count(r.statesOf(1), StateUp); n != 50 {
			t.Errorf("up in %d services", n)
		}
	})
}

func TestS03WithoutSharing(t *testing.T) {
	in(t, func(r *rig) {
		r.start(separate(common(50, 10)))
		r.pass(20 * time.Second)
		r.probed()
		r.pass(10 * time.Second)
		if n := r.probed(); n != 500 {
			t.Errorf("%d probes in a round", n)
		}
		if c := r.e.Snapshot().VirtualServers[7].RealServers[3].Checkers[0]; c.Shared != 0 {
			t.Errorf("status shows %+v", c)
		}
	})
}

// TestS03RealSockets: the hosts themselves count the connections.
func TestS03RealSockets(t *testing.T) {
	const services, hosts, rounds = 50, 10, 3
	cfg := common(services, hosts)
	accepted := make(chan int)
	done := make(chan struct{})
	var wg sync.WaitGroup
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { close(done) })
	for h := range hosts {
		l, err := net.Listen("tcp4", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = l.Close() })
		at := netip.MustParseAddrPort(l.Addr().String())
		for _, vs := range cfg.VirtualServers {
			rs := vs.RealServers[h]
			rs.Key.AddrPort, rs.Checkers[0].Conn.Target = at, at
			rs.Checkers[0].DelayLoop, rs.Checkers[0].Warmup = 50*time.Millisecond, 50*time.Millisecond
		}
		wg.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				_ = c.Close()
				select {
				case accepted <- h:
				case <-done:
					return
				}
			}
		})
	}
	sched := checker.NewScheduler(checker.Options{})
	table := ipvstest.New()
	e := New(Options{
		Dial:      func(context.Context) (apply.IPVS, error) { return table, nil },
		Probe:     func(_ *config.Config, c *config.Checker) (checker.Probe, error) { return tcp.New(c), nil },
		Scheduler: sched, Files: fakeFiles{},
	})
	if err := e.Start(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	wg.Go(func() { _ = sched.Run(ctx) })
	var counts [hosts]int
	total := 0
	for slices.Min(counts[:]) < rounds {
		counts[<-accepted]++
		total++
	}
	cancel()
	// A slow machine may give some hosts more rounds than others, but no host fifty in
	// one.
	if total > services*hosts {
		t.Errorf("%d connections in about %d rounds of %d hosts: %v", total, rounds, hosts, counts)
	}
}

// TestSharedVerdictsAreThoseOfSeparateChecks: whoever runs the probe, the same outcomes
// make the same verdicts.
func TestSharedVerdictsAreThoseOfSeparateChecks(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		services := rapid.IntRange(2, 6).Draw(rt, "services")
		type knobs struct {
			retry, rise uint32
			alpha       bool
		}
		ks := make([]knobs, services)
		for i := range ks {
			ks[i] = knobs{rapid.Uint32Range(0, 3).Draw(rt, "retry"), rapid.Uint32Range(1, 3).Draw(rt, "rise"), rapid.Bool().Draw(rt, "alpha")}
		}
		outcomes := rapid.SliceOfN(rapid.SampledFrom([]checker.Result{checker.OK, checker.Failed, checker.Unable}), 1, 40).Draw(rt, "outcomes")
		var seen [2][][]framework.Verdict
		for round, share := range []bool{true, false} {
			seen[round] = make([][]framework.Verdict, services)
			synctest.Test(t, func(t *testing.T) {
				cfg := eachCheck(common(services, 1), func(i int, c *config.Checker) { c.Retry, c.Rise, c.Alpha = ks[i].retry, ks[i].rise, ks[i].alpha })
				cfg.Global.ShareChecks = share
				sched := &counting{tasks: map[checker.ID]checker.Task{}}
				e, _ := still(t, cfg, sched)
				if want := map[bool]int{true: 1, false: services}[share]; sched.added != want {
					rt.Fatalf("%d runs, want %d", sched.added, want)
				}
				for _, o := range outcomes {
					next := time.Hour
					for _, task := range sched.tasks {
						next = min(next, task.Judge(checker.Outcome{Result: o}))
					}
					for _, ev := range e.inbox.take() {
						v := ev.occurrence.(verdictEvent)
						i := slices.Index(e.vss, v.task.vs)
						seen[round][i] = append(seen[round][i], v.verdict)
					}
					time.Sleep(next)
				}
			})
		}
		if fmt.Sprint(seen[0]) != fmt.Sprint(seen[1]) {
			rt.Errorf("shared %v, separate %v", seen[0], seen[1])
		}
	})
}

// TestSharedRetryKeepsItsPace: where a retry is to come later than the next round, a
// member's retries are not used up by the rounds of another.
func TestSharedRetryKeepsItsPace(t *testing.T) {
	in(t, func(r *rig) {
		cfg := eachCheck(common(2, 1), func(i int, c *config.Checker) {
			c.DelayBeforeRetry, c.Retry = 30*time.Second, uint32(2*i)
		})
		r.start(cfg)
		r.pass(20 * time.Second)
		r.farm.set(1, checker.Failed, "refused")
		for count(r.statesOf(1), StateDown) == 0 {
			r.pass(100 * time.Millisecond)
		}
		r.pass(58 * time.Second)
		if n := count(r.statesOf(1), StateDown); n != 1 {
			t.Errorf("down in %d services before the retries of the second were over", n)
		}
		r.pass(3 * time.Second)
		if n := count(r.statesOf(1), StateDown); n != 2 {
			t.Errorf("down in %d services", n)
		}
	})
}

// TestSharedRunAndReloads: who joins is probed at once, by the run that is there; who
// leaves does not end it; and nobody's rhythm changes.
func TestSharedRunAndReloads(t *testing.T) {
	in(t, func(r *rig) {
		r.start(common(2, 3))
		r.pass(20 * time.Second)
		r.probed()
		r.reload(common(5, 3))
		if n := r.probed(); n != 3 {
			t.Errorf("%d probes for new services, want one for each host", n)
		}
		if n := len(r.statesOf(1)); n != 5 {
			t.Fatalf("%d services", n)
		}
		r.pass(10 * time.Second)
		if n := r.probed(); n != 3 {
			t.Errorf("%d probes in a round, want 3", n)
		}
		// The first services go; the last one alone is left.
		cfg := common(5, 3)
		cfg.VirtualServers = cfg.VirtualServers[4:]
		r.reload(cfg)
		r.pass(10 * time.Second)
		if n := r.probed(); n != 3 {
			t.Errorf("%d probes in a round with one service left", n)
		}
		if len(r.e.runs) != 3 {
			t.Errorf("%d runs are known", len(r.e.runs))
		}
		r.farm.set(2, checker.Failed, "refused")
		r.pass(10 * time.Second)
		if n := count(r.statesOf(2), StateDown); n != 1 {
			t.Errorf("down in %d services", n)
		}
		// With a whole other set of hosts nothing of the old is left.
		r.reload(conf(7))
		if len(r.e.runs) != 0 {
			t.Errorf("%d runs are known", len(r.e.runs))
		}
		r.probed()
		r.pass(10 * time.Second)
		if n := r.probed(); n != 1 {
			t.Errorf("%d probes in a round", n)
		}
	})
}

// TestSharedRunWithOtherIntervals: a service that asks more often leaves the others'
// run, and all do in the end.
func TestSharedRunWithOtherIntervals(t *testing.T) {
	in(t, func(r *rig) {
		faster := func(upTo int) *config.Config {
			return eachCheck(common(4, 1), func(i int, c *config.Checker) {
				if i < upTo {
					c.DelayLoop = 5 * time.Second
				}
			})
		}
		r.start(faster(0))
		r.pass(20 * time.Second)
		for upTo, want := range []int{1, 3, 3, 3, 2} {
			r.reload(faster(upTo))
			r.pass(10 * time.Second)
			r.probed()
			r.pass(10 * time.Second)
			if n := r.probed(); n != want {
				t.Errorf("%d of 4 services ask each 5 s: %d probes in 10 s, want %d", upTo, n, want)
			}
		}
		if n := count(r.statesOf(1), StateUp); n != 4 {
			t.Errorf("up in %d services", n)
		}
	})
}

// TestSharedRunIsNotHeldBySuspended: services whose address is elsewhere do not have a
// host probed.
func TestSharedRunIsNotHeldBySuspended(t *testing.T) {
	in(t, func(r *rig) {
		cfg := common(2, 1)
		for _, vs := range cfg.VirtualServers {
			vs.HASuspend = true
		}
		r.start(cfg)
		first := cfg.VirtualServers[0].Key.Addr.Addr()
		round := func(want int, present ...netip.Addr) {
			t.Helper()
			set := map[netip.Addr]bool{}
			for _, a := range present {
				set[a] = true
			}
			r.e.Addresses(set)
			r.pass(10 * time.Second)
			r.probed()
			r.pass(10 * time.Second)
			if n := r.probed(); n != want {
				t.Errorf("%d probes in a round, want %d", n, want)
			}
		}
		round(0)
		round(1, first)
		round(1, first, cfg.VirtualServers[1].Key.Addr.Addr())
		// The suspended one keeps its verdict while the other sees the host fail.
		round(1, first)
		r.farm.set(1, checker.Failed, "refused")
		r.pass(10 * time.Second)
		if s := r.statesOf(1); s[0] != StateDown || s[1] != StateUp {
			t.Errorf("states %v", s)
		}
		round(0)
	})
}

// TestShareChecksByReload: switching it splits and merges runs; verdicts, also those on
// their way, and retries go on.
func TestShareChecksByReload(t *testing.T) {
	in(t, func(r *rig) {
		fresh := func() *config.Config {
			return eachCheck(common(5, 2), func(_ int, c *config.Checker) { c.Retry = 1 })
		}
		r.start(fresh())
		r.farm.set(1, checker.Failed, "refused")
		r.pass(20 * time.Second)
		round := func(want int) {
			t.Helper()
			r.pass(10 * time.Second)
			r.probed()
			r.pass(10 * time.Second)
			if n := r.probed(); n != want {
				t.Errorf("%d probes in a round, want %d", n, want)
			}
			if down, up := count(r.statesOf(1), StateDown), count(r.statesOf(2), StateUp); down != 5 || up != 5 {
				t.Errorf("%d down, %d up", down, up)
			}
		}
		round(2)
		r.reload(separate(fresh()))
		if n := r.probed(); n != 0 {
			t.Errorf("the reload made %d probes", n)
		}
		round(10)
		r.reload(fresh())
		round(2)
		r.farm.set(1, checker.OK, "")
		r.pass(10 * time.Second)
		if n := count(r.statesOf(1), StateUp); n != 5 {
			t.Errorf("up in %d services", n)
		}
	})
}

// TestMiscChecksOfOneAddressOnly: a script may look at more than its arguments.
func TestMiscChecksOfOneAddressOnly(t *testing.T) {
	script := func(address string, argv ...string) (*config.RealServer, *config.Checker) {
		c := &config.Checker{Kind: config.MiscCheck, Misc: &config.Misc{Script: &config.Script{Argv: argv}, Timeout: time.Second}}
		return &config.RealServer{Key: config.RSKey{AddrPort: netip.MustParseAddrPort(address)}, Checkers: []*config.Checker{c}}, c
	}
	ar, a := script("10.0.0.1:80", "/bin/check", "x")
	for _, b := range []struct {
		address string
		argv    []string
		want    bool
	}{
		{"10.0.0.1:80", []string{"/bin/check", "x"}, true},
		{"10.0.0.2:80", []string{"/bin/check", "x"}, false},
		{"10.0.0.1:80", []string{"/bin/check", "y"}, false},
	} {
		br, bc := script(b.address, b.argv...)
		if got := sameRun(ar, a, br, bc); got != b.want {
			t.Errorf("%v for %s: shared %v", b.argv, b.address, got)
		}
	}
	br, _ := script("10.0.0.2:80", "/bin/check", "x")
	if sameRun(ar, a, br, a) {
		t.Error("one definition for two addresses is shared")
	}
}

// TestJudgeAllocatesNothing: this is done ten thousand times a second.
func TestJudgeAllocatesNothing(t *testing.T) {
	for _, services := range []int{1, 50} {
		sched := &counting{tasks: map[checker.ID]checker.Task{}}
		e, _ := still(t, common(services, 1), sched)
		judge := sched.tasks[1].Judge
		judge(checker.Outcome{Reason: "connected", Took: time.Millisecond})
		if n := len(e.inbox.take()); n != services {
			t.Fatalf("%d verdicts of %d services", n, services)
		}
		if n := testing.AllocsPerRun(100, func() { judge(checker.Outcome{Reason: "connected", Took: time.Millisecond}) }); n != 0 {
			t.Errorf("%v allocations for an outcome of %d services", n, services)
		}
	}
}

func BenchmarkJudge(b *testing.B) {
	for _, services := range []int{1, 50} {
		b.Run(fmt.Sprint(services, " members"), func(b *testing.B) {
			sched := &counting{tasks: map[checker.ID]checker.Task{}}
			_, _ = still(b, common(services, 1), sched)
			judge := sched.tasks[1].Judge
			b.ReportAllocs()
			for b.Loop() {
				judge(checker.Outcome{Reason: "connected", Took: time.Millisecond})
			}
		})
	}
}

// TestSharedRunsAreLeftAlone by a start, and by a reload that changes what is shared
// with nobody.
func TestSharedRunsAreLeftAlone(t *testing.T) {
	sched := &counting{}
	e, _ := still(t, common(50, 10), sched)
	if sched.counts != (counts{added: 10}) {
		t.Errorf("a start: %+v", sched.counts)
	}
	cfg := common(1, 10)
	e.change(t, planned(e.running.Load(), cfg))
	sched.counts = counts{}
	for _, change := range []func(*config.Checker){
		func(c *config.Checker) { c.DelayBeforeRetry *= 2 },
		func(c *config.Checker) { c.DelayLoop *= 2 },
		func(c *config.Checker) { c.Retry++ },
	} {
		cfg = again(cfg)
		eachCheck(cfg, func(_ int, c *config.Checker) { change(c) })
		e.change(t, planned(e.running.Load(), cfg))
		if sched.counts != (counts{}) {
			t.Errorf("a reload of other intervals: %+v", sched.counts)
		}
	}
}
