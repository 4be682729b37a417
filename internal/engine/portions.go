package engine

import "time"

// settle takes in how this turn's writing ended. While portions of bulk work are left
// the loop comes back at once, with what else happened meanwhile, and the outcome is
// that of all of them.
func (e *Engine) settle(now time.Time, err error) {
	was := e.portions
	e.portions = e.applier.More()
	switch {
	case e.portions && err == nil:
		return
	case e.portions:
		// What failed was not the writing.
		e.outcome(now, err)
		return
	case was:
		// What was published on the way shows a table that is half written.
		e.allTouched = true
	}
	e.outcome(now, err)
	if err == nil && !e.applier.Pending() {
		e.tell()
	}
}
