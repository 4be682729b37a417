package http

import (
	"bytes"
	"context"
	"crypto/md5"
	"fmt"
	"io"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/checkertest"
	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/config"
)

func build(c *config.Checker) (checker.Probe, error) { return New(c, nil) }

func TestHostilePeers(t *testing.T) {
	checkertest.Run(t, checkertest.HTTP(), build, func(c checker.Conversation) checker.Outcome {
		return dial.Converse(t.Context(), c, nil)
	})
}

// offline is an HTTP_GET of urls of an address that nobody connects to.
func offline(urls ...config.URL) *config.Checker {
	return &config.Checker{
		Kind: config.HTTPGet,
		Conn: config.Connection{Target: netip.MustParseAddrPort("192.0.2.1:80"), Timeout: time.Second},
		HTTP: &config.HTTP{URLs: urls},
	}
}

// talk makes a conversation of a check, even of one that only a goroutine may lead.
func talk(t testing.TB, c *config.Checker) checker.Conversation {
	t.Helper()
	p, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	if h, ok := p.(*heavyProbe); ok {
		return &h.talk
	}
	return p.(checker.Conversation)
}

// lead leads one run over answers in pieces, one answer for each connection, each of
// which ends with end.
func lead(c checker.Conversation, end error, answers ...[][]byte) checker.Outcome {
	c.Begin()
	for {
		if _, listen := c.Connected(); !listen {
			panic("nobody listens to the answer")
		}
		done := false
		for _, piece := range answers[0] {
			if done = c.Received(piece); done {
				break
			}
		}
		if !done {
			c.Ended(checker.StepReceive, end)
		}
		answers = answers[1:]
		if conn, o := c.Next(); conn == nil {
			if o.Took != 0 {
				panic("a part of the run passes for all of it")
			}
			return o
		}
	}
}

func whole(answer string) [][]byte { return [][]byte{[]byte(answer)} }

