package web

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"html/template"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/event"
)

//go:embed static
var static embed.FS

// pages are read when somebody looks: a daemon without http_listen has no memory for
// them.
var pages = sync.OnceValue(func() *template.Template {
	return template.Must(template.ParseFS(static, "static/*.html"))
})

// assets are what pages refer to, by path. Their addresses carry their content's
// digest, so that a browser keeps them until a new version has others.
var assets = sync.OnceValue(func() map[string]asset {
	return map[string]asset{
		"/static/style.css": load("style.css", "text/css; charset=utf-8"),
		"/static/page.js":   load("page.js", "text/javascript; charset=utf-8"),
		"/static/icon.svg":  load("icon.svg", "image/svg+xml"),
	}
})

type asset struct {
	body []byte
	kind string
	// Address is its path with the digest.
	Address string
}

func load(name, kind string) asset {
	b, err := static.ReadFile("static/" + name)
	if err != nil {
		panic(err) // it is embedded
	}
	sum := sha256.Sum256(b)
	return asset{b, kind, "/static/" + name + "?" + hex.EncodeToString(sum[:6])}
}

func serveAsset(w http.ResponseWriter, r *http.Request) {
	a, ok := assets()[r.URL.Path]
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", a.kind)
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	_, _ = w.Write(a.body)
}

// eventsShown are the last ones on the page.
const eventsShown = 15

// fragmentHeader asks for the part of the page that changes.
const fragmentHeader = "Sluice-Fragment"

// page is what the template gets: all of it text that needs no more than escaping.
type page struct {
	Style, Script, Icon, Host string
	Title                     string
	Fragment                  bool

	S                *engine.Snapshot
	Started, At      string
	Uptime, ReloadAt moment
	KernelSince      moment
	Overdue          string
	Quorum, Pools    int
	// QuorumText and PoolsText are those as people read them.
	QuorumText, PoolsText string
	Servers               int
	Tally                 []chip
	Query                 query
	Sorts                 []option
	Attention             []concernView
	List                  []poolView
	Sel                   selection
	Prev, Next            string
	Reset                 string
	Orders                []orderView
	Events                []eventView
	Heard                 bool // there are events at all
	// Admin: something may be changed by those who have the token; Who is this one.
	Admin bool
	Who   string
	// Announce is read out when it changes.
	Announce string
}

// moment is a time as people read it.
// Past is Ago as an adverb.
type moment struct{ Ago, Past, At, Title string }

type chip struct {
	State, Word, Symbol, URL string
	N                        int
	Count                    string
	Current                  bool
}

type option struct {
	Value, Text string
	Selected    bool
}

type concernView struct {
	Bad   bool
	What  string
	Links []link
	More  int
	URL   string
}

type link struct{ Text, URL string }

type poolView struct {
	Key, Title, Name, URL string
	Scheduler             string
	Badges                []badge
	Alive, Needed         string
	Share                 int // of the needed weight, in percent, 100 at most
	Since                 moment
	Notes                 []string
	Rows                  []rowView
	Hidden                int
	Summary               []chip
	Bad                   bool
}

type badge struct{ Word, Symbol, Class string }

type rowView struct {
	Key, Label, Address string
	State, Word, Symbol string
	Why                 string
	Notes               []string
	Since               moment
	Weight, Kernel      string
	Differs             bool
	Active, Inactive    string
	Check               *checkView
	More                []checkView
	Files               []string
	Manage              string
}

type checkView struct {
	Kind, Target, Result, Class, Reason string
	Took                                string
	At                                  moment
	Attempt, Next                       string
}

type orderView struct {
	VS, Server, What, Who, Reason string
	Since, Until                  moment
	Absent                        bool
	Connections                   string
	Manage                        string
}

type eventView struct {
	Key, Level, Class, Message, VS, RS string
	At                                 moment
}

// dashboard answers GET /.
func (s *Server) dashboard(w http.ResponseWriter, r *http.Request) {
	q := parseQuery(r.URL.Query())
	p := s.newPage(s.sights.look(r.Context(), s.Status, s.Pace), q, time.Now())
	p.Fragment = r.Header.Get(fragmentHeader) != ""
	p.Admin = s.admin.on()
	p.Who = s.admin.who(r)
	if p.Who != "" {
		for i := range p.List {
			p.List[i].manage()
		}
	}
	name := "page.html"
	if p.Fragment {
		name = "live"
	}
	s.write(w, http.StatusOK, name, p)
}

