package top

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/engine"
)

var at = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

func sample() *engine.Snapshot {
	server := func(addr string, st engine.State, why string, wanted int64, ago time.Duration) engine.RealServer {
		return engine.RealServer{Address: addr, State: st, Reason: why, WeightWanted: wanted, Since: at.Add(-ago)}
	}
	return &engine.Snapshot{
		Version: "1.2.3", Started: at.Add(-26 * time.Hour), At: at, Generation: 4,
		Reload: engine.Reload{At: at, OK: true}, Kernel: engine.Kernel{OK: true},
		VirtualServers: []engine.VirtualServer{
			{
				Name: "[192.0.2.10]:tcp:80", Label: "shop", QuorumUp: true, Since: at.Add(-time.Hour),
				Sorry: &engine.SorryServer{Address: "10.0.0.99:80"},
				RealServers: []engine.RealServer{
					server("10.0.0.11:80", engine.StateUp, "all checks pass", 3, time.Hour),
					server("10.0.0.12:80", engine.StateDown, "TCP_CHECK: connect to 10.0.0.12:80: connection refused (ECONNREFUSED) after 312µs", -1, 3*time.Minute),
				},
				Services: []engine.Service{{Name: "192.0.2.10:80/tcp", Destinations: []engine.Destination{
					{Address: "10.0.0.11:80", Wanted: 3, Kernel: 3, Active: 120, Inactive: 31},
					{Address: "10.0.0.13:80", Wanted: -1, Kernel: 0, Active: 2, Drain: &engine.Drain{Since: at.Add(-90 * time.Second), Why: "removed by reload", WaitsFor: "2 active connections"}},
				}}},
			},
			{
				Name: "[192.0.2.20]:tcp:25", QuorumUp: false, Since: at.Add(-time.Minute),
				RealServers: []engine.RealServer{server("10.0.1.1:25", engine.StateMaintenance, "track_file mail is -1000", 0, time.Minute)},
				Services:    []engine.Service{{Name: "192.0.2.20:25/tcp", Destinations: []engine.Destination{{Address: "10.0.1.1:25", Wanted: 0, Kernel: 5, Active: 7}}}},
			},
		},
		Leaving: []engine.Service{{Name: "192.0.2.30:443/tcp", Destinations: []engine.Destination{
			{Address: "10.0.2.1:443", Wanted: -1, Kernel: 0, Active: 1, Drain: &engine.Drain{Since: at.Add(-5 * time.Second), WaitsFor: "1 active connection"}},
		}}},
	}
}

func screen(m *Model) string { return strings.Join(m.View(), "\n") + "\n" }

func TestScreen(t *testing.T) {
	m := New(time.Second)
	m.Take(sample(), nil)
	want := `sluiced 1.2.3, up 1d2h, configuration 4                                 12:00:00
1 of 2 pools have quorum, 1 up, 1 down, 1 maintenance, 2 drain, 130 active
by trouble: 6 of 6        s sort  / filter  ! trouble  enter why  ? keys  q quit
POOL               SERVER             STATE  WEIGHT ACTIVE  INACT SINCE WHY
shop               10.0.0.12:80       down        -      0      0    3m TCP_CHE…
192.0.2.30:443/tcp 10.0.2.1:443       drains    -/0      1      0    5s waits f…
192.0.2.20:25/tcp  10.0.1.1:25        maint…    0/5      7      0    1m track_f…
shop               10.0.0.13:80       drains    -/0      2      0 1m30s waits f…
shop               10.0.0.11:80       up          3    120     31    1h all che…
shop               10.0.0.99:80       sorry       -      0      0    1h not nee…
`
	if d := cmp.Diff(want, screen(m)); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	m.Cursor = true
	if v := m.View(); !strings.HasPrefix(v[3], reverse) || !strings.HasPrefix(v[4], reverse) || strings.Contains(v[5], reverse) || strings.Contains(screen(m), bad) {
		t.Errorf("the cursor is not on the head and the first row:\n%q", v)
	}
	m.Color = true
	if v := m.View(); !strings.HasPrefix(v[4], bad+reverse) {
		t.Errorf("without colour: %q", v[4])
	}
}

