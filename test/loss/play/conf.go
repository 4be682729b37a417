package play

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Conf is what a scenario wants. The daemons read it as a file; kube-proxy's order
// is carried out on it as it is.
type Conf struct {
	Pools []Pool
	// Keep leaves the table at a stop (on_stop keep, which keepalived does not know).
	Keep bool
	// Device is where virtual addresses are put, "" for the director's own, where they stay.
	Device string
}

// Pool is a virtual server.
type Pool struct {
	// VIPs are numbers of virtual addresses, from 0. More than one make a group.
	VIPs    []int
	Servers []Server
	Sched   string
	// Persistence is its timeout in seconds, 0 for none.
	Persistence int
	// HTTP checks by request, in place of a connection.
	HTTP    bool
	Inhibit bool
	// Sorry is the number of the sorry server, 0 for none.
	Sorry        int
	SorryInhibit bool
	Quorum       int
	// Track is the real server whose weight a file moves, 0 for none.
	Track int
	// Follow takes the address away while there is no quorum.
	Follow bool
	// Extra is added to the virtual server as it is.
	Extra string
}

// Server is a real server: backend number N, from 1.
type Server struct{ N, Weight int }

// servers makes real servers of weight 1.
func servers(numbers ...int) []Server {
	var all []Server
	for _, n := range numbers {
		all = append(all, Server{n, 1})
	}
	return all
}

// with returns one pool of these real servers.
func with(numbers ...int) Pool { return Pool{Servers: servers(numbers...)} }

// conf makes a configuration of pools.
func conf(pools ...Pool) Conf { return Conf{Pools: pools} }

// vips returns the numbers of the pool's addresses.
func (p Pool) vips() []int {
	if len(p.VIPs) == 0 {
		return []int{0}
	}
	return p.VIPs
}

// has says whether a backend is one of the real servers.
func (p Pool) has(n int) bool {
	return slices.ContainsFunc(p.Servers, func(s Server) bool { return s.N == n })
}

// sched is the scheduler, round robin unless it matters.
func (p Pool) sched() string {
	if p.Sched == "" {
		return "rr"
	}
	return p.Sched
}

// place is what a configuration is written for.
type place struct {
	method string // NAT or DR
	vip    func(int) netip.Addr
	server func(int) netip.Addr
	// maintenance is the file that moves a weight.
	maintenance string
	// reconcile is a line for the daemon's global block; keepalived sees a comment.
	reconcile string
	// scripts: a script puts and takes addresses that follow the quorum.
	scripts bool
}

// vipDevice and otherDevice are where virtual addresses go.
const vipDevice, otherDevice = "vip0", "vip1"

// checkPort is where backends answer checks; they fail and recover there alone, so
// that what is lost elsewhere was lost by the table.
const checkPort = 8080

// checkTimeout is long: a check that fails here is refused, at once, and an answer that
// comes late on a busy machine is not what is measured.
const checkTimeout = 15

// text writes the configuration as keepalived reads it.
func (c Conf) text(at place) string {
	var b strings.Builder
	b.WriteString("global_defs {\n    #sluice drain_interval 1\n")
	if c.Keep {
		b.WriteString("    #sluice on_stop keep\n")
	}
	if c.Device != "" {
		fmt.Fprintf(&b, "    #sluice vip_device %s\n    #sluice vip_delay 3\n    script_user root\n", c.Device)
	}
	if at.reconcile != "" {
		fmt.Fprintf(&b, "    %s\n", at.reconcile)
	}
	b.WriteString("}\n")
	fmt.Fprintf(&b, "track_file maintenance {\n    file %s\n    weight 1\n}\n", at.maintenance)
	for i, p := range c.Pools {
		p.write(&b, i, at)
	}
	return b.String()
}

func (p Pool) write(b *strings.Builder, i int, at place) {
	line := func(format string, args ...any) { fmt.Fprintf(b, "    "+format+"\n", args...) }
	name := fmt.Sprintf("%v 80", at.vip(p.vips()[0]))
	if len(p.vips()) > 1 {
		fmt.Fprintf(b, "virtual_server_group g%d {\n", i)
		for _, v := range p.vips() {
			line("%v 80", at.vip(v))
		}
		b.WriteString("}\n")
		name = fmt.Sprintf("group g%d", i)
	}
	fmt.Fprintf(b, "virtual_server %s {\n", name)
	line("delay_loop 1\n    warmup 0\n    lvs_sched %s\n    lvs_method %s\n    protocol TCP", p.sched(), at.method)
	if p.Persistence > 0 {
		line("persistence_timeout %d", p.Persistence)
	}
	if p.Inhibit {
		line("inhibit_on_failure")
	}
	if p.Quorum > 0 {
		line("quorum %d", p.Quorum)
	}
	if p.Sorry > 0 {
		line("sorry_server %v 80", at.server(p.Sorry))
		if p.SorryInhibit {
			line("sorry_server_inhibit")
		}
	}
	if p.Follow {
		line("#sluice vip_follow quorum")
		if at.scripts {
			for _, v := range p.vips() {
				line("quorum_up \"/sbin/ip address add %v/32 dev %s\"", at.vip(v), vipDevice)
				line("quorum_down \"/sbin/ip address del %v/32 dev %s\"", at.vip(v), vipDevice)
			}
		}
	}
	if p.Extra != "" {
		line("%s", p.Extra)
	}
	for _, s := range p.Servers {
		line("real_server %v 80 {\n        weight %d", at.server(s.N), s.Weight)
		if p.HTTP {
			line("    HTTP_GET {\n            url {\n                path /\n                status_code 200\n            }\n            connect_port %d\n            connect_timeout %d\n            retry 1\n            delay_before_retry 1\n        }", checkPort, checkTimeout)
		} else {
			line("    TCP_CHECK {\n            connect_port %d\n            connect_timeout %d\n            retry 1\n            delay_before_retry 1\n        }", checkPort, checkTimeout)
		}
		if p.Track == s.N {
			line("    FILE_CHECK {\n            track_file maintenance\n        }")
		}
		line("}")
	}
	b.WriteString("}\n")
}

// table is what should be in the kernel when every server passes its checks and no
// file says otherwise: "VIP:80 -> server:80" with the weight.
func (c Conf) table(at place) map[string]int {
	all := map[string]int{}
	for _, p := range c.Pools {
		for _, v := range p.vips() {
			for _, s := range p.Servers {
				all[destination(at.vip(v), at.server(s.N))] = s.Weight
			}
			if p.Sorry > 0 && p.SorryInhibit {
				all[destination(at.vip(v), at.server(p.Sorry))] = 0
			}
		}
	}
	return all
}

func destination(vip, server netip.Addr) string {
	return fmt.Sprintf("tcp %v:80 -> %v:80", vip, server)
}
