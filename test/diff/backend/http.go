package backend

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"io"
	"maps"
	"math/big"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/test/diff/scenario"
)

// site is what an http backend answers. It is not changed, but replaced.
type site struct {
	answer
	tls, keepAlive bool
	// raw is sent in place of any answer.
	raw   string
	pause time.Duration
	paths map[string]answer
	hosts map[string]answer
	names map[string]answer // by SNI
}

type answer struct {
	status int
	body   string
}

func newSite(b *scenario.Behaviour) *site {
	s := &site{
		answer:    answer{b.Status, b.Body},
		tls:       b.Kind == "https",
		keepAlive: b.Kind == "http-keepalive",
		pause:     time.Duration(b.Seconds * float64(time.Second)),
	}
	if b.Kind == "http-raw" {
		s.raw = b.Body
	}
	return s
}

// with returns the site with one more path, host or name.
func (s *site) with(b *scenario.Behaviour) *site {
	c := *s
	add := func(m map[string]answer) map[string]answer {
		m = maps.Clone(m)
		if m == nil {
			m = map[string]answer{}
		}
		m[b.Match] = answer{b.Status, b.Body}
		return m
	}
	switch b.Kind {
	case "http-path":
		c.paths = add(c.paths)
	case "http-host":
		c.hosts = add(c.hosts)
	case "https-sni":
		c.names, c.tls = add(c.names), true
	}
	return &c
}

// serve answers the requests of one connection.
func (s *site) serve(set *Set, c net.Conn) {
	sni := ""
	if s.tls {
		t := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate()}})
		if t.Handshake() != nil {
			return
		}
		defer t.Close()
		c, sni = t, t.ConnectionState().ServerName
	}
	for in := bufio.NewReader(c); ; {
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if s.pause > 0 {
			select {
			case <-time.After(s.pause):
			case <-set.closing:
				return
			}
		}
		if s.raw != "" {
			_, _ = io.WriteString(c, s.raw)
			return
		}
		if err := s.respond(c, s.choose(req, sni)); err != nil || !s.keepAlive {
			return
		}
	}
}

// choose takes the most particular answer.
func (s *site) choose(req *http.Request, sni string) answer {
	if len(s.names) > 0 {
		if a, ok := s.names[sni]; ok {
			return a
		}
		return answer{status: http.StatusNotFound}
	}
	if a, ok := s.paths[req.RequestURI]; ok {
		return a
	}
	// The port of a Host header does not count.
	host, _, err := net.SplitHostPort(req.Host)
	if err != nil {
		host = req.Host
	}
	if a, ok := s.hosts[host]; ok {
		return a
	}
	return s.answer
}

func (s *site) respond(c net.Conn, a answer) error {
	var head strings.Builder
	version, text := "1.0", http.StatusText(a.status)
	if s.keepAlive {
		version = "1.1"
	}
	fmt.Fprintf(&head, "HTTP/%s %d %s\r\nContent-Type: text/plain\r\n", version, a.status, text)
	if s.keepAlive {
		fmt.Fprintf(&head, "Content-Length: %d\r\n", len(a.body))
	}
	_, err := io.WriteString(c, head.String()+"\r\n"+a.body)
	return err
}

// certificate is self-signed and made once.
var certificate = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err) // crypto/rand does not fail
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1),
		Subject:      pkix.Name{CommonName: "backend"},
		NotBefore:    time.Unix(0, 0),
		NotAfter:     time.Unix(1<<32, 0),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		panic(err) // the template is above
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})
