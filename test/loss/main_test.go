package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/daemon"
	"github.com/sluice-lb/sluice/test/loss/judge"
	"github.com/sluice-lb/sluice/test/loss/play"
	"github.com/sluice-lb/sluice/test/runner"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func chooseOf(run *regexp.Regexp, quick bool, known []string) (chosen, waiting []*play.Scenario) {
	o := options{Options: runner.Options{Run: run, Quick: quick}}
	return o.choose(known)
}

func TestChoose(t *testing.T) {
	t.Parallel()
	reference, err := os.ReadFile("../../" + runner.Reference)
	if err != nil {
		t.Fatal(err)
	}
	known := runner.Keywords(string(reference))
	for _, word := range []string{"virtual_server", "drain_interval"} {
		if !strings.Contains(strings.Join(known, " "), word) {
			t.Errorf("%s is not among the keywords of the reference", word)
		}
	}
	everything := regexp.MustCompile("")
	chosen, waiting := chooseOf(everything, false, nil)
	if len(waiting) == 0 || len(chosen)+len(waiting) != len(play.Scenarios) {
		t.Errorf("%d chosen and %d waiting of %d", len(chosen), len(waiting), len(play.Scenarios))
	}
	for _, s := range waiting {
		known = append(known, s.Needs)
	}
	if _, waiting = chooseOf(everything, false, known); len(waiting) > 0 {
		t.Errorf("with all keywords %d scenarios wait", len(waiting))
	}
	if chosen, _ = chooseOf(regexp.MustCompile("^drain$"), false, nil); len(chosen) != 1 {
		t.Errorf("%d scenarios match one name", len(chosen))
	}
	chosen, _ = chooseOf(everything, true, nil)
	for _, s := range chosen {
		if !s.Quick {
			t.Errorf("%s is not quick", s.Name)
		}
	}
}

// made is a report of two scenarios with everything that a cell can hold.
func made(change func(*judge.Result)) *report {
	byName := map[string]*play.Scenario{}
	for _, s := range play.Scenarios {
		byName[s.Name] = s
	}
	r := &report{kernel: "6.1.0-9-amd64", version: "2.2.7", plan: play.Plan{Topologies: []string{"NAT"}, Long: 30, Short: 10, Kills: 4},
		scenarios: []*play.Scenario{byName["failure"], byName["kill"], byName["resurrection"]}, waiting: []*play.Scenario{byName["at-once"]}}
	add := func(scenario, actor string, long, short judge.Count) {
		res := judge.Result{Scenario: scenario, Topology: "NAT", Actor: actor, Long: long, Short: short, Log: []string{"a line of " + actor}}
		if change != nil {
			change(&res)
		}
		r.runs = append(r.runs, res)
	}
	add("failure", daemon.Sluice, judge.Count{Opened: 30, Apart: 10, How: "reset 10"}, judge.Count{Opened: 50})
	add("failure", play.Keepalived, judge.Count{Opened: 30, Lost: 20, Apart: 10}, judge.Count{Opened: 51})
	add("kill", daemon.Sluice, judge.Count{Opened: 30}, judge.Count{Opened: 50})
	add("kill", play.Keepalived, judge.Count{Opened: 30}, judge.Count{Opened: 50, Lost: 3})
	add("resurrection", daemon.Sluice, judge.Count{Opened: 30}, judge.Count{Opened: 50})
	add("resurrection", play.Keepalived, judge.Count{Opened: 30, Lost: 10}, judge.Count{Opened: 50})
	add("resurrection", play.DeleteFirst, judge.Count{Opened: 30, Lost: 10}, judge.Count{Opened: 50})
	return r
}

