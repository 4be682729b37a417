// Package tcp is TCP_CHECK: the target is well when a connection to it can be
// made. Nothing is sent and nothing is read; the connection is closed normally
// at once, or by reset if checker_close says so (see checker/dial for the other
// exception, a fixed source port), as keepalived does. A peer that sent a greeting
// in the meantime sees a reset, since the kernel answers unread data that way.
package tcp

import (
	"context"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/config"
)

// probe is led by a reactor or by its own Run. There are as many as real servers, so
// that it is three words.
type probe struct {
	conn *config.Connection
	// Of the run under way, if others lead it: when it began, since epoch, and once it
	// has failed its outcome.
	began  time.Duration
	failed *checker.Outcome
}

// epoch is what probes count from: a duration takes a third of a time's room, and is
// as monotonic.
var epoch = time.Now()

var (
	_ checker.Probe        = (*probe)(nil)
	_ checker.Conversation = (*probe)(nil)
)

// New returns the probe of a TCP_CHECK. The configuration must not change any more.
func New(c *config.Checker) checker.Probe { return &probe{conn: &c.Conn} }

var connected = checker.Outcome{Result: checker.OK, Reason: "connected"}

func (p *probe) outcome(err error, began time.Time) checker.Outcome {
	return dial.Outcome(checker.Site{Stage: checker.StageConnect, Step: "connect to", Peer: p.conn.Target.String()}, err, began)
}

// Run connects once.
func (p *probe) Run(ctx context.Context) checker.Outcome {
	began := time.Now()
	conn, err := dial.TCP(ctx, p.conn)
	if err != nil {
		return p.outcome(err, began)
	}
	o := connected
	o.Took = time.Since(began)
	// Whether the close went well says nothing about the server.
	_ = conn.Close()
	return o
}

// Begin asks for the one connection.
func (p *probe) Begin() *config.Connection {
	p.began, p.failed = time.Since(epoch), nil
	return p.conn
}

// Connected has nothing to say and nothing to hear.
func (p *probe) Connected() (send []byte, listen bool) { return nil, false }

// Received is not called.
func (p *probe) Received([]byte) (done bool) { return true }

// Ended keeps why there was no connection.
func (p *probe) Ended(_ checker.Step, err error) {
	o := p.outcome(err, epoch.Add(p.began))
	p.failed = &o
}

// Next ends the run.
func (p *probe) Next() (*config.Connection, checker.Outcome) {
	o := connected
	if p.failed != nil {
		o, p.failed = *p.failed, nil
	}
	return nil, o
}
