package render

import (
	"fmt"
	"io"
	"strings"

	"github.com/sluice-lb/sluice/internal/doctor"
)

// DoctorOptions says how a doctor's report is shown.
type DoctorOptions struct {
	// Color marks statuses with ANSI colours.
	Color bool
	// Quiet counts what is well instead of listing it.
	Quiet bool
}

// width is that of prose; commands are never broken, since they are pasted.
const width = 80

// indent is what stands before the lines that belong to a finding.
const indent = "         "

var doctorColors = map[doctor.Status]string{doctor.Fail: bad, doctor.Warn: odd, doctor.Unknown: odd, doctor.Note: bold, doctor.OK: good}

// Doctor writes a report for people: what has to be done first, and what is well at
// the end, a line each.
func Doctor(w io.Writer, r *doctor.Report, o DoctorOptions) error {
	p := &printer{o: Options{Color: o.Color}}
	p.line("%s", doctorTitle(r))
	var counts []string
	for _, c := range []struct {
		status    doctor.Status
		one, many string
	}{{doctor.Fail, "failure", "failures"}, {doctor.Warn, "warning", "warnings"}, {doctor.Unknown, "unknown", "unknown"}, {doctor.Note, "note", "notes"}, {doctor.OK, "ok", "ok"}} {
		switch n := r.Count(c.status); n {
		case 0:
		case 1:
			counts = append(counts, "1 "+c.one)
		default:
			counts = append(counts, fmt.Sprintf("%d %s", n, c.many))
		}
	}
	if counts == nil {
		counts = []string{"nothing to look at"}
	}
	p.line("%s", strings.Join(counts, ", "))
	for _, status := range []doctor.Status{doctor.Fail, doctor.Warn, doctor.Unknown, doctor.Note} {
		for i := range r.Findings {
			if f := &r.Findings[i]; f.Status == status {
				p.finding(f)
			}
		}
	}
	if !o.Quiet {
		p.well(r)
	}
	if _, err := io.WriteString(w, p.b.String()); err != nil {
		return fmt.Errorf("write the doctor's report: %w", err)
	}
	return nil
}

func doctorTitle(r *doctor.Report) string {
	of := "this machine, without a configuration"
	if r.File != "" {
		of = "this machine for " + clean(r.File)
	}
	if r.Kernel != "" {
		of += ", Linux " + clean(r.Kernel)
	}
	if r.Namespace != "" {
		of += ", network namespace " + clean(r.Namespace)
	}
	return of
}

// finding is one that is not simply well.
func (p *printer) finding(f *doctor.Finding) {
	p.line("")
	mark := string(f.Status)
	if f.Status == doctor.Fail || f.Status == doctor.Warn {
		mark = strings.ToUpper(mark)
	}
	head := clean(f.Found)
	if f.Wanted != "" {
		head += "; wanted: " + clean(f.Wanted)
	}
	lines := wrap(f.ID+": "+head, width-len(indent))
	p.line("%s%s", p.color(doctorColors[f.Status], fmt.Sprintf("%-*s", len(indent), mark)), lines[0])
	p.block(lines[1:])
	if f.Why != "" {
		p.block(wrap(clean(f.Why), width-len(indent)))
	}
	if f.ConcernsCount > 0 {
		text := "Concerns " + clean(strings.Join(f.Concerns, ", "))
		if more := f.ConcernsCount - len(f.Concerns); more > 0 {
			text += fmt.Sprintf(" and %d more", more)
		}
		p.block(wrap(text, width-len(indent)))
	}
	if f.Do != "" {
		p.block(wrap(clean(f.Do), width-len(indent)))
	}
	for _, c := range f.Mend {
		p.line("%s  now:  %s", indent, p.color(bold, clean(c)))
	}
	for _, l := range f.Stay {
		p.line("%s  stay: %s in %s", indent, p.color(bold, clean(l.Text)), clean(l.File))
	}
}

func (p *printer) block(lines []string) {
	for _, l := range lines {
		p.line("%s%s", indent, l)
	}
}

// well lists what is as it should be, by groups.
func (p *printer) well(r *doctor.Report) {
	group := ""
	for i := range r.Findings {
		f := &r.Findings[i]
		if f.Status != doctor.OK {
			continue
		}
		if f.Group != group {
			group = f.Group
			p.line("")
			p.line("%s", p.color(bold, clean(group)))
		}
		p.line("%s%s: %s", p.color(good, fmt.Sprintf("%-*s", len(indent), "ok")), f.ID, clean(f.Found))
	}
}

// wrap breaks text at spaces; a word that is longer than a line is not broken.
func wrap(text string, width int) (lines []string) {
	line := ""
	for word := range strings.FieldsSeq(text) {
		switch {
		case line == "":
			line = word
		case len([]rune(line))+1+len([]rune(word)) <= width:
			line += " " + word
		default:
			lines, line = append(lines, line), word
		}
	}
	return append(lines, line)
}
