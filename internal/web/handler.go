package web

import (
	"net/http"
	"os"
	"time"
)

const (
	// healthTimeout bounds the question that /healthz asks.
	healthTimeout = 2 * time.Second
	// healthFor is how long an answer counts.
	healthFor = time.Second
	// maxForm bounds the body of a form.
	maxForm = 8 << 10
)

// policy lets a page load what is this listener's own and nothing else: no inline
// script or style, no frame around it, no form that leads elsewhere.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Handler is what is served.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	if s.Metrics != nil {
		mux.Handle("GET /metrics", s.Metrics)
	}
	mux.HandleFunc("GET /healthz", s.healthz)
	mux.HandleFunc("GET /readyz", s.readyz)
	if s.Overview != nil {
		mux.HandleFunc("GET /vs/{name...}", s.virtualServer)
	}
	if s.Status != nil {
		mux.HandleFunc("GET /{$}", s.dashboard)
		mux.HandleFunc("GET /static/", serveAsset)
	}
	if s.Operate != nil {
		s.adminPaths(mux)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		r.Body = http.MaxBytesReader(w, r.Body, maxForm)
		mux.ServeHTTP(w, r)
	})
}

// host names this machine on the page.
func (s *Server) host() string {
	s.hostOnce.Do(func() { s.hostName, _ = os.Hostname() })
	return s.hostName
}
