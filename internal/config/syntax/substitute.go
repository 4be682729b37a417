package syntax

import (
	"fmt"
	"strings"
)

// reference is a $NAME or ${NAME PARAMS} in a text.
type reference struct {
	name, params string
	n            int // bytes it takes
}

const (
	maxName   = 255
	maxParams = 255
)

// bracedName returns how many bytes at the start of s are "${NAME}", or 0.
func bracedName(s string) int {
	if !strings.HasPrefix(s, "${") {
		return 0
	}
	n := identifier(s[2:])
	if n == 0 || n > maxName || 2+n == len(s) || s[2+n] != '}' {
		return 0
	}
	return n + 3
}

// readReference reads the reference that s, which begins with $, may start with:
// ${NAME}, ${NAME PARAMS}, or $NAME before a blank, a comma, a closing
// parenthesis or the end.
func readReference(s string) (reference, bool) {
	if strings.HasPrefix(s, "${") {
		n := identifier(s[2:])
		if n == 0 || n > maxName || 2+n == len(s) {
			return reference{}, false
		}
		r := reference{name: s[2 : 2+n], n: n + 3}
		switch s[2+n] {
		case '}':
			return r, true
		case ' ', '\t':
			rest := s[2+n:]
			end := strings.IndexByte(rest[:min(len(rest), maxParams)], '}')
			if end < 0 {
				return reference{}, false
			}
			r.params = rest[1:end]
			r.n += end
			return r, true
		}
		return reference{}, false
	}
	n := identifier(s[1:])
	if n == 0 || n > maxName || 1+n < len(s) && strings.IndexByte(" \t,)", s[1+n]) < 0 {
		return reference{}, false
	}
	return reference{name: s[1 : 1+n], n: n + 1}, true
}

// lookup returns what a reference stands for. last tells that nothing follows
// it in the line: only there is a multi-line definition expanded.
func (p *parser) lookup(r reference, last bool, l *line, at int, c *context, dry bool) (*definition, bool) {
	if d := p.defs[r.name]; d != nil {
		if r.params != "" || d.multi && !last {
			return nil, false
		}
		return d, true
	}
	v, ok := p.builtin(r, l, at, c, dry)
	if !ok {
		return nil, false
	}
	return &definition{name: r.name, value: v}, true
}

// replaceable returns where the first reference stands that has a meaning, -1
// for none.
func (p *parser) replaceable(l *line, c *context) int {
	for i := 0; i < len(l.text); i++ {
		k := strings.IndexByte(l.text[i:], '$')
		if k < 0 {
			break
		}
		i += k
		r, ok := readReference(l.text[i:])
		if !ok {
			continue
		}
		if _, ok = p.lookup(r, i+r.n == len(l.text), l, i, c, true); ok {
			return i
		}
	}
	return -1
}

// expansion is a multi-line definition with those of its lines that are still
// to come.
type expansion struct {
	def    *definition
	lines  []bodyLine
	parent *expansion
	from   string
}

func (e *expansion) has(d *definition) bool {
	for ; e != nil; e = e.parent {
		if e.def == d {
			return true
		}
	}
	return false
}

// cell is a byte of the text still to be looked at, with its origin.
type cell struct {
	b        byte
	org, off int32
}

// origin is where a run of cells comes from: a span, or a definition's value.
type origin struct {
	src      *physical
	off, end int // of the reference; end is 0 for text that stands there itself
	def      *definition
	exp      *expansion
	parent   int32
	depth    int
}

// substitution is one pass over one line. The text to come is a stack, so that
// a value that was put in is looked at again, together with what follows it.
type substitution struct {
	p     *parser
	c     *context
	l     *line
	stack []cell // the next byte is the last one
	orgs  []origin
	out   lineBuilder
	later []expansion
	// replaced counts references.
	replaced int
}

// maxPasses bounds how often a line is gone over; one is enough unless names
// are put together from pieces.
const maxPasses = 8

// substitute replaces the references in a line until none is left that has a
// meaning, and takes the comment off again if there were any. later are the
// lines that a multi-line definition adds behind it.
func (p *parser) substitute(l line, c *context) (out line, later []expansion) {
	if strings.IndexByte(l.text, '$') < 0 {
		return l, nil
	}
	return p.replaceAll(l, c)
}

