package http

import (
	"bytes"
	"crypto/md5"
	"errors"
	"fmt"
	"hash"
	"strconv"

	"github.com/sluice-lb/sluice/internal/config"
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
// bytes alone, not on how they were cut. It keeps none of them unless a regex wants
// to see them, and is ready for the next answer after reset.
type response struct {
	accept []config.StatusRange
	digest bool
	keep   bool // the answer, for a regex

	first  statusLine
	field  lengthField
	size   int // bytes of the header so far
	line   int // bytes of its current line so far
	bare   bool
	status int   // 0 until known
	header int   // the header's length with its empty line, 0 until known
	length int64 // Content-Length, -1 unknown
	got    int64 // body bytes
	done   bool

	sum  hash.Hash // of the body; nil until a digest was wanted for the first time
	sum0 [md5.Size]byte
	raw  []byte // the header and the body with keep
}

// reset makes r ready for an answer.
func (r *response) reset(accept []config.StatusRange, digest, keep bool) {
	r.accept, r.digest, r.keep = accept, digest, keep
	r.first.reset()
	r.field.reset()
	r.size, r.line, r.bare = 0, 0, false
	r.status, r.header, r.length, r.got, r.done = 0, 0, -1, 0, false
	r.raw = r.raw[:0]
	switch {
	case !digest:
	case r.sum == nil:
		r.sum = md5.New()
	default:
		r.sum.Reset()
	}
}

// statusError is a status that is not accepted.
type statusError int

func (e statusError) Error() string { return strconv.Itoa(int(e)) }

var errHeaderBound = fmt.Errorf("header does not end within %d bytes", MaxHeader)

// feed takes the next bytes and tells whether more are of interest. After done or
// an error it must not be called again.
func (r *response) feed(p []byte) (done bool, err error) {
	if r.header == 0 {
		head := p[:min(len(p), MaxHeader-r.size)]
		before := r.size
		err := r.readHeader(head)
		if r.keep {
			r.raw = append(r.raw, head[:r.size-before]...)
		}
		switch {
		case err != nil:
			return true, err
		case r.header == 0 && r.size == MaxHeader:
			return true, errHeaderBound
		case r.header == 0:
			return false, nil
		case r.done:
			return true, nil
		}
		p = p[r.size-before:]
	}
	return r.readBody(p)
}

// readHeader takes bytes up to the header's end.
func (r *response) readHeader(p []byte) error {
	for len(p) > 0 && r.header == 0 {
		end := bytes.IndexByte(p, '\n')
		if end < 0 {
			r.part(p)
			r.size += len(p)
			return nil
		}
		r.part(p[:end])
		r.size += end + 1
		p = p[end+1:]
		if err := r.endLine(); err != nil {
			return err
		}
	}
	return nil
}

// part takes bytes of the current line, without its line feed.
func (r *response) part(p []byte) {
	if len(p) == 0 {
		return
	}
	if r.status == 0 {
		r.first.take(p)
	}
	r.field.take(p)
	r.bare = r.line == 0 && len(p) == 1 && p[0] == '\r'
	r.line += len(p)
}

// endLine is called at each line feed of the header.
func (r *response) endLine() error {
	empty := r.line == 0 || r.bare
	r.line, r.bare = 0, false
	r.field.endLine()
	if r.status == 0 {
		var err error
		if r.status, err = r.first.status(); err != nil {
			return err
		}
		if !accepts(r.accept, r.status) {
			return statusError(r.status)
		}
		return nil
	}
	if !empty {
		return nil
	}
	r.header, r.length = r.size, r.field.length()
	bodiless := r.status == 204 || r.status == 304
	r.done = !r.keep && !r.digest || bodiless || r.length == 0
	return nil
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
	if r.digest {
		r.sum.Write(p)
	}
	r.got += int64(len(p))
	r.done = r.got == r.length
	return r.done, nil
}

// bodySum is the digest of the body so far.
func (r *response) bodySum() [md5.Size]byte {
	r.sum.Sum(r.sum0[:0])
	return r.sum0
}

// end says what it means that no more bytes come.
func (r *response) end() error {
	switch {
	case r.header > 0:
		return nil
	case r.size == 0:
		return errors.New("connection closed without an answer")
	case r.status == 0:
		return fmt.Errorf("connection closed within the status line after %d bytes", r.size)
	}
	return fmt.Errorf("connection closed within the header after %d bytes", r.size)
}

// short tells whether the body ended before its Content-Length.
func (r *response) short() bool { return r.header > 0 && !r.done && r.length > r.got }

// note is for a body that ended before its Content-Length.
func (r *response) note() string {
	if !r.short() {
		return ""
	}
	return fmt.Sprintf(" (Content-Length says %d, %d bytes came)", r.length, r.got)
}

// step is what is being read.
func (r *response) step() string {
	switch {
	case r.status == 0:
		return "status"
	case r.header == 0:
		return "header"
	}
	return "body"
}

// accepts tells whether a status is in one of the ranges.
func accepts(ranges []config.StatusRange, status int) bool {
	for _, s := range ranges {
		if s.First <= status && status <= s.Last {
			return true
		}
	}
	return false
}
