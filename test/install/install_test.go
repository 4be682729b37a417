// Package install tests what a package does to a machine: installed, upgraded under
// traffic, refused an upgrade, and removed, by dpkg on a Debian with systemd and a real
// ip_vs. It needs a guest of its own (go run ./test/vm -system); the packages are in
// bin, where make test-package puts them.
package install

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// patience bounds every wait; the guest may be twenty times slower than a machine.
const patience = time.Minute

// The two versions in bin.
const (
	before = "1.0.0"
	after  = "1.0.1"
)

const conf = "/etc/keepalived/keepalived.conf"

// box is the guest, with a pool of two behind it and clients in front.
type box struct {
	*testing.T // of the step
	*testkit.Topology
	life *testing.T // of them all
	long *testkit.Long
}

func newBox(t *testing.T) *box {
	t.Helper()
	if os.Getenv("SLUICE_PACKAGES") != "1" {
		t.Skip("installs packages; run: make test-package")
	}
	if os.Getenv("SLUICE_GUEST") != "1" {
		t.Fatal("not on this machine: run make test-package")
	}
	b := &box{T: t, life: t, Topology: testkit.NewNATOn(t, testkit.Home(t), 2)}
	for _, be := range b.Backends {
		testkit.NewEcho(t, be.NS, ":80")
	}
	return b
}

// run runs a command that must succeed.
func (b *box) run(name string, args ...string) string {
	b.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		b.Fatalf("%s %s: %v\n%s\n%s", name, strings.Join(args, " "), err, out, b.journal())
	}
	return strings.TrimSpace(string(out))
}

// says fails unless a text is in what a command printed.
func (b *box) says(out string, want ...string) {
	b.Helper()
	for _, w := range want {
		if !strings.Contains(out, w) {
			b.Errorf("without %q:\n%s", w, out)
		}
	}
}

func (b *box) journal() string {
	out, err := exec.Command("journalctl", "-u", "sluiced", "-n", "all", "--no-pager").CombinedOutput()
	return fmt.Sprintf("journal: %v\n%s", err, out)
}

// property is what systemd has of the unit.
func (b *box) property(name string) string {
	b.Helper()
	return b.run("systemctl", "show", "--value", "--property="+name, "sluiced")
}

func (b *box) state() string {
	out, _ := exec.Command("systemctl", "is-active", "sluiced").Output() // fails if it is not
	return strings.TrimSpace(string(out))
}

// dpkg installs a version and returns what was said.
func (b *box) dpkg(version string) string {
	b.Helper()
	begun := time.Now()
	out := b.run("dpkg", "-i", "bin/sluice_"+version+"_amd64.deb")
	b.Logf("dpkg -i %s took %v", version, time.Since(begun).Round(100*time.Millisecond))
	return out
}

func (b *box) write(path, text string, mode os.FileMode) {
	b.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		b.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		b.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		b.Fatal(err)
	}
}

// configure writes the configuration. The first server's check is a script that runs
// as nobody; notify_up runs as root and writes where the daemon may.
func (b *box) configure(onStop string, weight int) {
	b.Helper()
	b.write("/etc/keepalived/check", "#!/bin/sh\n[ \"$(id -un)\" = nobody ] && [ -r /etc/passwd ]\n", 0o755)
	b.write("/etc/keepalived/up", "#!/bin/sh\nid -un >/var/lib/sluice/up\n", 0o755)
	b.write(conf, fmt.Sprintf(`global_defs {
	script_user nobody
	enable_script_security
	#sluice on_stop %s
}
virtual_server %s 80 {
	delay_loop 1
	lvs_sched rr
	lvs_method NAT
	protocol TCP
	warmup 0
	real_server %s 80 {
		weight %d
		notify_up /etc/keepalived/up root
		MISC_CHECK {
			misc_path /etc/keepalived/check
			misc_timeout 20
		}
	}
	real_server %s 80 {
		weight 1
		TCP_CHECK {
			connect_timeout 10
		}
	}
	alpha
}
`, onStop, b.VIP, b.Backends[0].Addr, weight, b.Backends[1].Addr), 0o644)
}

