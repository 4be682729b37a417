package http

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

// authority issues certificates.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // its certificate
}

func newAuthority(t *testing.T, name string) *authority {
	t.Helper()
	a := &authority{t: t, key: newKey(t)}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.file = write(t, "ca.pem", &pem.Block{Type: "CERTIFICATE", Bytes: der})
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue makes a certificate for a name or an address that is valid from and to.
func (a *authority) issue(name string, from, to time.Duration) tls.Certificate {
	a.t.Helper()
	key := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "server"}, NotBefore: time.Now().Add(from), NotAfter: time.Now().Add(to),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// TestX06Certificates: a bad certificate is healthy without tls_verify, as in
// keepalived, and a failure with it, whose reason says what is wrong.
func TestX06Certificates(t *testing.T) {
	ours, theirs := newAuthority(t, "our CA"), newAuthority(t, "their CA")
	const hour = time.Hour
	for name, tt := range map[string]struct {
		cert tls.Certificate
		want string // "" for a good one
	}{
		"good":           {ours.issue("www.example.org", -hour, hour), ""},
		"expired":        {ours.issue("www.example.org", -2*hour, -hour), "certificate of CN=server ended at 20"},
		"not yet valid":  {ours.issue("www.example.org", hour, 2*hour), "certificate of CN=server begins at 20"},
		"wrong name":     {ours.issue("other.example.org", -hour, hour), "certificate for other.example.org, expected one for www.example.org, after "},
		"unknown issuer": {theirs.issue("www.example.org", -hour, hour), "certificate issued by CN=their CA, expected an issuer that " + ours.file + " has, after "},
		"self-signed":    {ecCert(t), "certificate of CN=sluice test ended at 1970-01-01T00:00:01Z, expected one that is valid, after "},
	} {
		t.Run(name, func(t *testing.T) {
			server := &tls.Config{Certificates: []tls.Certificate{tt.cert}}
			c := serveTLS(t, server, answersTLS(okAnswer))
			o := run(t, c)
			expect(t, o, checker.OK, "status 200")
			if o.Certificate == nil || o.Certificate.NotAfter.IsZero() || o.Certificate.Subject == "" {
				t.Errorf("unverified: certificate %+v", o.Certificate)
			}
			c.HTTP.TLS = &config.TLS{Verify: true, CA: ours.file, ServerName: "www.example.org"}
			o = run(t, c)
			if tt.want == "" {
				expect(t, o, checker.OK, "status 200")
			} else if want := "url /: TLS handshake with " + c.Conn.Target.String() + ": " + tt.want; o.Result != checker.Failed || !strings.HasPrefix(o.Reason, want) || o.Fault.Stage != checker.StageTLS || o.Fault.Want == "" {
				t.Errorf("%v: %q, fault %+v\nwant failed: %q...", o.Result, o.Reason, o.Fault, want)
			}
			if o.Certificate == nil {
				t.Error("verified: no certificate")
			}
		})
	}
	t.Run("the system's issuers", func(t *testing.T) {
		c := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{ours.issue("127.0.0.1", -hour, hour)}}, answersTLS(okAnswer))
		c.HTTP.TLS = &config.TLS{Verify: true}
		expect(t, run(t, c), checker.Failed, "certificate issued by CN=our CA, expected an issuer that this system trusts")
	})
}

