package checker

import "github.com/sluice-lb/sluice/internal/config"

// Step is a part of a connection's life, for reasons and statistics.
type Step int

// Steps of a connection, in their order.
const (
	StepConnect Step = iota
	StepSend
	StepReceive
)

// Conversation is a Probe that somebody else can lead without blocking: it says what
// to connect to, what to send and what it makes of the answer, and does no I/O
// itself. Whoever leads it, a goroutine with a connection of package dial or the
// reactor, a run is
//
//	Begin, then for each connection: Connected, Received..., at most one Ended; Next
//
// until Next returns no further connection. One run at a time; a run that is given
// up is just not led any further, and the next Begin starts afresh. None of the
// methods blocks, and none but Ended, and Next after a failure, allocates in a
// steady state.
type Conversation interface {
	Probe
	// Begin starts a run and returns the connection to make first, nil for none: then
	// Next is called, whose outcome is that of the run.
	Begin() *config.Connection
	// Connected says that the connection stands. send is what to say, nil for
	// nothing, and it should not be nothing where an answer is expected: the reactor has
	// it carry the end of the handshake. It is valid until Next and must not be written to. Without listen the
	// connection is over once send was sent, and Next is called.
	Connected() (send []byte, listen bool)
	// Received takes what the peer sent; p is valid during the call only. done: no
	// more is wanted of this connection, and Next is called.
	Received(p []byte) (done bool)
	// Ended says that the connection ended by itself: io.EOF when the peer closed it,
	// a *dial.Error when it could not be made, else a syscall.Errno or
	// os.ErrDeadlineExceeded. After a failed send, if listen was set, what the peer
	// had sent before is read first, to its end: only if that was not enough is Ended
	// called, with StepSend and the error of the send. Next is called.
	Ended(step Step, err error)
	// Next says, after a connection, what comes now: another connection, or nil and
	// the outcome of the run. Its Took may be 0: the leader knows it.
	Next() (*config.Connection, Outcome)
}
