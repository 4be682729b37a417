package web

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/pace"
)

const (
	// sightFor is how long what was read is shown to all who look.
	sightFor = 2 * time.Second
	// statusTimeout bounds one reading of the kernel's table.
	statusTimeout = 2 * time.Second
)

// sight is a snapshot put in the order of the page. It is made once for all who look
// and changed by nobody.
type sight struct {
	*engine.Snapshot
	pools []*pool
	// counts are the rows by state, noQuorum the virtual servers without.
	counts             map[string]int
	servers, noQuorum  int
	problems, poolsBad int
	attention          []concern
}

// pool is one virtual server, or a service that is no longer configured, with its rows.
type pool struct {
	vs   *engine.VirtualServer
	name string
	rows []row
	// drifts are of its services, drains how many rows drain.
	drifts  []engine.Drift
	drains  int
	leaving bool
	// trouble is how bad it is itself, 0 for nothing; worst that of its worst row.
	trouble, worst int
	text           string // what a search looks at
}

// row is one real server, or what else a service holds.
type row struct {
	// state is an engine.State, or one of the words of rows that are none.
	state   string
	address string
	rs      *engine.RealServer // nil for what is none
	why     string
	since   time.Time
	wanted  int64
	// kernel is the weight found, -1 for none; mixed: services have different ones.
	kernel      int64
	mixed, held bool
	// unable: a check of it could not be run.
	unable           bool
	active, inactive uint64
	drain            *engine.Drain
	trouble          int
	text             string
}

// States of rows that are no real server's.
const (
	stateDraining = "draining"
	stateSorry    = "sorry"
	stateForeign  = "foreign"
)

// trouble orders states, the worst last.
var trouble = map[string]int{
	string(engine.StateUp): 0, stateSorry: 0, string(engine.StateHeld): 1, string(engine.StateMaintenance): 2, string(engine.StatePassive): 2, stateDraining: 3,
	string(engine.StateWithdrawn): 4, string(engine.StateUnverified): 5, string(engine.StateDamped): 6, stateForeign: 7,
	string(engine.StateKept): 8, string(engine.StateDown): 9,
}

// problem reports whether somebody should look at it: not what an operator or a
// configuration asked for.
func (r *row) problem() bool { return r.trouble >= trouble[string(engine.StateDamped)] }

// differs reports whether the kernel has another weight than wanted.
func (r *row) differs() bool { return r.mixed || r.held && r.kernel != r.wanted }

// sights keeps the last one.
type sights struct {
	mu   sync.Mutex
	at   time.Time
	last *sight
}

// look returns what is to be seen, at most sightFor old.
func (s *sights) look(ctx context.Context, status func(context.Context) *engine.Snapshot, turn *pace.Gate) *sight {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last != nil && time.Since(s.at) < sightFor {
		return s.last
	}
	// Others wait for this answer, so that it must not end with one client.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), statusTimeout)
	defer cancel()
	snap := status(ctx)
	turn.Step(func() { s.last = newSight(snap) })
	// From its end, so that a slow table is not read all the time.
	s.at = time.Now()
	return s.last
}

// forget has the next one look anew.
func (s *sights) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = nil
}

func newSight(snap *engine.Snapshot) *sight {
	s := &sight{Snapshot: snap, counts: map[string]int{}}
	for i := range snap.VirtualServers {
		s.pools = append(s.pools, newPool(&snap.VirtualServers[i]))
	}
	for i := range snap.Leaving {
		p := &pool{name: snap.Leaving[i].Name, leaving: true, drifts: snap.Leaving[i].Drift}
		p.others(snap.Leaving[i:i+1], nil)
		p.finish()
		s.pools = append(s.pools, p)
	}
	for _, p := range s.pools {
		bad := p.trouble > 0
		for i := range p.rows {
			r := &p.rows[i]
			s.counts[r.state]++
			if r.rs != nil {
				s.servers++
			}
			if r.problem() {
				s.problems++
				bad = true
			}
		}
		if p.vs != nil && !p.vs.QuorumUp && !p.vs.Suspended {
			s.noQuorum++
		}
		if bad {
			s.poolsBad++
		}
	}
	s.attention = s.concerns()
	return s
}

func newPool(vs *engine.VirtualServer) *pool {
	p := &pool{vs: vs, name: vs.Name, rows: make([]row, 0, len(vs.RealServers)+1)}
	table := newTable(vs.Services)
	for i := range vs.RealServers {
		rs := &vs.RealServers[i]
		r := row{state: string(rs.State), address: rs.Address, rs: rs, why: rs.Reason, since: rs.Since, wanted: rs.WeightWanted, kernel: -1}
		r.fill(table.take(rs.Address, rs.Method))
		// A server that should be there and is in no service.
		r.held = r.held || rs.WeightWanted >= 0 && len(vs.Services) > 0
		p.rows = append(p.rows, r)
	}
	if s := vs.Sorry; s != nil {
		r := row{state: stateSorry, address: s.Address, why: "the last resort, not needed", wanted: -1, kernel: -1}
		if s.Serving {
			r.why = "the last resort serves: the real servers have no quorum"
		}
		r.fill(table.take(s.Address, ""))
		p.rows = append(p.rows, r)
	}
	p.others(vs.Services, table)
	for i := range vs.Services {
		p.drifts = append(p.drifts, vs.Services[i].Drift...)
	}
	p.finish()
	return p
}

