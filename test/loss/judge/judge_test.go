package judge

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestJudge(t *testing.T) {
	t.Parallel()
	good := func(actor string) Result {
		return Result{Actor: actor, Long: Count{Opened: 30}, Short: Count{Opened: 100}}
	}
	with := func(r Result, change func(*Result)) Result { change(&r); return r }
	for _, tt := range []struct {
		name  string
		rules Rules
		runs  []Result
		want  []string // parts of what is wrong, in order
	}{
		{"all is well", Rules{}, []Result{good("sluice"), good("keepalived")}, nil},
		{"sluice loses a long-lived one", Rules{}, []Result{with(good("sluice"), func(r *Result) { r.Long.Lost = 1; r.Long.How = "reset 1" })},
			[]string{"sluice: 1 of 30 long-lived connections lost (reset 1)"}},
		{"sluice loses a short one", Rules{}, []Result{with(good("sluice"), func(r *Result) { r.Short.Lost = 2 })}, []string{"2 of 100 short"}},
		{"keepalived may lose", Rules{}, []Result{good("sluice"), with(good("keepalived"), func(r *Result) { r.Long.Lost, r.Short.Lost = 30, 100 })}, nil},
		{"apart, with a reason", Rules{Apart: "on the failed server"}, []Result{with(good("sluice"), func(r *Result) { r.Long.Apart = 10 })}, nil},
		{"apart, without one", Rules{}, []Result{with(good("sluice"), func(r *Result) { r.Long.Apart = 10 })}, []string{"apart without a reason"}},
		{"apart does not hide what is lost", Rules{Apart: "on the failed server"}, []Result{with(good("sluice"), func(r *Result) { r.Long.Apart, r.Long.Lost = 10, 1 })},
			[]string{"1 of 30"}},
		{"sluice did not run", Rules{}, []Result{good("keepalived")}, []string{"sluice did not run"}},
		{"nothing ran", Rules{}, nil, []string{"sluice did not run"}},
		{"no clients", Rules{}, []Result{with(good("sluice"), func(r *Result) { r.Long.Opened, r.Short.Opened = 0, 0 })},
			[]string{"no long-lived", "no short"}},
		{"more lost than opened", Rules{}, []Result{good("sluice"), with(good("keepalived"), func(r *Result) { r.Long.Lost = 31 })}, []string{"cannot be"}},
		{"a problem of any run", Rules{}, []Result{good("sluice"), with(good("keepalived"), func(r *Result) { r.Problems = []string{"ended"} })}, []string{"keepalived: ended"}},
		{"known to cost, and does", Rules{Costs: []string{"keepalived"}}, []Result{good("sluice"), with(good("keepalived"), func(r *Result) { r.Short.Lost = 1 })}, nil},
		{"known to cost, and does not", Rules{Costs: []string{"keepalived"}}, []Result{good("sluice"), good("keepalived")}, []string{"blind"}},
		{"known to cost, apart", Rules{Costs: []string{"keepalived"}, Apart: "x"}, []Result{good("sluice"), with(good("keepalived"), func(r *Result) { r.Long.Apart = 1 })}, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.rules.Zero = "sluice"
			got := Judge(tt.rules, tt.runs)
			if len(got) != len(tt.want) {
				t.Fatalf("got %q, want %q", got, tt.want)
			}
			for i, part := range tt.want {
				if !strings.Contains(got[i], part) {
					t.Errorf("got %q, want it to say %q", got[i], part)
				}
			}
		})
	}
}

func TestAdd(t *testing.T) {
	t.Parallel()
	got := Count{30, 1, 2, "reset 3"}.Add(Count{10, 0, 0, ""}).Add(Count{5, 1, 0, "timeout 1"})
	if diff := cmp.Diff(Count{45, 2, 2, "reset 3, timeout 1"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
