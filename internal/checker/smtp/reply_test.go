package smtp

import (
	"bufio"
	"bytes"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
)

// grammar is what readReply accepts, written down a second time: lines with a
// hyphen, then one without.
var grammar = regexp.MustCompile(`\A(?:[0-9]{3}-[^\n]*\n)*[0-9]{3}(?: [^\n]*|\r?)\n`)

// accepts judges by the grammar and the bounds.
func accepts(p []byte) (code, lines int, ok bool) {
	m := grammar.Find(p)
	if m == nil || bytes.Count(m, []byte("\n")) > MaxLines {
		return 0, 0, false
	}
	for line := range bytes.Lines(m) {
		if len(line) > MaxLine || !bytes.Equal(line[:3], m[:3]) {
			return 0, 0, false
		}
		lines++
	}
	code, _ = strconv.Atoi(string(m[:3]))
	return code, lines, true
}

func FuzzReply(f *testing.F) {
	for _, s := range []string{
		"220 a\r\n", "220-a\r\n220 b\r\n", "220\r\n", "220\n", "220-\n220\n", "220", "", "\n", "220 \x00\n", "22\x00 \n", "220-a\n221 b\n",
		"2200 a\n", "220\ra\n", "220 a\r", strings.Repeat("220-a\n", MaxLines) + "220 a\n", "220 " + strings.Repeat("x", MaxLine) + "\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		type result struct {
			reply
			err string
		}
		read := func(r io.Reader) (got result) {
			var err error
			got.reply, err = readReply(bufio.NewReaderSize(r, MaxLine))
			if err != nil {
				got.err = err.Error()
			}
			return got
		}
		got := read(bytes.NewReader(p))
		for _, cut := range []io.Reader{iotest.OneByteReader(bytes.NewReader(p)), iotest.HalfReader(bytes.NewReader(p))} {
			if other := read(cut); other != got {
				t.Fatalf("%q: %+v, cut otherwise %+v", p, got, other)
			}
		}
		code, lines, ok := accepts(p)
		if ok != (got.err == "") || ok && (code != got.code || lines != got.lines) {
			t.Fatalf("%q: %+v, by the grammar %v, code %d, %d lines", p, got, ok, code, lines)
		}
		if got.lines > MaxLines || got.rest > MaxLine || len(got.text) > 400 || len(got.err) > 600 {
			t.Fatalf("%q: out of bounds: %+v", p, got)
		}
	})
}
