package engine

import "testing"

// TestStatusTellsOfDoubt: a server that serves though its check fails, or cannot be
// run, does not read as one whose checks pass.
func TestStatusTellsOfDoubt(t *testing.T) {
	passing := Checker{Kind: "TCP_CHECK", Verdict: "up", Last: "ok"}
	failing := Checker{Kind: "HTTP_GET", Verdict: "up", Last: "failed", Failures: 2, Limit: 4, LastReason: "status 503"}
	unable := Checker{Kind: "MISC_CHECK", Verdict: "unknown", Last: "unable", LastReason: "no such file"}
	down := Checker{Kind: "HTTP_GET", Verdict: "down", Last: "failed", Failures: 4, Limit: 4}
	for name, tt := range map[string]struct {
		state  State
		checks []Checker
		want   string
	}{
		"all pass":             {StateUp, []Checker{passing}, "as before"},
		"none ran":             {StateUp, []Checker{{Kind: "TCP_CHECK", Verdict: "unknown"}}, "as before"},
		"one fails":            {StateUp, []Checker{passing, failing}, "HTTP_GET fails, attempt 2 of 4: status 503"},
		"one cannot run":       {StateUp, []Checker{passing, unable}, "MISC_CHECK cannot run here, so that its last verdict (unknown) stays: no such file"},
		"waits, cannot run":    {StateUnverified, []Checker{unable}, "MISC_CHECK cannot run here, so that its last verdict (unknown) stays: no such file"},
		"waits, and fails":     {StateUnverified, []Checker{failing}, "as before"},
		"down by it":           {StateDown, []Checker{down}, "as before"},
		"drained, and fails":   {StateMaintenance, []Checker{failing}, "as before"},
		"up though it is down": {StateUp, []Checker{down}, "as before"}, // between verdict and publication
	} {
		rs := RealServer{State: tt.state, Reason: "as before", Checkers: tt.checks}
		if rs.doubt(); rs.Reason != tt.want {
			t.Errorf("%s: %q, want %q", name, rs.Reason, tt.want)
		}
	}
}
