package web

import (
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/event"
)

// TestThePageTellsWhatIsTheMatter: every state, and all that an operator asks first.
func TestThePageTellsWhatIsTheMatter(t *testing.T) {
	snap := farm(4, 3)
	now := time.Now()
	fail(snap, 0, 1, "connect to 10.0.0.1:8080: connection refused (ECONNREFUSED)")
	for r := range 3 {
		fail(snap, 1, r, "status 500, want 200-299")
	}
	snap.VirtualServers[1].SorryServing = true
	snap.VirtualServers[1].Sorry = &engine.SorryServer{Address: "10.9.9.9:80", Serving: true}
	svc := &snap.VirtualServers[2].Services[0]
	svc.Destinations[0].Kernel = 5
	svc.Destinations = append(svc.Destinations, engine.Destination{Address: "10.8.8.8:80", Wanted: -1, Kernel: 0, Active: 41,
		Drain: &engine.Drain{Since: now.Add(-time.Minute), Why: "removed by reload", WaitsFor: "41 active connections", Deadline: now.Add(90 * time.Second)}})
	svc.Drift = []engine.Drift{{What: "service changed", Found: "scheduler rr", Wanted: "scheduler wlc"}}
	snap.VirtualServers[3].AtFloor, snap.VirtualServers[3].MinAlive, snap.VirtualServers[3].FloorSince = true, 2, now.Add(-5*time.Second)
	snap.VirtualServers[3].RealServers[0].State = engine.StateKept
	snap.VirtualServers[3].RealServers[2].Checkers[0].Last = "unable"
	snap.VirtualServers[3].RealServers[1].Checkers[0].Next = now
	snap.Leaving = []engine.Service{{Name: "192.0.2.200:80/TCP", Destinations: []engine.Destination{{Address: "10.7.7.7:80", Wanted: -1, Drain: &engine.Drain{Why: "removed by reload"}}}}}
	snap.Overrides = []engine.Override{{VS: "[192.0.0.0]:tcp:80", Server: "10.0.0.0:8080", Kind: engine.VerbDrain, Who: "ann", Reason: "new <kernel>", Since: now.Add(-time.Minute), Until: now.Add(time.Hour)}}
	snap.Reload = engine.Reload{At: now, Error: "/etc/sluice.conf:3:1: E001 unknown word"}
	snap.Overdue = 7 * time.Second
	s := newSite(t, snap)
	s.Events = told{{Seq: 1, Time: now, Level: "warn", Kind: "server_down", Message: "Removing service", VirtualServer: "[192.0.0.0]:tcp:80"}}
	page := s.get("/")
	page.want(t, http.StatusOK,
		"<b>3<small> of 4</small></b>", "A virtual server has no quorum, and its sorry server serves", "Real servers are down, with quorum",
		"at its floor of 2", "the last resort serves", "kernel 5", "removed by reload", "waits for 41 active connections, for at most 1 min 29 s",
		"service changed, found scheduler rr, wanted scheduler wlc", "leaving: no longer configured", "new &lt;kernel&gt;", "E001 unknown word",
		"late by 7 s", "attempt 4 of 4", "next in 59 min", "next now", "shop-0000", "web-1", "Removing service", "read-only", "connection refused (ECONNREFUSED)", "12</td>",
		"Checks cannot be run", "Drains wait in 2 virtual servers", "generation 3")
	page.without(t, "/admin/", "<style", "style=", "onclick", "javascript:")
	// The worst comes first.
	if a, b := strings.Index(page.body, `data-key="vs-[192.0.0.1]:tcp:80`), strings.Index(page.body, `data-key="vs-[192.0.0.0]:tcp:80`); a < 0 || b < a {
		t.Errorf("the virtual server without quorum stands at %d, the one with at %d", a, b)
	}
	if h := page.Header; !strings.HasPrefix(h.Get("Content-Security-Policy"), "default-src 'none'") || strings.Contains(h.Get("Content-Security-Policy"), "unsafe") || h.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("header %v", h)
	}
	for _, ref := range regexp.MustCompile(`(?:src|href)="(/static/[^"]+)"`).FindAllStringSubmatch(page.body, -1) {
		s.get(ref[1]).want(t, http.StatusOK)
	}
	for _, th := range regexp.MustCompile(`<th[ >][^>]*>?`).FindAllString(page.body, -1) {
		if !strings.Contains(th, "scope=") {
			t.Errorf("%s says not what it is the head of", th)
		}
	}
	fragment := s.get("/", fragmentHeader, "1")
	fragment.want(t, http.StatusOK, `<div id="live"`)
	fragment.without(t, "<html", "<script")
}

// TestNothingIsTheMatter.
func TestNothingIsTheMatter(t *testing.T) {
	page := newSite(t, farm(2, 2)).get("/")
	page.want(t, http.StatusOK, "All is well", "✓</span>ok")
	page.without(t, "Look at this first", "Operators’ orders", "Last events")
}

