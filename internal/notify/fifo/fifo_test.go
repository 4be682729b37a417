package fifo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
)

// buffer is a log.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// rig is a Writer that runs within a bubble.
type rig struct {
	*Writer
	t    *testing.T
	log  *buffer
	stop func()
}

func start(t *testing.T, o Options) *rig {
	t.Helper()
	log := &buffer{}
	o.Log = slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	r := &rig{Writer: New(o), t: t, log: log}
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-over; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(r.stop)
	return r
}

// configure sets FIFOs and waits until they are made.
func (r *rig) configure(fifos ...config.FIFO) {
	r.Configure(Config{FIFOs: fifos})
	synctest.Wait()
}

// logs fails unless the log has each part.
func (r *rig) logs(parts ...string) {
	r.t.Helper()
	for _, p := range parts {
		if !strings.Contains(r.log.String(), p) {
			r.t.Errorf("log lacks %q:\n%s", p, r.log)
		}
	}
}

// listen opens a FIFO for reading.
func listen(t *testing.T, path string) int {
	t.Helper()
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatalf("open %s: %v", path, err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// heard returns what a FIFO has: eof says that nobody has it open for writing.
func heard(t *testing.T, fd int) (text string, eof bool) {
	t.Helper()
	var all []byte
	buf := make([]byte, 4096)
	for {
		n, err := unix.Read(fd, buf)
		switch {
		case err == unix.EAGAIN:
			return string(all), false
		case err != nil:
			t.Fatalf("read: %v", err)
		case n == 0:
			return string(all), true
		}
		all = append(all, buf[:n]...)
	}
}

func stat(t *testing.T, path string) unix.Stat_t {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		t.Fatalf("stat %s: %v", path, err)
	}
	return st
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

const (
	rs = "[192.0.2.11]:tcp:80"
	vs = "[192.0.2.1]:tcp:80"
)

func TestMessagesAreKeepalivedsToTheByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := filepath.Join(t.TempDir(), "a"), filepath.Join(t.TempDir(), "b")
		w := start(t, Options{})
		w.configure(config.FIFO{Path: a}, config.FIFO{Path: b})
		for _, path := range []string{a, b} {
			if got := stat(t, path); got.Mode&unix.S_IFMT != unix.S_IFIFO {
				t.Errorf("%s: mode %o", path, got.Mode)
			}
		}
		inA, inB := listen(t, a), listen(t, b)
		w.RealServer(rs, vs, false)
		w.VirtualServer("FWM 5", false)
		w.RealServer(rs, vs, true)
		w.VirtualServer("[web]:0", true)
		synctest.Wait()
		want := "RS " + rs + " " + vs + " DOWN\n\x00" + "VS FWM 5 DOWN\n\x00" + "RS " + rs + " " + vs + " UP\n\x00" + "VS [web]:0 UP\n\x00"
		for _, in := range []int{inA, inB} {
			if got, eof := heard(t, in); got != want || eof {
				t.Errorf("heard %q (end %v), want %q", got, eof, want)
			}
		}
		if got, want := w.Stats(), (Stats{Open: 2, Configured: 2, Written: 8}); got != want {
			t.Errorf("stats %+v, want %+v", got, want)
		}
	})
}

func TestMadeWithTheUmaskAndRemovedAtStop(t *testing.T) {
	for mask, want := range map[int]uint32{0: 0o644, 0o027: 0o640, 0o077: 0o600} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			was := syscall.Umask(mask)
			defer syscall.Umask(was)
			w := start(t, Options{})
			w.configure(config.FIFO{Path: path})
			if got := stat(t, path).Mode & 0o7777; got != want {
				t.Errorf("umask %03o: mode %o, want %o", mask, got, want)
			}
			in := listen(t, path)
			w.VirtualServer(vs, true)
			w.stop()
			if got, eof := heard(t, in); got != "VS "+vs+" UP\n\x00" || !eof {
				t.Errorf("told just before the stop: heard %q, end %v", got, eof)
			}
			if exists(path) {
				t.Error("not removed at stop")
			}
			w.VirtualServer(vs, true) // is ignored
			w.Configure(Config{FIFOs: []config.FIFO{{Path: path}}})
			if exists(path) {
				t.Error("made after the stop")
			}
		})
	}
}

