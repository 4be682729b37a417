package apply

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// Applier writes verdicts into a table. It is owned by one goroutine.
type Applier struct {
	conn IPVS
	log  *slog.Logger

	// vss is in file order: the first claimant of a service gives its attributes.
	vss    []*claim
	byKey  map[config.VSKey]*claim
	owners map[ipvs.ServiceKey][]*claim
	// away has, of each service that withheld virtual servers claim, the first of these;
	// nil for none.
	away map[ipvs.ServiceKey]*claim

	// mirror is what is ours and believed to be in the kernel; a service without
	// an owner is leaving.
	mirror map[ipvs.ServiceKey]*actual
	// parked is the drain list.
	parked drainList
	due    due
	// more: the last Flush stopped at the end of a portion.
	more    bool
	portion int
	// limits are the drain_timeouts of servers that were configured with one of
	// their own and are no more.
	limits map[parkedKey]time.Duration
	// fin is how long the kernel keeps a TCP connection that ends, at most; 0 while
	// that is not known.
	fin time.Duration
	// staying are services that nobody claims and that are not to leave yet; nil for none.
	staying map[ipvs.ServiceKey]bool
	// moved are the services that came or went, if follows.
	moved   []ipvs.ServiceKey
	follows bool

	// reportOnly: what somebody else changed is left as it is.
	reportOnly bool
	drift      map[ipvs.ServiceKey]*drift
	repaired   uint64
	// remembered is what an earlier process had, until it was looked for in the
	// table.
	remembered map[string]*memory

	operations uint64
	observer   Observer
}

// claim is one virtual server with the facts about it.
type claim struct {
	vs    *VirtualServer
	facts facts
	ready bool
	// withheld: it is configured and counts for nothing in the table.
	withheld bool
	// order is its place in the file.
	order int
}

// New returns an applier for the given virtual servers, in file order. Nothing is
// written before Flush, and a virtual server takes part only after Init.
func New(conn IPVS, vss []*VirtualServer, log *slog.Logger) *Applier {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	a := &Applier{
		conn: conn, log: log, portion: portion,
		mirror: map[ipvs.ServiceKey]*actual{},
		limits: map[parkedKey]time.Duration{},
		drift:  map[ipvs.ServiceKey]*drift{},
	}
	a.configure(vss)
	return a
}

func (a *Applier) configure(vss []*VirtualServer) {
	was := a.byKey
	a.away = nil
	a.vss, a.byKey, a.owners = make([]*claim, len(vss)), make(map[config.VSKey]*claim, len(vss)), make(map[ipvs.ServiceKey][]*claim, len(vss))
	for i, vs := range vss {
		c := newClaim(vs)
		c.withheld = was[vs.Key] != nil && was[vs.Key].withheld
		a.enrol(c, i)
	}
}

func newClaim(vs *VirtualServer) *claim { return &claim{vs: vs, facts: newFacts(len(vs.Servers))} }

// Connect replaces the table, for when the kernel's becomes reachable. Adopt must
// follow.
func (a *Applier) Connect(conn IPVS) {
	a.conn = conn
	if a.observer != nil && conn != nil {
		a.conn = &observed{conn, a.observer}
	}
}

// Init takes over the whole state of one virtual server: at start, and after
// Replace. A server that is not alive is not installed at all (or at weight 0 with
// inhibit_on_failure), and a virtual server below its quorum gets its sorry server
// with the same Flush that adds the service.
func (a *Applier) Init(vs *framework.VirtualServer) error {
	c, ok := a.byKey[vs.Config.Key]
	if !ok || len(c.vs.Servers) != len(vs.Servers) {
		return fmt.Errorf("init virtual server: %w", ErrUnknown)
	}
	for i, rs := range vs.Servers {
		c.facts.weight[i] = weight(rs.Share())
		c.facts.set(i, alive, rs.Alive())
		c.facts.set(i, failed, !rs.Alive() && !rs.Unverified())
		c.facts.set(i, maintenance, rs.Maintenance())
	}
	c.facts.quorum = vs.QuorumUp()
	c.ready = true
	for _, s := range c.vs.Services {
		a.due.bulk.whole(s.ServiceKey)
	}
	return nil
}

// Replace swaps in a new configuration. What is known of the table is kept: a
// reload does not empty it. Services that nobody claims any more are drained and
// deleted last. Init must follow for each virtual server.
func (a *Applier) Replace(vss []*VirtualServer) {
	old := a.owners
	a.keepLimits()
	a.configure(vss)
	a.due.replaced()
	for _, k := range slices.SortedFunc(maps.Keys(a.mirror), compareServices) {
		a.due.bulk.whole(k)
		a.mirror[k].serving = 0
		if len(a.owners[k]) > 0 {
			delete(a.staying, k)
			continue
		}
		a.leave(k, old[k])
	}
	for k, d := range a.parked.drains {
		d.limit = a.limit(k)
	}
	a.parked.known = false
}

