package checker

import (
	"fmt"
	"syscall"
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
	// a script.
	Target string
	// Want and Got are what was expected and what came instead; "" where that is just
	// an answer, or none.
	Want, Got string
	// Errno is the system call's, 0 for none; Timeout: the deadline ended it.
	Errno   syscall.Errno
	Timeout bool
}
