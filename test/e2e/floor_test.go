package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// TestKernelFloor: every check fails, and min_alive 50% keeps the two of four servers
// that failed last, with the connections on them, over a reload and a crash with a
// restart too. New clients are served again as soon as those are, and the others come
// back by their checks.
func TestKernelFloor(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 4)
	b.write(globals + pool("min_alive 50%", 1, 2, 3, 4))
	b.start()
	b.until("1:1 2:1 3:1 4:1")
	b.hold(8)
	b.echo[0].Refuse()
	b.until("2:1 3:1 4:1")
	b.echo[1].Refuse()
	b.until("3:1 4:1")
	if b.status().VirtualServers[0].AtFloor {
		t.Error("at the floor with two good servers")
	}
	b.echo[2].Refuse()
	b.echo[3].Refuse()
	b.shows(3, engine.StateKept, "refused")
	b.shows(4, engine.StateKept, "kept by min_alive")
	b.daemon.WaitLine(t, patience, "ERROR VS .*is at its floor")
	onKept := func(when string) {
		t.Helper()
		b.long.Settle(t)
		if r := b.long.Report(); r.KeptBy["b3"] != 2 || r.KeptBy["b4"] != 2 {
			t.Errorf("%s, connections on the servers that are kept: %s", when, r)
		}
		if vs := b.status().VirtualServers[0]; !vs.AtFloor || !vs.QuorumUp {
			t.Errorf("%s: at the floor %t, quorum %t", when, vs.AtFloor, vs.QuorumUp)
		}
	}
	b.stays("3:1 4:1", 3*time.Second)
	onKept("after the failure")

	b.daemon.SkipOutput()
	b.daemon.Signal(t, syscall.SIGHUP)
	b.daemon.WaitLine(t, patience, "[Rr]eload")
	b.stays("3:1 4:1", 3*time.Second)
	onKept("after a reload")

	b.daemon.Signal(t, syscall.SIGKILL)
	b.daemon.Wait(t, patience)
	b.start()
	b.shows(3, engine.StateKept, "refused")
	b.shows(4, engine.StateKept, "refused")
	b.stays("3:1 4:1", 3*time.Second)
	onKept("after a crash and a start")

	b.echo[2].Start(t)
	b.echo[3].Start(t)
	b.daemon.WaitLine(t, patience, "is off its floor")
	if r := testkit.OpenLong(t, b.Client, b.VIP.String()+":80", 4).Report(); r.Kept != 4 {
		t.Errorf("new connections: %s", r)
	}
	b.echo[0].Start(t)
	b.echo[1].Start(t)
	b.until("1:1 2:1 3:1 4:1")
	b.long.Settle(t)
	if r := b.long.Report(); r.KeptBy["b3"] != 2 || r.KeptBy["b4"] != 2 {
		t.Errorf("at the end, connections on the servers that were kept: %s", r)
	}
	for n := range 4 {
		b.shows(n+1, engine.StateUp, "all checks pass")
	}
}
