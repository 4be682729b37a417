// Package tcp is TCP_CHECK: the target is well when a connection to it can be
// made. Nothing is sent and nothing is read; the connection is closed normally
// at once (see checker/dial for the exception with a fixed source port), as
// keepalived does. A peer that sent a greeting in the meantime sees a reset, since
// the kernel answers unread data that way.
package tcp

import (
	"context"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/config"
)

type probe struct {
	conn   config.Connection
	target string
}

// New returns the probe of a TCP_CHECK.
func New(c *config.Checker) checker.Probe {
	return &probe{conn: c.Conn, target: c.Conn.Target.String()}
}

// Run connects once.
func (p *probe) Run(ctx context.Context) checker.Outcome {
	began := time.Now()
	conn, err := dial.TCP(ctx, &p.conn)
	if err != nil {
		return dial.Outcome("connect to", p.target, err, began)
	}
	took := time.Since(began)
	// Whether the close went well says nothing about the server.
	_ = conn.Close()
	return checker.Outcome{Result: checker.OK, Reason: "connected", Took: took}
}
