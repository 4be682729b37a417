package main

import (
	"os"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/ecmp/play"
	"github.com/sluice-lb/sluice/test/runner"
)

func TestMain(m *testing.M) { testkit.Main(m) }

func TestChooseKinds(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, word := range play.Needs {
		all.WriteString("| `" + word + "` | `X` |  | extension | x |\n")
	}
	for _, tt := range []struct {
		name, reference, want, waits string
		o                            options
	}{
		{name: "no keyword yet", reference: "", want: "hand", waits: play.Needs[0]},
		{name: "one is planned only", reference: strings.Replace(all.String(), "extension", "not yet", 1), want: "hand", waits: play.Needs[0]},
		{name: "all keywords", reference: all.String(), want: "hand sluice"},
		{name: "quick", reference: all.String(), o: options{Options: runner.Options{Quick: true}}, want: "sluice"},
		{name: "as asked", reference: "", o: options{kinds: "sluice"}, want: "sluice"},
	} {
		got, waits, err := tt.o.chooseKinds(runner.Keywords(tt.reference))
		if strings.Join(got, " ") != tt.want || !strings.Contains(waits, tt.waits) || (waits == "") != (tt.waits == "") || err != nil {
			t.Errorf("%s: %v, %q, %v", tt.name, got, waits, err)
		}
	}
	if _, _, err := (&options{kinds: "pigeon"}).chooseKinds(nil); err == nil || !strings.Contains(err.Error(), "pigeon") {
		t.Errorf("an unknown kind: %v", err)
	}
}

func run(scenario, mode, kind string, lost int) play.Result {
	return play.Result{Scenario: scenario, Mode: mode, Kind: kind, Long: play.Count{Opened: 60, Lost: lost}, Short: play.Count{Opened: 70}, Moved: 24, Noticed: 0.31}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	plan := play.Plan{Long: 60, Short: 10}
	results := play.Results{Kernel: "6.1.0-9-amd64"}
	for _, m := range play.Modes {
		lost := 0
		if m.Name == "neither" {
			lost = 24
		}
		r := run("drain", m.Name, play.Sluice, lost)
		r.Left, r.Unheard = 20, lost/2
		results.Runs = append(results.Runs, r)
	}
	results.Runs = append(results.Runs, run("kill", "sync", play.Sluice, 0)) // not the whole row
	const begin, end = "<!-- begin more-directors: something -->\n", "<!-- end more-directors -->\n"
	for _, m := range play.Modes { // a whole row, of which one run was none
		results.Runs = append(results.Runs, run("join", m.Name, play.Sluice, 0))
	}
	results.Runs[len(results.Runs)-1].Problems = []string{"void after 4 attempts"}
	text, err := update("# Top\n"+begin+"old\n"+end+"the rest\n", plan, results)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"# Top\n" + begin, end + "the rest\n", "on Linux 6.1, ",
		"| one of three directors is drained | 24 | 0.3 s | 24 of 60; **0** of 70 | **0** of 60; **0** of 70 |",
		"| one of three directors is killed, without a word | not measured yet |",
		"\n| by hand | 20, then 12 | 20, then 0 | 20, then 0 | 20, then 0 |\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page lacks %q:\n%s", want, text)
		}
	}
	if n := strings.Count(text, notMeasured); n != 2*len(play.Scenarios)-1 {
		t.Errorf("%d rows are not measured", n)
	}
	// Again, with nothing: what was measured stays, below its own heading.
	again, err := update(text, plan, play.Results{Kernel: "6.1"})
	if err != nil || again != text {
		t.Errorf("%v, got\n%s\nwant\n%s", err, again, text)
	}
	// What it costs is on the page of all losses too, without the router's columns.
	loss, err := updateLoss("# Loss\n"+begin+end, text)
	for _, want := range []string{
		"# Loss\n" + begin + "\n| what happens | neither | sloppy_tcp | sync | both |\n|---|---|---|---|---|\n",
		"\n| one of three directors is drained | 24 of 60; **0** of 70 | **0** of 60; **0** of 70 |",
		"\n| one of three directors is killed, without a word | not measured yet | | | |\n",
	} {
		if !strings.Contains(loss, want) {
			t.Errorf("%v: the page lacks %q:\n%s", err, want, loss)
		}
	}
	if n := strings.Count(loss, "\n| "); n != 1+len(play.Scenarios) {
		t.Errorf("%d rows:\n%s", n, loss)
	}
	if _, err := update("# a page without the lines\n", plan, results); err == nil {
		t.Error("a page without the lines is written")
	}
}

// TestConclude: a loss fails, and leaves its log; no run is no pass.
func TestConclude(t *testing.T) {
	t.Parallel()
	o := options{Options: runner.Options{Artifacts: t.TempDir() + "/logs"}}
	var out strings.Builder
	bad := play.Results{Runs: []play.Result{run("drain", "sync", play.Hand, 2)}}
	if err := o.conclude(play.Plan{}, bad, &out); err == nil || !strings.Contains(err.Error(), "drain with sync, directors by hand: 2 of 60") {
		t.Errorf("%v", err)
	}
	if logs, err := os.ReadDir(o.Artifacts); err != nil || len(logs) != 1 {
		t.Errorf("%v, %v", logs, err)
	}
	if err := o.conclude(play.Plan{}, play.Results{Runs: []play.Result{run("drain", "sync", play.Hand, 0)}}, &out); err != nil {
		t.Error(err)
	}
	if err := o.conclude(play.Plan{}, play.Results{}, &out); err == nil {
		t.Error("nothing ran, and that passes")
	}
}

// TestThePagesAgree: the rows of the loss table are those of docs/scale-out.md.
func TestThePagesAgree(t *testing.T) {
	t.Parallel()
	var texts []string
	for _, name := range []string{lossFile, pageFile} {
		b, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		texts = append(texts, string(b))
	}
	if got, err := updateLoss(texts[0], texts[1]); err != nil || got != texts[0] {
		t.Errorf("%s has other rows than %s (%v): go run ./test/ecmp -update writes both", lossFile, pageFile, err)
	}
}
