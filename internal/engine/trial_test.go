package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

// trial runs a test of a server and returns its lines.
func (r *rig) trial(n int) []TrialLine {
	r.Helper()
	var lines []TrialLine
	err := r.e.Test(r.Context(), "me", "alice", "192.0.2.1:80", target(n), func(l TrialLine) error {
		lines = append(lines, l)
		return nil
	})
	if err != nil {
		r.Fatal(err)
	}
	return lines
}

// TestTrialChangesNothing: the checks of a server run once more, and neither its
// verdict nor the schedule nor the table knows of it.
func TestTrialChangesNothing(t *testing.T) {
	inBubble(t, conf(1, 2), func(r *rig) {
		due := r.why(1).Checks[0].Next
		r.set(1, checker.Failed, "refused")
		probes := r.farm.count(1)
		r.writes()
		for i := range 5 {
			lines := r.trial(1)
			last := lines[len(lines)-1]
			if lines[0].Line != "check" || lines[0].Kind != "TCP_CHECK" || lines[0].RealServer != target(1) || last.Line != "end" || last.Result != "failed" || last.State != StateUp {
				t.Errorf("%+v", lines)
			}
			if done := lines[len(lines)-2]; done.Line != "result" || done.Reason != "refused" || done.Verdict != "up" {
				t.Errorf("%+v", done)
			}
			if n := r.farm.count(1); n != probes+i+1 {
				t.Errorf("%d probes after %d tests, %d before", n, i+1, probes)
			}
		}
		x := r.why(1)
		if c := x.Checks[0]; !x.InService || c.Failures != 0 || c.History != nil || !c.Next.Equal(due) {
			t.Errorf("%+v", x)
		}
		if n := r.writes(); n != 0 {
			t.Errorf("%d operations", n)
		}
		for _, c := range r.e.Snapshot().Checks {
			if c.Failed != 0 {
				t.Errorf("it is counted: %+v", c)
			}
		}
		if log := r.logged(); strings.Count(log, "An operator tests a real server") != 5 || !strings.Contains(log, "who=alice") {
			t.Errorf("the log:\n%s", log)
		}
	})
}

// TestTrialsAreBounded: one for each client, a few at a time, and a place is free again
// whatever ended a test.
func TestTrialsAreBounded(t *testing.T) {
	inBubble(t, conf(1), func(r *rig) {
		r.farm.delay = time.Second
		begin := func(client string, ctx context.Context) error {
			return r.e.Test(ctx, client, "alice", "192.0.2.1:80", target(1), func(TrialLine) error { return nil })
		}
		refused := func(err error, says string) {
			t.Helper()
			var ce *CommandError
			if !errors.As(err, &ce) || ce.Code != CodeRefused || !strings.Contains(ce.Message, says) {
				t.Errorf("%v", err)
			}
		}
		done := make(chan error, maxTrials)
		for _, client := range []string{"1", "2", "3", "4"} {
			go func() { done <- begin(client, r.Context()) }()
		}
		synctest.Wait()
		refused(begin("1", r.Context()), "one at a time")
		refused(begin("5", r.Context()), "4 tests are under way")
		for range maxTrials {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		gone := errors.New("gone")
		if err := r.e.Test(r.Context(), "1", "alice", "192.0.2.1", target(1), func(l TrialLine) error {
			if l.Line == "step" {
				return gone
			}
			return nil
		}); !errors.Is(err, gone) {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithCancel(r.Context())
		cancel()
		if err := begin("1", ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
		if err := begin("1", r.Context()); err != nil {
			t.Errorf("no place is free: %v", err)
		}
		// Who reads the end may ask again before the first call has returned.
		var again error
		if err := r.e.Test(r.Context(), "1", "alice", "192.0.2.1:80", target(1), func(l TrialLine) error {
			if l.Line == "end" {
				again = begin("1", r.Context())
			}
			return nil
		}); err != nil || again != nil {
			t.Errorf("%v; asked again at the end: %v", err, again)
		}
		var ce *CommandError
		if err := r.e.Test(r.Context(), "1", "alice", "192.0.2.1", "10.0.0.9", nil); !errors.As(err, &ce) || ce.Code != CodeUnknown {
			t.Errorf("%v", err)
		}
	})
}

// TestTrialOfAFile: a FILE_CHECK has no run of its own; its file's value is told.
func TestTrialOfAFile(t *testing.T) {
	cfg := conf(1, 2)
	cfg.TrackFiles = []*config.TrackFile{{Name: "web1", Path: "/run/web1"}}
	rs := cfg.VirtualServers[0].RealServers[0]
	rs.Checkers = append(rs.Checkers, &config.Checker{Kind: config.FileCheck, File: &config.TrackFileUse{Name: "web1"}, Schedule: config.Schedule{Rise: 1}})
	inBubble(t, cfg, func(r *rig) {
		if l := r.trial(1); l[len(l)-1].Result != "ok" {
			t.Errorf("%+v", l)
		}
		r.e.FileValue("web1", 1)
		r.pass(time.Second)
		if l := r.trial(1); l[len(l)-1].Result != "failed" || l[len(l)-2].Reason != "track_file web1 is 1" || l[len(l)-2].Verdict != "down" {
			t.Errorf("%+v", l)
		}
		r.says(r.why(1), false, "FILE_CHECK track_file web1 fails: /run/web1 is 1", "comes back when track_file web1 says so")
	})
}
