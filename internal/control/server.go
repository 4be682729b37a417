package control

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/pace"
)

// Limits of a request. Every one in this version is short, with a short body or none,
// but for a stream of events, which lifts them.
const (
	maxHeader    = 8 << 10
	maxBody      = 64 << 10
	readTimeout  = 5 * time.Second
	writeTimeout = 30 * time.Second
	// stopTimeout is what answers in progress get when the daemon stops.
	stopTimeout = 2 * time.Second
)

// Server answers on the control socket. Make one with Listen, set its hooks, then
// Serve. A hook that is nil has no path: the answer is 404.
type Server struct {
	// Status returns the present state; nil from it means that there is none yet.
	Status func(context.Context) *engine.Snapshot
	// StatusForeign is Status with the services that are not ours; nil for none.
	StatusForeign func(context.Context) *engine.Snapshot
	// Reload reads the configuration anew and returns how that ended.
	Reload func(context.Context) engine.Reload
	// Operate carries out an operator's command, and Overrides lists what is in force.
	Operate   func(context.Context, engine.Command) ([]engine.Override, error)
	Overrides func(context.Context) ([]engine.Override, error)
	// Handover has the daemon end for the next process to go on from; an error is a
	// refusal.
	Handover func(context.Context) (Handover, error)
	// Metrics answers GET /metrics, which has no version: its format has one.
	Metrics http.Handler
	// Pace is who works a state out when; nil for all at once.
	Pace *pace.Gate
	// Log is told who asked for a change; nil for nobody.
	Log *slog.Logger

	socket *socket
	routes []Route
	access atomic.Pointer[Access]
	// over is closed when the daemon stops, for streams to end.
	over <-chan struct{}
}

// Right is what a path takes.
type Right int

// Rights of who asks.
const (
	// Read: it changes nothing and asks no real server anything.
	Read Right = iota
	// Write: everything else.
	Write
)

// Route is a path that Offer adds.
type Route struct {
	// Pattern is http.ServeMux's, with the method: "GET /v1/explain".
	Pattern string
	Right   Right
	// MaxBody bounds the request's body in bytes; 0 is 64 kB.
	MaxBody int64
	Serve   http.HandlerFunc
}

// Offer adds a path before Serve. What it answers with is written by Answer, or by
// Refuse if it did nothing.
func (s *Server) Offer(r Route) { s.routes = append(s.routes, r) }

// Answer writes v as JSON with status 200.
func Answer(w http.ResponseWriter, v any) { answer(w, http.StatusOK, v) }

// Refuse writes why nothing was done: an *engine.CommandError with its own status,
// anything else with 503.
func Refuse(w http.ResponseWriter, err error) {
	if refusal, ok := errors.AsType[*engine.CommandError](err); ok {
		answer(w, statusOf[refusal.Code], refusal)
		return
	}
	answer(w, http.StatusServiceUnavailable, problem{err.Error()})
}

// Listen takes the socket's path. The error wraps ErrRunning if another daemon
// has it. A socket that a dead daemon left is replaced. Connections wait until
// Serve.
func Listen(path string) (*Server, error) {
	s, err := listen(path)
	if err != nil {
		return nil, err
	}
	return &Server{socket: s}, nil
}

// Close removes the socket. It is needed only without, and harmless after, Serve.
func (s *Server) Close() error { return s.socket.Close() }

// Serve answers until the context is done, then lets answers in progress end,
// removes the socket and returns nil.
func (s *Server) Serve(ctx context.Context) error {
	srv := s.server(ctx)
	stopped := make(chan struct{})
	unhook := context.AfterFunc(ctx, func() {
		defer close(stopped)
		stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if srv.Shutdown(stop) != nil {
			srv.Close()
		}
	})
	err := srv.Serve(&doorman{Listener: s.socket, server: s})
	if !unhook() {
		<-stopped
	}
	if errors.Is(err, http.ErrServerClosed) {
		err = nil
	}
	if err = errors.Join(err, s.socket.Close()); err != nil {
		return fmt.Errorf("serve the control socket: %w", err)
	}
	return nil
}

