package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// lines is a log that can be waited for.
type lines struct {
	mu      sync.Mutex
	b       bytes.Buffer
	changed chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
	return l.b.Write(p)
}

// await returns once the text stands in the log n times.
func (l *lines) await(t *testing.T, n int, text string) {
	t.Helper()
	timeout := time.After(20 * time.Second)
	for {
		l.mu.Lock()
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		all, changed := l.b.String(), l.changed
		l.mu.Unlock()
		if strings.Count(all, text) >= n {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("no %q %d times in the log:\n%s", text, n, all)
		}
	}
}

func (l *lines) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), text)
}

func run(t *testing.T, s *Server) *lines {
	t.Helper()
	log := &lines{}
	s.Log = slog.New(slog.NewTextHandler(log, nil))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return log
}

// free is an address on which nothing listens, with a listener that has it until it
// is closed.
func free(t *testing.T) (netip.AddrPort, net.Listener) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return netip.MustParseAddrPort(l.Addr().String()), l
}

func get(t *testing.T, at netip.AddrPort, path string) (int, string) {
	t.Helper()
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	r, err := c.Get(fmt.Sprintf("http://%s%s", at, path))
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func TestTwoPathsAndNoMore(t *testing.T) {
	at, l := free(t)
	l.Close()
	s := &Server{Metrics: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "x 1\n") })}
	s.Configure(at)
	run(t, s).await(t, 1, "served over HTTP")
	for path, want := range map[string]int{"/metrics": 200, "/healthz": 200, "/": 404, "/v1/status": 404, "/debug/pprof/": 404} {
		if code, body := get(t, at, path); code != want {
			t.Errorf("%s: %d %s, want %d", path, code, body, want)
		}
	}
	r, err := http.Post("http://"+at.String()+"/metrics", "text/plain", nil)
	if err != nil || r.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %v %v", r, err)
	}
	r.Body.Close()
	http.DefaultClient.CloseIdleConnections()
}

// TestAnAddressThatIsTakenIsTriedAgain and said once, with what to do.
func TestAnAddressThatIsTakenIsTriedAgain(t *testing.T) {
	at, l := free(t)
	s := &Server{}
	s.Configure(at)
	log := run(t, s)
	log.await(t, 1, "http_listen does not work")
	log.await(t, 1, "address already in use")
	l.Close()
	log.await(t, 1, "served over HTTP")
	if code, body := get(t, at, "/healthz"); code != 200 || body != "ok\n" {
		t.Errorf("%d %s", code, body)
	}
	if n := log.count("does not work"); n != 1 {
		t.Errorf("said %d times", n)
	}
}

// TestConfigureMovesAndEndsTheListener.
func TestConfigureMovesAndEndsTheListener(t *testing.T) {
	one, l1 := free(t)
	two, l2 := free(t)
	l1.Close()
	l2.Close()
	s := &Server{}
	log := run(t, s)
	s.Configure(one)
	log.await(t, 1, "served over HTTP")
	s.Configure(two)
	log.await(t, 2, "served over HTTP")
	if code, _ := get(t, one, "/healthz"); code != 0 {
		t.Errorf("the old address answers %d", code)
	}
	if code, _ := get(t, two, "/healthz"); code != 200 {
		t.Errorf("the new address answers %d", code)
	}
	// An address that is configured already is not opened anew.
	s.Configure(two)
	s.Configure(netip.AddrPort{})
	testkit.Eventually(t, 20*time.Second, func() string {
		if code, _ := get(t, two, "/healthz"); code != 0 {
			return fmt.Sprintf("it still answers %d", code)
		}
		return ""
	})
	if n := log.count("served over HTTP"); n != 2 {
		t.Errorf("opened %d times", n)
	}
}

// TestASilentClientIsCutOff: one that sends nothing holds a connection for
// readTimeout alone.
func TestASilentClientIsCutOff(t *testing.T) {
	at, l := free(t)
	l.Close()
	s := &Server{}
	s.Configure(at)
	run(t, s).await(t, 1, "served over HTTP")
	c, err := net.Dial("tcp", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(4 * readTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write([]byte("GET /healthz HTTP/1.1\r\n")); err != nil {
		t.Fatal(err)
	}
	// Whatever it is told before, the connection ends.
	if _, err := io.ReadAll(c); err != nil {
		t.Errorf("it is still connected: %v", err)
	}
}

// TestHealthIsAskedOnceASecond, however many ask, and tells of a failure.
func TestHealthIsAskedOnceASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h health
		asked := 0
		var answer error
		ask := func() error {
			return h.ask(t.Context(), func(ctx context.Context) error {
				asked++
				if answer != nil {
					<-ctx.Done()
				}
				return answer
			})
		}
		for range 100 {
			if err := ask(); err != nil {
				t.Fatal(err)
			}
		}
		if asked != 1 {
			t.Errorf("asked %d times", asked)
		}
		time.Sleep(healthFor)
		answer = errors.New("the loop stands")
		begun := time.Now()
		if err := ask(); !errors.Is(err, answer) {
			t.Errorf("got %v", err)
		}
		if took := time.Since(begun); took != healthTimeout {
			t.Errorf("took %v", took)
		}
		time.Sleep(healthFor)
		answer = nil
		if err := ask(); err != nil {
			t.Errorf("got %v after it was mended", err)
		}
	})
}
