package engine

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

// TestASteadyStateWritesNothing: whatever it is, once it was said. Good checks, checks
// that fail for the same reason or that cannot be run, a pool without quorum or at its
// floor, a server that an operator drains, and a kernel that cannot be reached.
func TestASteadyStateWritesNothing(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*rig, *config.Config)
		begun  string // what is said before the hour
		ended  string // and when it is good again
	}{
		"good":                      {func(*rig, *config.Config) {}, "Check passed", ""},
		"one fails":                 {func(r *rig, _ *config.Config) { r.farm.set(1, checker.Failed, "refused") }, "Removing service", "Adding service"},
		"one fails, all are logged": {func(r *rig, c *config.Config) { r.farm.set(1, checker.Failed, "refused"); logAll(c) }, "Removing service", "Adding service"},
		"all fail": {func(r *rig, c *config.Config) {
			c.VirtualServers[0].Sorry = &config.SorryServer{Key: config.RSKey{AddrPort: c.VirtualServers[0].RealServers[0].Key.AddrPort}, Forward: config.Forwarding{Method: config.NAT}}
			r.farm.set(1, checker.Failed, "refused")
			r.farm.set(2, checker.Failed, "refused")
		}, "Adding sorry server", "Removing sorry server"},
		"one cannot be checked": {func(r *rig, _ *config.Config) { r.farm.set(1, checker.Unable, "no descriptor") }, "Check could not run", "Check runs again"},
		"the kernel is away":    {func(r *rig, _ *config.Config) { r.setDial(errors.New("permission denied")) }, "IPVS table not reachable", "IPVS table reachable"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				for n := 1; n <= 2; n++ {
					r.farm.set(n, checker.OK, "connected")
				}
				cfg := conf(1, 2)
				tt.change(r, cfg)
				r.start(cfg)
				r.pass(time.Minute)
				before := r.logged()
				if !strings.Contains(before, tt.begun) {
					t.Errorf("the log does not say %q:\n%s", tt.begun, before)
				}
				r.pass(time.Hour)
				if more := strings.TrimPrefix(r.logged(), before); more != "" {
					t.Errorf("nothing changed for an hour, and the log says:\n%s", more)
				}
				for n := 1; n <= 2; n++ {
					r.farm.set(n, checker.OK, "connected")
				}
				r.setDial(nil)
				r.pass(time.Minute)
				if more := strings.TrimPrefix(r.logged(), before); !strings.Contains(more, tt.ended) || tt.ended == "" && more != "" {
					t.Errorf("when it is good again the log says %q, want %q", more, tt.ended)
				}
				r.stop(nil)
			})
		})
	}
}

func logAll(c *config.Config) { c.Global.CheckerLogAllFailures = true }

// TestEventsAreTheLogs: what the engine logs has its kind, and whom it is about.
func TestEventsAreTheLogs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.farm.set(1, checker.OK, "connected")
		r.farm.set(2, checker.OK, "connected")
		r.start(conf(1, 2))
		r.pass(time.Minute)
		r.farm.set(1, checker.Failed, "refused")
		r.farm.set(2, checker.Failed, "refused")
		r.pass(time.Minute)
		r.farm.set(2, checker.OK, "connected")
		r.pass(time.Minute)
		var got []string
		all, _ := r.events.Since(0, 0)
		for _, e := range all {
			if e.VirtualServer != "[192.0.2.1]:tcp:80" {
				t.Errorf("%s is about %q", e.Message, e.VirtualServer)
			}
			got = append(got, strings.TrimSpace(string(e.Kind)+" "+e.RealServer))
		}
		one, two := "[10.0.0.1]:tcp:80", "[10.0.0.2]:tcp:80"
		for _, want := range []string{"check_passed " + one, "check_failed " + one, "server_down " + one, "server_down " + two, "quorum_lost", "server_up " + two, "quorum_gained"} {
			if !strings.Contains(strings.Join(got, "\n")+"\n", want+"\n") {
				t.Errorf("there is no %s among %q", want, got)
			}
		}
		r.stop(nil)
	})
}
