package render

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
)

// around is a director with addresses in each situation, marks, and a guard that does
// not work.
func around() *engine.Snapshot {
	s := healthy()
	s.Edge = &engine.Edge{Announced: 2, Repaired: 3, Failures: []engine.EdgeFailure{
		{Feature: "vip_guard", Reason: "nf_tables is not in this kernel (modprobe nf_tables); tried again in 30s", Since: ago(95 * time.Second)}}}
	vs := func(name string, vip *engine.VIP, m *engine.Marked, services ...string) engine.VirtualServer {
		v := s.VirtualServers[0]
		v.Name, v.VIP, v.Marked, v.Sorry, v.Services = name, vip, m, nil, nil
		v.RealServers = v.RealServers[:1]
		for _, name := range services {
			v.Services = append(v.Services, engine.Service{Name: name, Destinations: []engine.Destination{{Address: "10.0.0.11:80", Wanted: 10, Kernel: 10, Active: 1}}})
		}
		return v
	}
	missing := &engine.VIP{Device: "vips", Follow: "always", Announced: true, Addresses: 256}
	for i := range 12 {
		missing.Missing = append(missing.Missing, engine.MissingAddress{Address: fmt.Sprintf("198.51.100.%d", i), Reason: "it is on eth0 too, and left there"})
	}
	m := &engine.Marked{Mark: 1000, Count: 515, Ranges: []string{"203.0.113.1-203.0.113.254 80", "192.0.2.129 80", "192.0.2.131-192.0.2.132 80", "203.0.113.1-203.0.113.254 443", "192.0.2.129 443", "192.0.2.131-192.0.2.133 443"}}
	lost := vs("[192.0.2.10]:tcp:80", &engine.VIP{Device: "vips", Follow: "quorum", Addresses: 1, Why: "the quorum is lost (weight 0 alive, 10 needed; vip_follow quorum)"}, nil, "192.0.2.10:80/tcp")
	lost.QuorumUp, lost.Alive = false, 0
	marked := vs("[web]:0", nil, m, "fwmark 1000/inet")
	marked.Services[0].Destinations[0].Address = "10.0.0.11:0"
	s.VirtualServers = []engine.VirtualServer{
		lost,
		vs("[192.0.2.20]:tcp:80", &engine.VIP{Device: "vips", Follow: "quorum", Announced: true, Addresses: 1}, nil, "192.0.2.20:80/tcp"),
		vs("[many]:0", missing, nil, "198.51.100.0:80/tcp"),
		marked,
	}
	return s
}

// withheld is a director that two want to be passive.
func withheld() *engine.Snapshot {
	s := healthy()
	s.VirtualServers = s.VirtualServers[1:]
	s.Passive = &engine.Passive{On: true, Sources: []engine.PassiveSource{
		{Source: engine.PassiveByConfiguration, Who: "the configuration", Why: "passive on", Since: ago(time.Hour)},
		{Source: engine.PassiveByCommand, Who: "ann", Why: "kernel\nupgrade", Since: ago(42 * time.Second)},
	}}
	vs := &s.VirtualServers[0]
	vs.Withheld, vs.VIP = true, &engine.VIP{Device: "vips", Follow: "always", Addresses: 1, Why: "withheld: this director is passive since 2026-11-30 11:00:00 by the configuration: passive on"}
	vs.Services = []engine.Service{{Name: "fwmark 5/inet6", Destinations: []engine.Destination{}}}
	vs.RealServers[0].State, vs.RealServers[0].WeightWanted = engine.StatePassive, -1
	vs.RealServers[0].Reason = "withheld: this director is passive since 2026-11-30 11:00:00 by the configuration: passive on"
	return s
}

// TestExplainTellsAddresses: what stands between a healthy server and its clients.
func TestExplainTellsAddresses(t *testing.T) {
	for _, vs := range around().VirtualServers {
		x := &engine.Explanation{At: now, Configured: true, Pool: &engine.Pool{VIP: vs.VIP, Marked: vs.Marked}}
		var status, explained bytes.Buffer
		p := &printer{}
		p.vip(vs.VIP)
		p.marked(vs.Marked)
		status.WriteString(p.b.String())
		if err := Explain(&explained, x, false); err != nil {
			t.Fatal(err)
		}
		if !bytes.Contains(explained.Bytes(), status.Bytes()) {
			t.Errorf("status says\n%s, and explain\n%s", status.String(), explained.String())
		}
	}
}

// TestOneAddressThatIsMissing: a service with one address has no "1 of" it.
func TestOneAddressThatIsMissing(t *testing.T) {
	t.Parallel()
	p := &printer{}
	p.vip(&engine.VIP{Device: "vips", Follow: "always", Announced: true, Addresses: 1,
		Missing: []engine.MissingAddress{{Address: "192.0.2.10", Reason: "it is on eth0"}}})
	const want = "  NOT ANNOUNCED: address on vips (vip_follow always)\n    192.0.2.10: it is on eth0\n"
	if got := p.b.String(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
