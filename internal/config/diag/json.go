package diag

import (
	"encoding/json"
	"fmt"
	"io"
)

// jsonFinding is the shape of one finding for programs. Field names are stable.
type jsonFinding struct {
	File     string   `json:"file,omitempty"`
	Line     int      `json:"line,omitempty"`
	Col      int      `json:"col,omitempty"`
	Width    int      `json:"width,omitempty"`
	Severity string   `json:"severity"`
	Class    string   `json:"class"`
	Code     string   `json:"code"`
	Message  string   `json:"message"`
	Notes    []string `json:"notes,omitempty"`
	Hint     string   `json:"hint,omitempty"`
	Source   string   `json:"source,omitempty"`
}

// maxJSONSource bounds a source line, in bytes; a longer one is left out.
const maxJSONSource = 4096

// WriteJSON writes the findings as one JSON array of objects, one object a line,
// for editors and pipelines. An empty list is an empty array.
func (l List) WriteJSON(w io.Writer) error {
	const op = "write diagnostics as JSON"
	sep := "["
	for i := range l {
		d := &l[i]
		f := jsonFinding{
			File: d.Pos.File(), Line: int(d.Pos.Line), Col: int(d.Pos.Col), Width: d.Width,
			Severity: d.Severity.String(), Class: d.Class.String(), Code: d.Code,
			Message: d.Message, Notes: d.Notes, Hint: d.Hint,
		}
		if len(d.Source) <= maxJSONSource {
			f.Source = d.Source
		}
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
