package dial

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/checkertest"
	"github.com/sluice-lb/sluice/internal/config"
)

// script is a conversation that writes down how it is led.
type script struct {
	conns  []config.Connection
	send   string
	listen bool
	enough int // bytes of an answer, 0 for no end

	began   time.Time
	next    int
	said    []string
	got     bytes.Buffer
	step    checker.Step
	err     error
	outcome checker.Outcome
	ends    int
}

func (s *script) note(what string) { s.said = append(s.said, what) }

func (s *script) Run(ctx context.Context) checker.Outcome { return Converse(ctx, s, nil) }

func (s *script) Begin() *config.Connection {
	s.began, s.next, s.said, s.ends, s.err = time.Now(), 1, []string{"begin"}, 0, nil
	s.outcome = checker.Outcome{Reason: "connected"}
	return &s.conns[0]
}

func (s *script) Connected() ([]byte, bool) {
	s.note("connected")
	s.got.Reset()
	return []byte(s.send), s.listen
}

func (s *script) Received(p []byte) bool {
	if s.said[len(s.said)-1] != "received" {
		s.note("received")
	}
	s.got.Write(p)
	return s.enough > 0 && s.got.Len() >= s.enough
}

func (s *script) Ended(step checker.Step, err error) {
	s.note("ended")
	s.step, s.err = step, err
	s.ends++
	if step == checker.StepConnect {
		s.outcome = Outcome(checker.Site{Stage: checker.StageConnect, Step: "connect to", Peer: s.conns[s.next-1].Target.String()}, err, s.began)
	}
}

func (s *script) Next() (*config.Connection, checker.Outcome) {
	s.note("next")
	if s.outcome.Result != checker.OK || s.next == len(s.conns) {
		return nil, s.outcome
	}
	s.next++
	return &s.conns[s.next-1], checker.Outcome{}
}

// A check that only connects is led as TCP_CHECK is run.
func TestConnectCases(t *testing.T) {
	checkertest.Run(t, checkertest.TCP(),
		func(c *config.Checker) (checker.Probe, error) {
			return &script{conns: []config.Connection{c.Conn}}, nil
		},
		func(c checker.Conversation) checker.Outcome { return Converse(t.Context(), c, nil) })
}

func TestConverseLeads(t *testing.T) {
	const question, answer = "question", "the whole answer"
	read := func(c net.Conn) { io.ReadFull(c, make([]byte, len(question))) }
	tests := []struct {
		name   string
		peer   func(net.Conn)
		s      script
		said   []string
		got    string
		step   checker.Step
		err    error
		twice  bool
		result checker.Result
	}{
		{name: "to connect alone", peer: hold, said: []string{"begin", "connected", "next"}},
		{name: "to say something", peer: hold, s: script{send: question}, said: []string{"begin", "connected", "next"}},
		{name: "until it has enough", peer: func(c net.Conn) { read(c); io.WriteString(c, answer); hold(c) },
			s: script{send: question, listen: true, enough: len(answer)}, said: []string{"begin", "connected", "received", "next"}, got: answer},
		{name: "to the end", peer: func(c net.Conn) { read(c); io.WriteString(c, answer) },
			s: script{send: question, listen: true}, said: []string{"begin", "connected", "received", "ended", "next"}, got: answer, step: checker.StepReceive, err: io.EOF},
		{name: "to a reset", peer: func(c net.Conn) { read(c); io.WriteString(c, answer); c.(*net.TCPConn).SetLinger(0) },
			s: script{send: question, listen: true}, said: []string{"begin", "connected", "received", "ended", "next"}, got: answer, step: checker.StepReceive, err: unix.ECONNRESET},
		{name: "to listen alone", peer: func(c net.Conn) { io.WriteString(c, answer) },
			s: script{listen: true}, said: []string{"begin", "connected", "received", "ended", "next"}, got: answer, step: checker.StepReceive, err: io.EOF},
		{name: "over several connections", peer: func(c net.Conn) { read(c); io.WriteString(c, answer); hold(c) }, twice: true,
			s: script{send: question, listen: true, enough: len(answer)}, said: []string{"begin", "connected", "received", "next", "connected", "received", "next"}, got: answer},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := serve(t, tt.peer)
			tt.s.conns = []config.Connection{c}
			if tt.twice {
				tt.s.conns = append(tt.s.conns, c)
			}
			o := Converse(t.Context(), &tt.s, nil)
			if !slices.Equal(tt.s.said, tt.said) || tt.s.got.String() != tt.got {
				t.Errorf("led %q with %q\nwant %q with %q", tt.s.said, tt.s.got.String(), tt.said, tt.got)
			}
			if tt.s.ends > 0 && (tt.s.step != tt.step || tt.s.err != tt.err) {
				t.Errorf("ended in step %d: %v, want step %d: %v", tt.s.step, tt.s.err, tt.step, tt.err)
			}
			if o.Result != checker.OK || o.Took <= 0 {
				t.Errorf("outcome %+v", o)
			}
		})
	}
}

