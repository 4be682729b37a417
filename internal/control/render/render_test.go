package render

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/engine"
)

var update = flag.Bool("update", false, "rewrite the golden files")

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// healthy is a daemon with a web and a mail service, all well.
func healthy() *engine.Snapshot {
	return &engine.Snapshot{
		Version: "0.3.0", Started: ago(76*time.Hour + 5*time.Minute), At: now, ConfigFile: "/etc/keepalived/keepalived.conf", Generation: 4,
		Reload: engine.Reload{At: ago(192 * time.Second), OK: true},
		Kernel: engine.Kernel{OK: true, Since: ago(76 * time.Hour), Operations: 1234},
		VirtualServers: []engine.VirtualServer{{
			Name: "[192.0.2.10]:tcp:80", Scheduler: "wlc", Quorum: 10, Hysteresis: 2, Alive: 30, QuorumUp: true, Since: ago(2*time.Hour + 5*time.Minute),
			Sorry: &engine.SorryServer{Address: "10.0.0.99:80"},
			RealServers: []engine.RealServer{
				{Address: "10.0.0.11:80", State: engine.StateUp, Reason: "all checks pass", Since: ago(76 * time.Hour), Method: "DR", WeightConfigured: 10, WeightWanted: 10,
					Checkers: []engine.Checker{{Kind: "HTTP_GET", Target: "10.0.0.11:80", Verdict: "up", Last: "ok", LastReason: "GET /health: status 200", LastAt: ago(4 * time.Second), Took: 2123 * time.Microsecond, Next: now.Add(6 * time.Second), Limit: 4}}},
				{Address: "10.0.0.12:80", State: engine.StateUp, Reason: "all checks pass", Since: ago(192 * time.Second), Method: "DR", WeightConfigured: 20, WeightWanted: 20,
					Checkers: []engine.Checker{{Kind: "HTTP_GET", Target: "10.0.1.12:8080", Verdict: "up", Last: "failed", LastReason: "connect: connection refused", LastAt: ago(time.Second), Took: 311 * time.Microsecond, Next: now, Failures: 1, Limit: 4}}},
			},
			Services: []engine.Service{{Name: "192.0.2.10:80/tcp", Destinations: []engine.Destination{
				{Address: "10.0.0.11:80", Wanted: 10, Kernel: 10, Active: 12, Inactive: 340},
				{Address: "10.0.0.12:80", Wanted: 20, Kernel: 20, Active: 7, Inactive: 9},
			}}},
		}, {
			Name: "FWM 5", Scheduler: "rr", Quorum: 1, Alive: 1, QuorumUp: true, Since: ago(45 * time.Second),
			RealServers: []engine.RealServer{{Address: "[2001:db8::25]:25", State: engine.StateUp, Reason: "no checks", Since: ago(45 * time.Second), Method: "TUN", WeightConfigured: 1, WeightWanted: 1}},
			Services:    []engine.Service{{Name: "fwmark 5/inet6", Destinations: []engine.Destination{{Address: "[2001:db8::25]:0", Wanted: 1, Kernel: 1}}}},
		}},
	}
}

