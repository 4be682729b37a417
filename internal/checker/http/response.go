package http

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"hash"
	"strconv"
)

// Bounds of an answer, in bytes.
const (
	// MaxHeader is where the empty line must have come.
	MaxHeader = 16 << 10
	// MaxBody is the longest body that is kept for a regex.
	MaxBody = 1 << 20
	// MaxDigestBody is the longest body that only a digest is made of.
	MaxDigestBody = 256 << 20
)

// response reads one answer from chunks of any size. What it finds depends on the
// bytes alone, not on how they were cut.
type response struct {
	accept func(status int) bool
	keep   bool      // the body, for a regex
	sum    hash.Hash // of the body, nil without digest

	raw     []byte // the header, and the body with keep
	scanned int    // raw[:scanned] has no empty line
	status  int    // 0 until known
	header  int    // the header's length with its empty line, 0 until known
	length  int64  // Content-Length, -1 unknown
	got     int64  // body bytes
	done    bool
}

func newResponse(accept func(int) bool, digest, regex bool) *response {
	r := &response{accept: accept, keep: regex, length: -1}
	if digest {
		r.sum = md5.New()
	}
	return r
}

// statusError is a status that is not accepted.
type statusError int

func (e statusError) Error() string { return strconv.Itoa(int(e)) }

var errHeaderBound = fmt.Errorf("header does not end within %d bytes", MaxHeader)

// feed takes the next bytes and tells whether more are of interest. After done or
// an error it must not be called again.
func (r *response) feed(p []byte) (done bool, err error) {
	if r.header == 0 {
		n := min(len(p), MaxHeader-len(r.raw))
		before := len(r.raw)
		r.raw = append(r.raw, p[:n]...)
		if err := r.readHeader(); err != nil {
			return true, err
		}
		if r.header == 0 {
			if len(r.raw) == MaxHeader {
				return true, errHeaderBound
			}
			return false, nil
		}
		p = p[r.header-before:]
		r.raw = r.raw[:r.header]
		if r.done {
			return true, nil
		}
	}
	return r.readBody(p)
}

func (r *response) readHeader() error {
	if r.status == 0 {
		// Until the status is known, no line before scanned has ended.
		end := bytes.IndexByte(r.raw[r.scanned:], '\n')
		if end < 0 {
			r.scanned = len(r.raw)
			return nil
		}
		var err error
		if r.status, err = parseStatus(r.raw[:r.scanned+end]); err != nil {
			return err
		}
		r.scanned += end
		if !r.accept(r.status) {
			return statusError(r.status)
		}
	}
	// scanned stands at a line end that may be followed by the empty line.
	for {
		end := bytes.IndexByte(r.raw[r.scanned:], '\n')
		if end < 0 {
			r.scanned = len(r.raw)
			return nil
		}
		at := r.scanned + end
		rest := r.raw[at+1:]
		switch {
		case len(rest) > 0 && rest[0] == '\n':
			r.header = at + 2
		case len(rest) > 1 && rest[0] == '\r' && rest[1] == '\n':
			r.header = at + 3
		case len(rest) == 0, len(rest) == 1 && rest[0] == '\r':
			r.scanned = at // not known yet: come back to this line end
			return nil
		default:
			r.scanned = at + 1
			continue
		}
		r.length = contentLength(r.raw[:r.header])
		bodiless := r.status == 204 || r.status == 304
		r.done = !r.keep && r.sum == nil || bodiless || r.length == 0
		return nil
	}
}

func (r *response) readBody(p []byte) (bool, error) {
	if r.length >= 0 {
		p = p[:min(int64(len(p)), r.length-r.got)]
	}
	limit := int64(MaxDigestBody)
	if r.keep {
		limit = MaxBody
	}
	if r.got+int64(len(p)) > limit {
		return true, fmt.Errorf("body is longer than %d bytes", limit)
	}
	if r.keep {
		r.raw = append(r.raw, p...)
	}
	if r.sum != nil {
		r.sum.Write(p)
	}
	r.got += int64(len(p))
	r.done = r.got == r.length
	return r.done, nil
}

// end says what it means that no more bytes come.
func (r *response) end() error {
	switch {
	case r.header > 0:
		return nil
	case len(r.raw) == 0:
		return errors.New("connection closed without an answer")
	case r.status == 0:
		return fmt.Errorf("connection closed within the status line after %d bytes", len(r.raw))
	}
	return fmt.Errorf("connection closed within the header after %d bytes", len(r.raw))
}

// short tells whether the body ended before its Content-Length.
func (r *response) short() bool { return r.header > 0 && !r.done && r.length > r.got }

// parseStatus takes the three digits after the line's first blank, which a blank
// or the end of the line must follow.
func parseStatus(line []byte) (int, error) {
	line = bytes.TrimSuffix(line, []byte("\r"))
	_, rest, ok := bytes.Cut(line, []byte(" "))
	digit := func(i int) bool { return rest[i] >= '0' && rest[i] <= '9' }
	if !ok || len(rest) < 3 || !digit(0) || !digit(1) || !digit(2) || len(rest) > 3 && rest[3] != ' ' {
		return 0, fmt.Errorf("no status in first line %s", quote(line))
	}
	status := int(rest[0]-'0')*100 + int(rest[1]-'0')*10 + int(rest[2]-'0')
	if status == 0 {
		return 0, fmt.Errorf("no status in first line %s", quote(line))
	}
	return status, nil
}

// contentLength returns the first Content-Length field, -1 if there is none or it
// is malformed.
func contentLength(header []byte) int64 {
	const name = "content-length:"
	for line := range bytes.Lines(header) {
		if len(line) < len(name) || !bytes.EqualFold(line[:len(name)], []byte(name)) {
			continue
		}
		value := bytes.Trim(line[len(name):], " \t\r\n")
		n, err := strconv.ParseUint(string(value), 10, 62)
		if err != nil {
			return -1
		}
		return int64(n)
	}
	return -1
}

// quote shows the beginning of foreign bytes in a message.
func quote(p []byte) string {
	const most = 60
	if len(p) > most {
		return strconv.QuoteToASCII(string(p[:most])) + "..."
	}
	return strconv.QuoteToASCII(string(p))
}