func TestOwnerIsTheConfiguredOne(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to give files away")
	}
	for _, tt := range []struct {
		user, group string
		uid, gid    uint32
		err         string
	}{
		{"", "", 0, 0, ""},
		{"daemon", "", 1, 1, ""},
		{"daemon", "mail", 1, 8, ""},
		{"54321", "", 54321, 0, ""},
		{"54321", "54322", 54321, 54322, ""},
		{"nobody-at-all", "", 0, 0, `there is no user \"nobody-at-all\"`},
		{"daemon", "nobody-at-all", 0, 0, `there is no group \"nobody-at-all\"`},
	} {
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			w := start(t, Options{})
			w.configure(config.FIFO{Path: path, User: tt.user, Group: tt.group})
			if tt.err != "" {
				w.logs("Notify FIFO cannot be used", tt.err)
				if exists(path) {
					t.Error("made all the same")
				}
				return
			}
			if st := stat(t, path); st.Uid != tt.uid || st.Gid != tt.gid {
				t.Errorf("%s %s: owner %d:%d, want %d:%d\n%s", tt.user, tt.group, st.Uid, st.Gid, tt.uid, tt.gid, w.log)
			}
		})
	}
}

func TestWhatIsThereMustBeAFIFOOfOurs(t *testing.T) {
	mkfifo := func(uid int) func(string) error {
		return func(path string) error {
			return errors.Join(unix.Mkfifo(path, 0o600), os.Chown(path, uid, -1))
		}
	}
	for name, tt := range map[string]struct {
		make func(path string) error
		user string
		err  string
	}{
		"own":        {mkfifo(os.Getuid()), "", ""},
		"configured": {mkfifo(1), "daemon", ""},
		"foreign":    {mkfifo(54321), "", "is there already and owned by uid 54321, expected the daemon's (0): "},
		"other":      {mkfifo(54321), "daemon", "owned by uid 54321, expected the daemon's (0) or the configured one's (1)"},
		"file":       {func(p string) error { return os.WriteFile(p, nil, 0o644) }, "", "is there already and no FIFO"},
		"folder":     {func(p string) error { return os.Mkdir(p, 0o755) }, "", "is there already and no FIFO"},
		"symlink": {func(p string) error {
			return errors.Join(unix.Mkfifo(p+".real", 0o600), os.Symlink(p+".real", p))
		}, "", "is a symbolic link, which is not followed"},
	} {
		t.Run(name, func(t *testing.T) {
			if os.Getuid() != 0 {
				t.Skip("needs root to give files away")
			}
			synctest.Test(t, func(t *testing.T) {
				path := filepath.Join(t.TempDir(), "f")
				good := filepath.Join(t.TempDir(), "good")
				if err := tt.make(path); err != nil {
					t.Fatal(err)
				}
				before := stat(t, path)
				w := start(t, Options{})
				w.configure(config.FIFO{Path: path, User: tt.user}, config.FIFO{Path: good})
				inGood := listen(t, good)
				in := -1
				if tt.err == "" {
					in = listen(t, path)
				}
				w.VirtualServer(vs, true)
				synctest.Wait()
				if got, _ := heard(t, inGood); got == "" {
					t.Error("the other FIFO got nothing")
				}
				if tt.err != "" {
					w.logs("level=ERROR", "fifo="+path, tt.err)
				} else if got, _ := heard(t, in); got == "" {
					t.Errorf("got nothing\n%s", w.log)
				}
				w.stop()
				if after := stat(t, path); after.Ino != before.Ino || after.Uid != before.Uid || after.Mode != before.Mode {
					t.Error("changed or removed, though it was there before")
				}
			})
		})
	}
}

func TestPlacesThatCannotBeUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, Options{})
		w.configure(config.FIFO{Path: filepath.Join(t.TempDir(), "no", "f")}, config.FIFO{Path: "/proc/f"})
		w.logs("no such file or directory", "make the folder, or name another path, then reload")
		if got := w.Stats(); got.Open != 0 || got.Configured != 2 {
			t.Errorf("%+v", got)
		}
	})
	for err, want := range map[error]string{
		unix.EROFS: "ReadWritePaths", unix.EPERM: "CAP_CHOWN", unix.EACCES: "may not write", unix.ENOSPC: "reload once", errTooLong: "reload once",
	} {
		if got := hint(fmt.Errorf("x: %w", err)); !strings.Contains(got, want) {
			t.Errorf("%v: hint %q", err, got)
		}
	}
}

func TestAFullFIFOLosesMessagesAndSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "f")
		w := start(t, Options{})
		w.configure(config.FIFO{Path: path})
		// 4096 octets are what the kernel takes in one piece: 16 fit.
		full := strings.Repeat("x", pipeBuf-len("VS  UP\n\x00"))
		for range 17 {
			w.VirtualServer(full, true)
		}
		synctest.Wait()
		said := func() int { return strings.Count(w.log.String(), "are lost") }
		if got := w.Stats(); got.Written != 16 || got.Lost != 1 || said() != 1 {
			t.Fatalf("%+v, logged %d times", got, said())
		}
		w.logs("level=ERROR", "lost=1", "the FIFO is full", "its reader is too slow or gone")
		for range 5 {
			w.VirtualServer(vs, true)
			synctest.Wait()
		}
		if said() != 1 {
			t.Errorf("logged %d times within a minute", said())
		}
		<-time.After(reportEvery + time.Second)
		w.logs("lost=5")
		if said() != 2 || w.Stats().Lost != 6 {
			t.Errorf("%+v, logged %d times", w.Stats(), said())
		}
		// What fits again is written.
		in := listen(t, path)
		heard(t, in)
		w.VirtualServer(vs, false)
		synctest.Wait()
		if got, _ := heard(t, in); got != "VS "+vs+" DOWN\n\x00" {
			t.Errorf("heard %q", got)
		}
		w.VirtualServer(full+"x", true)
		<-time.After(2 * reportEvery)
		w.logs("a message is longer than 4096 bytes")
		if got, _ := heard(t, in); got != "" {
			t.Errorf("%d bytes of a message that could be torn", len(got))
		}
		// Losses that were not logged yet are at the end.
		for range 17 {
			w.VirtualServer(full, true)
		}
		synctest.Wait()
		for range 3 {
			w.VirtualServer(full, true)
		}
		w.stop()
		w.logs("lost=3")
	})
}

func TestReloadLeavesAloneWhatItDoesNotChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		keep, drop, made := filepath.Join(dir, "keep"), filepath.Join(dir, "drop"), filepath.Join(dir, "made")
		w := start(t, Options{})
		w.configure(config.FIFO{Path: keep}, config.FIFO{Path: drop})
		inKeep, inDrop, was := listen(t, keep), listen(t, drop), stat(t, keep).Ino
		w.Configure(Config{FIFOs: []config.FIFO{{Path: made}, {Path: keep}}})
		w.VirtualServer(vs, true) // counts for the new configuration
		synctest.Wait()
		if got, eof := heard(t, inKeep); got == "" || eof || stat(t, keep).Ino != was {
			t.Errorf("kept: heard %q, end %v", got, eof)
		}
		if got, eof := heard(t, inDrop); got != "" || !eof || exists(drop) {
			t.Errorf("dropped: heard %q, end %v, still there %v", got, eof, exists(drop))
		}
		if got, _ := heard(t, listen(t, made)); got == "" {
			t.Error("the new one got nothing")
		}
		w.configure()
		if exists(keep) || exists(made) || w.Stats().Open != 0 || w.Stats().Written != 2 {
			t.Errorf("not all is gone: %+v", w.Stats())
		}
		w.VirtualServer(vs, true)
		synctest.Wait()
		if got := w.Stats(); got.Lost != 0 {
			t.Errorf("without a FIFO nothing is lost: %+v", got)
		}
	})
}