// abandon notes why a service that nobody claims any more leaves, and its last bound:
// nobody can say it later.
func (a *Applier) abandon(k ipvs.ServiceKey, was *VirtualServer, why reason) {
	m := a.mirror[k]
	for i := range m.slots {
		m.slots[i].why = why
	}
	m.timeout, m.atOnce = was.DrainTimeout, false
	if datagram(k) {
		m.timeout, m.atOnce = was.UDPDrainTimeout, was.UDPDrainTimeout == 0
	}
}

// SetAlive records one real server's verdict; false is a failure. While the sorry server serves it
// changes nothing in the table, except that a server which failed is not kept
// waiting for its connections.
func (a *Applier) SetAlive(vs config.VSKey, rs config.RSKey, up bool) error {
	c, i, err := a.find(vs, rs)
	if err != nil {
		return fmt.Errorf("set alive: %w", err)
	}
	c.facts.set(i, alive, up)
	c.facts.set(i, failed, !up)
	a.mark(c, i)
	return nil
}

// SetWeight records one real server's effective weight, 0..2147483647.
func (a *Applier) SetWeight(vs config.VSKey, rs config.RSKey, w int64) error {
	c, i, err := a.find(vs, rs)
	if err != nil {
		return fmt.Errorf("set weight: %w", err)
	}
	c.facts.weight[i] = weight(w)
	a.mark(c, i)
	return nil
}

// SetMaintenance records whether a weight of 0 is a drain that an operator asked
// for, which outranks a failing check whatever the configured weight is.
func (a *Applier) SetMaintenance(vs config.VSKey, rs config.RSKey, drained bool) error {
	c, i, err := a.find(vs, rs)
	if err != nil {
		return fmt.Errorf("set maintenance: %w", err)
	}
	c.facts.set(i, maintenance, drained)
	a.mark(c, i)
	return nil
}

// Quorum records a move of a virtual server's quorum.
func (a *Applier) Quorum(vs config.VSKey, ev framework.QuorumEvent) error {
	c, ok := a.byKey[vs]
	if !ok {
		return fmt.Errorf("quorum: %w", ErrUnknown)
	}
	switch ev {
	case framework.QuorumGained:
		c.facts.quorum = true
	case framework.QuorumLost:
		c.facts.quorum = false
	default:
		return nil
	}
	if c.vs.SorryServer == nil || c.withheld {
		return nil // nothing in the table depends on it
	}
	for _, s := range c.vs.Services {
		// A sorry server that is needed cannot wait; one that is not, can.
		if c.facts.quorum {
			a.due.bulk.whole(s.ServiceKey)
		} else {
			a.due.urgent.whole(s.ServiceKey)
		}
	}
	return nil
}

// Present reports whether a real server's destination is believed to be in the
// table, in every service of its virtual server.
func (a *Applier) Present(vs config.VSKey, rs config.RSKey) bool {
	c, i, err := a.find(vs, rs)
	return err == nil && a.has(c.vs, c.vs.Servers[i].Dest, 0)
}

// SorryInstalled reports whether a virtual server's sorry server is in the table
// with a weight.
func (a *Applier) SorryInstalled(vs config.VSKey) bool {
	c, ok := a.byKey[vs]
	return ok && c.vs.SorryServer != nil && a.has(c.vs, c.vs.SorryServer.Dest, 1)
}

func (a *Applier) has(vs *VirtualServer, d ipvs.Destination, weight uint32) bool {
	for _, s := range vs.Services {
		m := a.mirror[s.ServiceKey]
		if m == nil {
			return false
		}
		have, ok := m.get(at(d, s.ServiceKey).DestinationKey)
		if !ok || have.Weight < weight {
			return false
		}
	}
	return len(vs.Services) > 0
}

// Operations returns how many changes the table has accepted.
func (a *Applier) Operations() uint64 { return a.operations }

// Lookup returns a configured virtual server; nil for an unknown one.
func (a *Applier) Lookup(vs config.VSKey) *VirtualServer {
	if c, ok := a.byKey[vs]; ok {
		return c.vs
	}
	return nil
}

func (a *Applier) find(vs config.VSKey, rs config.RSKey) (*claim, int, error) {
	c, ok := a.byKey[vs]
	if !ok {
		return nil, 0, ErrUnknown
	}
	i := c.vs.find(rs)
	if i < 0 {
		return nil, 0, ErrUnknown
	}
	return c, i, nil
}

// mark has one server's destination looked at, in every service.
func (a *Applier) mark(c *claim, i int) {
	if c.withheld {
		return
	}
	for _, s := range c.vs.Services {
		a.due.urgent.part(s.ServiceKey, position{c, int32(i)})
	}
}

// weight is an effective weight as the kernel takes it.
func weight(w int64) int32 { return int32(min(max(w, 0), framework.MaxWeight)) }
