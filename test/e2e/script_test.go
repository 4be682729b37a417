package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// TestKernelScripts: what happens is told in order, once the table agrees, and at a
// stop with omega too; a script's user is its own.
func TestKernelScripts(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	script := filepath.Join(b.dir, "tell.sh")
	told := filepath.Join(b.dir, "told")
	text := "#!/bin/sh\necho \"$1 $SLUICE_EVENT\" >>" + told + "\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	server := func(n int) string {
		return realServer(n, fmt.Sprintf("notify_up \"%s server%d\"\n notify_down \"%s server%d\"", script, n, script, n))
	}
	b.write(globals + "virtual_server VIP 80 {\n delay_loop 1\n lvs_sched rr\n lvs_method NAT\n protocol TCP\n warmup 0\n omega\n" +
		fmt.Sprintf(" quorum_up \"%s quorum\"\n quorum_down \"%s quorum\"\n", script, script) + server(1) + server(2) + "}\n")
	b.start()
	wait := func(want ...string) {
		t.Helper()
		testkit.Eventually(t, patience, func() string {
			got, _ := os.ReadFile(told)
			if string(got) != strings.Join(want, "\n")+"\n" {
				return fmt.Sprintf("told\n%swant\n%s", got, strings.Join(want, "\n"))
			}
			return ""
		})
	}
	wait("quorum quorum_up")
	b.echo[0].Refuse()
	wait("quorum quorum_up", "server1 rs_down")
	b.echo[0].Start(t)
	wait("quorum quorum_up", "server1 rs_down", "server1 rs_up")
	b.daemon.Signal(t, syscall.SIGTERM)
	if status := b.daemon.Wait(t, patience); status != 0 {
		t.Errorf("exit status %d", status)
	}
	// At a stop time is short, and quorums are told first: the order is not the events'.
	got, err := os.ReadFile(told)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(got)), "\n")
	if len(lines) < 3 {
		t.Fatalf("told %q", lines)
	}
	atStop := lines[3:]
	slices.Sort(atStop)
	if want := []string{"quorum quorum_down", "server1 rs_down", "server2 rs_down"}; !slices.Equal(atStop, want) {
		t.Errorf("told at the stop %q, want %q", atStop, want)
	}
}
