package render

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
)

// fullPlan has one of everything that a plan can tell.
func fullPlan() *engine.Plan {
	return &engine.Plan{
		At: now, ConfigFile: "/etc/keepalived/keepalived.conf", Generation: 4, Changes: true,
		Notes: []string{"the kernel would refuse to add service 192.0.2.9:80/tcp: no such file or directory"},
		Pools: []engine.PlanPool{
			{VS: "[192.0.2.10]:tcp:80", BelowQuorum: true, WeightBefore: 30, WeightAfter: 8, Needed: 10, ServingBefore: 3, ServingAfter: 1, Sorry: "10.0.0.99:80"},
			{VS: "[192.0.2.11]:tcp:80", AtFloor: true, WeightBefore: 4, WeightAfter: 2, Needed: 1, ServingBefore: 4, ServingAfter: 2, MinAlive: 3},
			{VS: "FWM 5", Empty: true, BelowQuorum: true, WeightBefore: 1, Needed: 1, ServingBefore: 1},
		},
		Cut: []engine.PlanDestination{
			{Service: "192.0.2.53:53/udp", Address: "10.0.0.53:53", Inactive: 2},
			{Service: "192.0.2.53:53/udp", Address: "10.0.0.54:53", Inactive: 240},
		},
		Drains: []engine.PlanDrain{
			{PlanDestination: engine.PlanDestination{Service: "192.0.2.10:80/tcp", Address: "10.0.0.11:80"}, Why: "removed from the configuration"},
			{PlanDestination: engine.PlanDestination{Service: "192.0.2.10:80/tcp", Address: "10.0.0.12:80", Active: 12, Inactive: 340}, Why: "removed from the configuration", Limit: 90 * time.Second},
		},
		Joins:  []engine.PlanServer{{VS: "[192.0.2.10]:tcp:80", Server: "10.0.0.21:80"}},
		Held:   []engine.PlanHeld{{PlanServer: engine.PlanServer{VS: "[192.0.2.11]:tcp:80", Server: "10.0.0.31:80"}, For: time.Minute}},
		Checks: []engine.PlanCheck{{PlanServer: engine.PlanServer{VS: "[192.0.2.10]:tcp:80", Server: "10.0.0.13:80"}, Kind: "HTTP_GET", Target: "10.0.0.13:8080"}},
		Orders: []engine.PlanOrder{
			{PlanServer: engine.PlanServer{VS: "[192.0.2.10]:tcp:80", Server: "10.0.0.12:80"}, Kind: engine.VerbDrain, Who: "alice"},
			{PlanServer: engine.PlanServer{VS: "[192.0.2.10]:tcp:80", Server: "10.0.0.21:80"}, Kind: engine.VerbWeight, Who: "bob", Comes: true},
		},
		Added: []string{"[192.0.2.14]:tcp:80"}, Removed: []string{"[192.0.2.53]:udp:53"},
		Changed: []engine.PlanVirtualServer{
			{VS: "[192.0.2.10]:tcp:80", Settings: []engine.PlanSetting{{Keyword: "lvs_sched", From: "rr", To: "wrr"}, {Keyword: "quorum_up"}},
				Added: []string{"10.0.0.21:80"}, Removed: []string{"10.0.0.11:80", "10.0.0.12:80"},
				Changed: []engine.PlanRealServer{{Server: "10.0.0.13:80", Settings: []engine.PlanSetting{{Keyword: "uthreshold", To: "10"}}}}},
			{VS: "FWM 5"},
		},
		Settings: []engine.PlanSetting{{Keyword: "drain_interval", From: "60", To: "30"}}, Restart: []string{"checker_threads"},
		Operations: []engine.PlanOperation{
			{Op: "add", Service: "192.0.2.14:80/tcp", To: &engine.PlanEntry{Scheduler: "wlc", Persistence: 300}},
			{Op: "change", Service: "192.0.2.10:80/tcp", From: &engine.PlanEntry{Scheduler: "rr"}, To: &engine.PlanEntry{Scheduler: "wrr", Flags: []string{"ops"}}},
			{Op: "add", Service: "192.0.2.14:80/tcp", Destination: "10.0.0.41:80", To: &engine.PlanEntry{Method: "TUN", Weight: 3, Tunnel: "gue port 6080 flags 0"}},
			{Op: "change", Service: "192.0.2.10:80/tcp", Destination: "10.0.0.12:80", From: &engine.PlanEntry{Method: "NAT", Weight: 10}, To: &engine.PlanEntry{Method: "NAT"}, Active: 12, Inactive: 340},
			{Op: "remove", Service: "192.0.2.10:80/tcp", Destination: "10.0.0.11:80", From: &engine.PlanEntry{Method: "NAT"}},
			{Op: "remove", Service: "192.0.2.53:53/udp", From: &engine.PlanEntry{Scheduler: "rr"}},
		},
	}
}

func TestPlanGolden(t *testing.T) {
	many := fullPlan()
	for i := range 500 {
		many.Joins = append(many.Joins, engine.PlanServer{VS: "[192.0.2.10]:tcp:80", Server: fmt.Sprintf("10.1.%d.%d:80", i/250, i%250)})
	}
	observe := &engine.Plan{At: now, ConfigFile: "/etc/k.conf", Generation: 1, Observe: true}
	refused := &engine.Plan{At: now, ConfigFile: "/etc/k.conf", Generation: 7, Refused: `/etc/k.conf:3:4: unknown keyword "wieght"`}
	for name, tt := range map[string]struct {
		plan *engine.Plan
		o    PlanOptions
	}{
		"plan":         {fullPlan(), PlanOptions{}},
		"plan-color":   {fullPlan(), PlanOptions{Color: true}},
		"plan-many":    {many, PlanOptions{}},
		"plan-nothing": {observe, PlanOptions{}},
		"plan-refused": {refused, PlanOptions{}},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Plan(&b, tt.plan, tt.o); err != nil {
				t.Fatal(err)
			}
			golden(t, name, b.Bytes())
		})
	}
	var b bytes.Buffer
	if err := Plan(&b, many, PlanOptions{All: true}); err != nil || strings.Contains(b.String(), "... and") || !strings.Contains(b.String(), "10.1.1.249:80") {
		t.Errorf("%v, --all leaves something out:\n%s", err, b.String())
	}
}
