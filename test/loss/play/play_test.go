package play

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/config/keyword"
	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/daemon"
	"github.com/sluice-lb/sluice/test/loss/judge"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func testPlace(method string) place {
	return place{method: method, vip: vipOf, maintenance: "/run/maintenance",
		server: func(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(10 + n)}) }}
}

// The first file of every scenario must be one that the daemons take as it is, or a
// run would measure something else than it says.
func TestConfigurationsLoadWithoutFindings(t *testing.T) {
	t.Parallel()
	for _, s := range Scenarios {
		for _, method := range Topologies {
			cfg, list := keyword.LoadString(s.Name, s.Conf.text(testPlace(method)), keyword.Options{Strict: true})
			if cfg == nil || len(list) > 0 {
				t.Errorf("%s for %s: %v", s.Name, method, list)
				continue
			}
			if got, want := len(cfg.VirtualServers), len(s.Conf.Pools); got != want {
				t.Errorf("%s: %d virtual servers, want %d", s.Name, got, want)
			}
			for i, vs := range cfg.VirtualServers {
				if got, want := len(vs.RealServers), len(s.Conf.Pools[i].Servers); got != want {
					t.Errorf("%s: %d real servers, want %d", s.Name, got, want)
				}
				for j, rs := range vs.RealServers {
					if rs.Weight != int64(s.Conf.Pools[i].Servers[j].Weight) || len(rs.Checkers) == 0 {
						t.Errorf("%s: real server %d has weight %d and %d checkers", s.Name, j, rs.Weight, len(rs.Checkers))
					}
				}
			}
		}
	}
}

func TestScenariosAreConsistent(t *testing.T) {
	t.Parallel()
	seen, quick := map[string]bool{}, 0
	for _, s := range Scenarios {
		if seen[s.Name] || seen[s.Title] || s.Name == "" || s.Title == "" {
			t.Errorf("%q: name and title must be there, once", s.Name)
		}
		seen[s.Name], seen[s.Title] = true, true
		if s.Quick {
			quick++
		}
		for _, p := range s.Conf.Pools {
			for _, m := range append(p.Servers, Server{N: p.Sorry}) {
				if m.N > s.Servers {
					t.Errorf("%s: server %d of %d", s.Name, m.N, s.Servers)
				}
			}
			if s.Kube && (p.Inhibit || p.Sorry > 0 || p.Persistence > 0) {
				t.Errorf("%s: kube-proxy's order does not know all of this pool", s.Name)
			}
		}
		if strings.Contains(fmt.Sprint(s.Costs), DeleteFirst) && !s.Kube {
			t.Errorf("%s: delete first has to cost something, and does not run", s.Name)
		}
	}
	if quick < 4 || quick > 6 {
		t.Errorf("%d quick scenarios, want four to six", quick)
	}
}

