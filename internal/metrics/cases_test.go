package metrics

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/engine"
)

// TestO08TheLastGoodSyncIsAMetric, 0 for one that never was.
func TestO08TheLastGoodSyncIsAMetric(t *testing.T) {
	const name = "sluice_kernel_last_success_timestamp_seconds"
	at := time.Unix(1_700_000_000, 250_000_000)
	for want, s := range map[string]*engine.Snapshot{
		"0":                 {},
		"1.70000000025e+09": {Kernel: engine.Kernel{LastSuccess: at, Error: "no answer"}},
	} {
		has(t, series(t, text(t, s, config.MetricsService)), name, want)
	}
}

// TestX06WhenACertificateEndsIsAMetric: of the virtual server without details, of the
// check with them; without TLS there is none.
func TestX06WhenACertificateEndsIsAMetric(t *testing.T) {
	at := time.Unix(1_700_000_000, 0)
	s := &engine.Snapshot{VirtualServers: []engine.VirtualServer{
		{Name: "[192.0.2.1]:tcp:443", CertificateEnds: at, RealServers: []engine.RealServer{{
			Address: "10.0.0.1:443", State: engine.StateUp, Checkers: []engine.Checker{{Kind: "SSL_GET", Verdict: "up", CertificateEnds: at}},
		}}},
		{Name: "[192.0.2.1]:tcp:80", RealServers: []engine.RealServer{{
			Address: "10.0.0.1:80", State: engine.StateUp, Checkers: []engine.Checker{{Kind: "TCP_CHECK", Verdict: "up"}},
		}}},
	}}
	for detail, want := range map[config.MetricsDetail][]string{
		config.MetricsService: {"sluice_virtual_server_certificate_expiry_timestamp_seconds"},
		config.MetricsServer:  {"sluice_virtual_server_certificate_expiry_timestamp_seconds", "sluice_check_certificate_expiry_timestamp_seconds"},
	} {
		var got []string
		for name, value := range series(t, text(t, s, detail)) {
			if family, _, _ := strings.Cut(name, "{"); strings.Contains(family, "certificate") {
				got = append(got, family)
				if value != "1700000000" {
					t.Errorf("%s is %s", name, value)
				}
			}
		}
		if len(got) != len(want) {
			t.Errorf("%v: %v, want %v", detail, got, want)
		}
	}
}
