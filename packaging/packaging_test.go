// Package packaging holds no code, only tests of how sluice is packaged and installed.
// What a package does to a machine is tested by test/install.
package packaging

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestVersion: what dpkg and rpm get of git's description, in the order of releases.
func TestVersion(t *testing.T) {
	var made []string
	for _, tt := range []struct{ described, want string }{
		{"abcdef0", `0~\d+\.gabcdef0`},
		{"v0.1.0", `0\.1\.0`},
		{"1.3.0-rc.1", `1\.3\.0~rc\.1`},
		{"v1.3.0-rc.1-4-gabcdef0", `1\.3\.0~rc\.1\+4\.gabcdef0`},
		{"v1.3.0-rc.2", `1\.3\.0~rc\.2`},
		{"v1.3.0", `1\.3\.0`},
		{"v1.3.0-4-gabcdef0", `1\.3\.0\+4\.gabcdef0`},
		{"v1.3.0-4-gabcdef0-dirty", `1\.3\.0\+4\.gabcdef0\.dirty`},
		{"v1.3.1", `1\.3\.1`},
		{"v1.3.1-dirty", `1\.3\.1\+dirty`},
	} {
		out, err := exec.Command("./version.sh", tt.described).CombinedOutput()
		got := strings.TrimSpace(string(out))
		if err != nil || !regexp.MustCompile("^"+tt.want+"$").MatchString(got) {
			t.Errorf("%s: %q, %v; want %s", tt.described, got, err, tt.want)
		}
		made = append(made, got)
	}
	if _, err := exec.LookPath("dpkg"); err != nil {
		t.Skip("the order is not looked at: dpkg is not installed")
	}
	for i := 1; i < len(made); i++ {
		if err := exec.Command("dpkg", "--compare-versions", made[i-1], "lt", made[i]).Run(); err != nil {
			t.Errorf("%s is not before %s", made[i-1], made[i])
		}
	}
}

func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("scripts/*.sh")
	if err != nil || len(scripts) != 3 {
		t.Fatalf("scripts %v, %v", scripts, err)
	}
	scripts = append(scripts, "version.sh", "licenses.sh")
	for _, s := range scripts {
		if out, err := exec.Command("sh", "-n", s).CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", s, err, out)
		}
	}
	if path, err := exec.LookPath("shellcheck"); err == nil {
		if out, err := exec.Command(path, scripts...).CombinedOutput(); err != nil {
			t.Errorf("shellcheck: %v\n%s", err, out)
		}
	}
	// Whatever else the package managers say is nothing to act on.
	for _, args := range []string{"scripts/postinst.sh abort-upgrade 1.0.0", "scripts/prerm.sh upgrade 1.0.1", "scripts/prerm.sh failed-upgrade 1.0.0", "scripts/prerm.sh 1", "scripts/postrm.sh upgrade 1.0.1", "scripts/postrm.sh 1"} {
		words := strings.Fields(args)
		cmd := exec.Command("/bin/sh", words...)
		cmd.Env = []string{"PATH=" + t.TempDir()} // anything they would run fails
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v\n%s", args, err, out)
		}
	}
}