// others adds a row for each destination that is no real server's: those of one address
// in several services are one.
func (p *pool) others(services []engine.Service, t *table) {
	at := map[string]int{}
	for i := range services {
		for j := range services[i].Destinations {
			d := &services[i].Destinations[j]
			if t != nil && t.taken[d] {
				continue
			}
			k, there := at[d.Address]
			if !there {
				k = len(p.rows)
				at[d.Address] = k
				p.rows = append(p.rows, row{state: stateForeign, address: d.Address, why: "in the kernel's table, but not wanted there", wanted: -1, kernel: -1})
			}
			r := &p.rows[k]
			if d.Drain != nil && r.drain == nil {
				r.state, r.why, r.since = stateDraining, d.Drain.Why, d.Drain.Since
			}
			r.fill([]*engine.Destination{d})
		}
	}
}

// finish works out what is said of the pool as a whole.
func (p *pool) finish() {
	var b strings.Builder
	b.WriteString(p.name)
	if vs := p.vs; vs != nil {
		b.WriteString(" " + vs.Label + " " + vs.Group)
		for i := range vs.Services {
			b.WriteString(" " + vs.Services[i].Name)
		}
		switch {
		case vs.Suspended:
		case !vs.QuorumUp:
			p.trouble = 3
		case vs.AtFloor:
			p.trouble = 2
		case p.missing() || p.unannounced() && !vs.Withheld:
			p.trouble = 1
		}
	}
	if len(p.drifts) > 0 {
		p.trouble = max(p.trouble, 1)
	}
	p.text = strings.ToLower(b.String())
	for i := range p.rows {
		r := &p.rows[i]
		if r.drain != nil {
			p.drains++
		}
		r.trouble = trouble[r.state]
		if r.differs() {
			r.trouble = max(r.trouble, trouble[stateForeign])
		}
		if r.rs != nil && slices.ContainsFunc(r.rs.Checkers, func(c engine.Checker) bool { return c.Last == "unable" }) {
			r.unable, r.trouble = true, max(r.trouble, trouble[string(engine.StateDamped)])
		}
		p.worst = max(p.worst, r.trouble)
		r.text = r.address
		if r.rs != nil && r.rs.Label != "" {
			r.text += " " + strings.ToLower(r.rs.Label)
		}
	}
}

// fill adds what the kernel's side tells.
func (r *row) fill(found []*engine.Destination) {
	for _, d := range found {
		wanted := d.Wanted
		if d.Drain != nil {
			wanted = max(wanted, 0) // it stays at 0 until it is deleted
			if r.drain == nil {
				r.drain = d.Drain
			}
		}
		if r.held && (r.kernel != d.Kernel || r.wanted != wanted) {
			r.mixed = true
		}
		if !r.held {
			r.held, r.kernel, r.wanted = true, d.Kernel, wanted
		}
		r.active += uint64(d.Active)
		r.inactive += uint64(d.Inactive)
	}
}

// table finds destinations by their addresses.
type table struct {
	services []engine.Service
	ports    []uint16
	by       []map[string]*engine.Destination
	taken    map[*engine.Destination]bool
}

func newTable(services []engine.Service) *table {
	t := &table{services: services, taken: map[*engine.Destination]bool{}}
	for i := range services {
		by := make(map[string]*engine.Destination, len(services[i].Destinations))
		for j := range services[i].Destinations {
			d := &services[i].Destinations[j]
			by[d.Address] = d
		}
		t.by = append(t.by, by)
		t.ports = append(t.ports, services[i].Key.Port)
	}
	return t
}

// take finds a server in each service. Only NAT translates the port; with every other
// method the destination has the service's, which is 0 for a mark. The method of a
// sorry server is not known: both are tried.
func (t *table) take(address, method string) (found []*engine.Destination) {
	ap, err := netip.ParseAddrPort(address)
	for i, by := range t.by {
		var d *engine.Destination
		if method != "NAT" && err == nil {
			d = by[netip.AddrPortFrom(ap.Addr(), t.ports[i]).String()]
		}
		if d == nil && (method == "NAT" || method == "") {
			d = by[address]
		}
		if d != nil {
			t.taken[d] = true
			found = append(found, d)
		}
	}
	return found
}
