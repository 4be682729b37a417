package testkit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// Server is a backend's listening socket and the connections on it, which a
// test may disturb at will. EchoServer and HTTPServer are made of it.
type Server struct {
	// Name is what the server tags its replies with.
	Name string
	// Addr is the address it listens on.
	Addr string

	ns       *NS
	accepted atomic.Int64
	wg       sync.WaitGroup

	mu    sync.Mutex
	l     net.Listener
	conns map[net.Conn]struct{}
	hung  chan struct{} // closed while the server answers
	serve func(net.Conn)
}

func newServer(t T, ns *NS, addr string, serve func(*Server, net.Conn)) *Server {
	t.Helper()
	answering := make(chan struct{})
	close(answering)
	s := &Server{Name: ns.Name, Addr: addr, ns: ns, conns: map[net.Conn]struct{}{}, hung: answering}
	s.serve = func(c net.Conn) { serve(s, c) }
	s.Start(t)
	t.Cleanup(func() {
		s.Stop()
		s.Resume() // whoever waits for an answer sees its connection closed
		s.wg.Wait()
	})
	return s
}

// Start listens again after Refuse or Stop. On a server that listens it does
// nothing.
func (s *Server) Start(t T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.l != nil {
		return
	}
	l, err := s.ns.Listen("tcp", s.Addr)
	if err != nil {
		t.Fatalf("start server %s: %v", s.Name, err)
	}
	s.l = l
	s.wg.Go(func() { s.accept(l) })
}

func (s *Server) accept(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		s.mu.Lock()
		open := s.l == l
		if open {
			s.accepted.Add(1)
			s.conns[c] = struct{}{}
		}
		s.mu.Unlock()
		if !open { // stopped between accept and here
			c.Close()
			return
		}
		s.wg.Go(func() {
			defer s.forget(c)
			s.serve(c)
		})
	}
}

func (s *Server) forget(c net.Conn) {
	c.Close()
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
}

// Refuse closes the listening socket alone: new connections are refused, the
// established ones go on.
func (s *Server) Refuse() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.l != nil {
		s.l.Close()
		s.l = nil
	}
}

// Stop refuses new connections and closes the established ones, as the end of a
// process does.
func (s *Server) Stop() {
	s.Refuse()
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

// Hang keeps accepting and answers nothing, new or established, until Resume.
func (s *Server) Hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.hung:
		s.hung = make(chan struct{})
	default: // it hangs already
	}
}

// Resume ends Hang; what came in meanwhile is answered.
func (s *Server) Resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-s.hung:
	default:
		close(s.hung)
	}
}

// wait returns once the server answers.
func (s *Server) wait() {
	s.mu.Lock()
	c := s.hung
	s.mu.Unlock()
	<-c
}

// Accepted counts the connections accepted so far.
func (s *Server) Accepted() int { return int(s.accepted.Load()) }

// Established counts the connections that are open now.
func (s *Server) Established() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// NewEcho starts a server that answers each line with its name, a blank and the
// line. addr is numeric, with the port.
func NewEcho(t T, ns *NS, addr string) *Server {
	t.Helper()
	return newServer(t, ns, addr, echo)
}

func echo(s *Server, c net.Conn) {
	for lines := bufio.NewReader(c); ; {
		line, err := lines.ReadString('\n')
		if err != nil {
			return
		}
		s.wait()
		if _, err := fmt.Fprintf(c, "%s %s", s.Name, line); err != nil {
			return
		}
	}
}

// HTTPServer answers every request with its status and, as body and in the
// header X-Backend, its name.
type HTTPServer struct {
	*Server
	status   atomic.Int64
	requests atomic.Int64
	body     atomic.Pointer[string]
}

// NewHTTP starts an HTTP server with status 200.
func NewHTTP(t T, ns *NS, addr string) *HTTPServer {
	t.Helper()
	h := &HTTPServer{}
	h.status.Store(http.StatusOK)
	h.Server = newServer(t, ns, addr, h.handle)
	return h
}

// SetStatus sets the status of the replies from now on.
func (h *HTTPServer) SetStatus(code int) { h.status.Store(int64(code)) }

// SetBody sets the body in place of the name.
func (h *HTTPServer) SetBody(body string) { h.body.Store(&body) }

// Requests counts the requests answered so far.
func (h *HTTPServer) Requests() int { return int(h.requests.Load()) }

// handle serves one connection, keep-alive included.
func (h *HTTPServer) handle(s *Server, c net.Conn) {
	for r := bufio.NewReader(c); ; {
		req, err := http.ReadRequest(r)
		if err != nil {
			return
		}
		if _, err := io.Copy(io.Discard, req.Body); err != nil {
			return
		}
		s.wait()
		body := s.Name + "\n"
		if b := h.body.Load(); b != nil {
			body = *b
		}
		code := int(h.status.Load())
		connection := "keep-alive"
		if req.Close {
			connection = "close"
		}
		h.requests.Add(1)
		_, err = fmt.Fprintf(c, "HTTP/1.1 %d %s\r\nX-Backend: %s\r\nContent-Type: text/plain\r\nContent-Length: %s\r\nConnection: %s\r\n\r\n",
			code, http.StatusText(code), s.Name, strconv.Itoa(len(body)), connection)
		if err == nil && req.Method != http.MethodHead {
			_, err = io.WriteString(c, body)
		}
		if err != nil || req.Close {
			return
		}
	}
}

// NewUDPEcho starts a server that answers each datagram with its name, a blank
// and the datagram.
func NewUDPEcho(t T, ns *NS, addr string) {
	t.Helper()
	c, err := ns.ListenPacket("udp", addr)
	if err != nil {
		t.Fatalf("start udp server %s: %v", ns.Name, err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for buf := make([]byte, 2048); ; {
			n, from, err := c.ReadFrom(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err == nil {
				_ = c.SetWriteDeadline(time.Now().Add(time.Second))
				_, _ = c.WriteTo(append([]byte(ns.Name+" "), buf[:n]...), from)
			}
		}
	})
	t.Cleanup(func() { c.Close(); wg.Wait() })
}
