package mail

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
)

// buffer is a log.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// server is a mail server. What it says depends on say; "" hangs up, and silence says
// nothing and waits for the end.
type server struct {
	mu       sync.Mutex
	sessions []string // all that a client said, a session each
	mails    []string // what was accepted, dots and all
	at       []time.Time
	say      func(session int, command string) string
}

const silence = "silence"

// polite is a server that takes everything. The greeting is its answer to "", the
// mail's to ".".
func polite(_ int, command string) string {
	switch command {
	case "":
		return "220 mx.test\r\n"
	case "DATA":
		return "354 go on\r\n"
	case "QUIT":
		return "221 bye\r\n"
	}
	return "250 ok\r\n"
}

// except is polite apart from some answers, by session and command; a session of 0
// is any, the first is 1.
func except(answers map[string]string) func(int, string) string {
	return func(session int, command string) string {
		for _, key := range []string{fmt.Sprintf("%d %s", session, command), "0 " + command} {
			if a, ok := answers[key]; ok {
				return a
			}
		}
		return polite(session, command)
	}
}

func (s *server) handle(c net.Conn) {
	defer c.Close()
	s.mu.Lock()
	n := len(s.sessions)
	s.sessions = append(s.sessions, "")
	s.at = append(s.at, time.Now())
	s.mu.Unlock()
	answer := func(command string) (said string, ok bool) {
		said = s.say(n+1, command)
		switch said {
		case "":
			return said, false
		case silence:
			io.Copy(hearer{s, n}, c)
			return said, false
		}
		_, err := io.WriteString(c, said)
		return said, err == nil && command != "QUIT"
	}
	r := bufio.NewReader(io.TeeReader(c, hearer{s, n}))
	if _, ok := answer(""); !ok {
		return
	}
	for {
		line, err := r.ReadString('\n')
		command := strings.TrimSpace(line)
		if err != nil {
			return
		}
		said, ok := answer(command)
		if !ok {
			return
		}
		if !strings.HasPrefix(said, "354") {
			continue
		}
		var mail strings.Builder
		for {
			line, err := r.ReadString('\n')
			if err != nil {
				return
			}
			if line == ".\r\n" {
				break
			}
			mail.WriteString(line)
		}
		s.mu.Lock()
		s.mails = append(s.mails, mail.String())
		s.mu.Unlock()
		if _, ok := answer("."); !ok {
			return
		}
	}
}

type hearer struct {
	s *server
	n int
}

func (h hearer) Write(p []byte) (int, error) {
	h.s.mu.Lock()
	defer h.s.mu.Unlock()
	h.s.sessions[h.n] += string(p)
	return len(p), nil
}

// got returns what sessions and mails there were.
func (s *server) got() (sessions, mails []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.sessions), slices.Clone(s.mails)
}

// rig is a Mailer that runs, with a server for it.
type rig struct {
	*Mailer
	t     *testing.T
	log   *buffer
	stop  func()
	srv   *server
	began time.Time
}

// start runs a Mailer whose connections end at a server within the bubble.
func start(t *testing.T, say func(int, string) string) *rig {
	t.Helper()
	log := &buffer{}
	r := &rig{
		Mailer: New(Options{Log: slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug}))}),
		t:      t, log: log, srv: &server{say: say}, began: time.Now(),
	}
	r.dial = func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		go r.srv.handle(there)
		return here, nil
	}
	r.Configure(twoRecipients, "lb1")
	r.run()
	return r
}

func (r *rig) run() {
	ctx, cancel := context.WithCancel(r.t.Context())
	over := make(chan error, 1)
	go func() { over <- r.Run(ctx) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-over; err != nil {
			r.t.Errorf("Run: %v", err)
		}
	})
	r.t.Cleanup(r.stop)
}

var twoRecipients = config.Mail{
	To: []string{"One <one@a.test>", "two@a.test"}, From: "LB <lb@a.test>", Server: "mx.test", Port: 25, Helo: "lb1.test", Timeout: 30 * time.Second,
}

func (r *rig) logs(parts ...string) {
	r.t.Helper()
	for _, p := range parts {
		if !strings.Contains(r.log.String(), p) {
			r.t.Errorf("log lacks %q:\n%s", p, r.log)
		}
	}
}

// tries are the times of the sessions since the start.
func (r *rig) tries() string {
	r.srv.mu.Lock()
	defer r.srv.mu.Unlock()
	var all []string
	for _, at := range r.srv.at {
		all = append(all, at.Sub(r.began).String())
	}
	return strings.Join(all, " ")
}

var alert = Message{RS: rs, VS: vs, Body: "=> TCP CHECK failed on service <="}
