package framework

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
)

// TestReloadKeepsState: same file, same state, nothing changes.
func TestReloadKeepsState(t *testing.T) {
	vs, _ := New(pool(1, 0, 1, 1, 1), trusted, noFiles)
	mustVerdict(t, vs, 0, Down)
	mustVerdict(t, vs, 1, Up)
	next, ev := Next(vs, pool(1, 0, 1, 1, 1), untrusted, noFiles)
	if ev != QuorumUnchanged || next.Servers[0].Alive() || !next.Servers[1].Alive() || !next.Servers[2].Alive() {
		t.Errorf("%s, alive %t %t %t", ev, next.Servers[0].Alive(), next.Servers[1].Alive(), next.Servers[2].Alive())
	}
	if next.Servers[2].Checkers[0] != Unknown {
		t.Error("R08: an unknown verdict was carried over as knowledge")
	}
}

// TestR02 has the three cases of a reload during a failure: a server known to be
// down stays out, a new alpha server starts out, a new checker on a live server
// leaves it in.
func TestR02(t *testing.T) {
	vs, _ := New(pool(1, 0, 1, 1), trusted, noFiles)
	mustVerdict(t, vs, 0, Down)
	mustVerdict(t, vs, 1, Up)
	cfg := pool(1, 0, 1, 1, 1)
	cfg.RealServers[1].Checkers = append(cfg.RealServers[1].Checkers, tcp("10.0.0.2:81"))
	next, _ := Next(vs, cfg, untrusted, noFiles)
	if next.Servers[0].Alive() {
		t.Error("a server known to be down is back without a check")
	}
	if !next.Servers[1].Alive() {
		t.Error("a new checker took a live server down")
	}
	if next.Servers[2].Alive() || !next.Servers[2].Unverified() {
		t.Error("a new server that is not trusted is in without a check")
	}
}

// TestR03FailureOfARemovedCheckerVanishes: the server comes back when the checkers
// that remain agree; a replaced one has to pass first; without any it is up.
func TestR03FailureOfARemovedCheckerVanishes(t *testing.T) {
	two := pool(1, 0, 1)
	two.RealServers[0].Checkers = append(two.RealServers[0].Checkers, tcp("10.0.0.1:23"))
	vs, _ := New(two, trusted, noFiles)
	for i, v := range []Verdict{Up, Down} {
		if _, err := vs.SetVerdict(0, i, v); err != nil {
			t.Fatal(err)
		}
	}
	if vs.Servers[0].Alive() {
		t.Fatal("alive although one checker is down")
	}
	next, ev := Next(vs, pool(1, 0, 1), untrusted, noFiles)
	if !next.Servers[0].Alive() || ev != QuorumGained {
		t.Errorf("the remaining checker is good, alive %t, %s", next.Servers[0].Alive(), ev)
	}
	changed := pool(1, 0, 1)
	changed.RealServers[0].Checkers = append(changed.RealServers[0].Checkers, tcp("10.0.0.1:80"))
	changed.RealServers[0].Checkers[1].Conn.Timeout = time.Second
	next, _ = Next(vs, changed, trusted, noFiles)
	if next.Servers[0].Alive() {
		t.Error("a changed checker on a down server must pass before the server is back")
	}
	mustVerdict(t, next, 0, Up)
	if c, _ := next.SetVerdict(0, 1, Up); !next.Servers[0].Alive() || c.Quorum != QuorumGained {
		t.Error("not back after the changed checker passed")
	}
	bare := pool(1, 0, 1)
	bare.RealServers[0].Checkers = nil
	if next, _ = Next(vs, bare, untrusted, noFiles); !next.Servers[0].Alive() {
		t.Error("without checkers it is up")
	}
}

// TestR10ChangedCheckerKeepsALiveServer until its first result.
func TestR10ChangedCheckerKeepsALiveServer(t *testing.T) {
	vs, _ := New(pool(1, 0, 1), trusted, noFiles)
	mustVerdict(t, vs, 0, Up)
	cfg := pool(1, 0, 1)
	cfg.RealServers[0].Checkers = []*config.Checker{tcp("10.0.0.1:8080")}
	next, ev := Next(vs, cfg, untrusted, noFiles)
	if !next.Servers[0].Alive() || ev != QuorumUnchanged {
		t.Fatalf("alive %t, %s", next.Servers[0].Alive(), ev)
	}
	if c := mustVerdict(t, next, 0, Down); c.Quorum != QuorumLost {
		t.Error("its first failure does not count")
	}
}

// TestQ06LowerWeightLosesTheQuorum: the rule is applied on a reload too.
func TestQ06LowerWeightLosesTheQuorum(t *testing.T) {
	vs, _ := New(pool(10, 0, 11), trusted, noFiles)
	if _, ev := Next(vs, pool(10, 0, 9), trusted, noFiles); ev != QuorumLost {
		t.Errorf("%s, want lost", ev)
	}
}

func TestMatchCheckers(t *testing.T) {
	a, b := tcp("10.0.0.1:80"), tcp("10.0.0.1:81")
	again := tcp("10.0.0.1:80")
	again.DelayLoop = time.Hour // when it runs is not what it asks
	got := MatchCheckers([]*config.Checker{a, b, a}, []*config.Checker{b, again, again, again})
	want := []int{1, 0, 2, -1}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("got %v, want %v", got, want)
		}
	}
}

