package http

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/config"
)

// probe is one HTTP_GET or SSL_GET.
type probe struct {
	conn   config.Connection
	target string
	urls   []url
}

// url is a url block, ready to be asked.
type url struct {
	config.URL
	name      string // "url 2 /health", or "url /health" where there is but one
	request   []byte
	tls       *tls.Config // nil for HTTP_GET
	compliant bool
	pattern   *Pattern
}

// New returns the probe of an HTTP_GET or SSL_GET. client is what LoadClient
// returned, nil for a client without a certificate; HTTP_GET ignores it. The error
// is about a regex that cannot be used, and names the url's position.
func New(c *config.Checker, client *tls.Config) (checker.Probe, error) {
	if c.HTTP == nil || len(c.HTTP.URLs) == 0 {
		return nil, fmt.Errorf("%s: %s has no url", c.Pos, c.Kind)
	}
	p := &probe{conn: c.Conn, target: c.Conn.Target.String()}
	if c.Kind == config.SSLGet && client == nil {
		client = clientConfig()
	}
	for i := range c.HTTP.URLs {
		u := url{URL: c.HTTP.URLs[i], name: "url " + c.HTTP.URLs[i].Path}
		if len(c.HTTP.URLs) > 1 {
			u.name = fmt.Sprintf("url %d %s", i+1, u.Path)
		}
		u.request = request(c, &u.URL)
		if c.Kind == config.SSLGet {
			u.tls = client.Clone()
			u.tls.ServerName = serverName(c.HTTP, &u.URL)
			u.compliant = c.HTTP.TLSCompliant || u.TLSCompliant
		}
		if u.Regex != nil {
			var err error
			if u.pattern, err = Compile(u.Regex); err != nil {
				return nil, fmt.Errorf("%s: regex of url %s: %w", u.Regex.Pos, u.Path, err)
			}
		}
		p.urls = append(p.urls, u)
	}
	return p, nil
}

// Run asks all urls in order and stops at the first that fails.
func (p *probe) Run(ctx context.Context) checker.Outcome {
	began := time.Now()
	var o checker.Outcome
	for i := range p.urls {
		if o = p.ask(ctx, &p.urls[i]); o.Result != checker.OK {
			break
		}
	}
	o.Took = time.Since(began)
	return o
}

// buffers are for reading: an idle probe holds none.
var buffers = sync.Pool{New: func() any { return new([4096]byte) }}

// ask checks one url on a connection of its own.
func (p *probe) ask(ctx context.Context, u *url) checker.Outcome {
	began := time.Now()
	fail := func(step string, err error) checker.Outcome {
		// A cancelled connection ends by its deadline.
		if ctx.Err() == context.Canceled {
			err = ctx.Err()
		}
		return dial.Outcome(u.name+": "+step, p.target, err, began)
	}
	tcp, err := dial.TCP(ctx, &p.conn)
	if err != nil {
		return fail("connect to", err)
	}
	defer tcp.Close()
	var conn io.ReadWriter = tcp
	if u.tls != nil {
		secure := tls.Client(tcp, u.tls)
		// Not HandshakeContext: the connection has deadline and cancellation.
		if err := secure.Handshake(); err != nil {
			return fail("TLS handshake with", err)
		}
		if u.compliant {
			defer secure.Close() // close-notify, before tcp.Close
		}
		conn = secure
	}
	if _, err := conn.Write(u.request); err != nil {
		// The server may have answered and closed without reading.
		if o, ok := p.early(conn, u, began); ok {
			return o
		}
		return fail("send to", err)
	}
	r := newResponse(u.accepts, u.HasDigest, u.pattern != nil)
	if step, err := receive(conn, r, u.tls != nil); err != nil {
		if bad, ok := err.(answerError); ok {
			return p.wrong(step, u, bad.error, began)
		}
		return fail(step+" from", err)
	}
	return p.judge(u, r, began)
}

// early judges what a server had sent before it refused the request.
func (p *probe) early(conn io.Reader, u *url, began time.Time) (checker.Outcome, bool) {
	r := newResponse(u.accepts, u.HasDigest, u.pattern != nil)
	if _, err := receive(conn, r, u.tls != nil); err != nil {
		return checker.Outcome{}, false
	}
	return p.judge(u, r, began), true
}

// answerError is an answer that is wrong, as opposed to a connection that failed.
type answerError struct{ error }

// receive reads an answer as far as it is of interest. The step says where it
// failed: status, header or body.
func receive(conn io.Reader, r *response, secure bool) (step string, err error) {
	buf := buffers.Get().(*[4096]byte)
	defer buffers.Put(buf)
	for {
		n, err := conn.Read(buf[:])
		if n > 0 {
			done, bad := r.feed(buf[:n])
			if bad != nil {
				return r.step(), answerError{bad}
			}
			if done {
				return "", nil
			}
		}
		if err == nil {
			continue
		}
		if err == io.EOF || err == io.ErrUnexpectedEOF {
			// TLS without close-notify is the second one.
			if bad := r.end(); bad != nil {
				return r.step(), answerError{bad}
			}
			return "", nil
		}
		// As keepalived: after a complete header a broken TLS connection is the end
		// of the body, a broken TCP connection is a failure.
		if secure && r.header > 0 && dial.Classify(err) == checker.Failed && !isTimeout(err) {
			return "", nil
		}
		return r.step(), err
	}
}

// step is what is being read.
func (r *response) step() string {
	switch {
	case r.status == 0:
		return "status"
	case r.header == 0:
		return "header"
	}
	return "body"
}

func isTimeout(err error) bool {
	t, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err)
	return ok && t.Timeout()
}

// wrong is a failure that the answer shows.
func (p *probe) wrong(step string, u *url, err error, began time.Time) checker.Outcome {
	took := time.Since(began)
	if status, ok := err.(statusError); ok {
		step, err = "status", fmt.Errorf("%d, expected %s", int(status), ranges(u.Status))
	}
	return checker.Outcome{
		Result: checker.Failed,
		Reason: fmt.Sprintf("%s: %s from %s: %v, after %s", u.name, step, p.target, err, dial.Elapsed(took)),
		Took:   took,
	}
}

// judge compares a complete answer with digest and regex.
func (p *probe) judge(u *url, r *response, began time.Time) checker.Outcome {
	length := ""
	if r.short() {
		length = fmt.Sprintf(" (Content-Length says %d, %d bytes came)", r.length, r.got)
	}
	if u.HasDigest {
		if got := [16]byte(r.sum.Sum(nil)); got != u.Digest {
			return p.wrong("body", u, fmt.Errorf("digest %x, expected %x%s", got, u.Digest, length), began)
		}
	}
	if u.pattern != nil {
		matched, err := u.pattern.Match(r.raw)
		switch {
		case err != nil:
			return p.wrong("body", u, fmt.Errorf("regex gives up: %w%s", err, length), began)
		case matched && u.Regex.NoMatch:
			return p.wrong("body", u, fmt.Errorf("regex %q matches, expected no match%s", u.Regex.Pattern, length), began)
		case !matched && !u.Regex.NoMatch:
			return p.wrong("body", u, fmt.Errorf("regex %q does not match%s", u.Regex.Pattern, length), began)
		}
	}
	return checker.Outcome{Result: checker.OK, Reason: fmt.Sprintf("status %d%s", r.status, length), Took: time.Since(began)}
}

// accepts tells whether a status is one of the configured ones.
func (u *url) accepts(status int) bool {
	for _, s := range u.Status {
		if s.First <= status && status <= s.Last {
			return true
		}
	}
	return false
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
