package e2e

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/testkit"
)

func (b *bed) reload() {
	b.Helper()
	b.daemon.SkipOutput()
	b.daemon.Signal(b.T, syscall.SIGHUP)
	b.daemon.WaitLine(b.T, patience, "Reloaded|Reload refused")
}

// TestKernelSameFileWritesNothing: neither the daemon's own count nor the table
// moves, and no connection notices fifty reloads.
func TestKernelSameFileWritesNothing(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 3)
	b.write(globals + pool("sorry_server RS3 80\n sorry_server_inhibit", 1, 2))
	b.start()
	b.until("1:1 2:1 3:0")
	b.hold(6)
	before, table := b.status(), b.Director.Run(t, "ipvsadm", "-Sn")
	for range 10 {
		b.reload()
	}
	after := b.status()
	if after.Kernel.Operations != before.Kernel.Operations || after.Generation != before.Generation+10 {
		t.Errorf("%d reloads wrote %d operations", after.Generation-before.Generation, after.Kernel.Operations-before.Kernel.Operations)
	}
	if now := b.Director.Run(t, "ipvsadm", "-Sn"); now != table {
		t.Errorf("the table changed from\n%sto\n%s", table, now)
	}
	b.kept()
}

// TestKernelBrokenFileChangesNothing and says where.
func TestKernelBrokenFileChangesNothing(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	good := globals + pool("", 1, 2)
	b.write(good)
	b.start()
	b.until("1:1 2:1")
	b.hold(4)
	before := b.status()
	for name, broken := range map[string]string{
		"missing brace":  strings.TrimRight(good, "}\n"),
		"unknown word":   strings.Replace(good, "delay_loop", "delay_lop", 1),
		"missing value":  strings.Replace(good, "connect_timeout 3", "connect_port", 1),
		"no such method": strings.Replace(good, "lvs_method NAT", "lvs_method DS", 1),
	} {
		b.write(broken)
		b.daemon.SkipOutput()
		b.daemon.Signal(t, syscall.SIGHUP)
		line := b.daemon.WaitLine(t, patience, "Reload refused")
		if !strings.Contains(line, b.conf+":") {
			t.Errorf("%s: the refusal does not say where: %s", name, line)
		}
	}
	if err := os.Remove(b.conf); err != nil {
		t.Fatal(err)
	}
	b.daemon.SkipOutput()
	b.daemon.Signal(t, syscall.SIGHUP)
	b.daemon.WaitLine(t, patience, "Reload refused")
	after := b.status()
	if after.Kernel.Operations != before.Kernel.Operations || after.Generation != before.Generation || after.Reload.OK {
		t.Errorf("before %+v, after %+v, last reload %+v", before.Kernel, after.Kernel, after.Reload)
	}
	if got := b.table(); got != "1:1 2:1" {
		t.Errorf("the table holds %q", got)
	}
	b.kept()
	b.write(good)
	b.reload()
	if s := b.status(); !s.Reload.OK {
		t.Errorf("a good file after a broken one: %+v", s.Reload)
	}
}

// TestKernelKillAndStart: kill -9 costs nothing, and the next process neither
// removes nor adds anything that is wanted. Servers that were out are not trusted.
func TestKernelKillAndStart(t *testing.T) {
	for _, alpha := range []string{"", "alpha"} {
		t.Run(fmt.Sprintf("alpha=%t", alpha != ""), func(t *testing.T) {
			b := newBed(t, testkit.NewNAT, 3)
			b.echo[2].Refuse()
			b.write(globals + pool(alpha, 1, 2, 3))
			b.start()
			b.until("1:1 2:1")
			b.hold(6)
			b.daemon.Kill()
			b.kept()
			watch := watchTable(b)
			b.start()
			b.stays("1:1 2:1", 3*time.Second)
			if empty := watch(); empty != "" {
				t.Errorf("on the way the pool was empty: %s", empty)
			}
			if s := b.status(); s.Kernel.Operations != 0 {
				t.Errorf("the restart wrote %d operations", s.Kernel.Operations)
			}
			b.kept()
			b.echo[2].Start(t)
			b.until("1:1 2:1 3:1")
		})
	}
}

// TestKernelRestartInMidDrain: what is unwanted in our service goes on draining
// over a crash.
func TestKernelRestartInMidDrain(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	b.write(globals + pool("", 1, 2))
	b.start()
	b.until("1:1 2:1")
	b.hold(6)
	b.write(globals + pool("", 2))
	b.reload()
	b.until("1:0 2:1")
	b.daemon.Kill()
	b.start()
	b.stays("1:0 2:1", 4*time.Second)
	b.kept()
	b.release()
	b.until("2:1")
}

// TestKernelObserveWritesNothing: observe mode checks and decides, shows where the
// kernel differs, and leaves the table alone to the end.
func TestKernelObserveWritesNothing(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	b.Director.Run(t, "ipvsadm", "-A", "-t", b.VIP.String()+":80", "-s", "wlc")
	before := b.Director.Run(t, "ipvsadm", "-Sn")
	b.write(globals + pool("", 1, 2))
	b.start("--observe")
	b.shows(1, engine.StateUp, "")
	if now := b.Director.Run(t, "ipvsadm", "-Sn"); now != before {
		t.Errorf("the table changed from\n%sto\n%s", before, now)
	}
	s := b.status()
	if !s.Observe {
		t.Error("status does not say that this is observe mode")
	}
	for _, d := range s.VirtualServers[0].Services[0].Destinations {
		if d.Wanted != 1 || d.Kernel != -1 {
			t.Errorf("destination %+v, want it to differ from the kernel", d)
		}
	}
	b.daemon.Signal(t, syscall.SIGTERM)
	b.daemon.Wait(t, patience)
	if now := b.Director.Run(t, "ipvsadm", "-Sn"); now != before {
		t.Errorf("the stop changed the table to\n%s", now)
	}
}

// TestKernelSysctls: what draining rests on is set, in the daemon's namespace.
func TestKernelSysctls(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 1)
	b.write(globals + pool("", 1))
	b.start()
	for _, name := range []string{"expire_nodest_conn", "expire_quiescent_template"} {
		if got := b.Director.ReadSysctl(t, "net.ipv4.vs."+name); got != "1" {
			t.Errorf("%s is %q", name, got)
		}
	}
	b.write("global_defs {\n ipvs_conntrack on\n}\n" + pool("", 1))
	b.reload()
	if got := b.Director.ReadSysctl(t, "net.ipv4.vs.conntrack"); got != "1" {
		t.Errorf("after a reload that asks for it conntrack is %q", got)
	}
}
