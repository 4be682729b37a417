package metrics

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/pace"
)

// answerTo is what the handler says to one scrape.
func answerTo(h http.Handler, encoding string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/metrics", nil)
	if encoding != "" {
		r.Header.Set("Accept-Encoding", encoding)
	}
	h.ServeHTTP(w, r)
	return w
}

func handlerOf(e *engine.Engine, detail config.MetricsDetail) http.Handler {
	gate := pace.New()
	return Handler(func() Reading {
		if detail == config.MetricsServer {
			return Reading{e.Snapshot(), detail, &Told{}, gate}
		}
		return Reading{e.Overview(), detail, &Told{}, gate}
	})
}

// TestAllDetailIsCompressedForWhoAcceptsThat and says the same.
func TestAllDetailIsCompressedForWhoAcceptsThat(t *testing.T) {
	e, _ := served(t, farm(3, 3))
	h := handlerOf(e, config.MetricsServer)
	plain := answerTo(h, "")
	lint(t, plain.Body.String())
	for range 3 { // what compresses is used again
		w := answerTo(h, "deflate, gzip;q=0.5")
		if w.Header().Get("Content-Encoding") != "gzip" || w.Body.Len()*3 > plain.Body.Len() {
			t.Fatalf("%v, %d bytes of %d", w.Header(), w.Body.Len(), plain.Body.Len())
		}
		z, err := gzip.NewReader(w.Body)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := bytes.Count(body, []byte("\n")), bytes.Count(plain.Body.Bytes(), []byte("\n")); got != want {
			t.Errorf("%d lines, want %d", got, want)
		}
		lint(t, string(body))
	}
	for _, encoding := range []string{"", "br", "gzip;q=0", "gzip; q=0.000", "xgzip"} {
		if w := answerTo(h, encoding); w.Header().Get("Content-Encoding") != "" || w.Body.Len() < 1000 {
			t.Errorf("%q: %v", encoding, w.Header())
		}
	}
	if w := answerTo(handlerOf(e, config.MetricsService), "gzip"); w.Header().Get("Content-Encoding") != "" {
		t.Error("the default set is compressed: that costs more than it saves")
	}
}

// TestTenThousandServersScrapeInTime: all detail within 200 ms. It is processor time
// that is held to that, for this machine may do other things too.
func TestTenThousandServersScrapeInTime(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector's time says nothing of the program's")
	}
	e := written(t, farm(100, 100))
	for _, detail := range []config.MetricsDetail{config.MetricsService, config.MetricsServer} {
		for _, encoding := range []string{"", "gzip"} {
			best, wall, size := time.Hour, time.Hour, 0
			h := handlerOf(e, detail)
			for range 5 {
				begun, used := time.Now(), cpu(t)
				size = answerTo(h, encoding).Body.Len()
				best, wall = min(best, cpu(t)-used), min(wall, time.Since(begun))
			}
			if detail == config.MetricsServer && encoding == "" && size < 1<<20 {
				t.Fatalf("%d bytes: that is not all", size)
			}
			t.Logf("detail %v, encoding %q: %v of processor time, %v, %d bytes", detail, encoding, best, wall.Round(10*time.Microsecond), size)
			if best > 200*time.Millisecond {
				t.Errorf("detail %v, encoding %q: %v", detail, encoding, best)
			}
		}
	}
}

// cpu is the processor time that this process has used.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	p, err := ReadProcess()
	if err != nil {
		t.Fatal(err)
	}
	return p.CPU
}

// TestASlowClientKeepsNobodyWaiting: others have their turn while it reads, and it is
// over when it leaves.
func TestASlowClientKeepsNobodyWaiting(t *testing.T) {
	for _, encoding := range []string{"", "gzip"} {
		gate := pace.New()
		s := everything()
		h := Handler(func() Reading { return Reading{s, config.MetricsServer, &Told{}, gate} })
		stuck, release := make(chan struct{}), make(chan struct{})
		r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
		r.Header.Set("Accept-Encoding", encoding)
		done := make(chan struct{})
		go func() {
			defer close(done)
			h.ServeHTTP(&slow{ResponseRecorder: httptest.NewRecorder(), stuck: stuck, release: release}, r)
		}()
		<-stuck
		gate.Step(func() {}) // would wait for ever
		close(release)
		<-done
		gate.Step(func() {})
	}
}

// slow is a client that does not read before it is told to.
type slow struct {
	*httptest.ResponseRecorder
	once           sync.Once
	stuck, release chan struct{}
}

func (s *slow) Write(b []byte) (int, error) {
	s.once.Do(func() { close(s.stuck) })
	<-s.release
	return s.ResponseRecorder.Write(b)
}
