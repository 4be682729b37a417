package engine

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// why explains server n of the first virtual server, and holds what every explanation
// must fulfil.
func (r *rig) why(n int) *Explanation {
	r.Helper()
	synctest.Wait()
	x, err := r.e.Explain(r.Context(), "192.0.2.1:80", target(n))
	if err != nil {
		r.Fatal(err)
	}
	sum := int64(0)
	for _, p := range x.Weight {
		sum += p.Adds
		if p.Text == "not wanted in the table now" {
			r.Errorf("a part of the weight has no explanation: %+v", x.Weight)
		}
	}
	if sum != max(x.RealServer.WeightWanted, 0) {
		r.Errorf("parts add up to %d, wanted is %d: %+v", sum, x.RealServer.WeightWanted, x.Weight)
	}
	if _, err := json.Marshal(x); err != nil {
		r.Error(err)
	}
	return x
}

func (r *rig) says(x *Explanation, inService bool, parts ...string) {
	r.Helper()
	if x.InService != inService {
		r.Errorf("in service: %v: %s", x.InService, x.Summary)
	}
	for _, p := range parts {
		if !strings.Contains(x.Summary, p) {
			r.Errorf("the summary does not say %q: %s", p, x.Summary)
		}
	}
}

func weights(x *Explanation) string {
	var out []string
	for _, p := range x.Weight {
		out = append(out, fmt.Sprintf("%s (%+d)", p.Text, p.Adds))
	}
	return strings.Join(out, "; ")
}

func retried(servers ...int) *config.Config {
	return each(conf(servers...), func(rs *config.RealServer) { rs.Checkers[0].Retry, rs.Checkers[0].Rise = 2, 2 })
}

// TestExplainFailure follows a server from its first failed attempt to the day after.
func TestExplainFailure(t *testing.T) {
	inBubble(t, retried(1, 2), func(r *rig) {
		x := r.why(1)
		r.says(x, true, "in service", "all checks pass")
		if c := x.Checks[0]; c.History != nil || c.Missing != 0 || c.Next.Before(x.At) || c.Every != 10*time.Second {
			t.Errorf("in peace: %+v", c)
		}
		f := &checker.Fault{Stage: checker.StageConnect, Target: target(1), Errno: syscall.ECONNREFUSED}
		reason := func(ms int) checker.Outcome {
			return checker.Outcome{Result: checker.Failed, Reason: fmt.Sprintf("connect: refused, after %dms", ms), Fault: &checker.Fault{Stage: f.Stage, Target: f.Target, Errno: f.Errno}}
		}
		r.farm.put(1, reason(1))
		for r.rs(1).Checkers[0].Failures == 0 {
			r.pass(100 * time.Millisecond)
		}
		x = r.why(1)
		r.says(x, true, "attempt 1 of 3", "refused", "out at attempt 3, next in")
		r.farm.put(1, reason(2))
		r.pass(3 * time.Second)
		x = r.why(1)
		r.says(x, false, "It is out for", "TCP_CHECK 10.0.0.1:80 fails: connect: refused", "back after 2 more good checks, next in")
		c := x.Checks[0]
		if c.Verdict != "down" || c.Missing != 2 || c.Since.IsZero() || x.At.Sub(c.Since) > 4*time.Second {
			t.Errorf("%+v", c)
		}
		if len(c.History) != 2 || c.History[0].Result != "ok" || !c.History[0].First.IsZero() || c.History[1].Count != 3 ||
			c.History[1].Reason != reason(2).Reason || *c.History[1].Fault != (Fault{Stage: "connect", Target: target(1), Errno: "ECONNREFUSED"}) {
			t.Errorf("history %+v", c.History)
		}
		if got := weights(x); got != "configured 1 (+1); out while its checks fail (-1)" {
			t.Error(got)
		}
		if s := x.Services; len(s) != 1 || s[0].Destinations[0].Wanted != -1 || s[0].Destinations[0].Kernel != -1 {
			t.Errorf("services %+v", s)
		}
		// One good one: half way.
		r.set(1, checker.OK, "ok")
		for r.why(1).Checks[0].Missing == 2 {
			r.pass(100 * time.Millisecond)
		}
		r.says(r.why(1), false, "connect: refused", "back after the next good check")
		r.pass(10 * time.Second)
		r.says(r.why(1), true)
		if h := r.why(1).Checks[0].History; len(h) != 3 {
			t.Errorf("history %+v", h)
		}
		// A day of good results is peace again.
		r.pass(goodAgain + time.Minute)
		if h := r.why(1).Checks[0].History; h != nil {
			t.Errorf("after a day %+v", h)
		}
	})
}

// TestExplainPool: what keeps or brings a server back can be its pool.
func TestExplainPool(t *testing.T) {
	t.Run("withdrawn", func(t *testing.T) {
		cfg := conf(1, 2)
		cfg.VirtualServers[0].Quorum = 2
		cfg.VirtualServers[0].Sorry = &config.SorryServer{Key: config.RSKey{AddrPort: netip.MustParseAddrPort(target(9))}, Forward: config.Forwarding{Method: config.NAT}}
		inBubble(t, cfg, func(r *rig) {
			r.set(2, checker.Failed, "refused")
			r.pass(20 * time.Second)
			x := r.why(1)
			r.says(x, false, "lost its quorum (weight 1 alive, 2 needed)", "sorry server 10.0.0.9:80 serves", "comes back when weight 2 is alive")
			if got := weights(x); got != "configured 1 (+1); out while the sorry server serves (-1)" {
				t.Error(got)
			}
			r.says(r.why(2), false, "TCP_CHECK 10.0.0.2:80 fails: refused")
		})
	})
	t.Run("kept", func(t *testing.T) {
		cfg := conf(1, 2)
		cfg.VirtualServers[0].MinAlive = config.Floor{Servers: 1}
		inBubble(t, cfg, func(r *rig) {
			r.set(1, checker.Failed, "refused")
			r.set(2, checker.Failed, "refused")
			r.pass(20 * time.Second)
			kept := 0
			for n := 1; n <= 2; n++ {
				if x := r.why(n); x.RealServer.State == StateKept {
					kept++
					r.says(x, true, "in service though TCP_CHECK", "min_alive keeps it", "It needs no keeping after the next good check")
				}
			}
			if kept != 1 {
				t.Errorf("%d kept", kept)
			}
		})
	})
	t.Run("damped", func(t *testing.T) {
		cfg := conf(1, 2)
		cfg.VirtualServers[0].FlapDamping = config.Damping{Count: 2, Within: 10 * time.Minute}
		inBubble(t, cfg, func(r *rig) {
			for range 2 {
				r.set(1, checker.Failed, "refused")
				r.pass(20 * time.Second)
				r.set(1, checker.OK, "ok")
				r.pass(20 * time.Second)
			}
			r.says(r.why(1), false, "it flapped 1 times", "comes back in 5 min")
		})
	})
	t.Run("inhibited", func(t *testing.T) {
		inBubble(t, each(conf(1, 2), func(rs *config.RealServer) { rs.Inhibit = true }), func(r *rig) {
			r.set(1, checker.Failed, "refused")
			r.pass(20 * time.Second)
			x := r.why(1)
			r.says(x, false, "stays in the table with weight 0")
			if got := weights(x); got != "configured 1 (+1); weight 0 while its checks fail (inhibit_on_failure) (-1)" {
				t.Error(got)
			}
		})
	})
	t.Run("unverified", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.set(1, checker.Failed, "refused")
			r.set(2, checker.OK, "ok")
			r.start(alphaConf(1, 2))
			x := r.why(1)
			r.says(x, false, "has not passed its first check: TCP_CHECK 10.0.0.1:80", "after the next good check, next in")
			r.stop(nil)
		})
	})
	t.Run("suspended", func(t *testing.T) {
		cfg := conf(1)
		cfg.VirtualServers[0].HASuspend = true
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			r.start(cfg)
			r.e.Addresses(map[netip.Addr]bool{})
			r.pass(time.Second)
			x := r.why(1)
			r.says(x, true, "ha_suspend")
			if !x.Checks[0].Next.IsZero() {
				t.Errorf("a check runs at %v", x.Checks[0].Next)
			}
			r.stop(nil)
		})
	})
}

// TestExplainOrders: who, why, until when, and what is left.
func TestExplainOrders(t *testing.T) {
	cfg := each(conf(1, 2), func(rs *config.RealServer) { rs.Weight = 5 })
	cfg.TrackFiles = []*config.TrackFile{{Name: "web1", Path: "/run/web1", Weight: 1}}
	cfg.VirtualServers[0].RealServers[1].TrackFiles = []config.TrackFileUse{{Name: "web1", Weight: 1}}
	inBubble(t, cfg, func(r *rig) {
		three := int64(3)
		r.ordered(Command{Verb: VerbWeight, VS: "192.0.2.1:80", RS: target(1), Weight: &three, Reason: "slow disk"})
		if got := weights(r.why(1)); got != "configured 5 (+5); operator's weight 3 by alice: slow disk (-2)" {
			t.Error(got)
		}
		r.connections(1, 7)
		c := order(1, VerbDrain)
		c.Reason, c.Until = "new kernel", time.Now().Add(time.Hour)
		r.ordered(c)
		x := r.why(1)
		r.says(x, false, "drained by alice: new kernel", "ends by itself in 60 min, or by sluice undrain", "7 active connections")
		if len(x.Orders) != 2 || x.Services[0].Destinations[0].Active != 7 {
			t.Errorf("%+v %+v", x.Orders, x.Services)
		}
		if got := weights(x); strings.Count(got, "; ") != 2 || !strings.Contains(got, "; drained by alice: new kernel, until") || !strings.HasSuffix(got, "(-3)") {
			t.Error(got)
		}
		r.e.FileValue("web1", -5)
		r.pass(time.Second)
		x = r.why(2)
		r.says(x, false, "track_file web1 is -5", "comes back when /run/web1 says so")
		if got := weights(x); got != "configured 5 (+5); track_file web1 is -5: -5 (-5)" {
			t.Error(got)
		}
	})
}

