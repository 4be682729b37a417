package machine

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestMissingListsEachPackageOnce(t *testing.T) {
	t.Parallel()
	tools := []Tool{{"b", "pkg-b"}, {"a", "pkg-a"}, {"a2", "pkg-a"}, {"there", "pkg-there"}}
	got := missing(tools, func(p string) bool { return p == "there" })
	if diff := cmp.Diff([]string{"pkg-a", "pkg-b"}, got); diff != "" {
		t.Errorf("missing (-want +got):\n%s", diff)
	}
	if got := missing(tools, func(string) bool { return true }); got != nil {
		t.Errorf("missing with everything there = %v, want none", got)
	}
}

func TestParseDepends(t *testing.T) {
	t.Parallel()
	const debian = "linux-image-amd64\n  Depends: linux-image-6.1.0-57-amd64\n  Recommends: linux-image-9-other\n"
	const ubuntu = "linux-image-6.8.0-40-generic\n PreDepends: linux-base\n  Depends: kmod\n |Depends: linux-modules-6.8.0-40-generic\n  Suggests: fdutils\n"
	if diff := cmp.Diff([]string{"linux-image-6.1.0-57-amd64"}, parseDepends(debian, imagePackage)); diff != "" {
		t.Errorf("debian (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"linux-modules-6.8.0-40-generic"}, parseDepends(ubuntu, modulePackage)); diff != "" {
		t.Errorf("ubuntu (-want +got):\n%s", diff)
	}
}

// The archive is read back by an independent implementation of the format.
func TestCpioIsReadByCpio(t *testing.T) {
	t.Parallel()
	cpio, err := exec.LookPath("cpio")
	if err != nil {
		t.Skip("cpio is not installed: apt-get install cpio")
	}
	files := map[string]string{"d/empty": "", "d/one": "1", "d/four": "1234", "d/name-of-another-length": strings.Repeat("x", 4099)}
	var archive bytes.Buffer
	w := &cpioWriter{w: &archive}
	w.dir("d")
	for name, data := range files {
		w.file(name, 0o640, []byte(data))
	}
	if err := w.close(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cmd := exec.Command(cpio, "-i", "--quiet")
	cmd.Dir, cmd.Stdin = dir, &archive
	if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("cpio: %v: %s", err, out)
	}
	got := map[string]string{}
	for name := range files {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got[name] = string(data)
	}
	if diff := cmp.Diff(files, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestCpioKeepsTheFirstError(t *testing.T) {
	t.Parallel()
	w := &cpioWriter{w: &bytes.Buffer{}}
	w.copy("x", filepath.Join(t.TempDir(), "absent"))
	w.file("y", 0o644, []byte("y"))
	if err := w.close(); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("close = %v, want the error of the file that is not there", err)
	}
}

func TestGuestScriptHandsWordsOverUnchanged(t *testing.T) {
	t.Parallel()
	words := []string{"a b", "it's", "$HOME", `back\slash`, "", "*", "line\nbreak", "ä"}
	c := Config{
		Dir:     t.TempDir(),
		Env:     []string{"ODD=one 'two' $three"},
		Command: append([]string{"/bin/sh", "-c", `pwd; printf '%s|' "$ODD" "$@"; printf '%s' "$TMPDIR"`, "sh"}, words...),
	}
	out, err := exec.Command("/bin/sh", "-c", guestScript(c, kernel{root: "/k"})).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := c.Dir + "\none 'two' $three|" + strings.Join(words, "|") + "|/run/tmp"
	if diff := cmp.Diff(want, string(out)); diff != "" {
		t.Errorf("output (-want +got):\n%s", diff)
	}
}

func TestKVMOnlyWhenAsked(t *testing.T) {
	t.Parallel()
	without := strings.Join(qemuArgs(Config{}, kernel{}, "/w", false), " ")
	with := strings.Join(qemuArgs(Config{}, kernel{}, "/w", true), " ")
	if strings.Contains(without, "kvm") || !strings.Contains(without, "-accel tcg,thread=multi -cpu max") {
		t.Errorf("arguments without KVM: %s", without)
	}
	if !strings.Contains(with, "-accel kvm") || strings.Contains(with, "tcg") {
		t.Errorf("arguments with KVM: %s", with)
	}
}

func TestReadStatus(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "status")
	if _, ok := readStatus(path); ok {
		t.Error("a status from a file that is not there")
	}
	for content, want := range map[string]int{"0\n": 0, "143\n": 143, "": -1, "x\n": -1} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if got, ok := readStatus(path); ok != (want >= 0) || ok && got != want {
			t.Errorf("readStatus of %q = %d, %t", content, got, ok)
		}
	}
}

