package scenario

import (
	"fmt"
	"strings"
	"testing"
)

const judged = `title T
timeline 1
test a.conf
start a.conf
settle 5
table up
events up
stop
%s
-- a.conf --
-- want --
-A -t 192.0.2.1:80 -s rr
`

const rr, wrr = "-A -t 192.0.2.1:80 -s rr\n", "-A -t 192.0.2.1:80 -s wrr\n"

// goodRun is a run that any daemon might have had.
func goodRun(daemon string) *Run {
	return &Run{
		Scenario: "x", Daemon: daemon,
		Records: map[string]string{"test:a.conf": "status 0\n", "start": "runs\n", "table:up": rr, "events:up": "rs DOWN\nrs UP\n", "exit": "status 0\n"},
		Steps:   []Step{{At: 0, Nominal: 5}, {At: 5.2}, {At: 5.3}, {At: 5.4}},
		Changes: []Change{{0.1, "d", 1}, {3, "d", Absent}},
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	table := func(text string) func(*Run) { return func(r *Run) { r.Records["table:up"] = text } }
	for _, tt := range []struct {
		name, claims       string
		keepalived, sluice func(*Run)
		want               Status
		says               string // by one of the findings
	}{
		{name: "the same", want: Same},
		{name: "another table", sluice: table(wrr), want: Unexplained, says: "- -A -t 192.0.2.1:80 -s rr\n+ -A -t 192.0.2.1:80 -s wrr"},
		{name: "an empty table", sluice: table(""), want: Unexplained, says: "table:up"},
		{name: "another table with its reason", claims: "differs table:up sluice knows better", sluice: table(wrr), want: Different, says: "sluice knows better"},
		{name: "a stale reason", claims: "differs table:up sluice knows better", want: Unexplained, says: "line 9 says that it differs"},
		{name: "a reason for something else", claims: "differs events:up why", sluice: table(wrr), want: Unexplained, says: "table:up"},
		{name: "other events", sluice: func(r *Run) { r.Records["events:up"] = "rs UP\nrs DOWN\n" }, want: Unexplained, says: "- rs DOWN"},
		{name: "another exit status", sluice: func(r *Run) { r.Records["exit"] = "status 1\n" }, want: Unexplained, says: "exit"},
		{name: "another test", sluice: func(r *Run) { r.Records["test:a.conf"] = "status 5\n" }, want: Unexplained, says: "test:a.conf"},
		{name: "excused by the kind", claims: "differs test why", sluice: func(r *Run) { r.Records["test:a.conf"] = "status 5\n" }, want: Different},
		{name: "later by a second and more", sluice: func(r *Run) { r.Changes[1].At = 4.1 }, want: Unexplained, says: "absent from 4.1 s"},
		{name: "later by less", sluice: func(r *Run) { r.Changes[1].At = 3.9 }, want: Same},
		{name: "never there", sluice: func(r *Run) { r.Changes = nil }, want: Unexplained, says: "never there"},
		{name: "only there", keepalived: func(r *Run) { r.Changes = nil }, want: Unexplained, says: "never there"},
		{name: "another weight", sluice: func(r *Run) { r.Changes[0].Weight = 2 }, want: Unexplained, says: "weight 2"},
		{name: "another time line with its reason", claims: "differs timeline slower", sluice: func(r *Run) { r.Changes[1].At = 4.1 }, want: Different},
		{name: "pinned", claims: "expect table:up both want", want: Same},
		{name: "pinned and wrong in both", claims: "expect table:up sluice want", keepalived: table(wrr), sluice: table(wrr), want: Unexplained, says: "sluice against want"},
		{name: "pinned and wrong in keepalived", claims: "expect table:up both want\ndiffers table:up why", keepalived: table(wrr), want: Unexplained, says: "keepalived against want"},
		{name: "pinned for sluice alone", claims: "expect table:up sluice want\ndiffers table:up why", keepalived: table(wrr), want: Different},
		{name: "excused and not what was said", claims: "expect table:up sluice want\ndiffers table:up why", sluice: table(wrr), want: Unexplained, says: "sluice against want"},
		{name: "sluice crashed", sluice: func(r *Run) { r.Problems = []string{"ended"} }, want: Broken, says: "sluice: ended"},
		{name: "keepalived crashed", keepalived: func(r *Run) { r.Problems = []string{"ended"} }, want: Broken, says: "keepalived: ended"},
		{name: "a crash is not excused", claims: "differs table:up why", sluice: func(r *Run) { r.Problems = []string{"ended"} }, want: Broken},
		{name: "a lost record", sluice: func(r *Run) { delete(r.Records, "table:up") }, want: Broken, says: "was not recorded"},
		{name: "a record lost in both", claims: "differs table:up why",
			keepalived: func(r *Run) { delete(r.Records, "table:up") }, sluice: func(r *Run) { delete(r.Records, "table:up") }, want: Broken},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			s := parse(t, fmt.Sprintf(judged, tt.claims))
			k, v := goodRun("keepalived"), goodRun("sluice")
			if tt.keepalived != nil {
				tt.keepalived(k)
			}
			if tt.sluice != nil {
				tt.sluice(v)
			}
			r := Judge(s, k, v)
			if r.Status != tt.want {
				t.Errorf("%v, want %v; findings %+v", r.Status, tt.want, r.Findings)
			}
			if text := fmt.Sprintf("%+v", r.Findings); !strings.Contains(text, tt.says) {
				t.Errorf("findings %s, want one that says %q", text, tt.says)
			}
			if (r.Status == Same) != (len(r.Findings) == 0) {
				t.Errorf("%v with findings %+v", r.Status, r.Findings)
			}
		})
	}
}

func TestLineDiffShowsOrder(t *testing.T) {
	t.Parallel()
	if got, want := lineDiff("a\nb\n", "b\na\n"), "- a\n- b\n+ b\n+ a\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if got, want := lineDiff("a\na\nb\n", "a\nc\n"), "- a\n- b\n+ c\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
