package trackfile

import (
	"errors"
	"fmt"
	"io/fs"
	"math"

	"golang.org/x/sys/unix"
)

// State says what a reading found.
type State int

// States of a reading.
const (
	// OK: a number in range.
	OK State = iota
	// Missing: there is no such file; it counts as 0.
	Missing
	// Empty: nothing but white space; it counts as 0.
	Empty
	// Garbage: no number where one should begin; the last value stays.
	Garbage
	// OutOfRange: a number outside Min..Max; the last value stays.
	OutOfRange
	// Unreadable: the file is there and cannot be read; the last value stays.
	Unreadable
)

// String returns the state in words.
func (s State) String() string {
	switch s {
	case OK:
		return "ok"
	case Missing:
		return "missing"
	case Empty:
		return "empty"
	case Garbage:
		return "not a number"
	case OutOfRange:
		return "out of range"
	case Unreadable:
		return "unreadable"
	}
	return "unknown"
}

// keeps tells whether the state leaves the last value as it is.
func (s State) keeps() bool { return s == Garbage || s == OutOfRange || s == Unreadable }

// The range of values that keepalived accepts; its upper bound is indeed one
// more than an int32 holds.
const (
	Min int64 = math.MinInt32
	Max int64 = math.MaxInt32 + 1
)

// maxRead is how much of a file keepalived looks at, in bytes.
const maxRead = 127

// Parse reads a number as keepalived does, which is C's strtol with base 0:
// blanks, a sign, then decimal, 0x hexadecimal or 0 octal digits; what follows
// is ignored. Only the first 127 bytes count. The value is 0 unless the state
// is OK.
func Parse(b []byte) (int64, State) {
	b = b[:min(len(b), maxRead)]
	for len(b) > 0 && isSpace(b[0]) {
		b = b[1:]
	}
	if len(b) == 0 {
		return 0, Empty
	}
	neg := false
	if b[0] == '-' || b[0] == '+' {
		neg = b[0] == '-'
		b = b[1:]
	}
	base := int64(10)
	switch {
	case len(b) > 2 && b[0] == '0' && (b[1] == 'x' || b[1] == 'X') && digit(b[2]) < 16:
		base, b = 16, b[2:]
	case len(b) > 0 && b[0] == '0':
		base = 8
	}
	var v int64
	digits, huge := 0, false
	for ; digits < len(b) && digit(b[digits]) < base; digits++ {
		// Beyond 2^40 only the fact counts, so that nothing overflows.
		if v = v*base + digit(b[digits]); v > 1<<40 {
			huge, v = true, 1<<40
		}
	}
	if neg {
		v = -v
	}
	switch {
	case digits == 0:
		return 0, Garbage
	case huge || v < Min || v > Max:
		return 0, OutOfRange
	}
	return v, OK
}

// isSpace is C's isspace in the "C" locale.
func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

// digit returns the value of a digit in base 36, or 36 if it is none.
func digit(c byte) int64 {
	switch {
	case c >= '0' && c <= '9':
		return int64(c - '0')
	case c >= 'a' && c <= 'z':
		return int64(c-'a') + 10
	case c >= 'A' && c <= 'Z':
		return int64(c-'A') + 10
	}
	return 36
}

// Read reads a file's number. The value is 0 unless the state is OK. The error
// says why a state is neither OK nor Missing nor Empty; it names the path.
//
// A FIFO or a device is opened without blocking and read once.
func Read(path string) (value int64, state State, err error) {
	b, err := read(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.ENOTDIR):
		return 0, Missing, nil
	case err != nil:
		return 0, Unreadable, fmt.Errorf("read track file %s: %w", path, err)
	}
	value, state = Parse(b)
	switch state {
	case Garbage:
		err = fmt.Errorf("read track file %s: %q is not a number", path, excerpt(b))
	case OutOfRange:
		err = fmt.Errorf("read track file %s: %q is outside %d..%d", path, excerpt(b), Min, Max)
	}
	return value, state, err
}

// excerpt bounds what a message shows of a file.
func excerpt(b []byte) []byte {
	const limit = 32
	for i, c := range b {
		if c == '\n' || i == limit {
			return b[:i]
		}
	}
	return b
}

// read returns the first maxRead bytes. It uses system calls rather than
// os.File, whose Read of a FIFO waits for a writer.
func read(path string) ([]byte, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	})
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	buf := make([]byte, maxRead)
	n := 0
	for n < len(buf) {
		k, err := retry(func() (int, error) { return unix.Read(fd, buf[n:]) })
		if errors.Is(err, unix.EAGAIN) {
			break // a FIFO whose writer has not written
		}
		if err != nil {
			return nil, err
		}
		if k == 0 {
			break
		}
		n += k
	}
	return buf[:n], nil
}

// retry repeats a system call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}
