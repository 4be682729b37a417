package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/testkit"
)

const reconciling = "global_defs {\n drain_interval 2\n reconcile_interval 2\n}\n"

// logged counts the lines that hold all of the texts.
func (b *bed) logged(texts ...string) int {
	n := 0
lines:
	for _, l := range b.daemon.Lines() {
		for _, t := range texts {
			if !strings.Contains(l, t) {
				continue lines
			}
		}
		n++
	}
	return n
}

// TestKernelR06FlushedTableIsWholeAgain: within reconcile_interval, and a server
// that fails at that very time still leaves.
func TestKernelR06FlushedTableIsWholeAgain(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 3)
	b.write(reconciling + pool("", 1, 2, 3))
	b.start()
	b.until("1:1 2:1 3:1")
	b.hold(6)
	operations := b.status().Kernel.Operations
	b.stays("1:1 2:1 3:1", 5*time.Second)
	if n := b.status().Kernel.Operations; n != operations {
		t.Errorf("%d operations, %d after two intervals in which nothing changed", operations, n)
	}
	b.Director.Run(t, "ipvsadm", "-C")
	took := b.until("1:1 2:1 3:1")
	t.Logf("whole again after %v", took)
	if b.logged("Somebody changed the IPVS table, putting it back", "service missing") != 1 {
		t.Error("the log does not say once what was found")
	}
	// With expire_nodest_conn a connection that sent something in between is reset;
	// new ones are served.
	b.long.Abort()
	b.hold(6)
	b.Director.Run(t, "ipvsadm", "-C")
	b.echo[0].Refuse()
	b.until("2:1 3:1")
	if n := b.status().Kernel.DriftRepaired; n == 0 {
		t.Error("status counts nothing that was put back")
	}
}

// TestKernelD18WhatSomebodyChangesIsPutBack, at once on SIGHUP, and what somebody
// adds drains; no connection is lost over it.
func TestKernelD18WhatSomebodyChangesIsPutBack(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 3)
	off := strings.Replace(globals, "drain_interval 2", "drain_interval 2\n reconcile_interval 0", 1)
	b.write(off + pool("", 1, 2))
	b.start()
	b.until("1:1 2:1")
	b.hold(4)
	vip, rs := b.VIP.String()+":80", func(n int) string { return b.Backends[n-1].Addr.String() + ":80" }
	b.Director.Run(t, "ipvsadm", "-e", "-t", vip, "-r", rs(1), "-m", "-w", "0")
	b.Director.Run(t, "ipvsadm", "-e", "-t", vip, "-r", rs(2), "-m", "-w", "7")
	b.Director.Run(t, "ipvsadm", "-a", "-t", vip, "-r", rs(3), "-m", "-w", "1")
	b.Director.Run(t, "ipvsadm", "-E", "-t", vip, "-s", "wlc")
	b.stays("1:0 2:7 3:1", 3*time.Second)
	b.daemon.Signal(t, syscall.SIGHUP)
	b.until("1:1 2:1")
	if s := b.Director.Run(t, "ipvsadm", "-Sn"); !strings.Contains(s, "-s rr") {
		t.Errorf("the scheduler is not put back:\n%s", s)
	}
	for _, want := range [][]string{
		{"destination changed", "weight 0", "weight 1"}, {"destination changed", "weight 7"},
		{"destination added", "not there"}, {"service changed", "scheduler wlc", "scheduler rr"},
	} {
		if b.logged(append(want, "Somebody changed")...) != 1 {
			t.Errorf("the log does not say once: %q", want)
		}
	}
	b.kept()
	b.write(strings.Replace(reconciling, "interval 2\n}", "interval 2\n drift report\n}", 1) + pool("", 1, 2))
	b.daemon.Signal(t, syscall.SIGHUP)
	b.daemon.WaitLine(t, patience, "Reloaded")
	b.Director.Run(t, "ipvsadm", "-e", "-t", vip, "-r", rs(2), "-m", "-w", "5")
	testkit.Eventually(t, patience, func() string {
		if d := b.status().VirtualServers[0].Services[0].Drift; len(d) != 1 || d[0].Found != "weight 5" {
			return "status shows no drift"
		}
		return ""
	})
	b.stays("1:1 2:5", 5*time.Second)
	b.kept()
}

// TestKernelU04ForeignServices are listed and left alone; a service of ours that was
// there with somebody else's destinations is taken over, and those drain.
func TestKernelU04ForeignServices(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 3)
	vip := b.VIP.String() + ":80"
	b.Director.Run(t, "ipvsadm", "-A", "-t", "198.51.100.1:80", "-s", "lc")
	b.Director.Run(t, "ipvsadm", "-a", "-t", "198.51.100.1:80", "-r", "10.99.0.1:80", "-m", "-w", "3")
	b.Director.Run(t, "ipvsadm", "-A", "-t", vip, "-s", "wlc")
	b.Director.Run(t, "ipvsadm", "-a", "-t", vip, "-r", b.Backends[2].Addr.String()+":80", "-m", "-w", "1")
	b.hold(3)
	b.write(reconciling + pool("", 1, 2))
	b.start()
	b.until("1:1 2:1 3:0")
	b.kept()
	if b.logged("Taking over a service", b.Backends[2].Addr.String(), "scheduler wlc") != 1 {
		t.Error("the log does not say that a service was taken over")
	}
	s, err := control.NewClient(b.socket).Status(t.Context(), control.Foreign)
	if err != nil {
		t.Fatal(err)
	}
	if f := s.Foreign; f == nil || len(f.Services) != 1 || f.Services[0].Name != "198.51.100.1:80/tcp" || f.Services[0].Destinations[0].Kernel != 3 {
		t.Errorf("foreign services: %+v", f)
	}
	b.release()
	b.until("1:1 2:1")
	b.stays("1:1 2:1", 3*time.Second)
	if s := b.Director.Run(t, "ipvsadm", "-Sn"); !strings.Contains(s, "-a -t 198.51.100.1:80 -r 10.99.0.1:80 -m -w 3") {
		t.Errorf("the foreign service was touched:\n%s", s)
	}
}

// TestKernelOnFailureDrain: a failed server keeps its connections, has its weight
// back in place when it returns, and is deleted after its last connection when it
// does not.
func TestKernelOnFailureDrain(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	b.write(globals + pool("on_failure drain", 1, 2))
	b.start()
	b.until("1:1 2:1")
	b.hold(6)
	b.echo[0].Refuse()
	b.until("1:0 2:1")
	b.stays("1:0 2:1", 4*time.Second)
	b.kept()
	b.echo[0].Start(t)
	b.until("1:1 2:1")
	b.kept()
	b.echo[0].Refuse()
	b.until("1:0 2:1")
	b.release()
	b.until("2:1")
}