func TestReloadWithAnotherOwnerMakesItAnew(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root to give files away")
	}
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "f")
		w := start(t, Options{})
		w.configure(config.FIFO{Path: path})
		in := listen(t, path)
		w.configure(config.FIFO{Path: path, User: "daemon"})
		if _, eof := heard(t, in); !eof || stat(t, path).Uid != 1 {
			t.Errorf("end %v, owner %d", eof, stat(t, path).Uid)
		}
	})
}

func TestAFIFOThatWasReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		gone, taken := filepath.Join(dir, "gone"), filepath.Join(dir, "taken")
		w := start(t, Options{})
		w.configure(config.FIFO{Path: gone}, config.FIFO{Path: taken})
		if err := errors.Join(os.Remove(gone), os.Remove(taken), os.WriteFile(taken, []byte("precious"), 0o600)); err != nil {
			t.Fatal(err)
		}
		for range 5000 {
			w.VirtualServer(vs, true)
		}
		synctest.Wait()
		w.logs("somebody removed or replaced it")
		w.configure(config.FIFO{Path: gone}, config.FIFO{Path: taken})
		if !exists(gone) {
			t.Error("a reload does not make it again")
		}
		w.logs("is there already and no FIFO")
		w.stop()
		if b, err := os.ReadFile(taken); err != nil || string(b) != "precious" {
			t.Errorf("what took its place: %q, %v", b, err)
		}
	})
}

func TestMessagesWaitForRunAndAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "f")
		log := &buffer{}
		w := New(Options{Log: slog.New(slog.NewTextHandler(log, nil))})
		w.VirtualServer("before any FIFO", true)
		w.Configure(Config{FIFOs: []config.FIFO{{Path: path}}})
		for range maxPending + 7 {
			w.VirtualServer(strings.Repeat("x", 100), true)
		}
		ctx, cancel := context.WithCancel(t.Context())
		over := make(chan error)
		go func() { over <- w.Run(ctx) }()
		synctest.Wait()
		if got := w.Stats(); got.Written+got.Lost != maxPending+7 || got.Written == 0 || got.Lost < 7 {
			t.Errorf("%+v", got)
		}
		if got, _ := heard(t, listen(t, path)); !strings.HasPrefix(got, "VS xxx") {
			t.Errorf("first message %.20q", got)
		}
		cancel()
		if err := <-over; err != nil {
			t.Error(err)
		}
	})
}

// hook is a log that calls a function from Run's goroutine.
type hook func(line string)

func (h hook) Write(p []byte) (int, error) {
	h(string(p))
	return len(p), nil
}

func TestWhatIsToldWhileTheStopBeginsIsWritten(t *testing.T) {
	for range 20 { // the order of two things that are both ready is by chance
		synctest.Test(t, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "f")
			ctx, cancel := context.WithCancel(t.Context())
			var w *Writer
			in := -1
			w = New(Options{Log: slog.New(slog.NewTextHandler(hook(func(string) {
				in = listen(t, path)
				w.VirtualServer(vs, true)
				cancel()
			}), nil))})
			w.Configure(Config{FIFOs: []config.FIFO{{Path: path}}})
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
			if got, _ := heard(t, in); got != "VS "+vs+" UP\n\x00" {
				t.Errorf("heard %q", got)
			}
		})
	}
}

func TestManyTellAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	w := New(Options{})
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { over <- w.Run(ctx) }()
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 200 {
				w.Configure(Config{FIFOs: []config.FIFO{{Path: path}}})
				w.RealServer(rs, vs, i%2 == 0)
				w.VirtualServer(vs, i%2 == 0)
				w.Stats()
			}
		})
	}
	all.Wait()
	cancel()
	if err := <-over; err != nil {
		t.Error(err)
	}
	if got := w.Stats(); got.Written+got.Lost != 1600 {
		t.Errorf("%+v", got)
	}
}
