package play

import (
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/daemon"
	"github.com/sluice-lb/sluice/test/loss/judge"
)

// Scenario is one operation on a pool, or a sequence of them, under load.
type Scenario struct {
	Name, Title string
	// Quick scenarios are the short run.
	Quick bool
	// Needs is a keyword without which sluice cannot do it yet.
	Needs string
	// Servers is how many backends there are; Conf is what runs at first.
	Servers int
	Conf    Conf
	// Kube: kube-proxy's order differs here, and is measured too.
	Kube bool
	// Costs and Apart are the judge's.
	Costs []string
	Apart string
	// First: only the first virtual address gets short requests.
	First bool
	// Alone: keepalived has nothing of the kind.
	Alone bool
	// kills: the daemon is killed again and again, as often as the plan says.
	kills bool
	play  func(*run)
}

// Rules are what the judge holds the runs of the scenario to.
func (s *Scenario) Rules() judge.Rules {
	return judge.Rules{Zero: daemon.Sluice, Costs: s.Costs, Apart: s.Apart}
}

// Why losses are counted apart.
const (
	onFailed  = "on the failed server"
	byFlush   = "until the repair"
	schedless = "while the kernel changed the scheduler: it takes the old one off, waits, and refuses what comes before the new one is there"
)

// failures says whether losses on failed servers are counted apart.
func (s *Scenario) failures() bool { return s.Apart == onFailed }

// shortApart is which losses of short requests are apart. A request does not tell
// where it was when it was lost. But where servers fail, one that was cut was under
// way on such a server: one that found no server is refused, and one that found a bad
// one goes unanswered.
func (s *Scenario) shortApart() []testkit.Loss {
	switch s.Apart {
	case onFailed:
		return []testkit.Loss{testkit.Reset, testkit.Closed}
	case schedless:
		return []testkit.Loss{testkit.Refused}
	}
	return nil
}

// Keepalived is the name of the daemon that sluice is measured against.
const Keepalived = "keepalived"

var keepalivedCosts = []string{Keepalived}

// inhibited and others are variations of a pool.
func inhibited(p Pool) Pool { p.Inhibit = true; return p }

func sorry(p Pool, inhibit bool) Pool {
	p.Quorum, p.Sorry, p.Inhibit, p.SorryInhibit = 2, 4, inhibit, inhibit
	return p
}

func at(p Pool, vips ...int) Pool { p.VIPs = vips; return p }

// while is how long a state in between lasts.
const while = 2 * time.Second

