package checker

import (
	"bytes"
	"strconv"
	"strings"
)

// excerptMost is how many bytes of what was said a transcript shows.
const excerptMost = 256

// hiddenHeaders are header lines whose value is nobody's business but the server's.
var hiddenHeaders = []string{"authorization:", "proxy-authorization:", "cookie:", "set-cookie:", "www-authenticate:", "proxy-authenticate:"}

// Excerpt shows the beginning of what was said, quoted, without what header lines
// say that carry credentials. It is for transcripts.
func Excerpt(p []byte) string {
	shown := p[:min(len(p), excerptMost)]
	text := strconv.QuoteToASCII(string(redact(shown)))
	if len(p) > len(shown) {
		text += "..."
	}
	return text
}

// redact replaces the values of hidden headers, and of the lines that continue them.
func redact(p []byte) []byte {
	var out []byte
	hiding := false
	for line := range bytes.Lines(p) {
		if hiding = hiding && (line[0] == ' ' || line[0] == '\t'); hiding {
			continue
		}
		name := hiddenName(line)
		if name == 0 {
			out = append(out, line...)
			continue
		}
		hiding = true
		out = append(out, line[:name]...)
		out = append(out, " (hidden)"...)
		out = append(out, line[len(bytes.TrimRight(line, "\r\n")):]...)
	}
	return out
}

// hiddenName is the length of a hidden header's name with its colon, 0 for other
// lines.
func hiddenName(line []byte) int {
	for _, h := range hiddenHeaders {
		if len(line) >= len(h) && strings.EqualFold(string(line[:len(h)]), h) {
			return len(h)
		}
	}
	return 0
}

// Heard collects what came over a connection, for a transcript: the beginning, and
// how much it was. The nil Heard takes everything and tells nothing.
type Heard struct {
	trace *Trace
	head  []byte
	size  int64
}

// Hear begins to collect; nil without a trace.
func (t *Trace) Hear() *Heard {
	if t == nil {
		return nil
	}
	return &Heard{trace: t}
}

// Add takes the next bytes.
func (h *Heard) Add(p []byte) {
	if h == nil || len(p) == 0 {
		return
	}
	if h.size == 0 {
		h.trace.Tell(StageReply, "the answer begins")
	}
	h.size += int64(len(p))
	// One more than is shown, so that the excerpt knows that it is one.
	h.head = append(h.head, p[:min(len(p), excerptMost+1-len(h.head))]...)
}

// End tells what came.
func (h *Heard) End() {
	switch {
	case h == nil:
	case h.size == 0:
		h.trace.Tell(StageReply, "received nothing")
	default:
		h.trace.Tell(StageReply, "received %d bytes: %s", h.size, Excerpt(h.head))
	}
}
