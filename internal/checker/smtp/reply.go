package smtp

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"github.com/sluice-lb/sluice/internal/checker"
)

// Bounds of an answer.
const (
	// MaxLine is the longest line in octets with its end, twice what RFC 5321,
	// section 4.5.3.1.5 allows.
	MaxLine = 1024
	// MaxLines is how many lines one answer may have.
	MaxLines = 100
)

// reply is an answer, or what has come of one.
type reply struct {
	code  int
	text  string // of the first line, quoted and cut
	lines int    // that are complete
	rest  int    // octets of the line that is not
}

// String is how messages show an answer.
func (a reply) String() string {
	s := strconv.Itoa(a.code)
	if a.code < 100 { // the digits as they came
		s = fmt.Sprintf("%03d", a.code)
	}
	if a.text != `""` {
		s += " " + a.text
	}
	if a.lines > 1 {
		s += fmt.Sprintf(" (%d lines)", a.lines)
	}
	return s
}

// progress says what had come of an answer that does not end, if err is of the
// connection: what is no answer is shown by its error.
func (a reply) progress(err error) string {
	if _, ok := errors.AsType[*checker.Mismatch](err); ok {
		return ""
	}
	switch {
	case a.lines > 0:
		return fmt.Sprintf(" (%s and %s came)", count(a.lines, "line"), count(a.rest, "byte"))
	case a.rest > 0:
		return fmt.Sprintf(" (%s came, no end of line)", count(a.rest, "byte"))
	}
	return ""
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}

// noAnswer is the error of an answer that is none.
func noAnswer(got, want string) error { return &checker.Mismatch{Got: got, Want: want} }

// readReply reads one answer to its last line. On an error of the connection the
// reply says what had come. An answer that is none is a *checker.Mismatch.
func readReply(r *bufio.Reader) (reply, error) {
	var a reply
	for {
		line, err := readLine(r)
		if err != nil {
			a.rest = len(line)
			return a, err
		}
		code, text, more, ok := parseLine(line)
		switch {
		case !ok && a.lines == 0:
			return a, noAnswer(quote(line)+" is no SMTP answer", "a code of three digits")
		case !ok:
			return a, noAnswer(fmt.Sprintf("%s in line %d is no SMTP answer", quote(line), a.lines+1), fmt.Sprintf("%03d", a.code))
		case a.lines == 0:
			a.code, a.text = code, quote(text)
		case code != a.code:
			return a, noAnswer(fmt.Sprintf("%s in line %d", quote(line), a.lines+1), fmt.Sprintf("%03d as in the first line", a.code))
		}
		a.lines++
		if !more {
			return a, nil
		}
		if a.lines == MaxLines {
			return a, noAnswer(fmt.Sprintf("%s goes on after %d lines", a, MaxLines), "")
		}
	}
}

// readLine returns the next line without its end. With an error of the connection
// it returns what had come of the line. It is valid until the next read.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, noAnswer(fmt.Sprintf("%s is no SMTP answer, the line does not end within %d bytes", quote(line), MaxLine), "")
	}
	if err != nil {
		return line, err
	}
	return bytes.TrimSuffix(line[:len(line)-1], []byte("\r")), nil
}

// parseLine takes a line apart; more says that another one follows.
func parseLine(line []byte) (code int, text []byte, more, ok bool) {
	if len(line) < 3 {
		return 0, nil, false, false
	}
	for _, c := range line[:3] {
		if c < '0' || c > '9' {
			return 0, nil, false, false
		}
		code = code*10 + int(c-'0')
	}
	if len(line) == 3 {
		return code, nil, false, true
	}
	more = line[3] == '-'
	return code, line[4:], more, more || line[3] == ' '
}

// quote shows the beginning of foreign bytes in a message.
func quote(p []byte) string {
	const most = 60
	if len(p) > most {
		return strconv.QuoteToASCII(string(p[:most])) + "..."
	}
	return strconv.QuoteToASCII(string(p))
}
