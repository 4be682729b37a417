package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// stateDir is the folder of the daemon's state file.
func (b *bed) stateDir() string { return filepath.Join(b.dir, "state") }

// exitHandover is the exit status that the unit file has systemd restart on.
const exitHandover = 75

// adopted checks that a process which has just started wrote nothing and lost
// nothing.
func (b *bed) adopted() {
	b.Helper()
	if s := b.status(); s.Kernel.Operations != 0 {
		b.Errorf("the start wrote %d operations", s.Kernel.Operations)
	}
	b.kept()
}

// TestKernelU03Handover: a new program is brought in under load. Connections are
// held through the end of one process and the start of the next, nothing is written,
// and what was known to be down stays out; through NAT and DR, and with on_stop
// remove.
func TestKernelU03Handover(t *testing.T) {
	for name, build := range map[string]func(testkit.T, int) *testkit.Topology{"NAT": testkit.NewNAT, "DR": testkit.NewDR} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, build, 3)
			b.echo[2].Refuse()
			b.write(globals + strings.Replace(pool("alpha", 1, 2, 3), "lvs_method NAT", "lvs_method "+name, 1))
			b.start()
			b.until("1:1 2:1")
			b.hold(6)
			table := b.Director.Run(t, "ipvsadm", "-Sn")
			for range 3 {
				out := b.Director.Run(t, program(t, "sluice"), "handover", "--wait", "0", "--socket", b.socket)
				if !strings.Contains(out, "1 service, 0 destinations draining") {
					t.Errorf("sluice handover says %q", out)
				}
				if status := b.daemon.Wait(t, patience); status != exitHandover {
					t.Errorf("exit status %d", status)
				}
				if now := b.Director.Run(t, "ipvsadm", "-Sn"); now != table {
					t.Errorf("in between the table is\n%s", now)
				}
				b.start()
				b.adopted()
				b.shows(3, engine.StateDown, "TCP_CHECK")
			}
			b.stays("1:1 2:1", 3*time.Second)
			b.kept()
			b.echo[2].Start(t)
			b.until("1:1 2:1 3:1")
			b.kept()
		})
	}
}

// TestKernelU07KillWithState: kill -9 and start, with a state file that is whole,
// damaged, from the future, or gone.
func TestKernelU07KillWithState(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	b.write(globals + pool("", 1, 2))
	b.start()
	b.until("1:1 2:1")
	b.hold(6)
	file := filepath.Join(b.stateDir(), "state.json")
	for _, tt := range []struct {
		content, aside string
	}{
		{"", ""},
		{"{\"version\": 1, \"serv", "damaged"},
		{"{\"version\": 99}", "newer"},
		{"gone", ""},
	} {
		b.daemon.Kill()
		var err error
		switch tt.content {
		case "":
		case "gone":
			err = os.Remove(file)
		default:
			err = os.WriteFile(file, []byte(tt.content), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		b.start()
		b.adopted()
		if tt.aside != "" {
			if kept, _ := filepath.Glob(file + "." + tt.aside + "-*"); len(kept) != 1 {
				t.Errorf("%q: set aside %v", tt.content, kept)
			}
		}
		testkit.Eventually(t, patience, func() string {
			if b, err := os.ReadFile(file); err != nil || !strings.Contains(string(b), "10.") {
				return fmt.Sprintf("the state file holds %q, %v", b, err)
			}
			return ""
		})
	}
	b.stays("1:1 2:1", 2*time.Second)
	b.kept()
}

// TestKernelD08HandoverInMidDrain: the drain goes on in the next process, and a
// virtual server that went from the file in between drains and goes.
func TestKernelD08HandoverInMidDrain(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	b.write(globals + pool("", 1, 2))
	b.start()
	b.until("1:1 2:1")
	b.hold(6)
	b.write(globals + pool("", 2))
	b.reload()
	b.until("1:0 2:1")
	b.Director.Run(t, program(t, "sluice"), "handover", "--wait", "0", "--socket", b.socket)
	b.daemon.Wait(t, patience)
	b.start()
	b.adopted()
	found := false
	for _, d := range b.status().VirtualServers[0].Services[0].Destinations {
		found = found || d.Drain != nil && d.Drain.Why == "removed from the configuration"
	}
	if !found {
		t.Errorf("the drain does not go on: %+v", b.status().VirtualServers[0].Services[0].Destinations)
	}
	b.daemon.Kill()
	b.write(globals + strings.Replace(pool("", 2), "VIP 80", "VIP 81", 1))
	b.start()
	b.until("1:0 2:0")
	b.stays("1:0 2:0", 3*time.Second)
	b.kept()
	b.release()
	b.until("-")
}

// TestKernelStopDrain: on_stop drain waits for the held connections, takes no new
// ones, and a second SIGTERM cuts the wait short; the services are gone at the end.
func TestKernelStopDrain(t *testing.T) {
	for _, hurry := range []bool{false, true} {
		t.Run(fmt.Sprintf("hurry=%t", hurry), func(t *testing.T) {
			b := newBed(t, testkit.NewNAT, 2)
			b.write("global_defs {\n on_stop drain\n stop_timeout 300\n}\n" + pool("", 1, 2))
			b.start()
			b.until("1:1 2:1")
			b.hold(6)
			b.daemon.Signal(t, syscall.SIGTERM)
			b.until("1:0 2:0")
			b.daemon.WaitLine(t, patience, "Draining before the stop.*active=6")
			b.stays("1:0 2:0", 3*time.Second)
			b.kept()
			if hurry {
				b.daemon.Signal(t, syscall.SIGTERM)
			} else {
				b.release()
			}
			if status := b.daemon.Wait(t, patience); status != 0 {
				t.Errorf("exit status %d", status)
			}
			if got := b.table(); got != "-" {
				t.Errorf("after the stop the table holds %q", got)
			}
		})
	}
}
