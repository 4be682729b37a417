package testkit

import (
	"bufio"
	"net"
	"net/http"
)

// NewMixed starts a server for both kinds of clients, so that one real server can
// have long-lived connections and short requests: what begins as a line of Long is
// echoed, everything else is HTTP.
func NewMixed(t T, ns *NS, addr string) *HTTPServer {
	t.Helper()
	h := &HTTPServer{}
	h.status.Store(http.StatusOK)
	h.Server = newServer(t, ns, addr, func(s *Server, c net.Conn) {
		r := bufio.NewReader(c)
		first, err := r.Peek(1)
		if err != nil {
			return // a check that only connects
		}
		if first[0] == line[0] {
			echo(s, peeked{c, r})
			return
		}
		h.handle(s, peeked{c, r})
	})
	return h
}

// peeked is a connection of which something was read ahead.
type peeked struct {
	net.Conn
	r *bufio.Reader
}

// Read implements io.Reader.
func (p peeked) Read(b []byte) (int, error) { return p.r.Read(b) }
