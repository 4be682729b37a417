package engine

import (
	"context"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// wide is one virtual server with so many real servers.
func wide(n int) *config.Config {
	cfg := conf(1)
	vs := cfg.VirtualServers[0]
	first := *vs.RealServers[0]
	vs.RealServers = nil
	for i := range n {
		rs, ck := first, *first.Checkers[0]
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)}), 80)
		rs.Key.AddrPort, ck.Conn.Target = at, at
		rs.Checkers = []*config.Checker{&ck}
		vs.RealServers = append(vs.RealServers, &rs)
	}
	return cfg
}

// TestS05VerdictAmidInstallation: the loop takes verdicts between two portions of an
// installation, and a reload is done when all of it is written.
func TestS05VerdictAmidInstallation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 5000
		r := newRig(t)
		r.start(conf(1))
		defer r.crash()
		synctest.Wait()
		r.table.ResetLog()

		cfg := wide(n)
		failing := cfg.VirtualServers[0].RealServers[0].Key.AddrPort
		r.farm.result[failing.String()] = checker.Outcome{Result: checker.Failed, Reason: "refused"}
		// A verdict is sent while the first portion is being written.
		sent := false
		r.table.Fail(func(op ipvs.Op) error {
			if !sent && op.Kind == ipvs.OpAddDest {
				sent = true
				r.e.inbox.send(callEvent{done: make(chan struct{}), call: func(e *Engine) {
					task := e.byKey[cfg.VirtualServers[0].Key].tasks[0][0]
					verdictEvent{task: task, verdict: framework.Down, changed: true, outcome: checker.Outcome{Reason: "refused"}}.handle(e)
				}})
			}
			return nil
		})
		r.reload(cfg)
		r.table.Fail(nil)
		log := r.table.Log()
		out := -1
		for i, op := range log {
			if op.Kind == ipvs.OpDelDest && op.Destination.Addr == failing.Addr() {
				out = i
			}
		}
		if out < 0 || out > 1100 {
			t.Errorf("the failed server is taken out by operation %d of %d", out, len(log))
		}
		if ds, _ := r.table.Destinations(t.Context(), key); len(ds) != n-1 {
			t.Errorf("the reload is done with %d destinations in the table", len(ds))
		}
		// What was published on the way is published again.
		if s := r.e.Snapshot(); s.Kernel.Operations < n || !s.Kernel.OK {
			t.Errorf("the snapshot knows of %d operations, ok %t", s.Kernel.Operations, s.Kernel.OK)
		}
	})
}

// TestWritten: it returns with the last portion, and at once where there is no table.
func TestWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		r.start(wide(2000))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.e.Written(ctx); err != nil {
			t.Fatal(err)
		}
		if ds, _ := r.table.Destinations(t.Context(), key); len(ds) != 2000 {
			t.Errorf("%d destinations", len(ds))
		}
		r.crash()

		r = newRig(t)
		r.setDial(errPart)
		r.start(wide(5))
		defer r.crash()
		if err := r.e.Written(ctx); err != nil {
			t.Fatal(err)
		}
	})
}
