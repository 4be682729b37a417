package trackfile

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience is how long an event may take; it bounds failures only.
const patience = 10 * time.Second

// rig is a running watcher whose polls are far away, so that only events count.
type rig struct {
	*testing.T
	w      *Watcher
	events chan Event
	log    *logBuffer
}

type logBuffer struct{ ch chan string }

func (l *logBuffer) Write(p []byte) (int, error) { l.ch <- string(p); return len(p), nil }

func newRig(t *testing.T) *rig {
	r := &rig{T: t, events: make(chan Event, 10000), log: &logBuffer{make(chan string, 10000)}}
	r.w = New(slog.New(slog.NewTextHandler(r.log, nil)), func(e Event) { r.events <- e })
	r.w.pollEvery = time.Hour
	return r
}

func (r *rig) run() {
	r.Helper()
	ctx, cancel := context.WithCancel(r.Context())
	done := make(chan error, 1)
	go func() { done <- r.w.Run(ctx) }()
	r.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			r.Errorf("Run: %v", err)
		}
	})
}

// watching returns a running rig with one file "f" at path.
func watching(t *testing.T, path string) *rig {
	t.Helper()
	r := newRig(t)
	r.set(File{"f", path})
	r.run()
	return r
}

func (r *rig) set(files ...File) {
	r.Helper()
	if err := r.w.Set(files); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) next() Event {
	r.Helper()
	select {
	case e := <-r.events:
		return e
	case <-time.After(patience):
		r.Fatalf("no event in %v; watched: %q, values: %v", patience, r.w.watched(), r.w.Values())
	}
	panic("unreachable")
}

// want takes the next event, which must have this value and no warning.
func (r *rig) want(v int64) {
	r.Helper()
	if e := r.next(); e.Name != "f" || e.Value != v || e.Warning != "" {
		r.Fatalf("event %+v, want f = %d", e, v)
	}
}

func (r *rig) do(errs ...error) {
	r.Helper()
	for _, err := range errs {
		if err != nil {
			r.Fatal(err)
		}
	}
}

func put(path, content string) error { return os.WriteFile(path, []byte(content), 0o600) }

// replace is how a careful program writes a file.
func replace(path, content string) error {
	if err := put(path+".new", content); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

func TestSetReadsBeforeItReturns(t *testing.T) {
	dir := t.TempDir()
	a := filepath.Join(dir, "a")
	r := newRig(t)
	t.Cleanup(r.w.Close)
	r.do(put(a, "1\n"), put(filepath.Join(dir, "g"), "rubbish"))
	r.set(File{"a", a}, File{"none", filepath.Join(dir, "none")}, File{"g", filepath.Join(dir, "g")})
	want := map[string]Value{
		"a":    {1, OK, ""},
		"none": {0, Missing, ""},
		"g":    {0, Garbage, fmt.Sprintf("read track file %s: %q is not a number", filepath.Join(dir, "g"), "rubbish")},
	}
	if d := cmp.Diff(want, r.w.Values()); d != "" {
		t.Errorf("values (-want +got):\n%s", d)
	}
	if len(r.events) != 0 {
		t.Errorf("Set of new files emitted %v", <-r.events)
	}
}

func TestEveryWayToChangeAFileIsSeen(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(path string) error
		want   int64
	}{
		{"in place", func(p string) error { return put(p, "5\n") }, 5},
		{"renamed over", func(p string) error { return replace(p, "5\n") }, 5},
		{"removed", os.Remove, 0},
		{"moved away", func(p string) error { return os.Rename(p, p+".bak") }, 0},
		{"emptied", func(p string) error { return os.Truncate(p, 0) }, 0},
		{"an editor's backup and new file", func(p string) error {
			if err := os.Rename(p, p+"~"); err != nil {
				return err
			}
			return put(p, "7\n")
		}, 7},
		{"written by a descriptor that stays open", func(p string) error {
			f, err := os.OpenFile(p, os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			defer f.Close()
			_, err = f.WriteAt([]byte("8"), 0)
			return err
		}, 8},
		{"hard link", func(p string) error {
			if err := put(p+".x", "9"); err != nil {
				return err
			}
			if err := os.Remove(p); err != nil {
				return err
			}
			return os.Link(p+".x", p)
		}, 9},
		{"a link put in its place", func(p string) error {
			if err := put(p+".x", "10"); err != nil {
				return err
			}
			if err := os.Symlink(p+".x", p+".l"); err != nil {
				return err
			}
			return os.Rename(p+".l", p)
		}, 10},
		{"its directory removed", func(p string) error { return os.RemoveAll(filepath.Dir(p)) }, 0},
		{"its directory moved away", func(p string) error {
			return os.Rename(filepath.Dir(p), filepath.Dir(p)+".old")
		}, 0},
		{"its directory replaced", func(p string) error {
			d := filepath.Dir(p)
			if err := os.Mkdir(d+".new", 0o700); err != nil {
				return err
			}
			if err := put(filepath.Join(d+".new", filepath.Base(p)), "11"); err != nil {
				return err
			}
			return unix.Renameat2(unix.AT_FDCWD, d+".new", unix.AT_FDCWD, d, unix.RENAME_EXCHANGE)
		}, 11},
		{"the directory above moved away", func(p string) error {
			up := filepath.Dir(filepath.Dir(p))
			return os.Rename(up, up+".old")
		}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "up", "dir", "file")
			if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := put(path, "1\n"); err != nil {
				t.Fatal(err)
			}
			r := watching(t, path)
			r.do(tc.change(path))
			r.want(tc.want)

			// Whatever happened, the next change is seen too.
			r.do(os.MkdirAll(filepath.Dir(path), 0o700), replace(path, "99"))
			r.want(99)
			r.do(put(path, "100"))
			r.want(100)
		})
	}
}

