package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
)

// Trial is a real server's checks run once beside the schedule, on demand. A
// transcript of it is a sequence of TrialLine.
//
// It says nothing to any verdict: its probes are its own and are run on the caller's
// goroutine, so that neither the schedule nor the loop waits for it. How many there may
// be at a time is bounded, since each asks a real server more than was configured.

// maxTrials is how many trials run at a time.
const maxTrials = 4

// TrialLine is one line of a transcript. Fields that a kind of line has no use for are
// left out.
type TrialLine struct {
	// Line is "check" (one begins), "step" (of that check), "result" (it ended) or
	// "end" (of all).
	Line string    `json:"line"`
	At   time.Time `json:"at,omitzero"` // when
	// VirtualServer and RealServer are in the first line, as they are called.
	VirtualServer string `json:"virtual_server,omitempty"`
	RealServer    string `json:"real_server,omitempty"`
	// Check counts from 1, of Checks.
	Check  int    `json:"check,omitempty"`
	Checks int    `json:"checks,omitempty"`
	Kind   string `json:"kind,omitempty"`   // the check's keyword
	Target string `json:"target,omitempty"` // what it asks
	// After is the time since the check began.
	After time.Duration `json:"after_ns,omitempty"`
	Stage string        `json:"stage,omitempty"` // how far it is
	Text  string        `json:"text,omitempty"`  // the step for people
	// Result is "ok", "failed" or "unable"; with the line "end" it is all checks'
	// worst.
	Result string        `json:"result,omitempty"`
	Reason string        `json:"reason,omitempty"`  // the result for people
	Took   time.Duration `json:"took_ns,omitempty"` // how long the check took
	Fault  *Fault        `json:"fault,omitempty"`   // a failure in parts
	// Verdict is what the daemon holds of this check by its schedule, with the line
	// "end" the real server's State, and Summary is why.
	Verdict string `json:"daemon_verdict,omitempty"`
	State   State  `json:"state,omitempty"`
	Summary string `json:"summary,omitempty"`
	// Error ends a transcript that could not go on.
	Error string `json:"error,omitempty"`
}

// trials bounds how many run, and for whom.
type trials struct {
	mu  sync.Mutex
	who map[string]bool
}

// begin takes a place; done gives it back, and may be called twice.
func (t *trials) begin(who string) (done func(), err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.who[who]:
		return nil, &CommandError{Code: CodeRefused, Message: "you have a test under way, and one at a time is enough"}
	case len(t.who) >= maxTrials:
		return nil, &CommandError{Code: CodeRefused, Message: fmt.Sprintf("%d tests are under way, which is as many as there may be; try again in a moment", maxTrials)}
	}
	if t.who == nil {
		t.who = map[string]bool{}
	}
	t.who[who] = true
	return sync.OnceFunc(func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		delete(t.who, who)
	}), nil
}

// Test runs each check of one real server once, now, one after the other, and tells
// each line of the transcript as it comes; an error of tell ends it. client is whom one
// test at a time is enough for, and who the log names. A *CommandError says that
// nothing was run.
func (e *Engine) Test(ctx context.Context, client, who, vs, rs string, tell func(TrialLine) error) error {
	f, err := e.find(vs, rs)
	if err != nil {
		return err
	}
	release, err := e.trials.begin(client)
	if err != nil {
		return err
	}
	defer release()
	rc := f.config()
	e.log.Info("An operator tests a real server", event.Key, event.OperatorTest, "vs", f.piece.of.name, "rs", rsName(rc.Key, f.piece.of.Config), "who", who)
	worst := checker.OK
	verdicts := f.checks(e.started)
	for i, c := range rc.Checkers {
		line := TrialLine{Line: "check", At: time.Now(), Check: i + 1, Checks: len(rc.Checkers), Kind: c.Kind.String(), Target: targetOf(c)}
		if i == 0 {
			line.VirtualServer, line.RealServer = f.piece.of.name, rc.Key.String()
		}
		if err := tell(line); err != nil {
			return err
		}
		done := TrialLine{Line: "result", Check: i + 1, Verdict: verdicts[i].Verdict}
		o, err := e.try(ctx, f, c, i, tell)
		if err != nil {
			return err
		}
		if o.Result > worst {
			worst = o.Result
		}
		done.Result, done.Reason, done.Took = o.Result.String(), o.Reason, o.Took
		if o.Weighted {
			done.Text = fmt.Sprintf("asks for weight %d", o.Weight)
		}
		done.Fault = faultOf(o.Fault)
		if err := tell(done); err != nil {
			return err
		}
	}
	end := TrialLine{Line: "end", At: time.Now(), Checks: len(rc.Checkers), Result: worst.String()}
	if len(rc.Checkers) == 0 {
		end.VirtualServer, end.RealServer = f.piece.of.name, rc.Key.String()
	}
	if x, err := e.Explain(ctx, f.piece.of.Config.Key.String(), rc.Key.String()); err == nil {
		end.State, end.Summary = x.RealServer.State, x.Summary
	}
	release() // who reads the end may ask for the next test at once
	return tell(end)
}

// try runs one check.
func (e *Engine) try(ctx context.Context, f *found, c *config.Checker, i int, tell func(TrialLine) error) (checker.Outcome, error) {
	at := func(after time.Duration, stage checker.Stage, text string) error {
		return tell(TrialLine{Line: "step", Check: i + 1, After: after, Stage: stage.String(), Text: text})
	}
	if c.Kind == config.FileCheck {
		o := f.file(i)
		return o, at(0, checker.StageReply, o.Result.String()+": "+o.Reason)
	}
	probe, err := e.opts.Probe(f.p.config, c)
	if err != nil {
		o := checker.Outcome{Result: checker.Unable, Reason: "the check cannot be run: " + err.Error()}
		return o, at(0, checker.StagePrepare, o.Reason)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	o := checker.RunTraced(ctx, probe, timeout(c), func(t checker.TraceEntry) {
		if err := at(t.After, t.Stage, t.Text); err != nil {
			cancel(errors.Join(errTold, err))
		}
	})
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.DeadlineExceeded) {
		return o, cause
	}
	return o, nil
}

var errTold = errors.New("nobody reads the transcript any more")

// file is what a FILE_CHECK makes of its file's value.
func (f *found) file(check int) checker.Outcome {
	sit := f.piece.situations.at(f.server)
	if sit.rest != nil {
		for _, v := range sit.rest.files {
			if v.Checker != check {
				continue
			}
			o := checker.Outcome{Reason: fmt.Sprintf("track_file %s is %d", v.Name, v.Value)}
			if _, fault := v.Status(); fault {
				o.Result = checker.Failed
			}
			return o
		}
	}
	return checker.Outcome{Result: checker.Unable, Reason: "the file has no value yet"}
}