// TestX06VerifiedNameIsSent: what is verified is also what is asked for; an address
// is verified and not sent.
func TestX06VerifiedNameIsSent(t *testing.T) {
	ours := newAuthority(t, "our CA")
	for name, tt := range map[string]struct {
		http       config.HTTP
		url        string
		want, sent string
	}{
		"address":         {config.HTTP{}, "", "127.0.0.1", ""},
		"tls_server_name": {config.HTTP{SNI: true, SNIName: "sni.example", TLS: &config.TLS{ServerName: "tls.example"}}, "url.example", "tls.example", "tls.example"},
		"sni_name":        {config.HTTP{SNI: true, SNIName: "sni.example"}, "url.example", "sni.example", "sni.example"},
		"url":             {config.HTTP{SNIVirtualHost: "vs.example"}, "url.example", "url.example", "url.example"},
		"virtual server":  {config.HTTP{SNIVirtualHost: "vs.example:8443"}, "", "vs.example", "vs.example"},
	} {
		t.Run(name, func(t *testing.T) {
			seen := make(chan string, 1)
			cert := ours.issue(tt.want, -time.Hour, time.Hour)
			c := serveTLS(t, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
				seen <- h.ServerName
				return &tls.Config{Certificates: []tls.Certificate{cert}}, nil
			}}, answersTLS(okAnswer))
			tt.http.URLs = c.HTTP.URLs
			tt.http.URLs[0].VirtualHost = tt.url
			c.HTTP = &tt.http
			if c.HTTP.TLS == nil {
				c.HTTP.TLS = &config.TLS{}
			}
			c.HTTP.TLS.Verify, c.HTTP.TLS.CA = true, ours.file
			expect(t, run(t, c), checker.OK, "status 200")
			if got := <-seen; got != tt.sent {
				t.Errorf("the server saw %q, want %q", got, tt.sent)
			}
		})
	}
}

// TestX06UnreadableCAIsAnError: no check is made that would verify nothing.
func TestX06UnreadableCAIsAnError(t *testing.T) {
	empty := write(t, "empty.pem")
	for file, want := range map[string]string{
		"/no/such/file": "read tls_ca: open /no/such/file: no such file or directory",
		empty:           "read tls_ca " + empty + ": no certificate in it",
		os.TempDir():    "is a directory",
	} {
		c := serve(t, "127.0.0.1:0", hold)
		c.Kind, c.HTTP.TLS = config.SSLGet, &config.TLS{Verify: true, CA: file}
		if _, err := New(c, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", file, err, want)
		}
	}
}

// TestX06ExpiryIsWarnedOfOnceADay: of each certificate, whichever server shows it.
func TestX06ExpiryIsWarnedOfOnceADay(t *testing.T) {
	ours := newAuthority(t, "our CA")
	var warned []string
	log := NewExpiryLog(func(target string, c checker.Certificate) { warned = append(warned, c.Subject) })
	soon, late := ours.issue("a.example", -time.Hour, 24*time.Hour), ours.issue("b.example", -time.Hour, 100*24*time.Hour)
	for _, tt := range []struct {
		cert tls.Certificate
		days int
	}{{soon, 0}, {soon, 2}, {soon, 2}, {late, 2}} {
		c := serveTLS(t, &tls.Config{Certificates: []tls.Certificate{tt.cert}}, answersTLS(okAnswer))
		c.HTTP.TLS = &config.TLS{ExpiryWarn: time.Duration(tt.days) * 24 * time.Hour}
		p, err := NewWith(c, Options{Expiry: log})
		if err != nil {
			t.Fatal(err)
		}
		expect(t, p.Run(t.Context()), checker.OK, "status 200")
	}
	if len(warned) != 1 || warned[0] != "CN=server" {
		t.Errorf("warned of %q, want one", warned)
	}

	synctest.Test(t, func(t *testing.T) {
		n := 0
		log := NewExpiryLog(func(string, checker.Certificate) { n++ })
		for range 48 {
			log.note("a", []byte("one"), &checker.Certificate{})
			log.note("b", []byte("one"), &checker.Certificate{})
			log.note("b", []byte("two"), &checker.Certificate{})
			time.Sleep(time.Hour)
		}
		if n != 4 {
			t.Errorf("%d warnings in two days of two certificates, want 4", n)
		}
		log.note("c", []byte("three"), &checker.Certificate{})
		if len(log.last) != 1 {
			t.Errorf("%d certificates are kept, want the last", len(log.last))
		}
	})
}

func TestShownTextIsFitForATerminal(t *testing.T) {
	for in, want := range map[string]string{
		"CN=plain":                 "CN=plain",
		"CN=\x1b[1mx":              `"CN=\x1b[1mx"`,
		strings.Repeat("x", 1<<20): strings.Repeat("x", 120) + "...",
	} {
		if got := shownText(in); got != want {
			t.Errorf("%.40q: %q, want %q", in, got, want)
		}
	}
}
