package engine

import (
	"sync/atomic"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

// Checks counts the runs of one kind of check since the start. One that several real
// servers share counts once.
type Checks struct {
	// Kind is the block's keyword.
	Kind   string `json:"kind"`
	OK     uint64 `json:"ok"`
	Failed uint64 `json:"failed"`
	// Unable are those that could not be run and say nothing of their server.
	Unable uint64 `json:"unable"`
}

// runTally counts runs by kind and result. It is counted on the scheduler's side and
// read by anyone.
type runTally [config.BFDCheck + 1][checker.Unable + 1]atomic.Uint64

func (t *runTally) count(k config.CheckerKind, r checker.Result) {
	if int(k) < len(t) && r >= 0 && r <= checker.Unable {
		t[k][r].Add(1)
	}
}

func (t *runTally) checks() (all []Checks) {
	for k := range t {
		n := &t[k]
		c := Checks{Kind: config.CheckerKind(k).String(), OK: n[checker.OK].Load(), Failed: n[checker.Failed].Load(), Unable: n[checker.Unable].Load()}
		if c.OK|c.Failed|c.Unable != 0 {
			all = append(all, c)
		}
	}
	return all
}
