package http

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/md5"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

func ecCert(t testing.TB) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{certOf(t, key.Public(), key)}, PrivateKey: key}
}

// certOf makes a certificate that expired long ago: nobody may look.
func certOf(t testing.TB, pub, key any) []byte {
	t.Helper()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sluice test"},
		NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1, 0), KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageKeyEncipherment,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, pub, key)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

// serveTLS is serve with TLS in front of handle; SSL_GET.
func serveTLS(t testing.TB, server *tls.Config, handle func(*tls.Conn)) *config.Checker {
	t.Helper()
	if len(server.Certificates) == 0 {
		server.Certificates = []tls.Certificate{ecCert(t)}
	}
	c := serve(t, "127.0.0.1:0", func(c net.Conn) {
		s := tls.Server(c, server)
		if s.Handshake() == nil {
			handle(s)
		}
	})
	c.Kind = config.SSLGet
	return c
}

func answersTLS(text string) func(*tls.Conn) {
	return func(c *tls.Conn) {
		readRequest(c)
		io.WriteString(c, text)
		c.Close()
	}
}

const okAnswer = "HTTP/1.0 200 OK\r\n\r\nup"

func TestSSLGetDoesNotVerify(t *testing.T) {
	c := serveTLS(t, &tls.Config{}, answersTLS(okAnswer))
	c.HTTP.URLs[0].HasDigest, c.HTTP.URLs[0].Digest = true, md5.Sum([]byte("up"))
	expect(t, run(t, c), checker.OK, "status 200")
	c.HTTP.URLs[0].Digest[0]++
	expect(t, run(t, c), checker.Failed, "digest")
}

func TestSSLGetReachesOldPeers(t *testing.T) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	cert := tls.Certificate{Certificate: [][]byte{certOf(t, key.Public(), key)}, PrivateKey: key}
	for name, server := range map[string]*tls.Config{
		"TLS 1.0, RSA key exchange": {MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10, CipherSuites: []uint16{tls.TLS_RSA_WITH_AES_128_CBC_SHA}},
		"TLS 1.0, 3DES":             {MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10, CipherSuites: []uint16{tls.TLS_RSA_WITH_3DES_EDE_CBC_SHA}},
		"TLS 1.1":                   {MinVersion: tls.VersionTLS11, MaxVersion: tls.VersionTLS11},
		"TLS 1.2, RC4":              {MinVersion: tls.VersionTLS12, MaxVersion: tls.VersionTLS12, CipherSuites: []uint16{tls.TLS_RSA_WITH_RC4_128_SHA}},
		"TLS 1.3":                   {MinVersion: tls.VersionTLS13},
	} {
		server.Certificates = []tls.Certificate{cert}
		version := make(chan uint16, 1)
		c := serveTLS(t, server, func(s *tls.Conn) {
			version <- s.ConnectionState().Version
			answersTLS(okAnswer)(s)
		})
		expect(t, run(t, c), checker.OK, "status 200")
		select {
		case v := <-version:
			if v < server.MinVersion || server.MaxVersion != 0 && v > server.MaxVersion {
				t.Errorf("%s: version %#x", name, v)
			}
		default:
			t.Errorf("%s: no handshake", name)
		}
	}
}

func TestServerName(t *testing.T) {
	tests := []struct {
		name string
		http config.HTTP
		url  string // the url's virtualhost
		want string
	}{
		{"not enabled", config.HTTP{VirtualHost: "a.example", SNIVirtualHost: "a.example"}, "u.example", ""},
		{"sni_name enables", config.HTTP{SNIName: "name.example"}, "", "name.example"},
		{"sni_name wins", config.HTTP{SNI: true, SNIName: "name.example", SNIVirtualHost: "s.example"}, "u.example", "name.example"},
		{"url", config.HTTP{SNI: true, SNIVirtualHost: "s.example"}, "u.example", "u.example"},
		{"checker or virtual server", config.HTTP{SNI: true, SNIVirtualHost: "s.example"}, "", "s.example"},
		{"never the real server's", config.HTTP{SNI: true, VirtualHost: "rs.example"}, "", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			seen := make(chan string, 1)
			c := serveTLS(t, &tls.Config{GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
				seen <- h.ServerName
				return nil, nil
			}}, answersTLS(okAnswer))
			urls := c.HTTP.URLs
			urls[0].VirtualHost = tt.url
			h := tt.http
			h.URLs = urls
			c.HTTP = &h
			expect(t, run(t, c), checker.OK, "status 200")
			if got := <-seen; got != tt.want {
				t.Errorf("the server saw %q, want %q", got, tt.want)
			}
		})
	}
}

