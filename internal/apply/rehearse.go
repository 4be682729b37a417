package apply

import (
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Frozen is what an applier knew at one moment. Taking it costs the owner a copy of
// plain memory; what can be worked out from that, the indexes, is left to Applier.
type Frozen struct {
	// Operations is the applier's count at that moment.
	Operations uint64

	claims []claim
	mirror []actual
	// indexed says of which services an index is due.
	indexed []bool
	rest    Applier
}

// Freeze takes down what the applier knows. The owner alone may call it.
func (a *Applier) Freeze() *Frozen {
	f := &Frozen{Operations: a.operations, claims: make([]claim, len(a.vss)),
		mirror: make([]actual, 0, len(a.mirror)), indexed: make([]bool, 0, len(a.mirror))}
	servers, slots := 0, 0
	for _, c := range a.vss {
		servers += len(c.facts.flags)
	}
	for _, m := range a.mirror {
		slots += len(m.slots)
	}
	flags, weights, table := make([]factFlags, 0, servers), make([]int32, 0, servers), make([]slot, 0, slots)
	for i, c := range a.vss {
		n := len(flags)
		flags, weights = append(flags, c.facts.flags...), append(weights, c.facts.weight...)
		f.claims[i] = *c
		f.claims[i].facts.flags, f.claims[i].facts.weight = flags[n:len(flags):len(flags)], weights[n:len(weights):len(weights)]
	}
	for _, m := range a.mirror {
		n := len(table)
		table = append(table, m.slots...)
		held := *m
		held.slots, held.index = table[n:len(table):len(table)], nil
		f.mirror, f.indexed = append(f.mirror, held), append(f.indexed, m.index != nil)
	}
	// What is an entry of these maps is replaced as a whole or never changed, but for
	// the drains.
	f.rest = Applier{
		staying: maps.Clone(a.staying), parked: a.parked.copy(), more: a.more, portion: a.portion, limits: maps.Clone(a.limits), fin: a.fin,
		reportOnly: a.reportOnly, drift: maps.Clone(a.drift), repaired: a.repaired, remembered: a.remembered, operations: a.operations,
		due: due{a.due.urgent.copy(), a.due.bulk.copy(), a.due.held.copy()},
	}
	return f
}

// Applier makes an applier over another table that goes on from there. It may be called
// once, by anyone; nothing that it does is seen by the one that was frozen.
func (f *Frozen) Applier(conn IPVS, log *slog.Logger) *Applier {
	a := f.rest
	a.conn, a.log = conn, log
	a.vss, a.byKey = make([]*claim, len(f.claims)), make(map[config.VSKey]*claim, len(f.claims))
	a.owners = make(map[ipvs.ServiceKey][]*claim, len(f.claims))
	for i := range f.claims {
		a.enrol(&f.claims[i], i)
	}
	a.mirror = make(map[ipvs.ServiceKey]*actual, len(f.mirror))
	for i := range f.mirror {
		m := &f.mirror[i]
		if f.indexed[i] {
			m.reindex()
		}
		a.mirror[m.service.ServiceKey] = m
	}
	for _, q := range []*queue{&a.due.urgent, &a.due.bulk, &a.due.held} {
		for _, m := range q.marks {
			for i, p := range m.some {
				m.some[i].claim = a.vss[p.claim.order]
			}
		}
	}
	return &a
}

// enrol takes a claim up at the end of the list.
func (a *Applier) enrol(c *claim, order int) {
	c.order = order
	a.vss[order], a.byKey[c.vs.Key] = c, c
	for _, s := range c.vs.Services {
		a.claimService(s.ServiceKey, c)
	}
}

func (l *drainList) copy() drainList {
	c := drainList{services: maps.Clone(l.services), next: l.next, known: l.known}
	if l.drains != nil {
		c.drains = make(map[parkedKey]*drain, len(l.drains))
		all := make([]drain, 0, len(l.drains))
		for k, d := range l.drains {
			all = append(all, *d)
			c.drains[k] = &all[len(all)-1]
		}
	}
	return c
}

func (q *queue) copy() queue {
	c := queue{order: slices.Clone(q.order)}
	if q.marks != nil {
		c.marks = make(map[ipvs.ServiceKey]*mark, len(q.marks))
		for k, m := range q.marks {
			marked := *m
			marked.some, marked.errs = slices.Clone(m.some), slices.Clone(m.errs)
			c.marks[k] = &marked
		}
	}
	return c
}

// reindex makes the index anew.
func (a *actual) reindex() {
	a.index = make(map[packedKey]int32, len(a.slots))
	for i := range a.slots {
		if s := &a.slots[i]; s.live {
			a.index[s.key] = int32(i)
		}
	}
}

// Parked is a destination that waits for its connections to end.
type Parked struct {
	Service     ipvs.ServiceKey
	Destination ipvs.DestinationKey
	Since       time.Time
	Why         string
	// Limit bounds it; 0 is no bound.
	Limit    time.Duration
	Counters ipvs.Counters
}

// Parked lists the destinations that drain, those of a service together.
func (a *Applier) Parked() []Parked {
	all := make([]Parked, 0, len(a.parked.drains))
	for _, k := range a.parked.keys() {
		d := a.parked.get(k)
		all = append(all, Parked{k.service, k.dest, d.since, d.why, d.limit, d.counters})
	}
	return all
}

// Services are those that are claimed or leaving.
func (f *Frozen) Services() []ipvs.ServiceKey {
	keys := make([]ipvs.ServiceKey, 0, len(f.mirror)+len(f.claims))
	for i := range f.mirror {
		keys = append(keys, f.mirror[i].service.ServiceKey)
	}
	for i := range f.claims {
		for _, s := range f.claims[i].vs.Services {
			keys = append(keys, s.ServiceKey)
		}
	}
	return keys
}
