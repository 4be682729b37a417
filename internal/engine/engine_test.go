package engine

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// in runs a test in a bubble and stops its engine at the end.
func in(t *testing.T, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		f(r)
		r.stop(nil)
	})
}

func TestFailureAndRecovery(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		r.want("1:1 2:1")
		r.pass(30 * time.Second)
		r.farm.set(1, checker.Failed, "connection refused")
		r.pass(10 * time.Second)
		r.want("2:1")
		r.farm.set(1, checker.OK, "")
		r.pass(10 * time.Second)
		r.want("1:1 2:1")
		for _, line := range []string{
			"Check failed", "connection refused", "Removing service [10.0.0.1]:tcp:80 from VS [192.0.2.1]:tcp:80",
			"Adding service [10.0.0.1]:tcp:80 to VS [192.0.2.1]:tcp:80",
		} {
			if !strings.Contains(r.logged(), line) {
				t.Errorf("the log lacks %q:\n%s", line, r.logged())
			}
		}
	})
}

func TestSteadyStateLogsAndWritesNothing(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		r.pass(time.Minute)
		before, _ := len(r.logged()), r.writes()
		r.pass(24 * time.Hour)
		if n := r.writes(); n != 0 || len(r.logged()) != before {
			t.Errorf("%d writes, log %q", n, r.logged()[before:])
		}
		if n := r.farm.count(1); n < 8600 || n > 8660 {
			t.Errorf("%d probes in a day at delay_loop 10", n)
		}
	})
}

// TestU01AlphaIsOutUntilItsFirstGoodCheck.
func TestU01AlphaIsOutUntilItsFirstGoodCheck(t *testing.T) {
	in(t, func(r *rig) {
		r.farm.set(2, checker.Failed, "refused")
		r.start(alphaConf(1, 2))
		r.want("")
		r.pass(10 * time.Second)
		r.want("1:1")
		if n := len(r.table.Log()); n != 2 {
			t.Errorf("%d operations, want 2: the dead server must not pass through the table", n)
		}
	})
}

func TestQuorumLostAndGained(t *testing.T) {
	in(t, func(r *rig) {
		cfg := conf(1, 2)
		cfg.VirtualServers[0].Sorry = &config.SorryServer{Key: config.RSKey{AddrPort: netip.MustParseAddrPort(target(9))}, Forward: config.Forwarding{Method: config.NAT}}
		r.start(cfg)
		r.pass(10 * time.Second)
		r.farm.set(1, checker.Failed, "refused")
		r.farm.set(2, checker.Failed, "refused")
		r.pass(10 * time.Second)
		r.want("9:1")
		if s := r.e.Snapshot().VirtualServers[0]; s.QuorumUp || !s.SorryServing || s.RealServers[0].State != StateDown || !strings.Contains(s.RealServers[0].Reason, "TCP_CHECK: refused") {
			t.Errorf("snapshot %+v", s)
		}
		r.farm.set(1, checker.OK, "")
		r.pass(10 * time.Second)
		r.want("1:1")
		for _, line := range []string{"Lost quorum 1-0=1 > 0 for VS [192.0.2.1]:tcp:80", "Gained quorum 1+0=1 <= 1 for VS [192.0.2.1]:tcp:80"} {
			if !strings.Contains(r.logged(), line) {
				t.Errorf("the log lacks %q", line)
			}
		}
	})
}

func TestSameReloadWritesNothing(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2, 3))
		r.farm.set(1, checker.Failed, "refused")
		r.pass(20 * time.Second)
		r.writes()
		for range 20 {
			r.reload(conf(1, 2, 3))
		}
		if n := r.writes(); n != 0 {
			t.Errorf("%d writes", n)
		}
		r.want("2:1 3:1")
	})
}

// TestReloadKeepsThePhase: checks that go on are neither restarted nor bunched.
func TestReloadKeepsThePhase(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1))
		r.pass(20 * time.Second)
		before := r.farm.count(1)
		for range 100 { // a reload each 1 s starves keepalived's checks for good
			r.reload(conf(1))
			r.pass(time.Second)
		}
		if n := r.farm.count(1) - before; n < 9 || n > 11 {
			t.Errorf("%d probes in 100 s at delay_loop 10", n)
		}
	})
}

// TestReloadChangesTheRules of a checker that goes on, from its next result.
func TestReloadChangesTheRules(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		r.pass(20 * time.Second)
		r.reload(each(conf(1, 2), func(rs *config.RealServer) { rs.Checkers[0].Retry = 2; rs.Checkers[0].DelayLoop = time.Second }))
		r.farm.set(1, checker.Failed, "refused")
		for n := r.farm.count(1); n == r.farm.count(1); { // still at the old pace
			r.pass(100 * time.Millisecond)
		}
		r.want("1:1 2:1")
		r.pass(time.Second)
		r.want("1:1 2:1")
		r.pass(time.Second)
		r.want("2:1")
	})
}

