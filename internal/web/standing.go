package web

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
)

// standingFor is how long the state of virtual servers counts for /readyz and /vs.
const standingFor = 250 * time.Millisecond

// Applied says that the configuration is applied and the table written, or known not
// to be writable for now.
func (s *Server) Applied() { s.applied.Store(true) }

// Withdraw has /readyz and every /vs/NAME answer 503 from now on, with that reason.
func (s *Server) Withdraw(reason string) { s.withdrawn.Store(&reason) }

// standings is what was last read, with an index of names that lasts as long as the
// configuration.
type standings struct {
	mu    sync.Mutex
	at    time.Time
	last  *engine.Snapshot
	names map[string][]int
	// of is the configuration that names are of.
	of uint64
}

func (t *standings) read(overview func() *engine.Snapshot) (*engine.Snapshot, map[string][]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.last == nil || time.Since(t.at) >= standingFor {
		t.last, t.at = overview(), time.Now()
		if t.names == nil || t.of != t.last.Generation {
			t.names, t.of = index(t.last.VirtualServers), t.last.Generation
		}
	}
	return t.last, t.names
}

// index finds virtual servers by every name that they have, in lower case.
func index(vss []engine.VirtualServer) map[string][]int {
	names := make(map[string][]int, 4*len(vss))
	for i := range vss {
		vs := &vss[i]
		all := []string{vs.Name, vs.Label, vs.Group}
		if vs.Group != "" && vs.Protocol != "" {
			all = append(all, vs.Group+"/"+vs.Protocol, vs.Name+"/"+vs.Protocol)
		}
		for _, svc := range vs.Services {
			name := svc.Key.String()
			all = append(all, name)
			if bare, _, ok := strings.Cut(name, "/"); ok { // without protocol or family
				all = append(all, bare)
			}
		}
		for _, name := range all {
			name = strings.ToLower(name)
			if name != "" && !slices.Contains(names[name], i) {
				names[name] = append(names[name], i)
			}
		}
	}
	return names
}

// Readiness is what /readyz answers as JSON.
type Readiness struct {
	// Ready: the director may be sent traffic. The answer's status is 200, else 503.
	Ready  bool   `json:"ready"`
	Reason string `json:"reason,omitempty"` // why it may not
}

// Standing is what /vs/NAME answers as JSON: whether a virtual server may be sent traffic.
type Standing struct {
	VirtualServer string `json:"virtual_server"` // keepalived's name of it
	// Label is what its people call it.
	Label string `json:"label,omitempty"`
	// Protocol tells those apart that share a name; "" for a mark.
	Protocol string `json:"protocol,omitempty"`
	// Status is 200 if it may, else 503. It is the answer's, but for a list, whose is 200.
	Status   int    `json:"status"`
	Reason   string `json:"reason"`    // why it may, or may not
	QuorumUp bool   `json:"quorum_up"` // enough weight is alive
	// Alive is the weight that is alive, Quorum what it takes.
	Alive  int64     `json:"alive_weight"`
	Quorum uint32    `json:"quorum"`
	Since  time.Time `json:"since"` // when quorum_up changed last
}

// Misnamed is what /vs/NAME answers as JSON if that is no virtual server's name, or that
// of several.
type Misnamed struct {
	// Status is the answer's: 404 if there is none, 409 if there are several.
	Status int    `json:"status"`
	Error  string `json:"error"` // what is wrong with the name
	// Candidates are the names of those that may be meant, with the protocol where it takes that.
	Candidates []string `json:"candidates,omitempty"`
}

// stands judges one virtual server. A director that is passive is to get no traffic from
// the first moment, though its services are still there.
func (s *Server) stands(snap *engine.Snapshot, i int) Standing {
	vs, passive := &snap.VirtualServers[i], snap.Passive != nil && snap.Passive.On
	a := Standing{VirtualServer: vs.Name, Label: vs.Label, Protocol: vs.Protocol, Status: http.StatusServiceUnavailable, QuorumUp: vs.QuorumUp, Alive: vs.Alive, Quorum: vs.Quorum, Since: vs.Since}
	closed := s.closed()
	switch {
	case closed != "":
		a.Reason = closed
	case passive:
		a.Reason = "passive: this director withholds its services"
	case vs.Suspended:
		a.Reason = "suspended: its address is not on this host"
	case !vs.QuorumUp:
		a.Reason = fmt.Sprintf("no quorum: weight %d alive, %d needed", vs.Alive, vs.Quorum)
	case !inTable(vs):
		a.Reason = "not in the kernel's table"
	default:
		a.Status, a.Reason = http.StatusOK, fmt.Sprintf("quorum: weight %d alive, %d needed", vs.Alive, vs.Quorum)
	}
	return a
}