// server answers requests until the context is done, and ends streams then.
func (s *Server) server(ctx context.Context) *http.Server {
	s.over = ctx.Done()
	return &http.Server{
		Handler:                      s.handler(),
		MaxHeaderBytes:               maxHeader,
		ReadTimeout:                  readTimeout,
		WriteTimeout:                 writeTimeout,
		IdleTimeout:                  readTimeout,
		ErrorLog:                     slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		ConnContext:                  withPeer,
		BaseContext:                  func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
		DisableGeneralOptionsHandler: true,
	}
}

// problem is the body of every answer that is not 200.
type problem struct {
	Error string `json:"error"`
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	if s.Status != nil {
		mux.HandleFunc("GET /v1/status", s.guarded(Read, s.status))
	}
	if s.Reload != nil {
		mux.HandleFunc("POST /v1/reload", s.guarded(Write, s.reload))
	}
	if s.Operate != nil {
		mux.HandleFunc("POST /v1/operate", s.guarded(Write, s.operate))
	}
	if s.Overrides != nil {
		mux.HandleFunc("GET /v1/overrides", s.guarded(Read, s.overrides))
	}
	if s.Handover != nil {
		mux.HandleFunc("POST /v1/handover", s.guarded(Write, s.handover))
	}
	if s.Metrics != nil {
		mux.HandleFunc("GET /metrics", s.guarded(Read, s.Metrics.ServeHTTP))
	}
	bodies := map[string]int64{}
	for _, r := range s.routes {
		mux.HandleFunc(r.Pattern, s.guarded(r.Right, r.Serve))
		bodies[r.Pattern] = r.MaxBody
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		answer(w, http.StatusNotFound, problem{"there is no " + r.Method + " " + r.URL.Path})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Whoever may not even read is told so before its request is.
		if err := s.may(peerOf(r.Context()), Read); err != nil {
			w.Header().Set("Connection", "close")
			answer(w, http.StatusForbidden, problem{err.Error()})
			return
		}
		_, pattern := mux.Handler(r)
		r.Body = http.MaxBytesReader(w, r.Body, max(bodies[pattern], maxBody))
		// Read to its end, so that a body that is too long is refused before
		// anything is done.
		body, err := io.ReadAll(r.Body)
		if err != nil {
			answer(w, http.StatusRequestEntityTooLarge, problem{"the request's body could not be read: " + err.Error()})
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		mux.ServeHTTP(w, r)
	})
}

func (s *Server) status(w http.ResponseWriter, r *http.Request) {
	read := s.Status
	if r.URL.Query().Has(string(Foreign)) && s.StatusForeign != nil {
		read = s.StatusForeign
	}
	snap := read(r.Context())
	if snap == nil {
		answer(w, http.StatusServiceUnavailable, problem{"sluiced is still starting"})
		return
	}
	var b []byte
	s.Pace.Step(func() { b = encoded(snap) })
	write(w, http.StatusOK, b)
}

func (s *Server) reload(w http.ResponseWriter, r *http.Request) {
	if s.Log != nil {
		uid, pid := peer(r.Context())
		s.Log.Info("Reload asked for over the control socket", event.Key, event.Asked, "uid", uid, "pid", pid)
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(longTimeout))
	answer(w, http.StatusOK, s.Reload(r.Context()))
}

func answer(w http.ResponseWriter, code int, v any) { write(w, code, encoded(v)) }

// encoded is nil for what cannot be.
func encoded(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		return nil
	}
	return b
}

func write(w http.ResponseWriter, code int, b []byte) {
	if b == nil {
		code, b = http.StatusInternalServerError, []byte(`{"error":"the answer could not be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// An error here is the client's departure.
	_, _ = w.Write(append(b, '\n'))
}
