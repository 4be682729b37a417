package render

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/engine"
)

// explanation is a server in service; the cases below change it.
func explanation(change func(x *engine.Explanation)) *engine.Explanation {
	x := &engine.Explanation{
		At: now, VirtualServer: "[192.0.2.10]:tcp:80", VSLabel: "web shop", InService: true, Configured: true,
		Summary: "It is in service for 2.0 h with weight 5: all checks pass.",
		RealServer: engine.RealServer{Address: "10.0.0.11:80", Label: "blue", State: engine.StateUp, Reason: "all checks pass", Since: ago(2 * time.Hour),
			Method: "NAT", WeightConfigured: 5, WeightWanted: 5},
		Services: []engine.Service{{Name: "192.0.2.10:80/tcp", Destinations: []engine.Destination{{Address: "10.0.0.11:80", Wanted: 5, Kernel: 5, Active: 12, Inactive: 3}}}},
		Checks: []engine.Check{{
			Checker: engine.Checker{Kind: "HTTP_GET", Target: "10.0.0.11:80", Verdict: "up", Last: "ok", LastReason: "status 200", LastAt: ago(4 * time.Second), Took: 1300 * time.Microsecond, Limit: 3, Next: now.Add(6 * time.Second)},
			Every:   10 * time.Second, Retry: 3 * time.Second, Timeout: 5 * time.Second,
		}},
		Weight: []engine.WeightPart{{What: "configured", Text: "configured 5", Adds: 5}},
		Pool:   &engine.Pool{Alive: 9, Quorum: 1, QuorumUp: true, Threshold: 1, Since: ago(26 * time.Hour), Servers: 3, Up: 3},
	}
	if change != nil {
		change(x)
	}
	return x
}

// failed is one whose check found a fault.
func failed(kind, target, reason string, took time.Duration, f engine.Fault) func(x *engine.Explanation) {
	return func(x *engine.Explanation) {
		rs, c := &x.RealServer, &x.Checks[0]
		rs.State, rs.Reason, rs.Since, rs.WeightWanted = engine.StateDown, kind+": "+reason, ago(192*time.Second), -1
		c.Kind, c.Target, c.Verdict, c.Since = kind, target, "down", ago(192*time.Second)
		c.Last, c.LastReason, c.LastAt, c.Took, c.Failures, c.Missing, c.Next = "failed", reason, ago(6*time.Second), took, 21, 2, now.Add(3200*time.Millisecond)
		c.History = []engine.Stretch{
			{Last: ago(200 * time.Second), Result: "ok", Reason: "status 200", Took: time.Millisecond},
			{First: ago(198 * time.Second), Last: ago(6 * time.Second), Count: 21, Result: "failed", Reason: reason, Took: took, Fault: &f},
		}
		x.InService = false
		x.Summary = "It is out for 3 min since " + kind + " " + target + " fails: " + reason + ". It comes back after 2 more good checks, next in 3.2 s."
		x.Weight = append(x.Weight, engine.WeightPart{What: "state", Text: "out while its checks fail", Adds: -5})
		x.Services[0].Destinations[0] = engine.Destination{Address: "10.0.0.11:80", Wanted: -1, Kernel: -1}
		x.Pool.Alive, x.Pool.Up = 4, 2
	}
}

func maintenance(summary string, part engine.WeightPart) func(x *engine.Explanation) {
	return func(x *engine.Explanation) {
		rs := &x.RealServer
		rs.State, rs.Since, rs.WeightWanted, x.InService, x.Summary = engine.StateMaintenance, ago(90*time.Second), 0, false, summary
		x.Weight = append(x.Weight, part)
		d := &x.Services[0].Destinations[0]
		d.Wanted, d.Kernel = 0, 0
	}
}

