package play

import (
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/testkit"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestParseHops(t *testing.T) {
	t.Parallel()
	for out, want := range map[string][]int{
		"":      nil,
		"[ ]\n": nil,
		`[{"dst":"192.0.2.10","gateway":"10.0.0.22","dev":"back","protocol":"bird","metric":32}]`:                                              {1},
		`[{"dst":"192.0.2.10","nexthops":[{"gateway":"10.0.0.23","dev":"back"},{"gateway":"10.0.0.21","dev":"back"},{"gateway":"10.9.9.9"}]}]`: {0, 2},
	} {
		got, err := parseHops(out)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v (-want +got):\n%s", out, err, diff)
		}
	}
	if _, err := parseHops("Error: no"); err == nil {
		t.Error("what is no JSON is taken")
	}
}

// TestParsePorts: neither another port of the address nor a connection that is not
// established counts.
func TestParsePorts(t *testing.T) {
	t.Parallel()
	const text = `  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 026433C6:C350 0A0200C0:0050 01 00000000:00000000 00:00000000 00000000     0        0 1 1 0 20 4 30 10 -1
   1: 026433C6:9C40 0A0200C0:0050 01 00000000:00000000 00:00000000 00000000     0        0 2 1 0 20 4 30 10 -1
   2: 026433C6:9C41 0A0200C0:0051 01 00000000:00000000 00:00000000 00000000     0        0 3 1 0 20 4 30 10 -1
   3: 026433C6:9C42 0A0200C0:0050 06 00000000:00000000 00:00000000 00000000     0        0 4 1 0 20 4 30 10 -1
   4: 0A0200C0:0050 026433C6:9C43 01 00000000:00000000 00:00000000 00000000     0        0 5 1 0 20 4 30 10 -1
`
	if diff := cmp.Diff([]int{40000, 50000}, parsePorts(text)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestJudge: a judge that passes what it should not is the one failure that no run
// would show.
func TestJudge(t *testing.T) {
	t.Parallel()
	s := &Scenario{Name: "x", Zero: []string{"sync"}, Costs: []string{"neither"}, ShortZero: []string{"sync"}}
	good := Result{Mode: "sync", Long: Count{Opened: 60}, Short: Count{Opened: 50}, Moved: 20}
	for name, tt := range map[string]struct {
		change func(*Result)
		want   string // "" for a pass
	}{
		"all is well":            {func(*Result) {}, ""},
		"a long one is lost":     {func(r *Result) { r.Long.Lost = 1 }, "1 of 60 long-lived"},
		"a short one is lost":    {func(r *Result) { r.Short.Lost = 1 }, "1 of 50 short"},
		"which is excused":       {func(r *Result) { r.Short.Lost, r.Excused = 1, "a bad machine" }, ""},
		"a long one never is":    {func(r *Result) { r.Long.Lost, r.Excused = 1, "a bad machine" }, "1 of 60 long-lived"},
		"where it may be":        {func(r *Result) { r.Mode, r.Long.Lost, r.Short.Lost = "sloppy_tcp", 5, 5 }, ""},
		"nothing where it must":  {func(r *Result) { r.Mode = "neither" }, "cannot be"},
		"lost where it must":     {func(r *Result) { r.Mode, r.Long.Lost = "neither", 20 }, ""},
		"more lost than moved":   {func(r *Result) { r.Mode, r.Long.Lost = "neither", 21 }, "moved only 20"},
		"nothing moved":          {func(r *Result) { r.Moved = 0 }, "says nothing"},
		"no clients":             {func(r *Result) { r.Short.Opened = 0 }, "no clients"},
		"a step that went wrong": {func(r *Result) { r.Problems = []string{"the router"} }, "the router"},
	} {
		r := good
		tt.change(&r)
		got := strings.Join(Judge(s, r), "; ")
		if tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
			t.Errorf("%s: %q, want %q", name, got, tt.want)
		}
	}
}

// TestScenarios: modes are named as they are, and what must cost is nowhere promised.
func TestScenarios(t *testing.T) {
	t.Parallel()
	known := strings.Join(ModeNames(), " ")
	seen := map[string]bool{}
	for _, s := range Scenarios {
		if seen[s.Name] || seen[s.Title] {
			t.Errorf("%s is there twice", s.Name)
		}
		seen[s.Name], seen[s.Title] = true, true
		for _, names := range [][]string{s.Quick, s.Zero, s.Costs, s.ShortZero} {
			for _, n := range names {
				if !strings.Contains(known, n) {
					t.Errorf("%s: unknown mode %s", s.Name, n)
				}
			}
		}
		for _, n := range s.Costs {
			if strings.Contains(strings.Join(s.Zero, " "), n) {
				t.Errorf("%s must and must not lose something with %s", s.Name, n)
			}
		}
	}
}

// TestJobs: the short run takes what is marked, the whole one every mode and kind.
func TestJobs(t *testing.T) {
	t.Parallel()
	p := Plan{Scenarios: []string{"drain", "grown"}, Modes: ModeNames(), Kinds: Kinds}
	if n := len(p.jobs()); n != 2*len(Modes)*len(Kinds) {
		t.Errorf("%d jobs", n)
	}
	p.Quick = true
	if n := len(p.jobs()); n != len(Kinds) {
		t.Errorf("%d quick jobs", n)
	}
}

// TestPageHasTheConfigurations: what operators copy is what was measured.
func TestPageHasTheConfigurations(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../../docs/scale-out.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, conf := range map[string]string{"director": directorConf(0), "router": routerConf(3)} {
		if !strings.Contains(string(b), "```text\n"+conf+"```\n") {
			t.Errorf("docs/scale-out.md lacks the %s's configuration:\n%s", name, conf)
		}
	}
}

// TestPageHasTheKeywords: a director of the page has every keyword of one that was
// measured, but those that only make the test quick.
func TestPageHasTheKeywords(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../../docs/scale-out.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, _ := strings.Cut(string(b), "```conf\n")
	page, _, _ = strings.Cut(page, "```")
	words := func(conf string) map[string]bool {
		all := map[string]bool{}
		for line := range strings.Lines(conf) {
			if f := strings.Fields(line); len(f) > 0 {
				all[f[0]] = true
			}
		}
		return all
	}
	d := &daemonDirector{machineOf: &machineOf{r: &run{job: job{mode: Mode{Sync: true}}}}, list: []int{0}}
	onPage := words(page)
	for w := range words(d.conf()) {
		if !onPage[w] && w != "drain_interval" && w != "retry" {
			t.Errorf("the director of docs/scale-out.md has no %s", w)
		}
	}
}

// TestUnfit: a machine that costs the witnesses something excuses a loss, and nothing
// needs an excuse where there is none.
func TestUnfit(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		w           witnesses
		long, short int
		want        bool
	}{
		{witnesses{}, 9, 9, false},
		{witnesses{6, 6, 2 * slow}, 0, 0, false},
		{witnesses{pulses: 1}, 1, 0, true}, {witnesses{pulses: 1}, 0, 1, false},
		{witnesses{requests: 1}, 0, 1, true}, {witnesses{requests: 1}, 1, 0, false},
		{witnesses{slowest: 2 * slow}, 0, 1, true}, {witnesses{slowest: 2 * slow}, 1, 0, false},
	} {
		if got := tt.w.unfit(tt.long, tt.short); got != tt.want {
			t.Errorf("%+v: %v", tt, got)
		}
	}
}

// TestExpired: the session of a director that was killed has to end, no other.
func TestExpired(t *testing.T) {
	t.Parallel()
	lines := []string{
		"2026-11-30 16:50:36.299 <INFO> Started",
		"2026-11-30 16:50:46.299 <RMT> d2: Error: Hold timer expired",
		"2026-11-30 16:50:47.299 <RMT> d1: Received: Cease",
	}
	if why := expired(lines, "d2"); why != "" {
		t.Errorf("the director that is gone: %s", why)
	}
	if why := expired(lines, ""); !strings.Contains(why, "d2") {
		t.Errorf("one that nobody touched: %q", why)
	}
}
