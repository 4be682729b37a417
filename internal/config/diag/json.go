package diag

import (
	"encoding/json"
	"fmt"
	"io"
)

// Finding is one finding for programs. Field names are stable.
type Finding struct {
	File     string   `json:"file,omitempty"`   // where it is
	Line     int      `json:"line,omitempty"`   // counts from 1
	Col      int      `json:"col,omitempty"`    // counts characters from 1
	Width    int      `json:"width,omitempty"`  // how many characters are meant
	Severity string   `json:"severity"`         // how bad it is
	Class    string   `json:"class"`            // what keepalived -t would answer for it
	Code     string   `json:"code"`             // a letter and three digits that never change their meaning
	Message  string   `json:"message"`          // what is wrong
	Notes    []string `json:"notes,omitempty"`  // the blocks around it, the include chain
	Hint     string   `json:"hint,omitempty"`   // what happens now and what to do
	Source   string   `json:"source,omitempty"` // the line
}

// maxJSONSource bounds a source line, in bytes; a longer one is left out.
const maxJSONSource = 4096

// Findings are the list for programs.
func (l List) Findings() []Finding {
	fs := make([]Finding, 0, len(l))
	for i := range l {
		d := &l[i]
		f := Finding{
			File: d.Pos.File(), Line: int(d.Pos.Line), Col: int(d.Pos.Col), Width: d.Width,
			Severity: d.Severity.String(), Class: d.Class.String(), Code: d.Code,
			Message: d.Message, Notes: d.Notes, Hint: d.Hint,
		}
		if len(d.Source) <= maxJSONSource {
			f.Source = d.Source
		}
		fs = append(fs, f)
	}
	return fs
}

// Diagnostic is the finding again, for people. A severity or class of another version
// is that of an error without a class.
func (f Finding) Diagnostic() Diagnostic {
	d := Diagnostic{Severity: Error, Code: f.Code, Pos: At(f.File, f.Line, f.Col), Width: f.Width,
		Source: f.Source, Message: f.Message, Notes: f.Notes, Hint: f.Hint}
	for _, s := range []Severity{Notice, Warning, Error, Fatal} {
		if s.String() == f.Severity {
			d.Severity = s
		}
	}
	for _, c := range []Class{ClassNotFound, ClassConfig, ClassSecurity, ClassMissing} {
		if c.String() == f.Class {
			d.Class = c
		}
	}
	return d
}

// WriteJSON writes the findings as one JSON array of objects, one object a line,
// for editors and pipelines. An empty list is an empty array.
func (l List) WriteJSON(w io.Writer) error {
	const op = "write diagnostics as JSON"
	sep := "["
	for _, f := range l.Findings() {
		b, err := json.Marshal(f)
		if err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
		if _, err := fmt.Fprintf(w, "%s\n%s", sep, b); err != nil {
			return fmt.Errorf("%s: %w", op, err)
		}
		sep = ","
	}
	end := "\n]\n"
	if len(l) == 0 {
		end = "[]\n"
	}
	if _, err := io.WriteString(w, end); err != nil {
		return fmt.Errorf("%s: %w", op, err)
	}
	return nil
}
