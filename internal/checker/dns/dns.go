// Package dns is DNS_CHECK: ask the target one question by UDP, and take any answer
// without an error code for health.
//
// # Decisions
//
// The question has a random identifier, recursion desired, the class IN and no
// EDNS, as keepalived's. The name is sent as written, in its case of letters and
// with a backslash as an ordinary octet. One that no query can carry, with a label
// of more than 63 octets or of more than 255 in all, is refused when the probe is
// made; keepalived sends it.
//
// Of an answer only the header is read: it is the target's if it has at least 12
// octets, the identifier of the question and the QR bit, and then RCODE alone is
// the verdict. An empty answer (NODATA), a truncated or a lame one is success, as in
// keepalived. So nothing of what a hostile server can put behind the header, like
// names that are compressed in a circle, is ever looked at.
//
// Whatever else comes is ignored, and waiting goes on to the deadline; but a
// thousand such datagrams are a flood and a failure, where keepalived reads on.
//
// Any error of the network, as an ICMP port unreachable, is a failure at once.
package dns

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/config"
)

const (
	headerLen = 12
	// maxStray is how many datagrams that are no answer a run reads.
	maxStray = 1000
	// maxTold is how many of them a transcript has.
	maxTold = 10
	// maxName is the longest name in text, with its last dot: 255 octets when packed.
	maxName = 254
)

// types are the values of type (RFC 1035, 3596, 4034).
var types = map[string]dnsmessage.Type{
	"A": dnsmessage.TypeA, "NS": dnsmessage.TypeNS, "CNAME": dnsmessage.TypeCNAME, "SOA": dnsmessage.TypeSOA,
	"MX": dnsmessage.TypeMX, "TXT": dnsmessage.TypeTXT, "AAAA": dnsmessage.TypeAAAA, "RRSIG": 46, "DNSKEY": 48,
}

type probe struct {
	conn     config.Connection
	target   string
	question string // for messages
	query    []byte
	answer   [headerLen]byte
}

// New returns the probe of a DNS_CHECK. The error is about a question that cannot be
// asked, and names the checker's position.
func New(c *config.Checker) (checker.Probe, error) {
	d := c.DNS
	if d == nil {
		return nil, fmt.Errorf("%s: %s has no question", c.Pos, c.Kind)
	}
	name := strings.TrimSuffix(d.Name, ".") + "."
	query, err := pack(d.Type, name)
	if err != nil {
		return nil, fmt.Errorf("%s: %s cannot ask for type %q name %q: %w", c.Pos, c.Kind, d.Type, d.Name, err)
	}
	return &probe{conn: c.Conn, target: c.Conn.Target.String(), question: d.Type + " " + name, query: query}, nil
}

// pack makes the query, its identifier 0. name ends in a dot.
func pack(kind, name string) ([]byte, error) {
	t, ok := types[kind]
	if !ok {
		return nil, errors.New("the type is not known")
	}
	if len(name) > maxName {
		return nil, fmt.Errorf("the name is too long: %d octets with its last dot, at most %d", len(name), maxName)
	}
	for label := range strings.SplitSeq(strings.TrimSuffix(name, "."), ".") {
		if len(label) > 63 {
			return nil, fmt.Errorf("label %q is too long: %d octets, at most 63", label, len(label))
		}
	}
	n, err := dnsmessage.NewName(name)
	if err != nil {
		return nil, err
	}
	m := dnsmessage.Message{
		Header:    dnsmessage.Header{RecursionDesired: true},
		Questions: []dnsmessage.Question{{Name: n, Type: t, Class: dnsmessage.ClassINET}},
	}
	return m.Pack()
}

// Run asks once.
func (p *probe) Run(ctx context.Context) checker.Outcome {
	began := time.Now()
	fail := func(stage checker.Stage, step string, err error) checker.Outcome {
		return dial.Outcome(checker.Site{Stage: stage, Step: "query " + p.question + ": " + step, Peer: p.target}, err, began)
	}
	trace := checker.TraceOf(ctx)
	sock, err := dial.UDP(ctx, &p.conn)
	if err != nil {
		return fail(checker.StageConnect, "connect to", err)
	}
	defer sock.Close()
	// A new one each time, so that a late answer to the last question is told
	// from one to this, also with a fixed source port.
	_, _ = rand.Read(p.query[:2]) // never fails: it ends the program instead
	if err := sock.Send(p.query); err != nil {
		return fail(checker.StageSend, "send to", err)
	}
	if trace != nil {
		trace.Tell(checker.StageSend, "asked for %s, identifier %d, %d octets", p.question, binary.BigEndian.Uint16(p.query), len(p.query))
	}
	for stray := 0; ; stray++ {
		if stray == maxStray {
			return fail(checker.StageReply, "answer from", fmt.Errorf("flooded, none of %d datagrams is an answer", maxStray))
		}
		n, err := sock.Receive(p.answer[:])
		if err != nil {
			o := fail(checker.StageReply, "answer from", err)
			if stray > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
				o.Reason += fmt.Sprintf(", %d datagrams that are no answer were ignored", stray)
			}
			return o
		}
		rcode, ok := parse(p.answer[:min(n, headerLen)], p.query)
		if trace != nil && stray < maxTold {
			trace.Tell(checker.StageReply, "received %d octets: %s", n, describe(rcode, ok))
		}
		switch {
		case !ok:
		case rcode != dnsmessage.RCodeSuccess:
			return fail(checker.StageStatus, "answer from", &checker.Mismatch{Got: describe(rcode, true), Want: "0 (NOERROR)"})
		default:
			return checker.Outcome{Result: checker.OK, Reason: "rcode 0 (NOERROR)", Took: time.Since(began)}
		}
	}
}

// describe says what a datagram is.
func describe(rcode dnsmessage.RCode, ok bool) string {
	if !ok {
		return "no answer to this question, ignored"
	}
	return fmt.Sprintf("rcode %d (%s)", rcode, rcodeName(rcode))
}

// parse returns the rcode of an answer to query; ok is false for what is none. No
// more than the header of either is read.
func parse(answer, query []byte) (rcode dnsmessage.RCode, ok bool) {
	var parser dnsmessage.Parser
	h, err := parser.Start(answer)
	if err != nil || !h.Response {
		return 0, false
	}
	return h.RCode, h.ID == uint16(query[0])<<8|uint16(query[1])
}

// rcodeNames are those of the IANA registry that fit in a header.
var rcodeNames = []string{
	"NOERROR", "FORMERR", "SERVFAIL", "NXDOMAIN", "NOTIMP", "REFUSED", "YXDOMAIN", "YXRRSET", "NXRRSET", "NOTAUTH", "NOTZONE", "DSOTYPENI",
}

func rcodeName(c dnsmessage.RCode) string {
	if int(c) < len(rcodeNames) {
		return rcodeNames[c]
	}
	return "unassigned"
}