// Scenarios are all of them, in the page's order.
var Scenarios = []*Scenario{
	{Name: "same", Title: "reload, same file, three times", Servers: 3, Conf: conf(with(1, 2, 3)), play: func(r *run) {
		for range 3 {
			r.reload(r.now)
		}
	}},
	{Name: "remove", Title: "reload that removes one healthy server of three", Quick: true, Servers: 3, Conf: conf(with(1, 2, 3)), Kube: true, Costs: keepalivedCosts, play: func(r *run) {
		r.reload(conf(with(2, 3)))
		r.out(1)
		r.pause(while)
	}},
	{Name: "add", Title: "reload that adds two servers to two", Servers: 4, Conf: conf(with(1, 2)), play: func(r *run) {
		r.reload(conf(with(1, 2, 3, 4)))
		r.in(3, 4)
		r.pause(while)
	}},
	{Name: "reweight", Title: "reload that changes weights, up, down and to 0", Servers: 3, Conf: conf(Pool{Sched: "wrr", Servers: servers(1, 2, 3)}), play: func(r *run) {
		r.reload(conf(Pool{Sched: "wrr", Servers: []Server{{1, 5}, {2, 2}, {3, 0}}}))
		r.out(3)
		r.pause(while)
		r.reload(conf(Pool{Sched: "wrr", Servers: []Server{{1, 1}, {2, 3}, {3, 2}}}))
		r.in(3)
	}},
	{Name: "scheduler", Title: "reload that changes the scheduler, rr to wlc to sh", Servers: 3, Conf: conf(with(1, 2, 3)), Apart: schedless, play: func(r *run) {
		for _, s := range []string{"wlc", "sh"} {
			r.reload(conf(Pool{Sched: s, Servers: servers(1, 2, 3)}))
			r.pause(while / 2)
		}
	}},
	{Name: "persistence", Title: "reload that makes it persistent, and back", Servers: 3, Conf: conf(with(1, 2, 3)), play: func(r *run) {
		r.reload(conf(Pool{Persistence: 60, Servers: servers(1, 2, 3)}))
		r.pause(while)
		r.reload(conf(with(1, 2, 3)))
	}},
	{Name: "checkers", Title: "reload that changes the checkers, TCP_CHECK to HTTP_GET and back", Servers: 3, Conf: conf(with(1, 2, 3)), play: func(r *run) {
		r.reload(conf(Pool{HTTP: true, Servers: servers(1, 2, 3)}))
		r.pause(while)
		r.reload(conf(with(1, 2, 3)))
		r.pause(while)
	}},
	{Name: "rolling", Title: "ten of ten servers replaced by ten reloads", Servers: 20, Conf: conf(with(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)), Kube: true, Costs: keepalivedCosts, play: rolling},
	{Name: "at-once", Title: "all servers replaced by one reload", Needs: "departure_hold", Servers: 6, Conf: conf(with(1, 2, 3)), Kube: true, Costs: keepalivedCosts, play: func(r *run) {
		r.reload(conf(with(4, 5, 6)))
		r.in(4, 5, 6)
		r.out(1, 2, 3)
	}},
	{Name: "drain", Title: "maintenance by track_file, and back", Quick: true, Servers: 3, Conf: conf(tracked()), play: func(r *run) {
		r.put(r.at.maintenance, "-100\n")
		r.out(1)
		r.pause(while)
		r.put(r.at.maintenance, "0\n")
		r.in(1)
		r.settle()
	}},
	{Name: "resurrection", Title: "removed by a reload and back by the next, in mid-drain", Servers: 3, Conf: conf(with(1, 2, 3)), Kube: true, Costs: keepalivedCosts, play: func(r *run) {
		r.reload(conf(with(2, 3)))
		r.out(1)
		r.pause(while)
		r.reload(conf(with(1, 2, 3)))
		r.in(1)
		r.pause(while)
	}},
	{Name: "failure-inhibit", Title: "a server fails and recovers, inhibit_on_failure", Servers: 3, Conf: conf(inhibited(with(1, 2, 3))), play: failure},
	{Name: "failure", Title: "a server fails and recovers", Servers: 3, Conf: conf(with(1, 2, 3)), Apart: onFailed, play: failure},
	{Name: "quorum-inhibit", Title: "quorum lost and regained, sorry server, all with inhibit", Quick: true, Servers: 4, Conf: conf(sorry(with(1, 2, 3), true)), play: quorum},
	{Name: "quorum", Title: "quorum lost and regained, sorry server", Servers: 4, Conf: conf(sorry(with(1, 2, 3), false)), Apart: onFailed, Costs: keepalivedCosts, play: quorum},
	{Name: "storm", Title: "50 SIGHUP in 5 s while a server fails, inhibit_on_failure", Servers: 3, Conf: conf(inhibited(with(1, 2, 3))), play: storm},
	{Name: "restart", Title: "stop and start, on_stop keep", Servers: 3, Conf: Conf{Keep: true, Pools: []Pool{with(1, 2, 3)}}, Costs: keepalivedCosts, play: func(r *run) {
		r.prog.stop()
		r.pause(while / 2)
		r.prog.start()
		r.in(1, 2, 3)
		r.settle()
	}},
	{Name: "handover", Title: "sluice handover and the new process, three times; keepalived: stop and start", Servers: 3, Conf: conf(with(1, 2, 3)), Costs: keepalivedCosts, play: handover},
	{Name: "order", Title: "maintenance by sluice drain, with a kill -9 in between, and back; keepalived: weight 0 and back by reloads", Servers: 3, Conf: conf(with(1, 2, 3)), play: order},
	{Name: "state", Title: "kill -9 while a server is down, and start: the state file gone, damaged, from the future", Servers: 3, Conf: conf(inhibited(with(1, 2, 3))), play: stateLost},
	{Name: "kill", Title: "kill -9 at random moments, and start", Quick: true, Servers: 3, Conf: conf(inhibited(with(1, 2, 3))), kills: true, play: kills},
	{Name: "flush", Title: "ipvsadm -C behind its back", Needs: "reconcile_interval", Servers: 3, Conf: conf(with(1, 2, 3)), Apart: byFlush, Costs: keepalivedCosts, play: flush},
	{Name: "shared", Title: "two services share servers; one leaves the first, another fails", Servers: 4, Conf: conf(inhibited(with(1, 2, 3)), at(inhibited(with(2, 3, 4)), 1)), Costs: keepalivedCosts, play: func(r *run) {
		r.reload(conf(inhibited(with(1, 3)), at(inhibited(with(2, 3, 4)), 1)))
		r.pause(while)
		r.fail(3)
		r.out(3)
		r.pause(while)
		r.recover(3)
		r.in(3)
		r.settle()
	}},
	{Name: "group", Title: "a group of ten addresses: one server leaves, one fails, one comes", Servers: 4, Conf: conf(ten(1, 2, 3)), Costs: keepalivedCosts, play: func(r *run) {
		r.reload(conf(ten(2, 3)))
		r.out(1)
		r.fail(2)
		r.out(2)
		r.reload(conf(ten(2, 3, 4)))
		r.in(4)
		r.recover(2)
		r.in(2)
		r.settle()
	}},
	{Name: "vip-quorum", Title: "quorum lost and regained, sorry server, the address follows (vip_follow quorum); keepalived: quorum_up and quorum_down", Servers: 4,
		Conf: addressed(following(sorry(with(1, 2, 3), true))), Costs: keepalivedCosts, play: follow},
	{Name: "vip-remove", Title: "one of two virtual servers removed by a reload, its address first (vip_device)", Servers: 3, First: true,
		Conf: addressed(with(1, 2, 3), at(with(1, 2, 3), 1)), Costs: keepalivedCosts, play: withdrawn},
	{Name: "vip-passive", Title: "sluice passive, and back; keepalived: the address removed, stop and start", Servers: 3,
		Conf: addressed(with(1, 2, 3)), Costs: keepalivedCosts, play: passive},
	{Name: "vip-move", Title: "reload that moves vip_device to another device, and back", Servers: 3, Alone: true,
		Conf: addressed(with(1, 2, 3)), play: moved},
}

