package e2e

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// asks is what the daemon says over HTTP, with its status: "200 ready".
func (b *bed) asks(path string) string {
	b.Helper()
	out, err := b.Director.Output("curl", "-s", "-m", "5", "-w", " %{http_code}", "http://127.0.0.1:9476"+path)
	if err != nil {
		return err.Error()
	}
	text := strings.TrimSpace(out)
	i := strings.LastIndexByte(text, ' ')
	return text[i+1:] + " " + strings.TrimSpace(text[:max(i, 0)])
}

func (b *bed) says503(path, want string) {
	b.Helper()
	testkit.Eventually(b.T, patience, func() string {
		if got := b.asks(path); !strings.HasPrefix(got, "503 ") || !strings.Contains(got, want) {
			return fmt.Sprintf("%s: %q, want 503 with %q", path, got, want)
		}
		return ""
	})
}

// TestKernelO10WithdrawWaitDrain: what announces the address hears of a dark pool and of
// a planned stop; then there is time for clients to go elsewhere, with the table as it
// is; then it drains. Nobody who is connected loses anything.
func TestKernelO10WithdrawWaitDrain(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	b.write("global_defs {\n drain_interval 2\n #sluice http_listen 127.0.0.1:9476\n #sluice on_stop drain\n #sluice stop_timeout 120\n #sluice withdraw_delay 5\n}\n" + pool("#sluice label web", 1, 2))
	b.start()
	b.until("1:1 2:1")
	b.echo[0].Refuse()
	b.echo[1].Refuse()
	b.until("")
	b.says503("/vs/web", "no quorum")
	b.echo[0].Start(t)
	b.until("1:1")
	testkit.Eventually(t, patience, func() string {
		if got := b.asks("/vs/web"); !strings.HasPrefix(got, "200 ") {
			return got
		}
		return ""
	})
	b.hold(4)
	b.daemon.Signal(t, syscall.SIGTERM)
	b.says503("/vs/web", "stopping")
	b.says503("/readyz", "stopping")
	b.stays("1:1", 2*time.Second)
	first := b.long
	b.hold(2) // who has not heard of it yet is served
	b.until("1:0")
	b.kept()
	first.Settle(t)
	if r := first.Report(); r.Lost() != 0 {
		t.Errorf("connections from before: %s", r)
	}
	b.release()
	first.Abort()
	if status := b.daemon.Wait(t, patience); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if got := b.table(); got != "-" {
		t.Errorf("after the stop the table holds %q", got)
	}
}
