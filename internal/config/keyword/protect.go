package keyword

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
)

// maxPace bounds slow_start and the time of flap_damping: what takes longer than a
// week is a mistake.
const maxPace = 7 * 24 * time.Hour

// dampingArg is a count with a time behind it.
func dampingArg() arg {
	a := custom("1..1000 TIMER", 2)
	a.min, a.max = int64(time.Microsecond), int64(maxPace)
	return a
}

// setMinAlive reads a number of real servers or a share of them.
func setMinAlive(f *frame, v *value) {
	w := v.n.Words[1]
	f.surplus(v.n, 1)
	limit := strictNumber(1, maxUint32)
	digits, percent := strings.CutSuffix(w.Text, "%")
	if percent {
		limit = strictNumber(1, 100)
		w.Text = digits
	}
	num, ok := f.number(v.n, &w, limit, "min_alive", f.ignored(v.kw))
	if !ok {
		return
	}
	f.vs.minAlive, f.vs.minAliveAt = config.Floor{Servers: uint32(num)}, v.n
	if percent {
		f.vs.minAlive = config.Floor{Percent: uint32(num)}
	}
}

func setFlapDamping(f *frame, v *value) {
	f.surplus(v.n, 2)
	count, ok := f.number(v.n, &v.n.Words[1], strictNumber(1, 1000), "flap_damping", f.ignored(v.kw))
	if !ok {
		return
	}
	if within, ok := f.timer(v.kw, v.n, &v.n.Words[2]); ok {
		f.vs.flapDamping = config.Damping{Count: uint32(count), Within: within}
	}
}

// minAlive says when a floor keeps failures from taking out anything at all: then
// checks have no effect, which nobody means.
func (b *builder) minAlive(d *draft) {
	m, servers := d.vs.MinAlive, uint64(len(d.vs.RealServers))
	if m == (config.Floor{}) || m.Percent == 0 && uint64(m.Servers) < servers || m.Percent != 0 && (uint64(m.Percent)*servers+99)/100 < servers {
		return
	}
	n, hint := d.raw.minAliveAt, "no failed check takes a real server out of service; write a smaller number"
	d.raw.f.report(codeMinAlive, n, &n.Words[1], fmt.Sprintf("min_alive %s keeps all of the %d real servers", m, servers), hint)
}

// slowStart says when growing weights have no effect.
func (b *builder) slowStart(d *draft) {
	if !slices.Contains([]string{"rr", "lc", "dh"}, d.vs.Scheduler) {
		return
	}
	for _, rs := range d.vs.RealServers {
		if rs.SlowStart > 0 {
			d.raw.f.reportBlock(codeSlowStart, fmt.Sprintf("slow_start in %s has no effect: lvs_sched %s does not look at weights", title(d.raw.f.n), d.vs.Scheduler),
				"a server that comes back gets its full share at once; use wrr or wlc")
			return
		}
	}
}
