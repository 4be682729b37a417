package engine

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

// draining starts a pool of two and a sorry server with on_stop drain and begins the
// stop. The returned channel has a value once the engine has ended.
func draining(r *rig, limit time.Duration, sorry bool) <-chan error {
	cfg := conf(1, 2)
	cfg.Global.OnStop, cfg.Global.StopTimeout = config.OnStopDrain, limit
	cfg.VirtualServers[0].Sorry = &config.SorryServer{Key: config.RSKey{AddrPort: netip.MustParseAddrPort(target(9))}, Forward: config.Forwarding{Method: config.NAT}}
	r.start(cfg)
	r.pass(time.Minute)
	r.want("1:1 2:1")
	r.hold(1, 3)
	if sorry {
		r.farm.set(1, checker.Failed, "refused")
		r.farm.set(2, checker.Failed, "refused")
		r.pass(time.Minute)
		r.want("9:1")
		r.hold(9, 2)
	}
	r.sched()
	r.cancel(context.Canceled)
	synctest.Wait()
	if err := <-r.done; err != nil { // the scheduler
		r.Error(err)
	}
	return r.done
}

// over ends a test whose engine has ended.
func over(t *testing.T, f func(r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.state.on = true
		f(r)
	})
}

func ended(r *rig, done <-chan error) {
	r.Helper()
	synctest.Wait()
	select {
	case err := <-done:
		if err != nil {
			r.Error(err)
		}
	default:
		r.Fatal("the engine has not ended")
	}
	if got := r.services(); len(got) != 0 {
		r.Errorf("the table still holds %v", got)
	}
}

// TestStopDrainWaits for the last connection, whoever has it, and no longer.
func TestStopDrainWaits(t *testing.T) {
	for _, sorry := range []bool{false, true} {
		over(t, func(r *rig) {
			done := draining(r, 10*time.Minute, sorry)
			at, n := "1:0 2:0", 1
			if sorry {
				at, n = "9:0", 9
			}
			r.want(at)
			r.pass(8 * time.Minute)
			r.want(at)
			select {
			case <-done:
				t.Fatal("it has ended with connections left")
			default:
			}
			r.hold(n, 0)
			r.pass(2 * time.Second)
			ended(r, done)
			if got := strings.Count(r.logged(), "Draining before the stop"); got < 90 || got > 100 {
				t.Errorf("%d lines of progress in 8 minutes", got)
			}
			if told := r.state.drains(); len(told) < 90 || !strings.Contains(told[0], "active") {
				t.Errorf("told %d times: %q", len(told), told[:min(1, len(told))])
			}
		})
	}
}

// TestStopDrainEndsAtItsLimit, and says what that cuts.
func TestStopDrainEndsAtItsLimit(t *testing.T) {
	over(t, func(r *rig) {
		done := draining(r, 30*time.Second, false)
		r.pass(29 * time.Second)
		r.want("1:0 2:0")
		r.pass(2 * time.Second)
		ended(r, done)
		if !strings.Contains(r.logged(), "stop_timeout is over") || !strings.Contains(r.logged(), "active=3") {
			t.Errorf("the log does not say what is cut:\n%s", r.logged())
		}
	})
}

// TestStopDrainIsCutShort by a second signal; what comes after that, or without a
// drain, is nothing to hurry.
func TestStopDrainIsCutShort(t *testing.T) {
	over(t, func(r *rig) {
		done := draining(r, time.Hour, false)
		r.pass(time.Minute)
		if !r.e.Hurry() || r.e.Hurry() {
			t.Error("the first should hurry and the second not")
		}
		ended(r, done)
	})
	in(t, func(r *rig) {
		r.start(conf(1))
		if r.e.Hurry() {
			t.Error("there is nothing to hurry")
		}
	})
}

// TestStopDrainWithoutConnections is no longer than any stop.
func TestStopDrainWithoutConnections(t *testing.T) {
	over(t, func(r *rig) {
		cfg := conf(1)
		cfg.Global.OnStop, cfg.Global.StopTimeout = config.OnStopDrain, time.Hour
		r.start(cfg)
		r.pass(time.Minute)
		begun := time.Now()
		r.stop(nil)
		if took := time.Since(begun); took > 2*time.Second {
			t.Errorf("it took %v", took)
		}
		r.want("")
	})
}
