package filter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// second addresses of the director, besides the topology's.
const (
	otherVIP  = "192.0.2.20"
	otherVIP6 = "2001:db8::20"
)

// gate is a topology with two servers of every kind behind a director.
type gate struct {
	*rig
	top *testkit.Topology
	cl  *ipvs.Client
	dr  bool
}

func newGate(t *testing.T, dr bool) *gate {
	t.Helper()
	testkit.Kernel(t)
	g := &gate{rig: &rig{T: t}, dr: dr}
	if dr {
		g.top = testkit.NewDR(t, 2)
	} else {
		g.top = testkit.NewNAT(t, 2)
	}
	g.ns = g.top.Director
	g.f = g.open()
	g.ns.IP(t, "address add "+otherVIP+"/32 dev front", "address add "+otherVIP6+"/128 dev front nodad")
	for _, b := range g.top.Backends {
		if dr {
			b.IP(t, "address add "+otherVIP+"/32 dev lo", "address add "+otherVIP6+"/128 dev lo nodad")
		}
		for _, port := range []string{"80", "8080", "8081"} {
			testkit.NewMixed(t, b.NS, ":"+port)
		}
		// A datagram's answer has the address as its source that it came to only if the
		// socket has it.
		addresses := []netip.Addr{b.Addr, b.Addr6}
		if dr {
			addresses = append(addresses, g.top.VIP, g.top.VIP6, netip.MustParseAddr(otherVIP), netip.MustParseAddr(otherVIP6))
		}
		for _, a := range addresses {
			testkit.NewUDPEcho(t, b.NS, netip.AddrPortFrom(a, 53).String())
		}
	}
	var err error
	if g.cl, err = ipvs.Dial(ipvs.WithNetNS(g.ns.Path()), ipvs.WithTimeout(time.Minute)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.cl.Close() })
	return g
}

// service puts a service with both servers into the table. port is that of the servers,
// which only NAT can tell them.
func (g *gate) service(k ipvs.ServiceKey, port uint16) {
	g.Helper()
	s := ipvs.Service{ServiceKey: k, Scheduler: "rr", Netmask: ipvs.FullMask(k.Family)}
	if err := g.cl.AddService(g.Context(), s); err != nil {
		g.Fatal(err)
	}
	for _, b := range g.top.Backends {
		d := ipvs.Destination{Weight: 1, DestinationKey: ipvs.DestinationKey{Addr: b.Addr, Port: port}}
		if k.Family == ipvs.INET6 {
			d.Addr = b.Addr6
		}
		if g.dr {
			d.Forward, d.Port = ipvs.DirectRoute, k.Port
		}
		if err := g.cl.AddDest(g.Context(), s, d); err != nil {
			g.Fatal(err)
		}
	}
}