func TestDirectoryThatAppearsLater(t *testing.T) {
	base := t.TempDir()
	path := filepath.Join(base, "a", "b", "c", "file")
	r := watching(t, path)
	// Each step is a directory's birth that only its parent can tell.
	r.do(os.Mkdir(filepath.Join(base, "a"), 0o700))
	r.do(os.MkdirAll(filepath.Join(base, "a", "b", "c"), 0o700))
	r.do(put(path, "3"))
	r.want(3)
	r.do(os.RemoveAll(filepath.Join(base, "a")))
	r.want(0)
	// Moved in as a whole, with the file in it.
	r.do(os.MkdirAll(filepath.Join(base, "x", "b", "c"), 0o700))
	r.do(put(filepath.Join(base, "x", "b", "c", "file"), "4"))
	r.do(os.Rename(filepath.Join(base, "x"), filepath.Join(base, "a")))
	r.want(4)
}

func TestSymbolicLinks(t *testing.T) {
	link := func(target, path string) error {
		if err := os.Symlink(target, path+".new"); err != nil {
			return err
		}
		return os.Rename(path+".new", path)
	}
	base := t.TempDir()
	conf, data := filepath.Join(base, "conf"), filepath.Join(base, "data")
	path := filepath.Join(conf, "file")
	for _, err := range []error{os.Mkdir(conf, 0o700), os.Mkdir(data, 0o700), put(filepath.Join(data, "one"), "1"),
		put(filepath.Join(data, "two"), "2"), os.Symlink("../data/one", path)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	r := watching(t, path)
	if v := r.w.Values()["f"].Value; v != 1 {
		t.Fatalf("first value %d, want 1", v)
	}
	r.do(put(filepath.Join(data, "one"), "11")) // the target is written
	r.want(11)
	r.do(link(filepath.Join(data, "two"), path)) // the link is pointed elsewhere
	r.want(2)
	r.do(replace(filepath.Join(data, "two"), "22")) // the new target is replaced
	r.want(22)
	r.do(os.Remove(filepath.Join(data, "two"))) // the link dangles
	r.want(0)
	r.do(put(filepath.Join(data, "two"), "23")) // the target returns
	r.want(23)

	// A mounted Kubernetes config map: file -> ..data/file, ..data -> a directory.
	for _, v := range []string{"31", "32"} {
		r.do(os.Mkdir(filepath.Join(conf, "v"+v), 0o700), put(filepath.Join(conf, "v"+v, "file"), v))
	}
	r.do(link("v31", filepath.Join(conf, "..data")), link("..data/file", path))
	r.want(31)
	r.do(link("v32", filepath.Join(conf, "..data")))
	r.want(32)
	r.do(put(path, "33")) // written through both links
	r.want(33)
}

func TestShellRedirectionIsNeverAnIntermediateZero(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := put(path, "1"); err != nil {
		t.Fatal(err)
	}
	r := watching(t, path)
	// Truncation and write are apart, each with an event of its own, and each
	// truncation is certain to have been looked at before the write.
	slow := 0
	for v := int64(2); v < 8; v++ {
		begun := time.Now()
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_TRUNC, 0)
		r.do(err)
		// On a machine that takes longer than that for a few calls an empty file is
		// rightly taken for settled, and nothing can be seen in between.
		for seen := false; !seen && time.Since(begun) < settleTime; {
			r.w.mu.Lock()
			seen = !r.w.files[0].unsettled.IsZero()
			r.w.mu.Unlock()
		}
		fmt.Fprintf(f, "%d\n", v)
		r.do(f.Close())
		e := r.next()
		if e.Value == 0 && time.Since(begun) >= settleTime {
			slow++
			e = r.next()
		}
		if e.Value != v || e.Warning != "" {
			t.Fatalf("event %+v, want %d", e, v)
		}
	}
	if slow > 0 {
		t.Logf("%d of 6 rounds were too slow to say anything", slow)
	}
}