func TestCloseNotifyOnlyIfCompliant(t *testing.T) {
	for _, tt := range []struct{ checker, url, want bool }{{false, false, false}, {true, false, true}, {false, true, true}} {
		end := make(chan int, 1)
		c := serveTLS(t, &tls.Config{}, func(s *tls.Conn) {
			readRequest(s)
			io.WriteString(s, okAnswer)
			// The record itself: Go's Read says EOF in both cases.
			last, _ := io.ReadAll(s.NetConn())
			end <- len(last)
		})
		c.HTTP.TLSCompliant, c.HTTP.URLs[0].TLSCompliant = tt.checker, tt.url
		expect(t, run(t, c), checker.OK, "status 200")
		if n := <-end; (n > 0) != tt.want {
			t.Errorf("%+v: %d bytes before the end of the connection", tt, n)
		}
	}
}

func TestBrokenTLSBodyIsItsEnd(t *testing.T) {
	for name, end := range map[string]func(net.Conn){
		"without close-notify": func(c net.Conn) { c.Close() },
		"reset":                func(c net.Conn) { c.(*net.TCPConn).SetLinger(0); c.Close() },
	} {
		c := serveTLS(t, &tls.Config{}, func(s *tls.Conn) {
			readRequest(s)
			io.WriteString(s, okAnswer)
			end(s.NetConn())
		})
		c.HTTP.URLs[0].HasDigest, c.HTTP.URLs[0].Digest = true, md5.Sum([]byte("up"))
		if o := run(t, c); o.Result != checker.OK {
			t.Errorf("%s: %+v", name, o)
		}
	}
	c := serveTLS(t, &tls.Config{}, func(s *tls.Conn) {
		readRequest(s)
		io.WriteString(s, okAnswer)
		hold(s)
	})
	c.HTTP.URLs[0].HasDigest, c.HTTP.URLs[0].Digest = true, md5.Sum([]byte("up"))
	c.Conn.Timeout = 200 * time.Millisecond
	expect(t, run(t, c), checker.Failed, "body from "+c.Conn.Target.String()+": no answer in time")
}

// O06: refused, timeout, TLS alert, wrong code and wrong body are told apart, and
// each names the target, the step and the time it took.
func TestO06ReasonsAreDistinct(t *testing.T) {
	refused := serve(t, "127.0.0.1:0", hold)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused.Conn.Target = l.Addr().(*net.TCPAddr).AddrPort()
	l.Close()
	slow := serve(t, "127.0.0.1:0", hold)
	slow.Conn.Timeout = 50 * time.Millisecond
	slowTLS := serve(t, "127.0.0.1:0", hold)
	slowTLS.Kind, slowTLS.Conn.Timeout = config.SSLGet, 50*time.Millisecond
	alert := serveTLS(t, &tls.Config{GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return nil, errors.New("no")
	}}, nil)
	plain := serve(t, "127.0.0.1:0", func(c net.Conn) {
		io.WriteString(c, "HTTP/1.0 400 x\r\n\r\n")
		hold(c)
	})
	plain.Kind = config.SSLGet
	code := serve(t, "127.0.0.1:0", answers("HTTP/1.0 500 x\r\n\r\n"))
	body := serve(t, "127.0.0.1:0", answers(okAnswer))
	body.HTTP.URLs[0].HasDigest = true

	seen := map[string]string{}
	for name, tt := range map[string]struct {
		c    *config.Checker
		want string
	}{
		"refused":     {refused, "connect to TARGET: connection refused (ECONNREFUSED) after "},
		"timeout":     {slow, "status from TARGET: no answer in time after "},
		"TLS timeout": {slowTLS, "TLS handshake with TARGET: no answer in time after "},
		"TLS alert":   {alert, "TLS handshake with TARGET: remote error: tls: internal error after "},
		"no TLS":      {plain, "TLS handshake with TARGET: tls: first record does not look like a TLS handshake after "},
		"wrong code":  {code, "status from TARGET: 500, expected 200-299, after "},
		"wrong body":  {body, "body from TARGET: digest "},
		"closed":      {serve(t, "127.0.0.1:0", func(c net.Conn) { readRequest(c) }), "status from TARGET: connection closed without an answer, after "},
	} {
		want := "url /: " + strings.ReplaceAll(tt.want, "TARGET", tt.c.Conn.Target.String())
		o := run(t, tt.c)
		if o.Result != checker.Failed || !strings.HasPrefix(o.Reason, want) {
			t.Errorf("%s: %v: %q\nwant %q...", name, o.Result, o.Reason, want)
		}
		generic := strings.ReplaceAll(want, tt.c.Conn.Target.String(), "")
		if other, dup := seen[generic]; dup {
			t.Errorf("%s and %s read the same", name, other)
		}
		seen[generic] = name
	}
}

