package checker_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
)

type probeFunc func(context.Context) checker.Outcome

func (f probeFunc) Run(ctx context.Context) checker.Outcome { return f(ctx) }

func TestRunTracedTellsEachStepAndTheVerdict(t *testing.T) {
	var got []checker.TraceEntry
	o := checker.RunTraced(t.Context(), probeFunc(func(ctx context.Context) checker.Outcome {
		if _, ok := ctx.Deadline(); !ok {
			t.Error("the run has no deadline")
		}
		checker.TraceOf(ctx).Tell(checker.StageConnect, "connected to %s", "there")
		return checker.Outcome{Result: checker.OK, Reason: "fine"}
	}), time.Minute, func(e checker.TraceEntry) { got = append(got, e) })
	if o.Result != checker.OK || o.Took <= 0 {
		t.Errorf("outcome %+v", o)
	}
	want := []string{"begin, to end within 1m0s", "connected to there", "ok: fine"}
	if len(got) != len(want) {
		t.Fatalf("told %v", got)
	}
	for i, e := range got {
		if e.Text != want[i] || i > 0 && e.After < got[i-1].After {
			t.Errorf("entry %d is %+v, want %q", i, e, want[i])
		}
	}
}

func TestRunTracedSurvivesAPanic(t *testing.T) {
	var last string
	o := checker.RunTraced(t.Context(), probeFunc(func(context.Context) checker.Outcome { panic("oops") }),
		0, func(e checker.TraceEntry) { last = e.Text })
	if o.Result != checker.Unable || !strings.Contains(o.Reason, "oops") || !strings.HasPrefix(last, "unable: probe panicked: oops") {
		t.Errorf("outcome %+v, last entry %q", o, last)
	}
}

func TestNoTraceCostsNothing(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if n := testing.AllocsPerRun(100, func() {
		if checker.TraceOf(ctx) != nil {
			t.Fatal("a trace that nobody asked for")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	checker.TraceOf(ctx).Tell(checker.StageSend, "nobody hears it")
}