func TestGarbageKeepsTheLastValueAndWarns(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := put(path, "5"); err != nil {
		t.Fatal(err)
	}
	r := watching(t, path)
	for _, tc := range []struct{ content, warning string }{
		{"maintenance\n", `"maintenance" is not a number`},
		{strings.Repeat("9", 100), "is outside -2147483648..2147483648"},
	} {
		r.do(replace(path, tc.content))
		if e := r.next(); e.Value != 5 || !strings.Contains(e.Warning, tc.warning) {
			t.Fatalf("event %+v, want 5 with a warning %q", e, tc.warning)
		}
		select {
		case line := <-r.log.ch:
			if !strings.Contains(line, "level=WARN") || !strings.Contains(line, "track_file=f") || !strings.Contains(line, "value=5") {
				t.Errorf("log line %q", line)
			}
		case <-time.After(patience):
			t.Error("no log line")
		}
	}
	r.do(replace(path, "5"))
	r.want(5) // the warning is over
	r.do(os.Remove(path))
	r.want(0)
}

func TestBurstsCoalesce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	r := watching(t, path)
	const n = 2000
	start := time.Now()
	for v := 1; v <= n; v++ {
		r.do(replace(path, fmt.Sprint(v)))
	}
	count := 1
	for e := r.next(); e.Value != n; e = r.next() {
		count++
	}
	if limit := int(time.Since(start)/coalesce) + 2; count > limit {
		t.Errorf("%d events for %d changes, want at most %d", count, n, limit)
	}
}

func TestReloadKeepsValuesOfKeptFiles(t *testing.T) {
	dir := t.TempDir()
	a, b, c := filepath.Join(dir, "a"), filepath.Join(dir, "x", "b"), filepath.Join(dir, "c")
	r := newRig(t)
	r.do(os.Mkdir(filepath.Dir(b), 0o700), put(a, "1"), put(b, "2"), put(c, "3"))
	r.set(File{"a", a}, File{"b", b})
	r.run()
	r.do(replace(a, "rubbish"))
	if e := r.next(); e.Name != "a" || e.Value != 1 || e.Warning == "" {
		t.Fatalf("event %+v, want a = 1 with a warning", e)
	}
	r.set(File{"c", c}, File{"a", a})
	got := r.w.Values()
	if len(got) != 2 || got["a"].Value != 1 || got["a"].State != Garbage || got["c"].Value != 3 {
		t.Errorf("values after the reload: %+v, want a = 1 (garbage), c = 3", got)
	}
	if slices.Contains(r.w.watched(), filepath.Dir(b)) {
		t.Errorf("a dropped file's directory is still watched: %q", r.w.watched())
	}
	// The dropped file says nothing any more, the others do.
	r.do(replace(b, "22"), replace(c, "33"))
	if e := r.next(); e != (Event{"c", 33, ""}) {
		t.Errorf("event %+v, want c = 33", e)
	}
	// A kept name at another path is followed there.
	d := filepath.Join(dir, "d")
	r.do(put(d, "44"))
	r.set(File{"c", d})
	if e := r.next(); e != (Event{"c", 44, ""}) {
		t.Errorf("event %+v, want c = 44", e)
	}
	r.set()
	if d := r.w.watched(); len(d) != 0 {
		t.Errorf("with no files these are watched: %q", d)
	}
}

