package engine

import (
	"fmt"
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
