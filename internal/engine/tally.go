package engine

import (
	"sync/atomic"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

// Checks counts the runs of one kind of check since the start.
type Checks struct {
	// Kind is the block's keyword.
	Kind   string `json:"kind"`
	OK     uint64 `json:"ok"`
	Failed uint64 `json:"failed"`
	// Unable are those that could not be run and say nothing of their server.
	Unable uint64 `json:"unable"`
}

// kinds are all kinds of check, in the order of reports.
var kinds = func() (names []string) {
	for k := config.TCPCheck; k <= config.BFDCheck; k++ {
		names = append(names, k.String())
	}
	return names
}()

// kindOf is the place of each in kinds.
var kindOf = func() map[string]int {
	m := make(map[string]int, len(kinds))
	for i, k := range kinds {
		m[k] = i
	}
	return m
}()

// tally counts runs by kind and result. It is counted on the scheduler's side and
// read by anyone.
type tally [config.BFDCheck][checker.Unable + 1]atomic.Uint64

func (t *tally) count(kind string, r checker.Result) {
	if k, ok := kindOf[kind]; ok && r >= 0 && r <= checker.Unable {
		t[k][r].Add(1)
	}
}

func (t *tally) checks() (all []Checks) {
	for i, k := range kinds {
		c := Checks{Kind: k, OK: t[i][checker.OK].Load(), Failed: t[i][checker.Failed].Load(), Unable: t[i][checker.Unable].Load()}
		if c.OK|c.Failed|c.Unable != 0 {
			all = append(all, c)
		}
	}
	return all
}