// TestReloadAddsAServer: probed at once, in after its first good check.
func TestReloadAddsAServer(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1))
		r.pass(20 * time.Second)
		r.farm.set(2, checker.Failed, "refused")
		r.reload(conf(1, 2, 3))
		r.pass(time.Millisecond)
		r.want("1:1 3:1")
		if s := r.e.Snapshot().VirtualServers[0].RealServers[1]; s.State != StateDown {
			t.Errorf("state %s", s.State)
		}
		for _, op := range r.table.Log() {
			if op.Destination.Addr == netip.MustParseAddr("10.0.0.2") {
				t.Errorf("the dead newcomer passed through the table: %s", op)
			}
		}
	})
}

// TestReloadReplacesEveryServer: nothing healthy stays, so newcomers are trusted as
// keepalived does; they go in before the old ones come out.
func TestReloadReplacesEveryServer(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		r.pass(20 * time.Second)
		r.reload(conf(3, 4))
		r.want("3:1 4:1")
	})
}

func TestTrustNew(t *testing.T) {
	in(t, func(r *rig) {
		r.farm.set(2, checker.Failed, "refused")
		r.start(conf(1))
		r.pass(20 * time.Second)
		cfg := conf(1, 2)
		cfg.Global.TrustNew = true
		r.writes()
		r.reload(cfg)
		if n := r.writes(); n == 0 {
			t.Error("the newcomer was not installed on trust")
		}
	})
}

// TestRemovedByReloadDrainsUntilTheTick: weight 0 at once, deleted at the first tick
// after the last connection ended.
func TestRemovedByReloadDrainsUntilTheTick(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		r.connections(1, 2)
		r.reload(conf(2))
		r.want("1:0 2:1")
		r.pass(5 * time.Minute)
		r.want("1:0 2:1")
		s := r.e.Status(r.Context())
		d := s.VirtualServers[0].Services[0].Destinations
		var drain *Drain
		for _, x := range d {
			if x.Drain != nil {
				drain = x.Drain
			}
		}
		if drain == nil || drain.WaitsFor != "2 active connections" || !strings.Contains(drain.Why, "removed") {
			t.Errorf("status shows %+v", d)
		}
		r.connections(1, 0)
		r.pass(59 * time.Second)
		r.pass(time.Second)
		r.want("2:1")
	})
}

// TestD07BackInMidDrain: a rollback. The server is checked first, and its
// connections never notice; it is neither deleted nor added again.
func TestD07BackInMidDrain(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		r.pass(20 * time.Second)
		r.connections(1, 2)
		r.reload(conf(2))
		r.want("1:0 2:1")
		r.writes()
		r.reload(conf(1, 2))
		r.pass(time.Millisecond)
		r.want("1:1 2:1")
		if n := r.writes(); n != 1 {
			t.Errorf("%d writes, want the one that restores the weight", n)
		}
		r.connections(1, 0)
		r.pass(time.Hour)
		r.want("1:1 2:1")
	})
}

func TestDrainTimeoutIsPrompt(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		r.connections(1, 2)
		cfg := conf(2)
		cfg.VirtualServers[0].DrainTimeout = 10 * time.Second
		r.reload(cfg)
		r.pass(9 * time.Second)
		r.want("1:0 2:1")
		r.pass(time.Second)
		r.want("2:1")
		if !strings.Contains(r.logged(), "active=2") {
			t.Error("the log does not say how many connections were cut")
		}
	})
}

// TestStaleVerdictIsIgnored: a verdict that was on its way when a reload removed its
// checker changes nothing.
func TestStaleVerdictIsIgnored(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		r.pass(20 * time.Second)
		old := r.e.vss[0].tasks[0][0]
		changed := each(conf(1, 2), func(rs *config.RealServer) { rs.Checkers[0].Conn.Timeout = 2 * time.Second })
		r.reload(changed)
		r.e.inbox.send(verdictEvent{task: old, verdict: 2, changed: true, outcome: checker.Outcome{Result: checker.Failed}})
		r.pass(time.Millisecond)
		r.want("1:1 2:1")
	})
}