// write renders a page.
func (s *Server) write(w http.ResponseWriter, code int, name string, data any) {
	var b bytes.Buffer
	var err error
	s.Pace.Step(func() { err = pages().ExecuteTemplate(&b, name, data) })
	if err != nil {
		s.Log.Error("A page cannot be made", event.Key, event.HTTPFailed, "page", name, "err", err)
		http.Error(w, "the page cannot be made: the log says why", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Vary", fragmentHeader)
	w.WriteHeader(code)
	_, _ = w.Write(b.Bytes())
}

func (s *Server) newPage(see *sight, q query, now time.Time) *page {
	v := viewer{now}
	p := &page{
		Style: assets()["/static/style.css"].Address, Script: assets()["/static/page.js"].Address, Icon: assets()["/static/icon.svg"].Address,
		Host: s.host(), S: see.Snapshot, Started: see.Started.Format(time.RFC3339Nano), At: see.At.Format(time.RFC3339),
		Uptime: v.moment(see.Started), ReloadAt: v.moment(see.Reload.At), KernelSince: v.moment(see.Kernel.Since),
		Servers: see.servers, Query: q, Reset: query{Sort: q.Sort}.url(),
	}
	if see.Overdue > time.Second {
		p.Overdue = span(see.Overdue)
	}
	for _, pool := range see.pools {
		if pool.vs != nil {
			p.Pools++
		}
	}
	p.Quorum = p.Pools - see.noQuorum
	p.QuorumText, p.PoolsText = thousands(p.Quorum), thousands(p.Pools)
	p.Tally = tally(see, q)
	for _, o := range []option{{Value: sortTrouble, Text: "worst first"}, {Value: sortName, Text: "by name"}, {Value: sortFile, Text: "as in the file"}} {
		o.Selected = o.Value == q.Sort
		p.Sorts = append(p.Sorts, o)
	}
	bad := 0
	for _, c := range see.attention {
		if c.Bad {
			bad++
		}
		cv := concernView{Bad: c.Bad, What: c.What, More: c.More}
		for _, pool := range c.Pools {
			cv.Links = append(cv.Links, link{pool.title(), query{VS: pool.name}.url()})
		}
		if c.More > 0 {
			cv.URL = query{State: c.State}.url()
		}
		p.Attention = append(p.Attention, cv)
	}
	p.Title, p.Announce = titles(see, bad)
	p.Sel = see.find(q)
	for i := range p.Sel.pools {
		p.List = append(p.List, v.pool(&p.Sel.pools[i]))
	}
	at := func(n int) string { o := q; o.Page = n; return o.url() }
	if p.Sel.Page > 1 {
		p.Prev = at(p.Sel.Page - 1)
	}
	if p.Sel.Page < p.Sel.Pages {
		p.Next = at(p.Sel.Page + 1)
	}
	for i := range see.Overrides {
		p.Orders = append(p.Orders, v.order(&see.Overrides[i]))
	}
	if s.Events != nil {
		events, _ := s.Events.Since(0, eventsShown)
		p.Heard = true
		for i := len(events) - 1; i >= 0; i-- {
			p.Events = append(p.Events, v.event(&events[i]))
		}
	}
	return p
}

// titles are the window's and what is read out.
func titles(s *sight, bad int) (title, announce string) {
	switch {
	case bad == 0 && s.Passive != nil && s.Passive.On:
		return "Passive", "This director is passive: its services are withheld."
	case bad == 0 && s.problems == 0:
		return "All is well", "All is well: every virtual server has its quorum."
	case bad == 0:
		return plural(s.problems, "notice"), plural(s.problems, "real server") + " to look at."
	}
	title = plural(bad, "problem")
	return "(!) " + title, fmt.Sprintf("%s: %s without quorum, %s down.", title, plural(s.noQuorum, "virtual server"), plural(s.counts[string(engine.StateDown)], "real server"))
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	if strings.HasSuffix(what, "s") {
		what += "e"
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// tally are the numbers by state, each a filter.
func tally(s *sight, q query) []chip {
	one := func(state, word, symbol string, n int) chip {
		to := query{Q: q.Q, State: state, Sort: q.Sort, VS: q.VS}
		return chip{State: state, Word: word, Symbol: symbol, N: n, Count: thousands(n), URL: to.url(), Current: q.State == state}
	}
	rows := 0
	for _, n := range s.counts {
		rows += n
	}
	chips := []chip{one("", "all", "", rows), one(stateProblems, stateProblems, "!", s.problems)}
	for _, state := range stateOrder {
		if n := s.counts[state]; n > 0 || state == string(engine.StateUp) || state == string(engine.StateDown) || q.State == state {
			chips = append(chips, one(state, words[state], symbols[state], n))
		}
	}
	return chips
}

func (v viewer) event(e *event.Event) eventView {
	return eventView{Key: strconv.FormatUint(e.Seq, 10), Level: e.Level, Class: map[string]string{"error": "bad", "warn": "warn"}[e.Level], Message: clip(e.Message), VS: e.VirtualServer, RS: e.RealServer, At: v.moment(e.Time)}
}