func (b *box) table() string { return b.run("ipvsadm", "-Sn") }

// until waits for a table of so many lines that holds what is wanted.
func (b *box) until(lines int, want string) {
	b.Helper()
	testkit.Eventually(b.T, patience, func() string {
		got := b.table()
		if n := len(strings.Fields(strings.ReplaceAll(got, " ", "_"))); n == lines && strings.Contains(got, want) {
			return ""
		}
		return fmt.Sprintf("want %d lines with %q, the table is\n%s\n%s", lines, want, got, b.journal())
	})
}

// version is the one of the daemon that answers.
func (b *box) version() string {
	b.Helper()
	var s struct {
		Version string `json:"version"`
	}
	out, err := exec.Command("sluice", "status", "--json").Output() // status 1 is a pool's
	if err == nil {
		err = json.Unmarshal(out, &s)
	}
	if err != nil {
		b.Fatalf("sluice status: %v\n%s\n%s", err, out, b.journal())
	}
	return s.Version
}

func (b *box) kept() {
	b.Helper()
	b.long.Settle(b.T)
	if r := b.long.Report(); r.Lost() != 0 {
		b.Errorf("connections: %s", r)
	}
}

// peace fails if systemd ever saw the unit fail.
func (b *box) peace() {
	b.Helper()
	if j := b.journal(); strings.Contains(j, "Failed with result") || strings.Contains(j, "Failed to start") {
		b.Errorf("%s", j)
	}
	if got := b.state() + " " + b.property("Result"); got != "active success" {
		b.Errorf("the unit is %s", got)
	}
}

// TestInstalledUpgradedAndRemoved is one life of a package.
func TestInstalledUpgradedAndRemoved(t *testing.T) {
	b := newBox(t)
	for _, step := range []struct {
		name string
		do   func()
	}{
		{"Installed", b.installed},
		{"Started", b.started},
		{"UpgradedUnderTraffic", b.upgraded},
		{"Reloaded", b.reloaded},
		{"UpgradeRefused", b.refused},
		{"Watched", b.watched},
		{"AsRPM", b.asRPM},
		{"RemovedKeeping", b.removedKeeping},
		{"RemovedAndPurged", b.purged},
	} {
		begun := time.Now()
		ok := t.Run(step.name, func(t *testing.T) {
			b.T = t
			defer func() { b.T = b.life }()
			step.do()
			t.Logf("after %v", time.Since(begun).Round(100*time.Millisecond))
		})
		if !ok {
			return // what follows stands on it
		}
	}
}

// installed: nothing starts by surprise beside the keepalived that runs, which goes on,
// and the operator is told what to do.
func (b *box) installed() {
	b.configure("remove", 1)
	b.write("/etc/systemd/system/keepalived.service", "[Service]\nExecStart=/bin/sleep infinity\n", 0o644)
	b.run("systemctl", "start", "keepalived")
	b.says(b.dpkg(before), "neither enabled nor started", "sluice check", "migrating-from-keepalived.md")
	if out, err := exec.Command("systemctl", "is-active", "keepalived").Output(); err != nil {
		b.Errorf("keepalived is %s", out)
	}
	if got := b.state(); got != "inactive" {
		b.Errorf("the unit is %s", got)
	}
	if out, err := exec.Command("systemctl", "is-enabled", "sluiced").Output(); err == nil {
		b.Errorf("the unit is %s", out)
	}
	b.says(b.run("sluiced", "--version"), before)
	b.says(b.run("sluice", "check", "--strict", conf))
	for _, verb := range []string{"verify", "security"} {
		args := []string{verb, "sluiced.service"}
		if verb == "security" {
			args = append(args, "--no-pager", "--threshold=40")
		}
		b.run("systemd-analyze", args...)
	}
}