// TestR08ReloadBeforeTheFirstCheck: unknown stays unknown and the first check
// still comes.
func TestR08ReloadBeforeTheFirstCheck(t *testing.T) {
	for _, alpha := range []bool{false, true} {
		in(t, func(r *rig) {
			fresh := func() *config.Config {
				return each(conf(1), func(rs *config.RealServer) { rs.Checkers[0].Alpha = alpha })
			}
			r.start(fresh())
			before := r.content()
			r.reload(fresh())
			r.want(before)
			if v := r.e.Snapshot().VirtualServers[0].RealServers[0].Checkers[0].Verdict; v != "unknown" {
				t.Errorf("verdict %s", v)
			}
			r.pass(11 * time.Second)
			r.want("1:1")
		})
	}
}

// TestC02LocalErrorsKeepTheVerdict and raise an alarm, once.
func TestC02LocalErrorsKeepTheVerdict(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1))
		r.pass(20 * time.Second)
		r.farm.set(1, checker.Unable, "bind 10.9.9.9: cannot assign requested address")
		r.pass(10 * time.Minute)
		r.want("1:1")
		if n := strings.Count(r.logged(), "Check could not run"); n != 1 {
			t.Errorf("the alarm was logged %d times", n)
		}
		if c := r.e.Snapshot().VirtualServers[0].RealServers[0].Checkers[0]; c.Last != "unable" || c.Verdict != "up" {
			t.Errorf("checker %+v", c)
		}
		r.farm.set(1, checker.OK, "")
		r.pass(10 * time.Second)
		if !strings.Contains(r.logged(), "Check runs again") {
			t.Error("the end of the alarm was not logged")
		}
	})
}

func trackConf(weight int64) *config.Config {
	cfg := conf(1, 2)
	cfg.TrackFiles = []*config.TrackFile{{Name: "m", Path: "/run/m"}}
	cfg.VirtualServers[0].RealServers[0].TrackFiles = []config.TrackFileUse{{Name: "m", Weight: weight}}
	return cfg
}

// TestMaintenanceByTrackFile: weight 0 for as long as it is asked for, connections
// or not, and back in place.
func TestMaintenanceByTrackFile(t *testing.T) {
	in(t, func(r *rig) {
		r.start(trackConf(1))
		r.want("1:1 2:1")
		r.e.FileValue("m", -100)
		r.pass(time.Hour)
		r.want("1:0 2:1")
		s := r.e.Snapshot().VirtualServers[0].RealServers[0]
		if s.State != StateMaintenance || s.Reason != "track_file m is -100" || s.WeightWanted != 0 {
			t.Errorf("status %+v", s)
		}
		r.writes()
		r.e.FileValue("m", 0)
		r.want("1:1 2:1")
		if n := r.writes(); n != 1 {
			t.Errorf("%d writes, want one: in place", n)
		}
	})
}

func TestFileIsReadBeforeTheFirstInstall(t *testing.T) {
	in(t, func(r *rig) {
		r.files["m"] = 1
		r.start(trackConf(0))
		r.want("1:0 2:1")
		for _, op := range r.table.Log() {
			if op.Destination.Addr == netip.MustParseAddr("10.0.0.1") && op.Destination.Weight > 0 {
				t.Errorf("%s with weight %d", op, op.Destination.Weight)
			}
		}
	})
}

// TestU06NoModule: one clear error, retries with growing pauses, everything applied
// when it appears.
func TestU06NoModule(t *testing.T) {
	in(t, func(r *rig) {
		r.setDial(ipvs.ErrNoModule)
		r.start(conf(1, 2))
		r.farm.set(1, checker.Failed, "refused")
		r.pass(5 * time.Minute)
		if n := strings.Count(r.logged(), "not reachable"); n != 1 {
			t.Errorf("the error was logged %d times", n)
		}
		if s := r.e.Snapshot(); s.Kernel.OK || !strings.Contains(s.Kernel.Error, "ip_vs") {
			t.Errorf("kernel %+v", s.Kernel)
		}
		r.setDial(nil)
		r.pass(backoffMax)
		r.want("2:1")
		if s := r.e.Snapshot(); !s.Kernel.OK {
			t.Errorf("kernel %+v", s.Kernel)
		}
	})
}

// TestUnreadableTableIsClosed: a table that can be dialled and not read is dialled
// anew each time, and each connection is closed.
func TestUnreadableTableIsClosed(t *testing.T) {
	in(t, func(r *rig) {
		r.table.FailReads(func(ipvs.ServiceKey) error { return ipvs.ErrInterrupted })
		r.start(conf(1))
		if err := r.table.AddService(r.Context(), ipvs.Service{ServiceKey: key, Scheduler: "rr"}); err == nil {
			t.Error("the connection that could not be read is still open")
		}
	})
}