// serve is listen with a handler for each connection.
func serve(t *testing.T, handle func(net.Conn)) config.Connection {
	t.Helper()
	l, c := listen(t, "127.0.0.1:0")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			handle(conn)
			conn.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-ended })
	return c
}

func hold(c net.Conn) { io.Copy(io.Discard, c) }

// Every connection of a run has the whole time.
func TestConverseHasADeadlineForEachConnection(t *testing.T) {
	c := serve(t, hold)
	c.Timeout = 100 * time.Millisecond
	s := &script{conns: []config.Connection{c, c, c}, send: "x", listen: true}
	o := Converse(t.Context(), s, nil)
	if o.Took < 3*c.Timeout || s.ends != 3 || !errors.Is(s.err, context.DeadlineExceeded) && !timeout(s.err) {
		t.Errorf("took %v, %d ended, the last with %v", o.Took, s.ends, s.err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), c.Timeout/2)
	defer cancel()
	s.conns = s.conns[:1]
	if o := Converse(ctx, s, nil); o.Took >= c.Timeout*5 || !timeout(s.err) {
		t.Errorf("beyond the context's deadline: took %v, ended with %v", o.Took, s.err)
	}
}

// A cancelled run says so wherever it was, and asks the conversation nothing more.
func TestConverseIsCancelled(t *testing.T) {
	connected := make(chan struct{}, 1)
	waits := func(c net.Conn) { connected <- struct{}{}; hold(c) }
	for name, c := range map[string]config.Connection{"waiting": serve(t, waits), "connecting": full(t)} {
		ctx, cancel := context.WithCancel(t.Context())
		c.Timeout = 10 * time.Second
		s := &script{conns: []config.Connection{c}, send: "x", listen: true}
		if name == "waiting" {
			go func() { <-connected; cancel() }()
		} else {
			time.AfterFunc(20*time.Millisecond, cancel)
		}
		o := Converse(ctx, s, nil)
		cancel()
		if o.Result != checker.Unable || o.Reason != "cancelled" || o.Took <= 0 || s.ends != 0 || slices.Contains(s.said, "next") {
			t.Errorf("%s: %+v, led %q", name, o, s.said)
		}
	}
}

// broken is a layer whose sends fail after what the peer had said was seen.
type broken struct {
	io.Reader
	err    error
	closed *atomic.Int32
}

func (b broken) Write([]byte) (int, error) { return 0, b.err }
func (b broken) Close() error              { b.closed.Add(1); return nil }

func TestConverseReadsWhatCameBeforeAFailedSend(t *testing.T) {
	const answer = "said first"
	c := serve(t, func(c net.Conn) { io.WriteString(c, answer) })
	for _, tt := range []struct {
		name string
		s    script
		said []string
		ends int
	}{
		{"and that is enough", script{listen: true, enough: len(answer)}, []string{"begin", "connected", "received", "next"}, 0},
		{"and that is not enough", script{listen: true}, []string{"begin", "connected", "received", "ended", "next"}, 1},
		{"but not for who does not listen", script{}, []string{"begin", "connected", "ended", "next"}, 1},
	} {
		var closed atomic.Int32
		tt.s.conns, tt.s.send = []config.Connection{c}, "question"
		Converse(t.Context(), &tt.s, func(tcp *Conn) (io.ReadWriter, error) { return broken{tcp, unix.EPIPE, &closed}, nil })
		if !slices.Equal(tt.s.said, tt.said) {
			t.Errorf("%s: led %q, want %q", tt.name, tt.s.said, tt.said)
		}
		if tt.ends > 0 && (tt.s.step != checker.StepSend || tt.s.err != syscall.EPIPE) {
			t.Errorf("%s: ended in step %d: %v", tt.name, tt.s.step, tt.s.err)
		}
		if closed.Load() != 1 {
			t.Errorf("%s: the layer was closed %d times", tt.name, closed.Load())
		}
	}
}

func TestConverseTellsAnErrorOfTheLayer(t *testing.T) {
	end := make(chan error, 1)
	c := serve(t, func(c net.Conn) {
		_, err := c.Read(make([]byte, 1))
		end <- err
	})
	failed := errors.New("no handshake")
	s := &script{conns: []config.Connection{c}}
	o := Converse(t.Context(), s, func(*Conn) (io.ReadWriter, error) { return nil, failed })
	if s.step != checker.StepConnect || s.err != failed || o.Result != checker.Failed {
		t.Errorf("ended in step %d: %v; %+v", s.step, s.err, o)
	}
	if err := <-end; err != io.EOF {
		t.Errorf("the peer saw %v, want a normal close", err)
	}
}

// A conversation that panics leaves no connection behind.
func TestConverseClosesAfterAPanic(t *testing.T) {
	end := make(chan error, 1)
	c := serve(t, func(c net.Conn) {
		_, err := c.Read(make([]byte, 1))
		end <- err
	})
	s := &panics{script{conns: []config.Connection{c}}}
	func() {
		defer func() { recover() }()
		Converse(t.Context(), s, nil)
	}()
	if err := <-end; err != io.EOF {
		t.Errorf("the peer saw %v, want a normal close", err)
	}
}

type panics struct{ script }

func (*panics) Connected() ([]byte, bool) { panic("told to") }