// ask sends a line over a connection or in a datagram and returns who answered.
func (g *gate) ask(network, addr string) (server string, err error) {
	ctx, cancel := context.WithTimeout(g.Context(), 10*time.Second)
	defer cancel()
	c, err := g.top.Client.Dial(ctx, network, addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	if network == "tcp" {
		_, err = fmt.Fprint(c, "GET / HTTP/1.0\r\n\r\n")
	} else {
		_, err = fmt.Fprint(c, "x\n")
	}
	if err != nil {
		return "", err
	}
	b := make([]byte, 2048)
	n, err := c.Read(b)
	if err != nil {
		return "", err
	}
	for _, s := range append([]*testkit.Backend{{NS: g.ns}}, g.top.Backends...) {
		if strings.Contains(string(b[:n]), s.Name) {
			return s.Name, nil
		}
	}
	return "", fmt.Errorf("nobody's answer: %q", b[:n])
}

func (g *gate) wantRefused(network, addr string) {
	g.Helper()
	if server, err := g.ask(network, addr); !errors.Is(err, unix.ECONNREFUSED) {
		g.Errorf("%s %s: answer of %q, %v, want it to be refused", network, addr, server, err)
	}
}

// wantServed asks until both servers have answered.
func (g *gate) wantServed(network, addr string) {
	g.Helper()
	by := map[string]int{}
	for range 4 {
		server, err := g.ask(network, addr)
		if err != nil {
			g.Errorf("%s %s: %v", network, addr, err)
			return
		}
		by[server]++
	}
	if by["b1"] == 0 || by["b2"] == 0 {
		g.Errorf("%s %s is answered by %v, want both servers", network, addr, by)
	}
}

func (g *gate) wantAnswerOf(server, network, addr string) {
	g.Helper()
	if got, err := g.ask(network, addr); got != server || err != nil {
		g.Errorf("%s %s: answer of %q, %v, want one of %s", network, addr, got, err, server)
	}
}

// TestKernelGuardAtTheGate: what is no service is refused at the virtual addresses and
// nowhere else, and what is established is left alone.
func TestKernelGuardAtTheGate(t *testing.T) {
	g := newGate(t, false)
	v4, v6 := g.top.VIP.String(), "["+g.top.VIP6.String()+"]"
	// Something of the director's own that listens at each of its addresses.
	testkit.NewHTTP(t, g.ns, ":22")
	for _, a := range []string{v4, v6, "192.0.2.1", "[2001:db8::1]"} {
		testkit.NewUDPEcho(t, g.ns, a+":161")
	}
	services := []ipvs.ServiceKey{tcp(v4 + ":80"), tcp(v6 + ":80"), key(ipvs.UDP, v4+":53"), key(ipvs.UDP, v6+":53"), fwm(ipvs.INET, 7), fwm(ipvs.INET6, 7)}
	for _, k := range services {
		port := uint16(80)
		if k.Protocol == ipvs.UDP {
			port = 53
		}
		g.service(k, port)
	}
	// An operator's own marks.
	g.load(`table inet mangle {
	chain pre {
		type filter hook prerouting priority mangle; policy accept;
		ip daddr ` + otherVIP + ` tcp dport 7000-7002 counter meta mark set 7
		ip6 daddr ` + otherVIP6 + ` tcp dport 7000-7002 counter meta mark set 7
	}
}
`)
	foreignTables := g.nft("-j list table inet mangle")
	foreignTables, _, _ = strings.Cut(foreignTables, `"counter"`)

	g.wantAnswerOf("director", "tcp", v4+":22")
	g.wantAnswerOf("director", "udp", v6+":161")
	want := &edge.Guard{Addresses: []netip.Addr{g.top.VIP, g.top.VIP6, netip.MustParseAddr(otherVIP), netip.MustParseAddr(otherVIP6)}, Services: services}
	g.guard(g.f, want)

	for _, a := range []string{v4, v6} {
		g.wantRefused("tcp", a+":22")
		g.wantRefused("tcp", a+":23")
		g.wantRefused("udp", a+":161")
		g.wantServed("tcp", a+":80")
		g.wantServed("udp", a+":53")
	}
	for _, a := range []string{otherVIP, "[" + otherVIP6 + "]"} {
		g.wantServed("tcp", a+":7001")
		g.wantRefused("tcp", a+":7003")
		g.wantRefused("tcp", a+":22")
	}
	for _, a := range []string{"192.0.2.1", "[2001:db8::1]"} {
		g.wantAnswerOf("director", "tcp", a+":22")
		g.wantAnswerOf("director", "udp", a+":161")
	}
	g.top.Client.Run(t, "busybox", "ping", "-c", "1", "-W", "5", v4)
	g.top.Client.Run(t, "busybox", "ping6", "-c", "1", "-W", "5", g.top.VIP6.String())

	// The port closes, and what is established goes on.
	var held []*testkit.Long
	for _, a := range []string{v4, v6} {
		held = append(held, testkit.OpenLong(t, g.top.Client, a+":80", 10))
	}
	g.guard(g.f, &edge.Guard{Addresses: want.Addresses, Services: services[2:]})
	for _, l := range held {
		l.Settle(t)
		if r := l.Report(); r.Kept != 10 {
			t.Errorf("established connections through a closed port: %s", r)
		}
	}
	g.wantRefused("tcp", v4+":80")
	g.wantRefused("tcp", v6+":80")
	g.guard(g.f, want)
	g.wantServed("tcp", v4+":80")

	if _, err := g.ns.ReadProcNet("nf_conntrack"); err == nil {
		if n := strings.TrimSpace(g.ns.ReadSysctl(t, "net.netfilter.nf_conntrack_count")); n != "0" {
			t.Errorf("connection tracking has %s entries", n)
		}
	}
	g.guard(g.f, nil)
	g.wantAnswerOf("director", "tcp", v4+":22")
	if now, _, _ := strings.Cut(g.nft("-j list ruleset"), `"counter"`); now != foreignTables {
		t.Errorf("the rule set is\n%s\nwant\n%s", now, foreignTables)
	}
}

// TestKernelMarksCarryAGroup: many addresses and ports reach one service of each family
// and protocol, and addresses come and go without a connection noticing.
func TestKernelMarksCarryAGroup(t *testing.T) {
	for _, dr := range []bool{false, true} {
		t.Run(map[bool]string{false: "NAT", true: "DR"}[dr], func(t *testing.T) {
			g := newGate(t, dr)
			v4, v6, o4, o6 := g.top.VIP.String(), "["+g.top.VIP6.String()+"]", otherVIP, "["+otherVIP6+"]"
			for _, f := range []ipvs.Family{ipvs.INET, ipvs.INET6} {
				g.service(fwm(f, 1000), 80)
				g.service(fwm(f, 1001), 53)
			}
			m := &edge.Marking{NFTables: config.NFTables{Table: "keepalived_ipvs", Priority: -1, Counters: true}, Marks: map[edge.Mapped]uint32{}}
			guard := &edge.Guard{Services: []ipvs.ServiceKey{fwm(ipvs.INET, 1000), fwm(ipvs.INET, 1001), fwm(ipvs.INET6, 1000), fwm(ipvs.INET6, 1001)}}
			var listed []string
			for _, a := range []string{v4, v6, o4, o6} {
				guard.Addresses = append(guard.Addresses, netip.MustParseAddr(strings.Trim(a, "[]")))
				for _, port := range []string{":80", ":8080", ":8081"} {
					listed = append(listed, a+port)
					m.Marks[edge.Mapped{Protocol: ipvs.TCP, Addr: netip.MustParseAddrPort(a + port)}] = 1000
				}
			}
			// Every port of one address, and one of the others.
			for _, a := range []string{v4 + ":0", v6 + ":53", o4 + ":53", o6 + ":0"} {
				m.Marks[edge.Mapped{Protocol: ipvs.UDP, Addr: netip.MustParseAddrPort(a)}] = 1001
			}
			g.guard(g.f, guard)
			g.marks(g.f, m)
			for _, a := range listed {
				g.wantServed("tcp", a)
			}
			for _, a := range []string{v4, v6, o4, o6} {
				g.wantServed("udp", a+":53")
				g.wantRefused("tcp", a+":22")
			}
			if !dr {
				// The servers have it at port 53.
				g.wantServed("udp", v4+":5300")
				g.wantRefused("udp", v6+":5300")
			}
			table := testkit.ReadTable(t, g.ns)
			var keys []string
			for _, s := range table {
				keys = append(keys, s.Key)
			}
			if got := strings.Join(keys, ", "); got != "fwm 1000, fwm 1001, fwm6 1000, fwm6 1001" {
				t.Errorf("ipvsadm shows %s", got)
			}

			// Addresses come and go, the one of the connections too.
			held := []*testkit.Long{testkit.OpenLong(t, g.top.Client, v4+":8080", 10), testkit.OpenLong(t, g.top.Client, o6+":8080", 10)}
			gone := edge.Mapped{Protocol: ipvs.TCP, Addr: netip.MustParseAddrPort(o6 + ":8080")}
			a := netip.MustParseAddr("198.18.0.0")
			for range 5 {
				for range 500 {
					m.Marks[edge.Mapped{Protocol: ipvs.TCP, Addr: netip.AddrPortFrom(a, 80)}] = 1000
					a = a.Next()
				}
				delete(m.Marks, gone)
				g.marks(g.f, m)
				g.wantRefused("tcp", gone.Addr.String())
				for i := range m.Marks {
					if a := i.Addr.Addr(); a.Is4() && a.As4()[0] == 198 && a.As4()[3]%2 == 0 {
						delete(m.Marks, i)
					}
				}
				m.Marks[gone] = 1000
				g.marks(g.f, m)
				g.wantServed("tcp", gone.Addr.String())
			}
			for _, l := range held {
				l.Settle(t)
				if r := l.Report(); r.Kept != 10 {
					t.Errorf("connections while addresses came and went: %s", r)
				}
			}
			if n := g.marks(g.f, m) + g.guard(g.f, guard); n != 0 {
				t.Errorf("repaired %d where nobody broke anything", n)
			}
		})
	}
}