func write(t *testing.T, name string, blocks ...*pem.Block) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	var data []byte
	for _, b := range blocks {
		data = append(data, pem.EncodeToMemory(b)...)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoadClient(t *testing.T) {
	cert := ecCert(t)
	der, err := x509.MarshalECPrivateKey(cert.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	certBlock := &pem.Block{Type: "CERTIFICATE", Bytes: cert.Certificate[0]}
	keyBlock := &pem.Block{Type: "EC PRIVATE KEY", Bytes: der}
	//lint:ignore SA1019 existing files have it
	encrypted, err := x509.EncryptPEMBlock(rand.Reader, "EC PRIVATE KEY", der, []byte("secret"), x509.PEMCipherAES256)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile := write(t, "cert", certBlock), write(t, "key", keyBlock)
	encFile := write(t, "enc", encrypted)
	both := write(t, "both", certBlock, &pem.Block{Type: "EC PARAMETERS"}, keyBlock)

	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	otherDER, _ := x509.MarshalECPrivateKey(other)
	otherFile := write(t, "other", &pem.Block{Type: "EC PRIVATE KEY", Bytes: otherDER})

	for name, tt := range map[string]struct {
		ssl   *config.SSL
		shown bool // the certificate
		err   string
	}{
		"no block":              {nil, false, ""},
		"empty block":           {&config.SSL{}, false, ""},
		"certificate and key":   {&config.SSL{Certificate: certFile, Key: keyFile, CA: certFile}, true, ""},
		"encrypted key":         {&config.SSL{Certificate: certFile, Key: encFile, Password: "secret"}, true, ""},
		"both in one file":      {&config.SSL{Certificate: both}, true, ""},
		"key alone":             {&config.SSL{Key: keyFile}, false, ""},
		"wrong password":        {&config.SSL{Certificate: certFile, Key: encFile, Password: "x"}, false, encFile + ": decrypt: x509: decryption password incorrect"},
		"no password":           {&config.SSL{Certificate: certFile, Key: encFile}, false, "encrypted and there is no password"},
		"PKCS #8 encryption":    {&config.SSL{Certificate: certFile, Key: write(t, "p8", &pem.Block{Type: "ENCRYPTED PRIVATE KEY"})}, false, "encrypted PKCS #8 key is not supported"},
		"missing key":           {&config.SSL{Certificate: certFile, Key: "/nonexistent/key"}, false, "read key of SSL: open /nonexistent/key"},
		"missing certificate":   {&config.SSL{Certificate: "/nonexistent/cert", Key: keyFile}, false, "read certificate of SSL: open /nonexistent/cert"},
		"certificate, no key":   {&config.SSL{Certificate: certFile}, false, certFile + ": no private key in it"},
		"key of another":        {&config.SSL{Certificate: certFile, Key: otherFile}, false, "does not match"},
		"missing ca":            {&config.SSL{CA: "/nonexistent/ca"}, false, "read ca of SSL: open /nonexistent/ca"},
		"ca without certicates": {&config.SSL{CA: keyFile}, false, "no certificate in it"},
	} {
		client, err := LoadClient(tt.ssl)
		if tt.err != "" {
			if err == nil || !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%s: %v, want ...%s", name, err, tt.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		shown := make(chan bool, 1)
		c := serveTLS(t, &tls.Config{ClientAuth: tls.RequestClientCert}, func(s *tls.Conn) {
			shown <- len(s.ConnectionState().PeerCertificates) > 0
			answersTLS(okAnswer)(s)
		})
		p, err := New(c, client)
		if err != nil {
			t.Fatal(err)
		}
		expect(t, p.Run(t.Context()), checker.OK, "status 200")
		if got := <-shown; got != tt.shown {
			t.Errorf("%s: certificate shown: %v", name, got)
		}
	}
}
