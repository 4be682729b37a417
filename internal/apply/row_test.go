package apply

import (
	"net/netip"
	"testing"

	"github.com/sluice-lb/sluice/internal/config"
)

// TestPlain: servers share a destination where only their ports differ and the method
// cannot translate ports, and where the sorry server is one of them.
func TestPlain(t *testing.T) {
	server := func(at string, m config.Method) *config.RealServer {
		return &config.RealServer{Key: config.RSKey{AddrPort: netip.MustParseAddrPort(at)}, Forward: config.Forwarding{Method: m}, Weight: 1}
	}
	vip := netip.MustParseAddrPort("192.0.2.1:80")
	for name, tc := range map[string]struct {
		servers []*config.RealServer
		sorry   string
		plain   bool
	}{
		"nat, two ports":     {[]*config.RealServer{server("10.0.0.1:80", config.NAT), server("10.0.0.1:81", config.NAT)}, "", true},
		"direct, two ports":  {[]*config.RealServer{server("10.0.0.1:80", config.DR), server("10.0.0.1:81", config.DR)}, "", false},
		"direct, two hosts":  {[]*config.RealServer{server("10.0.0.1:80", config.DR), server("10.0.0.2:80", config.DR)}, "10.0.0.3:80", true},
		"both methods":       {[]*config.RealServer{server("10.0.0.1:81", config.DR), server("10.0.0.1:80", config.NAT)}, "", false},
		"sorry server is in": {[]*config.RealServer{server("10.0.0.1:80", config.NAT)}, "10.0.0.1:80", false},
	} {
		vc := &config.VirtualServer{Key: config.VSKey{Protocol: config.TCP, Addr: vip}, Protocol: config.TCP,
			Entries: []config.Entry{{Addr: vip, Family: config.IPv4}}, RealServers: tc.servers}
		if tc.sorry != "" {
			vc.Sorry = &config.SorryServer{Key: config.RSKey{AddrPort: netip.MustParseAddrPort(tc.sorry)}, Forward: config.Forwarding{Method: config.NAT}}
		}
		if got := Translate(vc).Plain(); got != tc.plain {
			t.Errorf("%s: plain %t, want %t", name, got, tc.plain)
		}
	}
}