func explanations() map[string]*engine.Explanation {
	web, url := "10.0.0.11:80", "http://10.0.0.11:80/health"
	out := map[string]*engine.Explanation{
		"healthy": explanation(nil),
		"refused": explanation(failed("HTTP_GET", web, "url /health: connect to 10.0.0.11:80: connection refused (ECONNREFUSED) after 65µs", 86*time.Microsecond,
			engine.Fault{Stage: "connect", Target: url, Errno: "ECONNREFUSED"})),
		"timeout": explanation(failed("HTTP_GET", web, "url /health: status from 10.0.0.11:80: no answer in time after 5s", 5*time.Second,
			engine.Fault{Stage: "reply", Target: url, Timeout: true})),
		"tls-alert": explanation(failed("SSL_GET", "10.0.0.11:443", "url /: TLS handshake with 10.0.0.11:443: remote error: tls: handshake failure after 577µs", 594*time.Microsecond,
			engine.Fault{Stage: "tls", Target: "https://10.0.0.11:443/", Got: "remote error: tls: handshake failure"})),
		"wrong-status": explanation(failed("HTTP_GET", web, "url 2 /health: status from 10.0.0.11:80: 503, expected 200-299, after 1.89ms", 2950*time.Microsecond,
			engine.Fault{Stage: "status", Target: url, Expected: "200-299", Got: "503"})),
		"wrong-body": explanation(failed("HTTP_GET", web, `url /health: body from 10.0.0.11:80: regex "ok" does not match, after 996µs`, 1110*time.Microsecond,
			engine.Fault{Stage: "body", Target: url, Expected: `a match of regex "ok"`, Got: "no match"})),
		"script": explanation(failed("MISC_CHECK", "/usr/local/bin/check", "script /usr/local/bin/check: exit status 9, expected 0, after 1.7ms: disk full", 1700*time.Microsecond,
			engine.Fault{Stage: "script", Target: "/usr/local/bin/check", Expected: "0", Got: "exit status 9"})),
		"file": explanation(maintenance("It takes no new connections for 90 s: track_file blue is -5. It comes back when /run/sluice/blue says so; it still has 12 active and 3 inactive connections.",
			engine.WeightPart{What: "track_file", Text: "track_file blue is -5: -5", Adds: -5})),
		"drained": explanation(func(x *engine.Explanation) {
			maintenance("It takes no new connections for 90 s: drained by alice: new kernel, until 2026-11-30 13:00:00. It ends by itself in 60 min, or by sluice undrain; it still has 12 active and 3 inactive connections.",
				engine.WeightPart{What: "operator_drain", Text: "drained by alice: new kernel, until 2026-11-30 13:00:00", Adds: -5})(x)
			x.Orders = []engine.Override{{Kind: engine.VerbDrain, Who: "alice", Reason: "new kernel", Since: ago(90 * time.Second), Until: now.Add(time.Hour)}}
		}),
		"draining": {
			At: now, VirtualServer: "[192.0.2.10]:tcp:80", RealServer: engine.RealServer{Address: "10.0.0.19:80", WeightWanted: -1},
			Summary: "It is on its way out for 45 s: removed from the configuration, and takes no new connections. It is deleted after its last connection; it waits for 3 active connections.",
			Services: []engine.Service{{Name: "192.0.2.10:80/tcp", Destinations: []engine.Destination{{Address: "10.0.0.19:80", Wanted: -1, Active: 3,
				Drain: &engine.Drain{Since: ago(45 * time.Second), Why: "removed from the configuration", WaitsFor: "3 active connections", Deadline: now.Add(10 * time.Minute)}}}}},
			Pool: explanation(nil).Pool,
		},
		"unverified": explanation(func(x *engine.Explanation) {
			failed("TCP_CHECK", web, "no answer", time.Second, engine.Fault{})(x)
			x.Summary = "It is out for 0.3 s since it has not passed its first check: TCP_CHECK 10.0.0.11:80. It comes back after the next good check, next in 0.2 s."
			x.RealServer.State, x.Checks[0] = engine.StateUnverified, engine.Check{Checker: engine.Checker{Kind: "TCP_CHECK", Target: web, Verdict: "unknown", Shared: 4, Limit: 1, Next: now.Add(200 * time.Millisecond)},
				Missing: 1, Every: 10 * time.Second, Retry: time.Second, Timeout: time.Second}
			x.Weight[1].Text = "out until its first good check"
		}),
		"withdrawn": explanation(func(x *engine.Explanation) {
			x.RealServer.State, x.RealServer.WeightWanted, x.InService = engine.StateWithdrawn, -1, false
			x.Summary = "It is withdrawn for 30 s: the pool has lost its quorum (weight 5 alive, 8 needed) and the sorry server 10.0.0.99:80 serves. It comes back when weight 8 is alive."
			x.Weight = append(x.Weight, engine.WeightPart{What: "state", Text: "out while the sorry server serves", Adds: -5})
			x.Pool = &engine.Pool{Alive: 5, Quorum: 7, Hysteresis: 1, Threshold: 8, Since: ago(30 * time.Second), Servers: 3, SorryServing: true, Sorry: &engine.SorryServer{Address: "10.0.0.99:80", Serving: true}}
			x.Services[0].Destinations[0] = engine.Destination{Address: web, Wanted: -1, Kernel: 0, Active: 2, Drain: &engine.Drain{Since: ago(30 * time.Second), Why: "withdrawn for the sorry server", WaitsFor: "2 active connections"}}
		}),
		"kept": explanation(func(x *engine.Explanation) {
			failed("TCP_CHECK", web, "connect to 10.0.0.11:80: connection refused (ECONNREFUSED) after 65µs", 86*time.Microsecond, engine.Fault{Stage: "connect", Target: web, Errno: "ECONNREFUSED"})(x)
			x.RealServer.State, x.RealServer.WeightWanted, x.InService, x.Weight = engine.StateKept, 5, true, x.Weight[:1]
			x.Summary = "It is in service though TCP_CHECK 10.0.0.11:80 fails: connect to 10.0.0.11:80: connection refused (ECONNREFUSED) after 65µs: min_alive keeps it, since fewer than 2 others are good. It needs no keeping after 2 more good checks, next in 3.2 s."
			x.Services[0].Destinations[0] = engine.Destination{Address: web, Wanted: 5, Kernel: 5}
			x.Pool.MinAlive, x.Pool.AtFloor = 2, true
		}),
		"damped": explanation(func(x *engine.Explanation) {
			x.RealServer.State, x.RealServer.WeightWanted, x.InService = engine.StateDamped, -1, false
			x.Summary = "It is out for 20 s though all checks pass, but it flapped 3 times: held back by flap_damping until 12:01:00. It comes back in 60 s if its checks go on passing."
			x.Weight = append(x.Weight, engine.WeightPart{What: "state", Text: "out while flap_damping holds it back", Adds: -5})
			x.Services[0].Destinations[0] = engine.Destination{Address: web, Wanted: -1, Kernel: -1}
			x.Checks[0].History = []engine.Stretch{
				{First: ago(3 * time.Minute), Last: ago(3 * time.Minute), Count: 1, Result: "failed", Reason: "refused"},
				{First: ago(time.Minute), Last: ago(4 * time.Second), Count: 7, Result: "ok", Reason: "status 200"},
			}
		}),
		"suspended": explanation(func(x *engine.Explanation) {
			x.Summary = "It is in service for 2.0 h with weight 5: all checks pass. Checks are suspended since the address of the virtual server is not on this host (ha_suspend)."
			x.Pool.Suspended, x.Checks[0].Next = true, time.Time{}
		}),
		"unreadable": explanation(func(x *engine.Explanation) {
			x.Observe, x.KernelError = true, "the kernel's table could not be read: no ip_vs\x1b[2J"
			x.RealServer.Label = ""
			x.Weight = []engine.WeightPart{{Text: "configured 5", Adds: 5}, {Text: "operator's weight 3 by root: slow disk", Adds: -2}, {Text: "slow start: 33 % of it", Adds: -2}}
			x.RealServer.WeightWanted = 1
			x.Services[0].Destinations[0].Kernel = 7
		}),
	}
	return out
}

