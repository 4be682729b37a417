package apply

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// group makes a virtual server of a group of so many addresses, which a mark carries if
// it is not 0, and of so many servers.
func group(addresses, servers int, mark uint32) *config.VirtualServer {
	vs := farm(1, servers)[0]
	vs.Key = config.VSKey{Group: "crowd"}
	vs.Mark, vs.Entries = mark, nil
	a := netip.MustParseAddr("198.18.0.0")
	for range addresses {
		vs.Entries = append(vs.Entries, config.Entry{Addr: netip.AddrPortFrom(a, 80), Family: config.IPv4})
		a = a.Next()
	}
	return vs
}

func TestMarkStandsForItsAddresses(t *testing.T) {
	vs := group(3, 1, 1000)
	six := netip.MustParseAddrPort("[2001:db8::1]:80")
	vs.Entries = append(vs.Entries,
		config.Entry{FWMark: 7, Family: config.IPv4},
		config.Entry{Addr: six, Family: config.IPv6}, config.Entry{Addr: netip.AddrPortFrom(six.Addr(), 81), Family: config.IPv6})
	vs.Persistence, vs.Flags.Flag1 = 300, true
	want := []ipvs.ServiceKey{{Family: ipvs.INET, FWMark: 1000}, {Family: ipvs.INET, FWMark: 7}, {Family: ipvs.INET6, FWMark: 1000}}
	k := Translate(vs)
	if len(k.Services) != len(want) {
		t.Fatalf("services %v, want %v", k.Services, want)
	}
	for i, s := range k.Services {
		if s.ServiceKey != want[i] || s.Timeout != 300 || s.Flags != ipvs.Persistent|ipvs.Sched1 || s.Netmask != ipvs.FullMask(s.Family) {
			t.Errorf("service %+v, want %v with the group's attributes", s, want[i])
		}
	}
	// Only NAT has a port of its own behind a mark.
	if d := at(k.Servers[0].Dest, want[0]); d.Port != 80 {
		t.Errorf("NAT behind a mark goes to port %d, want 80", d.Port)
	}
	vs.RealServers[0].Forward.Method = config.DR
	if d := at(Translate(vs).Servers[0].Dest, want[0]); d.Port != 0 {
		t.Errorf("DR behind a mark goes to port %d, want that of the packet", d.Port)
	}
	vs.Mark = 0
	if n := len(Translate(vs).Services); n != 6 {
		t.Errorf("%d services without a mark, want 6", n)
	}
}

func TestFailureBehindAMarkIsOneOperation(t *testing.T) {
	for _, c := range []struct {
		mark uint32
		ops  int
	}{{1000, 1}, {0, 10_000}} {
		vs := group(10_000, 2, c.mark)
		r := loaded(t, vs)
		r.fail(vs, 1)
		r.writeAll()
		if n := len(r.table.Log()); n != c.ops {
			t.Errorf("mark %d: a failing server of 10,000 addresses is %d operations, want %d", c.mark, n, c.ops)
		}
	}
}

// TestMarkedDatagramsDoNotDrain: behind a mark UDP is UDP still, of which nothing is
// waited for.
func TestMarkedDatagramsDoNotDrain(t *testing.T) {
	for _, c := range []struct {
		protocol config.Protocol
		op       ipvs.OpKind
	}{{config.TCP, ipvs.OpSetDest}, {config.UDP, ipvs.OpDelDest}} {
		vs := group(5, 2, 1000)
		vs.Protocol, vs.OnFailure, vs.DrainTimeout = c.protocol, config.OnFailureDrain, time.Hour
		r := loaded(t, vs)
		key := ipvs.ServiceKey{Family: ipvs.INET, FWMark: 1000}
		r.must(r.table.SetCounters(key, Translate(vs).Servers[1].Dest.DestinationKey, ipvs.Counters{Active: 1}))
		r.fail(vs, 1)
		r.writeAll()
		if log := r.table.Log(); len(log) != 1 || log[0].Kind != c.op {
			t.Errorf("%v: a failed server with a connection: %v, want %v", c.protocol, log, c.op)
		}
		r.table.ResetLog()
		// The same of a virtual server that a reload takes away.
		r.must(r.table.SetCounters(key, Translate(vs).Servers[0].Dest.DestinationKey, ipvs.Counters{Active: 1}))
		r.reload(trust)
		r.writeAll()
		services, err := r.table.Services(t.Context())
		r.must(err)
		if left := len(services) > 0; left != (c.protocol == config.TCP) {
			t.Errorf("%v: after its virtual server left, the service is there: %t", c.protocol, left)
		}
	}
}

// TestKernelMarkedGroup: 10,000 addresses and 100 servers are one service with 100
// destinations for the kernel, and a failing server is one operation.
func TestKernelMarkedGroup(t *testing.T) {
	testkit.Kernel(t)
	vs := group(10_000, 100, 1000)
	r := newKernelRig(t, []*config.VirtualServer{vs})
	begun := time.Now()
	r.writeAll()
	t.Logf("installed in %s, %d operations", time.Since(begun).Round(time.Millisecond), r.a.Operations())
	table := testkit.ReadTable(t, r.ns)
	if len(table) != 1 || table[0].Key != "fwm 1000" || len(table[0].Dests) != 100 {
		t.Fatalf("the table is\n%s", table)
	}
	before := r.a.Operations()
	if err := r.a.SetAlive(vs.Key, vs.RealServers[7].Key, false); err != nil {
		t.Fatal(err)
	}
	begun = time.Now()
	r.flush()
	t.Logf("a failing server: %s", time.Since(begun).Round(10*time.Microsecond))
	if n := r.a.Operations() - before; n != 1 {
		t.Errorf("%d operations, want 1", n)
	}
	if n := r.count(vs); n != 99 {
		t.Errorf("%d destinations, want 99", n)
	}
}
