package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/engine"
)

func TestMain(m *testing.M) {
	if path := os.Getenv("SLUICE_TEST_LISTEN"); path != "" {
		// The child of TestSocketOfAKilledDaemonIsReplaced: listen until killed.
		s, err := Listen(path)
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("listening")
		_ = s.Serve(context.Background())
		os.Exit(0)
	}
	if path := os.Getenv("SLUICE_TEST_ASK"); path != "" {
		asked(path) // the child of TestRights
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

var sample = &engine.Snapshot{
	Version: "0.3.0", Generation: 4, ConfigFile: "/etc/keepalived/keepalived.conf",
	Started: time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC),
	VirtualServers: []engine.VirtualServer{{Name: "[192.0.2.1]:tcp:80", QuorumUp: true,
		RealServers: []engine.RealServer{{Address: "10.0.0.1:80", State: engine.StateUp}}}},
}

// serve runs a server until the test ends.
func serve(t *testing.T, s *Server) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
}

// sockPath is short: a socket's path has 107 bytes.
func sockPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "sl") //nolint:usetesting // its path is too long for a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Join(dir, "s.sock")
}

func mustListen(t *testing.T, path string) *Server {
	t.Helper()
	s, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestStatusAndReloadRoundTrip(t *testing.T) {
	path := sockPath(t)
	var logged bytes.Buffer
	s := mustListen(t, path)
	s.Log = slog.New(slog.NewTextHandler(&logged, nil))
	s.Status = func(context.Context) *engine.Snapshot { return sample }
	want := engine.Reload{At: sample.Started, Error: "keepalived.conf:3:4: unknown keyword"}
	s.Reload = func(context.Context) engine.Reload { return want }
	serve(t, s)

	c := NewClient(path)
	got, err := c.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(sample, got); d != "" {
		t.Errorf("status (-want +got):\n%s", d)
	}
	raw, err := c.StatusJSON(t.Context())
	if err != nil || !json.Valid(raw) || !bytes.Contains(raw, []byte(`"generation":4`)) {
		t.Errorf("raw status %s, %v", raw, err)
	}
	r, err := c.Reload(t.Context())
	if err != nil || !cmp.Equal(r, want) {
		t.Errorf("reload %+v, %v; want %+v", r, err, want)
	}
	who := fmt.Sprintf("uid=%d pid=%d", os.Getuid(), os.Getpid())
	if !strings.Contains(logged.String(), who) {
		t.Errorf("log %q does not say who asked (%s)", logged.String(), who)
	}
}

// TestForeignServicesAreAskedFor: and a daemon that cannot list them leaves them out.
func TestForeignServicesAreAskedFor(t *testing.T) {
	for _, able := range []bool{true, false} {
		path := sockPath(t)
		s := mustListen(t, path)
		s.Status = func(context.Context) *engine.Snapshot { return sample }
		if able {
			s.StatusForeign = func(context.Context) *engine.Snapshot {
				with := *sample
				with.Foreign = &engine.Foreign{Services: []engine.Service{{Name: "198.51.100.1:80/tcp"}}}
				return &with
			}
		}
		serve(t, s)
		c := NewClient(path)
		if got, err := c.Status(t.Context()); err != nil || got.Foreign != nil {
			t.Errorf("not asked for: %+v, %v", got.Foreign, err)
		}
		got, err := c.Status(t.Context(), Foreign)
		if err != nil || (got.Foreign != nil) != able || able && got.Foreign.Services[0].Name != "198.51.100.1:80/tcp" {
			t.Errorf("able %t: %+v, %v", able, got.Foreign, err)
		}
	}
}

func TestOnlyWhatExistsAnswers(t *testing.T) {
	path := sockPath(t)
	s := mustListen(t, path)
	s.Status = func(context.Context) *engine.Snapshot { return nil }
	serve(t, s)
	c := NewClient(path)
	for _, tc := range []struct {
		method, path string
		code         int
		say          string
	}{
		{"GET", "/v1/status", 503, "still starting"},
		{"GET", "/v2/status", 404, "there is no GET /v2/status"},
		{"POST", "/v1/reload", 404, "there is no POST /v1/reload"},
		{"GET", "/", 404, "there is no"},
		{"OPTIONS", "*", 404, "there is no"},
	} {
		req, err := http.NewRequestWithContext(t.Context(), tc.method, "http://sluiced"+strings.TrimPrefix(tc.path, "*"), http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		res, err := c.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var p problem
		err = json.NewDecoder(res.Body).Decode(&p)
		res.Body.Close()
		if res.StatusCode != tc.code || err != nil || !strings.Contains(p.Error, tc.say) {
			t.Errorf("%s %s: %d %+v, %v; want %d and %q", tc.method, tc.path, res.StatusCode, p, err, tc.code, tc.say)
		}
	}
	if _, err := c.Status(t.Context()); err == nil || err.Error() != "the daemon refuses: sluiced is still starting" {
		t.Errorf("client at start: %v", err)
	}
	if _, err := c.Reload(t.Context()); !errors.Is(err, ErrVersion) || !strings.Contains(err.Error(), "has no POST /v1/reload") {
		t.Errorf("client without a reload: %v, want ErrVersion", err)
	}
}

func TestRequestsAreBounded(t *testing.T) {
	path := sockPath(t)
	s := mustListen(t, path)
	var reloads atomic.Int32
	s.Reload = func(context.Context) engine.Reload { reloads.Add(1); return engine.Reload{} }
	serve(t, s)
	c := NewClient(path)
	do := func(body io.Reader, header string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://sluiced/v1/reload", body)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Fill", header)
		res, err := c.http.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		res.Body.Close()
		return res.StatusCode
	}
	if code := do(strings.NewReader(strings.Repeat("x", maxBody+1)), ""); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a long body: %d, want 413", code)
	}
	if code := do(http.NoBody, strings.Repeat("x", 100<<10)); code != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a long header: %d, want 431", code)
	}
	if n := reloads.Load(); n != 0 {
		t.Errorf("%d refused requests were carried out", n)
	}
	if code := do(strings.NewReader("{}"), ""); code != http.StatusOK || reloads.Load() != 1 {
		t.Errorf("a small body: %d, %d reloads", code, reloads.Load())
	}
}

