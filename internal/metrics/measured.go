package metrics

import (
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/engine"
)

// stageName is a checker.Stage's name, or that of not knowing it.
func stageName(stage int) string {
	if stage < int(checker.Stages) {
		return checker.Stage(stage).String()
	}
	return "unknown"
}

// results writes a family by result.
func (e *encoder) results(f family, names []string, counts ...uint64) {
	for i, n := range counts {
		e.begin(f)
		e.label("result", names[i])
		e.value(number(n))
	}
}

// measured writes how long the engine's own work takes.
func (e *encoder) measured(s *engine.Snapshot) {
	m := s.Measured
	if m == nil {
		return
	}
	e.results(reloads, []string{"accepted", "refused"}, m.Accepted, m.Refused)
	e.single(reloadTook, m.ReloadTook.Round(time.Microsecond).Seconds())
	e.single(kernelReconcile, m.Reconcile.Seconds())
	for i := range m.Operations {
		e.begin(kernelOperations)
		e.label("operation", m.Operations[i].Kind)
		e.value(number(m.Operations[i].Done))
	}
	for i := range m.Operations {
		e.begin(kernelRefused)
		e.label("operation", m.Operations[i].Kind)
		e.value(number(m.Operations[i].Refused))
	}
	for i := range m.Calls {
		e.distribution(kernelCalls, &m.Calls[i].Took, "call", m.Calls[i].Kind)
	}
	for i := range m.Calls {
		e.begin(kernelCallErrors)
		e.label("call", m.Calls[i].Kind)
		e.value(number(m.Calls[i].Failed))
	}
	e.distribution(lag, &m.Lag, "", "")
	e.distribution(turn, &m.Turn, "", "")
	e.distribution(verdictToKernel, &m.VerdictToKernel, "", "")
}

// told writes what the world was told.
func (e *encoder) told(t *Told) {
	if t == nil {
		return
	}
	e.results(scripts, []string{"ok", "failed", "dropped"}, t.ScriptsOK, t.ScriptsFailed, t.ScriptsDropped)
	e.single(scriptsQueued, number(t.ScriptsQueued))
	e.results(mails, []string{"sent", "failed", "dropped"}, t.MailsSent, t.MailsFailed, t.MailsDropped)
	e.single(mailsQueued, number(t.MailsQueued))
	e.results(fifoMessages, []string{"written", "lost"}, t.FIFOMessagesWritten, t.FIFOMessagesLost)
	for i, level := range [...]string{"info", "warn", "error"} {
		e.begin(events)
		e.label("level", level)
		e.value(number(t.Events[i]))
	}
	e.single(linesSuppressed, number(t.LinesSuppressed))
}
