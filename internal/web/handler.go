package web

import (
	"context"
	"io"
	"net/http"
	"sync"
	"time"
)

const (
	// healthTimeout bounds the question that /healthz asks.
	healthTimeout = 2 * time.Second
	// healthFor is how long an answer counts.
	healthFor = time.Second
)

// Handler is what is served.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	if s.Metrics != nil {
		mux.Handle("GET /metrics", s.Metrics)
	}
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		if err := s.health.ask(r.Context(), s.Healthy); err != nil {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, err.Error()+"\n")
			return
		}
		_, _ = io.WriteString(w, "ok\n")
	})
	return mux
}

// health is the last answer and when it was given.
type health struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

func (h *health) ask(ctx context.Context, healthy func(context.Context) error) error {
	if healthy == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.at.IsZero() && time.Since(h.at) < healthFor {
		return h.err
	}
	// Others wait for this answer, so that it must not end with one client.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), healthTimeout)
	defer cancel()
	h.err = healthy(ctx)
	h.at = time.Now()
	return h.err
}