// A kernel that is none must end in an error that says so, not in a hang or a
// status.
func TestBootFailureIsAnError(t *testing.T) {
	t.Parallel()
	for _, tool := range []string{"qemu-system-x86_64", "busybox", "depmod"} {
		if _, ok := lookPath(tool); !ok {
			t.Skipf("%s is not installed: make test-kernel installs it", tool)
		}
	}
	root, work := t.TempDir(), t.TempDir()
	k := kernel{root: root, version: "1.2.3"}
	modules := filepath.Join(root, "lib", "modules", k.version)
	for _, dir := range []string{filepath.Join(root, "boot"), modules} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var builtin strings.Builder
	for _, m := range rootModules {
		builtin.WriteString("kernel/" + m + ".ko\n")
	}
	for path, content := range map[string]string{
		k.image(): "not a kernel",
		filepath.Join(modules, "modules.builtin"): builtin.String(),
		filepath.Join(modules, "modules.order"):   "",
	} {
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	depmod, _ := lookPath("depmod")
	if err := run(exec.Command(depmod, "-b", root, k.version)); err != nil {
		t.Fatal(err)
	}
	c := Config{Command: []string{"true"}, Output: &bytes.Buffer{}, Limit: time.Minute}
	if err := c.defaults(); err != nil {
		t.Fatal(err)
	}
	status, err := boot(t.Context(), c, k, "", work)
	if err == nil {
		t.Fatalf("boot = status %d without error", status)
	}
	if !strings.Contains(err.Error(), "boot 1.2.3: qemu: ") {
		t.Errorf("error does not name what failed: %v", err)
	}
}

func TestRunHostReturnsStatus(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a network namespace needs root")
	}
	for script, want := range map[string]int{"exit 0": 0, "exit 7": 7, "kill -9 $$": 137} {
		got, err := RunHost(t.Context(), Config{Command: []string{"/bin/sh", "-c", script}, Output: &bytes.Buffer{}})
		if err != nil || got != want {
			t.Errorf("%s: status %d, %v; want %d", script, got, err, want)
		}
	}
	_, err := RunHost(t.Context(), Config{Command: []string{"sleep", "60"}, Limit: 50 * time.Millisecond, Output: &bytes.Buffer{}})
	if !errors.Is(err, ErrTimeout) {
		t.Errorf("over the limit: %v, want ErrTimeout", err)
	}
}

func TestChooseRefusesAnUnknownPlace(t *testing.T) {
	t.Parallel()
	if _, _, err := Choose(t.Context(), "cloud"); err == nil || !strings.Contains(err.Error(), "cloud") {
		t.Errorf("Choose = %v, want an error that names the place", err)
	}
}

// What a sealed guest gets is read back by an independent implementation of the format,
// the one that reads it there.
func TestTreeIsReadByBusybox(t *testing.T) {
	t.Parallel()
	busybox, ok := lookPath("busybox")
	if !ok {
		t.Skip("busybox is not installed: make test-kernel installs it")
	}
	system, seen, k := t.TempDir(), t.TempDir(), kernel{root: t.TempDir(), version: "1.2.3"}
	long := strings.Repeat("long/", 40) + strings.Repeat("x", 120)
	modules := filepath.Join(k.root, "lib", "modules", k.version)
	for path, content := range map[string]string{
		filepath.Join(system, "usr/bin/tool"):                     "a tool",
		filepath.Join(system, "usr/share/doc/x/copyright"):        "left out",
		filepath.Join(system, "usr/share/misc/doc"):               "kept",
		filepath.Join(system, long):                               "a long name",
		filepath.Join(seen, "a"):                                  "a",
		filepath.Join(seen, "b/empty"):                            "",
		filepath.Join(modules, "modules.dep"):                     "index",
		filepath.Join(modules, "kernel/net/netfilter/ipvs/ip.ko"): "ipvs",
		filepath.Join(modules, "kernel/drivers/net/dummy.ko"):     "dummy",
		filepath.Join(modules, "kernel/drivers/net/wifi/w.ko"):    "left out",
		filepath.Join(modules, "kernel/drivers/gpu/g.ko"):         "left out",
		filepath.Join(modules, "kernel/sound/s.ko"):               "left out",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o640)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("usr/bin", filepath.Join(system, "bin")), os.Symlink("a", filepath.Join(seen, "link"))); err != nil {
		t.Fatal(err)
	}
	tree, root := filepath.Join(t.TempDir(), "tree"), t.TempDir()
	if err := packTree(tree, Config{Files: []string{seen}}, k, system, "echo hi\n"); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(busybox, "tar", "xf", tree, "-C", root).CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("busybox tar: %v: %s", err, out)
	}
	got := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name := strings.TrimPrefix(path, root+"/")
		if d.Type()&os.ModeSymlink != 0 {
			got[name], err = os.Readlink(path)
			return err
		}
		data, err := os.ReadFile(path)
		got[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	below := strings.TrimPrefix(seen, "/")
	want := map[string]string{
		"bin": "usr/bin", "usr/bin/tool": "a tool", "usr/share/misc/doc": "kept", long: "a long name", "guest": "echo hi\n",
		below + "/a": "a", below + "/b/empty": "", below + "/link": "a",
		"usr/lib/modules/1.2.3/modules.dep":                     "index",
		"usr/lib/modules/1.2.3/kernel/net/netfilter/ipvs/ip.ko": "ipvs",
		"usr/lib/modules/1.2.3/kernel/drivers/net/dummy.ko":     "dummy",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	info, err := os.Stat(filepath.Join(root, below, "a"))
	if err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the mode of a: %v, %v", info.Mode(), err)
	}
	if err := packTree(tree, Config{Files: []string{filepath.Join(seen, "absent")}}, k, system, ""); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("with a file that is not there: %v", err)
	}
}

func TestSealedGuestCountsInstructions(t *testing.T) {
	t.Parallel()
	c := Config{Sealed: true, CPUs: 4}
	if err := c.defaults(); err != nil {
		t.Fatal(err)
	}
	got := strings.Join(qemuArgs(c, kernel{}, "/w", true), " ")
	for _, want := range []string{"-icount shift=0,sleep=off", "-rtc clock=vm", "-smp 1 "} {
		if !strings.Contains(got, want) {
			t.Errorf("arguments without %q: %s", want, got)
		}
	}
	// What answers in the host's time would move the guest's.
	for _, no := range []string{"kvm", "virtio-rng"} {
		if strings.Contains(got, no) {
			t.Errorf("arguments with %q: %s", no, got)
		}
	}
	c.System = true
	if err := c.defaults(); err == nil {
		t.Error("a guest that is sealed and has a system")
	}
}
