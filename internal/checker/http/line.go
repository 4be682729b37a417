package http

import (
	"errors"
	"strconv"
)

// shown is how much of a first line a message shows.
const shown = 60

// statusLine finds the status in the first line of an answer: the three digits after
// its first blank, which a blank or the end of the line must follow.
type statusLine struct {
	at     statusState
	code   int
	size   int
	cr     bool        // the last byte is a CR, which is no part of the line
	prefix [shown]byte // for messages
}

type statusState uint8

const (
	beforeBlank statusState = iota
	digit1
	digit2
	digit3
	afterDigits // the line may end
	afterCR     // as above, if that is the end
	goodStatus  // whatever comes
	badStatus
)

func (l *statusLine) reset() { l.at, l.code, l.size, l.cr = beforeBlank, 0, 0, false }

// take takes a part of the line that is not empty.
func (l *statusLine) take(p []byte) {
	if l.size < shown {
		copy(l.prefix[l.size:], p)
	}
	l.size += len(p)
	l.cr = p[len(p)-1] == '\r'
	for _, c := range p {
		if l.at >= goodStatus {
			return
		}
		l.step(c)
	}
}

func (l *statusLine) step(c byte) {
	switch {
	case l.at == beforeBlank:
		if c == ' ' {
			l.at = digit1
		}
	case l.at <= digit3 && c >= '0' && c <= '9':
		l.code = 10*l.code + int(c-'0')
		l.at++
	case l.at == afterDigits && c == ' ':
		l.at = goodStatus
	case l.at == afterDigits && c == '\r':
		l.at = afterCR
	default:
		l.at = badStatus
	}
}

// status is what the line says when it has ended.
func (l *statusLine) status() (int, error) {
	if l.code != 0 && (l.at == afterDigits || l.at == afterCR || l.at == goodStatus) {
		return l.code, nil
	}
	size := l.size
	if l.cr {
		size--
	}
	text := strconv.QuoteToASCII(string(l.prefix[:min(size, shown)]))
	if size > shown {
		text += "..."
	}
	return 0, errors.New("no status in first line " + text)
}

// lengthField finds the first Content-Length field of a header.
type lengthField struct {
	at    lengthState
	name  int // matched bytes of the name
	value int64
}

type lengthState uint8

const (
	inName lengthState = iota
	otherName
	beforeValue
	inValue
	afterValue
	badValue
	// The first field counts, so nothing is looked at after it.
	known
	unusable
)

const lengthName = "content-length:"

// maxLength bounds a Content-Length: what is beyond it is malformed.
const maxLength = 1<<62 - 1

func (f *lengthField) reset() { *f = lengthField{} }

// take takes a part of a line.
func (f *lengthField) take(p []byte) {
	for _, c := range p {
		switch f.at {
		case otherName, badValue, known, unusable:
			return
		}
		f.step(c)
	}
}

func (f *lengthField) step(c byte) {
	blank := c == ' ' || c == '\t' || c == '\r'
	switch {
	case f.at == inName:
		if c >= 'A' && c <= 'Z' {
			c += 'a' - 'A'
		}
		if c != lengthName[f.name] {
			f.at = otherName
		} else if f.name++; f.name == len(lengthName) {
			f.at = beforeValue
		}
	case blank:
		if f.at == inValue {
			f.at = afterValue
		}
	case c < '0' || c > '9' || f.at == afterValue || f.value > (maxLength-int64(c-'0'))/10:
		f.at = badValue
	default:
		f.at = inValue
		f.value = 10*f.value + int64(c-'0')
	}
}

// endLine is called at the end of each line.
func (f *lengthField) endLine() {
	switch f.at {
	case inName, otherName:
		f.at, f.name = inName, 0
	case inValue, afterValue:
		f.at = known
	case beforeValue, badValue:
		f.at = unusable
	}
}

// length is the field's value, -1 if there is none or it is malformed.
func (f *lengthField) length() int64 {
	if f.at == known {
		return f.value
	}
	return -1
}