func TestSetRefusesWhatItCannotTellApart(t *testing.T) {
	r := newRig(t)
	t.Cleanup(r.w.Close)
	a := filepath.Join(t.TempDir(), "a")
	r.do(put(a, "1"))
	r.set(File{"a", a})
	for _, bad := range [][]File{{{"x", a}, {"x", a}}, {{"", a}}, {{"x", ""}}} {
		if err := r.w.Set(bad); err == nil {
			t.Errorf("Set(%v) was accepted", bad)
		}
	}
	if got := r.w.Values(); len(got) != 1 || got["a"].Value != 1 {
		t.Errorf("a refused Set changed the set to %v", got)
	}
	r.w.Close()
	if err := r.w.Set(nil); err != ErrClosed {
		t.Errorf("Set after Close: %v, want ErrClosed", err)
	}
}

func TestPollFindsWhatNoEventTells(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	r := newRig(t)
	r.w.pollEvery = 20 * time.Millisecond
	r.set(File{"f", path})
	r.do(r.w.fsn.Close()) // as deaf as on a network file system
	r.run()
	r.do(put(path, "5"))
	r.want(5)
	r.do(os.Remove(path))
	r.want(0)
}

func TestManyFiles(t *testing.T) {
	dir := t.TempDir()
	r := newRig(t)
	r.w.log = slog.New(slog.DiscardHandler)
	var files []File
	for i := range 1000 {
		files = append(files, File{fmt.Sprint(i), filepath.Join(dir, fmt.Sprint(i))})
	}
	r.set(files...)
	r.run()
	want := map[string]int64{}
	for i, f := range files {
		r.do(put(f.Path, fmt.Sprint(i+1)))
		want[f.Name] = int64(i + 1)
	}
	got := map[string]int64{}
	for len(got) < len(want) {
		e := r.next()
		got[e.Name] = e.Value
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("values (-want +got):\n%s", d)
	}
}

func TestWalkVisitsEveryLookUp(t *testing.T) {
	base, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	in := func(p string) string { return filepath.Join(base, p) }
	for _, err := range []error{os.MkdirAll(in("d/e"), 0o700), put(in("d/e/f"), ""), os.Symlink("d/e", in("l")),
		os.Symlink(in("l/f"), in("abs")), os.Symlink("loop", in("loop")), os.Symlink("../d/./e//f", in("d/up"))} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		path string
		want []string
	}{
		{"d/e/f", []string{"d", "d/e", "d/e/f"}},
		{"l/f", []string{"l", "d", "d/e", "d/e/f"}},
		{"abs", []string{"abs", "l", "d", "d/e", "d/e/f"}},
		{"d/up", []string{"d", "d/up", "d", "d/e", "d/e/f"}},
		{"l/../x", []string{"l", "d", "d/e", "d/x"}}, // as the kernel goes, not as the text reads
		{"none/x/y", []string{"none"}},
		{"d/e/f/x", []string{"d", "d/e", "d/e/f"}},
	} {
		var got []string
		walk(base+"/"+tc.path, func(dir, name string) {
			if p, ok := strings.CutPrefix(filepath.Join(dir, name), base+"/"); ok {
				got = append(got, p)
			}
		})
		if d := cmp.Diff(tc.want, got); d != "" {
			t.Errorf("walk %s (-want +got):\n%s", tc.path, d)
		}
	}
	n := 0
	walk(in("loop"), func(_, _ string) { n++ })
	if n > maxLinks+len(split(base))+1 {
		t.Errorf("a link to itself was followed %d times", n)
	}
}
