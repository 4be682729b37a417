package engine

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// told returns what was told since the last call, as "down [10.0.0.1]:tcp:80" and
// "quorum up".
func (r *rig) told() string {
	synctest.Wait()
	r.logMu.Lock()
	defer r.logMu.Unlock()
	var out []string
	for _, n := range r.notes {
		word := map[NoticeKind]string{RealServerUp: "up", RealServerDown: "down", QuorumUp: "quorum up", QuorumDown: "quorum down"}[n.Kind]
		if n.RS != "" {
			word += strings.TrimSuffix(strings.TrimPrefix(n.RS, "[10.0.0."), "]:tcp:80")
		}
		out = append(out, word)
	}
	r.notes = nil
	return strings.Join(out, ", ")
}

func (r *rig) wantTold(want string) {
	r.Helper()
	if got := r.told(); got != want {
		r.Errorf("told %q, want %q", got, want)
	}
}

func TestNotices(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		r.wantTold("quorum up")
		r.pass(20 * time.Second)
		r.farm.set(1, checker.Failed, "refused")
		r.pass(10 * time.Second)
		r.wantTold("down1")
		r.farm.set(2, checker.Failed, "refused")
		r.pass(10 * time.Second)
		r.wantTold("down2, quorum down")
		r.farm.set(2, checker.OK, "")
		r.pass(10 * time.Second)
		r.wantTold("up2, quorum up")
		r.reload(conf(1, 2))
		r.wantTold("")
		r.reload(conf(1, 3))
		r.pass(time.Second)
		// Nothing healthy stays, so the newcomer is trusted; the quorum holds.
		r.wantTold("down2")
	})
}

func TestNoticesAtStart(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*config.Config)
		want   string
	}{
		"rs_init_notifies": {func(c *config.Config) { c.Global.RSInitNotifies = true }, "up1, up2, quorum up"},
		"alpha":            {func(c *config.Config) { each(c, func(rs *config.RealServer) { rs.Checkers[0].Alpha = true }) }, ""},
		"all down, with a sorry server": {func(c *config.Config) {
			each(c, func(rs *config.RealServer) { rs.Checkers[0].Alpha = true })
			c.VirtualServers[0].Sorry = &config.SorryServer{Key: c.VirtualServers[0].RealServers[0].Key}
		}, "quorum down"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(r *rig) {
				cfg := conf(1, 2)
				tt.change(cfg)
				r.start(cfg)
				r.wantTold(tt.want)
			})
		})
	}
}

// TestNoticeOfAnAlphaServersFirstFailure: it was never up, and is told of.
func TestNoticeOfAnAlphaServersFirstFailure(t *testing.T) {
	in(t, func(r *rig) {
		r.farm.set(1, checker.Failed, "refused")
		r.start(alphaConf(1, 2))
		r.pass(30 * time.Second)
		got := r.told()
		if !strings.Contains(got, "down1") || strings.Count(got, "down1") != 1 || !strings.Contains(got, "up2, quorum up") {
			t.Errorf("told %q", got)
		}
	})
}

// TestNoticesWaitForTheTable: what the kernel refuses has not happened; when it
// gives in, only what differs from before is told.
func TestNoticesWaitForTheTable(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		r.pass(20 * time.Second)
		r.told()
		r.table.Fail(func(o ipvs.Op) error { return ipvs.NewError(o, syscall.EPERM) })
		r.farm.set(1, checker.Failed, "refused")
		r.pass(10 * time.Second)
		r.wantTold("")
		r.farm.set(1, checker.OK, "")
		r.farm.set(2, checker.Failed, "refused")
		r.pass(10 * time.Second)
		r.table.Fail(nil)
		r.pass(backoffMax)
		r.wantTold("down2")
	})
}

func TestNoticesOfRemovalAndStop(t *testing.T) {
	for _, omega := range []bool{false, true} {
		t.Run(fmt.Sprintf("omega=%t", omega), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				cfg := conf(1, 2)
				cfg.VirtualServers[0].Omega = omega
				r.start(cfg)
				r.told()
				r.stop(nil)
				want := ""
				if omega {
					want = "down1, down2, quorum down"
				}
				r.wantTold(want)
			})
		})
	}
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		r.told()
		r.reload(&config.Config{Global: config.Global{DrainInterval: time.Minute}})
		r.wantTold("down1, down2, quorum down")
	})
}

