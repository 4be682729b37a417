package render

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
)

// drifted is a daemon in whose services somebody else is at work.
func drifted() *engine.Snapshot {
	s := healthy()
	s.Kernel.DriftRepaired = 3
	vs := &s.VirtualServers[0]
	vs.Services[0].Drift = []engine.Drift{
		{Destination: "10.0.0.12:80", What: "destination changed", Found: "weight 0", Wanted: "weight 20", Since: ago(192 * time.Second)},
		{What: "service changed", Found: "scheduler rr", Wanted: "scheduler wlc", Since: ago(2 * time.Second)},
	}
	drain := func(d engine.Drain) *engine.Drain { d.Since, d.Why = ago(130*time.Second), "removed"; return &d }
	vs.Services[0].Destinations = append(vs.Services[0].Destinations,
		engine.Destination{Address: "10.0.0.21:80", Wanted: -1, Inactive: 4, Drain: drain(engine.Drain{WaitsFor: "4 inactive connections", EndsBy: now.Add(118 * time.Second)})},
		engine.Destination{Address: "10.0.0.22:80", Wanted: -1, Inactive: 4, Drain: drain(engine.Drain{WaitsFor: "4 inactive connections", EndsBy: now.Add(118 * time.Second), Deadline: now.Add(time.Minute)})},
		engine.Destination{Address: "10.0.0.23:80", Wanted: -1, Inactive: 4, Drain: drain(engine.Drain{WaitsFor: "4 inactive connections", Note: "gets new connections at weight 0: a client reuses its ports"})},
	)
	s.Foreign = &engine.Foreign{Services: []engine.Service{
		{Name: "198.51.100.1:80/tcp", Scheduler: "lc", Destinations: []engine.Destination{{Address: "10.1.0.1:80", Wanted: 3, Kernel: 3, Active: 7}}},
		{Name: "fwmark 9/inet", Scheduler: "rr"},
	}}
	return s
}

func TestForeignServices(t *testing.T) {
	for want, f := range map[string]*engine.Foreign{
		"":                             nil,
		"no foreign services":          {},
		"not known: the table is away": {Error: "the table is away"},
		"foreign services, which are never touched: 1": {Services: []engine.Service{{Name: "198.51.100.1:80/tcp", Scheduler: "lc"}}},
	} {
		var b bytes.Buffer
		s := healthy()
		s.Foreign = f
		if _, err := Status(&b, s, Options{}); err != nil {
			t.Fatal(err)
		}
		if got := b.String(); !strings.Contains(got, want) || want == "" && strings.Contains(got, "foreign") {
			t.Errorf("want %q in\n%s", want, got)
		}
	}
}
