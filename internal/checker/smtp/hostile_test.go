package smtp

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
)

// TestX01AnswersWithoutEnd: whatever a server sends without an end and at whatever
// step, the check ends at its bounds and long before its deadline.
func TestX01AnswersWithoutEnd(t *testing.T) {
	for name, tt := range map[string]struct{ begin, rest, want string }{
		"code":           {"", "2", "banner from TARGET: "},
		"no CRLF":        {"220 ", "x", "banner from TARGET: "},
		"NUL":            {"", "\x00", "banner from TARGET: "},
		"lines":          {"", "220-x\r\n", `banner from TARGET: 220 "x" (100 lines) goes on after 100 lines, after `},
		"empty lines":    {"", "\n", `banner from TARGET: "" is no SMTP answer, expected a code of three digits, after `},
		"answer to HELO": {"220 a\r\n250-", "x", "answer to HELO from TARGET: "},
		"lines to HELO":  {"220 a\r\n", "250-x\r\n", `answer to HELO from TARGET: 250 "x" (100 lines) goes on after 100 lines, after `},
		"answer to QUIT": {"220 a\r\n250 b\r\n221 ", "x", "answer to QUIT from TARGET: "},
	} {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int64
			c := serve(t, "127.0.0.1:0", func(c net.Conn) {
				io.WriteString(c, tt.begin)
				block := []byte(strings.Repeat(tt.rest, 4096))
				for {
					n, err := c.Write(block)
					sent.Add(int64(n))
					if err != nil {
						return
					}
				}
			})
			c.Conn.Timeout = time.Minute
			o := run(t, c)
			if want := strings.ReplaceAll(tt.want, "TARGET", c.Conn.Target.String()); o.Result != checker.Failed || !strings.HasPrefix(o.Reason, want) || o.Fault.Timeout || len(o.Reason) > 400 {
				t.Errorf("%v: %q\nwant %q", o.Result, o.Reason, want)
			}
			if n := sent.Load(); n > 64<<20 {
				t.Errorf("the server could send %d bytes", n)
			}
		})
	}
}
