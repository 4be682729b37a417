package smtp

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/checkertest"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// serve runs handle for each connection to a listener on addr and returns an
// SMTP_CHECK of it.
func serve(t testing.TB, addr string, handle func(net.Conn)) *config.Checker {
	t.Helper()
	target := testkit.Serve(t, addr, handle)
	return &config.Checker{
		Kind: config.SMTPCheck,
		Conn: config.Connection{Target: target, Timeout: 5 * time.Second},
		SMTP: &config.SMTP{Helo: config.DefaultHelo},
	}
}

// script is a server that says its lines in turn, each but the first after a
// command, and hangs up after the last command. What it is told goes to heard.
func script(heard chan<- string, lines ...string) func(net.Conn) {
	return func(c net.Conn) {
		r := bufio.NewReader(c)
		var all strings.Builder
		for _, l := range lines {
			io.WriteString(c, l)
			command, err := r.ReadString('\n')
			all.WriteString(command)
			if err != nil {
				break
			}
		}
		if heard != nil {
			heard <- all.String()
		}
	}
}

func run(t testing.TB, c *config.Checker) checker.Outcome {
	t.Helper()
	o := New(c).Run(t.Context())
	if o.Took <= 0 || o.Reason == "" {
		t.Errorf("outcome says too little: %+v", o)
	}
	if why := checkertest.Unfounded(o); why != "" {
		t.Errorf("%+v: %s", o, why)
	}
	return o
}

func TestDialogue(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		heard := make(chan string, 1)
		c := serve(t, addr, script(heard, "220 mx.test ESMTP\r\n", "250 hello\r\n", "221 bye\r\n"))
		if o := run(t, c); o.Result != checker.OK || o.Reason != `banner 220 "mx.test ESMTP"` {
			t.Errorf("%s: %+v", addr, o)
		}
		if got, want := <-heard, "HELO smtpchecker.keepalived.org\r\nQUIT\r\n"; got != want {
			t.Errorf("%s: server heard %q, want %q", addr, got, want)
		}
	}
}

func TestHeloNameIsTheConfiguredOne(t *testing.T) {
	for name, want := range map[string]string{"director.test": "director.test", "": config.DefaultHelo} {
		heard := make(chan string, 1)
		c := serve(t, "127.0.0.1:0", script(heard, "220 a\r\n", "250 b\r\n", "221 c\r\n"))
		c.SMTP.Helo = name
		run(t, c)
		if got := <-heard; got != "HELO "+want+"\r\nQUIT\r\n" {
			t.Errorf("%q: server heard %q", name, got)
		}
	}
}

