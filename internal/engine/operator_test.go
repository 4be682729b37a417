package engine

import (
	"encoding/json"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

func (r *rig) operate(c Command) error {
	r.Helper()
	c.Who = "alice"
	_, err := r.e.Operate(r.Context(), c)
	synctest.Wait()
	return err
}

func (r *rig) ordered(c Command) {
	r.Helper()
	if err := r.operate(c); err != nil {
		r.Fatal(err)
	}
}

// refused expects a command to do nothing, with a code and a message.
func (r *rig) refused(c Command, code Code, parts ...string) {
	r.Helper()
	err := r.operate(c)
	var ce *CommandError
	if !errors.As(err, &ce) || ce.Code != code {
		r.Fatalf("%+v: %v, want %s", c, err, code)
	}
	for _, p := range parts {
		if !strings.Contains(ce.Message, p) {
			r.Errorf("the refusal %q does not say %q", ce.Message, p)
		}
	}
}

// rs returns the first virtual server's real server n as readers see it.
func (r *rig) rs(n int) RealServer {
	r.Helper()
	for _, rs := range r.e.Snapshot().VirtualServers[0].RealServers {
		if rs.Address == target(n) {
			return rs
		}
	}
	r.Fatalf("real server %d is not in the snapshot", n)
	return RealServer{}
}

func order(n int, verb Verb) Command { return Command{Verb: verb, VS: "192.0.2.1:80", RS: target(n)} }

// inBubble runs a test with an engine that has its first verdicts.
func inBubble(t *testing.T, cfg *config.Config, f func(r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		for n := range 20 {
			r.set(n, checker.OK, "ok")
		}
		r.start(cfg)
		r.pass(11 * time.Second)
		f(r)
		r.stop(nil)
	})
}

func (r *rig) set(n int, res checker.Result, reason string) { r.farm.set(n, res, reason) }

// TestD19DrainOutranksFailure: a server that is being shut down fails its checks, and
// its connections go on all the same; so do those of one whose configured weight is 0.
func TestD19DrainOutranksFailure(t *testing.T) {
	for _, weight := range []int64{1, 0} {
		cfg := conf(1, 2)
		cfg.VirtualServers[0].RealServers[0].Weight = weight
		inBubble(t, cfg, func(r *rig) {
			r.connections(1, 4)
			c := order(1, VerbDrain)
			c.Reason = "new\nkernel"
			r.ordered(c)
			r.want("1:0 2:1")
			r.set(1, checker.Failed, "refused")
			r.pass(time.Minute)
			r.want("1:0 2:1")
			rs := r.rs(1)
			if rs.State != StateMaintenance || !strings.Contains(rs.Reason, "drained by alice: new kernel; also TCP_CHECK: refused") {
				r.Errorf("status shows %s, %q", rs.State, rs.Reason)
			}
			if log := r.logged(); !strings.Contains(log, `who=alice reason="new kernel"`) {
				r.Errorf("the log does not tell who and why:\n%s", log)
			}
			r.set(1, checker.OK, "ok")
			r.pass(20 * time.Second)
			r.writes()
			r.ordered(order(1, VerbUndrain))
			if weight == 1 {
				r.want("1:1 2:1")
				if n := r.writes(); n != 1 {
					r.Errorf("undrain wrote %d operations, want the weight in place alone", n)
				}
			}
			r.refused(order(1, VerbUndrain), CodeUnknown, "not drained")
		})
	}
}

