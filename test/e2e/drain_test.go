package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// TestKernelReloadRemovesAServer: it drains, and is deleted at the tick after its
// last connection ended; nobody loses a connection.
func TestKernelReloadRemovesAServer(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 3)
	b.write(globals + pool("", 1, 2, 3))
	b.start()
	b.until("1:1 2:1 3:1")
	b.hold(9)
	short := testkit.StartShort(t, b.Client, b.VIP.String()+":80", 5) // an echo server is no web server: only refusals and resets count
	b.write(globals + pool("", 2, 3))
	b.daemon.Signal(t, syscall.SIGHUP)
	b.until("1:0 2:1 3:1")
	b.kept()
	b.stays("1:0 2:1 3:1", 5*time.Second) // more than two ticks
	b.kept()
	s := b.status()
	waits := ""
	for _, d := range s.VirtualServers[0].Services[0].Destinations {
		if d.Drain != nil {
			waits = d.Drain.WaitsFor
		}
	}
	if !strings.HasPrefix(waits, "3 active") {
		t.Errorf("status says that the drain waits for %q", waits)
	}
	if r := short.Report(); r.Losses[testkit.Refused]+r.Losses[testkit.Reset] != 0 {
		t.Errorf("short requests: %s", r)
	}
	short.Close()
	if r := b.long.Report(); r.Lost() != 0 {
		t.Errorf("connections: %s", r)
	}
	b.release()
	b.until("2:1 3:1")
}

// TestKernelResurrection: a server that comes back in mid-drain has its weight
// back in place; its connections never notice.
func TestKernelResurrection(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	b.write(globals + pool("", 1, 2))
	b.start()
	b.until("1:1 2:1")
	b.hold(6)
	b.write(globals + pool("", 2))
	b.daemon.Signal(t, syscall.SIGHUP)
	b.until("1:0 2:1")
	b.write(globals + pool("", 1, 2))
	b.daemon.Signal(t, syscall.SIGHUP)
	b.until("1:1 2:1")
	b.stays("1:1 2:1", 3*time.Second)
	b.kept()
}

// TestKernelTrackFileDrain: a file takes a server out for maintenance and removing
// the file brings it back, with connections held open throughout.
func TestKernelTrackFileDrain(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	track := "track_file maintenance {\n file DIR/maintenance\n weight 1\n}\n"
	text := globals + track + "virtual_server VIP 80 {\n delay_loop 1\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n" +
		realServer(1, "track_file maintenance") + realServer(2, "") + "}\n"
	b.write(text)
	b.start()
	b.until("1:1 2:1")
	b.hold(6)
	file := filepath.Join(b.dir, "maintenance")
	if err := os.WriteFile(file, []byte("-100\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	b.until("1:0 2:1")
	b.stays("1:0 2:1", 5*time.Second)
	b.kept()
	b.shows(1, engine.StateMaintenance, "maintenance is -100")
	if r := testkit.OpenLong(t, b.Client, b.VIP.String()+":80", 4).Report(); r.KeptBy["b2"] != 4 {
		t.Errorf("new connections: %s", r)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	b.until("1:1 2:1")
	b.kept()
}

// TestKernelVirtualServerRemoved: it drains all its destinations and goes last.
func TestKernelVirtualServerRemoved(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	other := strings.Replace(pool("", 1), "VIP 80", "VIP 81", 1)
	b.write(globals + pool("", 1, 2) + other)
	b.start()
	b.until("1:1 2:1")
	b.hold(6)
	b.write(globals + other)
	b.daemon.Signal(t, syscall.SIGHUP)
	b.until("1:0 2:0")
	b.stays("1:0 2:0", 3*time.Second)
	b.kept()
	b.release()
	b.until("-")
}
