package web

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// farm is a snapshot of so many virtual servers with so many real servers each, all of
// them up.
func farm(pools, servers int) *engine.Snapshot {
	now := time.Now()
	s := &engine.Snapshot{Version: "1.2", Started: now.Add(-time.Hour), At: now, ConfigFile: "/etc/sluice.conf", Generation: 3,
		Reload: engine.Reload{At: now.Add(-time.Minute), OK: true}, Kernel: engine.Kernel{OK: true, Since: now, Operations: 7}}
	for v := range pools {
		k := ipvs.ServiceKey{Family: ipvs.INET, Protocol: ipvs.TCP, Addr: netip.AddrFrom4([4]byte{192, 0, byte(v >> 8), byte(v)}), Port: 80}
		vs := engine.VirtualServer{Name: fmt.Sprintf("[%s]:tcp:80", k.Addr), Label: fmt.Sprintf("shop-%04d", v), Protocol: "TCP", Scheduler: "wlc",
			Quorum: 1, Alive: int64(servers), QuorumUp: true, Since: now.Add(-time.Hour)}
		svc := engine.Service{Name: k.String(), Key: k}
		for r := range servers {
			at := fmt.Sprintf("10.%d.%d.%d:8080", v%250, r/250, r%250)
			vs.RealServers = append(vs.RealServers, engine.RealServer{Address: at, Label: fmt.Sprintf("web-%d", r), State: engine.StateUp, Reason: "all checks pass",
				Since: now.Add(-time.Hour), Method: "NAT", WeightConfigured: 1, WeightWanted: 1,
				Checkers: []engine.Checker{{Kind: "HTTP_GET", Target: "http://" + at + "/health", Verdict: "up", Last: "ok", LastAt: now.Add(-3 * time.Second), Took: 1700 * time.Microsecond, Next: now.Add(time.Hour), Limit: 4}}})
			svc.Destinations = append(svc.Destinations, engine.Destination{Address: at, Wanted: 1, Kernel: 1, Active: 12, Inactive: 3})
		}
		vs.Services = []engine.Service{svc}
		s.VirtualServers = append(s.VirtualServers, vs)
	}
	return s
}

// fail has the checks of a real server fail.
func fail(s *engine.Snapshot, v, r int, reason string) {
	vs := &s.VirtualServers[v]
	rs := &vs.RealServers[r]
	rs.State, rs.Reason, rs.WeightWanted = engine.StateDown, "HTTP_GET: "+reason, -1
	rs.Checkers[0].Verdict, rs.Checkers[0].Last, rs.Checkers[0].LastReason, rs.Checkers[0].Failures = "down", "failed", reason, 4
	at := rs.Address
	for i, d := range vs.Services[0].Destinations {
		if d.Address == at {
			vs.Services[0].Destinations = append(vs.Services[0].Destinations[:i:i], vs.Services[0].Destinations[i+1:]...)
			break
		}
	}
	if vs.Alive--; vs.Alive < int64(vs.Quorum) {
		vs.QuorumUp = false
	}
}

// site is a server over a snapshot that a test may change.
type site struct {
	*Server
	*testing.T
	h   http.Handler
	log *lines
	mu  sync.Mutex
	// reads counts how often the snapshot was asked for.
	reads    int
	snapshot *engine.Snapshot
	commands []engine.Command
	refusal  error
}

func newSite(t *testing.T, snap *engine.Snapshot) *site {
	s := &site{T: t, snapshot: snap, log: &lines{}}
	read := func() *engine.Snapshot {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.reads++
		return s.snapshot
	}
	s.Server = &Server{
		Log: slog.New(slog.NewTextHandler(s.log, nil)), Overview: read,
		Status: func(context.Context) *engine.Snapshot { return read() },
		Operate: func(_ context.Context, c engine.Command) ([]engine.Override, error) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.commands = append(s.commands, c)
			return []engine.Override{{VS: c.VS, Server: c.RS, Kind: c.Verb, Who: c.Who}}, s.refusal
		},
	}
	s.Applied()
	s.h = s.Handler()
	return s
}

func (s *site) set(snap *engine.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshot = snap
	s.sights.forget()
	s.standings.last = nil
}

// answer is what a request got.
type answer struct {
	*http.Response
	body string
}

func (s *site) do(method, path, body string, header ...string) answer {
	s.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	if body != "" {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, r)
	b, err := io.ReadAll(w.Result().Body)
	if err != nil {
		s.Fatal(err)
	}
	return answer{w.Result(), string(b)}
}

func (s *site) get(path string, header ...string) answer {
	s.Helper()
	return s.do(http.MethodGet, path, "", header...)
}

func (a answer) want(t *testing.T, code int, parts ...string) {
	t.Helper()
	if a.StatusCode != code {
		t.Errorf("%s: status %d, want %d: %s", a.Header, a.StatusCode, code, a.body)
	}
	for _, part := range parts {
		if !strings.Contains(a.body, part) {
			t.Errorf("no %q in\n%s", part, a.body)
		}
	}
}

func (a answer) without(t *testing.T, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if strings.Contains(a.body, part) {
			t.Errorf("there is %q in\n%s", part, a.body)
		}
	}
}

// told are events.
type told []event.Event

func (e told) Since(seq uint64, limit int) ([]event.Event, uint64) {
	return e[max(0, len(e)-limit):], 0
}
