package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// unanswered reports whether the kernel, or the way to it, did not answer. A refusal is
// an answer.
func unanswered(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, ipvs.ErrUnknownResult) || errors.Is(err, fs.ErrClosed)
}

// redialDue reports whether the connection that did not answer is to be replaced now.
func (e *Engine) redialDue(now time.Time) bool {
	return e.connected && e.stuck && !now.Before(e.retryAt)
}

// redial replaces a connection that did not answer. What is ours and what is due stays;
// the whole of our services is compared, since nobody knows what was done.
func (e *Engine) redial(ctx context.Context) error {
	conn, err := e.opts.Dial(ctx)
	if err != nil {
		return fmt.Errorf("the kernel did not answer, and a new connection fails: %w", err)
	}
	was := e.conn
	e.conn, e.stuck = conn, false
	e.applier.Connect(conn)
	e.reconcile.due = true
	if c, ok := was.(io.Closer); ok && was != conn {
		_ = c.Close() // what it holds is lost anyhow
	}
	e.log.Info("Connected to the IPVS table anew, since it did not answer", event.Key, event.KernelBack)
	return nil
}