// started: the unit is up when systemctl says so, and its sandbox leaves the daemon
// and its scripts what they need.
func (b *box) started() {
	// The real WatchdogSec is too long to wait for.
	b.write("/etc/systemd/system/sluiced.service.d/test.conf", "[Service]\nWatchdogSec=8\nTimeoutAbortSec=1\n", 0o644)
	b.run("systemctl", "daemon-reload")
	b.run("systemctl", "enable", "--now", "sluiced")
	if out, err := exec.Command("systemctl", "is-active", "keepalived").Output(); err == nil {
		b.Errorf("keepalived is %s beside it", out)
	}
	if got := b.state(); got != "active" {
		b.Fatalf("the unit is %s\n%s", got, b.journal())
	}
	b.until(3, b.Backends[0].Addr.String())
	b.run("systemctl", "status", "sluiced")
	if got := b.version(); got != before {
		b.Errorf("version %s answers", got)
	}
	testkit.Eventually(b.T, patience, func() string {
		for _, path := range []string{"/var/lib/sluice/state.json", "/var/lib/sluice/up"} {
			if _, err := os.Stat(path); err != nil {
				return err.Error() + "\n" + b.journal()
			}
		}
		return ""
	})
	b.fields()
	if up, err := os.ReadFile("/var/lib/sluice/up"); err != nil || string(up) != "root\n" {
		b.Errorf("notify_up ran as %q, %v", up, err)
	}
	b.peace()
}

// fields: the journal has what happened by kind and by whom it is about, in the words
// that people grep for.
func (b *box) fields() {
	b.Helper()
	testkit.Eventually(b.T, patience, func() string {
		out, err := exec.Command("journalctl", "-u", "sluiced", "-o", "json", "--no-pager", "SLUICE_EVENT=check_passed").Output()
		if err != nil {
			return err.Error()
		}
		for line := range strings.Lines(string(out)) {
			var entry map[string]any
			if err := json.Unmarshal([]byte(line), &entry); err != nil {
				return err.Error()
			}
			of := func(key string) string { s, _ := entry[key].(string); return s }
			if strings.HasPrefix(of("MESSAGE"), "Check passed") && of("PRIORITY") == "6" && of("SYSLOG_IDENTIFIER") == "sluiced" &&
				strings.Contains(of("SLUICE_VIRTUAL_SERVER"), b.VIP.String()) && strings.Contains(of("SLUICE_REAL_SERVER"), b.Backends[0].Addr.String()) {
				return ""
			}
		}
		return "no check_passed with its fields among\n" + string(out)
	})
}

// upgraded: the new version answers, and neither the clients nor the table noticed.
func (b *box) upgraded() {
	b.long = testkit.OpenLong(b.life, b.Client, b.VIP.String()+":80", 4)
	b.kept()
	table, pid := b.table(), b.property("MainPID")
	b.says(b.dpkg(after), "sluiced "+before+" (process "+pid+")", "sluiced "+after+" answers", " 0 changes to the table")
	if got := b.version(); got != after {
		b.Errorf("version %s answers", got)
	}
	if now := b.property("MainPID"); now == pid || now == "0" {
		b.Errorf("the process is %s, and was %s", now, pid)
	}
	if now := b.table(); now != table {
		b.Errorf("the table was\n%s\nand is\n%s", table, now)
	}
	b.kept()
	b.peace()
}

// reloaded: systemctl reload brings in a changed file.
func (b *box) reloaded() {
	b.configure("keep", 7)
	b.run("systemctl", "reload", "sluiced")
	b.until(3, "-w 7")
	b.kept()
	b.peace()
}

// refused: a version that does not take the file is not brought in; the one that
// runs goes on. Once mended, the operator hands over.
func (b *box) refused() {
	pid := b.property("MainPID")
	good, err := os.ReadFile(conf)
	if err != nil {
		b.Fatal(err)
	}
	b.write(conf, string(good)+"virtual_server 192.0.2.11 80 {\n", 0o644)
	b.says(b.dpkg(before), "the running version goes on", "sluice check")
	if now := b.property("MainPID"); now != pid || b.version() != after {
		b.Errorf("process %s and version %s, was process %s and version %s", now, b.version(), pid, after)
	}
	b.kept()
	b.write(conf, string(good), 0o644)
	b.says(b.run("sluice", "handover"), "sluiced "+before+" answers")
	b.kept()
	b.peace()
}

