package host

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func write(t *testing.T, path, content string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
}

func TestEnsureSysctl(t *testing.T) {
	root := t.TempDir()
	path := filepath.Join(root, "net/ipv4/vs/expire_nodest_conn")
	write(t, path, "0\n", 0o644)
	const name = "net.ipv4.vs.expire_nodest_conn"

	old, changed, err := ensureSysctl(root, name, "1")
	if old != "0" || !changed || err != nil {
		t.Errorf("first: %q, %v, %v; want 0, changed", old, changed, err)
	}
	if b, _ := os.ReadFile(path); string(b) != "1\n" {
		t.Errorf("the file holds %q, want 1", b)
	}
	// What is right already is not written: the modification time stays.
	past := time.Unix(1e9, 0)
	if err := os.Chtimes(path, past, past); err != nil {
		t.Fatal(err)
	}
	old, changed, err = ensureSysctl(root, name, "1")
	if old != "1" || changed || err != nil {
		t.Errorf("second: %q, %v, %v; want 1, unchanged", old, changed, err)
	}
	if fi, _ := os.Stat(path); !fi.ModTime().Equal(past) {
		t.Error("a setting that was right was written again")
	}
}

func TestEnsureSysctlErrors(t *testing.T) {
	root := t.TempDir()
	if _, _, err := ensureSysctl(root, "net.ipv4.vs.none", "1"); !errors.Is(err, fs.ErrNotExist) ||
		!strings.Contains(err.Error(), "read sysctl net.ipv4.vs.none") {
		t.Errorf("missing: %v", err)
	}
	if entries, _ := os.ReadDir(root); len(entries) != 0 {
		t.Errorf("created %v", entries)
	}
	for _, name := range []string{"", ".", "net..x", "net/../../etc/passwd", "../x"} {
		if _, _, err := ensureSysctl(root, name, "1"); err == nil || !strings.Contains(err.Error(), "is not a name") {
			t.Errorf("%q: %v, want a refusal", name, err)
		}
	}
	// The kernel refuses writes to this one with EACCES or EPERM, whoever asks.
	if _, err := os.Stat("/proc/sys/kernel/version"); err == nil {
		old, changed, err := EnsureSysctl("kernel.version", "1")
		if old == "" || changed || !errors.Is(err, fs.ErrPermission) || !strings.Contains(err.Error(), "set sysctl kernel.version from") {
			t.Errorf("read-only: %q, %v, %v", old, changed, err)
		}
	}
}

func TestSysctlsOfTheDesign(t *testing.T) {
	want := map[string]string{"net.ipv4.vs.expire_nodest_conn": "1", "net.ipv4.vs.expire_quiescent_template": "1"}
	got := map[string]string{}
	for _, s := range Sysctls(false) {
		got[s.Name] = s.Want
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("without conntrack (-want +got):\n%s", d)
	}
	want["net.ipv4.vs.conntrack"] = "1"
	for _, s := range Sysctls(true) {
		got[s.Name] = s.Want
		if s.Why == "" {
			t.Errorf("%s has no reason", s.Name)
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("with conntrack (-want +got):\n%s", d)
	}
}

func TestLoadIPVS(t *testing.T) {
	for _, tc := range []struct {
		name      string
		loaded    bool
		script    string // "" for no modprobe; $PROC is the file to create
		container bool
		timeout   time.Duration
		want      []string // parts of the error; nil for none
	}{
		{"there already", true, "exit 9", false, 0, nil},
		{"loads", false, `[ "$*" = "-b ip_vs" ] && : >"$0.proc"`, false, 0, nil},
		{"no modprobe", false, "", false, 0, []string{"load the ip_vs module", "modprobe is not installed", "run: modprobe ip_vs"}},
		{"no modprobe in a container", false, "", true, 0, []string{"modprobe is not installed", "container", "on the host"}},
		{"not found", false, "echo 'modprobe: FATAL: Module ip_vs not\nfound' >&2; exit 1", false, 0,
			[]string{"exit status 1: modprobe: FATAL: Module ip_vs not found; install"}},
		{"silent failure", false, "exit 3", false, 0, []string{"exit status 3; install"}},
		{"success that is none", false, "exit 0", false, 0, []string{"is not there (blacklisted?)"}},
		{"hangs", false, "exec sleep 100", false, 50 * time.Millisecond, []string{"did not end in 50ms"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			tool := filepath.Join(dir, "modprobe")
			l := loader{name: "ip_vs", proc: tool + ".proc", modprobe: []string{filepath.Join(dir, "none"), tool},
				marks: []string{filepath.Join(dir, "mark")}, timeout: time.Minute}
			if tc.timeout > 0 {
				l.timeout = tc.timeout
			}
			if tc.script != "" {
				write(t, tool, "#!/bin/sh\n"+tc.script+"\n", 0o755)
			}
			if tc.loaded {
				write(t, l.proc, "", 0o644)
			}
			if tc.container {
				write(t, l.marks[0], "", 0o644)
			}
			err := l.load(t.Context())
			if (err == nil) != (tc.want == nil) {
				t.Fatalf("error %v, want %q", err, tc.want)
			}
			for _, part := range tc.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("error %q lacks %q", err, part)
				}
			}
		})
	}
}