func TestKeysOfTheList(t *testing.T) {
	for name, tt := range map[string]struct {
		keys []string
		want string // servers in their order
		bar  string
	}{
		"by pool":           {[]string{"s"}, "10.0.0.11:80 10.0.0.12:80 10.0.0.99:80 10.0.0.13:80 10.0.1.1:25 10.0.2.1:443", "by pool"},
		"by active":         {[]string{"s", "s", "s"}, "10.0.0.11:80 10.0.1.1:25 10.0.0.13:80 10.0.2.1:443 10.0.0.12:80 10.0.0.99:80", "by active"},
		"reversed":          {[]string{"s", "r"}, "10.0.2.1:443 10.0.1.1:25 10.0.0.13:80 10.0.0.99:80 10.0.0.12:80 10.0.0.11:80", "by pool, reversed"},
		"backwards":         {[]string{"left"}, "10.0.2.1:443 10.0.1.1:25 10.0.0.13:80 10.0.0.12:80 10.0.0.11:80 10.0.0.99:80", "by changed"},
		"trouble":           {[]string{"!"}, "10.0.0.12:80 10.0.2.1:443 10.0.1.1:25 10.0.0.13:80", "trouble alone: 4 of 6"},
		"filter":            {[]string{"/", "s", "h", "o", "p", " ", "d", "o", "w", "n", "enter"}, "10.0.0.12:80", `with "shop down": 1 of 6`},
		"filter, mistyped":  {[]string{"/", "m", "x", "backspace", "a", "i", "l", "enter"}, "10.0.1.1:25", `with "mail"`},
		"filter, given up":  {[]string{"/", "x", "x", "esc"}, "10.0.0.12:80 10.0.2.1:443 10.0.1.1:25 10.0.0.13:80 10.0.0.11:80 10.0.0.99:80", "6 of 6"},
		"filter, taken off": {[]string{"/", "x", "enter", "esc"}, "10.0.0.12:80 10.0.2.1:443 10.0.1.1:25 10.0.0.13:80 10.0.0.11:80 10.0.0.99:80", "6 of 6"},
	} {
		t.Run(name, func(t *testing.T) {
			m := New(time.Second)
			m.Take(sample(), nil)
			for _, k := range tt.keys {
				if a := m.Key(k); a != None {
					t.Fatalf("%q is action %d", k, a)
				}
			}
			var got []string
			for _, r := range m.shown {
				got = append(got, r.server)
			}
			if d := cmp.Diff(strings.Fields(tt.want), got); d != "" {
				t.Errorf("(-want +got):\n%s", d)
			}
			if bar := m.bar(); !strings.Contains(bar, tt.bar) {
				t.Errorf("%q is not in %q", tt.bar, bar)
			}
		})
	}
}

func TestActions(t *testing.T) {
	m := New(time.Second)
	if m.Key("enter") != None {
		t.Error("nothing is selected before the first answer")
	}
	m.Take(sample(), nil)
	for key, want := range map[string]Action{"q": Quit, "ctrl-c": Quit, "enter": Explain, " ": Now, "x": None, "up": None} {
		if got := m.Key(key); got != want {
			t.Errorf("%q: %d, want %d", key, got, want)
		}
	}
	if vs, rs, ok := m.Selected(); vs != "[192.0.2.10]:tcp:80" || rs != "10.0.0.12:80" || !ok {
		t.Errorf("selected %s %s", vs, rs)
	}
	m.Key("p")
	if !m.Paused() || m.Key("p") != Now {
		t.Error("the end of a pause is a question")
	}
	m.Key("?")
	if !strings.Contains(screen(m), "any key goes back") || m.Key("q") != None || strings.Contains(screen(m), "any key") {
		t.Error("any key leaves the help")
	}
}

// TestTheCursorStaysOnItsServer: whatever its place is.
func TestTheCursorStaysOnItsServer(t *testing.T) {
	m := New(time.Second)
	m.Take(sample(), nil)
	for range 4 {
		m.Key("down")
	}
	if _, rs, _ := m.Selected(); rs != "10.0.0.11:80" {
		t.Fatalf("selected %s", rs)
	}
	s := sample()
	s.VirtualServers[0].RealServers[0].State = engine.StateDown
	s.VirtualServers[0].RealServers[0].Since = at
	m.Take(s, nil)
	if _, rs, _ := m.Selected(); rs != "10.0.0.11:80" || m.cursor != 0 {
		t.Errorf("selected %s at %d", rs, m.cursor)
	}
}