// TestDrainOutlivesReloads, even one that has the server not at all, and a restart.
func TestDrainOutlivesReloads(t *testing.T) {
	inBubble(t, conf(1, 2, 3), func(r *rig) {
		r.ordered(order(1, VerbDrain))
		r.reload(conf(1, 2, 3))
		r.want("1:0 2:1 3:1")
		r.reload(conf(2, 3))
		r.want("2:1 3:1")
		if o := r.e.Snapshot().Overrides; len(o) != 1 || !o[0].Absent {
			r.Errorf("%+v, want one that waits for its server", o)
		}
		r.reload(conf(1, 2, 3))
		r.pass(time.Minute)
		r.want("1:0 2:1 3:1")

		saved, err := json.Marshal(r.e.Orders())
		if err != nil {
			r.Fatal(err)
		}
		r.crash()
		if err := json.Unmarshal(saved, &r.orders); err != nil {
			r.Fatal(err)
		}
		r.writes()
		r.start(conf(1, 2, 3))
		r.pass(time.Minute)
		r.want("1:0 2:1 3:1")
		if n := r.writes(); n != 0 {
			r.Errorf("the restart wrote %d operations", n)
		}
		if rs := r.rs(1); !strings.Contains(rs.Reason, "drained by alice") {
			r.Errorf("after a restart: %q", rs.Reason)
		}
		r.reload(conf(2, 3))
		r.ordered(Command{Verb: VerbUndrain, Server: "10.0.0.1"})
		r.reload(conf(1, 2, 3))
		r.pass(time.Minute)
		r.want("1:1 2:1 3:1")
	})
}

func TestOrdersEndAtTheirTime(t *testing.T) {
	inBubble(t, conf(1, 2), func(r *rig) {
		c := order(1, VerbDrain)
		c.Until = time.Now().Add(time.Hour)
		r.ordered(c)
		c = order(2, VerbWeight)
		w := int64(7)
		c.Weight, c.Until = &w, time.Now().Add(2*time.Hour)
		r.ordered(c)
		r.want("1:0 2:7")
		r.pass(time.Hour - time.Second)
		r.want("1:0 2:7")
		r.pass(2 * time.Second)
		r.want("1:1 2:7")
		r.pass(time.Hour)
		r.want("1:1 2:1")
		if len(r.e.Orders()) != 0 {
			r.Error("orders are left")
		}
		c.Until = time.Now()
		r.refused(c, CodeInvalid, "over already")
		// One that ended while nobody ran does not come back.
		r.crash()
		r.orders = []Order{{VS: config.VSKey{Protocol: config.TCP, Addr: vip}, RS: config.RSKey{AddrPort: netip.MustParseAddrPort(target(1))}, Kind: VerbDrain, Until: time.Now().Add(-time.Second)}}
		r.start(conf(1, 2))
		r.want("1:1 2:1")
	})
}

// TestDrainRefusedBelowQuorum: with the numbers, and done when forced.
func TestDrainRefusedBelowQuorum(t *testing.T) {
	cfg := each(conf(1, 2, 3), func(rs *config.RealServer) { rs.Weight = 10 })
	cfg.VirtualServers[0].Quorum, cfg.VirtualServers[0].Hysteresis = 20, 5
	inBubble(t, cfg, func(r *rig) {
		r.ordered(order(1, VerbDrain))
		r.writes()
		r.refused(order(2, VerbDrain), CodeRefused, "weight 10 of 20 alive would be left", "quorum needs 15")
		w := int64(4)
		c := order(2, VerbWeight)
		c.Weight = &w
		r.refused(c, CodeRefused, "weight 14 of 20")
		w = 5
		r.ordered(c)
		r.want("1:0 2:5 3:10")
		// What is taken from a server that does not count takes nothing.
		r.set(2, checker.Failed, "refused")
		r.pass(20 * time.Second)
		r.ordered(order(2, VerbDrain))
		c = order(3, VerbDrain)
		r.refused(c, CodeRefused, "weight 0 of 10")
		c.Force = true
		r.ordered(c)
		r.want("1:0 2:0 3:0")
		if log := r.logged(); !strings.Contains(log, "is forced") {
			r.Error("the log does not tell of the force")
		}
	})
}