// TestKernelRefusalIsRetried with growing pauses, and the log says it once.
func TestKernelRefusalIsRetried(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		r.pass(20 * time.Second)
		tries := 0
		r.table.Fail(func(o ipvs.Op) error { tries++; return ipvs.NewError(o, syscall.EPERM) })
		r.farm.set(1, checker.Failed, "refused")
		r.pass(5 * time.Minute)
		if tries < 8 || tries > 20 {
			t.Errorf("%d tries in five minutes", tries)
		}
		if n := strings.Count(r.logged(), "Kernel refused a change"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		r.table.Fail(nil)
		r.pass(backoffMax)
		r.want("2:1")
		if s := r.e.Snapshot(); !s.Kernel.OK || s.Kernel.Error != "" {
			t.Errorf("kernel %+v", s.Kernel)
		}
	})
}

func TestStop(t *testing.T) {
	for name, tt := range map[string]struct {
		onStop config.OnStop
		cause  error
		want   string
	}{
		"remove":  {config.OnStopRemove, nil, ""},
		"keep":    {config.OnStopKeep, nil, "1:1 2:1"},
		"failure": {config.OnStopRemove, errPart, "1:1 2:1"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				cfg := conf(1, 2)
				cfg.Global.OnStop = tt.onStop
				r.start(cfg)
				r.stop(tt.cause)
				r.want(tt.want)
				ss, _ := r.table.Services(r.Context())
				if (len(ss) == 0) != (tt.want == "") {
					t.Errorf("%d services left", len(ss))
				}
			})
		})
	}
}

// TestU03KillAndStart: nothing wanted is removed or added again, alpha or not.
func TestU03KillAndStart(t *testing.T) {
	for name, make := range map[string]func(...int) *config.Config{"plain": conf, "alpha": alphaConf} {
		t.Run(name, func(t *testing.T) {
			in(t, func(r *rig) {
				r.start(make(1, 2, 3))
				r.pass(20 * time.Second)
				r.want("1:1 2:1 3:1")
				r.crash()
				r.writes()
				r.start(make(1, 2, 3))
				r.pass(20 * time.Second)
				if n := r.writes(); n != 0 {
					t.Errorf("%d writes after the restart", n)
				}
			})
		})
	}
}

// TestRestartDoesNotTrustTheDead: a server that was out when the daemon died is not
// put back before a check.
func TestRestartDoesNotTrustTheDead(t *testing.T) {
	in(t, func(r *rig) {
		inhibit := func(servers ...int) *config.Config {
			return each(conf(servers...), func(rs *config.RealServer) { rs.Inhibit = rs.Key.Addr() == netip.MustParseAddr("10.0.0.2") })
		}
		r.start(inhibit(1, 2, 3))
		r.farm.set(1, checker.Failed, "refused")
		r.farm.set(2, checker.Failed, "refused")
		r.pass(20 * time.Second)
		r.want("2:0 3:1")
		r.crash()
		r.writes()
		r.start(inhibit(1, 2, 3))
		r.pass(20 * time.Second)
		if n := r.writes(); n != 0 {
			t.Errorf("%d writes after the restart", n)
		}
		r.farm.set(1, checker.OK, "")
		r.farm.set(2, checker.OK, "")
		r.pass(10 * time.Second)
		r.want("1:1 2:1 3:1")
	})
}

func TestBurstIsOneTurn(t *testing.T) {
	in(t, func(r *rig) {
		var servers []int
		for n := 1; n <= 50; n++ {
			servers = append(servers, n)
		}
		r.start(conf(servers...))
		r.pass(20 * time.Second)
		vs := r.e.vss[0]
		r.writes()
		for i := range 25 {
			r.e.inbox.send(verdictEvent{task: vs.tasks[i][0], verdict: 2, changed: true, outcome: checker.Outcome{Result: checker.Failed}})
		}
		synctest.Wait()
		if n := r.writes(); n != 25 {
			t.Errorf("%d writes", n)
		}
	})
}

func TestSnapshotIsImmutable(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		before := r.e.Snapshot()
		r.farm.set(1, checker.Failed, "refused")
		r.pass(20 * time.Second)
		r.reload(conf(2))
		if rs := before.VirtualServers[0].RealServers; len(rs) != 2 || rs[0].State != StateUp {
			t.Errorf("an old snapshot changed: %+v", rs)
		}
		if after := r.e.Snapshot(); after.Generation != 2 || len(after.VirtualServers[0].RealServers) != 1 {
			t.Errorf("generation %d, %d real servers", after.Generation, len(after.VirtualServers[0].RealServers))
		}
	})
}

