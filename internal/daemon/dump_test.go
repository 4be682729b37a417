package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/control"
)

func TestStatePath(t *testing.T) {
	for _, c := range []struct {
		base, netns, instance string
		use                   bool
		want                  string
	}{
		{"", "ns", "blue", true, ""},
		{"/tmp/keepalived.data", "", "", false, "/tmp/keepalived_check.data"},
		{"/tmp/keepalived", "", "", false, "/tmp/keepalived_check"},
		{"/run/lb.d/state", "", "", false, "/run/lb.d/state_check"},
		{"/run/a.b.c", "", "", false, "/run/a.b_check.c"},
		{"state.txt", "", "", false, "state_check.txt"},
		{"/x.data", "ns", "blue", false, "/x_check.data"},
		{"/x.data", "ns", "blue", true, "/x_check_ns_blue.data"},
		{"/x.data", "", "blue", true, "/x_check_blue.data"},
		{"/x.data", "ns", "", true, "/x_check_ns.data"},
		{"/x.data", "", "", true, "/x_check.data"},
	} {
		g := &config.Global{NetNamespace: c.netns, Instance: c.instance, Paths: config.Paths{StateDump: c.base, InstanceInNames: c.use}}
		if got := statePath(g); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

// names lists a folder.
func names(t *testing.T, dir string) string {
	t.Helper()
	list, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var s []string
	for _, e := range list {
		s = append(s, e.Name())
	}
	return strings.Join(s, " ")
}

func saying(text string) func(io.Writer) error {
	return func(w io.Writer) error { _, err := io.WriteString(w, text); return err }
}

// TestReplace: a file of the owner's alone, whatever was in its place, and nothing
// is left of one that failed.
func TestReplace(t *testing.T) {
	for _, mask := range []int{0, 0o777} {
		t.Run(fmt.Sprintf("umask %#o", mask), func(t *testing.T) {
			dir := t.TempDir()
			path, other := filepath.Join(dir, "f"), filepath.Join(dir, "other")
			if err := os.WriteFile(other, []byte("theirs"), 0o644); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func(old int) func() { return func() { unix.Umask(old) } }(unix.Umask(mask)))
			for name, before := range map[string]func() error{
				"nothing":      func() error { return nil },
				"a file":       func() error { return os.WriteFile(path, []byte("a longer text than the new one"), 0o666) },
				"a link":       func() error { return os.Symlink(other, path) },
				"a loose link": func() error { return os.Symlink(dir+"/none", path) },
				"a hard link":  func() error { return os.Link(other, path) },
				"a FIFO":       func() error { return unix.Mkfifo(path, 0o666) },
			} {
				os.Remove(path)
				if err := before(); err != nil {
					t.Fatal(err)
				}
				if err := replace(path, saying("new")); err != nil {
					t.Errorf("%s: %v", name, err)
				}
				if fi, err := os.Lstat(path); err != nil || fi.Mode() != 0o600 || read(t, path) != "new" || read(t, other) != "theirs" {
					t.Errorf("%s: %v, %v, %q, %q", name, fi.Mode(), err, read(t, path), read(t, other))
				}
			}
			broken := errors.New("broken")
			if err := replace(path, func(w io.Writer) error { _ = saying("half")(w); return broken }); !errors.Is(err, broken) || read(t, path) != "new" {
				t.Errorf("%v, %q", err, read(t, path))
			}
			if got := names(t, dir); got != "f other" {
				t.Error("left over:", got)
			}
		})
	}
	dir := t.TempDir()
	if err := os.MkdirAll(dir+"/d/full", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := replace(dir+"/d", saying("new")); err == nil || names(t, dir) != "d" {
		t.Errorf("a folder in its place: %v, %s", err, names(t, dir))
	}
	if err := replace(dir+"/none/f", saying("new")); err == nil {
		t.Error("no folder")
	}
}

func TestStateIsAskedForOnlyWhereItGoes(t *testing.T) {
	d := newDumps(slog.New(slog.DiscardHandler))
	d.configure(&config.Config{})
	if d.state(); len(d.asked) > 0 {
		t.Error("no file is named")
	}
	d.configure(&config.Config{Global: config.Global{Paths: config.Paths{StateDump: "/x"}}})
	d.state()
	d.state() // must not block
	if len(d.asked) != 1 {
		t.Error("a file is named")
	}
}

// TestStateDump: SIGUSR1 writes what "sluice status --wide" shows.
func TestStateDump(t *testing.T) {
	port, _ := backend(t)
	dir := t.TempDir()
	const global = "instance blue\nglobal_defs {\ndata_use_instance\nstate_dump_file %s\n}\n"
	p := launch(t, fmt.Sprintf(global, dir+"/lb.data")+confText(port), nil)
	p.out.await(t, 0, "Check passed")
	p.shows("up")
	file := filepath.Join(dir, "lb_check_blue.data")
	if err := os.Symlink(filepath.Join(dir, "elsewhere"), file); err != nil {
		t.Fatal(err)
	}
	ask := func(pattern string) {
		t.Helper()
		mark := p.mark()
		if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
			t.Fatal(err)
		}
		p.out.await(t, mark, pattern)
	}
	ask("State written.*lb_check_blue.data")
	text := read(t, file)
	for _, want := range []string{"[192.0.2.10]:tcp:80", fmt.Sprintf("127.0.0.1:%d", port), "TCP_CHECK", "observe mode", p.file} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "\x1b[") {
		t.Error("colours in a file")
	}
	if fi, err := os.Lstat(file); err != nil || fi.Mode() != 0o600 {
		t.Error(fi, err)
	}
	if got := names(t, dir); got != "lb_check_blue.data" {
		t.Error(got)
	}
	// A reload moves it; what cannot be written is a warning, and the log has it all.
	p.write(fmt.Sprintf(global, dir+"/none/lb.data") + confText(port))
	if r, err := control.NewClient(p.socket).Reload(t.Context()); err != nil || !r.OK {
		t.Fatal(r, err)
	}
	ask("(?s)Real server.*WARN.*The state was not written to state_dump_file.*no such file")
	if p.stop() != 0 {
		t.Error(p.out.b.String())
	}
}