func TestWhatIsWrongIsTheFirstLine(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*engine.Snapshot)
		err    error
		want   string
	}{
		"kernel":  {func(s *engine.Snapshot) { s.Kernel = engine.Kernel{Error: "no ip_vs"} }, nil, "KERNEL NOT OK: no ip_vs"},
		"reload":  {func(s *engine.Snapshot) { s.Reload = engine.Reload{Error: "a.conf:3:1: nonsense"} }, nil, "LAST RELOAD REFUSED: a.conf:3:1"},
		"overdue": {func(s *engine.Snapshot) { s.Overdue = 3 * time.Second }, nil, "CHECKS ARE LATE by 3s"},
		"gone":    {func(*engine.Snapshot) {}, errors.New("sluiced is not running"), "NO ANSWER since 12:00:00: sluiced is not running"},
	} {
		t.Run(name, func(t *testing.T) {
			m := New(time.Second)
			m.Resize(200, 20)
			s := sample()
			tt.change(s)
			m.Take(s, nil)
			if tt.err != nil {
				m.Take(nil, tt.err)
			}
			if v := m.View(); !strings.Contains(v[0], tt.want) || len(v) < 8 {
				t.Errorf("%q of %d lines", v[0], len(v))
			}
		})
	}
	m := New(time.Second)
	m.Take(nil, errors.New("is sluiced running?"))
	if got := screen(m); got != "is sluiced running?\n" {
		t.Errorf("before the first answer: %q", got)
	}
}

// TestTheScreenHolds: no line is wider and no screen higher than the terminal, the
// cursor is in sight, and nothing of the other side's steers the terminal.
func TestTheScreenHolds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := New(time.Second)
		m.Color, m.Cursor = rapid.Bool().Draw(t, "color"), rapid.Bool().Draw(t, "cursor")
		s := sample()
		n := rapid.IntRange(0, 60).Draw(t, "servers")
		text := rapid.StringOf(rapid.SampledFrom([]rune("ab \x1b\n\u009b端…")))
		for i := range n {
			s.VirtualServers[0].RealServers = append(s.VirtualServers[0].RealServers, engine.RealServer{
				Address: fmt.Sprintf("10.9.0.%d:80", i), Label: text.Draw(t, "label"), Reason: text.Draw(t, "reason"),
				State: rapid.SampledFrom([]engine.State{engine.StateUp, engine.StateDown, ""}).Draw(t, "state"), Since: at,
			})
		}
		width, height := 80, 24
		keys := []string{"up", "down", "pgup", "pgdn", "home", "end", "s", "S", "r", "!", "/", "a", "enter", "esc", "?", "p", "backspace", "端"}
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 5).Draw(t, "step") {
			case 0:
				width, height = rapid.IntRange(20, 200).Draw(t, "width"), rapid.IntRange(5, 60).Draw(t, "height")
				m.Resize(width, height)
			case 1:
				m.Take(s, nil)
			default:
				m.Key(rapid.SampledFrom(keys).Draw(t, "key"))
			}
			lines := m.View()
			if len(lines) > height {
				t.Fatalf("%d lines on a screen of %d", len(lines), height)
			}
			for _, l := range lines {
				for _, c := range []string{bad, odd, reverse, plain} {
					l = strings.ReplaceAll(l, c, "")
				}
				if strings.ContainsAny(l, "\x1b\n\u009b") || utf8.RuneCountInString(l) > width {
					t.Fatalf("%d wide: %q", utf8.RuneCountInString(l), l)
				}
			}
			if m.snap != nil && len(m.shown) > 0 && (m.cursor < m.top || m.cursor >= m.top+m.page()) {
				t.Fatalf("cursor at %d, shown from %d on, %d fit", m.cursor, m.top, m.page())
			}
		}
	})
}

func TestKeys(t *testing.T) {
	for in, want := range map[string]string{
		"q": "q", "\x1b[A": "up", "\x1b": "esc", "\x1b[5~\x1b[B": "pgdn? down", "\x03": "ctrl-c", "\r": "enter",
		"a\x1b[99;5~b": "a b", "é": "é", "\xff": "", "\x1b[": "esc [", "\x00": "", "\x1bOH\x7f": "home backspace",
	} {
		want = strings.Replace(want, "pgdn?", "pgup", 1)
		if got := strings.Join(Keys([]byte(in)), " "); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzKeys(f *testing.F) {
	f.Add([]byte("\x1b[A\x1b[5~q\x1bOx"))
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, k := range Keys(in) {
			if k == "" || strings.ContainsAny(k, "\x1b\n") {
				t.Fatalf("%q in %q", k, in)
			}
		}
	})
}
