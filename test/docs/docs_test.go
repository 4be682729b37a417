package docs

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/testkit"
)

const quickstart = "quickstart.md"

// mostNotRun bounds the blocks that nobody runs. Think twice before it grows.
const mostNotRun = 14

func TestFewBlocksAreNotRun(t *testing.T) {
	t.Parallel()
	n := 0
	for _, path := range pages(t) {
		p, err := readPage(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range p.blocks {
			if b.notRun != "" {
				n++
				t.Logf("%s:%d: not run: %s", path, b.line, b.notRun)
			}
		}
	}
	if n > mostNotRun {
		t.Errorf("%d console blocks are not run, at most %d may be", n, mostNotRun)
	}
}

// TestKernelQuickstart runs the page as it stands, in the machine's own network: it is
// for a guest that ends with the test.
func TestKernelQuickstart(t *testing.T) {
	testkit.Kernel(t)
	built(t)
	p, err := readPage(filepath.Join(root, "docs", quickstart))
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	home := testkit.Home(t)
	home.Run(t, "ip", "link", "set", "lo", "up")
	p.play(t, newShell(t, home, dir), strings.NewReplacer())
}

// TestPages runs the other pages against a daemon that observes the quickstart's pool.
func TestPages(t *testing.T) {
	testkit.NeedRoot(t)
	built(t)
	for _, path := range pages(t) {
		p, err := readPage(path)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(path) == quickstart || !p.runs() {
			continue
		}
		t.Run(filepath.Base(path), func(t *testing.T) {
			st := newStage(t)
			p.play(t, newShell(t, st.ns, st.dir, "SLUICE_SOCKET="+st.socket), strings.NewReplacer(st.dir, "/etc/keepalived"))
		})
	}
}

func (p *page) runs() bool {
	for _, b := range p.blocks {
		if b.notRun == "" {
			return true
		}
	}
	return false
}

// stage is what the commands of a page meet: in the directory keepalived.conf, which is
// configs/quickstart.conf, and a daemon that observes it; in the namespace web1 and web3,
// but not web2.
type stage struct {
	ns          *testkit.NS
	dir, socket string
}

func newStage(t *testing.T) *stage {
	t.Helper()
	st := &stage{ns: testkit.NewNS(t, "page"), dir: t.TempDir()}
	st.socket = filepath.Join(st.dir, "sluiced.sock")
	st.ns.IP(t, "address add 192.0.2.10/32 dev lo", "address add 10.0.0.11/32 dev lo", "address add 10.0.0.12/32 dev lo", "address add 10.0.0.13/32 dev lo")
	testkit.NewHTTP(t, st.ns, "10.0.0.11:80")
	testkit.NewHTTP(t, st.ns, "10.0.0.13:80")
	text, err := os.ReadFile(filepath.Join(root, "configs/quickstart.conf"))
	if err != nil {
		t.Fatal(err)
	}
	conf := filepath.Join(st.dir, "keepalived.conf")
	if err := os.WriteFile(conf, text, 0o644); err != nil {
		t.Fatal(err)
	}
	sluiced, err := filepath.Abs(filepath.Join(root, "bin/sluiced"))
	if err != nil {
		t.Fatal(err)
	}
	d := st.ns.Start(t, nil, sluiced, "--observe", "-f", conf, "--socket", st.socket, "--state-dir", filepath.Join(st.dir, "state"))
	d.WaitLine(t, patience, "Ready")
	d.WaitLine(t, patience, "Removing service [10.0.0.12]:tcp:80")
	return st
}

// built skips what needs the programs where they are not there; make builds them first.
func built(t *testing.T) {
	t.Helper()
	for _, name := range []string{"sluice", "sluiced"} {
		if _, err := os.Stat(filepath.Join(root, "bin", name)); err != nil {
			t.Skipf("bin/%s is not there; run: make build", name)
		}
	}
}
