package http

import (
	"bufio"
	"context"
	"crypto/md5"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dlclark/regexp2/v2"
	"go.uber.org/goleak"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/checkertest"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/testkit"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		regexp2.StopTimeoutClock()
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 99
		}
	}
	os.Exit(code)
}

// serve runs handle for each connection to a listener on addr and returns an
// HTTP_GET of it with one url "/".
func serve(t testing.TB, addr string, handle func(net.Conn)) *config.Checker {
	t.Helper()
	target := testkit.Serve(t, addr, handle)
	return &config.Checker{
		Kind: config.HTTPGet,
		Conn: config.Connection{Target: target, Timeout: 5 * time.Second},
		HTTP: &config.HTTP{URLs: []config.URL{get("/")}},
	}
}

func get(path string) config.URL {
	return config.URL{Path: path, Status: []config.StatusRange{{First: 200, Last: 299}}}
}

// readRequest reads up to the empty line.
func readRequest(c io.Reader) string {
	var b strings.Builder
	r := bufio.NewReader(c)
	for {
		line, err := r.ReadString('\n')
		b.WriteString(line)
		if err != nil || line == "\r\n" {
			return b.String()
		}
	}
}

// answers replies with the same text to every request and closes.
func answers(text string) func(net.Conn) {
	return func(c net.Conn) {
		readRequest(c)
		io.WriteString(c, text)
	}
}

// hold keeps a connection open until the peer closes it.
func hold(c net.Conn) { io.Copy(io.Discard, c) }

func run(t testing.TB, c *config.Checker) checker.Outcome {
	t.Helper()
	p, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := p.Run(t.Context())
	if o.Took <= 0 || o.Reason == "" {
		t.Errorf("outcome says too little: %+v", o)
	}
	if why := checkertest.Unfounded(o); why != "" {
		t.Errorf("%+v: %s", o, why)
	}
	return o
}

func expect(t testing.TB, o checker.Outcome, result checker.Result, reason string) {
	t.Helper()
	if o.Result != result || !strings.Contains(o.Reason, reason) {
		t.Errorf("%v: %q\nwant %v: ...%q", o.Result, o.Reason, result, reason)
	}
}

func TestC22RequestBytes(t *testing.T) {
	const target = "192.0.2.1:8080"
	tests := []struct {
		name     string
		protocol config.HTTPProtocol
		vhost    string
		url      config.URL
		target   string
		want     string
	}{
		{"1.0", config.HTTP10, "", get("/"), target, "GET / HTTP/1.0\r\nUser-Agent: KeepAliveClient\r\nHost: 192.0.2.1:8080\r\n\r\n"},
		{"1.0C", config.HTTP10C, "", get("/a?b=c d"), target, "GET /a?b=c d HTTP/1.0\r\nUser-Agent: KeepAliveClient\r\nConnection: close\r\nHost: 192.0.2.1:8080\r\n\r\n"},
		{"1.1", config.HTTP11, "", get("/"), target, "GET / HTTP/1.1\r\nUser-Agent: KeepAliveClient\r\nConnection: close\r\nHost: 192.0.2.1:8080\r\n\r\n"},
		{"port 80 is written too", config.HTTP10, "", get("/"), "192.0.2.1:80", "GET / HTTP/1.0\r\nUser-Agent: KeepAliveClient\r\nHost: 192.0.2.1:80\r\n\r\n"},
		{"IPv6 in brackets", config.HTTP10, "", get("/"), "[2001:db8::1]:80", "GET / HTTP/1.0\r\nUser-Agent: KeepAliveClient\r\nHost: [2001:db8::1]:80\r\n\r\n"},
		// C22: a virtualhost is sent as it is, with or without a port.
		{"C22 virtualhost", config.HTTP10, "www.example.com", get("/"), target, "GET / HTTP/1.0\r\nUser-Agent: KeepAliveClient\r\nHost: www.example.com\r\n\r\n"},
		{"C22 virtualhost with a port", config.HTTP10, "www.example.com:8080", get("/"), "192.0.2.1:80", "GET / HTTP/1.0\r\nUser-Agent: KeepAliveClient\r\nHost: www.example.com:8080\r\n\r\n"},
		{"the url's virtualhost first", config.HTTP10, "www.example.com", config.URL{Path: "/", VirtualHost: "[::1]:1"}, target, "GET / HTTP/1.0\r\nUser-Agent: KeepAliveClient\r\nHost: [::1]:1\r\n\r\n"},
	}
	for _, tt := range tests {
		c := &config.Checker{Conn: config.Connection{Target: netip.MustParseAddrPort(tt.target)}, HTTP: &config.HTTP{Protocol: tt.protocol, VirtualHost: tt.vhost}}
		if got := string(appendRequest(nil, c, &tt.url)); got != tt.want {
			t.Errorf("%s:\n got %q\nwant %q", tt.name, got, tt.want)
		}
	}
}

