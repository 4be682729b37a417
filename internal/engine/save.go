package engine

import (
	"cmp"
	"encoding/json"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/internal/state"
)

const (
	// saveEvery is between two states made for saving while things change.
	saveEvery = time.Second
	// saveAgain is between two while nothing changes: it bounds how old the
	// verdicts of a process that was killed look.
	saveAgain = time.Minute
)

// saving is when the state was last handed out, and whether it has changed since.
type saving struct {
	at  time.Time
	due bool
}

// saveAt is when the next state is due; zero for never.
func (e *Engine) saveAt() time.Time {
	switch {
	case e.opts.Save == nil:
		return time.Time{}
	case e.saving.due:
		return e.saving.at.Add(saveEvery)
	}
	return e.saving.at.Add(saveAgain)
}

// save hands out the state if that is due.
func (e *Engine) save(now time.Time, changed bool) {
	e.saving.due = e.saving.due || changed
	if at := e.saveAt(); at.IsZero() || now.Before(at) {
		return
	}
	e.saveNow(now)
}

func (e *Engine) saveNow(now time.Time) {
	if e.opts.Save == nil {
		return
	}
	e.publish(now)
	e.saving = saving{at: now}
	e.opts.Save(e.survives(now))
}

// setOperator replaces the part of the state that is the operators' commands', and
// has it handed out at the end of this very turn: an order that was acknowledged must
// not be forgotten by a crash a moment later.
func (e *Engine) setOperator(section json.RawMessage) {
	e.operator, e.saving = section, saving{due: true}
}

// survives makes the state of this moment, as it was published. That is a few words:
// the lists are made by who writes them, of what readers share with the loop.
func (e *Engine) survives(now time.Time) *state.State {
	p := e.published.Load()
	s := &state.State{Version: state.Version, Saved: now, Generation: e.generation, Operator: e.operator, Marks: e.savedMarks(), Lists: &state.Lists{
		Services:       p.savedServices,
		VirtualServers: p.savedQuorums,
		Verdicts:       func(yield func(state.Verdict) bool) { p.savedVerdicts(now, yield) },
	}}
	if e.applier.Remembers() {
		// The table was not reached yet, and what an earlier process left in it is
		// not in what was published.
		s.Lists.Services = nil
		for _, o := range e.applier.Owned() {
			s.Services = append(s.Services, savedService(o))
		}
	}
	return s
}

func savedService(o apply.Owned) state.Service {
	svc := state.Service{Service: o.Service, DrainTimeout: o.Timeout, Destinations: make([]state.Destination, 0, len(o.Destinations))}
	for _, d := range o.Destinations {
		sd := state.Destination{Destination: d.Destination}
		if !d.Since.IsZero() {
			sd.Drain = &state.Drain{Since: d.Since, Why: d.Why, Limit: d.Limit}
		}
		svc.Destinations = append(svc.Destinations, sd)
	}
	return svc
}

// savedServices yields what is ours in the table, in the order of names.
func (p *published) savedServices(yield func(state.Service) bool) {
	type source struct {
		name string
		make func() state.Service
	}
	var all []source
	add := func(v *serviceView) {
		if v.owned != nil {
			all = append(all, source{v.owned.Service, func() state.Service { return savedService(*v.owned) }})
		}
	}
	for i := range p.pieces.n {
		piece := p.pieces.at(i)
		for j, s := range piece.services() {
			if piece.views != nil && piece.views[j] != nil {
				add(piece.views[j])
				continue
			}
			name := s.String()
			all = append(all, source{name, func() state.Service {
				return state.Service{Service: name, More: func(yield func(state.Destination) bool) {
					for dk := range piece.settled(s.ServiceKey) {
						if !yield(state.Destination{Destination: dk.String()}) {
							return
						}
					}
				}}
			}})
		}
	}
	for _, v := range p.leaving {
		add(v)
	}
	slices.SortStableFunc(all, func(a, b source) int { return cmp.Compare(a.name, b.name) })
	for i, s := range all {
		if i > 0 && all[i-1].name == s.name {
			continue // several virtual servers share it
		}
		if !yield(s.make()) {
			return
		}
	}
}

func (p *published) savedQuorums(yield func(state.VirtualServer) bool) {
	for i := range p.pieces.n {
		piece := p.pieces.at(i)
		if !yield(state.VirtualServer{VirtualServer: piece.of.Config.Key.String(), Quorum: piece.vs.QuorumUp}) {
			return
		}
	}
}

// savedVerdicts yields the verdicts. A run that confirmed one after the state was made
// is not dated later than that.
func (p *published) savedVerdicts(now time.Time, yield func(state.Verdict) bool) {
	for i := range p.pieces.n {
		piece := p.pieces.at(i)
		for j := range piece.situations.n {
			sit := piece.situations.at(j)
			for k, t := range piece.of.tasks[j] {
				verdict := sit.verdict(k)
				if t == nil || verdict == framework.Unknown {
					continue
				}
				rc := piece.of.Servers[j].Config
				key := state.Key{VirtualServer: piece.of.Config.Key.String(), RealServer: rc.Key.String(), Checker: t.definition(rc.Checkers[k])}
				v := state.Verdict{Key: key, Up: verdict == framework.Up, At: t.confirmation()}
				if v.At.After(now) {
					v.At = now
				}
				if !v.Up {
					v.Reason = sit.failed
				}
				if !yield(v) {
					return
				}
			}
		}
	}
}
