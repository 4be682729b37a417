package http

import (
	"bytes"
	"crypto/md5"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/config"
)

// found is what a response tells of an answer.
type found struct {
	Status, Header int
	Length, Got    int64
	Done, Short    bool
	Digest, Raw    string
	Err            string
}

// readAll feeds an answer in pieces that end at cuts, and ends it.
func readAll(accept []config.StatusRange, digest, regex bool, answer []byte, cuts ...int) found {
	r := new(response)
	r.reset(accept, digest, regex)
	done := false
	var err error
	from := 0
	for _, to := range append(cuts, len(answer)) {
		if done || to <= from || to > len(answer) {
			continue
		}
		done, err = r.feed(answer[from:to])
		from = to
	}
	if !done {
		err = r.end()
	}
	f := found{Status: r.status, Header: r.header, Length: r.length, Got: r.got, Done: done, Short: r.short()}
	if digest {
		f.Digest = fmt.Sprintf("%x", r.bodySum())
	}
	if err != nil {
		// How much of the answer was read when it failed is no finding.
		return found{Status: r.status, Err: err.Error()}
	}
	f.Raw = string(r.raw)
	return f
}

var any2xx = []config.StatusRange{{First: 200, Last: 299}}

func sum(s string) string { return fmt.Sprintf("%x", md5.Sum([]byte(s))) }

