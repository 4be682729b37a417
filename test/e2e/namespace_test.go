package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// name gives a namespace a name below /run/netns for as long as the test runs.
func name(t *testing.T, ns *testkit.NS) string {
	t.Helper()
	path := filepath.Join("/run/netns", fmt.Sprintf("sluice-%s-%d", ns.Name, os.Getpid()))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.Remove(path) })
	if err := unix.Mount(ns.Path(), path, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Unmount(path, unix.MNT_DETACH) })
	return filepath.Base(path)
}

// TestKernelU10NetNamespace: started anywhere, the daemon checks and writes in
// net_namespace, through reloads, and removes its services there.
func TestKernelU10NetNamespace(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	outside := testkit.NewNS(t, "outside")
	b.write("net_namespace " + name(t, b.Director) + "\n" + globals + pool("alpha", 1, 2))
	b.daemon = outside.Start(t, nil, program(t, "sluiced"), "-f", b.conf, "--socket", b.socket)
	b.daemon.WaitLine(t, patience, "Ready")
	// alpha: in by a good check alone, so that the checks are there too.
	b.until("1:1 2:1")
	b.echo[0].Refuse()
	b.until("2:1")
	b.daemon.Signal(t, unix.SIGHUP)
	b.daemon.WaitLine(t, patience, "Reloaded")
	b.echo[0].Start(t)
	b.until("1:1 2:1")
	if n := len(testkit.ReadProc(t, outside)); n != 0 {
		t.Errorf("%d services where it was started", n)
	}
	b.daemon.Signal(t, unix.SIGTERM)
	if status := b.daemon.Wait(t, patience); status != 0 {
		t.Errorf("exit status %d", status)
	}
	b.until("-")
}

// TestKernelU10NetNamespaceIPVS: the checks go from where the daemon is, the table
// is another namespace's, and a reload may not change which.
func TestKernelU10NetNamespaceIPVS(t *testing.T) {
	b := newBed(t, testkit.NewNAT, 2)
	elsewhere := testkit.NewNS(t, "elsewhere")
	first := "net_namespace_ipvs " + name(t, elsewhere) + "\n" + globals + pool("alpha", 1, 2)
	b.write(first)
	b.start()
	here, there := b.Director, elsewhere
	b.Director = there // where table looks
	b.until("1:1 2:1")
	b.echo[0].Refuse()
	b.until("2:1")
	if n := len(testkit.ReadProc(t, here)); n != 0 {
		t.Errorf("%d services where the checks are", n)
	}
	b.write(globals + pool("alpha", 1, 2))
	b.daemon.Signal(t, unix.SIGHUP)
	b.daemon.WaitLine(t, patience, "Reload refused.*net_namespace_ipvs changed, which needs a restart")
	b.until("2:1")
	b.write("net_namespace_ipvs no-such-namespace\n" + globals + pool("", 1))
	b.daemon.Signal(t, unix.SIGTERM)
	if status := b.daemon.Wait(t, patience); status != 0 {
		t.Errorf("exit status %d", status)
	}
	b.until("-")
	b.Director = here
	b.start()
	if out := strings.Join(b.daemon.Lines(), "\n"); !strings.Contains(out, "no-such-namespace") {
		t.Errorf("a missing namespace is not named:\n%s", out)
	}
}
