// Package ping is PING_CHECK: the target is well when it answers an ICMP or ICMPv6
// echo request.
//
// # Decisions
//
// The request goes out through an ICMP datagram socket, which needs no capability
// but a process group inside net.ipv4.ping_group_range (for IPv6 too). Where the
// kernel refuses that, through a raw socket, which needs CAP_NET_RAW. Where it
// refuses both, the check is Unable, and the servers stay as they are: it is not
// their fault. The sysctl is not touched; keepalived widens it when it reads a
// PING_CHECK. Both are tried anew each time, so that a sysctl which is put right
// helps at once. Usable asks the same question ahead, for one message at the start.
//
// A request carries 128 octets of data and a sequence number that rises by one with
// each. The answer is an echo reply of the target's own address with that number,
// and on a raw socket, which receives everybody's, with our identifier. Its data are
// not looked at. What else comes is ignored and waiting goes on to the deadline: a
// late reply to an earlier request says nothing against the server. keepalived
// fails on it, so that one slow reply can make all that follow fail. Each run has a
// socket of its own, to which late replies do not come; keepalived keeps one open.
//
// An ICMP error of whatever type about our request is a failure at once, since the
// request did not arrive. On a raw socket errors about other people's requests to
// the target come too, and are told apart by what they quote.
//
// fwmark is applied, which keepalived leaves out. connect_port and bind_port mean
// nothing to ICMP; keepalived would make the latter the identifier.
package ping

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"golang.org/x/net/icmp"
	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/config"
)

const (
	protocolICMP, protocolICMPv6 = 1, 58

	dataLen = 128
	// maxStray is how many replies to us, but not to this request, a run reads.
	maxStray = 1000
	// maxReply has room for the longest IPv4 header, the echo header and the data.
	maxReply = 60 + 8 + dataLen
)

// data is what is sent. Nothing depends on it.
var data = func() (d [dataLen]byte) {
	for i := range d {
		d[i] = byte(i)
	}
	return d
}()

type probe struct {
	conn   config.Connection
	target string
	six    bool
	// id is the identifier on a raw socket; a datagram socket has the kernel's.
	id, seq uint16
	open    opener
	reply   [maxReply]byte
}

// New returns the probe of a PING_CHECK.
func New(c *config.Checker) checker.Probe {
	addr := c.Conn.Target.Addr().Unmap()
	return &probe{conn: c.Conn, target: addr.String(), six: addr.Is6(), id: uint16(rand.Uint32()), open: dial.ICMP}
}

// Run sends one request.
func (p *probe) Run(ctx context.Context) checker.Outcome {
	began := time.Now()
	sock, raw, err := open(ctx, &p.conn, p.open)
	if err != nil {
		o := p.failed(checker.StagePrepare, "open an ICMP socket to", err, began)
		if e, ok := errors.AsType[*socketError](err); ok {
			o.Reason = "ping " + p.target + ": " + e.Error()
		}
		return o
	}
	defer sock.Close()
	p.seq++
	request, err := p.request()
	if err == nil {
		err = sock.Send(request)
	}
	if err != nil {
		return p.failed(checker.StageSend, "send an echo request to", err, began)
	}
	trace := checker.TraceOf(ctx)
	if trace != nil {
		trace.Tell(checker.StageSend, "sent an echo request, sequence %d, %d octets of data", p.seq, dataLen)
	}
	if stray, err := p.await(sock, raw); err != nil {
		o := p.failed(checker.StageReply, "echo reply from", err, began)
		if stray > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
			o.Reason += fmt.Sprintf(", %d replies to other requests were ignored", stray)
		}
		return o
	}
	if trace != nil {
		trace.Tell(checker.StageReply, "echo reply to sequence %d", p.seq)
	}
	return checker.Outcome{Result: checker.OK, Reason: "echo reply", Took: time.Since(began)}
}

// failed is the outcome of a step that failed.
func (p *probe) failed(stage checker.Stage, step string, err error, began time.Time) checker.Outcome {
	return dial.Outcome(checker.Site{Stage: stage, Step: step, Peer: p.target}, err, began)
}

// request is the message to send. The kernel fills in what it says of the sender:
// the identifier of datagram sockets and ICMPv6's checksum.
func (p *probe) request() ([]byte, error) {
	m := icmp.Message{Type: ipv4.ICMPTypeEcho, Body: &icmp.Echo{ID: int(p.id), Seq: int(p.seq), Data: data[:]}}
	if p.six {
		m.Type = ipv6.ICMPTypeEchoRequest
	}
	return m.Marshal(nil)
}

// await reads until the reply has come. stray are those to us, but to another
// request.
func (p *probe) await(sock *dial.Datagram, raw bool) (stray int, err error) {
	for stray < maxStray {
		n, err := sock.Receive(p.reply[:])
		if err != nil {
			if q, ok := errors.AsType[*dial.QueuedError](err); ok && raw && !p.quotes(q.Quote) {
				continue
			}
			return stray, err
		}
		message := p.reply[:min(n, len(p.reply))]
		if raw && !p.six {
			message = skipIPv4Header(message)
		}
		id, seq, ok := parseReply(message, p.six)
		switch {
		case !ok || raw && id != p.id: // somebody else's
		case seq == p.seq:
			return stray, nil
		default:
			stray++
		}
	}
	return stray, fmt.Errorf("flooded, none of %d replies is to this request", maxStray)
}

// skipIPv4Header returns what is behind the header, nil if that is nothing.
func skipIPv4Header(b []byte) []byte {
	if len(b) == 0 {
		return nil
	}
	if n := int(b[0]&0xf) * 4; n >= ipv4.HeaderLen && n < len(b) {
		return b[n:]
	}
	return nil
}

// parseReply reads an echo reply; ok is false for anything else.
func parseReply(b []byte, six bool) (id, seq uint16, ok bool) {
	protocol, reply := protocolICMP, icmp.Type(ipv4.ICMPTypeEchoReply)
	if six {
		protocol, reply = protocolICMPv6, ipv6.ICMPTypeEchoReply
	}
	m, err := icmp.ParseMessage(protocol, b)
	if err != nil || m.Type != reply || m.Code != 0 {
		return 0, 0, false
	}
	echo, ok := m.Body.(*icmp.Echo)
	if !ok {
		return 0, 0, false
	}
	return uint16(echo.ID), uint16(echo.Seq), true
}

// quotes tells whether an ICMP error on a raw socket is about our request. What is
// too short to tell is taken for ours.
func (p *probe) quotes(quote []byte) bool {
	if len(quote) < 8 {
		return true
	}
	return quote[4] == byte(p.id>>8) && quote[5] == byte(p.id) && quote[6] == byte(p.seq>>8) && quote[7] == byte(p.seq)
}
