package play

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// What everything is called and reached by.
const (
	clientAddr = "198.51.100.2"
	device     = "vips"
	port       = 80
	// pulsePort is where connections go that witness the machine's fitness.
	pulsePort = 9000
	servers   = 3
	// directors is how many a router can have, three of which are there at first.
	directors = 4
)

var vip = netip.MustParseAddr("192.0.2.10")

func serverAddr(i int) netip.Addr   { return netip.AddrFrom4([4]byte{10, 0, 0, byte(11 + i)}) }
func directorAddr(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, 0, byte(21 + i)}) }

// rig are the namespaces.
type rig struct {
	client, router *testkit.NS
	directors      []*testkit.NS
	servers        []*testkit.NS
}

// build makes the namespaces, the wires, the servers, and the router's daemon.
func (r *run) build() {
	r.rig = rig{client: testkit.NewNS(r, "client"), router: testkit.NewNS(r, "router")}
	rt := r.rig.router
	rt.Sysctl(r, "net.ipv4.ip_forward", "1")
	// By addresses and ports of the packet, as policy 1 means to. But that takes a hash
	// that comes with the packet if there is one: from a network card it is as good, and
	// from a socket in another namespace it is that socket's own, which changes with
	// each retransmission timeout. Policy 3 always looks at the packet.
	rt.Sysctl(r, "net.ipv4.fib_multipath_hash_policy", "3")
	rt.Sysctl(r, "net.ipv4.fib_multipath_hash_fields", "55") // 0x37: both addresses, protocol, both ports
	rt.IP(r, "link add name front type veth peer name eth0 netns "+r.rig.client.Path(),
		"link add name back type bridge forward_delay 0 mcast_snooping 0",
		"link set dev front up", "link set dev back up",
		"address add 198.51.100.1/24 dev front", "address add 10.0.0.1/24 dev back")
	r.rig.client.IP(r, "link set dev eth0 up", "address add "+clientAddr+"/24 dev eth0", "route add default via 198.51.100.1")
	for i := range servers {
		ns := r.plug(fmt.Sprintf("b%d", i+1), serverAddr(i))
		ns.Sysctl(r, "net.ipv4.conf.all.arp_ignore", "1")
		ns.Sysctl(r, "net.ipv4.conf.all.arp_announce", "2")
		ns.IP(r, fmt.Sprintf("address add %v/32 dev lo", vip))
		testkit.NewMixed(r, ns, fmt.Sprintf(":%d", port))
		r.rig.servers = append(r.rig.servers, ns)
	}
	testkit.NewEcho(r, r.rig.servers[0], fmt.Sprintf(":%d", pulsePort))
	for i := range directors {
		ns := r.plug(fmt.Sprintf("d%d", i+1), directorAddr(i))
		if r.mode.Sloppy {
			ns.Sysctl(r, "net.ipv4.vs.sloppy_tcp", "1")
		}
		r.rig.directors = append(r.rig.directors, ns)
	}
	r.router = r.bird(rt, routerConf(directors))
}

// plug makes a namespace on the segment, with the router as its way out.
func (r *run) plug(name string, addr netip.Addr) *testkit.NS {
	ns := testkit.NewNS(r, name)
	r.rig.router.IP(r, fmt.Sprintf("link add name to-%s type veth peer name eth0 netns %s", name, ns.Path()),
		"link set dev to-"+name+" up master back")
	for _, which := range []string{"all", "default"} {
		ns.Sysctl(r, "net.ipv4.conf."+which+".rp_filter", "0")
	}
	ns.IP(r, "link set dev eth0 up", fmt.Sprintf("address add %v/24 dev eth0", addr), "route add default via 10.0.0.1")
	return ns
}

// hops lists the directors that the router sends to, by number from 0.
func (r *run) hops() []int {
	out, err := r.rig.router.Output("ip", "-j", "route", "show", vip.String()+"/32")
	if err != nil {
		r.Fatalf("%v", err)
	}
	all, err := parseHops(out)
	r.must(err)
	return all
}