// inTable reports whether each service that should have somebody to serve has. Of those
// that hold what they should nothing is told here.
func inTable(vs *engine.VirtualServer) bool {
	for _, svc := range vs.Services {
		wanted, there := false, len(svc.Destinations) == 0
		for _, d := range svc.Destinations {
			wanted = wanted || d.Wanted > 0
			there = there || d.Kernel > 0
		}
		if wanted && !there {
			return false
		}
	}
	return true
}

// closed is why nothing here should be sent any traffic, "" if it may.
func (s *Server) closed() string {
	if why := s.withdrawn.Load(); why != nil {
		return *why
	}
	if !s.applied.Load() {
		return "starting: the table is not written yet"
	}
	return ""
}

// passiveBy says who withholds the services.
func passiveBy(p *engine.Passive) string {
	var who []string
	for i := range p.Sources {
		by := p.Sources[i].Who
		if why := p.Sources[i].Why; why != "" {
			by += " (" + why + ")"
		}
		who = append(who, by)
	}
	return "passive: services are withheld, by " + strings.Join(who, " and by ")
}

func (s *Server) readyz(w http.ResponseWriter, r *http.Request) {
	why := s.closed()
	if why == "" && s.Overview != nil {
		snap, _ := s.standings.read(s.Overview)
		if !snap.Kernel.OK && !snap.Observe {
			why = "the kernel's table cannot be written: " + snap.Kernel.Error
		}
		if p := snap.Passive; p != nil && p.On {
			why = passiveBy(p)
		}
	}
	if why == "" {
		if err := s.health.ask(r.Context(), s.Healthy); err != nil {
			why = err.Error()
		}
	}
	code := http.StatusOK
	if why != "" {
		code = http.StatusServiceUnavailable
	}
	if wantsJSON(r) {
		answerJSON(w, code, Readiness{why == "", why})
		return
	}
	if why == "" {
		why = "ready"
	}
	answerText(w, code, why)
}

func (s *Server) virtualServer(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	snap, names := s.standings.read(s.Overview)
	if name == "" {
		s.virtualServers(w, r, snap)
		return
	}
	found := names[strings.ToLower(name)]
	switch len(found) {
	case 1:
	case 0:
		s.notOne(w, r, http.StatusNotFound, fmt.Sprintf("there is no virtual server %q", name), nil)
		return
	default:
		var candidates []string
		for _, i := range found {
			c := snap.VirtualServers[i].Name
			if len(names[strings.ToLower(c)]) > 1 {
				c += "/" + snap.VirtualServers[i].Protocol
			}
			candidates = append(candidates, c)
		}
		s.notOne(w, r, http.StatusConflict, fmt.Sprintf("%q may be any of %d", name, len(found)), candidates)
		return
	}
	a := s.stands(snap, found[0])
	if wantsJSON(r) {
		answerJSON(w, a.Status, a)
		return
	}
	answerText(w, a.Status, a.VirtualServer+" "+a.Reason)
}

// virtualServers lists all, with 200 whatever their state.
func (s *Server) virtualServers(w http.ResponseWriter, r *http.Request, snap *engine.Snapshot) {
	if wantsJSON(r) {
		all := make([]Standing, 0, len(snap.VirtualServers))
		for i := range snap.VirtualServers {
			all = append(all, s.stands(snap, i))
		}
		answerJSON(w, http.StatusOK, all)
		return
	}
	var b strings.Builder
	for i := range snap.VirtualServers {
		a := s.stands(snap, i)
		b.WriteString(strconv.Itoa(a.Status) + " " + a.VirtualServer)
		if a.Label != "" {
			b.WriteString(" (" + a.Label + ")")
		}
		b.WriteString(" " + a.Reason + "\n")
	}
	answerText(w, http.StatusOK, strings.TrimSuffix(b.String(), "\n"))
}

func (s *Server) notOne(w http.ResponseWriter, r *http.Request, code int, text string, candidates []string) {
	if wantsJSON(r) {
		answerJSON(w, code, Misnamed{code, text, candidates})
		return
	}
	if len(candidates) > 0 {
		text += ": " + strings.Join(candidates, ", ")
	}
	answerText(w, code, text)
}

func wantsJSON(r *http.Request) bool {
	if f := r.URL.Query().Get("format"); f != "" {
		return f == "json"
	}
	return strings.Contains(r.Header.Get("Accept"), "application/json")
}

func answerText(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_, _ = io.WriteString(w, text+"\n")
}

func answerJSON(w http.ResponseWriter, code int, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		code, b = http.StatusInternalServerError, []byte(`{"error":"the answer could not be encoded"}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	// An error here is the client's departure.
	_, _ = w.Write(append(b, '\n'))
}

// healthz tells whether the daemon's loop answers. During a stop in order it does not
// turn, and nobody should be killed for that.
func (s *Server) healthz(w http.ResponseWriter, r *http.Request) {
	if why := s.withdrawn.Load(); why != nil {
		answerText(w, http.StatusOK, "ok, "+*why)
		return
	}
	if err := s.health.ask(r.Context(), s.Healthy); err != nil {
		answerText(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	answerText(w, http.StatusOK, "ok")
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