func (p *parser) replaceAll(l line, c *context) (out line, later []expansion) {
	for pass := 0; !p.stopped; pass++ {
		first := p.replaceable(&l, c)
		if first < 0 {
			return l, later
		}
		if pass == maxPasses {
			p.report(definedLoop, &l, first, len(l.text), "the definitions in this line never come to an end",
				"the rest stays as written; a definition must not make itself anew")
			return l, later
		}
		s := substitution{p: p, c: c, l: &l}
		if !s.run() {
			return line{head: l.head}, nil
		}
		later = append(s.later, later...)
		l, _ = p.decomment(s.out.line(l.span(0)))
		if l.text == "" {
			return l, later
		}
	}
	return line{head: l.head}, nil
}

func (s *substitution) push(l *line, def *definition, exp *expansion, parent int32, depth int) {
	base := len(s.stack)
	s.stack = append(s.stack, make([]cell, len(l.text))...)
	org := int32(-1)
	next := 0 // where the next span begins
	k := -1
	var sp span
	for i := range len(l.text) {
		if i == next {
			if k++; k == 0 {
				sp = l.head
			} else {
				sp = l.more[k-1]
			}
			next = len(l.text)
			if k < len(l.more) {
				next = l.more[k].at - l.base
			}
			org = int32(len(s.orgs))
			s.orgs = append(s.orgs, origin{src: sp.src, off: sp.off, end: sp.end, def: def, exp: exp, parent: parent, depth: depth})
		}
		off := sp.off
		if sp.end == 0 {
			off += l.base + i - sp.at
		}
		s.stack[base+len(l.text)-1-i] = cell{l.text[i], org, int32(off)}
	}
}

// run does the pass; false means that the line cannot be used.
func (s *substitution) run() bool {
	s.p.substituted += int64(len(s.l.text))
	s.push(s.l, nil, nil, -1, 0)
	var ahead []byte
	for len(s.stack) > 0 {
		c := s.stack[len(s.stack)-1]
		if c.b == '$' {
			ahead = s.ahead(ahead[:0])
			if r, ok := readReference(string(ahead)); ok {
				replaced, ok := s.replace(r, c)
				if !ok {
					return false
				}
				if replaced {
					continue
				}
			}
		}
		// This byte and those behind it of the same origin are done.
		o := &s.orgs[c.org]
		s.out.add(c.b, o.src, int(c.off), o.end)
		i := len(s.stack) - 2
		for ; i >= 0 && s.stack[i].org == c.org && s.stack[i].b != '$'; i-- {
			s.out.text = append(s.out.text, s.stack[i].b)
		}
		s.stack = s.stack[:i+1]
	}
	return true
}

// ahead returns as much of the text to come as a reference can take, and the
// character behind it.
func (s *substitution) ahead(buf []byte) []byte {
	most := maxName + maxParams + 4
	params := false
	for i := len(s.stack) - 1; i >= 0 && len(buf) < most; i-- {
		b := s.stack[i].b
		buf = append(buf, b)
		n := len(buf)
		switch {
		case n == 1 || n == 2 && b == '{' || params && b != '}':
		case b == '_' || '0' <= b && b <= '9' || 'a' <= b|0x20 && b|0x20 <= 'z':
		case !params && (b == ' ' || b == '\t') && buf[1] == '{':
			params = true
		default:
			return buf
		}
	}
	return buf
}