// TestConfigSaveDir: what ran and what runs after each reload that was not
// refused, as "sluice check --effective" prints it.
func TestConfigSaveDir(t *testing.T) {
	one, _ := backend(t)
	two, _ := backend(t)
	dir := t.TempDir()
	text := func(sub string, port int) string {
		if sub == "" {
			return confText(port)
		}
		return "global_defs {\nconfig_save_dir " + filepath.Join(dir, sub) + "\n}\n" + confText(port)
	}
	p := launch(t, text("a", one), nil)
	p.out.await(t, 0, "Ready")
	effective := func() string {
		t.Helper()
		var b bytes.Buffer
		if status := Check(io.Discard, p.file, CheckOptions{Effective: &b}); status != 0 {
			t.Fatal("status", status)
		}
		return b.String()
	}
	reload := func(text string, ok bool) {
		t.Helper()
		p.write(text)
		if r, err := control.NewClient(p.socket).Reload(t.Context()); err != nil || r.OK != ok {
			t.Fatal(r, err)
		}
	}
	saved := func(sub string, n int, pre, post string) {
		t.Helper()
		base := filepath.Join(dir, sub, fmt.Sprintf("keepalived_check.%d.%d.", os.Getpid(), n))
		for suffix, want := range map[string]string{"pre": pre, "post": post} {
			if got := read(t, base+suffix); got != want || !strings.Contains(got, "virtual_server 192.0.2.10") {
				t.Errorf("%s is\n%s\nwant\n%s", base+suffix, got, want)
			}
			if fi, err := os.Lstat(base + suffix); err != nil || fi.Mode() != 0o600 {
				t.Error(fi, err)
			}
		}
	}
	if names(t, dir) != "" {
		t.Error("the folder is made before a reload")
	}
	first := effective()
	reload(text("a", two), true)
	second := effective()
	saved("a", 1, first, second)
	if fi, err := os.Stat(dir + "/a"); err != nil || fi.Mode().Perm() != 0o700 {
		t.Error(fi, err)
	}
	reload(text("a", two)+"virtual_server {\n", false)
	// A pair stays together: where the new one says, else where the old one did.
	reload(text("b", one), true)
	third := effective()
	saved("b", 2, second, third)
	reload(text("", two), true)
	fourth := effective()
	saved("b", 3, third, fourth)
	reload(text("", one), true)
	reload(text("a", two), true)
	saved("a", 4, confOf(t, p, text("", one)), confOf(t, p, text("a", two)))
	for sub, n := range map[string]int{"a": 4, "b": 4} {
		if got := len(strings.Fields(names(t, filepath.Join(dir, sub)))); got != n {
			t.Errorf("%d files in %s: %s", got, sub, names(t, filepath.Join(dir, sub)))
		}
	}
	// Failures are warnings.
	at := p.mark()
	reload(text("none/x", one), true)
	p.out.await(t, at, "WARN.*not saved: make the folder.*none/x")
	if err := os.WriteFile(dir+"/file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	at = p.mark()
	reload(text("file", two), true)
	p.out.await(t, at, `(?s)WARN.*is not saved in config_save_dir.*pre.*WARN.*is not saved in config_save_dir.*post`)
	if p.stop() != 0 {
		t.Error(p.out.b.String())
	}
}

// confOf is the effective configuration of a text.
func confOf(t *testing.T, p *process, text string) string {
	t.Helper()
	var b bytes.Buffer
	p.write(text)
	if status := Check(io.Discard, p.file, CheckOptions{Effective: &b}); status != 0 {
		t.Fatal("status", status)
	}
	return b.String()
}
