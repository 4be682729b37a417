package play

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/daemon"
	"github.com/sluice-lb/sluice/test/loss/judge"
)

// run is a scenario in a topology by an actor.
type run struct {
	*testkit.Stage
	plan  *Plan
	s     *Scenario
	actor actor
	prog  *program // the actor, where it is a daemon
	res   *judge.Result
	rand  *rand.Rand
	kills int

	top    *testkit.Topology
	checks []*testkit.HTTPServer
	at     place

	dir, conf string
	now       Conf

	pulse  *pulse
	longs  []held[*testkit.Long]
	shorts []held[*testkit.Short]
	failed map[string]bool // names of servers whose checks have failed
	writes int
}

// held are clients, and whether all that they lose is counted apart.
type held[C any] struct {
	client C
	apart  bool
}

// vipOf is the address of a virtual server's number.
func vipOf(i int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)}) }

func (r *run) must(err error) {
	if err != nil {
		r.Fatalf("%v", err)
	}
}

// play does the whole run.
func (r *run) play(topology string) {
	r.dir = r.TempDir()
	r.must(os.Chmod(r.dir, 0o755))
	r.conf = filepath.Join(r.dir, "keepalived.conf")
	r.failed = map[string]bool{}
	r.build(topology)
	r.pulse = newPulse(r, r.top.Client, r.top.Backends[len(r.top.Backends)-1])
	r.write(r.s.Conf)
	r.actor.start()
	r.in(r.all()...)
	for v := range r.addresses() {
		r.hold(v, max(1, r.plan.Long/r.addresses()))
	}
	r.ask()
	r.pause(time.Second)
	r.s.play(r)
	r.settle()
	r.pause(500 * time.Millisecond)
	r.finish()
}

// build makes the topology, with a server for clients and one for checks on each
// backend.
func (r *run) build(topology string) {
	method := map[string]func(testkit.T, int) *testkit.Topology{"NAT": testkit.NewNAT, "DR": testkit.NewDR}
	r.top = method[topology](r, r.s.Servers)
	r.at = place{
		method: topology, vip: vipOf, maintenance: filepath.Join(r.dir, "maintenance"), reconcile: "",
		server: func(n int) netip.Addr { return r.top.Backends[n-1].Addr },
	}
	if r.plan.has("reconcile_interval") {
		r.at.reconcile = "#sluice reconcile_interval 2"
	}
	r.at.scripts = !r.sluice()
	var front, lo []string
	for v := 1; v < r.addresses(); v++ {
		if r.s.Conf.Device == "" {
			front = append(front, fmt.Sprintf("address add %s/32 dev front", vipOf(v)))
		}
		lo = append(lo, fmt.Sprintf("address add %s/32 dev lo", vipOf(v)))
	}
	if len(front) > 0 {
		r.top.Director.IP(r, front...)
	}
	if r.s.Conf.Device != "" {
		r.elsewhere()
	}
	if r.addresses() > 1 {
		r.top.Client.IP(r, r.sources()...)
	}
	if topology == "NAT" { // for the pulse; in DR there is such a route
		r.top.Client.IP(r, "route add 10.0.0.0/24 via 192.0.2.1")
	}
	for _, b := range r.top.Backends {
		if len(lo) > 0 && topology == "DR" {
			b.IP(r, lo...)
		}
		testkit.NewMixed(r, b.NS, ":80")
		r.checks = append(r.checks, testkit.NewHTTP(r, b.NS, fmt.Sprintf(":%d", checkPort)))
	}
}

// sources gives the client an address for each virtual one. A kernel may use one port
// for connections to two addresses; masquerading leaves it as it is, so that both could
// look alike to a server that stands behind both, and one would be reset.
func (r *run) sources() (commands []string) {
	way := "dev eth0"
	if r.s.Conf.Device != "" {
		way = viaDirector
	}
	for v := 1; v < r.addresses(); v++ {
		commands = append(commands, fmt.Sprintf("address add 192.0.2.%d/32 dev eth0", 100+v),
			fmt.Sprintf("route add %s/32 %s src 192.0.2.%d", vipOf(v), way, 100+v))
	}
	return commands
}

// addresses counts the virtual addresses of the first configuration.
func (r *run) addresses() int {
	n := 0
	for _, p := range r.s.Conf.Pools {
		n = max(n, slices.Max(p.vips())+1)
	}
	return n
}

