package engine

import (
	"encoding/json"
	"time"

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
	e.saving = saving{at: now}
	e.opts.Save(e.survives(now))
}

// setOperator replaces the part of the state that is the operators' commands', and
// has it handed out at the end of this very turn: an order that was acknowledged must
// not be forgotten by a crash a moment later.
func (e *Engine) setOperator(section json.RawMessage) {
	e.operator, e.saving = section, saving{due: true}
}

// survives makes the state of this moment. Nothing in it is shared with the loop.
func (e *Engine) survives(now time.Time) *state.State {
	s := &state.State{Version: state.Version, Saved: now, Generation: e.generation, Operator: e.operator}
	for _, o := range e.applier.Owned() {
		svc := state.Service{Service: o.Service, DrainTimeout: o.Timeout, Destinations: make([]state.Destination, 0, len(o.Destinations))}
		for _, d := range o.Destinations {
			sd := state.Destination{Destination: d.Destination}
			if !d.Since.IsZero() {
				sd.Drain = &state.Drain{Since: d.Since, Why: d.Why, Limit: d.Limit}
			}
			svc.Destinations = append(svc.Destinations, sd)
		}
		s.Services = append(s.Services, svc)
	}
	for _, vs := range e.vss {
		key := vs.Config.Key.String()
		s.VirtualServers = append(s.VirtualServers, state.VirtualServer{VirtualServer: key, Quorum: vs.QuorumUp()})
		for i, rs := range vs.Servers {
			for k, t := range vs.tasks[i] {
				if t == nil || rs.Checkers[k] == framework.Unknown {
					continue
				}
				v := state.Verdict{
					Key: t.saved(key),
					Up:  rs.Checkers[k] == framework.Up, At: t.confirmation(),
				}
				if !v.Up {
					v.Reason = vs.rs[i].failed
				}
				s.Verdicts = append(s.Verdicts, v)
			}
		}
	}
	return s
}
