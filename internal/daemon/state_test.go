package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/state"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// withoutTable skips a test that runs the daemon for good where it would write a
// real table; the tests on a kernel have that.
func withoutTable(t *testing.T) {
	t.Helper()
	if c, err := ipvs.Dial(); err == nil {
		c.Close()
		t.Skip("this kernel has a table of its own")
	}
}

func kept(dir string) func(*Options) {
	return func(o *Options) { o.Observe, o.StateDir = false, dir }
}

// TestHandover: the state is on the disk, the exit status says what it was, and the
// next process goes on from there.
func TestHandover(t *testing.T) {
	withoutTable(t)
	one, ln := backend(t)
	two, _ := backend(t)
	dir := filepath.Join(t.TempDir(), "state")
	script := filepath.Join(t.TempDir(), "ran")
	text := fmt.Sprintf("global_defs {\n script_user root\n on_stop remove\n shutdown_script \"/bin/touch %s\"\n}\n", script) + confText(one, two)
	p := launch(t, text, kept(dir))
	p.out.await(t, 0, "Ready")
	p.out.await(t, 0, fmt.Sprintf(`Check passed.*:%d`, two))
	ln.Close()
	p.shows(engine.StateDown)
	h, err := control.NewClient(p.socket).Handover(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if h.PID != os.Getpid() || h.Status != 75 || h.StateFile != filepath.Join(dir, "state.json") {
		t.Errorf("handover %+v", h)
	}
	if status := <-p.done; status != 75 {
		t.Errorf("exit status %d, want 75\n%s", status, p.out.await(t, 0, ""))
	}
	if _, err := os.Stat(script); err == nil {
		t.Error("the shutdown_script has run")
	}
	b, err := os.ReadFile(h.StateFile)
	if err != nil {
		t.Fatal(err)
	}
	if s, err := state.Decode(b); err != nil || len(s.Verdicts) != 2 || s.Verdicts[0].Up || !s.Verdicts[1].Up {
		t.Errorf("saved %+v, %v", s, err)
	}

	p = launch(t, text, kept(dir))
	p.out.await(t, 0, "Ready")
	s := p.status()
	if rs := s.VirtualServers[0].RealServers; rs[0].State != engine.StateDown || rs[1].State != engine.StateUp || s.Generation != 2 {
		t.Errorf("the next process starts from %+v, generation %d", rs, s.Generation)
	}
	if status := p.stop(); status != 0 {
		t.Errorf("exit status %d after a stop", status)
	}
}

// TestHandoverRefused: where the state cannot be saved, or there is nothing to hand
// over, the daemon goes on.
func TestHandoverRefused(t *testing.T) {
	port, _ := backend(t)
	p := launch(t, confText(port), nil)
	p.out.await(t, 0, "Ready")
	if _, err := control.NewClient(p.socket).Handover(t.Context()); !errors.Is(err, control.ErrRefused) || !strings.Contains(err.Error(), "observes") {
		t.Errorf("while observing: %v", err)
	}
	if status := p.stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}

	withoutTable(t)
	dir := filepath.Join(t.TempDir(), "state")
	p = launch(t, confText(port), kept(dir))
	p.out.await(t, 0, "Ready")
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := control.NewClient(p.socket).Handover(t.Context()); !errors.Is(err, control.ErrRefused) || !strings.Contains(err.Error(), "state.json") {
		t.Errorf("without the folder: %v", err)
	}
	if s := p.status(); s.Generation != 1 {
		t.Errorf("it does not go on: %+v", s)
	}
	if status := p.stop(); status == 75 {
		t.Error("the handover was not taken back")
	}
}

// TestStateFolderOfAnother: two daemons do not share a file, and the second serves
// all the same.
func TestStateFolderOfAnother(t *testing.T) {
	withoutTable(t)
	port, _ := backend(t)
	dir := t.TempDir()
	other, err := state.Open(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	p := launch(t, confText(port), kept(dir))
	p.out.await(t, 0, "No state is kept.*another process.*--state-dir")
	p.out.await(t, 0, "Ready")
	if status := p.stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if _, err := os.Stat(filepath.Join(dir, "state.json")); err == nil {
		t.Error("it has written there")
	}
}

// TestObserverKeepsNoState: the file is the other daemon's.
func TestObserverKeepsNoState(t *testing.T) {
	port, _ := backend(t)
	dir := filepath.Join(t.TempDir(), "state")
	p := launch(t, confText(port), func(o *Options) { o.StateDir = dir })
	p.out.await(t, 0, "Ready")
	if status := p.stop(); status != 0 {
		t.Errorf("exit status %d", status)
	}
	if _, err := os.Stat(dir); err == nil {
		t.Error("the folder was made")
	}
}
