package testkit

import (
	"fmt"
	"regexp"
)

// Directors is a direct routing topology with a second director, and a link between the
// two that nothing else uses: "link" on either.
type Directors struct {
	*Topology
	Second *NS
}

// NewDirectors builds one. The second director has 192.0.2.2 and 10.0.0.2 and, until
// Move, no virtual address.
func NewDirectors(t T, backends int) *Directors {
	t.Helper()
	top, segment := newDR(t, backends)
	d := &Directors{top, NewNS(t, "second")}
	for _, name := range []string{"net.ipv4.conf.all.rp_filter", "net.ipv4.conf.default.rp_filter", "net.ipv4.conf.all.send_redirects", "net.ipv4.conf.default.send_redirects"} {
		d.Second.Sysctl(t, name, "0")
	}
	d.Second.Sysctl(t, "net.ipv4.ip_forward", "1")
	segment.plugAs(t, "br", d.Second, "front")
	d.Second.IP(t, "address add 192.0.2.2/24 dev front", "address add 10.0.0.2/24 dev front")
	top.Director.joinPair(t, "link", d.Second, "link")
	top.Director.IP(t, "address add 10.9.0.1/30 dev link")
	d.Second.IP(t, "address add 10.9.0.2/30 dev link")
	return d
}

// Fail takes the first director off the network at once.
func (d *Directors) Fail(t T) {
	t.Helper()
	d.Director.IP(t, "link set dev front down", "link set dev link down")
}

var hardware = regexp.MustCompile(`link/ether (\S+)`)

// Move has the second director take the virtual address.
func (d *Directors) Move(t T) {
	t.Helper()
	d.Second.IP(t, fmt.Sprintf("address add %s/32 dev front", d.VIP))
	d.Lead(t)
}

// Lead has the client's packets go to the second director, whether that has the virtual
// address or not: the client learns of it as by a gratuitous ARP.
func (d *Directors) Lead(t T) {
	t.Helper()
	m := hardware.FindStringSubmatch(d.Second.Run(t, "ip", "-o", "link", "show", "dev", "front"))
	if m == nil {
		t.Fatalf("second director: no hardware address on front")
	}
	d.Client.IP(t, fmt.Sprintf("neigh replace %s lladdr %s dev eth0 nud permanent", d.VIP, m[1]))
	d.Director.IP(t, fmt.Sprintf("address del %s/32 dev front", d.VIP))
}
