package diag

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// TextOptions says how WriteText writes. The zero value is plain text with
// source lines of at most 120 characters.
type TextOptions struct {
	// Columns bounds the part of a source line that is shown; 0 is 120, and
	// anything below 20 counts as 20.
	Columns int
	// Color marks the severity and the caret with ANSI colours.
	Color bool
}

// ANSI sequences by severity.
const (
	ansiReset = "\x1b[0m"
	ansiBold  = "\x1b[1m"
)

func (s Severity) ansi() string {
	switch s {
	case Fatal, Error:
		return "\x1b[1;31m"
	case Warning:
		return "\x1b[1;33m"
	}
	return "\x1b[1;36m"
}

// ellipsis stands where a long source line was cut.
const ellipsis = '…'

// WriteText writes the findings for people: for each one its place, severity,
// message and code in the first line, the source line behind a gutter, a caret
// under the place, then the notes and the hint. Nothing a file holds reaches
// the terminal as a control character.
func (l List) WriteText(w io.Writer, o TextOptions) error {
	bw := bufio.NewWriter(w)
	for i := range l {
		l[i].writeText(bw, o)
	}
	if err := bw.Flush(); err != nil {
		return fmt.Errorf("write diagnostics: %w", err)
	}
	return nil
}

func (d *Diagnostic) writeText(w *bufio.Writer, o TextOptions) {
	on, off, bold := "", "", ""
	if o.Color {
		on, off, bold = d.Severity.ansi(), ansiReset, ansiBold
	}
	if d.Pos != (Pos{}) {
		fmt.Fprintf(w, "%s%s:%s ", bold, clean(d.Pos.String()), off)
	}
	fmt.Fprintf(w, "%s%s:%s %s", on, d.Severity, off, clean(d.Message))
	if d.Code != "" {
		fmt.Fprintf(w, " [%s]", clean(d.Code))
	}
	w.WriteByte('\n')
	if d.Pos.Line > 0 && strings.TrimSpace(d.Source) != "" {
		text, caret := d.excerpt(o.Columns)
		fmt.Fprintf(w, "%5d | %s\n", d.Pos.Line, text)
		if caret != "" {
			gutter := max(5, len(fmt.Sprint(d.Pos.Line)))
			fmt.Fprintf(w, "%*s | %s%s%s\n", gutter, "", on, caret, off)
		}
	}
	for _, n := range d.Notes {
		fmt.Fprintf(w, "   %s\n", clean(n))
	}
	if d.Hint != "" {
		fmt.Fprintf(w, "   %s\n", clean(d.Hint))
	}
}

// excerpt returns the part of the source line around the place, and the caret
// line that fits under it; the caret is empty when no column is known.
func (d *Diagnostic) excerpt(columns int) (text, caret string) {
	if columns == 0 {
		columns = 120
	}
	columns = max(columns, 20)
	col := max(int(d.Pos.Col), 1)

	window, before, more := cut(d.Source, col-1, columns)
	at := col - 1 - before // index of the caret's rune in the window
	width := max(d.Width, 1)
	width = min(width, max(len(window)-at, 1))

	var t, c strings.Builder
	if before > 0 {
		t.WriteRune(ellipsis)
		c.WriteByte(' ')
	}
	for i, r := range window {
		r = visible(r)
		t.WriteRune(r)
		switch {
		case i < at && r == '\t':
			c.WriteByte('\t')
		case i < at:
			c.WriteString("  "[:cells(r)])
		case i == at:
			c.WriteByte('^')
			c.WriteString(tildes(cells(r) - 1))
		case i < at+width:
			c.WriteString(tildes(cells(r)))
		}
	}
	if at >= len(window) { // just behind the line: something is missing there
		c.WriteString(strings.Repeat(" ", at-len(window)))
		c.WriteByte('^')
	}
	if more {
		t.WriteRune(ellipsis)
	}
	if d.Pos.Col == 0 {
		return strings.TrimRightFunc(t.String(), unicode.IsSpace), ""
	}
	return strings.TrimRightFunc(t.String(), unicode.IsSpace), c.String()
}

// cut returns at most columns characters of s around the character at, how many
// were left out before them, and whether some were left out behind. It decodes
// no more of s than it must, so that a line of megabytes costs little.
func cut(s string, at, columns int) (window []rune, before int, more bool) {
	if at >= columns {
		before = at - columns/3
	}
	skipped := 0
	for skipped < before && s != "" {
		_, n := utf8.DecodeRuneInString(s)
		s = s[n:]
		skipped++
	}
	if skipped < before { // the place is far behind the line's end
		return nil, skipped, false
	}
	for s != "" && len(window) < columns {
		r, n := utf8.DecodeRuneInString(s)
		window = append(window, r)
		s = s[n:]
	}
	return window, before, strings.TrimSpace(s[:min(len(s), 64)]) != "" || len(s) > 64
}

func tildes(n int) string {
	const t = "~~"
	return t[:min(max(n, 0), len(t))]
}

// visible replaces what a terminal would act upon instead of showing it.
func visible(r rune) rune {
	if r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r) || r == '\u2028' || r == '\u2029') {
		return utf8.RuneError
	}
	return r
}

// clean makes a text safe to print in one line.
func clean(s string) string {
	dirty := func(r rune) bool { return r == '\t' || visible(r) != r || r == utf8.RuneError }
	if strings.IndexFunc(s, dirty) < 0 {
		return s
	}
	return strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' {
			return ' '
		}
		return visible(r)
	}, s)
}

// wide are the ranges that terminals show two cells wide (Unicode's East Asian
// Width W and F, coarsely).
var wide = [...][2]rune{
	{0x1100, 0x115f}, {0x2e80, 0x303e}, {0x3041, 0x33ff}, {0x3400, 0x4dbf},
	{0x4e00, 0x9fff}, {0xa000, 0xa4cf}, {0xac00, 0xd7a3}, {0xf900, 0xfaff},
	{0xfe30, 0xfe6f}, {0xff00, 0xff60}, {0xffe0, 0xffe6}, {0x1f300, 0x1faff},
	{0x20000, 0x3fffd},
}

// cells returns how many terminal cells a character takes: 0, 1 or 2.
func cells(r rune) int {
	if r < 0x300 {
		return 1
	}
	if unicode.In(r, unicode.Mn, unicode.Me) {
		return 0
	}
	if slices.ContainsFunc(wide[:], func(w [2]rune) bool { return w[0] <= r && r <= w[1] }) {
		return 2
	}
	return 1
}