func TestTheServerGetsTheRequest(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		got := make(chan string, 1)
		c := serve(t, addr, func(c net.Conn) {
			got <- readRequest(c)
			io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\n")
		})
		c.HTTP.VirtualHost = "www.example.com:81"
		expect(t, run(t, c), checker.OK, "status 200")
		if want := "GET / HTTP/1.0\r\nUser-Agent: KeepAliveClient\r\nHost: www.example.com:81\r\n\r\n"; <-got != want {
			t.Errorf("%s: the server got another request", addr)
		}
	}
}

func TestCriteria(t *testing.T) {
	const ok = "HTTP/1.0 200 OK\r\nServer: test\r\n\r\nhello\n"
	digest := func(s string) func(*config.URL) {
		return func(u *config.URL) { u.HasDigest, u.Digest = true, md5.Sum([]byte(s)) }
	}
	regex := func(r config.Regex) func(*config.URL) { return func(u *config.URL) { u.Regex = &r } }
	status := func(r ...config.StatusRange) func(*config.URL) { return func(u *config.URL) { u.Status = r } }
	both := func(f ...func(*config.URL)) func(*config.URL) {
		return func(u *config.URL) {
			for _, f := range f {
				f(u)
			}
		}
	}
	tests := []struct {
		name, answer string
		url          func(*config.URL)
		want         checker.Result
		reason       string
	}{
		{"status", ok, both(), checker.OK, "status 200"},
		{"status not accepted", "HTTP/1.0 302 Found\r\nLocation: /\r\n\r\n", both(), checker.Failed, "status from TARGET: 302, expected 200-299, after "},
		{"status listed", "HTTP/1.0 404 x\r\n\r\n", status(config.StatusRange{First: 200, Last: 200}, config.StatusRange{First: 404, Last: 404}), checker.OK, "status 404"},
		{"statuses in the reason", ok, status(config.StatusRange{First: 201, Last: 201}, config.StatusRange{First: 300, Last: 399}), checker.Failed, "200, expected 201 300-399,"},
		{"digest", ok, digest("hello\n"), checker.OK, "status 200"},
		{"digest of an empty body", "HTTP/1.0 200 OK\r\n\r\n", digest(""), checker.OK, "status 200"},
		{"digest differs", ok, digest("Hello\n"), checker.Failed, fmt.Sprintf("body from TARGET: digest %x, expected %x, after ", md5.Sum([]byte("hello\n")), md5.Sum([]byte("Hello\n")))},
		{"content length is mentioned", "HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\nhello\n", digest("hello\n"), checker.OK, "status 200 (Content-Length says 9, 6 bytes came)"},
		{"content length is mentioned with a failure", "HTTP/1.0 200 OK\r\nContent-Length: 9\r\n\r\nhello\n", digest("x"), checker.Failed, "(Content-Length says 9, 6 bytes came), after"},
		{"regex", ok, regex(config.Regex{Pattern: "hel+o"}), checker.OK, "status 200"},
		{"regex sees the header", ok, regex(config.Regex{Pattern: "^HTTP.*\r\nServer: test\r\n\r\nhello$"}), checker.OK, "status 200"},
		{"regex offsets count from the header", ok, regex(config.Regex{Pattern: "hello", MinOffset: 33, MaxOffset: 33, HasMax: true}), checker.OK, "status 200"},
		{"regex beyond the offset", ok, regex(config.Regex{Pattern: "hello", MaxOffset: 32, HasMax: true}), checker.Failed, "does not match"},
		{"regex differs", ok, regex(config.Regex{Pattern: "bye"}), checker.Failed, `body from TARGET: regex "bye" does not match, expected a match, after `},
		{"regex must not match", ok, regex(config.Regex{Pattern: "hello", NoMatch: true}), checker.Failed, `regex "hello" matches, expected no match`},
		{"regex that must not match does not", ok, regex(config.Regex{Pattern: "bye", NoMatch: true}), checker.OK, "status 200"},
		{"regex without an answer is no success", "HTTP/1.0 200 OK\r\n\r\n\xff", regex(config.Regex{Pattern: "bye", NoMatch: true, Options: []string{"utf"}}), checker.Failed, "regex gives up: the answer is not valid UTF-8"},
		// P13: with code, digest and regex all must hold.
		{"P13 all hold", ok, both(status(config.StatusRange{First: 200, Last: 200}), digest("hello\n"), regex(config.Regex{Pattern: "hello"})), checker.OK, "status 200"},
		{"P13 code differs", ok, both(status(config.StatusRange{First: 201, Last: 201}), digest("hello\n"), regex(config.Regex{Pattern: "hello"})), checker.Failed, "200, expected 201"},
		{"P13 digest differs", ok, both(digest("x"), regex(config.Regex{Pattern: "hello"})), checker.Failed, "digest"},
		{"P13 regex differs", ok, both(digest("hello\n"), regex(config.Regex{Pattern: "bye"})), checker.Failed, "regex"},
		{"chunked body is raw", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", digest("2\r\nok\r\n0\r\n\r\n"), checker.OK, "status 200"},
		{"no answer", "", both(), checker.Failed, "status from TARGET: connection closed without an answer, after "},
		{"not HTTP", "220 smtp.example.com\r\n", both(), checker.Failed, `status from TARGET: no status in first line "220 smtp.example.com", after `},
		{"header cut", "HTTP/1.0 200 OK\r\nA: b\r\n", both(), checker.Failed, "header from TARGET: connection closed within the header"},
		{"huge header", "HTTP/1.0 200 OK\r\n" + strings.Repeat("A: b\r\n", 1<<14), both(), checker.Failed, "header from TARGET: header does not end within 16384 bytes"},
		{"huge body", "HTTP/1.0 200 OK\r\n\r\n" + strings.Repeat("x", MaxBody+1), regex(config.Regex{Pattern: "x"}), checker.Failed, "body from TARGET: body is longer than 1048576 bytes"},
		{"huge body that nobody looks at", "HTTP/1.0 200 OK\r\n\r\n" + strings.Repeat("x", MaxBody+1), both(), checker.OK, "status 200"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			c := serve(t, "127.0.0.1:0", answers(tt.answer))
			tt.url(&c.HTTP.URLs[0])
			expect(t, run(t, c), tt.want, strings.ReplaceAll(tt.reason, "TARGET", c.Conn.Target.String()))
		})
	}
}

