package web

import (
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// answersOf reads the block of docs/dashboard.md that begins with /healthz: a path, the
// status and a text, which goes on in lines without a path.
func answersOf(t *testing.T) (asked [][2]string, answered []string) {
	t.Helper()
	b, err := os.ReadFile("../../docs/dashboard.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, ok := strings.Cut(string(b), "\n```text\n/healthz")
	block, _, over := strings.Cut("/healthz"+block, "\n```")
	if !ok || !over {
		t.Fatal("docs/dashboard.md has no block of answers")
	}
	for line := range strings.Lines(block) {
		if f := strings.Fields(line); strings.HasPrefix(line, "/") {
			asked, answered = append(asked, [2]string{f[0], f[1]}), append(answered, strings.Join(f[2:], " ")+"\n")
		} else {
			answered[len(answered)-1] += strings.TrimSpace(line) + "\n"
		}
	}
	return asked, answered
}

// TestPageHasTheAnswers: what docs/dashboard.md shows is what is answered, word for word.
func TestPageHasTheAnswers(t *testing.T) {
	snap := farm(2, 2)
	for i, at := range []struct {
		label, addr string
		port        uint16
	}{{"shop", "192.0.2.10", 80}, {"mail", "192.0.2.25", 25}} {
		vs := &snap.VirtualServers[i]
		vs.Label, vs.Name = at.label, fmt.Sprintf("[%s]:tcp:%d", at.addr, at.port)
		vs.Services[0].Key.Addr, vs.Services[0].Key.Port = netip.MustParseAddr(at.addr), at.port
	}
	for i := range 2 {
		fail(snap, 1, i, "no answer")
	}
	for _, p := range []ipvs.Protocol{ipvs.TCP, ipvs.UDP} {
		snap.VirtualServers = append(snap.VirtualServers, engine.VirtualServer{Name: "[dns]:0", Group: "dns", Protocol: strings.ToUpper(p.String()), QuorumUp: true, Alive: 2, Quorum: 1})
	}
	passive := *snap
	passive.Passive = &engine.Passive{On: true, Sources: []engine.PassiveSource{{Source: engine.PassiveByCommand, Who: "ann", Why: "disk"}}}
	s := newSite(t, snap)
	asked, answered := answersOf(t)
	seen := map[[2]string]bool{}
	for i, a := range asked {
		switch {
		case slices.Contains(strings.Fields(answered[i]), "passive:"):
			s.set(&passive)
		case strings.Contains(answered[i], "stopping"):
			s.Withdraw("stopping")
		}
		got := s.get(a[0])
		if fmt.Sprint(got.StatusCode) != a[1] || got.body != answered[i] {
			t.Errorf("%s: %d %s\nthe page has %s %s", a[0], got.StatusCode, got.body, a[1], answered[i])
		}
		seen[a] = true
	}
	for _, a := range [][2]string{{"/healthz", "200"}, {"/readyz", "200"}, {"/readyz", "503"}, {"/vs/shop", "200"}, {"/vs/mail", "503"}, {"/vs/dns", "409"}, {"/vs/nobody", "404"}, {"/vs/", "200"}} {
		if !seen[a] {
			t.Errorf("the page does not show %s with %s", a[0], a[1])
		}
	}
	if t := s.get("/readyz").Header.Get("Content-Type"); t != "text/plain; charset=utf-8" || s.do(http.MethodPost, "/readyz", "").StatusCode != http.StatusMethodNotAllowed {
		s.Errorf("the answer is %s, and may be posted to", t)
	}
}
