package syntax

import (
	"fmt"
	"strings"
)

const commentSigns = "#!"

// extensionSign starts a comment that keepalived skips and sluice reads.
const extensionSign = "#sluice"

const (
	openQuoteText = "a double quote is never closed"
	openQuoteHint = "the rest of the line counts as quoted, and the word it starts is dropped, as keepalived does; close it"
)

// decomment splits a line into what counts and its comment (empty without one).
// \# and \! outside double quotes become the plain signs.
func (p *parser) decomment(l line) (text, comment line) {
	if !strings.ContainsAny(l.text, "#!\"") {
		return l.trim(), line{}
	}
	cut := len(l.text)
	var drop []int // backslashes of escaped signs
	open, at := quotes(l.text, commentSigns, func(i int, escaped bool) bool {
		if escaped {
			drop = append(drop, i-1)
			return true
		}
		cut = i
		return false
	})
	if open {
		p.report(openQuote, &l, at, len(l.text), openQuoteText, openQuoteHint)
	}
	if cut < len(l.text) {
		comment = l.sub(cut, len(l.text))
		p.glued(&l, cut)
	}
	text = l.sub(0, cut)
	if len(drop) > 0 {
		text = text.without(drop)
	}
	return text.trim(), comment
}

// glued warns of a comment that starts inside a word: a password that ends in
// "!" is cut silently.
func (p *parser) glued(l *line, cut int) {
	if cut == 0 || isBlank(l.text[cut-1]) || strings.IndexByte("{}\"", l.text[cut-1]) >= 0 ||
		isExtension(l.text[cut:]) {
		return
	}
	word := l.text[:cut]
	if i := strings.LastIndexAny(word, blanks); i >= 0 {
		word = word[i+1:]
	}
	if strings.Trim(word, commentSigns) == "" {
		return
	}
	end := cut + 1
	for end < len(l.text) && !isBlank(l.text[end]) {
		end++
	}
	p.report(gluedComment, l, cut, end, fmt.Sprintf("%q starts a comment right after %q", l.text[cut:cut+1], shorten(word)),
		"the rest of the line is ignored, as keepalived does; if it belongs to the value, put the value in double quotes")
}

// isExtension tells whether a comment is one that sluice reads.
func isExtension(comment string) bool {
	rest, ok := strings.CutPrefix(comment, extensionSign)
	return ok && rest != "" && (rest[0] == ' ' || rest[0] == '\t')
}

// without returns the line without the bytes at the given places, which are in
// rising order.
func (l *line) without(drop []int) line {
	var b lineBuilder
	for i := range len(l.text) {
		if len(drop) > 0 && drop[0] == i {
			drop = drop[1:]
			continue
		}
		s := l.span(i)
		if s.end == 0 {
			s.off += l.base + i - s.at
		}
		b.add(l.text[i], s.src, s.off, s.end)
	}
	return b.line(l.head)
}

// shorten bounds a text that is quoted in a message.
func shorten(s string) string {
	const most = 60
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
