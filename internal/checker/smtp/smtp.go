// Package smtp is SMTP_CHECK: the target is well when it greets with 220, answers
// HELO with 250 and answers QUIT at all. Nothing is mailed.
//
// It decides what an answer is and whether it is the right one. It deliberately
// does not know how often a check is repeated: the count of failures is the
// engine's, the same for every kind of checker, where keepalived's SMTP_CHECK has a
// loop of its own that also probes a dead server retry + 1 times each round.
//
// # Decisions
//
// Nothing is sent before the greeting is complete, however many lines it has. A
// line with a hyphen after its code is continued by the next one; all lines of an
// answer have the same code. The code may be followed by a blank or by the end of
// the line, which is LF with or without CR. keepalived knows one line alone: it
// fails a greeting of several lines and a code without a text.
//
// One deadline, connect_timeout, holds from the connect to the answer to QUIT, as
// for HTTP_GET. keepalived gives it to each of the four steps anew, and to each
// segment of a line, so that a server which dribbles is well for ever. Who relies
// on a slow server that uses up several times its connect_timeout raises it.
//
// The answer to QUIT counts whatever its code is, and may be any line, as in
// keepalived: the server is about to go. That it comes is the proof that the
// dialogue worked.
//
// A server that speaks before it is asked is taken at its word: what has come
// counts as the answer to the next command. Whether a byte was sent before or after
// the command was cannot be told here, and a verdict must not depend on how the
// network cuts a stream. For the same reason a command that cannot be sent is a
// failure only if no answer has come: a server may say why it hangs up, and then
// hang up.
//
// A wrong code still gets a QUIT, which is not waited for: mail servers log a
// client that just vanishes.
//
// Lines and their number are bounded (MaxLine, MaxLines), and no more than one line
// is ever kept.
package smtp

import (
	"bufio"
	"context"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/config"
)

// Codes of RFC 5321, section 4.2.3.
const (
	codeReady = 220
	codeOK    = 250
)

const quit = "QUIT\r\n"

type probe struct {
	conn   config.Connection
	target string
	helo   string
}

// New returns the probe of an SMTP_CHECK.
func New(c *config.Checker) checker.Probe {
	p := &probe{conn: c.Conn, target: c.Conn.Target.String()}
	name := config.DefaultHelo
	if c.SMTP != nil && c.SMTP.Helo != "" {
		name = c.SMTP.Helo
	}
	p.helo = "HELO " + name + "\r\n"
	return p
}

// readers are of use while a check runs: an idle probe holds none.
var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, MaxLine) }}

// Run holds the dialogue once.
func (p *probe) Run(ctx context.Context) checker.Outcome {
	began := time.Now()
	conn, err := dial.TCP(ctx, &p.conn)
	if err != nil {
		return dial.Outcome(checker.Site{Stage: checker.StageConnect, Step: "connect to", Peer: p.target}, err, began)
	}
	// Whether the close went well says nothing about the server.
	defer conn.Close()
	r := readers.Get().(*bufio.Reader)
	r.Reset(conn)
	defer func() {
		r.Reset(nil)
		readers.Put(r)
	}()
	d := dialogue{probe: p, ctx: ctx, began: began, w: conn, r: r, trace: conn.Trace()}

	banner, o := d.step("banner", "", codeReady)
	if o != nil {
		return *o
	}
	if _, o = d.step("answer to HELO", p.helo, codeOK); o != nil {
		return *o
	}
	if o = d.quit(); o != nil {
		return *o
	}
	return checker.Outcome{Result: checker.OK, Reason: "banner " + banner.String(), Took: time.Since(began)}
}

// dialogue is one run on its connection.
type dialogue struct {
	*probe
	ctx   context.Context
	began time.Time
	w     io.Writer
	r     *bufio.Reader
	trace *checker.Trace
}

// step sends a command, if there is one, and reads an answer, which must have the
// code. The outcome is nil if it has.
func (d *dialogue) step(name, command string, code int) (reply, *checker.Outcome) {
	sent := d.send(command)
	a, err := readReply(d.r)
	switch {
	case err != nil && sent != nil:
		return a, d.failed(checker.StageSend, "send "+command[:4]+" to", sent)
	case err != nil:
		return a, d.failed(checker.StageReply, name+a.progress(err)+" from", err)
	}
	if d.trace != nil {
		d.trace.Tell(checker.StageReply, "%s: %s", name, a)
	}
	if a.code != code {
		_ = d.send(quit) // out of politeness
		return a, d.failed(checker.StageStatus, name+" from", &checker.Mismatch{Got: a.String(), Want: strconv.Itoa(code)})
	}
	return a, nil
}

// quit sends QUIT and waits for a line.
func (d *dialogue) quit() *checker.Outcome {
	sent := d.send(quit)
	line, err := readLine(d.r)
	switch {
	case err == nil:
		if d.trace != nil {
			d.trace.Tell(checker.StageReply, "answer to QUIT: %s", quote(line))
		}
		return nil
	case sent != nil:
		return d.failed(checker.StageSend, "send QUIT to", sent)
	}
	return d.failed(checker.StageReply, "answer to QUIT"+reply{rest: len(line)}.progress(err)+" from", err)
}

func (d *dialogue) send(command string) error {
	if command == "" {
		return nil
	}
	_, err := io.WriteString(d.w, command)
	if d.trace != nil {
		d.trace.Tell(checker.StageSend, "sent %q", command)
	}
	return err
}

// failed is the outcome of a step that failed: the connection did, or the answer is
// not the right one.
func (d *dialogue) failed(stage checker.Stage, step string, err error) *checker.Outcome {
	// A cancelled connection ends by its deadline.
	if d.ctx.Err() == context.Canceled {
		err = d.ctx.Err()
	}
	o := dial.Outcome(checker.Site{Stage: stage, Step: step, Peer: d.target}, err, d.began)
	return &o
}