// TestSearchFilterAndOrder of the list.
func TestSearchFilterAndOrder(t *testing.T) {
	snap := farm(30, 3)
	fail(snap, 7, 1, "no answer")
	snap.VirtualServers[29].Label = "Alpha"
	s := newSite(t, snap)
	pools := func(path string) (names []string) {
		t.Helper()
		for _, m := range regexp.MustCompile(`data-key="vs-([^"]+)"`).FindAllStringSubmatch(s.get(path).body, -1) {
			names = append(names, m[1])
		}
		return names
	}
	for path, want := range map[string]string{
		"/?q=shop-0003":           "[[192.0.0.3]:tcp:80]",
		"/?q=SHOP-0003":           "[[192.0.0.3]:tcp:80]",
		"/?q=192.0.0.12:80":       "[[192.0.0.12]:tcp:80]",
		"/?q=10.4.0.2":            "[[192.0.0.4]:tcp:80]",
		"/?state=down":            "[[192.0.0.7]:tcp:80]",
		"/?state=problems":        "[[192.0.0.7]:tcp:80]",
		"/?q=nothing":             "[]",
		"/?vs=[192.0.0.9]:tcp:80": "[[192.0.0.9]:tcp:80]",
	} {
		if got := fmt.Sprint(pools(path)); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if got := pools("/"); got[0] != "[192.0.0.7]:tcp:80" || len(got) != 30 {
		t.Errorf("worst first: %s", got)
	}
	if got := pools("/?sort=file"); got[0] != "[192.0.0.0]:tcp:80" {
		t.Errorf("as in the file: %s", got)
	}
	if got := pools("/?sort=name"); got[0] != "[192.0.0.29]:tcp:80" {
		t.Errorf("by name: %s", got)
	}
	one := s.get("/?state=down")
	one.want(t, http.StatusOK, "10.7.0.1:8080")
	one.without(t, "10.7.0.2:8080")
	s.get("/?q=nothing").want(t, http.StatusOK, "Nothing matches", "show everything")
	s.get(`/?q="><script>alert(1)</script>&state=x&page=-4&sort=%00`).without(t, "<script>alert")
}

// TestTenThousandServers: whatever their arrangement, a page stays small, quick to
// make, and all of it can be reached.
func TestTenThousandServers(t *testing.T) {
	shapes := [][2]int{{1, 10000}, {1000, 10}, {100, 100}, {10000, 1}}
	if raceEnabled { // where all takes twenty times as long
		shapes = [][2]int{{1, 500}, {50, 10}}
	}
	for _, shape := range shapes {
		snap := farm(shape[0], shape[1])
		fail(snap, shape[0]-1, shape[1]-1, "no answer")
		s := newSite(t, snap)
		seen := map[string]bool{}
		address := regexp.MustCompile(`<tr data-key="([^"]+)"`)
		pools := map[string]bool{}
		next := regexp.MustCompile(`<a href="([^"]+)" rel="next"`)
		pagesN := 0
		for path := "/"; path != ""; pagesN++ {
			page := s.get(path)
			rows := address.FindAllStringSubmatch(page.body, -1)
			if len(page.body) > 300_000 || len(rows) > 250 {
				t.Fatalf("%v %s: %d bytes, %d rows", shape, path, len(page.body), len(rows))
			}
			if pagesN == 0 && !strings.Contains(page.body, `data-state="down"`) {
				t.Errorf("%v: the one that is down is not on the first page", shape)
			}
			for _, m := range rows {
				seen[m[1]] = true
			}
			for _, m := range regexp.MustCompile(`data-key="(vs-[^"]+)"`).FindAllStringSubmatch(page.body, -1) {
				pools[m[1]] = true
			}
			path = ""
			if m := next.FindStringSubmatch(page.body); m != nil {
				path = strings.ReplaceAll(m[1], "&amp;", "&")
			}
		}
		if len(pools) != shape[0] || shape[0] == 1 && len(seen) != shape[1] {
			t.Errorf("%v: %d pages show %d virtual servers and %d real servers", shape, pagesN, len(pools), len(seen))
		}
		best, bestRead := time.Hour, time.Hour
		for range 5 {
			begun := time.Now()
			s.sights.forget()
			s.sights.look(t.Context(), s.Status, s.Pace)
			bestRead = min(bestRead, time.Since(begun))
			begun = time.Now()
			s.get("/")
			best = min(best, time.Since(begun))
		}
		t.Logf("%v: %d pages, the first of %d bytes in %v, after %v of reading", shape, pagesN, len(s.get("/").body), best, bestRead)
		if best+bestRead > 100*time.Millisecond && !raceEnabled {
			t.Errorf("%v: the first page takes %v", shape, best+bestRead)
		}
	}
}

// TestAllWhoLookShareOneReading of at most once in two seconds.
func TestAllWhoLookShareOneReading(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newSite(t, farm(1, 1))
		for range 10 {
			for range 20 {
				s.get("/").want(t, http.StatusOK)
			}
			time.Sleep(time.Second)
		}
		if s.reads > 5 {
			t.Errorf("%d readings in ten seconds", s.reads)
		}
	})
}

func TestTextOfOthersIsTamed(t *testing.T) {
	for in, want := range map[string]string{
		"a\x1b[31mb\nc":                "a [31mb c",
		"\u202egnp":                    "gnp",
		"bad \xff":                     "bad \uFFFD",
		strings.Repeat("x", maxText+5): strings.Repeat("x", maxText-1) + "…",
	} {
		if got := clip(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
	for d, want := range map[time.Duration]string{
		-1: "0 ms", 999 * time.Millisecond: "999 ms", 59 * time.Second: "59 s", time.Hour - time.Second: "59 min 59 s",
		time.Hour: "1 h", 25 * time.Hour: "1 d 1 h", 400 * 24 * time.Hour: "400 d",
	} {
		if got := span(d); got != want {
			t.Errorf("%v: %q, want %q", d, got, want)
		}
	}
}

var _ Events = (*event.Log)(nil)

func BenchmarkPage(b *testing.B) {
	see := newSight(farm(1000, 10))
	s := &Server{}
	for b.Loop() {
		p := s.newPage(see, parseQuery(nil), time.Now())
		if err := pages().ExecuteTemplate(discard{}, "page.html", p); err != nil {
			b.Fatal(err)
		}
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }
