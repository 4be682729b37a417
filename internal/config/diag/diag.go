// Package diag is what the configuration says back: a finding with a severity,
// a stable code, a place, and what to do about it.
//
// A diagnostic is not an error value. A file is read to its end and every
// finding is collected, so that an operator mends all of them in one go; the
// decision whether the file may be used is made once, from the whole list.
package diag

import (
	"math"
	"unique"
)

// Severity says what becomes of the configuration because of a finding.
type Severity int

const (
	// Notice: nothing is wrong; the operator may want to know (a VRRP block
	// that this daemon does not serve).
	Notice Severity = iota
	// Warning: the file means what it says, but probably not what was meant.
	Warning
	// Error: keepalived would go on with a changed meaning. At start so does
	// sluice, and the finding says what was changed; --strict refuses the file,
	// and so does a reload unless the running configuration had it already.
	Error
	// Fatal: nothing sound can be run from this file.
	Fatal
)

// String returns the lower-case word that stands in front of a message.
func (s Severity) String() string {
	switch s {
	case Notice:
		return "notice"
	case Warning:
		return "warning"
	case Error:
		return "error"
	case Fatal:
		return "fatal"
	}
	return "unknown"
}

// Class is what keepalived -t would answer for a finding; it decides the exit
// status of a configuration test and is independent of the severity.
type Class int

const (
	// ClassNone does not touch the exit status: keepalived is silent here.
	ClassNone Class = iota
	// ClassNotFound: a file, an interface or the like is missing (status 4).
	ClassNotFound
	// ClassConfig: any other configuration error (status 5).
	ClassConfig
	// ClassSecurity: scripts without enable_script_security, or an include
	// check that was violated (status 6).
	ClassSecurity
	// ClassMissing: a required parameter is not there (status 2, outranks all).
	ClassMissing
)

// Pos is a place in a configuration file. Line and Col count from 1; Col counts
// characters, not bytes. The zero Pos means that no place is known. There is one
// for every real server and check as long as the configuration lives, so that it
// takes 16 bytes: names of files are kept once each.
type Pos struct {
	Line, Col int32
	file      unique.Handle[string]
}

// At returns the place in a file; 0 is a line or column that is not known.
func At(file string, line, col int) Pos {
	p := Pos{Line: bounded(line), Col: bounded(col)}
	if file != "" {
		p.file = unique.Make(file)
	}
	return p
}

func bounded(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) }

// On returns a place in the same file.
func (p Pos) On(line, col int) Pos {
	p.Line, p.Col = bounded(line), bounded(col)
	return p
}

// File returns the name of the file, "" if none is known.
func (p Pos) File() string {
	if p.file == (unique.Handle[string]{}) {
		return ""
	}
	return p.file.Value()
}

// SameFile tells whether two places are in one file.
func (p Pos) SameFile(q Pos) bool { return p.file == q.file }

// SameLine tells whether two places are on one line.
func (p Pos) SameLine(q Pos) bool { return p.Line == q.Line && p.file == q.file }

// Equal tells whether two places are the same; == says it too.
func (p Pos) Equal(q Pos) bool { return p == q }

// Diagnostic is one finding.
type Diagnostic struct {
	Severity Severity
	Class    Class
	// Code is stable over versions: a letter for the severity and three digits.
	Code string
	Pos  Pos
	// Width is how many characters the caret line underlines, at least 1.
	Width int
	// Source is the physical line at Pos, without its line end.
	Source string
	// Message says what is wrong, in lower case and without a full stop.
	Message string
	// Notes give context: the blocks around it, the include chain.
	Notes []string
	// Hint says what happens now and what to do.
	Hint string
}

// List is every finding of one configuration, in the order found.
type List []Diagnostic