func TestLoadIPVSEndsWithItsContext(t *testing.T) {
	dir := t.TempDir()
	tool := filepath.Join(dir, "modprobe")
	write(t, tool, "#!/bin/sh\nexec sleep 100\n", 0o755)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := loader{name: "ip_vs", proc: filepath.Join(dir, "p"), modprobe: []string{tool}, timeout: time.Minute}.load(ctx)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want context.Canceled", err)
	}
}

func TestRaiseFileLimit(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Setrlimit(unix.RLIMIT_NOFILE, &before) })
	low := unix.Rlimit{Cur: before.Max - 1, Max: before.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &low); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		soft, err := RaiseFileLimit()
		if err != nil || soft != before.Max {
			t.Errorf("soft %d, %v; want %d", soft, err, before.Max)
		}
		var now unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &now); err != nil || now.Cur != before.Max {
			t.Errorf("the kernel has %d, want %d", now.Cur, before.Max)
		}
	}
}

func TestNamespacePath(t *testing.T) {
	dir := t.TempDir()
	if _, err := namespacePath(filepath.Join(dir, "none"), "lb"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "there are none") {
		t.Errorf("no directory: %v", err)
	}
	write(t, filepath.Join(dir, "blue"), "", 0o644)
	write(t, filepath.Join(dir, "green"), "", 0o644)
	if p, err := namespacePath(dir, "blue"); err != nil || p != filepath.Join(dir, "blue") {
		t.Errorf("blue: %q, %v", p, err)
	}
	_, err := namespacePath(dir, "lb")
	if err == nil || !strings.Contains(err.Error(), "there are: blue, green; create it with: ip netns add lb") {
		t.Errorf("missing: %v", err)
	}
	for _, name := range []string{"", ".", "..", "a/b", "/proc/1/ns/net"} {
		if _, err := namespacePath(dir, name); err == nil || !strings.Contains(err.Error(), "is not a name") {
			t.Errorf("%q: %v, want a refusal", name, err)
		}
	}
}

func TestMissingCapabilities(t *testing.T) {
	status := func(mask string) []byte {
		return []byte("Name:\tsluiced\nCapPrm:\t000001ffffffffff\nCapEff:\t" + mask + "\nCapBnd:\t000001ffffffffff\n")
	}
	names := func(list []Missing) (out []string) {
		for _, m := range list {
			if m.Feature == "" || m.String() != m.Name+": needed for "+m.Feature {
				t.Errorf("%q names no feature", m)
			}
			out = append(out, m.Name)
		}
		return out
	}
	for _, tc := range []struct {
		mask  string
		needs []Need
		want  []string
	}{
		{"000001ffffffffff", []Need{NeedNamespace, NeedScripts, NeedLowPort, NeedDevice, NeedPing}, nil},
		{"0000000000000000", nil, []string{"CAP_NET_ADMIN"}},
		{"0000000000000000", []Need{NeedPing}, []string{"CAP_NET_ADMIN", "CAP_NET_RAW"}},
		{"0000000000001000", []Need{NeedDevice}, []string{"CAP_NET_RAW"}}, // bit 12 is CAP_NET_ADMIN
		{"0000000000002000", nil, []string{"CAP_NET_ADMIN"}},              // bit 13 is CAP_NET_RAW
		{"0000000000003000", nil, nil},
		{"0000000000003000", []Need{NeedNamespace}, []string{"CAP_SYS_ADMIN"}},
		{"0000000000003000", []Need{NeedScripts, NeedLowPort}, []string{"CAP_SETUID", "CAP_SETGID", "CAP_NET_BIND_SERVICE"}},
	} {
		mask, ok := effectiveCapabilities(status(tc.mask))
		if !ok {
			t.Fatalf("mask %s was not read", tc.mask)
		}
		if d := cmp.Diff(tc.want, names(missing(mask, tc.needs))); d != "" {
			t.Errorf("mask %s, needs %v (-want +got):\n%s", tc.mask, tc.needs, d)
		}
	}
	for _, bad := range []string{"", "CapEff:\n", "CapEff:\tzz\n", "XCapEff:\t0\n"} {
		if _, ok := effectiveCapabilities([]byte(bad)); ok {
			t.Errorf("%q was taken for a mask", bad)
		}
	}
	if _, err := os.Stat("/proc/self/status"); err == nil && os.Geteuid() == 0 {
		for _, m := range MissingCapabilities() {
			t.Logf("this test lacks %s", m)
		}
	}
}