func TestOnlyPlainHTTPIsAConversation(t *testing.T) {
	regex := get("/")
	regex.Regex = &config.Regex{Pattern: "up"}
	secure := offline(get("/"))
	secure.Kind = config.SSLGet
	for _, tt := range []struct {
		name string
		c    *config.Checker
		want bool
	}{
		{"HTTP_GET", offline(get("/"), get("/2")), true},
		{"a regex in one of its urls", offline(get("/"), regex), false},
		{"SSL_GET", secure, false},
	} {
		p, err := New(tt.c, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := p.(checker.Conversation); ok != tt.want {
			t.Errorf("%s: a reactor may lead it: %v", tt.name, ok)
		}
	}
}

func TestSendIsTheURLsOwn(t *testing.T) {
	c := offline(get("/1"), get("/2"))
	p := talk(t, c)
	for run := range 2 {
		conn := p.Begin()
		for i := range c.HTTP.URLs {
			send, listen := p.Connected()
			if want := string(appendRequest(nil, c, &c.HTTP.URLs[i])); string(send) != want || !listen || conn != &c.Conn {
				t.Fatalf("run %d, url %d: sends %q, want %q; listens: %v", run, i, send, want, listen)
			}
			p.Received([]byte("HTTP/1.0 200 OK\r\n\r\n"))
			conn, _ = p.Next()
		}
	}
}

// A run that is given up leaves nothing behind for the next one, wherever it was.
func TestBeginStartsAfresh(t *testing.T) {
	u := criteria(3)
	u.Regex = &config.Regex{Pattern: `^HTTP[^H]*\r\nup$`}
	p := talk(t, offline(u, u))
	const answer = "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nup"
	for n := range 2 * len(answer) {
		p.Begin()
		p.Connected()
		if n > 0 {
			done := p.Received([]byte(answer)[:min(n, len(answer))])
			if n >= len(answer) != done {
				t.Fatalf("done after %d bytes: %v", n, done)
			}
		}
		if n > len(answer) {
			p.Next()
			p.Connected()
			p.Received([]byte(answer)[:n-len(answer)])
		}
		if o := lead(p, io.EOF, whole(answer), whole(answer)); o.Result != checker.OK {
			t.Fatalf("given up after %d bytes, then: %+v", n, o)
		}
	}
}

// Runs under way at the same time have nothing in common.
func TestConversationsAreApart(t *testing.T) {
	ok, bad := talk(t, offline(criteria(1))), talk(t, offline(criteria(1)))
	for run := range 3 {
		for _, c := range []checker.Conversation{ok, bad} {
			c.Begin()
			c.Connected()
		}
		ok.Received([]byte("HTTP/1.0 200 OK\r\nContent-"))
		bad.Received([]byte("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n"))
		bad.Received([]byte("\r\ndown"))
		ok.Received([]byte("Length: 2\r\n\r\nup"))
		_, good := ok.Next()
		_, wrong := bad.Next()
		if good.Result != checker.OK || wrong.Result != checker.Failed {
			t.Fatalf("run %d: %+v and %+v", run, good, wrong)
		}
	}
}

// An exchange that a regex has used holds none of its answer for the next check.
func TestAnswersForARegexAreNotKept(t *testing.T) {
	for range 100 { // a pool may forget
		lead(talk(t, offline(criteria(2))), io.EOF, whole(okAnswer))
		p := talk(t, offline(get("/"))).(*conversation)
		p.Begin()
		if n := cap(p.now.answer.raw); n > 0 {
			t.Fatalf("keeps %d bytes", n)
		}
		lead(p, io.EOF, whole(okAnswer))
	}
}

func TestRunLedWithoutAnEndIsNoSuccess(t *testing.T) {
	p := talk(t, offline(get("/")))
	p.Begin()
	p.Connected()
	if conn, o := p.Next(); conn != nil || o.Result != checker.Unable {
		t.Errorf("%v, %+v", conn, o)
	}
}

func TestEndedSaysWhere(t *testing.T) {
	const head = "HTTP/1.0 200 OK\r\n"
	target := netip.MustParseAddrPort("192.0.2.1:80")
	connect := func(late bool, errno syscall.Errno) error {
		return &dial.Error{Op: "connect", Target: target, Late: late, Err: errno}
	}
	tests := []struct {
		name, came string
		step       checker.Step
		err        error
		want       checker.Result
		reason     string
	}{
		{"refused", "", checker.StepConnect, connect(true, unix.ECONNREFUSED), checker.Failed, "connect to 192.0.2.1:80: connection refused (ECONNREFUSED) after "},
		{"prohibited", "", checker.StepConnect, connect(false, unix.EACCES), checker.Unable, "connect to 192.0.2.1:80: permission denied (EACCES) after "},
		{"send", "", checker.StepSend, unix.EPIPE, checker.Failed, "send to 192.0.2.1:80: broken pipe (EPIPE) after "},
		{"send, no buffers", "", checker.StepSend, unix.ENOBUFS, checker.Unable, "send to 192.0.2.1:80: no buffer space available (ENOBUFS) after "},
		{"send, half an answer", head, checker.StepSend, unix.ECONNRESET, checker.Failed, "send to 192.0.2.1:80: connection reset by peer (ECONNRESET) after "},
		{"send, an answer", head + "\r\nup", checker.StepSend, unix.ECONNRESET, checker.OK, "status 200"},
		{"send, another answer", head + "\r\ndown", checker.StepSend, unix.ECONNRESET, checker.Failed, "body from 192.0.2.1:80: digest"},
		{"send, no buffers, an answer", head + "\r\nup", checker.StepSend, unix.ENOBUFS, checker.Unable, "send to 192.0.2.1:80: no buffer space"},
		{"status", "HTTP/1.0 2", checker.StepReceive, os.ErrDeadlineExceeded, checker.Failed, "status from 192.0.2.1:80: no answer in time after "},
		{"header", head, checker.StepReceive, os.ErrDeadlineExceeded, checker.Failed, "header from 192.0.2.1:80: no answer in time after "},
		{"body", head + "\r\nup", checker.StepReceive, os.ErrDeadlineExceeded, checker.Failed, "body from 192.0.2.1:80: no answer in time after "},
		{"body reset", head + "\r\nup", checker.StepReceive, unix.ECONNRESET, checker.Failed, "body from 192.0.2.1:80: connection reset by peer (ECONNRESET) after "},
		{"body without memory", head + "\r\nup", checker.StepReceive, unix.ENOMEM, checker.Unable, "body from 192.0.2.1:80: cannot allocate memory (ENOMEM) after "},
		{"end", head + "\r\nup", checker.StepReceive, io.EOF, checker.OK, "status 200"},
		{"end of nothing", "", checker.StepReceive, io.EOF, checker.Failed, "status from 192.0.2.1:80: connection closed without an answer, after "},
	}
	u := get("/")
	u.HasDigest, u.Digest = true, md5.Sum([]byte("up"))
	p := talk(t, offline(u))
	for _, tt := range tests {
		p.Begin()
		if tt.step != checker.StepConnect {
			p.Connected()
		}
		if tt.came != "" && p.Received([]byte(tt.came)) {
			t.Fatalf("%s: done before it ended", tt.name)
		}
		p.Ended(tt.step, tt.err)
		conn, o := p.Next()
		if conn != nil {
			t.Fatalf("%s: another connection", tt.name)
		}
		if o.Result != checker.OK {
			tt.reason = "url /: " + tt.reason
		}
		if o.Result != tt.want || !strings.HasPrefix(o.Reason, tt.reason) {
			t.Errorf("%s: %v: %q, want %v: %q...", tt.name, o.Result, o.Reason, tt.want, tt.reason)
		}
	}
}

// cut cuts an answer at the given places.
func cut(answer []byte, cuts []int) [][]byte {
	var pieces [][]byte
	for _, n := range cuts {
		if n > 0 && n < len(answer) {
			pieces = append(pieces, answer[:n])
			answer = answer[n:]
		}
	}
	if len(answer) > 0 {
		pieces = append(pieces, answer)
	}
	return pieces
}

// said is an outcome to compare.
func said(o checker.Outcome) string { return o.Result.String() + ": " + checkertest.Undated(o.Reason) }

// oracle is what a check of one url says of a whole answer after which the peer
// closes: the rules of the package, told once more for an answer in one piece.
func oracle(u *config.URL, answer []byte) string {
	wrong := func(step, format string, args ...any) string {
		return "failed: url /: " + step + " from 192.0.2.1:80: " + fmt.Sprintf(format, args...)
	}
	head := answer[:min(len(answer), MaxHeader)]
	if len(answer) == 0 {
		return wrong("status", "connection closed without an answer")
	}
	line, rest, ended := bytes.Cut(head, []byte("\n"))
	switch {
	case !ended && len(head) == MaxHeader:
		return wrong("status", "header does not end within %d bytes", MaxHeader)
	case !ended:
		return wrong("status", "connection closed within the status line after %d bytes", len(head))
	}
	line = bytes.TrimSuffix(line, []byte("\r"))
	_, code, _ := bytes.Cut(line, []byte(" "))
	code, _, _ = bytes.Cut(code, []byte(" "))
	status, err := strconv.ParseUint(string(code), 10, 64)
	if err != nil || len(code) != 3 || status == 0 {
		if len(line) > 60 {
			return wrong("status", "no status in first line %s...", strconv.QuoteToASCII(string(line[:60])))
		}
		return wrong("status", "no status in first line %s", strconv.QuoteToASCII(string(line)))
	}
	if status < 200 || status > 299 {
		return wrong("status", "%d, expected 200-299", status)
	}
	fields := [][]byte{line}
	for {
		line, next, ended := bytes.Cut(rest, []byte("\n"))
		if !ended && len(head) == MaxHeader {
			return wrong("header", "header does not end within %d bytes", MaxHeader)
		} else if !ended {
			return wrong("header", "connection closed within the header after %d bytes", len(head))
		}
		rest = next
		if len(line) == 0 || string(line) == "\r" {
			break
		}
		fields = append(fields, line)
	}
	ok := "ok: status " + strconv.FormatUint(status, 10)
	if !u.HasDigest && u.Regex == nil {
		return ok
	}
	body := answer[len(head)-len(rest):]
	note := ""
	for _, f := range fields {
		name, value, _ := strings.Cut(string(f), ":")
		if !strings.EqualFold(name, "content-length") || len(name) == len(f) {
			continue
		}
		n, err := strconv.ParseUint(strings.Trim(value, " \t\r"), 10, 62)
		if err == nil && n > uint64(len(body)) {
			note = fmt.Sprintf(" (Content-Length says %d, %d bytes came)", n, len(body))
		} else if err == nil {
			body = body[:n]
		}
		break
	}
	if status == 204 {
		body, note = nil, ""
	}
	if u.Regex != nil && len(body) > MaxBody {
		return wrong("body", "body is longer than %d bytes", MaxBody)
	}
	if got := md5.Sum(body); u.HasDigest && got != u.Digest {
		return wrong("body", "digest %x, expected %x%s", got, u.Digest, note)
	}
	if u.Regex != nil {
		subject := string(answer[:len(head)-len(rest)]) + string(body)
		if !strings.Contains(subject, u.Regex.Pattern) {
			return wrong("body", "regex %q does not match, expected a match%s", u.Regex.Pattern, note)
		}
	}
	return ok + note
}

// drawAnswer draws answers, most of them nearly right.
func drawAnswer(t *rapid.T) []byte {
	blanks := rapid.StringMatching(`[ \t\r]{0,3}`)
	number := rapid.OneOf(
		rapid.StringMatching(`[0-9]{0,3}`),
		rapid.SampledFrom([]string{"4611686018427387903", "4611686018427387904", "0000000000000000000000002", "99999999999999999999", "-1", "+1", "1_0", "1 0", "0x1"}),
	)
	length := rapid.Custom(func(t *rapid.T) string {
		name := rapid.SampledFrom([]string{"Content-Length:", "Content-Length: ", "content-LENGTH:\t", "Content-Length :", "Content-Lengt", "X: Content-Length:", "content-length:content-length:"}).Draw(t, "name")
		return name + blanks.Draw(t, "before") + number.Draw(t, "length") + blanks.Draw(t, "after")
	})
	good := rapid.Just("HTTP/1.0 200 OK")
	first := rapid.OneOf(good, good, good, good,
		rapid.SampledFrom([]string{"HTTP/1.0 200 OK", "HTTP/1.1 204 No Content", "HTTP/1.1 200", "HTTP/1.1 200 ", "HTTP/1.1 404 x", "content-length: 200", "content-length:7 200", "HTTP 2000", "HTTP 20", "HTTP 000 x", "HTTP 200\r", "HTTP 200\rx", "HTTP  200", "HTTP 2x0", ""}),
		rapid.StringMatching(`[A-Z]{50,70} 2[0-9]{1,3}[ \r]?`),
		rapid.StringN(0, 80, -1),
	)
	field := rapid.OneOf(length, length, rapid.StringMatching(`[A-Za-z-]{1,9}: [ -~]{0,20}`), rapid.SampledFrom([]string{"\r", " ", "Content-", "A: " + strings.Repeat("x", MaxHeader-60), "c"}))
	end := rapid.SampledFrom([]string{"\r\n", "\r\n", "\r\n", "\n", "\n", "\r\r\n"})
	var b bytes.Buffer
	b.WriteString(first.Draw(t, "first") + end.Draw(t, "end"))
	for range rapid.IntRange(0, 4).Draw(t, "fields") {
		b.WriteString(field.Draw(t, "field") + end.Draw(t, "end"))
	}
	b.WriteString(rapid.SampledFrom([]string{"\r\n", "\n", "\r", ""}).Draw(t, "last"))
	b.WriteString(rapid.SampledFrom([]string{"", "u", "up", "up\n", "down", strings.Repeat("up", 5000)}).Draw(t, "body"))
	if rapid.IntRange(0, 3).Draw(t, "broken off") == 0 {
		b.Truncate(rapid.IntRange(0, b.Len()).Draw(t, "size"))
	}
	return b.Bytes()
}

// criteria is a url by a mask: digest, regex.
func criteria(mask int) config.URL {
	u := get("/")
	if mask&1 != 0 {
		u.HasDigest, u.Digest = true, md5.Sum([]byte("up"))
	}
	if mask&2 != 0 {
		u.Regex = &config.Regex{Pattern: "up"}
	}
	return u
}

// Verdict and reason are those of the whole answer, however it is cut.
func TestVerdictsDependOnTheBytesAlone(t *testing.T) {
	var probes [4]checker.Conversation
	var urls [4]config.URL
	for i := range probes {
		urls[i] = criteria(i)
		probes[i] = talk(t, offline(urls[i]))
	}
	rapid.Check(t, func(t *rapid.T) {
		answer := drawAnswer(t)
		i := rapid.IntRange(0, len(probes)-1).Draw(t, "criteria")
		cuts := rapid.SliceOf(rapid.OneOf(rapid.IntRange(1, 9), rapid.IntRange(1, 5000))).Draw(t, "cuts")
		want := oracle(&urls[i], answer)
		if got := said(lead(probes[i], io.EOF, whole(string(answer)))); got != want {
			t.Fatalf("in one piece: %q, want %q", got, want)
		}
		if got := said(lead(probes[i], io.EOF, cut(answer, cuts))); got != want {
			t.Fatalf("cut by %v: %q, want %q", cuts, got, want)
		}
		var bytewise []int
		for range min(len(answer), 300) {
			bytewise = append(bytewise, 1)
		}
		if got := said(lead(probes[i], io.EOF, cut(answer, bytewise))); got != want {
			t.Fatalf("byte by byte: %q, want %q", got, want)
		}
	})
}

// X01: whatever a server sends, however it is cut and however it ends, there is a
// verdict, the same for each cut, and it can be taken for no other's.
func FuzzConversation(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nup", "HTTP/1.1 404 x\n\n", "HTTP/1.1 200\r\nA: b\r\r\n\r\n\n",
		"HTTP/1.1 204 No\r\n\r\n", "\x00 200 \n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\nup",
		"content-length: 200\r\n\r\nup", "HTTP/1.1 " + strings.Repeat("2", 70), strings.Repeat("A: b\r\n", 3000), "",
	} {
		for mask := range uint8(4) {
			f.Add([]byte(s), []byte{1, 0, 3, 200}, mask)
		}
	}
	f.Fuzz(func(t *testing.T, answer, cuts []byte, mask uint8) {
		c := offline(criteria(int(mask & 3)))
		p := talk(t, c)
		var at []int
		for _, n := range cuts {
			at = append(at, int(n))
		}
		want := oracle(&c.HTTP.URLs[0], answer)
		for _, pieces := range [][][]byte{whole(string(answer)), cut(answer, at)} {
			if len(answer) == 0 {
				pieces = nil
			}
			if got := said(lead(p, io.EOF, pieces)); got != want {
				t.Fatalf("cut by %v: %q, want %q", at, got, want)
			}
		}
		o := lead(p, unix.ECONNRESET, cut(answer, at))
		if o.Reason == "" || o.Result == checker.Unable || o.Result == checker.OK && !strings.HasPrefix(want, "ok: ") {
			t.Fatalf("reset: %+v, and %q if closed", o, want)
		}
		p.Begin()
		p.Connected()
		for range 64 {
			if len(answer) == 0 || p.Received(answer) {
				break
			}
		}
		if kept := cap(p.(*conversation).now.answer.raw); kept > 0 && mask&2 == 0 || kept > 2*(MaxHeader+MaxBody) {
			t.Fatalf("keeps %d bytes", kept)
		}
	})
}