func TestResponse(t *testing.T) {
	const ok = "HTTP/1.0 200 OK\r\n"
	long := strings.Repeat("x", MaxHeader)
	tests := []struct {
		name          string
		answer        string
		digest, regex bool
		want          found
	}{
		{"status and header", ok + "\r\nbody", false, false, found{Status: 200, Header: 19, Length: -1, Done: true, Raw: ok + "\r\n"}},
		{"body to the end", ok + "\r\nbody", true, true, found{Status: 200, Header: 19, Length: -1, Got: 4, Digest: sum("body"), Raw: ok + "\r\nbody"}},
		{"no body", ok + "\r\n", true, true, found{Status: 200, Header: 19, Length: -1, Digest: sum(""), Raw: ok + "\r\n"}},
		{"content length", ok + "Content-Length: 3\r\n\r\nbody", true, true, found{Status: 200, Header: 38, Length: 3, Got: 3, Done: true, Digest: sum("bod"), Raw: ok + "Content-Length: 3\r\n\r\nbod"}},
		{"content length in any case", ok + "content-LENGTH:\t3 \r\n\r\nbody", true, false, found{Status: 200, Header: 39, Length: 3, Got: 3, Done: true, Digest: sum("bod"), Raw: ok + "content-LENGTH:\t3 \r\n\r\n"}},
		{"content length 0", ok + "Content-Length: 0\r\n\r\nbody", true, true, found{Status: 200, Header: 38, Done: true, Digest: sum(""), Raw: ok + "Content-Length: 0\r\n\r\n"}},
		{"content length malformed", ok + "Content-Length: 3x\r\n\r\nbody", true, false, found{Status: 200, Header: 39, Length: -1, Got: 4, Digest: sum("body"), Raw: ok + "Content-Length: 3x\r\n\r\n"}},
		{"content length negative", ok + "Content-Length: -3\r\n\r\nbody", true, false, found{Status: 200, Header: 39, Length: -1, Got: 4, Digest: sum("body"), Raw: ok + "Content-Length: -3\r\n\r\n"}},
		{"content length of 40 digits", ok + "Content-Length: " + strings.Repeat("9", 40) + "\r\n\r\nb", true, false, found{Status: 200, Header: 77, Length: -1, Got: 1, Digest: sum("b"), Raw: ok + "Content-Length: " + strings.Repeat("9", 40) + "\r\n\r\n"}},
		{"content length of 62 bits", ok + "Content-Length: 4611686018427387903\r\n\r\nb", true, false, found{Status: 200, Header: 56, Length: 1<<62 - 1, Got: 1, Short: true, Digest: sum("b")}},
		{"content length beyond 62 bits", ok + "Content-Length: 4611686018427387904\r\n\r\nb", true, false, found{Status: 200, Header: 56, Length: -1, Got: 1, Digest: sum("b")}},
		{"content length cut by a blank", ok + "Content-Length: 1 2\r\n\r\nbody", true, false, found{Status: 200, Header: 40, Length: -1, Got: 4, Digest: sum("body")}},
		{"content length empty, and no second one", ok + "Content-Length: \r\nContent-Length: 1\r\n\r\nbody", true, false, found{Status: 200, Header: 56, Length: -1, Got: 4, Digest: sum("body")}},
		{"content length not continued", ok + "Content-Length:\r\n1\r\n\r\nbody", true, false, found{Status: 200, Header: 39, Length: -1, Got: 4, Digest: sum("body")}},
		{"content length after its beginning", ok + "Content-\nContent-Length: 1\r\n\r\nbody", true, false, found{Status: 200, Header: 47, Length: 1, Got: 1, Done: true, Digest: sum("b")}},
		{"content length in the first line", "content-length: 201\r\n\r\nb", true, false, found{Status: 201, Header: 23, Length: 201, Got: 1, Short: true, Digest: sum("b")}},
		{"content length too large", ok + "Content-Length: 9\r\n\r\nbody", true, false, found{Status: 200, Header: 38, Length: 9, Got: 4, Short: true, Digest: sum("body"), Raw: ok + "Content-Length: 9\r\n\r\n"}},
		{"content length is not another field's value", ok + "X: Content-Length: 1\r\n\r\nbody", true, false, found{Status: 200, Header: 41, Length: -1, Got: 4, Digest: sum("body"), Raw: ok + "X: Content-Length: 1\r\n\r\n"}},
		{"no content for 204", "HTTP/1.1 204 No Content\r\n\r\nx", true, true, found{Status: 204, Header: 27, Length: -1, Done: true, Digest: sum(""), Raw: "HTTP/1.1 204 No Content\r\n\r\n"}},
		{"chunks stay raw", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n", true, false, found{Status: 200, Header: 47, Length: -1, Got: 12, Digest: sum("2\r\nok\r\n0\r\n\r\n"), Raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"}},
		// C10: bare LF ends lines and the header, the status may end its line.
		{"C10 line feeds alone", "HTTP/1.0 200 OK\nA: b\n\nbody", true, false, found{Status: 200, Header: 22, Length: -1, Got: 4, Digest: sum("body"), Raw: "HTTP/1.0 200 OK\nA: b\n\n"}},
		{"C10 mixed line ends", "HTTP/1.0 200 OK\r\nA: b\n\r\nbody", true, false, found{Status: 200, Header: 24, Length: -1, Got: 4, Digest: sum("body"), Raw: "HTTP/1.0 200 OK\r\nA: b\n\r\n"}},
		{"C10 no reason phrase", "HTTP/1.0 200\r\n\r\n", false, false, found{Status: 200, Header: 16, Length: -1, Done: true, Raw: "HTTP/1.0 200\r\n\r\n"}},
		{"C10 no reason phrase, blank", "HTTP/1.0 200 \n\n", false, false, found{Status: 200, Header: 15, Length: -1, Done: true, Raw: "HTTP/1.0 200 \n\n"}},
		{"CR inside a line is no end", ok + "A: b\r\rc\r\n\r\n", false, false, found{Status: 200, Header: 28, Length: -1, Done: true, Raw: ok + "A: b\r\rc\r\n\r\n"}},
		{"not HTTP, but a status", "ICY 200 OK\r\n\r\n", false, false, found{Status: 200, Header: 14, Length: -1, Done: true, Raw: "ICY 200 OK\r\n\r\n"}},

		{"wrong status", "HTTP/1.0 404 Not Found\r\n", false, false, found{Status: 404, Err: "404"}},
		{"empty", "", false, false, found{Err: "connection closed without an answer"}},
		{"status cut", "HTTP/1.0 200", false, false, found{Err: "connection closed within the status line after 12 bytes"}},
		{"header cut", ok + "A: b\r\n", false, false, found{Status: 200, Err: "connection closed within the header after 23 bytes"}},
		{"header cut after CR", ok + "\r", false, false, found{Status: 200, Err: "connection closed within the header after 18 bytes"}},
		{"no blank", "HTTP/1.0\r\n\r\n", false, false, found{Err: `no status in first line "HTTP/1.0"`}},
		{"empty first line", "\r\n\r\n", false, false, found{Err: `no status in first line ""`}},
		{"blank in a later line", "HTTP\r\nA: 200 \r\n\r\n", false, false, found{Err: `no status in first line "HTTP"`}},
		{"two digits", "HTTP/1.0 20\r\n\r\n", false, false, found{Err: `no status in first line "HTTP/1.0 20"`}},
		{"four digits", "HTTP/1.0 2000 x\r\n\r\n", false, false, found{Err: `no status in first line "HTTP/1.0 2000 x"`}},
		{"zero", "HTTP/1.0 000 x\r\n\r\n", false, false, found{Err: `no status in first line "HTTP/1.0 000 x"`}},
		// X01
		{"X01 forty digits", "HTTP/1.0 " + strings.Repeat("2", 40) + " OK\r\n\r\n", false, false, found{Err: `no status in first line "HTTP/1.0 ` + strings.Repeat("2", 40) + ` OK"`}},
		{"X01 NUL bytes", "HTTP/1.0\x00200\x00OK\r\n\r\n", false, false, found{Err: `no status in first line "HTTP/1.0\x00200\x00OK"`}},
		{"X01 long garbage line is cut in the message", strings.Repeat("\xff", 100) + "\n", false, false, found{Err: `no status in first line "` + strings.Repeat(`\xff`, 60) + `"...`}},
		{"X01 1 MB status line", strings.Repeat("HTTP", 1<<18), false, false, found{Err: errHeaderBound.Error()}},
		{"X01 header bomb", ok + strings.Repeat("A: b\r\n", 1<<16), false, false, found{Status: 200, Err: errHeaderBound.Error()}},
		{"X01 header of exactly the bound", ok + long[:MaxHeader-len(ok)-4] + "\r\n\r\n", false, false, found{Status: 200, Header: MaxHeader, Length: -1, Done: true, Raw: ok + long[:MaxHeader-len(ok)-4] + "\r\n\r\n"}},
		{"X01 header of one more", ok + long[:MaxHeader-len(ok)-3] + "\r\n\r\n", false, false, found{Status: 200, Err: errHeaderBound.Error()}},
		{"X01 wrong status in front of a bomb", "HTTP/1.0 500 x\r\n" + long, false, false, found{Status: 500, Err: "500"}},
		{"X01 body for a regex is bounded", ok + "\r\n" + strings.Repeat("x", MaxBody+1), false, true, found{Status: 200, Err: fmt.Sprintf("body is longer than %d bytes", MaxBody)}},
		{"X01 body for a digest is not kept", ok + "\r\n" + strings.Repeat("x", MaxBody+1), true, false, found{Status: 200, Header: 19, Length: -1, Got: MaxBody + 1, Digest: sum(strings.Repeat("x", MaxBody+1)), Raw: ok + "\r\n"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			answer := []byte(tt.answer)
			if !tt.regex {
				tt.want.Raw = "" // only a regex needs the bytes
			}
			got := readAll(any2xx, tt.digest, tt.regex, answer)
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("(-want +got):\n%.600s", d)
			}
			// Byte by byte at the beginning, and each single cut around the header.
			var bytewise []int
			for i := range min(len(answer), 200) {
				bytewise = append(bytewise, i)
			}
			if got := readAll(any2xx, tt.digest, tt.regex, answer, bytewise...); got != tt.want {
				t.Errorf("byte by byte: %s", cmp.Diff(tt.want, got))
			}
			for i := range min(len(answer), 60) {
				if got := readAll(any2xx, tt.digest, tt.regex, answer, i); got != tt.want {
					t.Errorf("cut at %d: %s", i, cmp.Diff(tt.want, got))
				}
			}
		})
	}
}