// TestDefinitionSeesEverything: each field of what a check asks makes a different
// definition.
func TestDefinitionSeesEverything(t *testing.T) {
	base := func() *config.Checker {
		c := tcp("10.0.0.1:80")
		c.Kind = config.HTTPGet
		c.HTTP = &config.HTTP{URLs: []config.URL{{Path: "/", Status: []config.StatusRange{{First: 200, Last: 299}}, Regex: &config.Regex{Pattern: "ok"}}}}
		return c
	}
	changes := map[string]func(*config.Checker){
		"kind":         func(c *config.Checker) { c.Kind = config.SSLGet },
		"bind if":      func(c *config.Checker) { c.Conn.BindIf = "eth0" },
		"mark":         func(c *config.Checker) { c.Conn.FWMark = 1 },
		"timeout":      func(c *config.Checker) { c.Conn.Timeout = 1 },
		"close":        func(c *config.Checker) { c.Conn.Close = config.CloseReset },
		"protocol":     func(c *config.Checker) { c.HTTP.Protocol = config.HTTP11 },
		"virtualhost":  func(c *config.Checker) { c.HTTP.VirtualHost = "a" },
		"sni":          func(c *config.Checker) { c.HTTP.SNI = true },
		"sni name":     func(c *config.Checker) { c.HTTP.SNIName = "a" },
		"path":         func(c *config.Checker) { c.HTTP.URLs[0].Path = "/x" },
		"url vhost":    func(c *config.Checker) { c.HTTP.URLs[0].VirtualHost = "x" },
		"status":       func(c *config.Checker) { c.HTTP.URLs[0].Status[0].Last = 204 },
		"digest":       func(c *config.Checker) { c.HTTP.URLs[0].HasDigest = true },
		"pattern":      func(c *config.Checker) { c.HTTP.URLs[0].Regex.Pattern = "no" },
		"regex offset": func(c *config.Checker) { c.HTTP.URLs[0].Regex.MinOffset = 1 },
		"helo":         func(c *config.Checker) { c.SMTP = &config.SMTP{Helo: "a"} },
		"dns type":     func(c *config.Checker) { c.DNS = &config.DNS{Type: "A"} },
		"dns name":     func(c *config.Checker) { c.DNS = &config.DNS{Name: "a"} },
		"payload":      func(c *config.Checker) { c.UDP = &config.Datagram{Payload: []byte{1}} },
		"no payload":   func(c *config.Checker) { c.UDP = &config.Datagram{Payload: []byte{}} },
		"the default":  func(c *config.Checker) { c.UDP = &config.Datagram{} },
		"require":      func(c *config.Checker) { c.UDP = &config.Datagram{Require: true} },
		"reply":        func(c *config.Checker) { c.UDP = &config.Datagram{Reply: []byte{1}, Mask: []byte{255}} },
		"mask":         func(c *config.Checker) { c.UDP = &config.Datagram{Reply: []byte{1}, Mask: []byte{15}} },
		"length":       func(c *config.Checker) { c.UDP = &config.Datagram{Max: 9} },
		"script":       func(c *config.Checker) { c.Misc = &config.Misc{Script: &config.Script{Argv: []string{"/a", "b"}}} },
		"one word":     func(c *config.Checker) { c.Misc = &config.Misc{Script: &config.Script{Argv: []string{"/a b"}}} },
		"script user": func(c *config.Checker) {
			c.Misc = &config.Misc{Script: &config.Script{Argv: []string{"/a"}, User: "u"}}
		},
		"script group": func(c *config.Checker) {
			c.Misc = &config.Misc{Script: &config.Script{Argv: []string{"/a"}, Group: "u"}}
		},
		"dynamic": func(c *config.Checker) {
			c.Misc = &config.Misc{Script: &config.Script{Argv: []string{"/a"}}, Dynamic: true}
		},
		"misc timeout": func(c *config.Checker) {
			c.Misc = &config.Misc{Script: &config.Script{Argv: []string{"/a"}}, Timeout: 1}
		},
		"second url": func(c *config.Checker) { c.HTTP.URLs = append(c.HTTP.URLs, config.URL{Path: "/"}) },
	}
	seen := map[string]string{Definition(base()): "base"}
	for name, change := range changes {
		c := base()
		change(c)
		d := Definition(c)
		if c.AsksSame(base()) {
			t.Errorf("%s: asks the same", name)
		}
		// The text of what the first version that saved verdicts knew of a connection
		// stays, or they would not be found again.
		conn := fmt.Sprintf("%d|%+v", c.Kind, struct {
			Target   netip.AddrPort
			BindAddr netip.Addr
			BindPort uint16
			BindIf   string
			FWMark   uint32
			Timeout  time.Duration
		}{c.Conn.Target, c.Conn.BindAddr, c.Conn.BindPort, c.Conn.BindIf, c.Conn.FWMark, c.Conn.Timeout})
		if !strings.HasPrefix(d, conn) {
			t.Errorf("%s: definition %q does not begin with %q", name, d, conn)
		}
		if other, ok := seen[d]; ok {
			t.Errorf("%s has the definition of %s", name, other)
		}
		seen[d] = name
	}
	// Verdicts that an earlier version saved are found by it.
	if got, want := Definition(tcp("10.0.0.1:80")), "1|{Target:10.0.0.1:80 BindAddr:invalid IP BindPort:0 BindIf: FWMark:0 Timeout:0s}"; got != want {
		t.Errorf("definition %q, want %q", got, want)
	}
	if a, b := Definition(base()), Definition(base()); a != b {
		t.Error("equal checkers have different definitions")
	}
}