// TestDrainOfAWholeMachine: in every virtual server that has it, or in none.
func TestDrainOfAWholeMachine(t *testing.T) {
	cfg, other := conf(1, 2), conf(1, 3).VirtualServers[0]
	other.Key.Addr = netip.MustParseAddrPort("192.0.2.1:443")
	other.Entries = []config.Entry{{Addr: other.Key.Addr, Family: config.IPv4}}
	cfg.VirtualServers = append(cfg.VirtualServers, other)
	inBubble(t, cfg, func(r *rig) {
		r.set(3, checker.Failed, "refused")
		r.pass(20 * time.Second)
		r.refused(Command{Verb: VerbDrain, Server: "10.0.0.1"}, CodeRefused, "[192.0.2.1]:tcp:443: weight 0 of 1")
		r.want("1:1 2:1")
		r.set(3, checker.OK, "ok")
		r.pass(20 * time.Second)
		r.ordered(Command{Verb: VerbDrain, Server: "10.0.0.1"})
		r.want("1:0 2:1")
		if n := len(r.e.Orders()); n != 2 {
			r.Errorf("%d drains, want one in each virtual server", n)
		}
		r.refused(Command{Verb: VerbDrain, Server: "10.0.0.9"}, CodeUnknown, "10.0.0.1, 10.0.0.2, 10.0.0.3")
		r.refused(Command{Verb: VerbDrain, Server: "web"}, CodeInvalid, "takes an address")
		r.ordered(Command{Verb: VerbUndrain, Server: "10.0.0.1:80"})
		r.want("1:1 2:1")
	})
}

func TestOperatorsWeight(t *testing.T) {
	cfg := conf(1, 2)
	cfg.TrackFiles = []*config.TrackFile{{Name: "load", Path: "/run/load"}}
	cfg.VirtualServers[0].RealServers[0].TrackFiles = []config.TrackFileUse{{Name: "load", Weight: 1}}
	inBubble(t, cfg, func(r *rig) {
		w := int64(10)
		c := order(1, VerbWeight)
		c.Weight = &w
		r.ordered(c)
		r.want("1:10 2:1")
		r.e.FileValue("load", -4)
		r.want("1:6 2:1")
		r.ordered(order(1, VerbDrain))
		r.want("1:0 2:1")
		r.ordered(order(1, VerbUndrain))
		r.want("1:6 2:1")
		if rs := r.rs(1); !strings.Contains(rs.Reason, "weight 10 by alice") || rs.WeightConfigured != 1 {
			r.Errorf("status shows %+v", rs)
		}
		c.Weight = nil
		r.e.FileValue("load", 0)
		r.ordered(c)
		r.want("1:1 2:1")
		r.refused(c, CodeUnknown, "no weight from an operator")
		w = -1
		c.Weight = &w
		r.refused(c, CodeInvalid, "-1")
	})
}

// TestNamesOfServers: exact names win over parts, and what is not clear is a list.
func TestNamesOfServers(t *testing.T) {
	cfg, other := conf(1, 11, 12), conf(1).VirtualServers[0]
	other.Key = config.VSKey{Group: "web"}
	other.Entries = []config.Entry{{Addr: netip.MustParseAddrPort("192.0.2.7:80"), Family: config.IPv4}}
	cfg.VirtualServers = append(cfg.VirtualServers, other)
	inBubble(t, cfg, func(r *rig) {
		for _, tt := range []struct {
			vs, rs string
			code   Code
			says   string
		}{
			{"192.0.2.1:80", "10.0.0.1:80", "", ""},
			{"[192.0.2.1]:tcp:80", "[10.0.0.1]:tcp:80", "", ""},
			{"192.0.2.1", "10.0.0.1", "", ""}, // though it is a part of 10.0.0.11
			{"2.1:8", "0.12", "", ""},
			{"WEB", "10.0.0.1", CodeRefused, "weight 0 of 1"},
			{"192.0.2.7:80", "10.0.0.1", CodeRefused, "[web]:0"},
			{"192.0.2", "10.0.0.1", CodeAmbiguous, "[192.0.2.1]:tcp:80, [web]:0"},
			{"192.0.2.1:80", "10.0.0.1:8", CodeUnknown, "there are: 10.0.0.11:80, 10.0.0.12:80, 10.0.0.1:80"},
			{"192.0.2.1:80", "10.0.0.2", CodeUnknown, "there are"},
			{"192.0.2.1:80", "0.1", CodeAmbiguous, "any of 3"},
			{"192.0.2.9:80", "10.0.0.1", CodeUnknown, "there are: [192.0.2.1]:tcp:80, [web]:0"},
			{"", "10.0.0.1", CodeUnknown, "there are"},
		} {
			c := Command{Verb: VerbDrain, VS: tt.vs, RS: tt.rs}
			if tt.code != "" {
				r.refused(c, tt.code, tt.says)
				continue
			}
			r.ordered(c)
			c.Verb = VerbUndrain
			r.ordered(c)
		}
		if err := r.operate(Command{Verb: "explode", VS: "web", RS: "10.0.0.1"}); err == nil {
			r.Error("a verb that is none was accepted")
		}
	})
}

