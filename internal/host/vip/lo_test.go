package vip

import (
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// TestManyOnLo is on any kernel, as lo needs no module.
func TestManyOnLo(t *testing.T) {
	testkit.NeedRoot(t)
	v := openIn(t, testkit.NewNS(t, "lo"))
	list := many(1000)
	took := func(what string, do func()) {
		start := time.Now()
		do()
		t.Logf("%s: %v", what, time.Since(start).Round(time.Millisecond))
	}
	took("added", func() { synced(t, v, on("lo", list...)) })
	took("nothing to do", func() {
		if n := synced(t, v, on("lo", list...)); n != 0 {
			t.Errorf("%d repaired", n)
		}
	})
	took("one moved", func() {
		gone := on("lo", list[0])
		gone[list[0]] = edge.Place{Device: "lo", Local: true}
		if missing, err := v.Change(gone); err != nil || len(missing) > 0 {
			t.Errorf("%v %v", missing, err)
		}
	})
	if n := len(v.m.routes); n != 1 || v.m.at(list[0], 1) {
		t.Errorf("%d routes, and the address is still there", n)
	}
	withdrawn := on("lo", list...)
	for a, p := range withdrawn {
		p.Announce = false
		withdrawn[a] = p
	}
	took("withdrawn with routes", func() { synced(t, v, withdrawn) })
	took("back", func() { synced(t, v, on("lo", list...)) })
	took("removed", func() { synced(t, v, nil) })
	m, err := v.k.read()
	if err != nil || len(m.addrs) != 2 || len(m.routes) != 0 {
		t.Errorf("left: %v and %d routes, %v", m.addrs, len(m.routes), err)
	}
}
