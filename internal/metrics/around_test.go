package metrics

import (
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/engine"
)

// TestAround: a director that is passive, a feature that fails, addresses that are
// missing; and nothing of it for who uses none.
func TestAround(t *testing.T) {
	s := everything()
	s.Passive = &engine.Passive{On: true}
	s.Edge = &engine.Edge{Announced: 3, Repaired: 2, Failures: []engine.EdgeFailure{{Feature: "vip_guard"}}}
	s.VirtualServers[0].VIP = &engine.VIP{Announced: true, Missing: []engine.MissingAddress{{}, {}}}
	got := text(t, s, config.MetricsService)
	for _, want := range []string{
		"sluice_passive 1\n", "sluice_addresses_announced 3\n", "sluice_host_repaired_total 2\n",
		`sluice_feature_up{feature="vip_device"} 1`, `sluice_feature_up{feature="vip_guard"} 0`,
		`sluice_virtual_server_addresses_announced{virtual_server="[192.0.2.1]:tcp:80",`, `label="shop"} 2`,
	} {
		if !strings.Contains(got, want) {
			t.Errorf("without %s", want)
		}
	}
	if n := strings.Count(got, "\nsluice_virtual_server_addresses_announced{"); n != 1 {
		t.Errorf("%d virtual servers have a device", n)
	}
	none := text(t, &engine.Snapshot{VirtualServers: []engine.VirtualServer{{}}}, config.MetricsService)
	for line := range strings.Lines(none) {
		if !strings.HasPrefix(line, "#") && (strings.Contains(line, "address") || strings.Contains(line, "feature") || strings.Contains(line, "host_")) {
			t.Errorf("who uses nothing has %s", line)
		}
	}
	if !strings.Contains(none, "sluice_passive 0\n") {
		t.Error("who is not passive is not told so")
	}
}
