package engine

import "time"

// Overview is Snapshot without what every run of a check changes (of Checker it has
// Kind, Target and the verdict alone). It copies nothing that grows with the number
// of real servers; what it refers to is shared and must not be changed.
func (e *Engine) Overview() *Snapshot {
	p := e.published.Load()
	s := p.head
	s.At = time.Now()
	if e.opts.Scheduler != nil {
		s.Overdue = e.opts.Scheduler.Overdue()
	}
	s.Checks = e.tally.checks()
	s.VirtualServers = make([]VirtualServer, len(p.pieces))
	for i, piece := range p.pieces {
		s.VirtualServers[i] = piece.vs
	}
	return &s
}