// steady are checks of good servers: what they cost is what ten thousand cost.
func steady() map[string]struct {
	check   *config.Checker
	answers [][][]byte
} {
	digest := criteria(1)
	const answer = "HTTP/1.1 200 OK\r\nServer: test\r\nDate: Thu, 01 Jan 1970 00:00:00 GMT\r\nContent-Type: text/plain\r\nContent-Length: 2\r\nConnection: close\r\n\r\nup"
	split := [][]byte{[]byte(answer[:40]), []byte(answer[40:100]), []byte(answer[100:])}
	return map[string]struct {
		check   *config.Checker
		answers [][][]byte
	}{
		"status": {offline(get("/")), [][][]byte{whole(answer)}},
		"digest": {offline(digest), [][][]byte{whole(answer)}},
		"urls":   {offline(get("/1"), digest), [][][]byte{whole(answer), whole(answer)}},
		"split":  {offline(digest), [][][]byte{split}},
	}
}

// heap is what lives after a collection.
func heap() int64 {
	runtime.GC()
	runtime.GC() // what pools held in the first is freed by the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Ten thousand checks have run and wait for their next turn.
func TestIdleProbesAreSmall(t *testing.T) {
	const n, most = 10_000, 32
	s := steady()["digest"]
	probes := make([]checker.Probe, n)
	before := heap()
	for i := range probes {
		p, err := New(s.check, nil)
		if err != nil {
			t.Fatal(err)
		}
		probes[i] = p
		lead(p.(checker.Conversation), io.EOF, s.answers...)
	}
	each := float64(heap()-before) / n
	t.Logf("an idle probe holds %.1f bytes", each)
	if each > most {
		t.Errorf("an idle probe holds %.1f bytes, more than %d", each, most)
	}
	runtime.KeepAlive(probes)
}

func BenchmarkHTTPConversation(b *testing.B) {
	for _, name := range []string{"status", "digest", "urls", "split"} {
		s := steady()[name]
		b.Run(name, func(b *testing.B) {
			p := talk(b, s.check)
			b.ReportAllocs()
			for b.Loop() {
				if o := lead(p, io.EOF, s.answers...); o.Result != checker.OK {
					b.Fatal(o.Reason)
				}
			}
		})
	}
}

func TestCancelledRunIsUnable(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	o := dial.Converse(ctx, talk(t, offline(get("/"))), nil)
	if o.Result != checker.Unable || o.Reason != "cancelled" || o.Took <= 0 {
		t.Errorf("%+v", o)
	}
}