// troubled has one of everything that can be odd.
func troubled() *engine.Snapshot {
	s := healthy()
	s.Reload = engine.Reload{At: ago(12 * time.Second), Error: `keepalived.conf:3:4: unknown keyword "wieght"`}
	s.Kernel = engine.Kernel{Since: ago(30 * time.Second), Error: "set destination 10.0.0.12:80: operation not permitted; tried again in 8s", Operations: 1234}
	s.Overdue = 95 * time.Second
	vs := &s.VirtualServers[0]
	vs.QuorumUp, vs.Alive, vs.SorryServing, vs.Since, vs.Sorry.Serving = false, 5, true, ago(61*time.Second), true
	vs.RealServers = []engine.RealServer{
		{Address: "10.0.0.11:80", State: engine.StateDown, Reason: "GET /health: status 503, want 200", Since: ago(61 * time.Second), Method: "DR", WeightConfigured: 10, WeightWanted: 0, Inhibit: true,
			Checkers: []engine.Checker{{Kind: "HTTP_GET", Target: "10.0.0.11:80", Verdict: "down", Last: "failed", LastReason: "GET /health: status 503, want 200", LastAt: ago(2 * time.Second), Took: 1500 * time.Millisecond, Failures: 4, Limit: 4}}},
		{Address: "10.0.0.12:80", State: engine.StateWithdrawn, Reason: "healthy, but the sorry server serves", Since: ago(61 * time.Second), Method: "DR", WeightConfigured: 5, WeightWanted: -1},
		{Address: "10.0.0.13:80", State: engine.StateMaintenance, Reason: "track_file drain13 is -10", Since: ago(26 * time.Hour), Method: "DR", WeightConfigured: 10, WeightWanted: 0,
			TrackFiles: []engine.TrackFile{{Name: "drain13", Path: "/run/sluice/drain13", Value: -10, Contribution: -10}, {Name: "kill", Path: "/run/kill", Value: 1, Fault: true}}},
		{Address: "10.0.0.14:80", State: engine.StateUnverified, Reason: "waits for its first good check", Since: ago(time.Second), Method: "DR", WeightConfigured: 10, WeightWanted: -1},
		{Address: "10.0.0.15:80", State: engine.StateUp, Reason: "all checks pass", Method: "DR", WeightConfigured: 5, WeightWanted: 5,
			Dynamic: []engine.Dynamic{{Checker: "MISC_CHECK /usr/local/bin/load", Weight: 5}}},
	}
	vs.Services[0].Destinations = []engine.Destination{
		{Address: "10.0.0.11:80", Wanted: 0, Kernel: 0},
		{Address: "10.0.0.12:80", Wanted: -1, Kernel: 5, Active: 3, Drain: &engine.Drain{Since: ago(61 * time.Second), Why: "withdrawn for the sorry server", WaitsFor: "3 active connections"}},
		{Address: "10.0.0.13:80", Wanted: 0, Kernel: 0, Inactive: 2},
		{Address: "10.0.0.99:80", Wanted: 1, Kernel: 1, Active: 40},
		{Address: "10.0.0.16:80", Wanted: -1, Kernel: 0, Active: 3, Inactive: 1, Drain: &engine.Drain{Since: ago(130 * time.Second), Why: "removed by reload", WaitsFor: "3 active and 1 inactive connections", Deadline: now.Add(470 * time.Second)}},
		{Address: "10.0.0.17:80", Wanted: -1, Kernel: 7, Active: 1},
	}
	s.VirtualServers[1].Suspended = true
	s.VirtualServers[1].Services = nil
	s.VirtualServers[1].RealServers = nil
	s.Leaving = []engine.Service{{Name: "192.0.2.66:25/tcp", Destinations: []engine.Destination{
		{Address: "10.0.0.11:25", Wanted: -1, Kernel: 0, Active: 1, Drain: &engine.Drain{Since: ago(time.Hour), Why: "removed by reload", WaitsFor: "1 active connection", Deadline: ago(time.Second)}}}}}
	return s
}

// floored is a virtual server that min_alive keeps up, with one server held back and
// one that starts slowly.
func floored() *engine.Snapshot {
	s := healthy()
	s.VirtualServers = []engine.VirtualServer{{
		Name: "[192.0.2.10]:tcp:80", Scheduler: "wrr", Quorum: 1, Alive: 60, QuorumUp: true, Since: ago(time.Hour), MinAlive: 3, AtFloor: true, FloorSince: ago(125 * time.Second),
		RealServers: []engine.RealServer{
			{Address: "10.0.0.11:80", State: engine.StateUp, Reason: "all checks pass", Since: ago(10 * time.Second), Method: "NAT", WeightConfigured: 30, WeightWanted: 8, RisesUntil: now.Add(25 * time.Second)},
			{Address: "10.0.0.12:80", State: engine.StateKept, Reason: "failed, kept by min_alive: TCP_CHECK: connection refused", Since: ago(125 * time.Second), Method: "NAT", WeightConfigured: 30, WeightWanted: 30},
			{Address: "10.0.0.13:80", State: engine.StateDamped, Reason: "all checks pass, but it flapped 3 times: held back by flap_damping until 12:01:20", Since: ago(time.Second), Method: "NAT", WeightConfigured: 30, WeightWanted: -1, HeldUntil: now.Add(80 * time.Second)},
			{Address: "10.0.0.14:80", State: engine.StateUp, Reason: "all checks pass", Since: ago(time.Hour), Method: "NAT", WeightConfigured: 30, WeightWanted: 30, HeldUntil: ago(time.Second), RisesUntil: ago(0)},
		},
		Services: []engine.Service{{Name: "192.0.2.10:80/tcp", Destinations: []engine.Destination{
			{Address: "10.0.0.11:80", Wanted: 8, Kernel: 8, Active: 1}, {Address: "10.0.0.12:80", Wanted: 30, Kernel: 30, Active: 9}, {Address: "10.0.0.14:80", Wanted: 30, Kernel: 30, Active: 4},
		}}},
	}}
	return s
}