func TestReloadFailedIsShown(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1))
		if err := r.e.ReloadFailed(r.Context(), errors.New("a.conf:1:1: nonsense")); err != nil {
			t.Error(err)
		}
		if l := r.e.Snapshot().Reload; l.OK || l.Error != "a.conf:1:1: nonsense" {
			t.Errorf("%+v", l)
		}
		r.reload(conf(1))
		if l := r.e.Snapshot().Reload; !l.OK || l.Error != "" {
			t.Errorf("%+v", l)
		}
	})
}

// TestStatusShowsWhereTheKernelDiffers: what somebody else did is visible.
func TestStatusShowsWhereTheKernelDiffers(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		svc := ipvs.Service{ServiceKey: key}
		d := ipvs.Destination{DestinationKey: ipvs.DestinationKey{Addr: netip.MustParseAddr("10.0.0.1"), Port: 80}, Weight: 7}
		if err := r.table.SetDest(r.Context(), svc, d); err != nil {
			t.Fatal(err)
		}
		d.Addr = netip.MustParseAddr("10.0.0.66")
		if err := r.table.AddDest(r.Context(), svc, d); err != nil {
			t.Fatal(err)
		}
		found := map[string]Destination{}
		for _, x := range r.e.Status(r.Context()).VirtualServers[0].Services[0].Destinations {
			found[x.Address] = x
		}
		if x := found["10.0.0.1:80"]; x.Wanted != 1 || x.Kernel != 7 {
			t.Errorf("%+v", x)
		}
		if x := found["10.0.0.66:80"]; x.Wanted != -1 || x.Kernel != 7 {
			t.Errorf("%+v", x)
		}
	})
}

// TestStatusOfServersOnOneAddress: two servers that differ in the port alone are
// two servers.
func TestStatusOfServersOnOneAddress(t *testing.T) {
	in(t, func(r *rig) {
		cfg := conf(1, 1)
		two := cfg.VirtualServers[0].RealServers[1]
		two.Key = config.RSKey{AddrPort: netip.MustParseAddrPort("10.0.0.1:81")}
		two.Checkers[0].Conn.Target = netip.MustParseAddrPort(target(2))
		r.farm.set(1, checker.Failed, "refused")
		r.start(cfg)
		r.pass(20 * time.Second)
		if rs := r.e.Snapshot().VirtualServers[0].RealServers; rs[0].WeightWanted != -1 || rs[1].WeightWanted != 1 {
			t.Errorf("weights wanted %d and %d, want -1 and 1", rs[0].WeightWanted, rs[1].WeightWanted)
		}
	})
}

func TestLogState(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		r.connections(1, 3)
		r.reload(conf(2))
		r.e.LogState(r.e.log)
		for _, want := range []string{"Virtual server", "Real server", "10.0.0.2:80", "Draining", "3 active"} {
			if !strings.Contains(r.logged(), want) {
				t.Errorf("no %q in\n%s", want, r.logged())
			}
		}
	})
}

func TestPingNeedsTheLoop(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1))
		if err := r.e.Ping(r.Context()); err != nil {
			t.Error(err)
		}
		dead := New(Options{Files: fakeFiles{}})
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		if err := dead.Ping(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}

// TestRetriesAtTheStart: the first failure after a start is final, but for SMTP_CHECK,
// as with keepalived.
func TestRetriesAtTheStart(t *testing.T) {
	for kind, want := range map[config.CheckerKind]int{config.TCPCheck: 1, config.HTTPGet: 1, config.DNSCheck: 1, config.MiscCheck: 1, config.SMTPCheck: 4} {
		t.Run(kind.String(), func(t *testing.T) {
			in(t, func(r *rig) {
				cfg := each(conf(1, 2), func(rs *config.RealServer) {
					c := rs.Checkers[0]
					c.Kind, c.Retry, c.Warmup, c.DelayBeforeRetry = kind, 3, 0, 2*time.Second
					if kind == config.MiscCheck {
						c.Misc = &config.Misc{Script: &config.Script{Argv: []string{"/check"}}, Timeout: time.Second}
					}
				})
				r.farm.set(1, checker.Failed, "refused")
				r.start(cfg)
				for n := 1; ; n++ {
					synctest.Wait()
					if r.content() == "2:1" {
						if got := r.farm.count(1); got != want {
							t.Errorf("out after %d attempts, want %d", got, want)
						}
						return
					}
					if n > 10 {
						t.Fatal("never out")
					}
					r.pass(2 * time.Second)
				}
			})
		})
	}
}
