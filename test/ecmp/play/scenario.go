package play

import (
	"fmt"
	"time"
)

// Scenario is one thing that happens to a director.
type Scenario struct {
	Name, Title string
	// Quick are the modes in which it is played in the short run.
	Quick []string
	// Zero are the modes in which no long-lived connection may be lost, Costs those in
	// which some must: if none is, the clients do not see what they should.
	Zero, Costs []string
	// ShortZero are the modes in which no short request may be lost: the sync daemon
	// alone is not among them, as it does not know of those that are under way.
	ShortZero []string

	// leaves is the director that is drained and whose table is looked at in the end, as
	// a number from 1; 0 is none.
	leaves int

	// order is in which order director i is given its servers; nil is all alike.
	order func(i int) []int
	play  func(r *run)
}

// list is the servers of a director at its start.
func (s *Scenario) list(i int) []int {
	if s.order == nil {
		return []int{0, 1, 2}
	}
	return s.order(i)
}

// anyMode are the modes in which directors pick up each other's connections.
var anyMode = []string{"sloppy_tcp", "sync", "both"}

// sloppy are those in which they do so from the first packet on.
var sloppy = []string{"sloppy_tcp", "both"}

// Scenarios are what is measured.
var Scenarios = []*Scenario{
	{
		Name: "drain", Title: "one of three directors is drained",
		Quick: []string{"sloppy_tcp"}, Zero: anyMode, Costs: []string{"neither"}, ShortZero: sloppy, leaves: 2,
		play: func(r *run) { r.drain(1) },
	},
	{
		Name: "kill", Title: "one of three directors is killed, without a word",
		Zero: anyMode, Costs: []string{"neither"},
		play: func(r *run) {
			r.directors[1].kill()
			r.notice(0, 2)
		},
	},
	{
		Name: "cut", Title: "one director reaches no server any more, and withdraws",
		Quick: []string{"both"}, Zero: anyMode, Costs: []string{"neither"},
		play: func(r *run) {
			// Their address leads nowhere, from there alone.
			for i := range servers {
				r.rig.directors[1].IP(r, fmt.Sprintf("neigh replace %v lladdr 02:00:00:00:00:01 dev eth0 nud permanent", serverAddr(i)))
			}
			r.directors[1].cut()
			r.notice(0, 2)
		},
	},
	{
		Name: "join", Title: "a fourth director joins",
		Zero: anyMode, Costs: []string{"neither"}, ShortZero: sloppy,
		play: func(r *run) {
			begun := time.Now()
			r.directors[3].start(r.s.list(3))
			r.notice(0, 1, 2, 3)
			r.res.Noticed = time.Since(begun).Seconds()
		},
	},
	{
		Name: "order", Title: "the same drain, the directors' servers added in different orders",
		Zero: []string{"sync", "both"}, Costs: []string{"neither"},
		order: reorder,
		play:  func(r *run) { r.drain(1) },
	},
	{
		Name: "grown", Title: "the same drain, after a third server came to two",
		Zero: []string{"sync", "both"}, Costs: []string{"neither"},
		order: func(int) []int { return []int{0, 1} },
		play: func(r *run) {
			for i := range 3 {
				r.directors[i].add(2)
			}
			r.drain(1)
		},
	},
}

// drain takes one of three out as an operator does: not announced, waited for, emptied.
func (r *run) drain(i int) {
	begun := time.Now()
	r.directors[i].withdraw()
	var rest []int
	for n := range 3 {
		if n != i {
			rest = append(rest, n)
		}
	}
	r.routed(rest...)
	r.res.Noticed = time.Since(begun).Seconds()
	r.long.Settle(r)
	r.pause(time.Second)
	r.directors[i].empty()
	r.long.Settle(r)
}