func TestSocketFile(t *testing.T) {
	path := sockPath(t)
	old := syscall.Umask(0o077) // must not matter
	s, err := Listen(path)
	syscall.Umask(old)
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Lstat(path)
	if err != nil || fi.Mode() != fs.ModeSocket|0o660 {
		t.Errorf("socket %v, %v; want mode 0660", fi.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 2 {
		t.Errorf("the directory holds %v, %v; want the socket and its lock", entries, err)
	}
	for range 2 {
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after Close the socket is still there: %v", err)
	}
}

func TestDirectoryBelowRunIsMade(t *testing.T) {
	base := filepath.Dir(sockPath(t))
	saved := runDirs
	runDirs = []string{base + "/"}
	defer func() { runDirs = saved }()
	path := filepath.Join(base, "sluice", "s.sock")
	s := mustListen(t, path)
	defer s.Close()
	if fi, err := os.Stat(filepath.Dir(path)); err != nil || fi.Mode().Perm() != 0o755 {
		t.Errorf("directory %v, %v; want 0755", fi.Mode(), err)
	}
}

func TestSecondDaemonIsRefusedAndTheFirstLives(t *testing.T) {
	path := sockPath(t)
	s := mustListen(t, path)
	s.Status = func(context.Context) *engine.Snapshot { return sample }
	serve(t, s)
	_, err := Listen(path)
	if !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), fmt.Sprintf("(process %d)", os.Getpid())) || !strings.Contains(err.Error(), path) {
		t.Errorf("second: %v", err)
	}
	// Even when somebody cleaned the lock away.
	if err := os.Remove(path + ".lock"); err != nil {
		t.Fatal(err)
	}
	if _, err := Listen(path); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), "answers") {
		t.Errorf("without the lock file: %v", err)
	}
	if _, err := NewClient(path).Status(t.Context()); err != nil {
		t.Errorf("the first daemon does not answer any more: %v", err)
	}
}