// group is a virtual server of three kernel services, in observe mode.
func group() *engine.Snapshot {
	s := healthy()
	s.Observe = true
	s.Kernel = engine.Kernel{Error: "", OK: true}
	dests := func(a, b int64, active uint32) []engine.Destination {
		return []engine.Destination{{Address: "10.0.0.11:443", Wanted: 1, Kernel: a, Active: active, Inactive: 10}, {Address: "10.0.0.12:443", Wanted: 1, Kernel: b, Active: active}}
	}
	s.VirtualServers = []engine.VirtualServer{{
		Name: "[web]:0", Scheduler: "sh", Quorum: 1, Alive: 2, QuorumUp: true, Since: ago(time.Minute),
		RealServers: []engine.RealServer{
			{Address: "10.0.0.11:443", State: engine.StateUp, Reason: "all checks pass", Since: ago(time.Minute), Method: "NAT", WeightConfigured: 1, WeightWanted: 1},
			{Address: "10.0.0.12:443", State: engine.StateUp, Reason: "all checks pass", Since: ago(time.Minute), Method: "NAT", WeightConfigured: 1, WeightWanted: 1},
		},
		Services: []engine.Service{
			{Name: "192.0.2.10:443/tcp", Destinations: dests(1, 3, 1)},
			{Name: "192.0.2.11:443/tcp", Destinations: dests(1, -1, 10)},
			{Name: "192.0.2.12:443/tcp", Destinations: dests(1, 1, 100)},
		},
	}}
	return s
}

