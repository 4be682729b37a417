package backend

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/diff/scenario"
)

func TestMain(m *testing.M) { testkit.Main(m) }

// here is the namespace that the tests run in.
type here struct{}

func (here) Do(fn func() error) error { return fn() }

// bench is a set and an address that no other test has.
type bench struct {
	*testing.T
	set  *Set
	addr string
}

var benches atomic.Int64

func newBench(t *testing.T) *bench {
	t.Helper()
	pid := os.Getpid()
	b := &bench{t, NewSet(here{}), fmt.Sprintf("127.%d.%d.%d:8080", 1+pid%250, pid/250%250, benches.Add(1))}
	t.Cleanup(b.set.Close)
	return b
}

func (b *bench) define(behaviour string) {
	b.Helper()
	parsed, err := scenario.ParseBehaviour(b.addr + " " + behaviour)
	if err == nil {
		err = b.set.Define(parsed)
	}
	if err != nil {
		b.Fatal(err)
	}
}

// patience bounds what is expected to happen, glance what is not.
const patience, glance = 10 * time.Second, 300 * time.Millisecond

// ask sends a text and returns all that comes back until the end.
func (b *bench) ask(request string) string {
	b.Helper()
	c, err := net.DialTimeout("tcp", b.addr, patience)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	return b.exchange(c, request)
}

func (b *bench) exchange(c net.Conn, request string) string {
	b.Helper()
	if _, err := io.WriteString(c, request); err != nil {
		b.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	answer, err := io.ReadAll(c)
	if err != nil {
		b.Fatal(err)
	}
	return string(answer)
}

func get(path, host string) string {
	return fmt.Sprintf("GET %s HTTP/1.0\r\nHost: %s\r\n\r\n", path, host)
}

func status(answer string) string {
	line, _, _ := strings.Cut(answer, "\r\n")
	return line
}

func TestTCP(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define("tcp")
	c, err := net.DialTimeout("tcp", b.addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(glance))
	if _, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v, want an open and silent connection", err)
	}
}

func TestRefuse(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define("tcp")
	b.define("refuse")
	if c, err := net.DialTimeout("tcp", b.addr, patience); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dial: %v, %v, want a refusal", c, err)
	}
	b.define("http 200")
	if got := status(b.ask(get("/", "a"))); got != "HTTP/1.0 200 OK" {
		t.Errorf("after a refusal: %q", got)
	}
}

func TestReset(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define("reset")
	c, err := net.DialTimeout("tcp", b.addr, patience)
	if err == nil {
		defer c.Close()
		_ = c.SetReadDeadline(time.Now().Add(patience))
		_, err = c.Read(make([]byte, 1))
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%v, want a reset", err)
	}
}

// drop must leave packets unanswered, from whatever it came, and be undone by any
// other behaviour.
func TestDrop(t *testing.T) {
	t.Parallel()
	for _, before := range []string{"", "tcp"} {
		b := newBench(t)
		if before != "" {
			b.define(before)
		}
		b.define("drop")
		var timeout net.Error
		if c, err := net.DialTimeout("tcp", b.addr, glance); !errors.As(err, &timeout) || !timeout.Timeout() {
			t.Errorf("drop after %q: dial: %v, %v, want a timeout", before, c, err)
		}
		b.define("http 204")
		if got := status(b.ask(get("/", "a"))); got != "HTTP/1.0 204 No Content" {
			t.Errorf("http after drop: %q", got)
		}
	}
}

func TestHTTP(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define("http 503 not now")
	if got, want := b.ask(get("/", "a")), "HTTP/1.0 503 Service Unavailable\r\nContent-Type: text/plain\r\n\r\nnot now"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	b.define("http-path /b 200 b")
	b.define("http-host c.example 201 c")
	for _, tt := range []struct{ path, host, want string }{
		{"/", "a", "HTTP/1.0 503 Service Unavailable"},
		{"/b", "a", "HTTP/1.0 200 OK"},
		{"/", "c.example", "HTTP/1.0 201 Created"},
		{"/", "c.example:8080", "HTTP/1.0 201 Created"},
		{"/b", "c.example", "HTTP/1.0 200 OK"},
	} {
		if got := status(b.ask(get(tt.path, tt.host))); got != tt.want {
			t.Errorf("%s of %s: %q, want %q", tt.path, tt.host, got, tt.want)
		}
	}
	b.define("http 200") // forgets the paths
	if got := status(b.ask(get("/", "c.example"))); got != "HTTP/1.0 200 OK" {
		t.Errorf("after a new definition: %q", got)
	}
	b.define(`http-raw "HTTP/1.1 200 OK\n\n\x00"`)
	if got, want := b.ask(get("/", "a")), "HTTP/1.1 200 OK\n\n\x00"; got != want {
		t.Errorf("raw: %q, want %q", got, want)
	}
	b.define("http-slow 0.05 202")
	begun := time.Now()
	if got := status(b.ask(get("/", "a"))); got != "HTTP/1.0 202 Accepted" || time.Since(begun) < 50*time.Millisecond {
		t.Errorf("slow: %q after %v", got, time.Since(begun))
	}
}