// TestExplainGone: a server that a reload took away still has connections.
func TestExplainGone(t *testing.T) {
	inBubble(t, conf(1, 2), func(r *rig) {
		r.connections(2, 3)
		r.reload(conf(1))
		x, err := r.e.Explain(r.Context(), "192.0.2.1", "10.0.0.2")
		if err != nil {
			t.Fatal(err)
		}
		r.says(x, false, "on its way out", "removed from the configuration", "waits for 3 active connections")
		if x.Configured || x.RealServer.Address != target(2) {
			t.Errorf("%+v", x)
		}
		for _, n := range [][2]string{{"192.0.2.1", "10.0.0.7"}, {"192.0.2.9", "10.0.0.1"}} {
			var ce *CommandError
			if _, err = r.e.Explain(r.Context(), n[0], n[1]); !errors.As(err, &ce) || ce.Code != CodeUnknown || len(ce.Candidates) != 1 {
				t.Errorf("%q: %v", n, err)
			}
		}
		r.reload(conf(1, 3))
		var ce *CommandError
		if _, err = r.e.Explain(r.Context(), "192.0.2.1", "10.0.0"); !errors.As(err, &ce) || ce.Code != CodeAmbiguous || len(ce.Candidates) != 2 {
			t.Errorf("%v", err)
		}
	})
}

// TestExplainReadsTheKernel: what somebody else did is seen at once.
func TestExplainReadsTheKernel(t *testing.T) {
	inBubble(t, conf(1, 2), func(r *rig) {
		dk := ipvs.DestinationKey{Addr: netip.MustParseAddr("10.0.0.1"), Port: 80}
		if err := r.table.DelDest(r.Context(), ipvs.Service{ServiceKey: key}, ipvs.Destination{DestinationKey: dk}); err != nil {
			t.Fatal(err)
		}
		x := r.why(1)
		r.says(x, false, "should be in service with weight 1", "does not have it so")
		if x.Services[0].Destinations[0].Kernel != -1 {
			t.Errorf("%+v", x.Services)
		}
	})
}

// TestPastIsBounded: whatever comes, eight stretches at most, in their order, and
// nothing after a day of good results.
func TestPastIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p *past
		var was lastOutcome
		now := time.Unix(1000, 0)
		for range rapid.IntRange(1, 40).Draw(t, "runs") {
			o := checker.Outcome{Result: checker.Result(rapid.IntRange(0, 2).Draw(t, "result")), Reason: rapid.SampledFrom([]string{"a, after 1s", "a, after 2s", "b"}).Draw(t, "reason")}
			now = now.Add(time.Duration(rapid.Int64Range(1, int64(goodAgain)).Draw(t, "pause")))
			if p != nil || o.Result != checker.OK {
				p = p.add(&o, &was, now)
			}
			was = lastOutcome{reason: o.Reason, at: now.UnixNano(), result: uint8(o.Result)}
			if p == nil {
				if o.Result != checker.OK {
					t.Fatal("a failure is forgotten at once")
				}
				continue
			}
			last := p.stretches[len(p.stretches)-1]
			if len(p.stretches) > maxPast || last.result != uint8(o.Result) || last.reason != o.Reason || last.last != now.UnixNano() {
				t.Fatalf("%+v after %+v", p.stretches, o)
			}
			for i, s := range p.stretches[1:] {
				if b := p.stretches[i]; b.last > s.first || b.result == s.result && (b.result == 0 || timeless(b.reason) == timeless(s.reason)) {
					t.Fatalf("%+v before %+v", b, s)
				}
			}
		}
	})
}

// TestGoodChecksAreNotRemembered: in peace a run has no past, and one that has takes no
// memory for more of the same.
func TestGoodChecksAreNotRemembered(t *testing.T) {
	o, was := checker.Outcome{Result: checker.OK, Reason: "ok"}, lastOutcome{}
	bad := checker.Outcome{Result: checker.Failed, Reason: "refused, after 3ms"}
	p := (*past)(nil).add(&bad, &was, time.Unix(1, 0)).add(&o, &was, time.Unix(2, 0))
	if n := testing.AllocsPerRun(100, func() { p = p.add(&o, &was, time.Unix(3, 0)) }); n != 0 || p == nil {
		t.Errorf("%v allocations", n)
	}
	inBubble(t, conf(1), func(r *rig) {
		r.pass(time.Minute)
		if p := r.e.vss[0].tasks[0][0].run.past; p != nil {
			t.Errorf("%+v", p)
		}
	})
}
