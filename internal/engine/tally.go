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
	OK     uint64 `json:"ok"`     // runs that were good
	Failed uint64 `json:"failed"` // runs that failed
	// Unable are those that could not be run and say nothing of their server.
	Unable uint64 `json:"unable"`
	// Took are those that were good or failed.
	Took Histogram `json:"-"`
	// FailedAt are the failures by how far the check came: by checker.Stage, and last
	// those of which that is not known.
	FailedAt [checker.Stages + 1]uint64 `json:"-"`
}

// runTally counts runs by kind. It is counted on the scheduler's side and read by
// anyone.
type runTally [config.BFDCheck + 1]kindTally

type kindTally struct {
	results [checker.Unable + 1]atomic.Uint64
	stages  [checker.Stages + 1]atomic.Uint64
	took    histogram
}

func (t *runTally) count(k config.CheckerKind, o *checker.Outcome) {
	if int(k) >= len(t) || o.Result < 0 || o.Result > checker.Unable {
		return
	}
	n := &t[k]
	n.results[o.Result].Add(1)
	if o.Result == checker.Unable {
		return
	}
	n.took.observe(checkBounds, o.Took)
	if o.Result == checker.Failed {
		at := checker.Stages
		if o.Fault != nil {
			at = min(o.Fault.Stage, checker.Stages)
		}
		n.stages[at].Add(1)
	}
}

func (t *runTally) checks() (all []Checks) {
	for k := range t {
		n := &t[k]
		c := Checks{OK: n.results[checker.OK].Load(), Failed: n.results[checker.Failed].Load(), Unable: n.results[checker.Unable].Load()}
		if c.OK|c.Failed|c.Unable == 0 {
			continue
		}
		c.Kind, c.Took = config.CheckerKind(k).String(), n.took.read(checkBounds)
		for i := range c.FailedAt {
			c.FailedAt[i] = n.stages[i].Load()
		}
		if all == nil {
			all = make([]Checks, 0, len(t))
		}
		all = append(all, c)
	}
	return all
}
