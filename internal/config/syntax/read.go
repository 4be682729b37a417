package syntax

import (
	"io"
	"strings"
)

// chunk is how much of a file is read at once.
const chunk = 64 << 10

// lineReader takes a file apart into lines. They share the text of the chunk that
// they stand in, so that a line costs no allocation; what outlives the tree must
// be copied.
type lineReader struct {
	r    io.Reader
	buf  []byte
	rest string // read, and not yet returned
	err  error  // what follows rest
}

// next returns the next line with its end; the last one of a file may have none.
// The error comes with the last line. A line that is too long is returned as its
// beginning, for messages, and its length.
func (lr *lineReader) next() (text string, long int, err error) {
	for {
		if i := strings.IndexByte(lr.rest, '\n'); i >= 0 && i < maxLine+2 {
			text, lr.rest = lr.rest[:i+1], lr.rest[i+1:]
			return text, 0, nil
		}
		if len(lr.rest) >= maxLine+2 {
			return lr.skip()
		}
		if lr.err != nil {
			text, lr.rest = lr.rest, ""
			return text, 0, lr.err
		}
		lr.fill()
	}
}

// skip passes over a line that is too long.
func (lr *lineReader) skip() (text string, long int, err error) {
	text = strings.ToValidUTF8(lr.rest[:256], "\uFFFD")
	for {
		if i := strings.IndexByte(lr.rest, '\n'); i >= 0 {
			long += i + 1
			lr.rest = lr.rest[i+1:]
			return text, long, nil
		}
		long += len(lr.rest)
		lr.rest = ""
		if lr.err != nil {
			return text, long, lr.err
		}
		lr.fill()
	}
}

// maxEmpty is how often a reader may return nothing at all.
const maxEmpty = 100

// fill reads a chunk more.
func (lr *lineReader) fill() {
	if lr.buf == nil {
		lr.buf = make([]byte, chunk)
	}
	for range maxEmpty {
		n, err := lr.r.Read(lr.buf)
		if lr.err = err; n > 0 {
			lr.rest += string(lr.buf[:n])
			return
		}
		if err != nil {
			return
		}
	}
	lr.err = io.ErrNoProgress
}
