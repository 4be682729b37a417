package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// isBare waits until a director is as it was but for its device, which stays as long as
// the configuration names it, with nothing on it.
func (b *bed) isBare(want string) {
	b.Helper()
	testkit.Eventually(b.T, patience, func() string {
		diff := difference(want, machine(b.T, b.Director))
		for l := range strings.Lines(diff) {
			if !strings.HasPrefix(l, "too many: ") || !strings.Contains(l, device) || strings.Contains(l, "198.") {
				return diff
			}
		}
		return ""
	})
	b.on(device, "")
}

// TestKernelEdgeKilled: kill -9 in the middle of whatever moves addresses, guard and marks,
// and a start with the same file or with an empty one. What is there then is what would be
// there without the kill, and nothing else.
func TestKernelEdgeKilled(t *testing.T) {
	b := newEdge(t, 2)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	dice := rand.New(rand.NewPCG(seed, 1))
	// Most addresses stand for one mark, which costs the machine nothing but them; guard and
	// marks of ours have few, since nft reads thousands for a minute.
	const nets, each, more = 3, 250, 1 + 5
	many := "#sluice vip_guard off\n"
	for i := range nets {
		many += fmt.Sprintf(" #sluice vip_address 198.18.%d.0-%d\n", i, each-1)
	}
	text := func(device string) string {
		return edgeGlobals("nftables_ipvs", "#sluice vip_device "+device, "#sluice vip_guard on", "#sluice vip_follow quorum", "#sluice vip_delay 0") +
			virtual("fwmark 5", many, 1) + "virtual_server_group few {\n 198.51.100.40-44 80\n}\n" + virtual("group few", "", 1) + virtual("VIP 80", "", 1, 2)
	}
	const other = "other0"
	empty := edgeGlobals()
	files := map[string]string{device: text(device), other: text(other), "": empty}
	marker := filepath.Join(b.stateDir(), "edge")

	// What there is without a kill.
	want := map[string]string{"": machine(t, b.Director)}
	for _, d := range []string{device, other} {
		b.write(files[d])
		begun := time.Now()
		b.start()
		ready := time.Since(begun)
		b.daemon.WaitLine(t, 2*patience, fmt.Sprintf("are on their device.*count=%d", nets*each+more))
		t.Logf("%d addresses: ready after %v, all announced after %v", nets*each+more, ready, time.Since(begun))
		want[d] = machine(t, b.Director)
		if n := strings.Count(want[d], "198.18."); n < 2*nets*each {
			t.Fatalf("%d lines of the machine are about %d addresses", n, nets*each)
		}
		b.daemon.Signal(t, syscall.SIGTERM)
		b.daemon.Wait(t, patience)
		b.isAgain(want[""])
	}

	launch := func(d string) {
		b.write(files[d])
		b.daemon = b.Director.Start(t, nil, program(t, "sluiced"), "-f", b.conf, "--socket", b.socket, "--state-dir", b.stateDir())
	}
	ready := func() { b.daemon.WaitLine(t, patience, "Ready") }
	// done returns what is wanted, by which device.
	moves := map[string]func() (d string){
		"start": func() string {
			d := []string{device, other}[dice.IntN(2)]
			launch(d)
			return d
		},
		"quorum lost": func() string {
			launch(device)
			ready()
			b.isAgain(want[device])
			b.echo[0].Refuse()
			b.daemon.WaitLine(t, patience, "Lost quorum")
			return device
		},
		"another device": func() string {
			launch(device)
			ready()
			b.isAgain(want[device])
			b.write(files[other])
			b.daemon.Signal(t, syscall.SIGHUP)
			return other
		},
		"passive": func() string {
			launch(device)
			ready()
			b.isAgain(want[device])
			b.says(0, "withdrawn", "passive", "on")
			return device
		},
		"stop": func() string {
			launch(device)
			ready()
			b.isAgain(want[device])
			b.daemon.Signal(t, syscall.SIGTERM)
			return device
		},
	}
	for i, name := range []string{"start", "start", "quorum lost", "another device", "passive", "stop"} {
		d := moves[name]()
		after := time.Duration(dice.IntN(400)) * time.Millisecond
		<-time.After(after)
		b.daemon.Kill()
		b.echo[0].Start(t)
		then := d
		if i%2 == 1 {
			then = ""
		}
		t.Logf("%s, killed %v later, started with %q", name, after, then)
		launch(then)
		ready()
		if name == "passive" {
			if then != "" {
				b.isBare(want[""])
			} else {
				b.isAgain(want[""])
			}
			b.says(0, "passive no longer", "passive", "off")
		}
		b.isAgain(want[then])
		if _, err := os.Stat(marker); (err == nil) != (then != "") {
			testkit.Eventually(t, patience, func() string {
				if _, err := os.Stat(marker); (err == nil) != (then != "") {
					return fmt.Sprintf("the marker of %q: %v", then, err)
				}
				return ""
			})
		}
		b.daemon.Kill()
		if t.Failed() {
			return
		}
	}
	// The last one was killed with all of it there.
	launch("")
	ready()
	b.isAgain(want[""])
	if table := testkit.ReadTable(t, b.Director); len(table) != 0 {
		t.Errorf("the table holds\n%s", table)
	}
}
