// Package misc is MISC_CHECK: the target is well when a script says so by its exit
// status, or when a file can be opened.
//
// It decides what an exit status means; how a script is found, run and ended is
// package script's decision. The meanings are keepalived's (facts 4.13):
//
//	status   misc_path  with misc_dynamic
//	0        well       well, at the configured weight
//	1        failed     failed
//	2..255   failed     well, at the weight status - 2
//
// The end by a signal is a failure, and so is a timeout, whatever the script made
// of SIGTERM. The weight is told with each outcome anew, never as a change to an
// earlier one, so that no series of outcomes can add up.
//
// # Decisions
//
// A script that could not be started is Unable: the last verdict stays and an
// alarm is raised. That goes for a script that is missing, not executable or
// refused by script security, for an interpreter that is not there, an unknown
// user, and a fork for which there are no resources. The server was not asked, and
// it is this machine that must be mended. It is on purpose not what keepalived
// does: there a failed exec is a success, a script that is missing or refused at
// the start takes its checker out of the server, which then counts as well, and
// after a failed fork a checker never runs again.
//
// The timeout is the script's alone. A script that was started so late that the
// deadline of the run cut it short is Unable as well.
//
// Statuses 126 and 127 mean no more than others. keepalived makes 0 of them when a
// shell ran the script, and here none does.
//
// The first line of what the script printed is part of the reason, since the
// status alone rarely tells an operator what is wrong.
package misc

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
	"unicode"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/script"
)

// Overtime is how much longer than Misc.Timeout a run may take: SIGTERM and two
// seconds until SIGKILL, then what a busy machine needs to end a process. The
// deadline of a run must leave it that.
const Overtime = script.DefaultKillAfter + 3*time.Second

// maxLine is how many characters of a script's output are shown.
const maxLine = 160

// Options are what the whole daemon knows of scripts.
type Options struct {
	// Identity is asked before each run; nil for none set.
	Identity func() script.Identity
	// Warn is told of things to mend that did not keep a script from running, of
	// each once; nil for nobody.
	Warn func(warning string)
}

type probe struct {
	misc   *config.Misc
	opts   Options
	run    func(context.Context, script.Command) script.Result
	warned map[string]bool
}

// New returns the probe of a MISC_CHECK.
func New(c *config.Checker, o Options) (checker.Probe, error) {
	if c.Misc == nil || c.Misc.Script == nil || len(c.Misc.Script.Argv) == 0 {
		return nil, errors.New("MISC_CHECK has no misc_path, so that there is nothing to run")
	}
	if o.Identity == nil {
		o.Identity = func() script.Identity { return script.Identity{} }
	}
	p := &probe{misc: c.Misc, opts: o, run: script.Run, warned: map[string]bool{}}
	if script.IsFileTest(c.Misc.Script) {
		p.run = script.TestFile
	}
	return p, nil
}

// Run runs the script once.
func (p *probe) Run(ctx context.Context) checker.Outcome {
	began := time.Now()
	r := p.run(ctx, script.Command{Script: p.misc.Script, Identity: p.opts.Identity(), Timeout: p.misc.Timeout})
	for _, w := range r.Warnings {
		if p.opts.Warn != nil && !p.warned[w] {
			p.warned[w] = true
			p.opts.Warn(w)
		}
	}
	o := outcome(p.misc, r, time.Since(began))
	// The deadline leaves the script its time, so it was lost elsewhere.
	if r.Stopped && errors.Is(ctx.Err(), context.DeadlineExceeded) {
		o.Reason = fmt.Sprintf("this machine is too busy: the script had only %v of its %v", r.Took.Round(time.Millisecond), p.misc.Timeout)
		o.Fault.Timeout = true
	}
	p.tell(checker.TraceOf(ctx), r)
	return o
}

// tell adds what became of the script to a transcript.
func (p *probe) tell(t *checker.Trace, r script.Result) {
	if t == nil {
		return
	}
	path := target(p.misc)
	if r.Err != nil {
		t.Tell(checker.StagePrepare, "script %s is not run", path)
		return
	}
	t.Tell(checker.StageScript, "script %s: %s after %s", path, r.Ended(), checker.Elapsed(r.Took))
	if r.Output != "" {
		t.Tell(checker.StageScript, "it printed %s", checker.Excerpt([]byte(r.Output)))
	}
}

// target is the script's path, or the tested file's: arguments may be secret.
func target(m *config.Misc) string {
	if m.Script == nil || len(m.Script.Argv) == 0 {
		return ""
	}
	path := strings.TrimPrefix(m.Script.Argv[0], "<")
	if path == "" && len(m.Script.Argv) > 1 { // "< /path"
		path = m.Script.Argv[1]
	}
	return path
}

// outcome says what a script's end means, took after its start.
func outcome(m *config.Misc, r script.Result, took time.Duration) checker.Outcome {
	path := target(m)
	bad := checker.Problem{
		Site: checker.Site{Stage: checker.StageScript, Step: "script", Peer: path}, Result: checker.Failed,
		Got: r.Ended(), Want: "0", Took: took,
	}
	if line := firstLine(r.Output); line != "" {
		bad.Note = ": " + line
	}
	switch {
	case r.Err != nil && !r.Stopped:
		o := checker.Outcome{Result: checker.Unable, Reason: "script is not run: " + r.Err.Error(), Took: took}
		o.Fault = &checker.Fault{Stage: checker.StagePrepare, Target: path}
		o.Fault.Errno, _ = errors.AsType[syscall.Errno](r.Err)
		return o
	case r.TimedOut && r.Err == nil:
		bad.Got, bad.Want, bad.Timeout = "", "", true
		bad.Text = fmt.Sprintf("timed out at its misc_timeout of %v", m.Timeout)
		if r.Forced {
			bad.Text += ", and SIGTERM did not end it"
		}
		bad.Quoted = true
	case r.Stopped:
		o := checker.Cancelled(checker.StageScript, path)
		o.Took = took
		return o
	case r.Signal != 0:
		bad.Got = fmt.Sprintf("ended by %s (%v)", unix.SignalName(r.Signal), r.Signal)
	case r.Code == 0:
		return checker.Outcome{Result: checker.OK, Reason: r.Ended() + bad.Note, Took: took}
	case m.Dynamic && r.Code > 1:
		weight := int64(r.Code) - 2
		return checker.Outcome{
			Result: checker.OK, Weight: weight, Weighted: true,
			Reason: fmt.Sprintf("%s, weight %d%s", r.Ended(), weight, bad.Note), Took: took,
		}
	}
	if m.Dynamic {
		bad.Want = "0 or 2..255"
	}
	return bad.Outcome()
}

// firstLine is the first line that says something, fit for a log and a terminal.
func firstLine(output string) string {
	var line string
	for l := range strings.Lines(output) {
		if line = strings.TrimSpace(l); line != "" {
			break
		}
	}
	line = strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, line)
	if all := []rune(line); len(all) > maxLine {
		line = string(all[:maxLine-3]) + "..."
	}
	return line
}