func TestTable(t *testing.T) {
	t.Parallel()
	c := conf(at(Pool{Servers: []Server{{1, 5}, {2, 0}}, Sorry: 3, SorryInhibit: true}, 0, 1))
	want := map[string]int{
		"tcp 192.0.2.10:80 -> 10.0.0.11:80": 5, "tcp 192.0.2.10:80 -> 10.0.0.12:80": 0, "tcp 192.0.2.10:80 -> 10.0.0.13:80": 0,
		"tcp 192.0.2.11:80 -> 10.0.0.11:80": 5, "tcp 192.0.2.11:80 -> 10.0.0.12:80": 0, "tcp 192.0.2.11:80 -> 10.0.0.13:80": 0,
	}
	if diff := cmp.Diff(want, c.table(testPlace("DR"))); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestDifference(t *testing.T) {
	t.Parallel()
	want := map[string]int{"a": 1, "b": 0}
	for _, tt := range []struct {
		name string
		got  map[string]int
		want string
	}{
		{"as wanted", map[string]int{"a": 1, "b": 0}, ""},
		{"one missing", map[string]int{"a": 1}, "at the end x: no b"},
		{"weight 0 is not absent", map[string]int{"a": 1, "b": 1}, "at the end x: b has weight 1, not 0"},
		{"one too many", map[string]int{"a": 1, "b": 0, "c": 0}, "at the end x: c too many, weight 0"},
		{"empty", nil, "at the end x: no a; no b"},
	} {
		if got := difference("x", want, tt.got); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

func TestCountLong(t *testing.T) {
	t.Parallel()
	rep := testkit.LongReport{Opened: 30, Kept: 20, KeptBy: map[string]int{"b2": 20}, LostBy: map[string]int{"b1": 9, "b3": 1},
		Losses: map[testkit.Loss]int{testkit.Reset: 9, testkit.TimedOut: 1}}
	const all = "reset 9, timeout 1"
	failed := map[string]bool{"b1": true}
	for _, tt := range []struct {
		name            string
		apart, failures bool
		want            judge.Count
	}{
		{"all count", false, false, judge.Count{Opened: 30, Lost: 10, How: all}},
		{"those on the failed server are apart", false, true, judge.Count{Opened: 30, Lost: 1, Apart: 9, How: all}},
		{"clients that are apart", true, false, judge.Count{Opened: 30, Apart: 10, How: all}},
		{"both", true, true, judge.Count{Opened: 30, Apart: 10, How: all}},
	} {
		if diff := cmp.Diff(tt.want, countLong(rep, tt.apart, tt.failures, failed)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

func TestCountShort(t *testing.T) {
	t.Parallel()
	rep := testkit.ShortReport{OK: 90, Losses: map[testkit.Loss]int{testkit.Reset: 2, testkit.Refused: 7, testkit.TimedOut: 1}}
	const all = "refused 7, reset 2, timeout 1"
	for _, tt := range []struct {
		name  string
		s     Scenario
		apart bool
		want  judge.Count
	}{
		{"all count", Scenario{}, false, judge.Count{Opened: 100, Lost: 10, How: all}},
		{"what was cut on a failed server is apart", Scenario{Apart: onFailed}, false, judge.Count{Opened: 100, Lost: 8, Apart: 2, How: all}},
		{"what came while there was no scheduler", Scenario{Apart: schedless}, false, judge.Count{Opened: 100, Lost: 3, Apart: 7, How: all}},
		{"clients that are apart", Scenario{Apart: byFlush}, true, judge.Count{Opened: 100, Apart: 10, How: all}},
		{"and those that came after", Scenario{Apart: byFlush}, false, judge.Count{Opened: 100, Lost: 10, How: all}},
	} {
		if diff := cmp.Diff(tt.want, countShort(rep, tt.apart, tt.s.shortApart())); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.name, diff)
		}
	}
}

// A run is void for what the witnesses saw alone.
func TestVoid(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		lost  int
		worst time.Duration
		want  string
	}{
		{0, 60 * time.Millisecond, ""},
		{0, tooLate, ""},
		{0, 2 * time.Second, "the machine stood still for 2s"},
		{1, 0, "1 of 8 connections past the virtual server were lost too"},
	} {
		if got := void(tt.lost, tt.worst); got != tt.want {
			t.Errorf("%d lost, %v late: %q, want %q", tt.lost, tt.worst, got, tt.want)
		}
	}
}

// Every chosen scenario runs in each topology by each daemon, and in kube-proxy's
// order where that differs; all kills are shared out.
func TestJobs(t *testing.T) {
	t.Parallel()
	p := Plan{Scenarios: []string{"same", "remove", "kill"}, Topologies: Topologies, Kills: 5,
		Daemons: []daemon.Daemon{{Name: daemon.Sluice, Command: []string{"s"}}, {Name: Keepalived, Command: []string{"k"}}}}
	got := map[string]int{}
	for i, j := range p.jobs() {
		got[j.s.Name+" "+j.actor.Name]++
		if (i < 4) != (j.s.Name == "kill") {
			t.Errorf("job %d is %s; the longest come first", i, j.s.Name)
		}
	}
	want := map[string]int{"same sluice": 2, "same keepalived": 2, "remove sluice": 2, "remove keepalived": 2, "remove delete-first": 2, "kill sluice": 2, "kill keepalived": 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	p.Kills = 2*killsAtATime + 20 + 3
	var parts []int
	for _, j := range p.jobs() {
		if j.s.Name == "kill" && j.topology == "NAT" && j.actor.Name == Keepalived {
			parts = append(parts, j.kills)
		}
	}
	if diff := cmp.Diff([]int{killsAtATime, 12}, parts); diff != "" {
		t.Errorf("parts (-want +got):\n%s", diff)
	}
	p.Kills = 5
	if a, b := p.KillsIn("NAT"), p.KillsIn("DR"); a != 3 || b != 2 {
		t.Errorf("kills are shared out as %d and %d", a, b)
	}
}

func TestMerge(t *testing.T) {
	t.Parallel()
	of := func(actor string, lost int, problems ...string) judge.Result {
		return judge.Result{Scenario: "kill", Topology: "NAT", Actor: actor, Long: judge.Count{Opened: 30, Lost: lost}, Problems: problems, Took: 1}
	}
	got := merge([]judge.Result{of("a", 1), of("b", 0), of("a", 2, "bad")})
	want := []judge.Result{of("a", 3, "bad"), of("b", 0)}
	want[0].Long.Opened, want[0].Took = 60, 2
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
