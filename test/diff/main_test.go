package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/daemon"
	"github.com/sluice-lb/sluice/test/diff/guest"
	"github.com/sluice-lb/sluice/test/diff/scenario"
	"github.com/sluice-lb/sluice/test/runner"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// Every scenario of the repository must be readable, and the short run not empty.
func TestScenariosParse(t *testing.T) {
	t.Parallel()
	all, err := (&options{Options: runner.Options{Run: regexp.MustCompile("")}, scenarios: "../../testdata/diff"}).load()
	if err != nil {
		t.Error(err)
	}
	quick := 0
	for _, c := range all {
		if c.s.Quick {
			quick++
		}
	}
	if quick < 6 || quick > 20 {
		t.Errorf("%d of %d scenarios are marked as quick, want about a dozen", quick, len(all))
	}
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func names(all []candidate) (names []string) {
	for _, c := range all {
		names = append(names, c.s.Name)
	}
	return names
}

func TestLoad(t *testing.T) {
	t.Parallel()
	scenarios, configs := t.TempDir(), t.TempDir()
	write(t, scenarios, "a.txtar", "title A\nquick\ntest x\n-- x --\n")
	write(t, scenarios, "b.txtar", "title B\ntest x\n-- x --\n")
	write(t, scenarios, "configs.differs", "# of configurations\n01 table:start the port is another\n")
	write(t, configs, "01-one.conf", "virtual_server {\n}\n")
	write(t, configs, "02-two.conf", "")
	write(t, configs, "INDEX.md", "")
	o := options{Options: runner.Options{Run: regexp.MustCompile("")}, scenarios: scenarios, configs: configs}
	all, err := o.load()
	if diff := cmp.Diff([]string{"a", "b", "config-01", "config-02"}, names(all)); err != nil || diff != "" {
		t.Fatalf("error %v (-want +got):\n%s", err, diff)
	}
	if claim, ok := all[2].s.Differs("table:start"); !ok || claim.Reason != "the port is another" || all[2].number != "01" {
		t.Errorf("the first configuration is number %q with the claim %+v", all[2].number, claim)
	}
	if _, ok := all[3].s.Differs("table:start"); ok {
		t.Error("the second configuration has the claim of the first")
	}
	for _, tt := range []struct {
		change func(*options)
		want   []string
	}{
		{func(o *options) { o.Quick = true }, []string{"a"}},
		{func(o *options) { o.Run = regexp.MustCompile("^b|02") }, []string{"b", "config-02"}},
		{func(o *options) { o.configs = "" }, []string{"a", "b"}},
		{func(o *options) { o.configs = filepath.Join(configs, "absent") }, []string{"a", "b"}},
	} {
		o := o
		tt.change(&o)
		all, err := o.load()
		if diff := cmp.Diff(tt.want, names(all)); err != nil || diff != "" {
			t.Errorf("error %v (-want +got):\n%s", err, diff)
		}
	}
	write(t, scenarios, "c.txtar", "title C\ntabel x\n")
	if _, err := o.load(); err == nil || !strings.Contains(err.Error(), "c:2: tabel") {
		t.Errorf("a broken scenario: error %v", err)
	}
	o.Run = regexp.MustCompile("^a$")
	if _, err := o.load(); err != nil {
		t.Errorf("a broken scenario that was not asked for: error %v", err)
	}
	o.Run = regexp.MustCompile("none")
	if _, err := o.load(); err == nil {
		t.Error("no scenario, and no error")
	}
}

func TestDeviceCommands(t *testing.T) {
	t.Parallel()
	got := deviceCommands([]byte("interface eth0\n  interface eth1.5 # x\ntrack_interface {\n eth9\n}\n1.2.3.4/24 dev eth0 label eth0:1\ninterface lo\n"))
	want := "kernel ip link add name eth0 up multicast on type dummy\nkernel ip link add name eth1.5 up multicast on type dummy\n"
	if got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// made is a report of three scenarios and a configuration against two keepaliveds.
func made(t *testing.T) *report {
	t.Helper()
	one := daemon.Keepalived{Daemon: guest.Daemon{Name: "k1"}, Version: "1.0"}
	two := daemon.Keepalived{Daemon: guest.Daemon{Name: "k2"}, Version: "2.0"}
	r := &report{kernel: "6.1.0-99-amd64", keepaliveds: []daemon.Keepalived{one, two}}
	add := func(name, number, claim, k1, k2, sluice string) {
		text := fmt.Sprintf("title Title | of %s\ntest x\n%s\n-- x --\n", name, claim)
		s, err := scenario.Parse(name, []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		run := func(status string) *scenario.Run {
			return &scenario.Run{Records: map[string]string{"test:x": status}}
		}
		r.rows = append(r.rows, row{candidate{s: s, number: number}, map[string]scenario.Result{
			"k1": scenario.Judge(s, run(k1), run(sluice)), "k2": scenario.Judge(s, run(k2), run(sluice)),
		}})
	}
	add("a", "", "", "0", "0", "0")
	add("b", "", "differs test b's reason", "5", "0", "0")
	add("c", "", "", "0", "5", "0")
	add("config-07", "07", "differs test the reason of 07", "5", "5", "0")
	return r
}

const reference = "# Configuration\n\n| `not` | | | not yet | before any block |\n\n## global_defs\n\n| keyword | arguments | default | here | meaning |\n|---|---|---|---|---|\n" +
	"| `good` | `N` | 1 | yes | is served |\n| `late` | `A \\| B` | | not yet | comes later |\n## Top level\n| `vrrp` | `{ }` |  | skipped | not here |\n"

func TestMarkdown(t *testing.T) {
	t.Parallel()
	page := made(t).markdown("", unserved(reference))
	for _, want := range []string{
		"keepalived 1.0 were", "on Linux 6.1:",
		"| same | 2 |\n| different on purpose | 1 |\n",
		"## Same\n\n| scenario | what it shows |\n|---|---|\n| a | Title \\| of a |\n| c | Title \\| of c |\n\n",
		"|---|---|---|---|\n| b | Title \\| of b | `test:x` | b's reason |\n\n## Not supported",
		"| `late` | global_defs | not yet | comes later |\n| `vrrp` | Top level | skipped | not here |\n\n",
		strings.TrimSpace(notes),
		"| 07 | different on purpose | the reason of 07 |\n",
		"In 2 of 4 scenarios the result is that with keepalived 1.0.",
		"| b | `test:x` | 2.0 does as sluiced |\n| c | `test:x` | 2.0 differs from sluiced |\n",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	for _, not := range []string{"is served", "config-07"} {
		if strings.Contains(page, not) {
			t.Errorf("the page holds %q", not)
		}
	}
	if t.Failed() {
		t.Log(page)
	}
}

func TestMarkdownShowsWhatIsUnexplained(t *testing.T) {
	t.Parallel()
	r := made(t)
	r.keepaliveds = r.keepaliveds[1:]
	page := r.markdown("", nil)
	for _, want := range []string{"## Unexplained\n", "| b | Title \\| of b | UNEXPLAINED |\n| c | Title \\| of c | UNEXPLAINED |\n", "| same | 1 |\n| different on purpose | 0 |\n"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
	if page := made(t).markdown("", nil); strings.Contains(page, "Unexplained") {
		t.Error("a page of good results speaks of unexplained ones")
	}
}

// What needs another run than this one stays as it was, so that the page can be
// held to the results without it.
func TestMarkdownKeepsWhatDidNotTakePart(t *testing.T) {
	t.Parallel()
	whole := made(t)
	page := whole.markdown("", nil)
	part := *whole
	part.rows, part.keepaliveds = part.rows[:3], part.keepaliveds[:1]
	if diff := cmp.Diff(page, part.markdown(page, nil)); diff != "" {
		t.Errorf("(-whole +part):\n%s", diff)
	}
	if again := whole.markdown(page, nil); again != page {
		t.Error("the page is not stable")
	}
	part.rows = part.rows[:2]
	if part.markdown(page, nil) == page {
		t.Error("a scenario less, and the page is the same")
	}
}

func TestSummary(t *testing.T) {
	t.Parallel()
	r := made(t)
	if got, want := r.summary(), "same 2, different on purpose 2, unexplained 0, broken 0\n4 passed, 0 failed"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.keepaliveds = r.keepaliveds[1:] // the newer one decides now, and for it nobody has claimed anything
	if got, want := r.summary(), "same 1, different on purpose 1, unexplained 2, broken 0\n2 passed, 2 failed"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// A difference must fail the whole test, whatever else is in order.
func TestConclude(t *testing.T) {
	t.Parallel()
	s, err := scenario.Parse("a", []byte("title A\ntest x\n-- x --\n"))
	if err != nil {
		t.Fatal(err)
	}
	run := func(daemon, status string) scenario.Run {
		return scenario.Run{Scenario: "a", Daemon: daemon, Records: map[string]string{"test:x": status}, Log: []string{"a line"}}
	}
	dir := t.TempDir()
	o := options{Options: runner.Options{Run: regexp.MustCompile("a"), Artifacts: filepath.Join(dir, "artifacts")}}
	k := []daemon.Keepalived{{Daemon: guest.Daemon{Name: "k"}, Version: "1.0"}}
	for _, tt := range []struct {
		name string
		runs []scenario.Run
		want string // of the error, "" for none
	}{
		{"the same", []scenario.Run{run("k", "0"), run(guest.Sluice, "0")}, ""},
		{"different", []scenario.Run{run("k", "0"), run(guest.Sluice, "5")}, "a: UNEXPLAINED"},
		{"not run", []scenario.Run{run("k", "0")}, "a: BROKEN"},
	} {
		var out strings.Builder
		err := o.conclude([]candidate{{s: s}}, k, &guest.Results{Kernel: "6.1", Runs: tt.runs}, &out)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error %v, want %q; it says\n%s", tt.name, err, tt.want, &out)
		}
		_, err = os.Stat(filepath.Join(o.Artifacts, "a.k"))
		if (err == nil) != (tt.want != "") {
			t.Errorf("%s: the records of a run that failed, and of no other, are to be left: %v", tt.name, err)
		}
	}
}

func TestFirstDifference(t *testing.T) {
	t.Parallel()
	if got, want := firstDifference("a\nb\n", "a\nc\n"), "line 2\n- b\n+ c"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := firstDifference("a", "a\nb"), "line 2\n- (the end)\n+ b"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
