package http

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

// Options are what the whole daemon knows of checks over TLS.
type Options struct {
	// Client is what LoadClient returned, nil for a client without a certificate.
	Client *tls.Config
	// CA reads a tls_ca; nil for LoadCA each time.
	CA func(file string) (*x509.CertPool, error)
	// Expiry is told of certificates that end soon; nil for nobody.
	Expiry *ExpiryLog
}

// LoadCA reads the file of a tls_ca. One without a certificate is an error: nothing
// could be verified with it.
func LoadCA(file string) (*x509.CertPool, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read tls_ca: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("read tls_ca %s: no certificate in it", file)
	}
	return pool, nil
}

// verifiedName is who the certificate must be for.
func verifiedName(c *config.Checker, u *config.URL) string {
	h := c.HTTP
	name := h.SNIVirtualHost
	switch {
	case h.TLS.ServerName != "":
		name = h.TLS.ServerName
	case h.SNIName != "":
		name = h.SNIName
	case u.VirtualHost != "":
		name = u.VirtualHost
	}
	if name == "" {
		return c.Conn.Target.Addr().Unmap().WithZone("").String()
	}
	if host, _, err := net.SplitHostPort(name); err == nil {
		return host
	}
	return name
}

// verifying returns client as one that verifies the certificate for a url: the name
// is sent too. roots nil are the system's.
func (p *heavyProbe) verifying(client *tls.Config, u *config.URL, roots *x509.CertPool) *tls.Config {
	c := p.talk.check
	name, ca := verifiedName(c, u), c.HTTP.TLS.CA
	client = client.Clone()
	client.ServerName = name // crypto/tls sends no address
	// Not by the library itself, which would not let the certificate be looked at
	// before it refuses it, and words for programmers what operators read.
	client.VerifyConnection = func(s tls.ConnectionState) error {
		p.look(&s)
		if err := verify(&s, name, roots, ca); err != nil {
			return err
		}
		p.trace.Tell(checker.StageTLS, "the certificate is valid for %s, and its issuer is trusted", name)
		return nil
	}
	return client
}

// verify holds the peer's certificate to a name, its time and its issuer.
func verify(s *tls.ConnectionState, name string, roots *x509.CertPool, ca string) error {
	leaf := s.PeerCertificates[0]
	between := x509.NewCertPool()
	for _, c := range s.PeerCertificates[1:] {
		between.AddCert(c)
	}
	now := time.Now()
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, DNSName: name, CurrentTime: now})
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return &checker.Mismatch{Got: "certificate for " + names(leaf), Want: "one for " + name}
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		trusted := "this system trusts"
		if ca != "" {
			trusted = ca + " has"
		}
		return &checker.Mismatch{Got: "certificate issued by " + issuer(leaf), Want: "an issuer that " + trusted}
	}
	switch bad, ok := errors.AsType[x509.CertificateInvalidError](err); {
	case ok && bad.Reason == x509.Expired && now.After(bad.Cert.NotAfter):
		return &checker.Mismatch{Got: "certificate of " + subject(bad.Cert) + " ended at " + date(bad.Cert.NotAfter), Want: "one that is valid"}
	case ok && bad.Reason == x509.Expired:
		return &checker.Mismatch{Got: "certificate of " + subject(bad.Cert) + " begins at " + date(bad.Cert.NotBefore), Want: "one that is valid"}
	}
	return &checker.Mismatch{Got: "certificate of " + subject(leaf) + " is refused: " + shownText(err.Error())}
}

// look notes the peer's certificate, whether it is good or not.
func (p *heavyProbe) look(s *tls.ConnectionState) {
	if len(s.PeerCertificates) == 0 {
		return
	}
	leaf := s.PeerCertificates[0]
	c := &checker.Certificate{Subject: subject(leaf), Issuer: issuer(leaf), NotAfter: leaf.NotAfter}
	if p.certificate == nil || c.NotAfter.Before(p.certificate.NotAfter) {
		p.certificate = c
	}
	if p.trace != nil {
		p.trace.Tell(checker.StageTLS, "%s, %s", tls.VersionName(s.Version), tls.CipherSuiteName(s.CipherSuite))
		p.trace.Tell(checker.StageTLS, "certificate of %s, issued by %s, ends %s", c.Subject, c.Issuer, date(c.NotAfter))
	}
	h := p.talk.check.HTTP
	if h.TLS != nil && h.TLS.ExpiryWarn > 0 && p.expiry != nil && time.Until(leaf.NotAfter) < h.TLS.ExpiryWarn {
		p.expiry.note(p.talk.check.Conn.Target.String(), leaf.Raw, c)
	}
}

// warnAgain is how long nothing is said of a certificate that was warned of.
const warnAgain = 24 * time.Hour

// ExpiryLog warns of certificates that end soon, of each once a day, however many
// servers show it.
type ExpiryLog struct {
	warn func(target string, c checker.Certificate)

	mu   sync.Mutex
	last map[[sha256.Size]byte]time.Time
}

// NewExpiryLog returns a log that hands its warnings to warn.
func NewExpiryLog(warn func(target string, c checker.Certificate)) *ExpiryLog {
	return &ExpiryLog{warn: warn, last: map[[sha256.Size]byte]time.Time{}}
}

func (l *ExpiryLog) note(target string, raw []byte, c *checker.Certificate) {
	key, now := sha256.Sum256(raw), time.Now()
	l.mu.Lock()
	at, known := l.last[key]
	silent := known && now.Sub(at) < warnAgain
	if !silent {
		for k, at := range l.last {
			if now.Sub(at) >= warnAgain {
				delete(l.last, k)
			}
		}
		l.last[key] = now
	}
	l.mu.Unlock()
	if !silent {
		l.warn(target, *c)
	}
}

func date(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// subject is who a certificate is of.
func subject(c *x509.Certificate) string {
	if s := c.Subject.String(); s != "" {
		return shownText(s)
	}
	return names(c)
}

func issuer(c *x509.Certificate) string { return shownName(c.Issuer) }

func shownName(n pkix.Name) string {
	if s := n.String(); s != "" {
		return shownText(s)
	}
	return "nobody"
}

// names are what a certificate is for.
func names(c *x509.Certificate) string {
	all := append([]string{}, c.DNSNames...)
	for _, ip := range c.IPAddresses {
		all = append(all, ip.String())
	}
	if len(all) == 0 {
		return "no name"
	}
	return shownText(strings.Join(all, ", "))
}

// shownText makes what a peer says fit for a log and a terminal.
func shownText(s string) string {
	const most = 120
	end := ""
	if len(s) > most {
		s, end = s[:most], "..."
	}
	q := strconv.QuoteToASCII(s)
	if q == `"`+s+`"` {
		return s + end
	}
	return q + end
}
