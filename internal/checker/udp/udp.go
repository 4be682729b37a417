// Package udp is UDP_CHECK: send one datagram to the target and judge what comes
// back, or that nothing does.
//
// # Decisions
//
// The verdicts are keepalived's:
//
//	                              no require_reply  require_reply  require_reply HEX
//	nothing until the deadline    success           failure        failure
//	destination unreachable       failure           failure        failure
//	another error of the network  success           success        failure
//	a datagram                    success           success        length and octets decide
//
// "Destination unreachable" is the ICMP or ICMPv6 message with whatever code, from
// whomever: port, host and network unreachable and the prohibitions of a firewall.
// A neighbour that does not answer ARP or neighbour discovery makes this machine
// itself send one, after about three seconds, so that a powered-off host on the
// same network is seen if connect_timeout is longer. Beyond a router there may be
// no message at all, and servers limit the rate of theirs: a check without
// require_reply cannot tell a dead host from a silent one, and is best paired with
// a PING_CHECK.
//
// Without HEX neither the length nor the octets of an answer count, not even
// min_reply_length and max_reply_length. With HEX the octets are compared as far as
// both answer and HEX go: a longer answer matches by its beginning, a shorter one
// if what came is right, an empty one if min_reply_length is 0. The first answer
// decides; there is no second one to wait for.
//
// What does not concern the server is told apart, which keepalived does not do for
// this check: a source address or interface that is not there, a datagram that a
// local firewall does not let out or that is too long to be sent, are Unable.
//
// The payload where none is configured is the one that keepalived sends, since
// servers may be set up to answer it.
//
// Of an answer only as much is read as HEX is long; the kernel tells its length.
package udp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/config"
)

// defaultPayload is 32 octets of a phrase, repeated.
var defaultPayload = bytes.Repeat([]byte("keepalived check - "), 2)[:32]

type probe struct {
	conn   config.Connection
	target string
	config.Datagram
	answer []byte // room for what is compared
}

// New returns the probe of a UDP_CHECK.
func New(c *config.Checker) checker.Probe {
	p := &probe{conn: c.Conn, target: c.Conn.Target.String()}
	if c.UDP != nil {
		p.Datagram = *c.UDP
	}
	if len(p.Payload) == 0 {
		p.Payload = defaultPayload
	}
	p.answer = make([]byte, len(p.Reply))
	return p
}

// Run sends one datagram. Without require_reply a success lasts until the deadline
// unless an answer comes.
func (p *probe) Run(ctx context.Context) checker.Outcome {
	began := time.Now()
	sock, err := dial.UDP(ctx, &p.conn)
	if err != nil {
		return p.failed(checker.StageConnect, "connect to", err, began)
	}
	defer sock.Close()
	if err := sock.Send(p.Payload); err != nil {
		return p.failed(checker.StageSend, fmt.Sprintf("send %d octets to", len(p.Payload)), err, began)
	}
	trace := checker.TraceOf(ctx)
	if trace != nil {
		trace.Tell(checker.StageSend, "sent %d octets: %s", len(p.Payload), checker.Excerpt(p.Payload))
	}
	n, err := sock.Receive(p.answer)
	if err != nil {
		return p.silence(err, began)
	}
	if trace != nil {
		trace.Tell(checker.StageReply, "received %d octets, compared: %s", n, checker.Excerpt(p.answer[:min(n, len(p.answer))]))
	}
	if err := p.judge(n, p.answer); err != nil {
		return p.failed(checker.StageBody, "reply from", err, began)
	}
	return checker.Outcome{Result: checker.OK, Reason: fmt.Sprintf("reply of %d octets", n), Took: time.Since(began)}
}

// silence judges that an error came instead of an answer.
func (p *probe) silence(err error, began time.Time) checker.Outcome {
	if errors.Is(err, os.ErrDeadlineExceeded) && !p.Require {
		return checker.Outcome{Result: checker.OK, Reason: "no error and no reply, and none is required", Took: time.Since(began)}
	}
	o := p.failed(checker.StageReply, "reply from", err, began)
	if queued, ok := errors.AsType[*dial.QueuedError](err); ok && !queued.Unreachable() && p.Reply == nil {
		return checker.Outcome{Result: checker.OK, Reason: o.Reason + ", which is taken for an answer", Took: o.Took}
	}
	return o
}

// failed is the outcome of a step that failed.
func (p *probe) failed(stage checker.Stage, step string, err error, began time.Time) checker.Outcome {
	return dial.Outcome(checker.Site{Stage: stage, Step: step, Peer: p.target}, err, began)
}

// judge compares an answer of n octets with what is required. got has its first
// octets, at least as many as are compared.
func (p *probe) judge(n int, got []byte) error {
	if !p.Require || p.Reply == nil {
		return nil
	}
	if n < p.Min || n > p.Max {
		return &checker.Mismatch{Got: fmt.Sprintf("%d octets", n), Want: fmt.Sprintf("%d to %d", p.Min, p.Max)}
	}
	for i := range min(n, len(p.Reply)) {
		if (got[i]^p.Reply[i])&p.Mask[i] != 0 {
			return &checker.Mismatch{Got: fmt.Sprintf("octet %d is %s", i, hex(got[i], 0xff)), Want: hex(p.Reply[i], p.Mask[i])}
		}
	}
	return nil
}

// hex writes an octet as in the configuration, with X for a nibble that does not
// count.
func hex(b, mask byte) string {
	const digits = "0123456789abcdef"
	text := [2]byte{digits[b>>4], digits[b&0xf]}
	if mask&0xf0 == 0 {
		text[0] = 'X'
	}
	if mask&0x0f == 0 {
		text[1] = 'X'
	}
	return string(text[:])
}
