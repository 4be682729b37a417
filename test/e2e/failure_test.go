package e2e

import (
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// TestKernelFailureIsPrompt: with delay_loop 1 and retry 0 a dead backend is out
// within 1.5 s of its first refused check, and back within 1.5 s of the first good
// one; the median of three, since an emulated machine pauses as it likes.
// Connections on the other server go on.
func TestKernelFailureIsPrompt(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	b.write(globals + pool("", 1, 2))
	b.start()
	b.until("1:1 2:1")
	b.hold(6)
	var out, back []time.Duration
	for range 3 {
		b.daemon.SkipOutput()
		b.echo[0].Refuse()
		b.daemon.WaitLine(t, patience, "Check failed.*"+b.Backends[0].Addr.String())
		out = append(out, b.until("2:1"))
		b.shows(1, engine.StateDown, "refused")
		b.echo[0].Start(t)
		b.daemon.WaitLine(t, patience, "Check passed.*"+b.Backends[0].Addr.String())
		back = append(back, b.until("1:1 2:1"))
	}
	b.long.Settle(t)
	if r := b.long.Report(); r.KeptBy["b2"] != 3 {
		t.Errorf("connections on the healthy server: %s", r)
	}
	slices.Sort(out)
	slices.Sort(back)
	t.Logf("out %v after the first refused check, back %v after the first good one", out, back)
	if out[1] > 1500*time.Millisecond || back[1] > 1500*time.Millisecond {
		t.Error("want 1.5s at most")
	}
}

// TestKernelInhibitKeepsConnections: inhibit_on_failure takes the weight to 0 and
// costs nobody a connection.
func TestKernelInhibitKeepsConnections(t *testing.T) {
	for name, build := range map[string]func(testkit.T, int) *testkit.Topology{"NAT": testkit.NewNAT, "DR": testkit.NewDR} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, build, 2)
			b.write(globals + strings.Replace(pool("inhibit_on_failure", 1, 2), "NAT", name, 1))
			b.start()
			b.until("1:1 2:1")
			b.hold(6)
			b.echo[0].Refuse()
			b.until("1:0 2:1")
			b.kept()
			if r := testkit.OpenLong(t, b.Client, b.VIP.String()+":80", 4).Report(); r.KeptBy["b2"] != 4 {
				t.Errorf("new connections: %s", r)
			}
			b.echo[0].Start(t)
			b.until("1:1 2:1")
			b.kept()
		})
	}
}

// TestKernelSorryServer: it goes in before the last real server comes out, is there
// at a start below quorum, and leaves when one is back; connections on it and on
// healthy servers that it displaced go on. A steady stream of requests never finds
// the pool empty.
func TestKernelSorryServer(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 3)
	sorry := "sorry_server RS3 80\n quorum 2\n alpha"
	b.echo[0].Refuse()
	b.echo[1].Refuse()
	b.write(globals + pool(sorry, 1, 2))
	b.start()
	// Before the first verdict: the status still says that nothing was checked, or
	// the table was right when it was read first.
	if got := b.table(); got != "3:1" {
		t.Errorf("right after the start the table holds %q, want the sorry server", got)
	}
	b.hold(4)

	b.echo[0].Start(t)
	b.echo[1].Start(t)
	b.until("1:1 2:1 3:0")
	b.kept()
	onSorry := b.long
	b.hold(4)

	// One of two fails: the quorum is lost, the healthy one is displaced and drains.
	watch := watchTable(b)
	b.echo[0].Refuse()
	b.until("2:0 3:1")
	b.long.Settle(t)
	if r := b.long.Report(); r.KeptBy["b2"] != 2 {
		t.Errorf("connections on the displaced healthy server: %s", r)
	}
	onSorry.Settle(t)
	if r := onSorry.Report(); r.Lost() != 0 {
		t.Errorf("connections on the sorry server: %s", r)
	}
	b.echo[0].Start(t)
	b.until("1:1 2:1 3:0")
	if empty := watch(); empty != "" {
		t.Errorf("on the way the pool was empty: %s", empty)
	}
	onSorry.Abort()
	b.until("1:1 2:1")
}

// watchTable reads the table as fast as it can until the returned function is
// called, which says when a service without a weight was seen.
func watchTable(b *bed) func() string {
	stop, seen := make(chan struct{}), make(chan string, 1)
	go func() {
		defer close(seen)
		for {
			select {
			case <-stop:
				return
			default:
			}
			text, err := b.Director.ReadProcNet("ip_vs")
			if err != nil {
				continue
			}
			table, err := testkit.ParseProc(text)
			if err != nil {
				continue
			}
			for _, s := range table {
				usable := false
				for _, d := range s.Dests {
					usable = usable || d.Weight > 0
				}
				if !usable {
					seen <- text
					<-stop
					return
				}
			}
		}
	}()
	return func() string {
		close(stop)
		return <-seen
	}
}

// TestKernelHTTPGet: status and digest decide; the reason names them.
func TestKernelHTTPGet(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	web := []*testkit.HTTPServer{testkit.NewHTTP(t, b.Backends[0].NS, ":8080"), testkit.NewHTTP(t, b.Backends[1].NS, ":8080")}
	for _, w := range web {
		w.SetBody("hello\n")
	}
	check := "HTTP_GET {\n connect_port 8080\n connect_timeout 3\n retry 0\n fast_recovery\n url {\n path /health\n status_code 200\n digest b1946ac92492d2347c6235b4d2611184\n }\n }\n"
	text := pool("", 1, 2)
	text = strings.ReplaceAll(text, "TCP_CHECK {\n   connect_timeout 3\n   retry 0\n  }", check)
	b.write(globals + text)
	b.start()
	b.until("1:1 2:1")
	web[0].SetStatus(503)
	b.until("2:1")
	b.shows(1, engine.StateDown, "503")
	b.shows(1, engine.StateDown, "/health")
	web[0].SetStatus(200)
	b.until("1:1 2:1")
	web[1].SetBody("goodbye\n")
	b.until("1:1")
	b.shows(2, engine.StateDown, "digest")
	web[1].SetBody("hello\n")
	b.until("1:1 2:1")
}

// TestKernelStop: on_stop remove empties the table, a foreign service stays; the
// daemon's own end is clean.
func TestKernelStop(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	b.Director.Run(t, "ipvsadm", "-A", "-t", "198.51.100.1:80", "-s", "rr")
	b.write(globals + pool("", 1, 2))
	b.start()
	b.until("1:1 2:1")
	b.daemon.Signal(t, syscall.SIGTERM)
	if status := b.daemon.Wait(t, patience); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if got := testkit.ReadTable(t, b.Director); len(got) != 1 || got[0].Key != "tcp 198.51.100.1:80" {
		t.Errorf("after the stop the table holds %+v", got)
	}
}

// TestKernelStopKeep: on_stop keep leaves the table, connections and all, and the
// next start adopts it.
func TestKernelStopKeep(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	b.write("global_defs {\n on_stop keep\n}\n" + pool("", 1, 2))
	b.start()
	b.until("1:1 2:1")
	b.hold(6)
	b.daemon.Signal(t, syscall.SIGTERM)
	if status := b.daemon.Wait(t, patience); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if got := b.table(); got != "1:1 2:1" {
		t.Errorf("after the stop the table holds %q", got)
	}
	b.kept()
	b.start()
	if s := b.status(); s.Kernel.Operations != 0 {
		t.Errorf("the restart wrote %d operations", s.Kernel.Operations)
	}
	b.kept()
}
