package http

import (
	"io"
	"net"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

// TestX01AnswersWithoutEnd: whatever a server sends without an end, the check ends at
// its bounds, long before its deadline, and keeps no more than they allow.
func TestX01AnswersWithoutEnd(t *testing.T) {
	const head = "HTTP/1.0 200 OK\r\n"
	for name, tt := range map[string]struct {
		kind        config.CheckerKind
		begin, rest string
		regex       bool
		want        string
	}{
		"status line":        {config.HTTPGet, "HTTP/1.0 ", "2", false, "status from TARGET: header does not end within 16384 bytes"},
		"no CRLF":            {config.HTTPGet, "", "x", false, "status from TARGET: header does not end within 16384 bytes"},
		"NUL":                {config.HTTPGet, "HTTP/1.0 200", "\x00", false, "status from TARGET: header does not end within 16384 bytes"},
		"first lines":        {config.HTTPGet, "", "\n", false, `status from TARGET: no status in first line ""`},
		"header lines":       {config.HTTPGet, head, "A: b\r\n", false, "header from TARGET: header does not end within 16384 bytes"},
		"a header line":      {config.HTTPGet, head + "A: ", "b", false, "header from TARGET: header does not end within 16384 bytes"},
		"continuation lines": {config.HTTPGet, head + "A: b\r\n", " c\r\n", false, "header from TARGET: header does not end within 16384 bytes"},
		"length":             {config.HTTPGet, head + "Content-Length: ", "9", false, "header from TARGET: header does not end within 16384 bytes"},
		"body":               {config.HTTPGet, head + "\r\n", "x", true, "body from TARGET: body is longer than 1048576 bytes"},
		"chunks":             {config.HTTPGet, head + "Transfer-Encoding: chunked\r\n\r\n", "1\r\nx\r\n", true, "body from TARGET: body is longer than 1048576 bytes"},
		"TLS garbage":        {config.SSLGet, "", "x", false, "TLS handshake with TARGET: tls: first record does not look like a TLS handshake"},
		"TLS handshake":      {config.SSLGet, "", "\x16\x03\x03\x00\x04\x02\xff\xff\xff", false, "TLS handshake with TARGET: tls: handshake message of length 16777215 bytes exceeds maximum of"},
		"TLS alerts":         {config.SSLGet, "", "\x15\x03\x03\x00\x02\x01\x5a", false, "TLS handshake with TARGET: tls: too many ignored records"},
	} {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int64
			c := serve(t, "127.0.0.1:0", func(c net.Conn) {
				io.WriteString(c, tt.begin)
				block := []byte(strings.Repeat(tt.rest, 1+(32<<10)/len(tt.rest)))
				for {
					n, err := c.Write(block)
					sent.Add(int64(n))
					if err != nil {
						return
					}
				}
			})
			c.Kind, c.Conn.Timeout = tt.kind, time.Minute
			if tt.regex {
				c.HTTP.URLs[0].Regex = &config.Regex{Pattern: "never there"}
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			o := run(t, c)
			runtime.ReadMemStats(&after)
			want := "url /: " + strings.ReplaceAll(tt.want, "TARGET", c.Conn.Target.String())
			if o.Result != checker.Failed || !strings.HasPrefix(o.Reason, want) || o.Fault.Timeout {
				t.Errorf("%v: %q\nwant %q", o.Result, o.Reason, want)
			}
			if len(o.Reason) > 300 {
				t.Errorf("a reason of %d bytes", len(o.Reason))
			}
			// What is allocated in all, by server and test too.
			if used := after.TotalAlloc - before.TotalAlloc; used > 32<<20 {
				t.Errorf("%d bytes allocated", used)
			}
			// What the kernel buffers is on top of what is read.
			if n := sent.Load(); n > 64<<20 {
				t.Errorf("the server could send %d bytes", n)
			}
		})
	}
}

// TestUnledHasAFault: who gives a run up before its end hears no success, and why.
func TestUnledHasAFault(t *testing.T) {
	c := serve(t, "127.0.0.1:0", hold)
	p, err := New(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	talk := p.(checker.Conversation)
	talk.Begin()
	_, o := talk.Next()
	if o.Result != checker.Unable || o.Fault == nil || o.Fault.Target != "http://"+c.Conn.Target.String()+"/" {
		t.Errorf("%+v, fault %+v", o, o.Fault)
	}
}