// Real servers and strangers that share an IP are told apart by the rule for the
// port, not by luck.
func TestDestinationsAreFoundByTheRuleForThePort(t *testing.T) {
	for _, tc := range []struct {
		name, service, method, addr string
		in                          []string // destinations
		want                        string   // "" for none
	}{
		{"NAT keeps its port", "192.0.2.1:80/tcp", "NAT", "10.0.0.1:8080", []string{"10.0.0.1:80", "10.0.0.1:8080"}, "10.0.0.1:8080"},
		{"NAT does not take a stranger's", "192.0.2.1:80/tcp", "NAT", "10.0.0.1:8080", []string{"10.0.0.1:80"}, ""},
		{"DR has the service's", "192.0.2.1:80/tcp", "DR", "10.0.0.1:8080", []string{"10.0.0.1:8080", "10.0.0.1:80"}, "10.0.0.1:80"},
		{"TUN in a mark has none", "fwmark 7/inet6", "TUN", "[2001:db8::1]:80", []string{"[2001:db8::1]:0"}, "[2001:db8::1]:0"},
		{"IPv6 service", "[2001:db8::9]:443/tcp", "DR", "[2001:db8::1]:0", []string{"[2001:db8::1]:443"}, "[2001:db8::1]:443"},
		{"a sorry server by DR", "192.0.2.1:80/tcp", "", "10.0.0.1:0", []string{"10.0.0.1:80"}, "10.0.0.1:80"},
		{"a sorry server by NAT", "192.0.2.1:80/tcp", "", "10.0.0.1:8080", []string{"10.0.0.1:8080"}, "10.0.0.1:8080"},
	} {
		svc := engine.Service{Name: tc.service}
		for _, a := range tc.in {
			svc.Destinations = append(svc.Destinations, engine.Destination{Address: a})
		}
		got := ""
		for _, f := range destinationsOf([]engine.Service{svc}, tc.addr, tc.method, map[*engine.Destination]bool{}) {
			got += f.dest.Address
		}
		if got != tc.want {
			t.Errorf("%s: found %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestGolden(t *testing.T) {
	hostile := healthy()
	hostile.VirtualServers = hostile.VirtualServers[:1]
	hostile.VirtualServers[0].RealServers[0].Reason = "status \"\x1b[2J\x1b[31m200\x07\"\nsluiced: all is well\xff\u202e"
	empty := &engine.Snapshot{At: now}
	for _, tc := range []struct {
		name string
		s    *engine.Snapshot
		o    Options
		want Result
	}{
		{"healthy", healthy(), Options{Version: "0.3.0"}, Result{2, true}},
		{"drifted", drifted(), Options{Version: "0.3.0"}, Result{2, true}},
		{"healthy-wide", healthy(), Options{Wide: true, Version: "0.4.0"}, Result{2, true}},
		{"healthy-color", healthy(), Options{Color: true}, Result{2, true}},
		{"troubled", troubled(), Options{}, Result{3, false}},
		{"troubled-wide", troubled(), Options{Wide: true}, Result{3, false}},
		{"troubled-filter", troubled(), Options{Filter: "fwm"}, Result{1, false}},
		{"group-observe", group(), Options{}, Result{1, true}},
		{"group-observe-wide", group(), Options{Wide: true}, Result{1, true}},
		{"floor", floored(), Options{}, Result{1, false}},
		{"hostile", hostile, Options{}, Result{1, true}},
		{"empty", empty, Options{}, Result{0, false}},
		{"held", held(false), Options{}, Result{1, true}},
		{"held-over", held(true), Options{Color: true}, Result{1, true}},
		{"edge", around(), Options{}, Result{4, false}},
		{"edge-wide", around(), Options{Wide: true}, Result{4, false}},
		{"passive", withheld(), Options{}, Result{1, true}},
		{"no-match", healthy(), Options{Filter: "10.9.9.9"}, Result{0, true}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var buf bytes.Buffer
			got, err := Status(&buf, tc.s, tc.o)
			if err != nil || got != tc.want {
				t.Errorf("result %+v, %v; want %+v", got, err, tc.want)
			}
			golden(t, tc.name, buf.Bytes())
		})
	}
}

// golden compares with a file, or rewrites it.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(path, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), string(got)); d != "" {
		t.Errorf("%s: -want +got:\n%s", name, d)
	}
}

func TestCompact(t *testing.T) {
	for _, tc := range []struct {
		d    time.Duration
		want string
	}{
		{-time.Hour, "0s"}, {0, "0s"}, {999 * time.Millisecond, "0s"}, {time.Second, "1s"}, {59 * time.Second, "59s"},
		{time.Minute, "1m"}, {192 * time.Second, "3m12s"}, {time.Hour, "1h"}, {time.Hour + 59*time.Second, "1h"},
		{2*time.Hour + 5*time.Minute, "2h5m"}, {24 * time.Hour, "1d"}, {76 * time.Hour, "3d4h"}, {400 * 24 * time.Hour, "400d"},
	} {
		if got := compact(tc.d); got != tc.want {
			t.Errorf("compact(%v) = %q, want %q", tc.d, got, tc.want)
		}
	}
}

func TestSelect(t *testing.T) {
	for _, tc := range []struct {
		filter  string
		shown   int
		healthy bool
	}{
		{"", 3, false},
		{"192.0.2.10:80/TCP", 1, false}, // the kernel's name, any case
		{"[192.0.2.10]", 1, false},      // keepalived's name
		{"10.0.0.15", 1, false},         // a real server's address
		{"192.0.2.66", 1, true},         // a leaving service has no quorum to lose
		{"fwm 5", 1, true},
		{"nothing", 0, true},
	} {
		s := troubled()
		s.Kernel.OK = true
		if _, _, r := Select(s, tc.filter); r != (Result{tc.shown, tc.healthy}) {
			t.Errorf("filter %q: %+v, want %d, %v", tc.filter, r, tc.shown, tc.healthy)
		}
	}
	s := healthy()
	s.Kernel.OK = false
	if _, _, r := Select(s, ""); r.Healthy {
		t.Error("a kernel that cannot be written is healthy")
	}
	s.Observe = true
	if _, _, r := Select(s, ""); !r.Healthy {
		t.Error("in observe mode the kernel counts")
	}
}

