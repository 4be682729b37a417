package syntax

import (
	"fmt"
	"strconv"
	"strings"
)

// definition is what a $NAME stands for.
type definition struct {
	name  string
	value string
	// body are the lines of a multi-line definition.
	body  []bodyLine
	multi bool
}

// bodyLine is one line of a multi-line definition.
type bodyLine struct {
	line
	ext bool
}

// collect is the multi-line definition being read.
type collect struct {
	collecting *definition
	sawBlank   bool
}

// identifier returns how many bytes at the start of s are a name.
func identifier(s string) int {
	for i := range len(s) {
		c := s[i]
		if c != '_' && (c|0x20 < 'a' || c|0x20 > 'z') && (i == 0 || c < '0' || c > '9') {
			return i
		}
	}
	return len(s)
}

// define reads "$NAME=value" and tells whether the line was that.
func (p *parser) define(l line, c *context) bool {
	if l.text[0] != '$' {
		return false
	}
	end := identifier(l.text[1:]) + 1
	if end == 1 || end == len(l.text) || l.text[end] != '=' {
		return false
	}
	value := l.sub(end+1, len(l.text)).trim()
	d := &definition{name: l.text[1:end], value: value.text}
	p.defs[d.name] = d
	if strings.HasSuffix(value.text, `\`) && !c.ext {
		d.value, d.multi = "", true
		p.collecting, p.sawBlank = d, false
		p.addBody(value.sub(0, len(value.text)-1), false)
	}
	return true
}

func (p *parser) addBody(l line, ext bool) {
	if l = l.trim(); l.text != "" {
		p.collecting.body = append(p.collecting.body, bodyLine{l, ext})
	}
}

// collectLine adds a line to the multi-line definition being read.
func (p *parser) collectLine(l, comment line) {
	more := true
	switch {
	case l.text == "":
		p.sawBlank = p.sawBlank || comment.text == ""
	case strings.HasSuffix(l.text, `\`):
		p.addBody(l.sub(0, len(l.text)-1), false)
	default:
		more = false
		p.addBody(l, false)
		if p.sawBlank {
			p.report(blankInside, &l, 0, len(l.text), fmt.Sprintf("this line is still part of the definition of $%s", p.collecting.name),
				"a blank line does not end a definition, a line without \\ does, as in keepalived; delete the \\ in front of the blank line")
		} else if strings.HasSuffix(comment.text, `\`) {
			p.report(lostBackslash, &comment, len(comment.text)-1, len(comment.text),
				fmt.Sprintf("the \\ is part of the comment, and the definition of $%s ends here", p.collecting.name),
				"put the comment on a line of its own")
		}
	}
	for isExtension(comment.text) {
		ext := comment.sub(len(extensionSign), len(comment.text))
		ext, comment = p.decomment(ext)
		if text, cut := strings.CutSuffix(ext.text, `\`); cut {
			ext = ext.sub(0, len(text))
		}
		p.addBody(ext, true)
	}
	if !more {
		p.collecting = nil
	}
}

// endCollect ends a definition that the file's end cut off.
func (p *parser) endCollect(*file) { p.collecting = nil }

// predefined tells whether a name has a meaning without a definition.
func predefined(name string) bool {
	switch name {
	case "_PWD", "_INSTANCE", "_RANDOM", "_ENV", "_HASH", "_BANG":
		return true
	}
	return false
}

// builtin computes a predefined name; ok is false when there is no such name or
// its parameters are wrong, which is reported. A dry run draws no number.
func (p *parser) builtin(r reference, l *line, at int, c *context, dry bool) (value string, ok bool) {
	params := strings.Fields(r.params)
	most := 0
	switch r.name {
	case "_RANDOM":
		most = 2
	case "_ENV":
		most = 1
	case "_PWD", "_INSTANCE", "_HASH", "_BANG":
	default:
		return "", false
	}
	bad := func(message, hint string) {
		p.report(badParameter, l, at, min(at+r.n, len(l.text)), fmt.Sprintf("${%s}: %s", r.name, message), hint)
	}
	if len(params) > most || r.name == "_ENV" && len(params) == 0 {
		bad(fmt.Sprintf("%d parameters", len(params)), fmt.Sprintf("it stays as written; ${%s} takes %s", r.name,
			map[string]string{"_ENV": "the name of an environment variable", "_RANDOM": "up to two numbers"}[r.name]))
		return "", false
	}
	switch r.name {
	case "_PWD":
		dir := c.file.dir
		if p.o.Resolver != nil {
			if abs, err := p.o.Resolver.Abs(dir); err == nil {
				dir = abs
			}
		}
		return oneLine(dir), true
	case "_INSTANCE":
		return oneLine(p.o.ConfigID), true
	case "_HASH":
		return "#", true
	case "_BANG":
		return "!", true
	case "_ENV":
		if p.o.Env == nil {
			return "", true
		}
		v, _ := p.o.Env(params[0])
		return oneLine(v), true
	}
	lo, hi := int64(0), int64(32767)
	for i, s := range params {
		v, err := strconv.ParseUint(s, 10, 31)
		if err != nil {
			bad(fmt.Sprintf("%q is not a number", shorten(s)), "it stays as written")
			return "", false
		}
		if i == 0 {
			lo = int64(v)
		} else {
			hi = int64(v)
		}
	}
	if lo > hi {
		bad(fmt.Sprintf("%d is more than %d", lo, hi), "the first one is used, as keepalived does")
		return strconv.FormatInt(lo, 10), true
	}
	v := lo
	if p.o.Random != nil && !dry {
		v = p.o.Random(lo, hi)
	}
	return strconv.FormatInt(v, 10), true
}

// oneLine makes a value from outside safe for one line.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\r' || r == 0 {
			return ' '
		}
		return r
	}, s)
}
