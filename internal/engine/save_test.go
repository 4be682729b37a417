package engine

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/state"
)

// TestWhatIsSaved: names, verdicts and drains, and nothing else.
func TestWhatIsSaved(t *testing.T) {
	resumed(t, func(r *rig) {
		r.farm.set(2, checker.Failed, "refused")
		r.start(conf(1, 2, 3))
		r.pass(30 * time.Second)
		r.hold(3, 4)
		gone := time.Now()
		r.reload(conf(1, 2))
		r.pass(2 * time.Second)
		s := r.state.load(t)
		def := func(n int) string { return definition(conf(n).VirtualServers[0].RealServers[0].Checkers[0]) }
		for i := range s.Verdicts {
			if age := s.Saved.Sub(s.Verdicts[i].At); age < 0 || age > 11*time.Second {
				t.Errorf("verdict %+v was confirmed %v before", s.Verdicts[i], age)
			}
			s.Verdicts[i].At = time.Time{}
		}
		s.Saved = time.Time{}
		vs := "[192.0.2.1]:tcp:80"
		want := &state.State{
			Version: state.Version, Generation: 2,
			Services: []state.Service{{Service: "192.0.2.1:80/tcp", Destinations: []state.Destination{
				{Destination: "10.0.0.1:80"},
				{Destination: "10.0.0.3:80", Drain: &state.Drain{Since: gone, Why: "removed from the configuration"}},
			}}},
			VirtualServers: []state.VirtualServer{{VirtualServer: vs, Quorum: true}},
			Verdicts: []state.Verdict{
				{Key: state.Key{VirtualServer: vs, RealServer: "10.0.0.1:80", Checker: def(1)}, Up: true},
				{Key: state.Key{VirtualServer: vs, RealServer: "10.0.0.2:80", Checker: def(2)}, Reason: "TCP_CHECK: refused"},
			},
		}
		if diff := cmp.Diff(want, s); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		// Two that ask something else have not the same hash.
		if def(1) == def(2) || len(def(1)) != 32 {
			t.Errorf("hashes %s and %s", def(1), def(2))
		}
		r.crash()
		r.start(conf(1, 2))
		if g := r.e.Snapshot().Generation; g != 3 {
			t.Errorf("generation %d after the restart, want 3", g)
		}
	})
}

// TestSavesAreRare: at most one a second under churn, the last state always, and one
// a minute while nothing changes.
func TestSavesAreRare(t *testing.T) {
	resumed(t, func(r *rig) {
		r.start(conf(1, 2))
		r.pass(time.Minute)
		from := len(r.state.times())
		for i := range 307 { // 21 s, and the last is not a whole second after another
			if i%2 == 0 {
				r.reload(conf(1))
			} else {
				r.reload(conf(1, 2))
			}
			r.pass(70 * time.Millisecond)
		}
		r.reload(conf(1, 2, 3))
		r.pass(2 * time.Second)
		at := r.state.times()
		for i := from + 1; i < len(at); i++ {
			if d := at[i].Sub(at[i-1]); d < time.Second {
				t.Errorf("two states %v apart", d)
			}
		}
		if n := len(r.state.times()) - from; n < 19 || n > 25 {
			t.Errorf("%d states in 23 s", n)
		}
		if s := r.state.load(t); s.Generation != r.e.Snapshot().Generation {
			t.Errorf("the last state saved is of generation %d", s.Generation)
		}
		r.pass(time.Minute)
		from = len(r.state.times())
		r.pass(time.Hour)
		if n := len(r.state.times()) - from; n < 59 || n > 61 {
			t.Errorf("%d states in a quiet hour", n)
		}
	})
}

// TestStateAfterAStop: one that removes leaves nothing of ours but the verdicts.
func TestStateAfterAStop(t *testing.T) {
	for on, services := range map[config.OnStop]int{config.OnStopRemove: 0, config.OnStopDrain: 0, config.OnStopKeep: 1} {
		resumed(t, func(r *rig) {
			cfg := conf(1)
			cfg.Global.OnStop, cfg.Global.StopTimeout = on, time.Minute
			r.start(cfg)
			r.pass(time.Minute)
			r.stop(nil)
			if s := r.state.load(t); len(s.Services) != services || len(s.Verdicts) != 1 {
				t.Errorf("on_stop %s: saved %+v", on, s)
			}
			r.start(cfg)
		})
	}
}

// TestOperatorSectionSurvives, opaque as it is.
func TestOperatorSectionSurvives(t *testing.T) {
	resumed(t, func(r *rig) {
		r.start(conf(1))
		r.pass(time.Minute)
		if err := r.e.call(r.Context(), func(e *Engine) { e.setOperator(json.RawMessage(`{"x":1}`)) }); err != nil {
			t.Fatal(err)
		}
		r.pass(2 * time.Second)
		for range 2 {
			r.crash()
			r.start(conf(1))
		}
		if s := r.state.load(t); strings.Join(strings.Fields(string(s.Operator)), "") != `{"x":1}` {
			t.Errorf("saved: %s", s.Operator)
		}
	})
}
