package backend

import (
	"bufio"
	"errors"
	"io"
	"net"
	"strings"

	"github.com/sluice-lb/sluice/test/diff/scenario"
)

// setHandler chooses what serves connections. What modifies an http backend needs
// one before it.
func (v *server) setHandler(b *scenario.Behaviour) error {
	switch b.Kind {
	case "http-path", "http-host", "https-sni":
		if v.site == nil && b.Kind == "https-sni" {
			v.site = newSite(&scenario.Behaviour{Kind: "https", Status: 404})
		}
		if v.site == nil {
			return errors.New("needs an http backend there before")
		}
		v.site = v.site.with(b)
	case "http", "http-keepalive", "http-raw", "http-slow", "https":
		v.site = newSite(b)
	default:
		v.site = nil
	}
	switch b.Kind {
	case "tcp":
		v.serve = drain
	case "reset":
		v.serve = reset
	case "smtp":
		v.serve = smtp(b.Lines)
	default:
		v.serve = v.site.serve
	}
	return nil
}

// drain reads until the peer closes.
func drain(_ *Set, c net.Conn) { _, _ = io.Copy(io.Discard, c) }

// reset closes with RST.
func reset(_ *Set, c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
}

// smtp answers with the lines for the banner, HELO and QUIT.
func smtp(lines []string) func(*Set, net.Conn) {
	return func(_ *Set, c net.Conn) {
		if _, err := io.WriteString(c, lines[0]); err != nil {
			return
		}
		for in := bufio.NewReader(c); ; {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			answer, quit := "502 no such command\r\n", false
			switch verb, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(line)), " "); verb {
			case "HELO", "EHLO":
				answer = lines[1]
			case "QUIT":
				answer, quit = lines[2], true
			}
			if _, err := io.WriteString(c, answer); err != nil || quit {
				return
			}
		}
	}
}
