package render

import (
	"bytes"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/doctor"
	"github.com/sluice-lb/sluice/internal/engine"
)

func examined() *doctor.Report {
	return &doctor.Report{File: "/etc/keepalived/keepalived.conf", Kernel: "6.1.0-57-amd64", Findings: []doctor.Finding{
		{ID: "daemon", Group: "sluiced", Status: doctor.OK, Found: "sluiced 1.2.3 runs (process 77)"},
		{ID: "version", Group: "sluiced", Status: doctor.Warn, Found: "sluiced is 1.2.2, sluice is 1.2.3", Wanted: "the same version",
			Why: "After an upgrade the old program runs on, with its old faults.", Mend: []string{"sluice handover"}},
		{ID: "ip_vs", Group: "kernel modules", Status: doctor.OK, Found: "ip_vs is in the kernel"},
		{ID: "schedulers", Group: "kernel modules", Status: doctor.OK, Found: "ip_vs_wlc is loaded"},
		{ID: "conn_table", Group: "kernel modules", Status: doctor.Unknown, Found: "the table cannot be read: permission denied; run as root"},
		{ID: "ip_forward", Group: "the way of packets", Status: doctor.Fail, Found: "net.ipv4.ip_forward is 0", Wanted: "1",
			Why:      "With NAT the answers of real servers come back through this machine, and the kernel drops them unless it forwards.",
			Concerns: []string{"real server 10.0.0.1:80 of [192.0.2.10]:tcp:80", "real server 10.0.0.2:80 of [192.0.2.10]:tcp:80", "real server 10.0.0.3:80 of [192.0.2.10]:tcp:80"}, ConcernsCount: 12,
			Mend: []string{"sysctl -w net.ipv4.ip_forward=1"}, Stay: []doctor.Line{{File: "/etc/sysctl.d/90-sluice.conf", Text: "net.ipv4.ip_forward = 1"}}},
		{ID: "firewall_mark", Group: "addresses and routes", Status: doctor.Note, Found: "firewall rules\x1b[2J are not looked at", Do: "See them with: nft list ruleset",
			Concerns: []string{"FWM 7"}, ConcernsCount: 1},
	}}
}

// TestX04StatusNamesWhatIsMissing: above everything else.
func TestX04StatusNamesWhatIsMissing(t *testing.T) {
	var b bytes.Buffer
	s := &engine.Snapshot{MissingCapabilities: []string{"CAP_NET_RAW: needed for PING_CHECK"}}
	if _, err := Status(&b, s, Options{}); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(b.String(), "\nmissing CAP_NET_RAW: needed for PING_CHECK\n") {
		t.Errorf("status:\n%s", b.String())
	}
}

func TestDoctor(t *testing.T) {
	for name, tt := range map[string]struct {
		r *doctor.Report
		o DoctorOptions
	}{
		"doctor":       {examined(), DoctorOptions{}},
		"doctor-quiet": {examined(), DoctorOptions{Quiet: true}},
		"doctor-color": {examined(), DoctorOptions{Color: true}},
		"doctor-well":  {&doctor.Report{Namespace: "lb", Findings: examined().Findings[2:4]}, DoctorOptions{}},
		"doctor-none":  {&doctor.Report{}, DoctorOptions{}},
	} {
		t.Run(name, func(t *testing.T) {
			var b bytes.Buffer
			if err := Doctor(&b, tt.r, tt.o); err != nil {
				t.Fatal(err)
			}
			if !tt.o.Color && strings.Contains(b.String(), "\x1b") {
				t.Error("an escape sequence without colours")
			}
			for line := range strings.Lines(b.String()) {
				if !tt.o.Color && len(line) > width+1 && !strings.Contains(line, "  stay: ") {
					t.Errorf("longer than %d: %s", width, line)
				}
			}
			golden(t, name, b.Bytes())
		})
	}
}