// all lists the real servers of the present configuration.
func (r *run) all() []int {
	seen := map[int]bool{}
	for _, p := range r.now.Pools {
		for _, s := range p.Servers {
			seen[s.N] = true
		}
	}
	return slices.Sorted(maps.Keys(seen))
}

// hold opens long-lived connections to a virtual address.
func (r *run) hold(v, n int) {
	r.longs = append(r.longs, held[*testkit.Long]{client: testkit.OpenLong(r, r.top.Client, vipOf(v).String()+":80", n)})
}

// ask starts the short requests, the rate shared by two addresses at most.
func (r *run) ask() {
	n := min(2, r.addresses())
	if r.s.First {
		n = 1
	}
	for v := range n {
		r.shorts = append(r.shorts, held[*testkit.Short]{client: testkit.StartShort(r, r.top.Client, vipOf(v).String()+":80", r.plan.Short/n)})
	}
}

// settle waits until every long-lived connection has met what was done last.
func (r *run) settle() {
	for _, l := range r.longs {
		l.client.Settle(r)
	}
}

// pause lets the clients go on for a while.
func (r *run) pause(d time.Duration) { time.Sleep(d) }

// write puts a configuration in place; nobody is told.
func (r *run) write(c Conf) {
	r.now = c
	r.put(r.conf, c.text(r.at))
}

// put replaces a file at once.
func (r *run) put(path, text string) {
	r.writes++
	tmp := fmt.Sprintf("%s.%d", path, r.writes)
	r.must(os.WriteFile(tmp, []byte(text), 0o644))
	r.must(os.Rename(tmp, path))
}

// reload takes a configuration and lets every connection meet it.
func (r *run) reload(c Conf) {
	r.write(c)
	r.actor.reload()
	r.settle()
}

// fail makes checks of backends fail; what clients meet there stays as it is.
func (r *run) fail(numbers ...int) {
	for _, n := range numbers {
		r.failed[r.top.Backends[n-1].Name] = true
		r.checks[n-1].Refuse()
	}
}

// recover lets checks pass again.
func (r *run) recover(numbers ...int) {
	for _, n := range numbers {
		r.checks[n-1].Start(r)
	}
}

// weights is the table as /proc shows it, by destination.
func (r *run) weights() map[string]int {
	all := map[string]int{}
	for _, s := range testkit.ReadProc(r, r.top.Director) {
		for _, d := range s.Dests {
			all[fmt.Sprintf("%s -> %s", s.Key, d.Addr)] = d.Weight
		}
	}
	return all
}

// in waits until backends have new connections in every pool that they belong to.
func (r *run) in(numbers ...int) {
	testkit.Eventually(r, daemon.Patience, func() string {
		table := r.weights()
		for _, n := range numbers {
			for _, p := range r.now.Pools {
				for _, v := range p.vips() {
					if p.has(n) && table[destination(r.at.vip(v), r.at.server(n))] <= 0 {
						return fmt.Sprintf("b%d is not in %v", n, r.at.vip(v))
					}
				}
			}
		}
		return ""
	})
}

// serves waits until a backend has a weight in the first pool, whatever it is there.
func (r *run) serves(n int) {
	key := destination(r.at.vip(0), r.at.server(n))
	testkit.Eventually(r, daemon.Patience, func() string {
		if r.weights()[key] <= 0 {
			return fmt.Sprintf("b%d does not serve", n)
		}
		return ""
	})
}

// out waits until backends have no new connections, and lets the held ones meet it.
func (r *run) out(numbers ...int) {
	testkit.Eventually(r, daemon.Patience, func() string {
		for key, weight := range r.weights() {
			for _, n := range numbers {
				if weight > 0 && strings.HasSuffix(key, "-> "+r.at.server(n).String()+":80") {
					return fmt.Sprintf("b%d is still in: %s", n, key)
				}
			}
		}
		return ""
	})
	r.settle()
}

// aparts counts apart, whole, what the clients have lost until now, and goes on with
// new ones.
func (r *run) aparts() {
	for i := range r.longs {
		r.longs[i].apart = true
		r.longs[i].client.Abort()
	}
	for i := range r.shorts {
		r.shorts[i].apart = true
		r.shorts[i].client.Close()
	}
	for v := range r.addresses() {
		r.hold(v, max(1, r.plan.Long/r.addresses()/2))
	}
	r.ask()
}