func TestHTTPKeepAlive(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define("http-keepalive 200 hi")
	c, err := net.DialTimeout("tcp", b.addr, patience)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetReadDeadline(time.Now().Add(patience))
	in := bufio.NewReader(c)
	for range 2 {
		if _, err := io.WriteString(c, get("/", "a")); err != nil {
			t.Fatal(err)
		}
		want := "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\nhi"
		got := make([]byte, len(want))
		if _, err := io.ReadFull(in, got); err != nil || string(got) != want {
			t.Fatalf("%v: got %q, want %q", err, got, want)
		}
	}
}

func TestHTTPS(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	ask := func(sni string) string {
		c, err := (&tls.Dialer{NetDialer: &net.Dialer{Timeout: patience}, Config: &tls.Config{InsecureSkipVerify: true, ServerName: sni}}).
			DialContext(context.Background(), "tcp", b.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		return status(b.exchange(c, get("/", "a")))
	}
	b.define("https 200")
	if got := ask("x.example"); got != "HTTP/1.0 200 OK" {
		t.Errorf("https: %q", got)
	}
	b.define("https-sni y.example 201")
	if got := ask("x.example") + ", " + ask("y.example"); got != "HTTP/1.0 404 Not Found, HTTP/1.0 201 Created" {
		t.Errorf("https-sni: %q", got)
	}
}

func TestPathNeedsABackend(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	err := b.set.Define(&scenario.Behaviour{Addr: netip.MustParseAddrPort(b.addr), Kind: "http-path", Match: "/", Status: 200})
	if err == nil || !strings.Contains(err.Error(), "needs an http backend") {
		t.Errorf("error %v", err)
	}
}

func TestSMTP(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define(`smtp "220-one\r\n220 two" "250 me"`)
	got := b.ask("HELO x\r\nNOOP\r\nQUIT\r\n")
	if want := "220-one\r\n220 two\r\n250 me\r\n502 no such command\r\n221 bye\r\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// datagram sends one and returns the answer, nil for none.
func (b *bench) datagram(request []byte, wait time.Duration) ([]byte, error) {
	b.Helper()
	c, err := net.Dial("udp", b.addr)
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	if _, err := c.Write(request); err != nil {
		b.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(wait))
	buf := make([]byte, 65536)
	n, err := c.Read(buf)
	return buf[:n], err
}

func TestDatagrams(t *testing.T) {
	t.Parallel()
	query := []byte{0x12, 0xff, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 1}
	for behaviour, want := range map[string][]byte{
		"udp echo":       query,
		"udp reply 00ff": {0, 0xff},
		"udp silent":     nil,
		"drop":           nil,
		"dns 0":          {0x12, 0xff, 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 1},
		"dns 3":          {0x12, 0xff, 0x81, 0x83, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 1},
		"dns-wrongid":    {0x12, 0x00, 0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 1},
		"dns-short":      {0x12, 0xff, 0x81, 0x80, 0, 1},
		"dns-silent":     nil,
	} {
		t.Run(behaviour, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.define(behaviour)
			wait := patience
			if want == nil {
				wait = glance
			}
			got, err := b.datagram(query, wait)
			if (err != nil) != (want == nil) || want == nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("answer %x, error %v", got, err)
			}
			if diff := cmp.Diff(want, got); want != nil && diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDatagramsRefused(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.define("udp echo")
	b.define("refuse")
	if got, err := b.datagram([]byte("x"), patience); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("answer %x, error %v, want a refusal", got, err)
	}
}
