package http

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/config"
)

// conversation asks the urls of a check in order, each on a connection of its own,
// until one fails.
type conversation struct {
	check *config.Checker
	heavy *heavyProbe // nil without TLS and regex
	now   *exchange
}

var _ checker.Conversation = (*conversation)(nil)

// exchange is one request with its answer. A conversation has one during a run only,
// so that an idle one is three words.
type exchange struct {
	at      int // index of the url
	began   time.Time
	request []byte
	answer  response
	outcome checker.Outcome
}

var exchanges = sync.Pool{New: func() any { return new(exchange) }}

// unled is the outcome of an exchange that was not led to its end: silence must not
// pass for success.
var unled = checker.Outcome{Result: checker.Unable, Reason: "the check was not led to its end"}

// Run leads the conversation on connections of its own.
func (c *conversation) Run(ctx context.Context) checker.Outcome { return dial.Converse(ctx, c, nil) }

// Begin implements checker.Conversation, as do the methods below.
func (c *conversation) Begin() *config.Connection {
	if c.now == nil {
		c.now = exchanges.Get().(*exchange)
	}
	return c.ask(0)
}

// ask begins with the url at an index.
func (c *conversation) ask(at int) *config.Connection {
	x := c.now
	x.at, x.began, x.outcome = at, time.Now(), unled
	u := c.url()
	x.answer.reset(u.Status, u.HasDigest, u.Regex != nil)
	return &c.check.Conn
}

func (c *conversation) url() *config.URL { return &c.check.HTTP.URLs[c.now.at] }

func (c *conversation) Connected() (send []byte, listen bool) {
	c.now.request = appendRequest(c.now.request[:0], c.check, c.url())
	return c.now.request, true
}

func (c *conversation) Received(p []byte) (done bool) {
	done, bad := c.now.answer.feed(p)
	switch {
	case bad != nil:
		c.wrong(bad)
	case done:
		c.judge()
	}
	return done
}

func (c *conversation) Ended(step checker.Step, err error) {
	r := &c.now.answer
	switch step {
	case checker.StepConnect:
		if tls, ok := errors.AsType[handshakeError](err); ok {
			c.fail(checker.StageTLS, "TLS handshake with", tls.error)
			return
		}
		c.fail(checker.StageConnect, "connect to", err)
	case checker.StepSend:
		// The server may have answered all the same.
		if r.header > 0 && dial.Classify(err) == checker.Failed {
			c.judge()
			return
		}
		c.fail(checker.StageSend, "send to", err)
	default:
		if !c.isEnd(err) {
			c.fail(checker.StageReply, r.step()+" from", err)
		} else if bad := r.end(); bad != nil {
			c.wrong(bad)
		} else {
			c.judge()
		}
	}
}

// isEnd tells whether err is the end of what the server had to say.
func (c *conversation) isEnd(err error) bool {
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF): // the second: TLS without close-notify
		return true
	case c.check.Kind != config.SSLGet || c.now.answer.header == 0:
		return false
	}
	// As keepalived: after a complete header a broken TLS connection is the end of
	// the body, a broken TCP connection is a failure.
	return dial.Classify(err) == checker.Failed && !isTimeout(err)
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}

func (c *conversation) Next() (*config.Connection, checker.Outcome) {
	x := c.now
	if x.outcome.Result == checker.OK && x.at+1 < len(c.check.HTTP.URLs) {
		return c.ask(x.at + 1), checker.Outcome{}
	}
	if x.outcome.Result != checker.OK && x.outcome.Fault == nil {
		x.outcome.Fault = &checker.Fault{Stage: checker.StagePrepare, Target: c.site(checker.StagePrepare, "").Target}
	}
	o := x.outcome
	o.Took = 0 // that of the whole run, which who leads it knows
	c.now = nil
	x.giveBack()
	return nil, o
}