// X01: whatever a server sends and however it is cut, the finding is the same and
// what is kept is bounded.
func FuzzResponse(f *testing.F) {
	for _, s := range []string{
		"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody", "HTTP/1.1 404 x\n\n", "HTTP/1.1 200\r\nA: b\r\r\n\r\n\n",
		"HTTP/1.1 204 No\r\n\r\n", "\x00 200 \n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 99999999999999999999\r\n\n",
		"HTTP/1.1 " + strings.Repeat("2", 40), strings.Repeat("A: b\r\n", 3000),
	} {
		f.Add([]byte(s), []byte{1, 0, 3, 200}, uint8(15), uint16(1))
		f.Add([]byte(s), []byte{1, 2, 3, 5, 8, 13}, uint8(3), uint16(0))
	}
	f.Fuzz(func(t *testing.T, answer, cuts []byte, mode uint8, repeat uint16) {
		// A short input stands for a long one.
		if n := int(repeat) * len(answer); mode&4 != 0 && n < 1<<18 {
			answer = append(answer, bytes.Repeat(answer, int(repeat))...)
		}
		digest, regex := mode&1 != 0, mode&2 != 0
		whole := readAll(any2xx, digest, regex, answer)
		var at []int
		for i, n := 0, 0; i < len(cuts); i++ {
			n += int(cuts[i])
			at = append(at, n)
		}
		if d := cmp.Diff(whole, readAll(any2xx, digest, regex, answer, at...)); d != "" {
			t.Fatalf("cut at %v (-whole +cut):\n%s", at, d)
		}

		if mode&8 == 0 {
			return // what follows is slow
		}
		r := new(response)
		r.reset(any2xx, digest, regex)
		for {
			if done, err := r.feed(answer); done || err != nil || len(answer) == 0 || r.got > 4<<20 {
				break
			}
		}
		if limit := 2 * (MaxHeader + MaxBody); cap(r.raw) > limit {
			t.Fatalf("keeps %d bytes", cap(r.raw))
		}
		if !regex && cap(r.raw) > 0 {
			t.Fatalf("keeps %d bytes without a regex", len(r.raw))
		}
	})
}
