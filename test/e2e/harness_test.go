// Package e2e runs the whole daemon, as built, on a real kernel with real traffic:
// real backends in namespaces of their own, clients that hold connections open and
// count what they lose, and the table as ipvsadm and /proc show it.
package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// patience bounds every wait; the guest may be twenty times slower than a machine.
const patience = 30 * time.Second

// bed is a topology with an echo server on port 80 of every backend and a daemon on
// the director.
type bed struct {
	*testing.T
	*testkit.Topology
	dir, conf, socket string
	echo              []*testkit.Server
	daemon            *testkit.Process
	long              *testkit.Long
}

func newBed(t *testing.T, build func(testkit.T, int) *testkit.Topology, backends int) *bed {
	t.Helper()
	testkit.Kernel(t)
	b := &bed{T: t, Topology: build(t, backends), dir: t.TempDir()}
	b.conf, b.socket = filepath.Join(b.dir, "keepalived.conf"), filepath.Join(b.dir, "sluiced.sock")
	for _, be := range b.Backends {
		b.echo = append(b.echo, testkit.NewEcho(t, be.NS, ":80"))
	}
	return b
}

// program returns the path of a binary that make build made.
func program(t *testing.T, name string) string {
	t.Helper()
	for _, up := range []string{".", "..", "../.."} {
		p, err := filepath.Abs(filepath.Join(up, "bin", name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(p); err == nil {
			return p
		}
	}
	t.Fatalf("bin/%s is not there; run: make build", name)
	return ""
}

// write makes the configuration file; VIP and the addresses of the backends (RS1,
// RS2 ...) are filled in.
func (b *bed) write(text string) {
	b.Helper()
	pairs := []string{"VIP", b.VIP.String(), "DIR", b.dir}
	for i, be := range b.Backends {
		pairs = append(pairs, fmt.Sprintf("RS%d", i+1), be.Addr.String())
	}
	if err := os.WriteFile(b.conf, []byte(strings.NewReplacer(pairs...).Replace(text)), 0o644); err != nil {
		b.Fatal(err)
	}
}

// pool is a virtual server on the VIP's port 80 with TCP_CHECKs each second. extra
// goes into the virtual server.
func pool(extra string, servers ...int) string {
	s := "virtual_server VIP 80 {\n delay_loop 1\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n retry 1\n warmup 0\n " + extra + "\n"
	for _, n := range servers {
		s += realServer(n, "")
	}
	return s + "}\n"
}

func realServer(n int, extra string) string {
	return fmt.Sprintf(" real_server RS%d 80 {\n  weight 1\n  %s\n  TCP_CHECK {\n   connect_timeout 3\n   retry 0\n  }\n }\n", n, extra)
}

const globals = "global_defs {\n drain_interval 2\n}\n"

func (b *bed) start(args ...string) {
	b.Helper()
	b.launch(args...)
	b.daemon.WaitLine(b.T, patience, "Ready")
}

// launch is start that does not wait.
func (b *bed) launch(args ...string) {
	b.Helper()
	args = append([]string{"-f", b.conf, "--socket", b.socket, "--state-dir", b.stateDir()}, args...)
	b.daemon = b.Director.Start(b.T, nil, program(b.T, "sluiced"), args...)
}

// hold opens n connections to the VIP that exchange a line each 100 ms.
func (b *bed) hold(n int) {
	b.Helper()
	b.long = testkit.OpenLong(b.T, b.Client, b.VIP.String()+":80", n)
	if r := b.long.Report(); r.Kept != n {
		b.Fatalf("opening %d connections: %s", n, r)
	}
}

// kept fails the test if any of the held connections was lost.
func (b *bed) kept() {
	b.Helper()
	b.long.Settle(b.T)
	if r := b.long.Report(); r.Lost() != 0 {
		b.Errorf("connections: %s", r)
	}
}

// release ends the held connections by resets, which the kernel forgets soonest.
func (b *bed) release() { b.long.Abort() }

// table is the VIP's service as the kernel shows it in /proc, the quickest
// independent reader: "1:1 2:0" for the weights of the backends by number, 9 for an
// address that is none, "-" without the service.
func (b *bed) table() string {
	b.Helper()
	for _, s := range testkit.ReadProc(b.T, b.Director) {
		if s.Key != "tcp "+b.VIP.String()+":80" {
			continue
		}
		var out []string
		for _, d := range s.Dests {
			n := 9
			for i, be := range b.Backends {
				if d.Addr.Addr() == be.Addr {
					n = i + 1
				}
			}
			out = append(out, fmt.Sprintf("%d:%d", n, d.Weight))
		}
		return strings.Join(out, " ")
	}
	return "-"
}

// until waits for the table to hold what is wanted and returns how long that took.
func (b *bed) until(want string) time.Duration {
	b.Helper()
	begun := time.Now()
	testkit.Eventually(b.T, patience, func() string {
		if got := b.table(); got != want {
			return fmt.Sprintf("the table holds %q, want %q", got, want)
		}
		return ""
	})
	return time.Since(begun)
}

// stays checks that the table holds what is wanted for as long as d.
func (b *bed) stays(want string, d time.Duration) {
	b.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); {
		if got := b.table(); got != want {
			b.Fatalf("the table holds %q, want %q to stay", got, want)
		}
	}
}

// status is what the daemon says over its socket.
func (b *bed) status() *engine.Snapshot {
	b.Helper()
	s, err := control.NewClient(b.socket).Status(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// shows waits until status gives a real server of the first virtual server the
// state and a reason with the text in it. A state is published just after the table
// was written, so that a reader of both may see the table first.
func (b *bed) shows(n int, state engine.State, reason string) {
	b.Helper()
	addr := b.Backends[n-1].Addr.String() + ":80"
	testkit.Eventually(b.T, patience, func() string {
		for _, rs := range b.status().VirtualServers[0].RealServers {
			if rs.Address == addr && rs.State == state && strings.Contains(rs.Reason, reason) {
				return ""
			} else if rs.Address == addr {
				return fmt.Sprintf("real server %d is %s (%s), want %s (%s)", n, rs.State, rs.Reason, state, reason)
			}
		}
		return fmt.Sprintf("real server %d is not in the status", n)
	})
}