// make runs a target with the repository's Makefile.
func makes(t *testing.T, args ...string) {
	t.Helper()
	cmd := exec.Command("make", append([]string{"-s", "-C", ".."}, args...)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("make %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func heavy(t *testing.T) {
	t.Helper()
	if os.Getenv("SLUICE_PACKAGES") != "1" {
		t.Skip("builds the programs; run: make test-package")
	}
}

// TestInstallAndUninstall: what is put where, and that nothing stays.
func TestInstallAndUninstall(t *testing.T) {
	heavy(t)
	dir := t.TempDir()
	makes(t, "install", "PREFIX=/opt/x", "DESTDIR="+dir)
	got := files(t, dir)
	for _, want := range []string{
		"/opt/x/sbin/sluiced", "/opt/x/bin/sluice", "/opt/x/lib/systemd/system/sluiced.service",
		"/opt/x/share/man/man8/sluiced.8.gz", "/opt/x/share/man/man1/sluice.1.gz", "/opt/x/share/man/man5/sluice.conf.5.gz",
		"/opt/x/share/bash-completion/completions/sluice", "/opt/x/share/zsh/site-functions/_sluice", "/opt/x/share/fish/vendor_completions.d/sluice.fish",
		"/opt/x/share/doc/sluice/third-party-licenses", "/opt/x/share/doc/sluice/examples/minimal.conf",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("without %s: %v", want, got)
		}
	}
	unit, err := os.ReadFile(filepath.Join(dir, "/opt/x/lib/systemd/system/sluiced.service"))
	if err != nil || !bytes.Contains(unit, []byte("ExecStart=/opt/x/sbin/sluiced ")) || bytes.Contains(unit, []byte("/usr/local")) {
		t.Errorf("the unit, %v:\n%s", err, unit)
	}
	licences, err := os.ReadFile(filepath.Join(dir, "/opt/x/share/doc/sluice/third-party-licenses"))
	if err != nil || !bytes.Contains(licences, []byte("==== github.com/mdlayher/netlink ")) || !bytes.Contains(licences, []byte("==== Go's")) {
		t.Errorf("the licences, %v: %d bytes", err, len(licences))
	}
	makes(t, "uninstall", "PREFIX=/opt/x", "DESTDIR="+dir)
	if left := files(t, dir); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

func files(t *testing.T, dir string) (list []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			list = append(list, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestPackages: the same commit makes the same packages, of both kinds and also for
// another architecture, with what is to be in them.
func TestPackages(t *testing.T) {
	heavy(t)
	names := []string{"../bin/sluice_0.9.0_amd64.deb", "../bin/sluice-0.9.0-1.x86_64.rpm", "../bin/sluice_0.9.0_arm64.deb"}
	build := func() (made [][]byte) {
		makes(t, "deb", "rpm", "VERSION=v0.9.0", "ARCH=amd64")
		makes(t, "deb", "VERSION=v0.9.0", "ARCH=arm64")
		for _, n := range names {
			b, err := os.ReadFile(n)
			if err != nil {
				t.Fatal(err)
			}
			made = append(made, b)
		}
		return made
	}
	first, second := build(), build()
	for i, n := range names {
		if !bytes.Equal(first[i], second[i]) {
			t.Errorf("%s is another one each time", n)
		}
	}
	if out, err := exec.Command("dpkg-deb", "-f", names[2], "Version", "Architecture").Output(); err != nil || string(out) != "Version: 0.9.0\nArchitecture: arm64\n" {
		t.Errorf("arm64: %v\n%s", err, out)
	}
	listed, err := exec.Command("sh", "-c", "dpkg-deb --fsys-tarfile "+names[0]+" | tar -t | grep -v '/$' | sed 's/^[.]//' | sort").Output()
	if err != nil {
		t.Fatal(err)
	}
	deb := strings.Fields(string(listed))
	if rpm, err := exec.LookPath("rpm"); err == nil {
		out, err := exec.Command(rpm, "-qp", "--dbpath", t.TempDir(), "--qf", "[%{FILEMODES:perms} %{FILENAMES}\\n]", names[1]).Output()
		if err != nil {
			t.Fatal(err)
		}
		var list []string
		for line := range strings.Lines(string(out)) {
			if f := strings.Fields(line); strings.HasPrefix(f[0], "-") {
				list = append(list, strings.ReplaceAll(f[1], "site-functions", "vendor-completions"))
			}
		}
		slices.Sort(list)
		if diff := cmp.Diff(deb, list); diff != "" {
			t.Errorf("what the deb (-) and the rpm (+) have:\n%s", diff)
		}
	}
	if !slices.Contains(deb, "/usr/lib/systemd/system/sluiced.service") || !slices.Contains(deb, "/usr/share/doc/sluice/copyright") {
		t.Errorf("the deb has %v", deb)
	}
	for _, path := range deb {
		if strings.HasPrefix(path, "/etc/") {
			t.Errorf("a configuration is not for the package to ship: %s", path)
		}
	}
}