// mails returns the subjects and texts of the alerts since the last call.
func (r *rig) mails() []string {
	synctest.Wait()
	r.logMu.Lock()
	defer r.logMu.Unlock()
	var out []string
	for _, n := range r.notes {
		if n.Mail == "" {
			continue
		}
		word := map[NoticeKind]string{RealServerUp: "up", RealServerDown: "down", QuorumUp: "quorum up", QuorumDown: "quorum down", CheckerUp: "check up", CheckerDown: "check down"}[n.Kind]
		out = append(out, word+": "+strings.ReplaceAll(n.Mail, "\n\n", " / "))
	}
	r.notes = nil
	return out
}

func (r *rig) wantMails(want ...string) {
	r.Helper()
	if got := r.mails(); !slices.Equal(got, want) {
		r.Errorf("mails\n%q, want\n%q", got, want)
	}
}

// mailed is conf with alerts on, and a second check of each server on port 81.
func mailed(servers ...int) *config.Config {
	cfg := each(conf(servers...), func(rs *config.RealServer) {
		second := *rs.Checkers[0]
		second.Kind = config.MiscCheck
		second.Misc = &config.Misc{Script: &config.Script{Argv: []string{"/check"}}, Timeout: time.Second}
		second.Conn.Target = netip.AddrPortFrom(rs.Key.Addr(), 81)
		rs.Checkers, rs.SMTPAlert = append(rs.Checkers, &second), true
	})
	cfg.VirtualServers[0].SMTPAlert = true
	return cfg
}

// TestMailsOfEachTurn: each check's turn is mailed with the state of its server
// after it, a quorum's with its sum; no_checker_emails leaves out what did not
// change the server.
func TestMailsOfEachTurn(t *testing.T) {
	for _, quiet := range []bool{false, true} {
		t.Run(fmt.Sprintf("no_checker_emails=%t", quiet), func(t *testing.T) {
			in(t, func(r *rig) {
				cfg := mailed(1)
				cfg.Global.Mail.NoCheckerEmails = quiet
				r.start(cfg)
				r.wantMails("quorum up: => Starting with quorum up <=")
				r.pass(20 * time.Second)
				r.wantMails()
				r.farm.set(1, checker.Failed, "refused")
				r.pass(10 * time.Second)
				r.wantMails("down: => TCP CHECK failed on service <= / refused", "quorum down: => Lost quorum 1-0=1 > 0 <=")
				r.farm.setPort(1, 81, checker.Failed, "exit status 1")
				r.pass(10 * time.Second)
				second := []string{"check down: => MISC CHECK failed on service <= / exit status 1"}
				if quiet {
					second = nil
				}
				r.wantMails(second...)
				r.farm.set(1, checker.OK, "")
				r.pass(10 * time.Second)
				second = []string{"check down: => TCP CHECK succeed on service <="}
				if quiet {
					second = nil
				}
				r.wantMails(second...)
				r.farm.setPort(1, 81, checker.OK, "")
				r.pass(10 * time.Second)
				r.wantMails("up: => MISC CHECK succeeded on service <=", "quorum up: => Gained quorum 1+0=1 <= 1 <=")
				r.reload(mailed(2))
				r.wantMails("down: => Removing <=")
			})
		})
	}
}

func TestNoMailWithoutSMTPAlert(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1))
		r.pass(20 * time.Second)
		r.farm.set(1, checker.Failed, "refused")
		r.pass(10 * time.Second)
		r.wantMails()
	})
}