func following(p Pool) Pool { p.Follow = true; return p }

func tracked() Pool { p := with(1, 2, 3); p.Track = 1; return p }

// ten is a group of ten addresses.
func ten(numbers ...int) Pool {
	return at(inhibited(with(numbers...)), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
}

func rolling(r *run) {
	numbers := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}
	for i := range numbers {
		numbers[i] += 10
		r.reload(conf(with(numbers...)))
		r.in(i + 11)
		r.out(i + 1)
	}
	r.pause(while)
}

func failure(r *run) {
	r.fail(1)
	r.out(1)
	r.pause(while)
	r.recover(1)
	r.in(1)
	r.settle()
}

func quorum(r *run) {
	r.fail(1, 2)
	r.serves(4)
	r.out(3) // the healthy one leaves with the quorum
	r.hold(0, max(1, r.plan.Long/3))
	r.pause(while)
	r.recover(1, 2)
	r.in(1, 2, 3)
	r.out(4)
	r.pause(while)
}

func storm(r *run) {
	r.fail(1)
	for range 50 {
		r.prog.hup()
		r.pause(100 * time.Millisecond)
	}
	r.out(1)
	r.recover(1)
	r.in(1)
	r.reload(r.now)
}

// kills ends the daemon in all kinds of situations.
func kills(r *run) {
	whole, part := r.s.Conf, conf(inhibited(with(2, 3)))
	for range r.kills {
		switch r.rand.IntN(6) {
		case 0:
			r.write(part)
			r.prog.hup()
		case 1:
			r.write(whole)
			r.prog.hup()
		case 2:
			r.fail(1)
		case 3:
			r.recover(1)
		}
		r.pause(time.Duration(r.rand.IntN(700)) * time.Millisecond)
		r.prog.kill()
		r.prog.launch()
		if r.rand.IntN(3) > 0 { // else it may be killed before it is ready
			r.prog.ready()
		}
	}
	r.settle()
	r.recover(1)
	r.prog.ready()
	r.reload(whole)
	r.in(1, 2, 3)
	r.settle()
}

// flush empties the table. The clients that come after the repair are counted; where
// nobody repairs, those that come after the time that it takes.
func flush(r *run) {
	r.top.Director.Run(r, "ipvsadm", "-C")
	r.pause(3 * while)
	if r.res.Actor == daemon.Sluice {
		r.in(r.all()...)
	}
	r.aparts()
	r.pause(while)
}
