package play

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// run is a scenario in a mode with a kind of directors.
type run struct {
	*testkit.Stage
	job
	plan *Plan
	res  *Result
	dir  string

	programs  []program
	rig       rig
	directors []director

	pulse, long *testkit.Long
	short       *testkit.Short
	past        *testkit.Short   // as short, past the virtual address
	router      *testkit.Process // its routing daemon
	before      map[int]string
	// acted says that the scenario has begun, gone which director it takes off the
	// wire.
	acted bool
	gone  string
}

func (r *run) must(err error) {
	if err != nil {
		r.Fatalf("%v", err)
	}
}

// pause lets the clients go on for a while.
func (r *run) pause(d time.Duration) { time.Sleep(d) }

const (
	// longPatience leaves a connection whose director has died the retransmission
	// that comes after the router's notice: six seconds, on a machine that is slow.
	longPatience = 20 * time.Second
	// synced is how long the kernel may keep a connection to itself: three packets,
	// and two seconds for a message that is not full.
	synced = 3 * time.Second
	pulses = 6
	// told is how long the end of a connection may take to the other directors: that
	// of a message, and as long again.
	told = 6 * time.Second
)

// entries counts the connections from these ports that a director holds to be
// established.
func (r *run) entries(ns *testkit.NS, ports []int) (n int) {
	for _, c := range testkit.ReadConns(r, ns) {
		if c.State == "ESTABLISHED" && slices.Contains(ports, int(c.Client.Port())) {
			n++
		}
	}
	return n
}

// unheard counts them once the clients have ended them all.
func (r *run) unheard(ns *testkit.NS, ports []int) int {
	for deadline := time.Now().Add(told); ; r.pause(100 * time.Millisecond) {
		if n := r.entries(ns, ports); n == 0 || time.Now().After(deadline) {
			return n
		}
	}
}

// logs is what the programs printed, and what the kernel held in the end.
func (r *run) logs() (lines []string) {
	for _, p := range r.programs {
		for _, line := range p.Lines() {
			lines = append(lines, p.name+": "+line)
		}
	}
	look := func(ns *testkit.NS, argv ...string) {
		if ns == nil {
			return
		}
		out, err := ns.Output(argv[0], argv[1:]...)
		lines = append(lines, fmt.Sprintf("%s: %s: %v\n%s", ns.Name, strings.Join(argv, " "), err, out))
	}
	look(r.rig.router, "ip", "route")
	for _, ns := range r.rig.directors {
		look(ns, "ip", "-br", "address")
		look(ns, "ipvsadm", "-Sn")
	}
	return lines
}

// play does the whole run.
func (r *run) play() {
	r.dir = r.TempDir()
	r.must(os.Chmod(r.dir, 0o755))
	r.build()
	defer func() { r.res.Log = r.logs() }()
	for i := range directors {
		r.directors = append(r.directors, r.newDirector(i))
	}
	for i := range 3 {
		r.directors[i].start(r.s.list(i))
	}
	r.routed(0, 1, 2)
	// As impatient as the short requests: what makes them late must be seen here too.
	r.pulse = testkit.OpenLong(r, r.rig.client, fmt.Sprintf("%v:%d", serverAddr(0), pulsePort), pulses)
	r.long = testkit.OpenPatientLong(r, r.rig.client, service, r.plan.Long, longPatience)
	if rep := r.long.Report(); rep.Lost() > 0 {
		r.Fatalf("before anything was done: %s", rep)
	}
	ports := r.ports()
	if len(ports) != r.plan.Long {
		r.Fatalf("the client has connections from %d ports, want %d", len(ports), r.plan.Long)
	}
	r.before = r.spread(ports)
	r.known(r.before)
	r.past = testkit.StartShort(r, r.rig.client, fmt.Sprintf("%v:%d", serverAddr(0), port), r.plan.Short)
	r.short = testkit.StartShort(r, r.rig.client, service, r.plan.Short)
	r.pause(synced)
	r.acted = true
	r.s.play(r)
	r.long.Settle(r)
	for p, director := range r.spread(ports) {
		if director != r.before[p] {
			r.res.Moved++
		}
	}
	rep := r.long.Report()
	r.res.Long = Count{rep.Opened, rep.Lost(), how(rep.Losses)}
	short := r.short.Close()
	r.res.Short = Count{short.OK + short.Lost(), short.Lost(), how(short.Losses)}
	if short.FirstErr != nil {
		r.res.Short.How += fmt.Sprintf(", first: %v", short.FirstErr)
	}
	// By hand alone: sluiced has the kernel forget the connections of what it removes.
	looked := r.s.leaves > 0 && r.kind == Hand
	if looked {
		r.res.Left = r.entries(r.rig.directors[r.s.leaves-1], ports)
	}
	r.long.Abort()
	r.pulse.Abort()
	if looked {
		r.res.Unheard = r.unheard(r.rig.directors[r.s.leaves-1], ports)
	}
}

// void says why a run is no measurement, "" if it is one: the machine was not fit for
// it. The witnesses are connections and requests past the virtual address, and sessions
// that ended though nobody touched the director. What fails before the scenario has begun
// says nothing of it either.
func (r *run) void() string {
	if !r.acted {
		return "it did not come to its scenario: " + strings.Join(r.Failures, "; ")
	}
	if r.past != nil {
		past := r.past.Close()
		w := witnesses{r.pulse.Report().Lost(), past.Lost(), past.Slowest}
		if len(r.Failures) > 0 && w.unfit(1, 1) || w.unfit(r.res.Long.Lost, r.res.Short.Lost) {
			return fmt.Sprintf("%s; to it %s and %s", w, r.res.Long, r.res.Short)
		}
	}
	return expired(r.router.Lines(), r.gone)
}

// slow is what no request takes on a machine that is fit: a third of what it may.
const slow = time.Second

// witnesses are those past the virtual address: how many connections and how many
// requests were lost, and the slowest request.
type witnesses struct {
	pulses, requests int
	slowest          time.Duration
}

// unfit reports whether they excuse losses, of long-lived connections or of requests: each
// are asked for their like, and where nothing was lost nobody is, as a bad machine makes
// that no better.
func (w witnesses) unfit(long, short int) bool {
	return long > 0 && w.pulses > 0 || short > 0 && (w.requests > 0 || w.slowest > slow)
}

func (w witnesses) String() string {
	return fmt.Sprintf("past the virtual address %d connections and %d requests were lost too, and the slowest took %v", w.pulses, w.requests, w.slowest.Round(time.Millisecond))
}

// expired finds a session whose hold time was over, other than with the director that
// is gone, in what the router's daemon printed.
func expired(lines []string, gone string) string {
	for _, line := range lines {
		_, rest, ok := strings.Cut(line, "> ")
		if name, what, ok2 := strings.Cut(rest, ": "); ok && ok2 && name != gone && strings.Contains(what, "Hold timer expired") {
			return "the machine stood still for so long that the session with " + name + " was over"
		}
	}
	return ""
}

// notice waits for the router and notes how long that took.
func (r *run) notice(want ...int) {
	r.res.Noticed = r.routed(want...).Seconds()
	r.long.Settle(r)
}

func how(losses map[testkit.Loss]int) string {
	var parts []string
	for _, l := range slices.Sorted(maps.Keys(losses)) {
		if losses[l] > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", l, losses[l]))
		}
	}
	return strings.Join(parts, ", ")
}
