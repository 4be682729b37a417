package dial

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

// Wrap puts a layer, such as TLS, upon a connection before anything is said. Its
// error goes to the conversation as that of the connect. What it returns is closed
// before the connection, if it can be.
type Wrap func(*Conn) (io.ReadWriter, error)

// stages are the steps of a connection as faults have them.
var stages = [...]checker.Stage{
	checker.StepConnect: checker.StageConnect, checker.StepSend: checker.StageSend, checker.StepReceive: checker.StageReply,
}

// tellSent tells what was sent, or that it could not be.
func tellSent(t *checker.Trace, p []byte, err error) {
	if err != nil {
		t.Tell(checker.StageSend, "sending %d bytes failed: %s", len(p), explain(err))
		return
	}
	t.Tell(checker.StageSend, "sent %d bytes: %s", len(p), checker.Excerpt(p))
}

// buffers are for reading: an idle probe holds none.
var buffers = sync.Pool{New: func() any { return new([4096]byte) }}

// Converse leads one run of a conversation and blocks until its outcome. Each
// connection has its own deadline, as with TCP. wrap may be nil. The outcome's Took
// is that of the whole run. A trace is told, besides what is sent and received, the
// Verdict() string that a conversation may have of each connection.
func Converse(ctx context.Context, c checker.Conversation, wrap Wrap) checker.Outcome {
	began, trace := time.Now(), checker.TraceOf(ctx)
	for conn := c.Begin(); ; {
		if conn == nil { // nothing to ask
			_, o := c.Next()
			o.Took = time.Since(began)
			return o
		}
		if step, err := onConnection(ctx, c, conn, wrap); err != nil {
			if ctx.Err() == context.Canceled {
				// It may have ended by that, so it says nothing.
				o := checker.Cancelled(stages[step], conn.Target.String())
				o.Took = time.Since(began)
				return o
			}
			c.Ended(step, err)
		}
		if v, ok := c.(interface{ Verdict() string }); ok && trace != nil {
			if text := v.Verdict(); text != "" {
				trace.Tell(checker.StageReply, "%s", text)
			}
		}
		var o checker.Outcome
		if conn, o = c.Next(); conn == nil {
			o.Took = time.Since(began)
			return o
		}
	}
}

// onConnection is one connection of a conversation. The error is what ended it, nil when
// the conversation did.
func onConnection(ctx context.Context, c checker.Conversation, to *config.Connection, wrap Wrap) (checker.Step, error) {
	tcp, err := TCP(ctx, to)
	if err != nil {
		return checker.StepConnect, err
	}
	defer tcp.Close() // whether it went well says nothing about the server
	var conn io.ReadWriter = tcp
	if wrap != nil {
		if conn, err = wrap(tcp); err != nil {
			return checker.StepConnect, err
		}
		if layer, ok := conn.(io.Closer); ok {
			defer layer.Close() // as above
		}
	}
	send, listen := c.Connected()
	var sent error
	if len(send) > 0 {
		_, sent = conn.Write(send)
		if tcp.trace != nil {
			tellSent(tcp.trace, send, sent)
		}
	}
	if !listen {
		return checker.StepSend, sent
	}
	// After a failed send too: the peer may have answered and closed without reading.
	buf := buffers.Get().(*[4096]byte)
	defer buffers.Put(buf)
	heard := tcp.trace.Hear()
	defer heard.End()
	for {
		n, err := conn.Read(buf[:])
		heard.Add(buf[:n])
		if n > 0 && c.Received(buf[:n]) {
			return checker.StepReceive, nil
		}
		switch {
		case err == nil:
		case sent != nil:
			return checker.StepSend, sent
		default:
			return checker.StepReceive, err
		}
	}
}