// TestDynamicWeight: what a check asks for is in the table at once, without a
// verdict, and is gone with a failure (case C06).
func TestDynamicWeight(t *testing.T) {
	in(t, func(r *rig) {
		ask := func(w int64) {
			r.farm.put(1, checker.Outcome{Result: checker.OK, Weight: w, Weighted: true})
			r.pass(10 * time.Second)
		}
		r.start(conf(1, 2))
		r.pass(20 * time.Second)
		for range 3 {
			ask(10)
			r.want("1:10 2:1")
			r.farm.set(1, checker.Failed, "timed out")
			r.pass(10 * time.Second)
			r.want("2:1")
		}
		ask(20)
		r.want("1:20 2:1")
		r.told()
		ask(0)
		r.want("1:0 2:1")
		r.wantTold("")
		if rs := r.e.Snapshot().VirtualServers[0].RealServers[0]; rs.State != StateMaintenance || !strings.Contains(rs.Reason, "TCP_CHECK asks for weight 0") {
			t.Errorf("%s: %s", rs.State, rs.Reason)
		}
		r.farm.set(1, checker.OK, "")
		r.pass(10 * time.Second)
		r.want("1:1 2:1")
	})
}

// TestHASuspend: no probe while the address is elsewhere, nothing in the table
// moves, and checks begin at once when it comes.
func TestHASuspend(t *testing.T) {
	suspended := func() *config.Config {
		cfg := conf(1, 2)
		cfg.VirtualServers[0].HASuspend = true
		return cfg
	}
	here, gone := map[netip.Addr]bool{vip.Addr(): true}, map[netip.Addr]bool{}
	in(t, func(r *rig) {
		r.start(suspended())
		r.farm.set(1, checker.Failed, "refused")
		r.pass(time.Minute)
		if r.farm.count(1) != 0 || !r.e.Snapshot().VirtualServers[0].Suspended {
			t.Fatal("checked before anybody told of addresses")
		}
		r.want("1:1 2:1")
		r.e.Addresses(here)
		synctest.Wait()
		r.want("2:1")
		r.e.Addresses(gone)
		r.farm.set(1, checker.OK, "")
		synctest.Wait()
		n := r.farm.count(1)
		r.reload(suspended())
		r.pass(time.Minute)
		if r.farm.count(1) != n {
			t.Error("checked while the address is elsewhere")
		}
		r.want("2:1")
		// The keyword goes: what waited is checked again.
		r.reload(conf(1, 2))
		r.pass(20 * time.Second)
		r.want("1:1 2:1")
		// And comes back while the address is still elsewhere.
		r.reload(suspended())
		n = r.farm.count(1)
		r.pass(time.Minute)
		if r.farm.count(1) != n {
			t.Error("checked although a reload suspended it")
		}
		r.e.Addresses(nil)
		r.pass(20 * time.Second)
		if r.farm.count(1) == n {
			t.Error("not checked though addresses cannot be known")
		}
	})
}

// TestHASuspendOfAGroup: one address of a group is enough.
func TestHASuspendOfAGroup(t *testing.T) {
	in(t, func(r *rig) {
		cfg := conf(1)
		vs := cfg.VirtualServers[0]
		second := netip.MustParseAddrPort("192.0.2.2:80")
		vs.Key = config.VSKey{Protocol: config.TCP, Group: "g"}
		vs.Entries = append(vs.Entries, config.Entry{Addr: second, Family: config.IPv4})
		vs.HASuspend = true
		r.start(cfg)
		r.e.Addresses(map[netip.Addr]bool{netip.MustParseAddr("192.0.2.3"): true})
		r.pass(20 * time.Second)
		if r.farm.count(1) != 0 {
			t.Error("checked by a stranger's address")
		}
		r.e.Addresses(map[netip.Addr]bool{second.Addr(): true})
		r.pass(time.Second)
		if r.farm.count(1) == 0 {
			t.Error("not checked though one of its addresses is here")
		}
	})
}

// TestMiscRunsFromStartToStart: the pause is counted from the start of a run.
func TestMiscRunsFromStartToStart(t *testing.T) {
	in(t, func(r *rig) {
		cfg := mailed(1)
		cfg.VirtualServers[0].RealServers[0].Checkers[1].DelayLoop = 2 * time.Second
		r.farm.delay = 1500 * time.Millisecond
		r.start(cfg)
		r.pass(10 * time.Second)
		n := r.farm.countPort(1, 81)
		r.pass(20 * time.Second)
		if n = r.farm.countPort(1, 81) - n; n != 10 {
			t.Errorf("%d runs in 20 s, want 10", n)
		}
	})
}
