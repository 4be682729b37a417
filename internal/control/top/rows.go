package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/control/render"
	"github.com/sluice-lb/sluice/internal/engine"
)

// row is one line of the list.
type row struct {
	// pool and server are what is shown; vs and rs what the daemon calls them.
	pool, server, vs, rs string
	// state is a State, or "sorry", "drains", "foreign".
	state string
	// configured: not a destination that is there all the same.
	configured bool
	// rank is 0 for the worst.
	rank             int
	wanted, kernel   int64
	active, inactive uint64
	since            time.Time
	why              string
	// order is the configuration's.
	order int
}

// key tells rows apart from one snapshot to the next.
func (r *row) key() string { return fmt.Sprint(r.vs, "\x00", r.rs, "\x00", r.configured) }

// ranks of what is wrong, for the order by trouble.
const (
	rankBad = iota
	rankOdd
	rankDrain
	rankGood
)

var ranks = map[engine.State]int{
	engine.StateDown: rankBad, engine.StateKept: rankBad,
	engine.StateUnverified: rankOdd, engine.StateDamped: rankOdd, engine.StateHeld: rankOdd,
	engine.StateWithdrawn: rankOdd, engine.StatePassive: rankOdd, engine.StateMaintenance: rankDrain, engine.StateUp: rankGood,
}

// poolName is what a virtual server is called here.
func poolName(vs *engine.VirtualServer) string {
	switch {
	case vs.Label != "":
		return vs.Label
	case len(vs.Services) == 1 && vs.Group == "" && vs.Services[0].Name != "":
		return vs.Services[0].Name
	}
	return vs.Name
}

// rowsOf lists what a snapshot has.
func rowsOf(s *engine.Snapshot) []row {
	n := 0
	for i := range s.VirtualServers {
		n += len(s.VirtualServers[i].RealServers) + 1
	}
	rows := make([]row, 0, n)
	add := func(r row) {
		r.order = len(rows)
		r.pool, r.server, r.why = render.Clean(r.pool), render.Clean(r.server), render.Clean(r.why)
		rows = append(rows, r)
	}
	for i := range s.VirtualServers {
		vs := &s.VirtualServers[i]
		held := destinations(vs.Services)
		for j := range vs.RealServers {
			rs := &vs.RealServers[j]
			r := row{pool: poolName(vs), server: rs.Address, vs: vs.Name, rs: rs.Address, configured: true, state: string(rs.State), rank: ranks[rs.State],
				wanted: rs.WeightWanted, kernel: -1, since: rs.Since, why: rs.Reason}
			if rs.Label != "" {
				r.server = rs.Label
			}
			if why := unseen(vs.VIP); why != "" && rs.State != engine.StatePassive {
				r.why, r.rank = why+"; "+r.why, min(r.rank, rankOdd)
			}
			if d := held.take(rs.Address); d != nil {
				r.holds(d)
			}
			add(r)
		}
		if vs.Sorry != nil {
			r := row{pool: poolName(vs), server: vs.Sorry.Address, vs: vs.Name, rs: vs.Sorry.Address, configured: true, state: "sorry", rank: rankGood, wanted: -1, kernel: -1, since: vs.Since, why: "not needed"}
			if vs.Sorry.Serving {
				r.rank, r.why, r.wanted = rankBad, "serves: no quorum", 1
			}
			if d := held.take(vs.Sorry.Address); d != nil {
				r.wanted = d.wanted
				r.holds(d)
			}
			add(r)
		}
		for _, d := range held.rest() {
			add(leaving(poolName(vs), vs.Name, d))
		}
	}
	for i := range s.Leaving {
		svc := &s.Leaving[i]
		for _, d := range destinations(s.Leaving[i : i+1]).rest() {
			add(leaving(svc.Name, svc.Name, d))
		}
	}
	return rows
}

// unseen is why clients do not come to a virtual server's addresses, "" if they do.
func unseen(v *engine.VIP) string {
	switch {
	case v == nil:
		return ""
	case !v.Announced:
		return "NOT ANNOUNCED: " + v.Why
	case len(v.Missing) > 0:
		return fmt.Sprintf("NOT ANNOUNCED: %d of %d addresses", len(v.Missing), v.Addresses)
	}
	return ""
}

