package render

import (
	"bytes"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
)

// held is a virtual server whose servers a reload took away.
func held(over bool) *engine.Snapshot {
	s := healthy()
	s.Overrides = orders()
	vs := &s.VirtualServers[0]
	s.VirtualServers = s.VirtualServers[:1]
	vs.Hold = &engine.Hold{Since: ago(20 * time.Second), Until: now.Add(40 * time.Second), Over: over, Servers: []string{"10.0.0.11:80"}, WaitsFor: []string{"10.0.0.12:80"}}
	vs.RealServers[0].State, vs.RealServers[0].Reason = engine.StateHeld, "no longer configured, serves since no configured server can"
	vs.RealServers[1].State = engine.StateDown
	return s
}

func orders() []engine.Override {
	return []engine.Override{
		{VS: "[192.0.2.10]:tcp:80", Server: "10.0.0.11:80", Kind: engine.VerbDrain, Who: "alice", Reason: "new kernel", Since: ago(90 * time.Second), Until: now.Add(time.Hour), Active: 3, Inactive: 1},
		{VS: "FWM 5", Server: "[2001:db8::25]:25", Kind: engine.VerbWeight, Weight: 5, Who: "uid 1007", Since: ago(26 * time.Hour), Kernel: 5, Active: 9},
		{VS: "[192.0.2.10]:tcp:80", Server: "10.0.0.19:80", Kind: engine.VerbDrain, Who: "bob\x1b[2J", Reason: "a\tb", Since: ago(time.Hour), Absent: true, Kernel: -1},
	}
}

func TestOverridesGolden(t *testing.T) {
	for name, list := range map[string][]engine.Override{"overrides": orders(), "overrides-none": nil} {
		var buf bytes.Buffer
		if err := Overrides(&buf, list, now); err != nil {
			t.Fatal(err)
		}
		golden(t, name, buf.Bytes())
	}
	if err := Overrides(brokenWriter{}, nil, now); err == nil {
		t.Error("a write error is not told")
	}
}

func TestLeft(t *testing.T) {
	for want, o := range map[string]engine.Override{
		"none": {Persistent: 4}, "none; the weight in the kernel is still 5": {Kernel: 5}, "3 active": {Active: 3}, "2 inactive": {Inactive: 2}, "3 active and 2 inactive": {Active: 3, Inactive: 2},
	} {
		if got := Left(&o); got != want {
			t.Errorf("%+v: %q, want %q", o, got, want)
		}
	}
}