func TestExplainGolden(t *testing.T) {
	for name, x := range explanations() {
		t.Run(name, func(t *testing.T) {
			var buf bytes.Buffer
			if err := Explain(&buf, x, name == "refused"); err != nil {
				t.Fatal(err)
			}
			golden(t, "explain-"+name, buf.Bytes())
		})
	}
}

func TestTrialGolden(t *testing.T) {
	lines := []engine.TrialLine{
		{Line: "check", At: now, VirtualServer: "[192.0.2.10]:tcp:80", RealServer: "10.0.0.11:80", Check: 1, Checks: 2, Kind: "HTTP_GET", Target: "10.0.0.11:80"},
		{Line: "step", Check: 1, After: 684 * time.Microsecond, Stage: "connect", Text: "connected to 10.0.0.11:80"},
		{Line: "step", Check: 1, After: 1900 * time.Microsecond, Stage: "status", Text: "failed: 503\x1b[2J"},
		{Line: "result", Check: 1, Result: "failed", Reason: "503", Took: 1900 * time.Microsecond, Fault: &engine.Fault{Stage: "status", Expected: "200", Got: "503"}, Verdict: "up"},
		{Line: "check", At: now, Check: 2, Checks: 2, Kind: "MISC_CHECK", Target: "/bin/x"},
		{Line: "step", Check: 2, After: 2 * time.Second, Stage: "script", Text: "ok: exit status 5"},
		{Line: "result", Check: 2, Result: "ok", Text: "asks for weight 3", Took: 2 * time.Second, Verdict: "up"},
		{Line: "end", At: now, Checks: 2, Result: "failed", State: engine.StateUp, Summary: "It is in service for 2.0 h with weight 5: all checks pass."},
		{Line: "end", VirtualServer: "[192.0.2.10]:tcp:80", RealServer: "10.0.0.12:80", Result: "ok", State: engine.StateUp},
	}
	var buf bytes.Buffer
	for i := range lines {
		if err := Trial(&buf, &lines[i], false); err != nil {
			t.Fatal(err)
		}
	}
	golden(t, "trial", buf.Bytes())
}