func leaving(pool, vs string, d *held) row {
	r := row{pool: pool, server: d.address, vs: vs, rs: d.address, state: "drains", rank: rankDrain, wanted: -1, kernel: -1}
	r.holds(d)
	if d.drain == nil {
		r.state, r.why, r.rank = "foreign", "not configured", rankOdd
	}
	return r
}

func (r *row) holds(d *held) {
	r.kernel, r.active, r.inactive = d.kernel, d.active, d.inactive
	if d.drain != nil {
		r.why, r.since = strings.TrimPrefix(r.why+"; ", "; ")+"waits for "+d.drain.WaitsFor, d.drain.Since
	}
}

// held is a destination over all services of a virtual server.
type held struct {
	address          string
	wanted, kernel   int64
	active, inactive uint64
	drain            *engine.Drain
	taken            bool
}

// holdings finds destinations by address.
type holdings struct {
	list []*held
	at   map[string]*held
}

func destinations(services []engine.Service) *holdings {
	h := &holdings{at: map[string]*held{}}
	for i := range services {
		for j := range services[i].Destinations {
			d := &services[i].Destinations[j]
			is := h.at[d.Address]
			if is == nil {
				is = &held{address: d.Address, wanted: d.Wanted, kernel: d.Kernel}
				h.at[d.Address] = is
				h.list = append(h.list, is)
			}
			is.active += uint64(d.Active)
			is.inactive += uint64(d.Inactive)
			if d.Drain != nil {
				is.drain = d.Drain
			}
		}
	}
	return h
}

// take finds a real server's destination. A service with its own port may have it at
// another than the server's, or the server may have none.
func (h *holdings) take(address string) *held {
	d := h.at[address]
	if d == nil && strings.HasSuffix(address, ":0") {
		for _, other := range h.list {
			if strings.HasPrefix(other.address, strings.TrimSuffix(address, "0")) {
				d = other
			}
		}
	}
	if d != nil {
		d.taken = true
	}
	return d
}

// rest are those that nobody took.
func (h *holdings) rest() (rest []*held) {
	for _, d := range h.list {
		if !d.taken {
			rest = append(rest, d)
		}
	}
	return rest
}

// Orders of the list.
var orders = []struct {
	name    string
	compare func(a, b *row) int
}{
	{"trouble", func(a, b *row) int { return cmp.Or(cmp.Compare(a.rank, b.rank), b.since.Compare(a.since)) }},
	{"pool", func(a, b *row) int { return 0 }}, // as configured
	{"server", func(a, b *row) int { return cmp.Compare(a.server, b.server) }},
	{"active", func(a, b *row) int { return cmp.Compare(b.active, a.active) }},
	{"inactive", func(a, b *row) int { return cmp.Compare(b.inactive, a.inactive) }},
	{"weight", func(a, b *row) int { return cmp.Compare(b.wanted, a.wanted) }},
	{"changed", func(a, b *row) int { return b.since.Compare(a.since) }},
}

func sorted(rows []row, order int, reverse bool) {
	slices.SortFunc(rows, func(a, b row) int {
		c := cmp.Or(orders[order].compare(&a, &b), cmp.Compare(a.order, b.order))
		if reverse {
			c = -c
		}
		return c
	})
}

// matches reports whether a row has all words of a filter somewhere.
func (r *row) matches(filter string) bool {
	for word := range strings.FieldsSeq(strings.ToLower(filter)) {
		all := strings.ToLower(strings.Join([]string{r.pool, r.server, r.vs, r.rs, r.state, r.why}, " "))
		if !strings.Contains(all, word) {
			return false
		}
	}
	return true
}

// weights is "3" where the kernel has what is wanted, else "3/0", "-" for none.
func (r *row) weights() string {
	one := func(w int64) string {
		if w < 0 {
			return "-"
		}
		return fmt.Sprint(w)
	}
	if r.wanted == r.kernel {
		return one(r.wanted)
	}
	return one(r.wanted) + "/" + one(r.kernel)
}