func TestSocketOfAKilledDaemonIsReplaced(t *testing.T) {
	path := sockPath(t)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "SLUICE_TEST_LISTEN="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line := make([]byte, 10)
	if _, err := io.ReadFull(out, line); err != nil || string(line) != "listening\n" {
		t.Fatalf("child: %q, %v", line, err)
	}
	if _, err := Listen(path); !errors.Is(err, ErrRunning) || !strings.Contains(err.Error(), fmt.Sprint(cmd.Process.Pid)) {
		t.Errorf("while it lives: %v", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("the killed daemon left no socket: %v", err)
	}
	if _, err := NewClient(path).Status(t.Context()); err == nil || !strings.Contains(err.Error(), "nobody answers on "+path) {
		t.Errorf("client of a dead socket: %v", err)
	}
	s := mustListen(t, path)
	s.Status = func(context.Context) *engine.Snapshot { return sample }
	serve(t, s)
	if _, err := NewClient(path).Status(t.Context()); err != nil {
		t.Errorf("after the replacement: %v", err)
	}
}

// However many daemons start at the same moment over a stale socket, one wins,
// and it is the one that answers.
func TestRaceOfStarts(t *testing.T) {
	path := sockPath(t)
	for round := range 20 {
		// A stale socket: bound, closed, not removed.
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		l.Close()
		var wg sync.WaitGroup
		won := make(chan *Server, 8)
		for range 8 {
			wg.Go(func() {
				s, err := Listen(path)
				switch {
				case err == nil:
					won <- s
				case !errors.Is(err, ErrRunning):
					t.Errorf("round %d: %v", round, err)
				}
			})
		}
		wg.Wait()
		close(won)
		if len(won) != 1 {
			t.Fatalf("round %d: %d winners, want 1", round, len(won))
		}
		s := <-won
		if id, err := inodeOf(path); err != nil || id != s.socket.id {
			t.Errorf("round %d: the socket is not the winner's: %v", round, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestCloseLeavesAnothersSocketAlone(t *testing.T) {
	path := sockPath(t)
	s := mustListen(t, path)
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(path); err != nil {
		t.Errorf("Close removed what was not its own: %v", err)
	}
}

func TestListenErrors(t *testing.T) {
	path := sockPath(t)
	dir := filepath.Dir(path)
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ path, want string }{
		{"relative.sock", "not an absolute path"},
		{"", "not an absolute path"},
		{"/" + strings.Repeat("x", 107), "longer than the 107 bytes"},
		{filepath.Join(dir, "none", "s.sock"), "no such file or directory"},
		{file, "not a socket"},
		{dir, "not a socket"},
	} {
		s, err := Listen(tc.path)
		if err == nil {
			s.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("Listen(%.40q): %v, want %q", tc.path, err, tc.want)
		}
	}
	if b, _ := os.ReadFile(file); string(b) != "precious" {
		t.Errorf("the file in the way now holds %q", b)
	}
	os.Remove(dir + ".lock")
}

func TestLongestPathThatASocketMayHave(t *testing.T) {
	dir := filepath.Dir(sockPath(t))
	path := filepath.Join(dir, strings.Repeat("x", maxPath-len(dir)-1))
	s := mustListen(t, path)
	s.Status = func(context.Context) *engine.Snapshot { return sample }
	serve(t, s)
	if _, err := NewClient(path).Status(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestClientErrorsSpeakToPeople(t *testing.T) {
	path := sockPath(t)
	if _, err := NewClient(path).Status(t.Context()); !errors.Is(err, fs.ErrNotExist) || !strings.HasPrefix(err.Error(), "is sluiced running? looked for "+path) {
		t.Errorf("no socket: %v", err)
	}
	perm := NewClient(path).explain(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", unix.EACCES)}, clientTimeout)
	if !errors.Is(perm, fs.ErrPermission) || !strings.Contains(perm.Error(), "is for root") {
		t.Errorf("permission, socket not visible: %v", perm)
	}
	s := mustListen(t, path)
	defer s.Close()
	perm = NewClient(path).explain(&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", unix.EACCES)}, clientTimeout)
	if os.Getuid() == 0 && !strings.Contains(perm.Error(), "is for user root and group root; use sudo") {
		t.Errorf("permission: %v", perm)
	}
	if os.Chmod(path, 0o600) == nil && !strings.HasSuffix(audience(path), "user root") && os.Getuid() == 0 {
		t.Errorf("mode 0600 is for %q", audience(path))
	}
}

func TestClientOfASilentDaemonGivesUp(t *testing.T) {
	path := sockPath(t)
	s := mustListen(t, path) // nobody serves: connections wait
	defer s.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := NewClient(path).Status(ctx); !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "does not answer on "+path) {
		t.Errorf("deadline: %v", err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	cancel()
	if _, err := NewClient(path).Status(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

func TestClientOfAnotherVersion(t *testing.T) {
	path := sockPath(t)
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	body := `{"version":"9.0.0","generation":"many"}`
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, body) })}
	done := make(chan struct{})
	go func() { defer close(done); srv.Serve(l) }()
	defer func() { srv.Close(); <-done }()
	if _, err := NewClient(path).Status(t.Context()); !errors.Is(err, ErrVersion) {
		t.Errorf("another type: %v, want ErrVersion", err)
	}
	body = `{"version":"0.9.0","generation":7,"a_new_field":[1]}`
	if s, err := NewClient(path).Status(t.Context()); err != nil || s.Generation != 7 {
		t.Errorf("an added field: %+v, %v", s, err)
	}
}

func TestServeLetsAnswersInProgressEnd(t *testing.T) {
	path := sockPath(t)
	s := mustListen(t, path)
	ctx, cancel := context.WithCancel(t.Context())
	s.Reload = func(hook context.Context) engine.Reload {
		cancel() // the daemon is told to stop while it reloads
		return engine.Reload{OK: hook.Err() == nil}
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	r, err := NewClient(path).Reload(t.Context())
	if err != nil || !r.OK {
		t.Errorf("the answer in progress: %+v, %v", r, err)
	}
	if err := <-done; err != nil {
		t.Errorf("Serve: %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is still there: %v", err)
	}
}
