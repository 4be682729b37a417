package testkit

import (
	"fmt"
	"net/netip"
	"slices"
)

// Topology is a director, a client and backends, each in a namespace of its
// own, joined by veth pairs.
type Topology struct {
	Director, Client *NS
	Backends         []*Backend
	// VIP and VIP6 are on the director, and in a DR topology also, without
	// answering ARP, on every backend.
	VIP, VIP6 netip.Addr
}

// Backend is one namespace of servers.
type Backend struct {
	*NS
	// Addr and Addr6 are what a table names as the destination.
	Addr, Addr6 netip.Addr
}

// Addresses are alike in every topology. Backend number i from 0 has the host
// part 11+i.
var (
	vip       = netip.MustParseAddr("192.0.2.10")
	vip6      = netip.MustParseAddr("2001:db8::10")
	firstReal = netip.MustParseAddr("10.0.0.11")
	firstRea6 = netip.MustParseAddr("fd00::11")
)

// NewNAT builds a masquerading topology: the client on one side of the
// director, the backends on the other, with the director as their way back.
//
//	client 192.0.2.100 -- 192.0.2.1 director 10.0.0.1 -- 10.0.0.11, .12, ... backends
func NewNAT(t T, backends int) *Topology {
	t.Helper()
	return NewNATOn(t, NewNS(t, "director"), backends)
}

// NewNATOn is NewNAT with a director that there is, as Home in a guest.
func NewNATOn(t T, d *NS, backends int) *Topology {
	t.Helper()
	top := newTopology(t, d, backends)
	d.bridge(t, "back")
	d.IP(t, "address add 10.0.0.1/24 dev back", "address add fd00::1/64 dev back nodad")
	d.joinPair(t, "front", top.Client, "eth0")
	top.frontAddresses(t)
	for _, b := range top.Backends {
		d.plug(t, "back", b.NS)
		b.IP(t,
			fmt.Sprintf("address add %s/24 dev eth0", b.Addr),
			fmt.Sprintf("address add %s/64 dev eth0 nodad", b.Addr6),
			"route add default via 10.0.0.1", "route add ::/0 via fd00::1")
	}
	return top
}

// NewDR builds a direct routing topology: all on one segment, the VIP on each
// backend's lo, replies go to the client without passing the director.
func NewDR(t T, backends int) *Topology {
	t.Helper()
	top, _ := newDR(t, backends)
	return top
}

// newDR is NewDR with the namespace that has the segment's bridge br.
func newDR(t T, backends int) (top *Topology, segment *NS) {
	t.Helper()
	top = newTopology(t, NewNS(t, "director"), backends)
	segment = NewNS(t, "segment")
	segment.bridge(t, "br")
	segment.plugAs(t, "br", top.Director, "front")
	segment.plug(t, "br", top.Client)
	top.frontAddresses(t)
	top.Director.IP(t, "address add 10.0.0.1/24 dev front", "address add fd00::1/64 dev front nodad")
	for _, b := range top.Backends {
		segment.plug(t, "br", b.NS)
		// Only the director may answer for the VIP: a backend answers for what is
		// on the asked interface (1) and announces only such addresses (2). IPv6
		// neighbour discovery behaves like that anyway.
		b.Sysctl(t, "net.ipv4.conf.all.arp_ignore", "1")
		b.Sysctl(t, "net.ipv4.conf.all.arp_announce", "2")
		b.IP(t,
			fmt.Sprintf("address add %s/32 dev lo", top.VIP),
			fmt.Sprintf("address add %s/128 dev lo nodad", top.VIP6),
			fmt.Sprintf("address add %s/24 dev eth0", b.Addr),
			fmt.Sprintf("address add %s/64 dev eth0 nodad", b.Addr6),
			"route add 192.0.2.0/24 dev eth0", "route add 2001:db8::/64 dev eth0")
	}
	top.Client.IP(t, "route add 10.0.0.0/24 dev eth0", "route add fd00::/64 dev eth0")
	return top, segment
}

// newTopology makes the namespaces and what both kinds share.
func newTopology(t T, d *NS, backends int) *Topology {
	t.Helper()
	top := &Topology{Director: d, Client: NewNS(t, "client"), VIP: vip, VIP6: vip6}
	a, a6 := firstReal, firstRea6
	for i := range backends {
		b := &Backend{NS: NewNS(t, fmt.Sprintf("b%d", i+1)), Addr: a, Addr6: a6}
		top.Backends = append(top.Backends, b)
		a, a6 = a.Next(), a6.Next()
	}
	d.Sysctl(t, "net.ipv4.ip_forward", "1")
	d.Sysctl(t, "net.ipv6.conf.all.forwarding", "1")
	// On one segment the director would tell the client of a better way.
	d.Sysctl(t, "net.ipv4.conf.all.send_redirects", "0")
	d.Sysctl(t, "net.ipv4.conf.default.send_redirects", "0")
	for _, ns := range slices.Concat([]*NS{d, top.Client}, namespaces(top.Backends)) {
		ns.Sysctl(t, "net.ipv4.conf.all.rp_filter", "0")
		ns.Sysctl(t, "net.ipv4.conf.default.rp_filter", "0")
	}
	return top
}

func namespaces(backends []*Backend) []*NS {
	var all []*NS
	for _, b := range backends {
		all = append(all, b.NS)
	}
	return all
}

// frontAddresses gives director and client their addresses on the VIP's net.
func (top *Topology) frontAddresses(t T) {
	t.Helper()
	top.Director.IP(t,
		"address add 192.0.2.1/24 dev front", "address add 2001:db8::1/64 dev front nodad",
		fmt.Sprintf("address add %s/32 dev front", top.VIP),
		fmt.Sprintf("address add %s/128 dev front nodad", top.VIP6))
	top.Client.IP(t, "address add 192.0.2.100/24 dev eth0", "address add 2001:db8::100/64 dev eth0 nodad")
}

// bridge creates a bridge that is up. Without multicast snooping, which would
// hold IPv6 neighbour discovery back in the first seconds.
func (ns *NS) bridge(t T, name string) {
	t.Helper()
	ns.IP(t, "link add name "+name+" type bridge forward_delay 0 mcast_snooping 0", "link set dev "+name+" up")
}

// joinPair creates a veth pair from device in ns to peerDevice in peer, both up.
func (ns *NS) joinPair(t T, device string, peer *NS, peerDevice string) {
	t.Helper()
	ns.IP(t, fmt.Sprintf("link add name %s type veth peer name %s netns %s", device, peerDevice, peer.Path()),
		"link set dev "+device+" up")
	peer.IP(t, "link set dev "+peerDevice+" up")
}

// plug joins a namespace's eth0 to a bridge in ns.
func (ns *NS) plug(t T, bridge string, peer *NS) {
	t.Helper()
	ns.plugAs(t, bridge, peer, "eth0")
}

func (ns *NS) plugAs(t T, bridge string, peer *NS, device string) {
	t.Helper()
	port := "to-" + peer.Name
	ns.joinPair(t, port, peer, device)
	ns.IP(t, "link set dev "+port+" master "+bridge)
}
