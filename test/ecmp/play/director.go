package play

import (
	"fmt"
	"slices"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// director is a machine with a table and an announced address. Servers are numbers from
// 0, in the order in which they are added to the table.
type director interface {
	// start brings the table up with these servers, then the address.
	start(servers []int)
	// add adds a server to the table.
	add(server int)
	// withdraw ends the announcement for a drain; what still comes is served.
	withdraw()
	// empty ends what a withdrawn director has left; it returns when nothing is.
	empty()
	// cut is told that no server is reached from here any more, and returns when the
	// address is withdrawn, or is about to be.
	cut()
	// kill ends everything that runs here at once.
	kill()
}

// newDirector makes one of a run's kind.
func (r *run) newDirector(i int) director {
	m := &machineOf{r: r, i: i, ns: r.rig.directors[i]}
	if r.kind == Sluice {
		return &daemonDirector{machineOf: m}
	}
	return &handDirector{machineOf: m}
}

// machineOf is what the kinds have in common: a machine with a routing daemon.
type machineOf struct {
	r    *run
	i    int
	ns   *testkit.NS
	bird *testkit.Process
}

func (m *machineOf) announce() { m.bird = m.r.bird(m.ns, directorConf(m.i)) }

// die takes the machine off the wire, with what runs on it.
func (m *machineOf) die() {
	m.r.gone = m.ns.Name
	m.ns.IP(m.r, "link set dev eth0 down")
	m.bird.Kill()
}

// services are the services of the table.
func (m *machineOf) services() int { return len(testkit.ReadProc(m.r, m.ns)) }

// handDirector is what an operator does with ip and ipvsadm.
type handDirector struct{ *machineOf }

var service = fmt.Sprintf("%v:%d", vip, port)

func (h *handDirector) start(list []int) {
	if h.r.mode.Sync {
		for _, half := range []string{"master", "backup"} {
			h.ns.Run(h.r, "ipvsadm", "--start-daemon", half, "--mcast-interface", "eth0", "--syncid", "7")
		}
	}
	h.ns.Run(h.r, "ipvsadm", "-A", "-t", service, "-s", "mh", "-b", "mh-port")
	for _, s := range list {
		h.add(s)
	}
	h.ns.IP(h.r, "link add name "+device+" type dummy", "link set dev "+device+" up", fmt.Sprintf("address add %v/32 dev %s", vip, device))
	h.announce()
}

func (h *handDirector) add(server int) {
	h.ns.Run(h.r, "ipvsadm", "-a", "-t", service, "-r", fmt.Sprintf("%v:%d", serverAddr(server), port), "-g", "-w", "1")
}

// withdraw takes the address off its device, which is what is announced; it stays
// local, so that what the router still sends is served.
func (h *handDirector) withdraw() {
	h.ns.IP(h.r, fmt.Sprintf("route append local %v dev lo table local proto 115", vip), fmt.Sprintf("address del %v/32 dev %s", vip, device))
}

func (h *handDirector) empty() {
	h.ns.Run(h.r, "ipvsadm", "-D", "-t", service)
	h.ns.IP(h.r, fmt.Sprintf("route del local %v dev lo table local proto 115", vip))
}

func (h *handDirector) cut() { h.withdraw() }

func (h *handDirector) kill() { h.die() }

// reorder is the list in which a director is given its servers when they are not given
// to all in one order.
func reorder(i int) []int {
	list := []int{0, 1, 2}
	if i%2 == 1 {
		slices.Reverse(list)
	}
	return list
}
