package syntax

import (
	"sort"
	"strings"
	"unicode/utf8"

	"github.com/sluice-lb/sluice/internal/config/diag"
)

// blanks are the separators of words, C's isspace.
const blanks = " \t\r\n\f\v"

func isBlank(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' }

// physical is one line of a file as it is written.
type physical struct {
	// at is its first column.
	at   diag.Pos
	text string
	// junk tells that the line holds bytes that no text has.
	junk  bool
	plain bool
	known bool
	// marks speed column up in long lines that are not plain ASCII.
	marks *[]mark
}

// mark says that count characters stand before byte off.
type mark struct{ off, count int }

const markEvery = 64

// place returns where the character at a byte offset stands.
func (ph *physical) place(off int) diag.Pos {
	return ph.at.On(int(ph.at.Line), ph.column(off))
}

// column returns the column, from 1, of the character at a byte offset.
func (ph *physical) column(off int) int {
	if !ph.known {
		ph.index()
	}
	switch {
	case ph.plain:
		return off + 1
	case ph.marks == nil:
		return utf8.RuneCountInString(ph.text[:min(off, len(ph.text))]) + 1
	}
	marks := *ph.marks
	m := marks[min(off/markEvery, len(marks)-1)]
	if off <= m.off {
		return m.count + 1
	}
	return m.count + utf8.RuneCountInString(ph.text[m.off:min(off, len(ph.text))]) + 1
}

func (ph *physical) index() {
	ph.known, ph.plain = true, true
	for i := range len(ph.text) {
		if ph.text[i] >= utf8.RuneSelf {
			ph.plain = false
			break
		}
	}
	if ph.plain || len(ph.text) <= 4*markEvery {
		return
	}
	count := 0
	var marks []mark
	for off := range ph.text {
		if off >= len(marks)*markEvery {
			marks = append(marks, mark{off, count})
		}
		count++
	}
	ph.marks = &marks
}

// span says where the bytes of a line from at on come from: from src at off on,
// or, when end is set, all from the reference that stands at off..end.
type span struct {
	at       int
	src      *physical
	off, end int
}

// line is a logical line with the origin of every byte. A part of a line shares
// the spans of the whole, whose coordinate its first byte has is base.
type line struct {
	text string
	base int
	head span
	more []span
}

// whole returns a physical line as a logical one.
func whole(ph *physical) line {
	return line{text: ph.text, head: span{src: ph}}
}

// after returns how many of the further spans start at or before byte i.
func (l *line) after(i int) int {
	if len(l.more) == 0 {
		return 0
	}
	return sort.Search(len(l.more), func(k int) bool { return l.more[k].at > l.base+i })
}

// span returns the span that byte i is in.
func (l *line) span(i int) span {
	if k := l.after(i); k > 0 {
		return l.more[k-1]
	}
	return l.head
}

// sub returns the bytes i..j as a line of its own.
func (l *line) sub(i, j int) line {
	out := line{text: l.text[i:j], base: l.base + i, head: l.head}
	if len(l.more) > 0 {
		k := l.after(i)
		if k > 0 {
			out.head = l.more[k-1]
		}
		out.more = l.more[k:max(k, l.after(j-1))]
	}
	return out
}

// trim removes the blanks at both ends.
func (l line) trim() line {
	i, j := 0, len(l.text)
	for i < j && isBlank(l.text[i]) {
		i++
	}
	for j > i && isBlank(l.text[j-1]) {
		j--
	}
	if i == 0 && j == len(l.text) {
		return l
	}
	return l.sub(i, j)
}

// origin returns the physical line that byte i comes from, and its offset and
// end there.
func (l *line) origin(i int) (src *physical, off, end int) {
	s := l.span(i)
	if s.end != 0 {
		return s.src, s.off, s.end
	}
	off = s.off + l.base + i - s.at
	return s.src, off, off + 1
}

// pos returns where byte i stands, or where the line ends for i behind it.
func (l *line) pos(i int) diag.Pos {
	src, off, _ := l.origin(i)
	return src.place(off)
}

// width returns how many characters of the file the bytes i..j take.
func (l *line) width(i, j int) int {
	src, off, end := l.origin(i)
	if j > i+1 {
		if last, _, e := l.origin(j - 1); last == src && e > end {
			end = e
		}
	}
	return max(1, src.column(end)-src.column(off))
}

// lineBuilder puts a line together from pieces of others.
type lineBuilder struct {
	text  []byte
	spans []span
}

// add appends one byte that comes from src; end is 0 for a byte that stands at
// off itself.
func (b *lineBuilder) add(c byte, src *physical, off, end int) {
	if n := len(b.spans); n > 0 {
		s := &b.spans[n-1]
		if s.src == src && s.end == end && (end != 0 && s.off == off || end == 0 && s.off+len(b.text)-s.at == off) {
			b.text = append(b.text, c)
			return
		}
	}
	b.spans = append(b.spans, span{at: len(b.text), src: src, off: off, end: end})
	b.text = append(b.text, c)
}

// line returns what was built; of is where an empty one stands.
func (b *lineBuilder) line(of span) line {
	if len(b.spans) == 0 {
		return line{base: of.at, head: of}
	}
	return line{text: string(b.text), head: b.spans[0], more: b.spans[1:]}
}

// quotes walks over a text by the rules of comments: a double quote toggles,
// and a backslash takes the next character with it.
//
// visit is called for each character outside quotes that is in stops; it
// returns false to end the walk. quotes returns whether a quote stayed open,
// and where that began.
func quotes(text, stops string, visit func(i int, escaped bool) bool) (open bool, at int) {
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			open = !open
			at = i
		case c == '\\':
			if i+1 < len(text) {
				i++
				if !open && strings.IndexByte(stops, text[i]) >= 0 && !visit(i, true) {
					return open, at
				}
			}
		case !open && strings.IndexByte(stops, c) >= 0:
			if !visit(i, false) {
				return open, at
			}
		}
	}
	return open, at
}
