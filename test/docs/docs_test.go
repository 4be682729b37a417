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

// TestKernelQuickstart runs the page as it stands. Its network is one of its own; what it
// makes below /run it takes away itself, at its end.
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
	ns := testkit.NewNS(t, "quickstart")
	ns.Sysctl(t, "net.ipv4.ip_forward", "0")
	p.play(t, newShell(t, ns, dir), strings.NewReplacer())
}

// TestKernelPages runs the other pages beside a daemon with the quickstart's pool.
func TestKernelPages(t *testing.T) {
	testkit.Kernel(t)
	built(t)
	eachPage(t, func(t *testing.T, p *page) {
		st := newStage(t)
		p.play(t, st.shell(t), strings.NewReplacer(st.dir, "/etc/keepalived"))
	})
}

// TestPages runs them on any machine, where the daemon can only observe: each command must
// be one that there is, used as it may be; what needs no kernel is compared.
func TestPages(t *testing.T) {
	testkit.NeedRoot(t)
	built(t)
	eachPage(t, func(t *testing.T, p *page) {
		p.try(t, newStage(t, "--observe").shell(t))
	})
}

// eachPage is for those with blocks that run, but the quickstart.
func eachPage(t *testing.T, test func(*testing.T, *page)) {
	t.Helper()
	for _, path := range pages(t) {
		p, err := readPage(path)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(path) != quickstart && p.runs() {
			t.Run(filepath.Base(path), func(t *testing.T) { test(t, p) })
		}
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
// configs/quickstart.conf, and a daemon that runs it; in the namespace web1 and web3, but
// not web2.
type stage struct {
	ns          *testkit.NS
	dir, socket string
}

func newStage(t *testing.T, args ...string) *stage {
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
	args = append(args, "-f", conf, "--socket", st.socket, "--state-dir", filepath.Join(st.dir, "state"))
	d := st.ns.Start(t, nil, sluiced, args...)
	d.WaitLine(t, patience, "Ready")
	st.ns.Run(t, filepath.Join(filepath.Dir(sluiced), "sluice"), "reload", "--wait", "--quiet", "--socket", st.socket)
	return st
}

func (st *stage) shell(t *testing.T) *shell {
	t.Helper()
	return newShell(t, st.ns, st.dir, "SLUICE_SOCKET="+st.socket)
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
