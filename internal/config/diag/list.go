package diag

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// String returns "file:line:col", as compilers print it and editors jump to.
// What is not known is left out; the zero Pos is "-".
func (p Pos) String() string {
	file := p.File()
	switch {
	case p.Line == 0 && file == "":
		return "-"
	case p.Line == 0:
		return file
	case p.Col == 0:
		return fmt.Sprintf("%s:%d", file, p.Line)
	}
	return fmt.Sprintf("%s:%d:%d", file, p.Line, p.Col)
}

// String returns the class in one word, as WriteJSON writes it.
func (c Class) String() string {
	switch c {
	case ClassNone:
		return "none"
	case ClassNotFound:
		return "not-found"
	case ClassConfig:
		return "config"
	case ClassSecurity:
		return "security"
	case ClassMissing:
		return "missing"
	}
	return "unknown"
}

// String returns the finding in one line: place, severity, message and code.
func (d Diagnostic) String() string {
	var b strings.Builder
	if d.Pos != (Pos{}) {
		b.WriteString(d.Pos.String())
		b.WriteString(": ")
	}
	b.WriteString(d.Severity.String())
	b.WriteString(": ")
	b.WriteString(d.Message)
	if d.Code != "" {
		b.WriteString(" [")
		b.WriteString(d.Code)
		b.WriteString("]")
	}
	return clean(b.String())
}

// Key identifies a finding whatever line it stands on, so that a reload can
// tell a mistake that the running configuration already had from a new one.
// It is made of the code, the message and the source line without its
// indentation; the file is left out, since a block that moves to an included
// file is no new mistake. Keys are for comparing, not for showing.
func (d Diagnostic) Key() string {
	return d.Code + "\x00" + d.Message + "\x00" + strings.TrimSpace(d.Source)
}

// Sort orders the findings by file, line and column, and leaves those of one
// place in the order found. Files come in the order given (that in which they
// were opened), then in the order in which the list names them; findings
// without a place come last.
func (l List) Sort(files ...string) {
	order := make(map[string]int, len(files)+1)
	for _, f := range files {
		if _, known := order[f]; !known {
			order[f] = len(order)
		}
	}
	for i := range l {
		f := l[i].Pos.File()
		if _, known := order[f]; !known && f != "" {
			order[f] = len(order)
		}
	}
	if _, known := order[""]; !known {
		order[""] = len(order)
	}
	slices.SortStableFunc(l, func(a, b Diagnostic) int {
		return cmp.Or(
			cmp.Compare(order[a.Pos.File()], order[b.Pos.File()]),
			cmp.Compare(a.Pos.Line, b.Pos.Line),
			cmp.Compare(a.Pos.Col, b.Pos.Col),
		)
	})
}

// Count returns how many findings have exactly this severity.
func (l List) Count(sev Severity) int {
	n := 0
	for i := range l {
		if l[i].Severity == sev {
			n++
		}
	}
	return n
}

// HasFatal tells whether nothing sound can be run.
func (l List) HasFatal() bool {
	return slices.ContainsFunc(l, func(d Diagnostic) bool { return d.Severity == Fatal })
}

// Errors returns the errors and fatal findings, in the list's order.
func (l List) Errors() List {
	var out List
	for i := range l {
		if l[i].Severity >= Error {
			out = append(out, l[i])
		}
	}
	return out
}

// ExitCode returns what a configuration test ends with. A missing parameter is
// 2 whatever else there is, since keepalived stops at the first one; otherwise
// the highest class decides: 6 security, 5 configuration, 4 not found.
func (l List) ExitCode() int {
	highest := ClassNone
	for i := range l {
		highest = max(highest, l[i].Class)
	}
	switch highest {
	case ClassMissing:
		return 2
	case ClassSecurity:
		return 6
	case ClassConfig:
		return 5
	case ClassNotFound:
		return 4
	}
	return 0
}