// Whatever a daemon sends, the output is whole lines without control characters,
// and each destination of a virtual server has its row.
func TestAnySnapshotRenders(t *testing.T) {
	text := rapid.OneOf(rapid.String(), rapid.Just("10.0.0.1:80"), rapid.Just("[::1]:0"), rapid.Just("10.0.0.1:0"))
	at := rapid.Custom(func(t *rapid.T) time.Time {
		return ago(time.Duration(rapid.Int64Range(-1e12, 1e18).Draw(t, "ago")))
	})
	dest := rapid.Custom(func(t *rapid.T) engine.Destination {
		d := engine.Destination{Address: fmt.Sprintf("10.0.0.%d:80", rapid.IntRange(0, 5).Draw(t, "host")),
			Wanted: rapid.Int64Range(-1, 3).Draw(t, "wanted"), Kernel: rapid.Int64Range(-1, 3).Draw(t, "kernel"),
			Active: rapid.Uint32().Draw(t, "active")}
		if rapid.Bool().Draw(t, "drains") {
			d.Drain = &engine.Drain{Since: at.Draw(t, "since"), Why: text.Draw(t, "why"), WaitsFor: text.Draw(t, "waits"), Deadline: at.Draw(t, "deadline")}
		}
		return d
	})
	service := rapid.Custom(func(t *rapid.T) engine.Service {
		return engine.Service{Name: text.Draw(t, "name"), Destinations: rapid.SliceOfNDistinct(dest, 0, 4, func(d engine.Destination) string { return d.Address }).Draw(t, "dests")}
	})
	rs := rapid.Custom(func(t *rapid.T) engine.RealServer {
		return engine.RealServer{Address: text.Draw(t, "addr"), Reason: text.Draw(t, "reason"), State: engine.State(text.Draw(t, "state")),
			Since: at.Draw(t, "since"), WeightWanted: rapid.Int64Range(-1, 3).Draw(t, "wanted"),
			Checkers: []engine.Checker{{Kind: text.Draw(t, "kind"), Last: text.Draw(t, "last"), LastAt: at.Draw(t, "last at"), LastReason: text.Draw(t, "last reason")}}}
	})
	rapid.Check(t, func(t *rapid.T) {
		s := &engine.Snapshot{At: now, Version: text.Draw(t, "version"), Leaving: rapid.SliceOfN(service, 0, 2).Draw(t, "leaving"),
			Kernel: engine.Kernel{Error: text.Draw(t, "error")}, Observe: rapid.Bool().Draw(t, "observe")}
		vs := engine.VirtualServer{Name: text.Draw(t, "vs"), RealServers: rapid.SliceOfN(rs, 0, 4).Draw(t, "rs"), Services: rapid.SliceOfN(service, 0, 3).Draw(t, "services")}
		if rapid.Bool().Draw(t, "sorry") {
			vs.Sorry = &engine.SorryServer{Address: text.Draw(t, "sorry addr")}
		}
		s.VirtualServers = []engine.VirtualServer{vs}
		var buf bytes.Buffer
		if _, err := Status(&buf, s, Options{Wide: rapid.Bool().Draw(t, "wide")}); err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(buf.String()) {
			if i := strings.IndexFunc(strings.TrimSuffix(line, "\n"), func(r rune) bool { return !unicode.IsPrint(r) }); i >= 0 || !strings.HasSuffix(line, "\n") {
				t.Fatalf("line %q is not printable", line)
			}
		}
		for _, svc := range vs.Services {
			for _, d := range svc.Destinations {
				host, _, _ := strings.Cut(d.Address, ":")
				if !strings.Contains(buf.String(), host) {
					t.Fatalf("destination %s has no row:\n%s", d.Address, buf.String())
				}
			}
		}
	})
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }

func TestStatusReportsAWriteError(t *testing.T) {
	if _, err := Status(brokenWriter{}, healthy(), Options{}); err == nil || !strings.Contains(err.Error(), "broken pipe") {
		t.Errorf("error %v", err)
	}
}