func TestVerdictByAnswers(t *testing.T) {
	long := strings.Repeat("x", MaxLine)
	tests := []struct {
		name, banner, helo, quit string
		want                     checker.Result
		reason                   string
	}{
		{"bare LF", "220 a\n", "250 b\n", "221 c\n", checker.OK, `banner 220 "a"`},
		{"codes alone", "220\r\n", "250\r\n", "221\r\n", checker.OK, "banner 220"},
		{"codes alone, bare LF", "220\n", "250\n", "221\n", checker.OK, "banner 220"},
		{"NUL in the text", "220 a\x00b\r\n", "250 b\r\n", "221 c\r\n", checker.OK, `banner 220 "a\x00b"`},
		{"QUIT answered with an error", "220 a\r\n", "250 b\r\n", "500 what?\r\n", checker.OK, "banner"},
		{"QUIT answered with anything", "220 a\r\n", "250 b\r\n", "\n", checker.OK, "banner"},
		{"longest line", "220 " + long[:MaxLine-6] + "\r\n", "250 b\r\n", "221 c\r\n", checker.OK, "banner"},
		{"no answer to QUIT", "220 a\r\n", "250 b\r\n", "", checker.Failed, "answer to QUIT from TARGET: connection closed by the peer after "},
		{"half an answer to QUIT", "220 a\r\n", "250 b\r\n", "221 b", checker.Failed, "answer to QUIT (5 bytes came, no end of line) from TARGET: connection closed by the peer after "},
		{"QUIT answered without end", "220 a\r\n", "250 b\r\n", "221 " + long, checker.Failed, "the line does not end within 1024 bytes"},
		{"busy", "421 too many connections\r\n", "", "", checker.Failed, `banner from TARGET: 421 "too many connections", expected 220, after `},
		{"refused", "554 no\r\n", "", "", checker.Failed, `banner from TARGET: 554 "no", expected 220, after `},
		{"refused in many lines", "554-no\r\n554-really\r\n554 no\r\n", "", "", checker.Failed, `554 "no" (3 lines), expected 220`},
		{"helo refused", "220 a\r\n", "501 bad name\r\n", "221 c\r\n", checker.Failed, `answer to HELO from TARGET: 501 "bad name", expected 250, after `},
		{"goes down after the banner", "220 a\r\n", "421 shutting down\r\n", "", checker.Failed, `answer to HELO from TARGET: 421 "shutting down", expected 250, after `},
		{"another 2xx", "220 a\r\n", "220 b\r\n", "221 c\r\n", checker.Failed, `answer to HELO from TARGET: 220 "b", expected 250, after `},
		{"zeros", "000 a\r\n", "", "", checker.Failed, `000 "a", expected 220`},
		{"no SMTP", "SSH-2.0-x\r\n", "", "", checker.Failed, `banner from TARGET: "SSH-2.0-x" is no SMTP answer, expected a code of three digits, after `},
		{"empty line", "\r\n220 a\r\n", "", "", checker.Failed, `"" is no SMTP answer`},
		{"four digits", "2200 a\r\n", "", "", checker.Failed, `"2200 a" is no SMTP answer`},
		{"forty digits", strings.Repeat("2", 40) + "\r\n", "", "", checker.Failed, "is no SMTP answer"},
		{"tab after the code", "220\ta\r\n", "", "", checker.Failed, `"220\ta" is no SMTP answer`},
		{"CR after the code", "220\ra\r\n", "", "", checker.Failed, `"220\ra" is no SMTP answer`},
		{"NUL in the code", "2\x0020 a\r\n", "", "", checker.Failed, `"2\x0020 a" is no SMTP answer`},
		{"codes differ", "220-a\r\n250 b\r\n", "", "", checker.Failed, `"250 b" in line 2, expected 220 as in the first line`},
		{"odd second line", "220-a\r\nb\r\n", "", "", checker.Failed, `"b" in line 2 is no SMTP answer, expected 220`},
		{"line too long", "220 " + long[:MaxLine-5] + "\r\n", "", "", checker.Failed, "x\"... is no SMTP answer, the line does not end within 1024 bytes"},
		{"endless line", strings.Repeat("2", 1<<20), "", "", checker.Failed, "the line does not end within 1024 bytes"},
		{"endless banner", strings.Repeat("220-a\r\n", 1<<17), "", "", checker.Failed, `220 "a" (100 lines) goes on after 100 lines`},
		{"most lines", strings.Repeat("220-a\r\n", MaxLines-1) + "220 a\r\n", "250 b\r\n", "221 c\r\n", checker.OK, `banner 220 "a" (100 lines)`},
		{"silent end", "", "", "", checker.Failed, "banner from TARGET: connection closed by the peer after "},
		{"end within a line", "220 a", "", "", checker.Failed, "banner (5 bytes came, no end of line) from TARGET: connection closed by the peer after "},
		{"end within an answer", "220-a\r\n2", "", "", checker.Failed, "banner (1 line and 1 byte came) from TARGET: connection closed by the peer after "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, "127.0.0.1:0", func(c net.Conn) {
				r := bufio.NewReader(c)
				for _, line := range []string{tt.banner, tt.helo, tt.quit} {
					io.WriteString(c, line)
					if !strings.HasSuffix(line, "\n") {
						break // and hang up
					}
					if _, err := r.ReadString('\n'); err != nil {
						break
					}
				}
				// A close with unread bytes would be a reset, and the answer might be lost.
				c.(*net.TCPConn).CloseWrite()
				io.Copy(io.Discard, c)
			})
			o := run(t, c)
			want := strings.ReplaceAll(tt.reason, "TARGET", c.Conn.Target.String())
			if o.Result != tt.want || !strings.Contains(o.Reason, want) {
				t.Errorf("%v: %q\nwant %v: ...%q", o.Result, o.Reason, tt.want, want)
			}
			if len(o.Reason) > 300 {
				t.Errorf("reason of %d bytes", len(o.Reason))
			}
		})
	}
}

