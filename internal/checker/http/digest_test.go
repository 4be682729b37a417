package http

import (
	"crypto/md5"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

// TestDigestIsTheChecks: what Digest tells is what the check accepts, and nothing else.
func TestDigestIsTheChecks(t *testing.T) {
	for name, tt := range map[string]struct {
		answer, body, note string
		status             int
	}{
		"to the end":     {"HTTP/1.0 200 OK\r\n\r\nup", "up", "", 200},
		"by length":      {"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nup and more", "up", "", 200},
		"short":          {"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nup", "up", " (Content-Length says 9, 2 bytes came)", 200},
		"no body":        {"HTTP/1.1 204 No Content\r\n\r\n", "", "", 204},
		"any status":     {"HTTP/1.1 503 Busy\r\n\r\nlater", "later", "", 503},
		"chunks":         {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nup\r\n0\r\n\r\n", "2\r\nup\r\n0\r\n\r\n", "", 200},
		"line feeds":     {"HTTP/1.0 200 OK\n\nup", "up", "", 200},
		"larger than it": {"HTTP/1.0 200 OK\r\n\r\n" + strings.Repeat("x", MaxBody+1), strings.Repeat("x", MaxBody+1), "", 200},
	} {
		for _, c := range []*config.Checker{
			serve(t, "127.0.0.1:0", func(c net.Conn) { readRequest(c); io.WriteString(c, tt.answer); c.Close() }),
			serveTLS(t, &tls.Config{}, answersTLS(tt.answer)),
		} {
			c.HTTP.URLs[0].Regex = &config.Regex{Pattern: "no such thing"}
			got, o := Digest(t.Context(), c)
			want := Answer{Status: tt.status, Digest: md5.Sum([]byte(tt.body)), Length: int64(len(tt.body)), Note: tt.note}
			if got != want || o.Result != checker.OK || o.Fault != nil || o.Took <= 0 {
				t.Errorf("%s, %s: %+v, want %+v\n%+v", name, c.Kind, got, want, o)
			}
			u := &c.HTTP.URLs[0]
			if u.HasDigest || u.Regex == nil {
				t.Errorf("%s, %s: the check was changed", name, c.Kind)
			}
			u.Regex, u.HasDigest, u.Digest, u.Status = nil, true, got.Digest, anyStatus
			expect(t, run(t, c), checker.OK, "status")
			u.Digest[15]++
			expect(t, run(t, c), checker.Failed, "digest")
		}
	}
}

func TestDigestOfNothing(t *testing.T) {
	for answer, stage := range map[string]checker.Stage{
		"":                        checker.StageReply,
		"SSH-2.0-x\r\n":           checker.StageReply,
		"HTTP/1.0 200 OK\r\nA: b": checker.StageReply,
	} {
		c := serve(t, "127.0.0.1:0", func(c net.Conn) { readRequest(c); io.WriteString(c, answer); c.Close() })
		if _, o := Digest(t.Context(), c); o.Result != checker.Failed || o.Fault == nil || o.Fault.Stage != stage {
			t.Errorf("%q: %+v", answer, o)
		}
		c.Kind = config.SSLGet // at a server without TLS
		if _, o := Digest(t.Context(), c); o.Result != checker.Failed || o.Fault == nil || o.Fault.Stage != checker.StageTLS {
			t.Errorf("%q: %+v", answer, o)
		}
	}
}