// watched: a daemon that hangs is killed and started again, and the table stays.
func (b *box) watched() {
	table, pid := b.table(), b.property("MainPID")
	if n, err := strconv.Atoi(pid); err != nil || syscall.Kill(n, syscall.SIGSTOP) != nil {
		b.Fatalf("cannot stop process %s", pid)
	}
	testkit.Eventually(b.T, patience, func() string {
		if now := b.property("MainPID"); now == pid || now == "0" || b.state() != "active" {
			return fmt.Sprintf("process %s, %s", now, b.state())
		}
		return ""
	})
	if !strings.Contains(b.journal(), "Watchdog timeout") {
		b.Error("the journal tells of no watchdog")
	}
	if now := b.table(); now != table {
		b.Errorf("the table was\n%s\nand is\n%s", table, now)
	}
	b.kept()
}

// asRPM runs the scripts as rpm does: an upgrade hands over, the removal of the older
// of two versions stops nothing, that of the last one stops.
func (b *box) asRPM() {
	b.says(b.run("packaging/scripts/postinst.sh", "2"), "sluiced "+before+" answers")
	b.run("packaging/scripts/prerm.sh", "1")
	b.run("packaging/scripts/postrm.sh", "1")
	if got := b.state(); got != "active" {
		b.Errorf("the unit is %s", got)
	}
	b.kept()
	b.run("packaging/scripts/prerm.sh", "0")
	if got := b.state(); got != "inactive" {
		b.Errorf("the unit is %s", got)
	}
	if out, err := exec.Command("systemctl", "is-enabled", "sluiced").Output(); err == nil {
		b.Errorf("the unit is %s", out)
	}
	b.says(b.run("packaging/scripts/postinst.sh", "1"), "neither enabled nor started")
	b.run("systemctl", "enable", "--now", "sluiced")
	b.kept()
}

// removedKeeping: on_stop keep holds for the removal too. Installed again the daemon
// takes over what it finds, when the operator starts it.
func (b *box) removedKeeping() {
	table := b.table()
	b.run("dpkg", "-r", "sluice")
	if got := b.state(); got == "active" {
		b.Errorf("the unit is %s", got)
	}
	if now := b.table(); now != table {
		b.Errorf("the table was\n%s\nand is\n%s", table, now)
	}
	b.kept()
	b.dpkg(after)
	if got := b.state(); got != "inactive" {
		b.Errorf("the unit is %s", got)
	}
	b.run("systemctl", "start", "sluiced")
	b.until(3, "-w 7")
	b.kept()
	b.long.Abort()
}

// purged: nothing is left, neither in the table nor on the disk.
func (b *box) purged() {
	b.configure("remove", 1)
	b.run("systemctl", "reload", "sluiced")
	b.until(3, "-w 1")
	b.run("dpkg", "-r", "sluice")
	if got := b.table(); got != "" {
		b.Errorf("the table is\n%s", got)
	}
	if _, err := os.Stat("/var/lib/sluice/state.json"); err != nil {
		b.Errorf("the state must stay until the purge: %v", err)
	}
	b.run("dpkg", "-P", "sluice")
	left := strings.Fields(b.run("find", "/etc", "/usr/bin", "/usr/sbin", "/usr/lib/systemd", "/usr/share", "/var", "/run", "-xdev", "-name", "*sluice*"))
	left = slices.DeleteFunc(left, func(path string) bool {
		return path == "/etc/systemd/system/sluiced.service.d" // the operator's, and so this test's
	})
	if len(left) > 0 {
		b.Errorf("left behind: %v", left)
	}
	b.run("systemctl", "daemon-reload")
	if out := b.run("systemctl", "list-units", "--all", "--no-legend", "sluiced*"); strings.Contains(out, "failed") {
		b.Errorf("left behind: %s", out)
	}
}