// In C16's worst order: the banner comes late and in parts, and HELO must not come
// before its end.
func TestC16WaitsForTheLastLineOfEachAnswer(t *testing.T) {
	early := make(chan string, 1)
	c := serve(t, "127.0.0.1:0", func(c net.Conn) {
		r := bufio.NewReader(c)
		// silent checks that the client says nothing for a while.
		silent := func(when string) {
			c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			if b, err := r.Peek(1); err == nil {
				early <- fmt.Sprintf("%q %s", b, when)
			}
			c.SetReadDeadline(time.Time{})
		}
		silent("before the banner")
		for _, part := range []string{"220-one\r\n", "220-t", "wo\r", "\n220", "-three\r\n"} {
			io.WriteString(c, part)
			silent("within the banner")
		}
		io.WriteString(c, "220 four\r\n")
		if got, err := r.ReadString('\n'); err != nil || !strings.HasPrefix(got, "HELO ") {
			early <- fmt.Sprintf("%q, %v instead of HELO", got, err)
		}
		for _, part := range []string{"250-a\r\n2", "50-b\r\n250-c\r\n", "250-d", "\r\n"} {
			io.WriteString(c, part)
			silent("within the answer to HELO")
		}
		io.WriteString(c, "250 e\r\n")
		if got, err := r.ReadString('\n'); err != nil || got != "QUIT\r\n" {
			early <- fmt.Sprintf("%q, %v instead of QUIT", got, err)
		}
		io.WriteString(c, "221 bye\r\n")
		close(early)
	})
	if o := run(t, c); o.Result != checker.OK || o.Reason != `banner 220 "one" (4 lines)` {
		t.Errorf("%+v", o)
	}
	for what := range early {
		t.Error("client sent ", what)
	}
}

func TestC16ErrorsFailWithTheirTextAndQuitIsSent(t *testing.T) {
	for _, lines := range [][]string{
		{"451 try later\r\n", ""},
		{"521 no mail here\r\n", ""},
		{"220 a\r\n", "550 go away\r\n", ""},
	} {
		heard := make(chan string, 1)
		c := serve(t, "127.0.0.1:0", script(heard, lines...))
		text := strings.TrimSpace(lines[len(lines)-2][4:])
		if o := run(t, c); o.Result != checker.Failed || !strings.Contains(o.Reason, text) {
			t.Errorf("%q: %+v", lines, o)
		}
		if got := <-heard; !strings.HasSuffix(got, "QUIT\r\n") {
			t.Errorf("%q: server heard %q, no QUIT", lines, got)
		}
	}
}

func TestASlowServerHasOneDeadline(t *testing.T) {
	for name, tt := range map[string]struct {
		handle func(net.Conn)
		reason string
	}{
		"silent": {func(c net.Conn) { io.Copy(io.Discard, c) }, "banner from "},
		"dribbles": {func(c net.Conn) {
			tick := time.NewTicker(5 * time.Millisecond)
			defer tick.Stop()
			for ; ; <-tick.C {
				if _, err := io.WriteString(c, "2"); err != nil {
					return
				}
			}
		}, "banner ("},
		"line by line": {func(c net.Conn) {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for ; ; <-tick.C {
				if _, err := io.WriteString(c, "220-a\r\n"); err != nil {
					return
				}
			}
		}, "banner ("},
		"silent after HELO": {func(c net.Conn) {
			io.WriteString(c, "220 a\r\n")
			io.Copy(io.Discard, c)
		}, "answer to HELO from "},
		"silent after QUIT": {func(c net.Conn) {
			io.WriteString(c, "220 a\r\n250 b\r\n")
			io.Copy(io.Discard, c)
		}, "answer to QUIT from "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, "127.0.0.1:0", tt.handle)
			c.Conn.Timeout = 200 * time.Millisecond
			o := run(t, c)
			if o.Result != checker.Failed || !strings.HasPrefix(o.Reason, tt.reason) || !strings.Contains(o.Reason, "no answer in time after ") {
				t.Errorf("%+v", o)
			}
			if o.Took < c.Conn.Timeout || o.Took > 4*time.Second {
				t.Errorf("took %v with a deadline of %v", o.Took, c.Conn.Timeout)
			}
		})
	}
}

func TestTheContextsDeadlineHolds(t *testing.T) {
	c := serve(t, "127.0.0.1:0", func(c net.Conn) { io.Copy(io.Discard, c) })
	c.Conn.Timeout = time.Hour
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if o := New(c).Run(ctx); o.Result != checker.Failed || !strings.Contains(o.Reason, "no answer in time") {
		t.Errorf("%+v", o)
	}
}

func TestAServerThatSpeaksUnasked(t *testing.T) {
	for text, want := range map[string]checker.Result{
		"220 a\r\n250 b\r\n221 c\r\n": checker.OK,
		"220 a\r\n421 timeout\r\n":    checker.Failed,
	} {
		// It hangs up at once, so that a command may meet a closed connection.
		c := serve(t, "127.0.0.1:0", func(c net.Conn) { io.WriteString(c, text) })
		for range 20 {
			o := run(t, c)
			if o.Result != want || want == checker.Failed && !strings.Contains(o.Reason, `421 "timeout", expected 250`) {
				t.Fatalf("%q: %+v", text, o)
			}
		}
	}
}