// TestAnyExplanationRenders: whatever a daemon sends, the output is whole lines without
// control characters.
func TestAnyExplanationRenders(t *testing.T) {
	text := rapid.StringMatching("[ -~\x00-\x1f\x7f\u202e]{0,30}")
	rapid.Check(t, func(t *rapid.T) {
		draw := func(what string) string { return text.Draw(t, what) }
		x := explanation(failed(draw("kind"), draw("target"), draw("reason"), 0, engine.Fault{Stage: draw("stage"), Expected: draw("want"), Got: draw("got"), Errno: draw("errno")}))
		x.Summary, x.VirtualServer, x.VSLabel, x.RealServer.Label = draw("summary"), draw("vs"), draw("label"), draw("label")
		x.RealServer.State, x.KernelError = engine.State(draw("state")), draw("error")
		x.Orders = []engine.Override{{Kind: engine.Verb(draw("order")), Who: draw("who"), Reason: draw("why")}}
		x.Weight[0].Text = draw("part")
		if rapid.Bool().Draw(t, "bare") {
			x = &engine.Explanation{Services: x.Services, Summary: draw("summary")}
		}
		var b bytes.Buffer
		if err := Explain(&b, x, false); err != nil {
			t.Fatal(err)
		}
		if s := b.String(); !strings.HasSuffix(s, "\n") || strings.ContainsFunc(s, func(r rune) bool { return r != '\n' && (r < ' ' || r == 0x7f || r == 0x202e) }) {
			t.Fatalf("%q", s)
		}
	})
}
