package http

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/config"
)

// New returns the probe of an HTTP_GET or SSL_GET. It is a checker.Conversation
// unless there is TLS or a regex. c is kept and must not change. client is what
// LoadClient returned, nil for a client without a certificate; HTTP_GET ignores it.
// The error is about a regex that cannot be used, and names the url's position.
func New(c *config.Checker, client *tls.Config) (checker.Probe, error) {
	return NewWith(c, Options{Client: client})
}

// NewWith is New with all that a check over TLS may need. The error may also be about
// a tls_ca that cannot be read, and names its position.
func NewWith(c *config.Checker, o Options) (checker.Probe, error) {
	if c.HTTP == nil || len(c.HTTP.URLs) == 0 {
		return nil, fmt.Errorf("%s: %s has no url", c.Pos, c.Kind)
	}
	if !heavy(c) {
		return &conversation{check: c}, nil
	}
	p := &heavyProbe{layers: make([]layer, len(c.HTTP.URLs)), expiry: o.Expiry}
	p.talk = conversation{check: c, heavy: p}
	client := o.Client
	if c.Kind == config.SSLGet && client == nil {
		client = clientConfig()
	}
	verified := c.Kind == config.SSLGet && c.HTTP.TLS != nil && c.HTTP.TLS.Verify
	var roots *x509.CertPool
	if verified && c.HTTP.TLS.CA != "" {
		load := o.CA
		if load == nil {
			load = LoadCA
		}
		var err error
		if roots, err = load(c.HTTP.TLS.CA); err != nil {
			return nil, fmt.Errorf("%s: %w", c.HTTP.TLS.Pos, err)
		}
	}
	for i := range c.HTTP.URLs {
		u, l := &c.HTTP.URLs[i], &p.layers[i]
		if c.Kind == config.SSLGet {
			if verified {
				l.tls = p.verifying(client, u, roots)
			} else {
				l.tls = withServerName(client, serverName(c.HTTP, u))
			}
			l.compliant = c.HTTP.TLSCompliant || u.TLSCompliant
		}
		if u.Regex != nil {
			var err error
			if l.pattern, err = Compile(u.Regex); err != nil {
				return nil, fmt.Errorf("%s: regex of url %s: %w", u.Regex.Pos, u.Path, err)
			}
		}
	}
	return p, nil
}

// heavy tells whether a check may hold its thread: TLS blocks, and a regex may
// backtrack.
func heavy(c *config.Checker) bool {
	for i := range c.HTTP.URLs {
		if c.HTTP.URLs[i].Regex != nil {
			return true
		}
	}
	return c.Kind == config.SSLGet
}

// heavyProbe is a conversation that only a goroutine may lead, and so no
// checker.Conversation itself.
type heavyProbe struct {
	talk   conversation
	layers []layer    // of each url
	expiry *ExpiryLog // nil for none

	// Of the run under way: who listens, and what the server showed.
	trace       *checker.Trace
	certificate *checker.Certificate
}

// layer is what a url has of its own above and below the conversation.
type layer struct {
	tls       *tls.Config // nil for HTTP_GET
	compliant bool
	pattern   *Pattern // nil without regex
}

// Run asks all urls in order and stops at the first that fails.
func (p *heavyProbe) Run(ctx context.Context) checker.Outcome {
	if p.talk.check.Kind != config.SSLGet {
		return p.talk.Run(ctx)
	}
	p.trace, p.certificate = checker.TraceOf(ctx), nil
	o := dial.Converse(ctx, &p.talk, p.secure)
	o.Certificate = p.certificate
	p.trace, p.certificate = nil, nil
	return o
}

// handshakeError is an error of the TLS layer before anything was said.
type handshakeError struct{ error }

func (e handshakeError) Unwrap() error { return e.error }

// secure puts TLS upon the connection of the current url.
func (p *heavyProbe) secure(tcp *dial.Conn) (io.ReadWriter, error) {
	l := &p.layers[p.talk.now.at]
	conn := tls.Client(tcp, l.tls)
	if err := conn.Handshake(); err != nil { //nolint:noctx // the connection has deadline and cancellation
		return nil, handshakeError{err}
	}
	if l.tls.VerifyConnection == nil {
		s := conn.ConnectionState()
		p.look(&s)
		p.trace.Tell(checker.StageTLS, "the certificate is not verified (tls_verify is off)")
	}
	if l.compliant {
		return conn, nil
	}
	return struct{ io.ReadWriter }{conn}, nil // no Close, no close-notify
}

// withServerName returns client with a server name; it is shared where it can be.
func withServerName(client *tls.Config, name string) *tls.Config {
	if name == client.ServerName {
		return client
	}
	client = client.Clone()
	client.ServerName = name
	return client
}