// TestOverridesCountConnections over the services concerned.
func TestOverridesCountConnections(t *testing.T) {
	inBubble(t, conf(1, 2), func(r *rig) {
		r.connections(1, 4)
		r.ordered(order(1, VerbDrain))
		all, err := r.e.Overrides(r.Context())
		if err != nil || len(all) != 1 || all[0].Active != 4 || all[0].Kernel != 0 || all[0].VS != "[192.0.2.1]:tcp:80" {
			r.Errorf("%+v, %v", all, err)
		}
		if s := r.e.Status(r.Context()); len(s.Overrides) != 1 || s.Overrides[0].Active != 4 {
			r.Errorf("status: %+v", s.Overrides)
		}
	})
}

// TestOrdersSurviveARestart: a crash ends no drain; what was withdrawn or over is not
// in force again.
func TestOrdersSurviveARestart(t *testing.T) {
	resumed(t, func(r *rig) {
		r.start(conf(1, 2, 3))
		r.pass(time.Minute)
		for _, c := range []Command{
			{Verb: VerbDrain, RS: "10.0.0.1", VS: "192.0.2.1", Reason: "kernel"},
			{Verb: VerbWeight, RS: "10.0.0.2", VS: "192.0.2.1", Weight: new(int64(7))},
			{Verb: VerbDrain, RS: "10.0.0.3", VS: "192.0.2.1", Until: time.Now().Add(3 * time.Minute), Force: true},
			{Verb: VerbDrain, RS: "10.0.0.2", VS: "192.0.2.1", Force: true},
			{Verb: VerbUndrain, RS: "10.0.0.2", VS: "192.0.2.1"},
		} {
			n := len(r.state.times())
			if err := r.operate(c); err != nil {
				t.Fatal(err)
			}
			// What was acknowledged is saved, however soon the process is killed.
			if len(r.state.times()) != n+1 {
				t.Errorf("%s %s: not handed out to be saved", c.Verb, c.RS)
			}
		}
		r.want("1:0 2:7 3:0")
		r.crash()
		r.lose()
		r.start(conf(1, 2, 3))
		r.want("1:0 2:7 3:0")
		if os, err := r.e.Overrides(r.Context()); err != nil || len(os) != 3 || os[0].Who != "alice" || os[0].Reason != "kernel" {
			t.Errorf("%+v, %v", os, err)
		}
		r.pass(4 * time.Minute)
		r.want("1:0 2:7 3:1")
		r.crash()
		r.start(conf(1, 2, 3))
		r.pass(time.Minute)
		r.want("1:0 2:7 3:1")
	})
}

// TestDrainDoesNotGoBelowTheFloor: refused with the numbers, unless forced.
func TestDrainDoesNotGoBelowTheFloor(t *testing.T) {
	in(t, func(r *rig) {
		cfg := conf(1, 2, 3)
		cfg.VirtualServers[0].MinAlive = config.Floor{Servers: 2}
		r.start(cfg)
		r.pass(time.Minute)
		if err := r.operate(Command{Verb: VerbDrain, RS: "10.0.0.1", VS: "192.0.2.1"}); err != nil {
			t.Fatal(err)
		}
		err := r.operate(Command{Verb: VerbDrain, RS: "10.0.0.2", VS: "192.0.2.1"})
		if err == nil || !strings.Contains(err.Error(), "1 of 2 serving real servers would be left, and min_alive is 2") {
			t.Errorf("%v", err)
		}
		if err := r.operate(Command{Verb: VerbDrain, RS: "10.0.0.2", VS: "192.0.2.1", Force: true}); err != nil {
			t.Error(err)
		}
		r.want("1:0 2:0 3:1")
	})
}