// giveBack puts an exchange into the pool, without what belongs to the check: the
// next one may have no regex, and be one of thousands.
func (x *exchange) giveBack() {
	x.outcome, x.answer.accept, x.answer.raw = checker.Outcome{}, nil, nil
	exchanges.Put(x)
}

// Verdict says for a transcript that a url is well; how one is not the outcome says.
func (c *conversation) Verdict() string {
	if o := c.now.outcome; o.Result == checker.OK {
		return c.name() + ": " + o.Reason
	}
	return ""
}

// name is "url 2 /health", or "url /health" where there is but one.
func (c *conversation) name() string {
	if len(c.check.HTTP.URLs) > 1 {
		return fmt.Sprintf("url %d %s", c.now.at+1, c.url().Path)
	}
	return "url " + c.url().Path
}

// site is a step of the current url.
func (c *conversation) site(stage checker.Stage, step string) checker.Site {
	scheme := "http://"
	if c.check.Kind == config.SSLGet {
		scheme = "https://"
	}
	target := c.check.Conn.Target.String()
	return checker.Site{Stage: stage, Step: c.name() + ": " + step, Peer: target, Target: scheme + target + c.url().Path}
}

// fail is a step that failed.
func (c *conversation) fail(stage checker.Stage, step string, err error) {
	c.now.outcome = dial.Outcome(c.site(stage, step), err, c.now.began)
}

// wrong is an answer that is none, or that has a status which is not accepted.
func (c *conversation) wrong(err error) {
	if status, ok := errors.AsType[statusError](err); ok {
		c.fail(checker.StageStatus, "status from", &checker.Mismatch{Got: strconv.Itoa(int(status)), Want: ranges(c.url().Status)})
		return
	}
	c.fail(checker.StageReply, c.now.answer.step()+" from", &checker.Mismatch{Got: err.Error()})
}

// wrongBody is an answer whose content is not the right one.
func (c *conversation) wrongBody(got, want string) {
	bad := &checker.Mismatch{Got: got, Want: want}
	if note := c.now.answer.note(); note != "" {
		bad.Text = bad.Error() + note
	}
	c.fail(checker.StageBody, "body from", bad)
}

// judge compares a complete answer with digest and regex.
func (c *conversation) judge() {
	u, r := c.url(), &c.now.answer
	if u.HasDigest {
		if got := r.bodySum(); got != u.Digest {
			c.wrongBody(fmt.Sprintf("digest %x", got), fmt.Sprintf("%x", u.Digest))
			return
		}
	}
	if u.Regex != nil {
		matched, err := c.heavy.layers[c.now.at].pattern.Match(r.raw)
		switch {
		case err != nil:
			c.wrongBody(fmt.Sprintf("regex gives up: %v", err), "")
			return
		case matched && u.Regex.NoMatch:
			c.wrongBody(fmt.Sprintf("regex %q matches", u.Regex.Pattern), "no match")
			return
		case !matched && !u.Regex.NoMatch:
			c.wrongBody(fmt.Sprintf("regex %q does not match", u.Regex.Pattern), "a match")
			return
		}
	}
	reason := statusReason(r.status)
	if r.short() {
		reason += r.note()
	}
	c.now.outcome = checker.Outcome{Result: checker.OK, Reason: reason}
}

// statusReasons are the reasons of good answers, made when they first come.
var statusReasons [1000]atomic.Pointer[string]

// statusReason is "status 200".
func statusReason(status int) string {
	p := statusReasons[status].Load()
	if p == nil {
		s := fmt.Sprintf("status %d", status)
		p = &s
		statusReasons[status].Store(p)
	}
	return *p
}

// ranges writes accepted statuses as the configuration does.
func ranges(list []config.StatusRange) string {
	words := make([]string, len(list))
	for i, s := range list {
		words[i] = fmt.Sprint(s.First)
		if s.Last != s.First {
			words[i] = fmt.Sprintf("%d-%d", s.First, s.Last)
		}
	}
	return strings.Join(words, " ")
}