func TestByteByByte(t *testing.T) {
	c := serve(t, "127.0.0.1:0", func(c net.Conn) {
		r := bufio.NewReader(c)
		for _, line := range []string{"220-a\r\n220 b\r\n", "250 c\r\n", "221 d\r\n"} {
			for i := range len(line) {
				io.WriteString(c, line[i:i+1])
			}
			r.ReadString('\n')
		}
	})
	if o := run(t, c); o.Result != checker.OK {
		t.Errorf("%+v", o)
	}
}

func TestResetIsAFailure(t *testing.T) {
	c := serve(t, "127.0.0.1:0", func(c net.Conn) {
		io.WriteString(c, "220 a\r\n")
		bufio.NewReader(c).ReadString('\n')
		c.(*net.TCPConn).SetLinger(0)
	})
	o := run(t, c)
	if o.Result != checker.Failed || !strings.Contains(o.Reason, "answer to HELO from "+c.Conn.Target.String()+": connection reset by peer (ECONNRESET) after ") {
		t.Errorf("%+v", o)
	}
}

func TestC02RefusedIsFailedBindMissingIsUnable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c := &config.Checker{Kind: config.SMTPCheck, Conn: config.Connection{
		Target: netip.MustParseAddrPort(l.Addr().String()), Timeout: 5 * time.Second, BindAddr: netip.MustParseAddr("192.0.2.77"),
	}}
	if o := run(t, c); o.Result != checker.Unable || !strings.Contains(o.Reason, "source address 192.0.2.77 is not on this machine") {
		t.Errorf("source address missing: %+v", o)
	}
	c.Conn.BindAddr = netip.Addr{}
	l.Close()
	want := "connect to " + c.Conn.Target.String() + ": connection refused (ECONNREFUSED) after "
	if o := run(t, c); o.Result != checker.Failed || !strings.HasPrefix(o.Reason, want) {
		t.Errorf("refused: %+v", o)
	}
}

// keepalived repeats a failing SMTP_CHECK by itself; here the engine alone counts.
func TestC17OneRunIsOneAttempt(t *testing.T) {
	var conns atomic.Int32
	c := serve(t, "127.0.0.1:0", func(c net.Conn) {
		conns.Add(1)
		io.WriteString(c, "450 later\r\n")
		io.Copy(io.Discard, c)
	})
	c.Retry = 3
	p := New(c)
	for n := int32(1); n <= 3; n++ {
		if o := p.Run(t.Context()); o.Result != checker.Failed {
			t.Errorf("%+v", o)
		}
		if got := conns.Load(); got != n {
			t.Errorf("%d connections after %d runs", got, n)
		}
	}
}

func TestCancelledIsUnable(t *testing.T) {
	asked := make(chan bool, 1)
	c := serve(t, "127.0.0.1:0", func(c net.Conn) {
		io.WriteString(c, "220 a\r\n")
		bufio.NewReader(c).ReadString('\n')
		asked <- true
		io.Copy(io.Discard, c)
	})
	c.Conn.Timeout = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-asked
		cancel()
	}()
	for range 2 { // within the dialogue, then before it
		if o := New(c).Run(ctx); o.Result != checker.Unable || o.Reason != "cancelled" {
			t.Errorf("%+v", o)
		}
	}
}

func BenchmarkSMTPProbe(b *testing.B) {
	c := serve(b, "127.0.0.1:0", script(nil, "220 a\r\n", "250 b\r\n", "221 c\r\n"))
	p := New(c)
	b.ReportAllocs()
	for b.Loop() {
		if o := p.Run(b.Context()); o.Result != checker.OK {
			b.Fatal(o.Reason)
		}
	}
}

// closed is a connection that takes nothing more.
type closed struct{}

func (closed) Write([]byte) (int, error) { return 0, syscall.EPIPE }

func TestAnAnswerCountsThoughTheCommandWasNotTaken(t *testing.T) {
	for said, want := range map[string]string{
		"250 a\r\n221 b\r\n": "",
		"421 too slow\r\n":   `answer to HELO from target: 421 "too slow", expected 250, after `,
		"":                   "send HELO to target: broken pipe (EPIPE) after ",
		"250 a\r\n":          "send QUIT to target: broken pipe (EPIPE) after ",
	} {
		d := dialogue{
			probe: &probe{target: "target"}, ctx: t.Context(), began: time.Now(),
			w: closed{}, r: bufio.NewReaderSize(strings.NewReader(said), MaxLine),
		}
		_, o := d.step("answer to HELO", "HELO a\r\n", codeOK)
		if o == nil {
			o = d.quit()
		}
		if want == "" && o != nil || want != "" && (o == nil || !strings.HasPrefix(o.Reason, want)) {
			t.Errorf("%q: %+v, want %q", said, o, want)
		}
	}
}
