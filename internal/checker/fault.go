package checker

import (
	"fmt"
	"syscall"
	"time"
)

// Stage is how far a check came, for reasons and for counting.
type Stage uint8

// Stages of a check.
const (
	// StagePrepare: what this machine does before anything is sent: descriptors, a
	// source address, a mark, an interface, the slot of a script.
	StagePrepare Stage = iota
	// StageConnect: until the connection stands.
	StageConnect
	// StageTLS: the handshake, certificates included.
	StageTLS
	// StageSend: what is asked.
	StageSend
	// StageReply: reading the answer, as far as its form goes: nothing came, too
	// little, not what the protocol has.
	StageReply
	// StageStatus: the answer's code is another than expected (HTTP, SMTP, DNS's
	// rcode).
	StageStatus
	// StageBody: the answer's content is another than expected.
	StageBody
	// StageScript: a script that was run, and how it ended.
	StageScript
	// Stages is how many there are.
	Stages
)

var stageNames = [Stages]string{"prepare", "connect", "tls", "send", "reply", "status", "body", "script"}

// String returns the name that metrics and JSON have.
func (s Stage) String() string {
	if s < Stages {
		return stageNames[s]
	}
	return fmt.Sprintf("stage %d", uint8(s))
}

// Fault is a failure in parts, for who wants to compare rather than to read. It holds
// nothing secret: no argument of a script, no header.
type Fault struct {
	Stage Stage
	// Target is what was asked: "10.0.0.1:80", "http://10.0.0.1:80/health", the path of
	// a script. It is "" where a probe did not return, or panicked: who ran it does not
	// know.
	Target string
	// Want and Got are what was expected and what came instead; "" where that is just
	// an answer, or none.
	Want, Got string
	// Errno is the system call's, 0 for none; Timeout: the deadline ended it.
	Errno   syscall.Errno
	Timeout bool
}

// Site is the step of a check in which something went wrong, and with whom.
type Site struct {
	Stage Stage
	// Step is that step in words which the peer follows: "connect to", "url /health:
	// body from". Peer is how reasons call it.
	Step, Peer string
	// Target is how faults call it; "" for Peer.
	Target string
}

// Problem is a check that did not go well, as who found that knows it.
type Problem struct {
	Site
	// Result is Failed or Unable.
	Result Result
	// Got, Want, Errno and Timeout are the Fault's.
	Got, Want string
	Errno     syscall.Errno
	Timeout   bool
	// Text is what the reason has in place of Got and Want.
	Text string
	// Quoted: the text may be what the peer said, so that a comma parts it from the
	// time.
	Quoted bool
	// Note stands behind the time.
	Note string
	Took time.Duration
}

// Outcome makes the reason and the fault of a problem. It is the one place where
// probes get both, so that they cannot say different things.
func (p *Problem) Outcome() Outcome {
	text, after := p.Text, " after "
	if text == "" {
		text = expected(p.Got, p.Want)
	}
	if p.Want != "" || p.Quoted {
		after = ", after "
	}
	target := p.Target
	if target == "" {
		target = p.Peer
	}
	return Outcome{
		Result: p.Result,
		Reason: p.Step + " " + p.Peer + ": " + text + after + Elapsed(p.Took) + p.Note,
		Took:   p.Took,
		Fault: &Fault{
			Stage: p.Stage, Target: target, Want: p.Want, Got: p.Got, Errno: p.Errno, Timeout: p.Timeout,
		},
	}
}

// Cancelled is the outcome of a probe whose context was cancelled in a step.
func Cancelled(stage Stage, target string) Outcome {
	return Outcome{Result: Unable, Reason: "cancelled", Fault: &Fault{Stage: stage, Target: target}}
}

// Mismatch is the error of an answer that is another than expected.
type Mismatch struct {
	Got, Want string
	// Text says it in other words than "Got, expected Want"; "" for those.
	Text string
}

func (m *Mismatch) Error() string {
	if m.Text != "" {
		return m.Text
	}
	return expected(m.Got, m.Want)
}

func expected(got, want string) string {
	if want == "" {
		return got
	}
	return got + ", expected " + want
}

// Elapsed rounds a duration for messages to about three digits.
func Elapsed(d time.Duration) string {
	switch {
	case d >= time.Second:
		d = d.Round(10 * time.Millisecond)
	case d >= time.Millisecond:
		d = d.Round(10 * time.Microsecond)
	default:
		d = d.Round(time.Microsecond)
	}
	return d.String()
}
