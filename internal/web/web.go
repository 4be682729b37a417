// Package web serves the dashboard, health and monitoring over HTTP where http_listen
// says.
//
// It decides how long a client may take, and that whatever is wrong with the
// listener is no reason to stop: an address that cannot be listened on (not there
// yet, or taken) is said once, tried again with growing pauses, and said again when
// it works. Who may connect is the address's and the packet filter's business.
//
// # What looking costs
//
// No number of clients is a load on what decides. The loop is asked by /healthz alone,
// by one question at a time and not more than one a second. /readyz and /vs/NAME are
// answered from what the engine published, of which the heads are read at most four
// times a second: what announces an address should not learn late. The dashboard reads
// everything, with the kernel's counters, at most every two seconds, and only when
// somebody looks; all who do share that. One page is made at a time, so that the checks
// keep a processor.
//
// # Health
//
// /healthz is about the daemon: restart it if it fails. /readyz and /vs/NAME are about
// traffic: send none while they fail. They fail before the table is written, when it
// cannot be, and from the moment at which a planned stop begins, which goes on to serve
// and to check for withdraw_delay so that what announces the addresses comes first. In
// a stop in order /healthz says ok, since nobody should be killed for draining. A
// handover withdraws nothing: the table stays and the next process goes on.
//
// # The page
//
// It is whole without JavaScript: links and forms, no row that only a script could
// show. The script asks for the same address again and changes what differs, so that
// focus, scroll position and open details stay. Everything comes from the binary, under
// a Content-Security-Policy without exceptions. A page has some two hundred rows at
// most, whatever the configuration: pools page, and a pool that is large shows its
// worst servers and leads to a page of its own. States are told by word and symbol,
// never by colour alone.
//
// # Changing something
//
// Nothing here changes anything unless http_admin names a token. Then programs send it
// with each request, and people make a session of it, whose cookie is of no use to
// other sites (SameSite, and the origin of each request is looked at). The token is not
// kept but its digest, in which it is also compared; another token ends all sessions.
// Wrong ones are counted by address.
package web

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/net/netutil"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/pace"
)

// Limits of a connection. Requests are short.
const (
	maxHeader    = 8 << 10
	readTimeout  = 5 * time.Second
	writeTimeout = 30 * time.Second
	idleTimeout  = 2 * time.Minute
	// maxClients are the connections that are served; more wait in the backlog.
	maxClients = 256
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
	// Overview is the engine's: what /readyz and /vs are answered from; nil for neither
	// to know of any virtual server.
	Overview func() *engine.Snapshot
	// Status is the engine's, with the kernel's counters: the dashboard; nil for 404.
	Status func(context.Context) *engine.Snapshot
	// Events are the last ones, for the dashboard; nil for none.
	Events Events
	// Operate carries out an operator's command, for those with the token of http_admin;
	// nil for nobody.
	Operate func(context.Context, engine.Command) ([]engine.Override, error)
	// Healthy tells whether the daemon is; nil if it always is.
	Healthy func(context.Context) error
	// Pace is who works a page out when; nil for all at once.
	Pace *pace.Gate

	mu     sync.Mutex
	wanted netip.AddrPort
	// changed has room for one: Run looks at wanted anew.
	changed chan struct{}
	health  health

	applied   atomic.Bool
	withdrawn atomic.Pointer[string]
	standings standings
	sights    sights
	admin     admin
	hostOnce  sync.Once
	hostName  string
}

// Events remember what happened last.
type Events interface {
	// Since returns the events after a sequence number, at most limit of the newest,
	// oldest first, and how many are forgotten.
	Since(seq uint64, limit int) ([]event.Event, uint64)
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
					s.Log.Error("http_listen does not work, the rest goes on; it is tried again until it does. Free the address, or give another one and reload", event.Key, event.HTTPFailed, "http_listen", at, "err", err)
				}
			} else {
				s.Log.Info("The dashboard and metrics are served over HTTP", event.Key, event.HTTPServed, "http_listen", at)
				pause, said = 0, ""
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		case err := <-live.failed():
			s.Log.Error("The HTTP listener has failed, it is opened again", event.Key, event.HTTPFailed, "http_listen", at, "err", err)
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
