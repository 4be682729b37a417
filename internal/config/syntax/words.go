package syntax

// split splits a logical line by the ordinary rules: blanks separate, a double
// quote starts a new word wherever it stands, and there are no escapes. A word
// whose closing quote is missing is dropped; dropped is where it begins, or -1.
func (p *parser) split(l *line) (out []Word, dropped int) {
	n, blank := 0, true
	for i := range len(l.text) { // an estimate, to allocate once
		switch c := l.text[i]; {
		case isBlank(c):
			blank = true
		case blank || c == '"':
			blank = false
			n++
		}
	}
	out = p.letters.room(n)
	for i := 0; i < len(l.text); {
		if isBlank(l.text[i]) {
			i++
			continue
		}
		start := i
		if l.text[i] == '"' {
			i++
			for i < len(l.text) && l.text[i] != '"' {
				i++
			}
			if i == len(l.text) {
				return out, start
			}
			i++
			out = append(out, Word{Text: l.text[start+1 : i-1], Pos: l.pos(start), Width: int32(l.width(start, i)), Quoted: true})
			continue
		}
		for i < len(l.text) && l.text[i] != '"' && !isBlank(l.text[i]) {
			i++
		}
		out = append(out, Word{Text: l.text[start:i], Pos: l.pos(start), Width: int32(l.width(start, i))})
	}
	return out, -1
}
