// Package web serves monitoring over HTTP where http_listen says.
//
// It decides how long a client may take, and that whatever is wrong with the
// listener is no reason to stop: an address that cannot be listened on (not there
// yet, or taken) is said once, tried again with growing pauses, and said again when
// it works. It deliberately knows nothing of what it serves.
//
// There is no access control here and nothing that changes anything: who may connect
// is the address's and the packet filter's business. /healthz is answered from one
// question to the daemon at a time, and not more often than once a second, so that
// no number of clients is a load on what decides.
package web

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/net/netutil"
)

// Limits of a connection. Requests have no body.
const (
	maxHeader    = 8 << 10
	readTimeout  = 5 * time.Second
	writeTimeout = 30 * time.Second
	idleTimeout  = 2 * time.Minute
	// maxClients are the connections that are served; more wait in the backlog.
	maxClients = 64
	// stopTimeout is what answers in progress get when the listener is closed.
	stopTimeout = 2 * time.Second

	retryMin = time.Second
	retryMax = 30 * time.Second
)

// Server serves on one address, or on none. Its zero value with Log set is ready.
type Server struct {
	Log *slog.Logger
	// Metrics answers GET /metrics; nil for 404.
	Metrics http.Handler
	// Healthy tells whether the daemon is; nil if it always is.
	Healthy func(context.Context) error

	mu     sync.Mutex
	wanted netip.AddrPort
	// changed has room for one: Run looks at wanted anew.
	changed chan struct{}
	health  health
}

func (s *Server) signal() chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{}, 1)
	}
	return s.changed
}

// Configure says where to listen from now on; the zero value is nowhere.
func (s *Server) Configure(at netip.AddrPort) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at == s.wanted {
		return
	}
	s.wanted = at
	select {
	case s.signal() <- struct{}{}:
	default:
	}
}

// Run serves until the context is done.
func (s *Server) Run(ctx context.Context) {
	s.mu.Lock()
	changed := s.signal()
	s.mu.Unlock()
	var (
		at    netip.AddrPort
		live  *listening
		pause time.Duration
		again <-chan time.Time
		said  string
	)
	defer func() { live.stop(ctx) }()
	for {
		s.mu.Lock()
		wanted := s.wanted
		s.mu.Unlock()
		if wanted != at {
			live.stop(ctx)
			live, at, pause, said = nil, wanted, 0, ""
		}
		again = nil
		if at.IsValid() && live == nil {
			var err error
			if live, err = s.listen(ctx, at); err != nil {
				pause = min(max(2*pause, retryMin), retryMax)
				again = time.After(pause)
				if said != err.Error() {
					said = err.Error()
					s.Log.Error("http_listen does not work, the rest goes on; it is tried again until it does. Free the address, or give another one and reload", "http_listen", at, "err", err)
				}
			} else {
				s.Log.Info("Metrics are served over HTTP", "http_listen", at)
				pause, said = 0, ""
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		case err := <-live.failed():
			s.Log.Error("The HTTP listener has failed, it is opened again", "http_listen", at, "err", err)
			live.stop(ctx)
			live = nil
		}
	}
}

// listening is an open listener.
type listening struct {
	srv  *http.Server
	over chan error
}

func (s *Server) listen(ctx context.Context, at netip.AddrPort) (*listening, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, err
	}
	live := &listening{over: make(chan error, 1), srv: &http.Server{
		Handler:           s.Handler(),
		MaxHeaderBytes:    maxHeader,
		ReadTimeout:       readTimeout,
		ReadHeaderTimeout: readTimeout,
		WriteTimeout:      writeTimeout,
		IdleTimeout:       idleTimeout,
		ErrorLog:          slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		BaseContext:       func(net.Listener) context.Context { return context.WithoutCancel(ctx) },
	}}
	go func() { live.over <- live.srv.Serve(netutil.LimitListener(l, maxClients)) }()
	return live, nil
}

// failed is never ready without a listener.
func (l *listening) failed() <-chan error {
	if l == nil {
		return nil
	}
	return l.over
}

// stop lets answers in progress end.
func (l *listening) stop(ctx context.Context) {
	if l == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	if err := l.srv.Shutdown(ctx); err != nil && !errors.Is(err, http.ErrServerClosed) {
		// What is left are clients that do not read.
		_ = l.srv.Close()
	}
}
