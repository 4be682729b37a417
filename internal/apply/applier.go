package apply

import (
	"fmt"
	"log/slog"
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

	// mirror is what is ours and believed to be in the kernel; a service without
	// an owner is leaving.
	mirror map[ipvs.ServiceKey]*actual
	// parked is the drain list.
	parked map[parkedKey]*drain
	dirty  dirtySet
	// why holds reasons for departures that desired cannot know.
	why map[parkedKey]string
	// limits are the drain_timeouts of servers that were configured with one of
	// their own and are no more.
	limits map[parkedKey]time.Duration
	// fin is how long the kernel keeps a TCP connection that ends, at most; 0 while
	// that is not known.
	fin time.Duration

	// reportOnly: what somebody else changed is left as it is.
	reportOnly bool
	drift      map[ipvs.ServiceKey]*drift
	repaired   uint64
	// remembered is what an earlier process had, until it was looked for in the
	// table.
	remembered map[string]*memory

	operations uint64
}

// claim is one virtual server with the facts about it.
type claim struct {
	vs    *VirtualServer
	facts Facts
	ready bool
}

// dirtySet keeps the order in which services were marked.
type dirtySet struct {
	order []ipvs.ServiceKey
	set   map[ipvs.ServiceKey]bool
}

func (d *dirtySet) add(k ipvs.ServiceKey) {
	if d.set == nil {
		d.set = map[ipvs.ServiceKey]bool{}
	}
	if !d.set[k] {
		d.set[k] = true
		d.order = append(d.order, k)
	}
}

func (d *dirtySet) take() []ipvs.ServiceKey {
	keys := d.order
	d.order, d.set = nil, nil
	return keys
}

// New returns an applier for the given virtual servers, in file order. Nothing is
// written before Flush, and a virtual server takes part only after Init.
func New(conn IPVS, vss []*VirtualServer, log *slog.Logger) *Applier {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	a := &Applier{
		conn: conn, log: log,
		mirror: map[ipvs.ServiceKey]*actual{},
		parked: map[parkedKey]*drain{},
		why:    map[parkedKey]string{},
		limits: map[parkedKey]time.Duration{},
		drift:  map[ipvs.ServiceKey]*drift{},
	}
	a.configure(vss)
	return a
}

func (a *Applier) configure(vss []*VirtualServer) {
	a.vss, a.byKey, a.owners = nil, make(map[config.VSKey]*claim, len(vss)), make(map[ipvs.ServiceKey][]*claim, len(vss))
	for _, vs := range vss {
		c := newClaim(vs)
		a.vss = append(a.vss, c)
		a.byKey[vs.Key] = c
		for _, s := range vs.Services {
			a.owners[s.ServiceKey] = append(a.owners[s.ServiceKey], c)
		}
	}
}

func newClaim(vs *VirtualServer) *claim {
	return &claim{vs: vs, facts: Facts{Alive: make([]bool, len(vs.Servers)), Failed: make([]bool, len(vs.Servers)), Weight: make([]int64, len(vs.Servers)), Maintenance: make([]bool, len(vs.Servers))}}
}

// Connect replaces the table, for when the kernel's becomes reachable. Adopt must
// follow.
func (a *Applier) Connect(conn IPVS) { a.conn = conn }

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
		c.facts.Alive[i], c.facts.Weight[i] = rs.Alive(), rs.Share()
		c.facts.Failed[i] = !rs.Alive() && !rs.Unverified()
		c.facts.Maintenance[i] = rs.Maintenance()
	}
	c.facts.Quorum = vs.QuorumUp()
	c.ready = true
	a.mark(c)
	return nil
}

// Replace swaps in a new configuration. What is known of the table is kept: a
// reload does not empty it. Services that nobody claims any more are drained and
// deleted last. Init must follow for each virtual server.
func (a *Applier) Replace(vss []*VirtualServer) {
	old := a.owners
	a.keepLimits()
	a.configure(vss)
	for k := range a.mirror {
		a.dirty.add(k)
		if len(a.owners[k]) > 0 || len(old[k]) == 0 {
			continue
		}
		a.abandon(k, old[k][0].vs)
	}
	for k, d := range a.parked {
		d.limit = a.limit(k)
	}
}

// SetAlive records one real server's verdict; false is a failure. While the sorry server serves it
// changes nothing in the table, except that a server which failed is not kept
// waiting for its connections.
func (a *Applier) SetAlive(vs config.VSKey, rs config.RSKey, alive bool) error {
	c, i, err := a.find(vs, rs)
	if err != nil {
		return fmt.Errorf("set alive: %w", err)
	}
	c.facts.Alive[i], c.facts.Failed[i] = alive, !alive
	a.mark(c)
	return nil
}

// SetWeight records one real server's effective weight, 0..2147483647.
func (a *Applier) SetWeight(vs config.VSKey, rs config.RSKey, weight int64) error {
	c, i, err := a.find(vs, rs)
	if err != nil {
		return fmt.Errorf("set weight: %w", err)
	}
	c.facts.Weight[i] = min(max(weight, 0), framework.MaxWeight)
	a.mark(c)
	return nil
}

// SetMaintenance records whether a weight of 0 is a drain that an operator asked
// for, which outranks a failing check whatever the configured weight is.
func (a *Applier) SetMaintenance(vs config.VSKey, rs config.RSKey, drained bool) error {
	c, i, err := a.find(vs, rs)
	if err != nil {
		return fmt.Errorf("set maintenance: %w", err)
	}
	c.facts.Maintenance[i] = drained
	a.mark(c)
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
		c.facts.Quorum = true
	case framework.QuorumLost:
		c.facts.Quorum = false
	default:
		return nil
	}
	a.mark(c)
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
		have, ok := m.dests[at(d, s.ServiceKey).DestinationKey]
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
	i, ok := c.vs.index[rs]
	if !ok {
		return nil, 0, ErrUnknown
	}
	return c, i, nil
}

func (a *Applier) mark(c *claim) {
	for _, s := range c.vs.Services {
		a.dirty.add(s.ServiceKey)
	}
}

// target computes what a service should hold; nil when nobody claims it. ready is
// false while a claimant has not been initialised: then nothing is known yet.
func (a *Applier) target(k ipvs.ServiceKey) (t *target, ready bool) {
	for _, c := range a.owners[k] {
		if !c.ready {
			return nil, false
		}
		if t == nil {
			for _, s := range c.vs.Services {
				if s.ServiceKey == k {
					t = newTarget(s)
					t.atOnce = datagram(k) && c.vs.UDPDrainTimeout == 0
				}
			}
		}
		desired(t, c.vs, c.facts)
	}
	if t != nil {
		for dk := range t.wants {
			delete(t.gone, dk)
		}
	}
	return t, true
}