func TestPage(t *testing.T) {
	t.Parallel()
	page := made(nil).page("")
	for _, want := range []string{
		"on Linux 6.1, by sluiced, by keepalived 2.2.7", "## Through NAT\n",
		"| a server fails and recovers | **0** of 30 (+10 apart) | **0** of 50 | 20 of 30 (+10 apart) | 0 of 51 | | |\n",
		"| kill -9 at random moments, and start, 4 times | **0** of 30 | **0** of 50 | 0 of 30 | 3 of 50 | | |\n",
		"in mid-drain | **0** of 30 | **0** of 50 | 10 of 30 | 0 of 50 | 10 of 30 | 0 of 50 |\n",
		"- a server fails and recovers: what was lost on the failed server.\n", "## How it is measured",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

// TestPageKeepsRows: what did not run stays, below its own heading, and is not taken
// for another scenario's whose title begins alike; so does what is measured elsewhere.
func TestPageKeepsRows(t *testing.T) {
	t.Parallel()
	const others = "\n## More than one director\n\nrows that other tests measure\n"
	old := strings.Replace(made(nil).page(""), "\n## Counted apart\n", others+"\n## Counted apart\n", 1)
	again := made(nil)
	again.runs = again.runs[2:4] // the kills alone
	again.runs[0].Long.Opened = 31
	page := again.page(old)
	want := strings.Replace(old, "4 times | **0** of 30", "4 times | **0** of 31", 1)
	if page != want {
		t.Errorf("got\n%s\nwant\n%s", page, want)
	}
	if n := strings.Count(old, "| "+notMeasured+" |"); n != 2*len(play.Scenarios)-3 {
		t.Errorf("%d rows are not measured of %d", n, 2*len(play.Scenarios))
	}
}

// TestConclude: losses and problems fail, and leave logs; a loss is never in bold.
func TestConclude(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name   string
		change func(*judge.Result)
		want   string // "" for a pass
	}{
		{"all is well", nil, ""},
		{"sluice loses one", func(r *judge.Result) {
			if r.Actor == daemon.Sluice && r.Scenario == "kill" {
				r.Short.Lost = 1
			}
		}, "kill through NAT: sluice: 1 of 50 short"},
		{"a table at the end", func(r *judge.Result) {
			if r.Actor == daemon.Sluice && r.Scenario == "failure" {
				r.Problems = []string{"at the end ipvsadm: no b1"}
			}
		}, "failure through NAT: sluice: at the end ipvsadm"},
		{"blind clients", func(r *judge.Result) { r.Long.Lost, r.Short.Lost = 0, 0 }, "resurrection through NAT: keepalived: lost nothing"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			o := options{Options: runner.Options{Artifacts: filepath.Join(t.TempDir(), "logs")}}
			var out bytes.Buffer
			err := made(tt.change).conclude(&o, &out)
			logs, _ := filepath.Glob(o.Artifacts + "/*")
			if tt.want == "" {
				if err != nil || len(logs) != 0 {
					t.Fatalf("error %v, logs %v", err, logs)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error %v, want one that says %q", err, tt.want)
			}
			if len(logs) == 0 {
				t.Error("no logs were left")
			}
		})
	}
	lossy := made(func(r *judge.Result) { r.Long.Lost = 1 }).page("")
	if strings.Contains(lossy, "**0** of 30 ") {
		t.Errorf("a loss is in bold:\n%s", lossy)
	}
}

// The page's rows are those of the scenarios: a new one has to be measured. One that
// waits for a keyword is measured when there is one.
func TestPageHoldsTheScenarios(t *testing.T) {
	t.Parallel()
	b, err := os.ReadFile("../../" + pageFile)
	if err != nil {
		t.Fatal(err)
	}
	chosen, _ := chooseOf(regexp.MustCompile(""), false, nil)
	for _, s := range chosen {
		if n := len(rowOf(s).FindAll(b, -1)); n != len(play.Topologies) {
			t.Errorf("%s has %q in %d of %d tables; run: make test-loss ARGS=-update", pageFile, s.Title, n, len(play.Topologies))
		}
	}
	if !strings.HasSuffix(string(b), "\n"+strings.TrimSpace(notes)+"\n") {
		t.Errorf("%s does not end with test/loss/notes.md", pageFile)
	}
}