// replace puts a reference's value in its place. Not replaced means that it
// stays as written; not ok, that the line cannot be used.
func (s *substitution) replace(r reference, at cell) (replaced, ok bool) {
	p := s.p
	o := s.orgs[at.org]
	place := line{text: "$", head: span{src: o.src, off: int(at.off), end: o.end}}
	def, found := p.lookup(r, len(s.stack) == r.n, &place, 0, s.c, false)
	if !found {
		return false, true
	}
	ref := span{src: o.src, off: int(at.off), end: o.end}
	if ref.end == 0 {
		ref.end = ref.off + 1
		if last := s.stack[len(s.stack)-r.n]; s.orgs[last.org].src == o.src && int(last.off) >= ref.off {
			ref.end = int(last.off) + 1
		}
	}
	place.head = ref
	s.stack = s.stack[:len(s.stack)-r.n]
	p.replaced++
	s.replaced++
	size := len(def.value)
	if def.multi && len(def.body) > 0 {
		size = len(def.body[0].text)
	}
	p.substituted += int64(size)
	exp := o.exp
	if exp == nil {
		exp = s.c.inside
	}
	switch {
	case p.replaced > maxReplaced || p.substituted > maxSubstituted || s.replaced > maxInLine:
		p.report(tooMuch, &place, 0, 1, "the definitions come to too much text", "a definition multiplies itself")
		return false, false
	case o.depth > maxDepth || s.loops(def, at.org) || exp.has(def):
		p.report(definedLoop, &place, 0, 1, fmt.Sprintf("the definition of $%s refers to itself", shorten(def.name)),
			"nothing is put in its place; mend the definition")
		return true, true
	case len(s.out.text)+len(s.stack)+size > maxLine:
		p.report(lineTooLong, &place, 0, 1, fmt.Sprintf("with its definitions the line is longer than %d bytes", maxLine), "it is ignored")
		return false, false
	}
	if !def.multi {
		value := line{text: def.value, head: ref}
		s.push(&value, def, exp, at.org, o.depth+1)
		return true, true
	}
	e := &expansion{def: def, lines: def.body, parent: exp, from: fmt.Sprintf("expanded from $%s at %s", def.name, place.pos(0))}
	if len(e.lines) > 0 && !e.lines[0].ext && strings.Trim(string(s.out.text), blanks) != "" {
		first := e.lines[0].line
		e.lines = e.lines[1:]
		s.push(&first, def, e, at.org, o.depth+1)
	}
	s.later = append([]expansion{*e}, s.later...)
	return true, true
}

// loops tells whether a definition is already being put in around a cell.
func (s *substitution) loops(d *definition, org int32) bool {
	for org >= 0 {
		if s.orgs[org].def == d {
			return true
		}
		org = s.orgs[org].parent
	}
	return false
}

// expand works on the further lines of multi-line definitions.
func (p *parser) expand(later []expansion, c *context) {
	for i := range later {
		e := &later[i]
		sub := context{file: c.file, chain: append([]string{e.from}, c.chain...), inside: e, depth: c.depth + 1}
		for _, b := range e.lines {
			if p.stopped {
				return
			}
			sub.ext = c.ext || b.ext
			p.logical(b.line, &sub)
		}
	}
}

// leftovers reports references that stayed as written in a statement.
func (p *parser) leftovers(l *line) {
	quoted := false
	for i := range len(l.text) {
		switch l.text[i] {
		case '"':
			quoted = !quoted
			continue
		case '$':
		default:
			continue
		}
		r, ok := readReference(l.text[i:])
		if !ok {
			// $A/24: the name is known, and something stands behind it that
			// keeps keepalived from replacing it.
			if n := identifier(l.text[i+1:]); n > 0 && p.defs[l.text[i+1:i+1+n]] != nil {
				p.kept(l, i, i+1+n)
			}
			continue
		}
		if r.params != "" {
			continue
		}
		name := shorten(r.name)
		switch d := p.defs[r.name]; {
		case l.text[i+1] != '{' && (d != nil && !d.multi || predefined(r.name)):
			p.kept(l, i, i+r.n) // a brace stood behind it
		case d != nil && d.multi:
			p.report(multiInside, l, i, i+r.n, fmt.Sprintf("$%s has several lines and cannot stand inside a line", name),
				"it stays as written, as in keepalived; put it at the end of a line")
		case r.name == "_ENV": // reported already
		case l.text[i+1] == '{' && !quoted:
			p.report(undefined, l, i, i+r.n, fmt.Sprintf("${%s} is not defined", name),
				"it stays as written; define it above with $"+name+"=..., or check its spelling")
		case l.text[i+1] == '{' || strings.ToUpper(r.name) == r.name && len(r.name) > 1:
			p.report(keptReference, l, i, i+r.n, fmt.Sprintf("$%s is not defined", name),
				"it stays as written; if that is meant, nothing is wrong")
		}
	}
}

// kept warns of a $NAME that has a meaning but stays as written.
func (p *parser) kept(l *line, i, j int) {
	name := shorten(l.text[i+1 : j])
	p.report(notReplaced, l, i, j, fmt.Sprintf("$%s is not replaced here", name),
		"as in keepalived only a blank, a comma, a closing parenthesis or the end may follow; write ${"+name+"}")
}
