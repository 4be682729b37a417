package keyword

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// report adds a finding at a word of a statement inside this frame.
func (f *frame) report(c code, n *syntax.Node, w *syntax.Word, message, hint string, notes ...string) {
	d := f.diagnostic(c, n, w, message, hint)
	d.Notes = append(notes, d.Notes...)
	f.b.list = append(f.b.list, d)
}

// reportBlock adds a finding about the block of this frame as a whole.
func (f *frame) reportBlock(c code, message, hint string, notes ...string) {
	f.parent.report(c, f.n, &f.n.Words[0], message, hint, notes...)
}

func (f *frame) diagnostic(c code, n *syntax.Node, w *syntax.Word, message, hint string) diag.Diagnostic {
	d := diag.Diagnostic{
		Severity: c.severity(), Class: c.class, Code: c.id,
		Pos: n.Pos, Width: 1, Source: strings.Clone(n.Source), Message: message, Hint: hint,
	}
	if w.Pos.Line != 0 {
		d.Pos, d.Width = w.Pos, wordWidth(w)
		if !w.Pos.SameLine(n.Pos) {
			// A word that came out of a definition has no place on this line.
			d.Pos, d.Width = n.Pos, 1
		}
	}
	var in []string
	for up := f; up.n != nil; up = up.parent {
		in = append(in, fmt.Sprintf("%s (%s)", title(up.n), lineOf(up.n.Pos, n.Pos)))
	}
	if len(in) > 0 {
		d.Notes = append(d.Notes, "in "+strings.Join(in, ", "))
	}
	d.Notes = append(d.Notes, n.Chain...)
	return d
}

// wordWidth is how many characters a word takes in its line.
func wordWidth(w *syntax.Word) int {
	width := utf8.RuneCountInString(w.Text)
	if w.Quoted {
		width += 2
	}
	return max(width, 1)
}

// title is a block's statement for messages: "virtual_server 192.0.2.10 80".
func title(n *syntax.Node) string {
	var b strings.Builder
	for i, w := range n.Words {
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(w.Text)
		if i == 3 || b.Len() > 80 {
			break
		}
	}
	return b.String()
}

// lineOf names a line as seen from another place.
func lineOf(at, from diag.Pos) string {
	if at.SameFile(from) {
		return fmt.Sprintf("line %d", at.Line)
	}
	return fmt.Sprintf("%s:%d", at.File(), at.Line)
}

// deprecated warns of an old spelling.
func (f *frame) deprecated(kw *keyword, n *syntax.Node) {
	f.report(codeDeprecated, n, &n.Words[0], fmt.Sprintf("%s is an old spelling of %s", kw.name, kw.old), "it works the same")
}

// limits prints a range for messages.
func limits(lo, hi int64) string {
	if lo < 0 {
		return fmt.Sprintf("%d..%d", lo, hi)
	}
	return fmt.Sprintf("%d-%d", lo, hi)
}