// C03: recovery is symmetric with failure for every combination of criteria: the
// same probe passes, fails and passes again with the server.
func TestC03CriteriaAreSymmetric(t *testing.T) {
	good, bad := "HTTP/1.0 200 OK\r\n\r\nup", "HTTP/1.0 503 x\r\n\r\ndown"
	for mask := range 8 {
		var text atomic.Pointer[string]
		c := serve(t, "127.0.0.1:0", func(c net.Conn) { answers(*text.Load())(c) })
		u := &c.HTTP.URLs[0]
		if mask&1 != 0 { // any status: the other criteria alone decide
			u.Status = []config.StatusRange{{First: 100, Last: 599}}
		}
		if mask&2 != 0 {
			u.HasDigest, u.Digest = true, md5.Sum([]byte("up"))
		}
		if mask&4 != 0 {
			u.Regex = &config.Regex{Pattern: `\bup`}
		}
		if mask == 1 {
			continue // nothing would tell
		}
		p, err := New(c, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, answer := range []*string{&good, &bad, &bad, &good, &bad, &good, &good} {
			text.Store(answer)
			want := checker.OK
			if answer == &bad {
				want = checker.Failed
			}
			if o := p.Run(t.Context()); o.Result != want {
				t.Errorf("criteria %03b, run %d: %+v, want %v", mask, i, o, want)
			}
		}
	}
}

// C10: tiny responders.
func TestC10VerdictWhenTheStatusIsKnown(t *testing.T) {
	reset := func(c net.Conn) { c.(*net.TCPConn).SetLinger(0) }
	tests := []struct {
		name   string
		handle func(net.Conn)
	}{
		{"keeps the connection open", func(c net.Conn) {
			readRequest(c)
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nx")
			hold(c)
		}},
		{"resets after the answer", func(c net.Conn) {
			readRequest(c)
			io.WriteString(c, "HTTP/1.0 200 OK\n\nhello")
			reset(c)
		}},
		{"does not read the request", func(c net.Conn) {
			io.WriteString(c, "HTTP/1.0 200 OK\n\nhello")
		}},
		{"does not read the request and resets", func(c net.Conn) {
			io.WriteString(c, "HTTP/1.0 200 OK\n\nhello")
			reset(c)
		}},
	}
	for _, tt := range tests {
		c := serve(t, "127.0.0.1:0", tt.handle)
		for i := range 50 {
			o := run(t, c)
			if strings.HasPrefix(o.Reason, "url /: connect to ") && strings.HasPrefix(tt.name, "does not read the request and resets") {
				continue // so fast that no connection was seen
			}
			if o.Result != checker.OK || o.Took > 3*time.Second {
				t.Errorf("%s, run %d: %+v", tt.name, i, o)
				break
			}
		}
	}
}

func TestContentLengthEndsTheBodyOfAnOpenConnection(t *testing.T) {
	c := serve(t, "127.0.0.1:0", func(c net.Conn) {
		readRequest(c)
		io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nup")
		hold(c)
	})
	c.HTTP.URLs[0].HasDigest, c.HTTP.URLs[0].Digest = true, md5.Sum([]byte("up"))
	expect(t, run(t, c), checker.OK, "status 200")
}

func TestResetWithinTheBodyFails(t *testing.T) {
	c := serve(t, "127.0.0.1:0", func(c net.Conn) {
		readRequest(c)
		io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nhalf")
		io.ReadFull(c, make([]byte, 1)) // until the probe gives up, or the reset below
	})
	c.HTTP.URLs[0].HasDigest = true
	c.Conn.Timeout = 100 * time.Millisecond
	expect(t, run(t, c), checker.Failed, "body from "+c.Conn.Target.String()+": no answer in time after ")

	c = serve(t, "127.0.0.1:0", func(c net.Conn) {
		readRequest(c)
		io.WriteString(c, "HTTP/1.0 200 OK\r\n\r\nhalf")
		c.(*net.TCPConn).SetLinger(0)
	})
	c.HTTP.URLs[0].HasDigest = true
	expect(t, run(t, c), checker.Failed, "body from "+c.Conn.Target.String()+": connection reset by peer (ECONNRESET) after ")
}

// C01: a server that dribbles cannot keep the check alive beyond its deadline.
func TestC01DribblingDoesNotExtendTheDeadline(t *testing.T) {
	dribble := func(text string) func(net.Conn) {
		return func(c net.Conn) {
			readRequest(c)
			for i := 0; ; i++ {
				b := "x"
				if i < len(text) {
					b = text[i : i+1]
				}
				if _, err := io.WriteString(c, b); err != nil {
					return
				}
				<-time.After(5 * time.Millisecond)
			}
		}
	}
	for _, tt := range []struct {
		text, step string
	}{{"HTTP/1.0 2", "status"}, {"HTTP/1.0 200 OK\r\nA: ", "header"}, {"HTTP/1.0 200 OK\r\n\r\n", "body"}} {
		c := serve(t, "127.0.0.1:0", dribble(tt.text))
		c.HTTP.URLs[0].HasDigest = true
		c.Conn.Timeout = 300 * time.Millisecond
		o := run(t, c)
		expect(t, o, checker.Failed, tt.step+" from "+c.Conn.Target.String()+": no answer in time")
		if o.Took < 300*time.Millisecond || o.Took > 2*time.Second {
			t.Errorf("%s: took %v with a deadline of 300ms", tt.step, o.Took)
		}
	}
}

// P13: all urls are asked in order, each on its own connection and within its own
// deadline, until one fails.
func TestP13AllURLsInOrder(t *testing.T) {
	var asked []string
	var mu sync.Mutex
	c := serve(t, "127.0.0.1:0", func(c net.Conn) {
		path := strings.Fields(readRequest(c))[1]
		mu.Lock()
		asked = append(asked, path)
		mu.Unlock()
		status := "200"
		if path == "/bad" {
			status = "404"
		}
		io.WriteString(c, "HTTP/1.0 "+status+" x\r\n\r\n")
	})
	c.HTTP.URLs = []config.URL{get("/1"), get("/2"), get("/3")}
	expect(t, run(t, c), checker.OK, "status 200")
	if !slices.Equal(asked, []string{"/1", "/2", "/3"}) {
		t.Errorf("asked %q", asked)
	}
	asked = nil
	c.HTTP.URLs = []config.URL{get("/1"), get("/bad"), get("/3")}
	expect(t, run(t, c), checker.Failed, "url 2 /bad: status from "+c.Conn.Target.String()+": 404, expected 200-299")
	if !slices.Equal(asked, []string{"/1", "/bad"}) {
		t.Errorf("asked %q", asked)
	}
}

func TestEachURLHasItsOwnDeadline(t *testing.T) {
	c := serve(t, "127.0.0.1:0", func(c net.Conn) {
		readRequest(c)
		<-time.After(150 * time.Millisecond)
		io.WriteString(c, "HTTP/1.0 200 x\r\n\r\n")
	})
	c.Conn.Timeout = 400 * time.Millisecond
	c.HTTP.URLs = []config.URL{get("/1"), get("/2"), get("/3"), get("/4")}
	o := run(t, c)
	expect(t, o, checker.OK, "status 200")
	if o.Took < 600*time.Millisecond {
		t.Errorf("took %v", o.Took)
	}
	// The context's deadline is above them.
	p, _ := New(c, nil)
	ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer stop()
	expect(t, p.Run(ctx), checker.Failed, "url 2 /2: status from "+c.Conn.Target.String()+": no answer in time")
}

func TestC02ConnectErrors(t *testing.T) {
	c := serve(t, "127.0.0.1:0", hold)
	c.Conn.BindAddr = netip.MustParseAddr("192.0.2.88")
	expect(t, run(t, c), checker.Unable, "url /: connect to "+c.Conn.Target.String()+": source address 192.0.2.88 is not on this machine")
	ctx, cancel := context.WithCancel(t.Context())
	c.Conn.BindAddr = netip.Addr{}
	p, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(20*time.Millisecond, cancel)
	expect(t, p.Run(ctx), checker.Unable, "cancelled")
}

func TestNewRefuses(t *testing.T) {
	if _, err := New(&config.Checker{Kind: config.HTTPGet}, nil); err == nil {
		t.Error("a checker without urls passed")
	}
	c := &config.Checker{Kind: config.HTTPGet, HTTP: &config.HTTP{URLs: []config.URL{get("/x")}}}
	c.HTTP.URLs[0].Regex = &config.Regex{Pattern: "ab(?R)"}
	if _, err := New(c, nil); err == nil || !strings.Contains(err.Error(), "regex of url /x: at offset 2 of the pattern: recursion is not supported") {
		t.Errorf("%v", err)
	}
}

func BenchmarkHTTPProbe(b *testing.B) {
	c := serve(b, "127.0.0.1:0", func(c net.Conn) {
		c.Read(make([]byte, 512))
		io.WriteString(c, "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello")
	})
	p, err := New(c, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if o := p.Run(b.Context()); o.Result != checker.OK {
			b.Fatal(o.Reason)
		}
	}
}
