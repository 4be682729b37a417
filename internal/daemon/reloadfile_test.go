package daemon

import (
	"bytes"
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

func TestReloadFileIsMadeAndRemoved(t *testing.T) {
	t.Cleanup(func(old int) func() { return func() { unix.Umask(old) } }(unix.Umask(0o177)))
	var out bytes.Buffer
	r := reloadFile{log: slog.New(slog.NewTextHandler(&out, nil))}
	path := filepath.Join(t.TempDir(), "reloading")
	for range 2 {
		remove := r.create(path)
		fi, err := os.Lstat(path)
		if err != nil || !fi.Mode().IsRegular() || fi.Mode().Perm() != 0o644 || fi.Size() != 0 {
			t.Fatalf("%v, %v", fi, err)
		}
		// Another daemon's is as good, and may be gone before.
		r.create(path)()
		remove()
		if _, err := os.Lstat(path); err == nil {
			t.Error("it is still there")
		}
	}
	r.create("")()
	r.remove(path)
	r.remove(filepath.Join(path, "x"))
	if out.Len() > 0 {
		t.Error(out.String())
	}
	reloadFile{idle: true}.create(path)()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	reloadFile{idle: true}.remove(path)
	if _, err := os.Lstat(path); err != nil {
		t.Error("an observer has removed it:", err)
	}
}

// TestReloadFileSparesOthers: whatever is in its place is kept, and said.
func TestReloadFileSparesOthers(t *testing.T) {
	for name, c := range map[string]struct {
		make func(path string) error
		says string
	}{
		"a file with content": {func(path string) error { return os.WriteFile(path, []byte("virtual_server"), 0o600) }, "not an empty file"},
		"a folder":            {func(path string) error { return os.Mkdir(path, 0o700) }, "not an empty file"},
		"a link to nothing":   {func(path string) error { return os.Symlink(path+".to", path) }, "not an empty file"},
		"a link to a file": {func(path string) error {
			if err := os.WriteFile(path+".to", nil, 0o600); err != nil {
				return err
			}
			return os.Symlink(path+".to", path)
		}, "not an empty file"},
		"no folder": {nil, "folder "},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			r := reloadFile{log: slog.New(slog.NewTextHandler(&out, nil))}
			path := filepath.Join(t.TempDir(), "reloading")
			if c.make == nil {
				path = filepath.Join(path, "x")
			} else if err := c.make(path); err != nil {
				t.Fatal(err)
			}
			before, _ := os.Lstat(path)
			r.create(path)()
			after, _ := os.Lstat(path)
			if c.make != nil && (after == nil || !os.SameFile(before, after) || after.Mode() != before.Mode() || after.Size() != before.Size()) {
				t.Errorf("%v, was %v", after, before)
			}
			if _, err := os.Lstat(path + ".to"); name == "a link to nothing" && err == nil {
				t.Error("the link was followed")
			}
			if s := out.String(); !strings.Contains(s, c.says) || strings.Count(s, "level=WARN") != 1 {
				t.Error(s)
			}
			if r.remove(path); c.make != nil && strings.Count(out.String(), "level=WARN") != 2 {
				t.Error("at the start nothing is said:", out.String())
			}
		})
	}
}

// witness is a log that tells whether a file was there as lines were written.
type witness struct {
	lockedBuffer
	path  string
	mu    sync.Mutex
	there map[string]bool
}

func (w *witness) Write(p []byte) (int, error) {
	_, err := os.Lstat(w.path)
	w.mu.Lock()
	for _, s := range []string{"msg=Reloading", `msg="Reload refused`, "msg=Reloaded", `msg=Ready`} {
		if bytes.Contains(p, []byte(s)) {
			w.there[s] = err == nil
		}
	}
	w.mu.Unlock()
	return w.lockedBuffer.Write(p)
}

// TestReloadFileAroundAReload: the running configuration says where it is, and it
// goes with the reload, however that ends.
func TestReloadFileAroundAReload(t *testing.T) {
	port, _ := backend(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "test.conf")
	w := &witness{path: filepath.Join(dir, "reloading"), there: map[string]bool{}}
	write := func(path, text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	good := "global_defs {\nreload_file " + w.path + "\n}\n" + confText(port)
	write(file, good)
	write(w.path, "") // left by a crash

	opts := Options{File: file, Observe: true, Log: slog.New(slog.NewTextHandler(w, nil))}
	cfg, found := load(opts)
	d, err := newDaemon(opts, cfg, found)
	if err != nil {
		t.Fatal(err)
	}
	// As if it were not observing, without a kernel's table to write.
	d.reloadFile.idle = false
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.run(ctx, nil) }()
	w.await(t, 0, "msg=Ready")

	check := func(ok bool, lines ...string) {
		t.Helper()
		if r := d.reload(ctx); r.OK != ok {
			t.Errorf("%+v", r)
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		for _, s := range lines {
			if !w.there[s] {
				t.Errorf("it was not there at %s", s)
			}
		}
		if _, err := os.Lstat(w.path); err == nil {
			t.Error("it is there after the reload")
		}
		clear(w.there)
	}
	if w.there["msg=Ready"] {
		t.Error("it is there after the start")
	}
	check(true, "msg=Reloading", "msg=Reloaded")
	write(file, good+"virtual_server {\n")
	check(false, "msg=Reloading", `msg="Reload refused`)
	write(file, confText(port))
	check(true, "msg=Reloading", "msg=Reloaded")
	if d.reload(ctx); w.there["msg=Reloading"] {
		t.Error("it is there though the configuration that runs does not name it")
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