func parseHops(out string) ([]int, error) {
	var routes []struct {
		Gateway  string
		Nexthops []struct{ Gateway string }
	}
	if strings.TrimSpace(out) == "" {
		return nil, nil
	}
	if err := json.Unmarshal([]byte(out), &routes); err != nil {
		return nil, fmt.Errorf("ip -j route: %w", err)
	}
	var all []int
	for _, route := range routes {
		gateways := []string{route.Gateway}
		for _, hop := range route.Nexthops {
			gateways = append(gateways, hop.Gateway)
		}
		for _, g := range gateways {
			for i := range directors {
				if g == directorAddr(i).String() {
					all = append(all, i)
				}
			}
		}
	}
	slices.Sort(all)
	return all, nil
}

// patience bounds every wait; an emulated machine is slow.
const patience = 30 * time.Second

// look is how often the router is asked, by a program each time: an emulated machine
// would do nothing else otherwise, and its clients wait.
const look = 100 * time.Millisecond

// routed waits until the router sends to these directors, and says how long that took.
func (r *run) routed(want ...int) time.Duration {
	for begun := time.Now(); ; r.pause(look) {
		got, took := r.hops(), time.Since(begun)
		if slices.Equal(got, want) {
			return took
		}
		if took > patience {
			r.Fatalf("still not after %v: the router sends to directors %v, want %v", patience, got, want)
		}
	}
}

// ports lists the local ports of the client's connections to the virtual address.
func (r *run) ports() []int {
	text, err := r.rig.client.ReadProcNet("tcp")
	r.must(err)
	return parsePorts(text)
}

// established matches an established connection to the virtual address in
// /proc/net/tcp: slot, local address and port, remote, state.
var established = regexp.MustCompile(fmt.Sprintf(`(?m)^ *\d+: [0-9A-F]{8}:([0-9A-F]{4}) %s:%04X 01 `, littleEndian(vip), port))

// littleEndian is how /proc shows an address on this machine.
func littleEndian(a netip.Addr) string {
	b := a.As4()
	return fmt.Sprintf("%02X%02X%02X%02X", b[3], b[2], b[1], b[0])
}

func parsePorts(text string) (all []int) {
	for _, m := range established.FindAllStringSubmatch(text, -1) {
		if n, err := strconv.ParseUint(m[1], 16, 16); err == nil {
			all = append(all, int(n))
		}
	}
	slices.Sort(all)
	return all
}

// via matches the router's answer for one connection.
var via = regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(vip.String()) + ` .*?via (\S+)`)

// spread asks the router where it sends each connection, by the client's port.
func (r *run) spread(ports []int) map[int]string {
	var b strings.Builder
	for _, p := range ports {
		fmt.Fprintf(&b, "route get %v from %s iif front ipproto tcp sport %d dport %d\n", vip, clientAddr, p, port)
	}
	file := filepath.Join(r.dir, "spread")
	r.must(os.WriteFile(file, []byte(b.String()), 0o644))
	out, err := r.rig.router.Output("ip", "-batch", file)
	r.must(err)
	answers := via.FindAllStringSubmatch(out, -1)
	if len(answers) != len(ports) {
		r.Fatalf("the router was asked for %d connections and told of %d:\n%s", len(ports), len(answers), out)
	}
	all := map[int]string{}
	for i, p := range ports {
		all[p] = answers[i][1]
	}
	return all
}

// known checks the router's word against where the connections are: each is in the
// table of the director that it names.
func (r *run) known(spread map[int]string) {
	for i, ns := range r.rig.directors {
		here := map[int]bool{}
		for _, c := range testkit.ReadConns(r, ns) {
			here[int(c.Client.Port())] = true
		}
		for p, director := range spread {
			if director == directorAddr(i).String() && !here[p] {
				r.Fatalf("the router says that port %d goes to d%d, which does not know it", p, i+1)
			}
		}
	}
}
