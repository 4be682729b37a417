package e2e

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// sluice starts the operator's program.
func (b *bed) sluice(args ...string) *testkit.Process {
	b.Helper()
	return b.Director.Start(b.T, []string{"SLUICE_SOCKET=" + b.socket}, program(b.T, "sluice"), args...)
}

// says runs it and expects a status and a text.
func (b *bed) says(status int, text string, args ...string) {
	b.Helper()
	p := b.sluice(args...)
	got := p.Wait(b.T, patience)
	if out := strings.Join(p.Lines(), "\n"); got != status || !strings.Contains(out, text) {
		b.Errorf("sluice %s: status %d, want %d and %q:\n%s", strings.Join(args, " "), got, status, text, out)
	}
}

// TestKernelD18OperatorDrain: a server is drained by command, keeps its connections
// though its check fails and the file is read again, and the command that waits ends
// with the last of them.
func TestKernelD18OperatorDrain(t *testing.T) {
	for name, build := range map[string]func(testkit.T, int) *testkit.Topology{"NAT": testkit.NewNAT, "DR": testkit.NewDR} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, build, 2)
			text := globals + strings.Replace(pool("", 1, 2), "NAT", name, 1)
			b.write(text)
			b.start()
			b.until("1:1 2:1")
			b.hold(6)
			vs, rs := b.VIP.String(), b.Backends[0].Addr.String()
			wait := b.sluice("drain", vs, rs, "--reason", "new kernel", "--wait")
			b.until("1:0 2:1")
			b.shows(1, engine.StateMaintenance, "drained by root: new kernel")
			wait.WaitLine(t, patience, "connections left: 3 active")
			b.says(exitRefused, "weight 0 of 1 alive would be left", "drain", vs, b.Backends[1].Addr.String())
			b.says(4, "3 active", "drain", vs, rs, "--wait", "--timeout", "1s")
			b.echo[0].Refuse()
			b.shows(1, engine.StateMaintenance, "refused")
			b.reload()
			b.stays("1:0 2:1", 3*time.Second)
			b.kept()
			if r := testkit.OpenLong(t, b.Client, b.VIP.String()+":80", 4).Report(); r.KeptBy["b2"] != 4 {
				t.Errorf("new connections: %s", r)
			}
			b.says(0, "3 ", "drains")
			b.release()
			if status := wait.Wait(t, 2*patience); status != 0 {
				t.Errorf("drain --wait ended with %d: %s", status, strings.Join(wait.Lines(), "\n"))
			}
			if got := b.table(); got != "1:0 2:1" {
				t.Errorf("drained, and the table holds %q", got)
			}
			b.echo[0].Start(t)
			b.shows(1, engine.StateMaintenance, "")
			b.says(0, "drained no longer", "undrain", "--server", rs)
			b.until("1:1 2:1")
			b.says(0, "weight 5", "weight", vs, rs, "5", "--until", "1h")
			b.until("1:5 2:1")
			b.says(0, "configured weight", "weight", vs, rs, "default")
			b.until("1:1 2:1")
			b.says(2, "there is no virtual server", "drain", "192.0.2.99", rs)
		})
	}
}

const exitRefused = 1

// TestKernelIncident: a reload takes away every server and those in their place never
// pass a check. Connections and requests go on, also when departure_hold is over.
func TestKernelIncident(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 4)
	global := "global_defs {\n drain_interval 2\n departure_hold 8\n}\n"
	b.echo[2].Refuse()
	b.echo[3].Refuse()
	b.write(global + pool("", 1, 2))
	b.start()
	b.until("1:1 2:1")
	b.hold(6)
	short := testkit.StartShort(t, b.Client, b.VIP.String()+":80", 5) // refusals and resets count: an echo server is no web server
	watch := watchTable(b)
	b.write(global + pool("", 3, 4))
	b.daemon.SkipOutput()
	b.daemon.Signal(t, syscall.SIGHUP)
	b.daemon.WaitLine(t, patience, "takes away servers that this pool needs.*departure_hold")
	b.shows(1, engine.StateHeld, "serves until those in its place pass a check")
	b.shows(3, engine.StateDown, "refused")
	b.stays("1:1 2:1", 4*time.Second)
	b.kept()
	b.daemon.WaitLine(t, patience, "departure_hold is over and no configured server can serve")
	b.shows(1, engine.StateHeld, "since no configured server can")
	b.says(0, "HELD", "status")
	b.stays("1:1 2:1", 3*time.Second)
	b.kept()
	b.echo[2].Start(t)
	b.echo[3].Start(t)
	b.until("1:0 2:0 3:1 4:1")
	b.kept()
	if empty := watch(); empty != "" {
		t.Errorf("on the way the pool was empty: %s", empty)
	}
	if r := short.Report(); r.Losses[testkit.Refused]+r.Losses[testkit.Reset]+r.Losses[testkit.TimedOut] != 0 {
		t.Errorf("short requests: %s", r)
	}
	short.Close()
	b.release()
	b.until("3:1 4:1")
}