// finish counts, ends the clients, and looks at what they leave behind.
func (r *run) finish() {
	for _, l := range r.longs {
		r.res.Long = r.res.Long.Add(countLong(l.client.Report(), l.apart, r.s.failures(), r.failed))
		l.client.Abort()
	}
	for _, s := range r.shorts {
		r.res.Short = r.res.Short.Add(countShort(s.client.Close(), s.apart, r.s.shortApart()))
	}
	r.pulse.stop() // what the kernel has yet to forget may take its time
	if r.res.Actor == daemon.Sluice {
		r.end()
	}
	r.actor.close()
}

// countLong splits the losses. Where servers fail, what was on one of them is apart.
func countLong(rep testkit.LongReport, apart, failures bool, failed map[string]bool) judge.Count {
	c := judge.Count{Opened: rep.Opened, Lost: rep.Lost(), How: how(rep.Losses)}
	if failures {
		for name, n := range rep.LostBy {
			if failed[name] {
				c.Lost, c.Apart = c.Lost-n, c.Apart+n
			}
		}
	}
	if apart {
		c.Lost, c.Apart = 0, rep.Lost()
	}
	return c
}

// countShort splits the losses: those of the kinds given are apart.
func countShort(rep testkit.ShortReport, apart bool, kinds []testkit.Loss) judge.Count {
	c := judge.Count{Opened: rep.OK + rep.Lost(), Lost: rep.Lost(), How: how(rep.Losses)}
	for _, k := range kinds {
		c.Lost, c.Apart = c.Lost-rep.Losses[k], c.Apart+rep.Losses[k]
	}
	if apart {
		c.Lost, c.Apart = 0, rep.Lost()
	}
	return c
}

func how(losses map[testkit.Loss]int) string {
	var parts []string
	for _, l := range slices.Sorted(maps.Keys(losses)) {
		parts = append(parts, fmt.Sprintf("%s %d", l, losses[l]))
	}
	return strings.Join(parts, ", ")
}

// endPatience is for connections that the kernel still remembers: 10 s after a reset,
// and twice that for one that was never seen to end.
const endPatience = 90 * time.Second

// end waits until the kernel holds what the configuration says, and what the daemon
// says that it wants, and nothing else.
func (r *run) end() {
	want := r.now.table(r.at)
	testkit.Eventually(r, endPatience, func() string {
		status, err := r.wanted()
		if err != nil {
			return fmt.Sprintf("at the end sluice does not tell its status: %v", err)
		}
		if why := difference("sluice status", want, status); why != "" {
			return why
		}
		kernel := map[string]int{}
		for _, s := range testkit.ReadTable(r, r.top.Director) {
			for _, d := range s.Dests {
				kernel[fmt.Sprintf("%s -> %s", s.Key, d.Addr)] = d.Weight
			}
		}
		return difference("ipvsadm", want, kernel)
	})
}

// wanted is what the daemon says should be there.
func (r *run) wanted() (map[string]int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	s, err := control.NewClient(daemon.Socket(r.dir)).Status(ctx)
	if err != nil {
		return nil, err
	}
	all := map[string]int{}
	for _, vs := range s.VirtualServers {
		for _, svc := range vs.Services {
			name, protocol, _ := strings.Cut(svc.Name, "/")
			for _, d := range svc.Destinations {
				if d.Wanted >= 0 {
					all[fmt.Sprintf("%s %s -> %s", protocol, name, d.Address)] = int(d.Wanted)
				}
			}
		}
	}
	return all, nil
}

// difference says where a table is not as wanted, "" if nowhere.
func difference(who string, want, got map[string]int) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(want)) {
		if g, ok := got[key]; !ok {
			parts = append(parts, fmt.Sprintf("no %s", key))
		} else if g != want[key] {
			parts = append(parts, fmt.Sprintf("%s has weight %d, not %d", key, g, want[key]))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(got)) {
		if _, ok := want[key]; !ok {
			parts = append(parts, fmt.Sprintf("%s too many, weight %d", key, got[key]))
		}
	}
	if len(parts) == 0 {
		return ""
	}
	return fmt.Sprintf("at the end %s: %s", who, strings.Join(parts, "; "))
}
