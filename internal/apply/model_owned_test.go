package apply

import (
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
)

// restartWithState is a restart that has a state file, under the same configuration
// or another: whatever was ours is still, leaving services included, and drains keep
// their time.
func (m *model) restartWithState(t *rapid.T) {
	var cfgs []*config.VirtualServer
	for _, c := range m.a.vss {
		cfgs = append(cfgs, m.vss[c.vs.Key].Config)
	}
	if rapid.Bool().Draw(t, "file changed while stopped") {
		cfgs = drawConfig(t)
	}
	var vss []*VirtualServer
	for _, c := range cfgs {
		c.DrainTimeout = 0
		if m.timeout {
			c.DrainTimeout = 3 * time.Minute
		}
		vss = append(vss, Translate(c))
	}
	owned, parked := m.a.Owned(), m.a.parked.drains
	m.a = New(m.table, vss, nil)
	m.a.portion = m.portion
	m.a.Remember(owned)
	m.ok(m.a.Adopt(t.Context()))
	m.vss = nil
	m.init(cfgs, trust)
	m.ok(m.flush())
	m.settled()
	for k, d := range m.a.parked.drains {
		if was := parked[k]; was != nil && (was.since != d.since || was.why != d.why) {
			t.Fatalf("the drain of %s in %s was since %v (%s) and is since %v (%s)", k.dest, k.service, was.since, was.why, d.since, d.why)
		}
	}
}
