package http

import (
	"context"
	"crypto/md5"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/config"
)

// Answer is a whole answer, as a digest sees it.
type Answer struct {
	// Status is the answer's code; any counts.
	Status int
	// Digest is the MD5 that a url's digest is compared with.
	Digest [md5.Size]byte
	// Length is how many bytes of the body it was made of.
	Length int64
	// Note is for a body that ended before its Content-Length, "" for none.
	Note string
}

// anyStatus is what Digest accepts.
var anyStatus = []config.StatusRange{{First: 0, Last: 999}}

// Digest asks the first url of an HTTP_GET or SSL_GET and tells what its digest is:
// the conversation is that of the check, so that the check will find the same. Its
// status_code, digest and regex do not count. An outcome that is not OK is why there is
// no answer.
func Digest(ctx context.Context, c *config.Checker) (Answer, checker.Outcome) {
	check, h := *c, *c.HTTP
	u := h.URLs[0]
	u.Status, u.Digest, u.HasDigest, u.Regex = anyStatus, [md5.Size]byte{}, true, nil
	h.URLs, check.HTTP = []config.URL{u}, &h
	probe, err := New(&check, nil)
	if err != nil {
		return Answer{}, checker.Outcome{Result: checker.Unable, Reason: err.Error(), Fault: &checker.Fault{Stage: checker.StagePrepare}}
	}
	var o checker.Outcome
	var l listener
	if p, ok := probe.(*heavyProbe); ok {
		p.trace = checker.TraceOf(ctx)
		l.conversation = &p.talk
		o = dial.Converse(ctx, &l, p.secure)
	} else {
		l.conversation = probe.(*conversation)
		o = dial.Converse(ctx, &l, nil)
	}
	if o.Fault != nil && o.Fault.Stage == checker.StageBody {
		// The whole answer came, and no digest was there to be met.
		o = checker.Outcome{Result: checker.OK, Reason: statusReason(l.got.Status), Took: o.Took}
	}
	return l.got, o
}

// listener keeps of a conversation what goes back to the pool at its end.
type listener struct {
	*conversation
	got Answer
}

// Verdict would complain of the digest.
func (l *listener) Verdict() string { return "" }

func (l *listener) Next() (*config.Connection, checker.Outcome) {
	r := &l.now.answer
	l.got = Answer{Status: r.status, Digest: r.bodySum(), Length: r.got, Note: r.note()}
	return l.conversation.Next()
}
