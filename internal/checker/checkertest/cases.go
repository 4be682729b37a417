package checkertest

import (
	"crypto/md5"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

const (
	patience = 10 * time.Second       // of a check that should have no need of it
	soon     = 500 * time.Millisecond // of one that must give up
)

// check returns a check, changed by each of with.
func check(kind config.CheckerKind, with []func(*config.Checker)) config.Checker {
	c := config.Checker{Kind: kind, Conn: config.Connection{Timeout: patience}}
	if kind == config.HTTPGet {
		c.HTTP = &config.HTTP{URLs: []config.URL{url("/")}}
	}
	for _, f := range with {
		f(&c)
	}
	return c
}

func url(path string) config.URL {
	return config.URL{Path: path, Status: []config.StatusRange{{First: 200, Last: 299}}}
}

func impatient(c *config.Checker) { c.Conn.Timeout = soon }

func from(addr string) func(*config.Checker) {
	return func(c *config.Checker) { c.Conn.BindAddr = netip.MustParseAddr(addr) }
}

func digest(body string) func(*config.Checker) {
	return func(c *config.Checker) {
		c.HTTP.URLs[0].HasDigest, c.HTTP.URLs[0].Digest = true, md5.Sum([]byte(body))
	}
}

func urls(paths ...string) func(*config.Checker) {
	return func(c *config.Checker) {
		c.HTTP.URLs = nil
		for _, p := range paths {
			c.HTTP.URLs = append(c.HTTP.URLs, url(p))
		}
	}
}

// connects are the cases that every check over TCP has; step is what its reasons
// begin with.
func connects(kind config.CheckerKind, step string) []Case {
	step += "connect to TARGET: "
	return []Case{
		{Name: "refused", Checker: check(kind, nil), Target: closed,
			Result: checker.Failed, Reasons: []string{step + "connection refused (ECONNREFUSED)"}},
		{Name: "backlog full", Checker: check(kind, []func(*config.Checker){impatient}), Target: silent,
			Result: checker.Failed, Reasons: []string{step + "no answer in time"}},
		{Name: "source address missing", Checker: check(kind, []func(*config.Checker){from("192.0.2.99")}), Peer: hold,
			Result: checker.Unable, Reasons: []string{step + "source address 192.0.2.99 is not on this machine: cannot assign requested address (EADDRNOTAVAIL)"}},
		{Name: "source address of the other family", Checker: check(kind, []func(*config.Checker){from("::1")}), Peer: hold,
			Result: checker.Unable, Reasons: []string{step + "source address ::1 cannot be used: invalid argument (EINVAL)", step + "source address ::1 cannot be used: address family not supported by protocol (EAFNOSUPPORT)"}},
		{Name: "interface missing", Checker: check(kind, []func(*config.Checker){func(c *config.Checker) { c.Conn.BindIf = "nosuchif0" }}), Peer: hold,
			Result: checker.Unable, Reasons: []string{step + "interface nosuchif0 cannot be used: no such device (ENODEV)"}},
	}
}

// TCP are the cases of TCP_CHECK.
func TCP() []Case {
	ok := func(name string, peer func(*net.TCPConn), with ...func(*config.Checker)) Case {
		return Case{Name: name, Checker: check(config.TCPCheck, with), Peer: peer, Result: checker.OK, Reasons: []string{"connected"}}
	}
	return append(connects(config.TCPCheck, ""),
		ok("accepts and waits", hold),
		ok("accepts and closes", end),
		ok("greets and waits", func(c *net.TCPConn) { say(c, "220 ready\r\n"); hold(c) }),
		ok("greets without end", floods("", "220 ready\r\n", 1<<20)),
		ok("source address", hold, from("127.0.0.9")),
	)
}

// HTTP are the cases of HTTP_GET.
func HTTP() []Case {
	const (
		head = "HTTP/1.0 200 OK\r\n"
		good = head + "Server: test\r\n\r\nhello\n"
		from = " from TARGET: "
	)
	sum := func(s string) string { return fmt.Sprintf("%x", md5.Sum([]byte(s))) }
	c := func(name string, peer func(*net.TCPConn), result checker.Result, reason string, with ...func(*config.Checker)) Case {
		return Case{Name: name, Checker: check(config.HTTPGet, with), Peer: peer, Result: result, Reasons: strings.Split(reason, "|")}
	}
	ok := func(name string, peer func(*net.TCPConn), with ...func(*config.Checker)) Case {
		return c(name, peer, checker.OK, "status 200", with...)
	}
	bad := func(name string, peer func(*net.TCPConn), reason string, with ...func(*config.Checker)) Case {
		return c(name, peer, checker.Failed, "url /: "+reason, with...)
	}
	return append(connects(config.HTTPGet, "url /: "),
		ok("closes", answers(good, end)),
		ok("digest", answers(good, end), digest("hello\n")),
		ok("never closes", answers("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n", hold)),
		ok("never closes, digest", answers("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n", hold), digest("hello\n")),
		ok("half-closes, digest", answers(good, halfClose), digest("hello\n")),
		ok("resets after the header", answers(good, reset)),
		ok("in pieces", pieces(good, 3, end), digest("hello\n")),
		ok("answers before the request", func(c *net.TCPConn) { say(c, good); request(c) }, digest("hello\n")),
		ok("answers and does not read the request", func(c *net.TCPConn) { say(c, good) }),
		ok("large body that nobody looks at", floods(head+"\r\n", "x", 100<<20)),
		ok("large body, digest", answers(head+"\r\n"+strings.Repeat("x", 3<<20), end), digest(strings.Repeat("x", 3<<20))),
		ok("two urls", inTurn(good, good), urls("/1", "/2")),
		c("no content", answers("HTTP/1.1 204 No Content\r\n\r\n", hold), checker.OK, "status 204", digest("")),
		c("body shorter than huge length", answers(head+"Content-Length: 4611686018427387903\r\n\r\nhello\n", end), checker.OK,
			"status 200 (Content-Length says 4611686018427387903, 6 bytes came)", digest("hello\n")),
		c("second url wrong", inTurn(good, "HTTP/1.0 404 x\r\n\r\n"), checker.Failed, "url 2 /2: status"+from+"404, expected 200-299", urls("/1", "/2", "/3")),
		c("first url wrong", answers("HTTP/1.0 404 x\r\n\r\n", end), checker.Failed, "url 1 /1: status"+from+"404, expected 200-299", urls("/1", "/2")),

		bad("wrong status", answers("HTTP/1.0 503 x\r\n", hold), "status"+from+"503, expected 200-299"),
		bad("wrong digest", answers(good, end), "body"+from+"digest "+sum("hello\n")+", expected "+sum("bye"), digest("bye")),
		bad("huge length and no body", answers(head+"Content-Length: 4611686018427387903\r\n\r\nhello\n", hold), "body"+from+"no answer in time", digest("hello\n"), impatient),
		bad("no answer", hold, "status"+from+"no answer in time", impatient),
		bad("dribbles the status", dribbles("HTTP/1.0 2"), "status"+from+"no answer in time", impatient),
		bad("dribbles the header", dribbles(head+"A: "), "header"+from+"no answer in time", impatient),
		bad("dribbles the body", dribbles(head+"\r\n"), "body"+from+"no answer in time", digest("hello\n"), impatient),
		bad("closes without an answer", func(c *net.TCPConn) { request(c) }, "status"+from+"connection closed without an answer"),
		bad("half-closes without an answer", func(c *net.TCPConn) { request(c); halfClose(c) }, "status"+from+"connection closed without an answer"),
		bad("closes within the status line", answers("HTTP/1.0 200", end), "status"+from+"connection closed within the status line after 12 bytes"),
		bad("closes within the header", answers(head+"A: b\r\n", end), "header"+from+"connection closed within the header after 23 bytes"),
		bad("resets without an answer", func(c *net.TCPConn) { request(c); reset(c) }, "status"+from+"connection reset by peer (ECONNRESET)"),
		bad("resets within the header", answers(head+"A:", reset), "header"+from+"connection reset by peer (ECONNRESET)"),
		bad("resets within the body", answers(head+"\r\nhel", reset), "body"+from+"connection reset by peer (ECONNRESET)", digest("hello\n")),
		c("resets at once", reset, checker.Failed, "url /: connect to TARGET: connection reset by peer (ECONNRESET)"+
			"|url /: send to TARGET: connection reset by peer (ECONNRESET)|url /: send to TARGET: broken pipe (EPIPE)"+
			"|url /: status from TARGET: connection reset by peer (ECONNRESET)"),
		bad("garbage", answers("\x16\x03\x01\x02\x00\x01\n\xff\xfe", hold), `status`+from+`no status in first line "\x16\x03\x01\x02\x00\x01"`),
		bad("garbage without a line end", floods("", "\x00\xff", 1<<20), "status"+from+"header does not end within 16384 bytes"),
		bad("status line of 1 MB", answers("HTTP/1.0 "+strings.Repeat("2", 1<<20)+"\r\n\r\n", end), "status"+from+"header does not end within 16384 bytes"),
		bad("status of 40 digits", answers("HTTP/1.0 "+strings.Repeat("2", 40)+" OK\r\n\r\n", hold), `status`+from+`no status in first line "HTTP/1.0 `+strings.Repeat("2", 40)+` OK"`),
		bad("NUL in the status", answers("HTTP/1.0 2\x0000 OK\r\n\r\n", hold), `status`+from+`no status in first line "HTTP/1.0 2\x0000 OK"`),
		ok("NUL behind the status", answers("HTTP/1.0 200 \x00\r\n\x00\x00\r\n\r\n", hold)),
		bad("header line without end", floods(head, "A", 1<<20), "header"+from+"header does not end within 16384 bytes"),
		bad("header of 100 MB", floods(head, "A: b\r\n", 100<<20), "header"+from+"header does not end within 16384 bytes"),
	)
}
