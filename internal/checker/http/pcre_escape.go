package http

import (
	"strconv"
	"strings"
	"unicode"
)

const wordClass = `[0-9A-Z_a-z]`

// escape reads what follows a backslash at index at, outside a class.
func (t *translator) escape(at int) (repeatable bool, err error) {
	r := t.peek()
	switch r {
	case -1:
		return false, t.fail(at, `\ at the end of the pattern`)
	case 'Q':
		t.pos++
		return t.quoted()
	case 'E':
		t.pos++
		return false, nil
	case 'A':
		t.pos++
		t.looksBack = true
		t.both(`\A`)
		return false, nil
	case 'z':
		t.pos++
		t.both(`\z`)
		return false, nil
	case 'Z':
		t.pos++
		endonly := t.opt.dollarEndonly
		t.opt.dollarEndonly = false // it is about $ alone
		t.dollar(false)
		t.opt.dollarEndonly = endonly
		return false, nil
	case 'b':
		t.pos++
		t.looksBack = true
		t.emit(`\b`, `(?:(?<=`+wordClass+`)(?!`+wordClass+`)|(?<!`+wordClass+`)(?=`+wordClass+`))`)
		return false, nil
	case 'B':
		t.pos++
		t.looksBack = true
		t.emit(`\B`, `(?:(?<=`+wordClass+`)(?=`+wordClass+`)|(?<!`+wordClass+`)(?!`+wordClass+`))`)
		return false, nil
	case 'K':
		t.pos++
		if !t.resetsStart {
			t.resetsStart = true
			t.resetAt = t.offset(at)
		}
		return false, nil
	case 'R':
		t.pos++
		feed := chars(t.opt.utf, '\n', '\r', 0x85, 0x85, 0x2028, 0x2029).String()
		t.fullOnly("(?>\r\n|" + feed + ")")
		return true, nil
	case 'C':
		if t.opt.utf || t.opt.neverC {
			return false, t.fail(at, `\C is not supported with utf, nor with never_backslash_c`)
		}
		t.pos++
		t.class(universe(false))
		return true, nil
	case 'G', 'X':
		return false, t.fail(at, `\%c is not supported`, r)
	case 'g', 'k':
		t.pos++
		return true, t.reference(at, r)
	case '1', '2', '3', '4', '5', '6', '7', '8', '9':
		from := t.pos
		text, _ := t.digits()
		n, err := strconv.Atoi(text)
		if err != nil {
			return false, t.fail(at, `\%s is too large`, text)
		}
		if n < 10 || r >= '8' || n <= t.groups {
			t.refer(n, at)
			return true, nil
		}
		t.pos = from // octal
	}
	if s, ok, err := t.setEscape(at); ok || err != nil {
		if err == nil {
			t.class(s)
		}
		return true, err
	}
	c, err := t.charEscape(at)
	if err != nil {
		return false, err
	}
	t.char(c)
	return true, nil
}

// quoted reads up to \E. A quantifier applies to the last character.
func (t *translator) quoted() (repeatable bool, err error) {
	for t.more() && !t.eat(`\E`) {
		t.char(t.peek())
		t.pos++
		repeatable = true
	}
	return repeatable, nil
}

// reference reads the rest of \g or \k.
func (t *translator) reference(at int, kind rune) error {
	name, ok := "", false
	switch {
	case t.eat("{"):
		name, ok = t.until('}')
	case kind == 'k' && t.eat("<"):
		name, ok = t.until('>')
	case kind == 'k' && t.eat("'"):
		name, ok = t.until('\'')
	case kind == 'g' && (t.peek() == '<' || t.peek() == '\''):
		return t.fail(at, "recursion is not supported")
	case kind == 'g':
		sign := ""
		if t.eat("-") {
			sign = "-"
		}
		name, ok = t.digits()
		name = sign + name
	}
	if !ok {
		return t.fail(at, `\%c needs a group`, kind)
	}
	n, err := strconv.Atoi(name)
	switch {
	case kind == 'k' || err != nil:
		return t.referName(name, at)
	case n < 0 && t.groups+1+n > 0 && name[0] == '-':
		n += t.groups + 1
	case name[0] == '+':
		n += t.groups
	}
	if n <= 0 {
		return t.fail(at, `\%c%s refers to no group`, kind, name)
	}
	t.refer(n, at)
	return nil
}

// setEscape reads an escape that stands for a set, inside or outside a class;
// not ok, and nothing read, if it is none.
func (t *translator) setEscape(at int) (s set, ok bool, err error) {
	r := t.peek()
	if r == 'N' && t.at(1) == '{' {
		// \N{U+hh} names a character, and \N{2} is a repeated \N.
		if c := t.at(2); c < '0' || c > '9' {
			return nil, false, t.fail(at, `\N{...} is not supported`)
		}
	}
	if r == 'p' || r == 'P' {
		t.pos++
		s, err := t.property(at, r == 'P')
		return s, err == nil, err
	}
	s, ok = shorthand(r, t.opt.utf)
	if ok {
		t.pos++
	}
	return s, ok, nil
}

// property reads the rest of \p or \P.
func (t *translator) property(at int, negated bool) (set, error) {
	if !t.opt.utf {
		return nil, t.fail(at, `\p is only supported with the option utf`)
	}
	name := string(t.peek())
	if t.peek() < 0 {
		return nil, t.fail(at, `\p needs a property`)
	}
	t.pos++
	if name == "{" {
		var ok bool
		if name, ok = t.until('}'); !ok {
			return nil, t.fail(at, `\p{ without an end`)
		}
	}
	name, hat := strings.CutPrefix(name, "^")
	negated = negated != hat
	var s set
	switch {
	case name == "Any":
		s = universe(true)
	case name == "L&":
		s = tableSet(unicode.Lu).with(tableSet(unicode.Ll)).with(tableSet(unicode.Lt))
	case unicode.Categories[name] != nil:
		s = tableSet(unicode.Categories[name])
	case unicode.Scripts[name] != nil:
		s = tableSet(unicode.Scripts[name])
	default:
		return nil, t.fail(at, `property %q is not supported`, name)
	}
	if negated {
		s = s.not(true)
	}
	return s, nil
}

var simpleEscapes = map[rune]rune{'a': 7, 'e': 27, 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// charEscape reads an escape that stands for one character, inside or outside a
// class.
func (t *translator) charEscape(at int) (rune, error) {
	r := t.peek()
	t.pos++
	if c, ok := simpleEscapes[r]; ok {
		return c, nil
	}
	switch {
	case r == 'c':
		c := t.peek()
		if c < 0x20 || c > 0x7e {
			return 0, t.fail(at, `\c needs a printable character`)
		}
		t.pos++
		return unicode.ToUpper(c) ^ 0x40, nil
	case r == 'x':
		return t.hexEscape(at)
	case t.opt.altBsux && r == 'u':
		if n, ok := t.exactHex(4); ok {
			return t.code(n, at)
		}
		return 'u', nil
	case t.opt.altBsux && r == 'U':
		return 'U', nil
	case r == 'o':
		if !t.eat("{") {
			return 0, t.fail(at, `\o needs a brace`)
		}
		text, _ := t.until('}')
		n, err := strconv.ParseUint(text, 8, 31)
		if err != nil {
			return 0, t.fail(at, `\o{%s} is not an octal number`, text)
		}
		return t.code(int(n), at)
	case '0' <= r && r <= '7':
		n := int(r - '0')
		for i := 0; i < 2 && t.peek() >= '0' && t.peek() <= '7'; i++ {
			n = n*8 + int(t.peek()-'0')
			t.pos++
		}
		return t.code(n, at)
	case r < 0x80 && (unicode.IsLetter(r) || unicode.IsDigit(r)):
		return 0, t.fail(at, `escape \%c is not known`, r)
	}
	return r, nil
}

func (t *translator) hexEscape(at int) (rune, error) {
	if t.opt.altBsux {
		if n, ok := t.exactHex(2); ok {
			return t.code(n, at)
		}
		return 'x', nil
	}
	if t.eat("{") {
		text, _ := t.until('}')
		n, err := strconv.ParseUint(text, 16, 31)
		if err != nil {
			return 0, t.fail(at, `\x{%s} is not a hexadecimal number`, text)
		}
		return t.code(int(n), at)
	}
	n := 0
	for range 2 {
		d, ok := hexDigit(t.peek())
		if !ok {
			break
		}
		n = n*16 + d
		t.pos++
	}
	return t.code(n, at)
}

func (t *translator) exactHex(digits int) (int, bool) {
	n := 0
	for i := range digits {
		d, ok := hexDigit(t.at(i))
		if !ok {
			return 0, false
		}
		n = n*16 + d
	}
	t.pos += digits
	return n, true
}

func hexDigit(r rune) (int, bool) {
	switch {
	case '0' <= r && r <= '9':
		return int(r - '0'), true
	case 'a' <= r && r <= 'f':
		return int(r-'a') + 10, true
	case 'A' <= r && r <= 'F':
		return int(r-'A') + 10, true
	}
	return 0, false
}

// code is the character with that code point, or the byte without utf.
func (t *translator) code(n, at int) (rune, error) {
	switch {
	case !t.opt.utf && n <= 0xff:
		return byteRune(n), nil
	case t.opt.utf && n <= unicode.MaxRune && (n < 0xd800 || n > 0xdfff):
		return rune(n), nil
	}
	return 0, t.fail(at, "character %#x does not exist in this mode", n)
}

// bracket reads a class after its opening bracket at index at.
func (t *translator) bracket(at int) (set, error) {
	var s set
	negated := t.eat("^")
	quoting := false
	for first := true; ; first = false {
		from := t.pos
		if !t.more() {
			return nil, t.fail(at, "class without an end")
		}
		if quoting {
			if t.eat(`\E`) {
				quoting = false
				continue
			}
		} else {
			if t.peek() == ']' && (!first || t.opt.emptyClass) {
				t.pos++
				if negated {
					s = s.not(t.opt.utf)
				}
				return s, nil
			}
			if t.eat(`\Q`) {
				quoting = true
				continue
			}
			if t.eat(`\E`) {
				continue
			}
		}
		item, single, err := t.classItem(quoting)
		if err != nil {
			return nil, err
		}
		if single && !quoting && t.peek() == '-' && t.at(1) != ']' && t.at(1) >= 0 {
			t.pos++
			end, endSingle, err := t.classItem(false)
			if err != nil {
				return nil, err
			}
			if !endSingle {
				return nil, t.fail(from, "range %q ends with a set", string(t.src[from:t.pos]))
			}
			if end[0].lo < item[0].lo {
				return nil, t.fail(from, "range %q is upside down", string(t.src[from:t.pos]))
			}
			item = t.span(item[0].lo, end[0].lo)
		}
		if !single && t.peek() == '-' && t.at(1) != ']' {
			return nil, t.fail(from, "range %q begins with a set", string(t.src[from:t.pos+1]))
		}
		if single && t.opt.caseless {
			item = item.folded(t.opt.utf)
		}
		s = s.with(item)
	}
}

// span is the set from lo to hi, both as written in src's characters.
func (t *translator) span(lo, hi rune) set {
	if t.opt.utf {
		return set{{lo, hi}}
	}
	if lo < 0x80 && hi >= 0x80 {
		return set{{lo, 0x7f}, {highBytes + 0x80, hi}}
	}
	return set{{lo, hi}}
}

// classItem reads one member of a class; single if it is one character, which may
// begin or end a range.
func (t *translator) classItem(quoting bool) (s set, single bool, err error) {
	at := t.pos
	r := t.peek()
	if !quoting && r == '[' {
		if s, ok, err := t.posixClass(at); ok || err != nil {
			return s, false, err
		}
	}
	t.pos++
	if quoting || r != '\\' {
		return set{{r, r}}, true, nil
	}
	switch t.peek() {
	case -1:
		return nil, false, t.fail(at, `\ at the end of the pattern`)
	case 'b':
		t.pos++
		return set{{8, 8}}, true, nil
	case 'B', 'R', 'X', 'N':
		return nil, false, t.fail(at, `\%c does not exist in a class`, t.peek())
	}
	if s, ok, err := t.setEscape(at); ok || err != nil {
		return s, false, err
	}
	c, err := t.charEscape(at)
	return set{{c, c}}, true, err
}

// posixClass reads [:name:] or [:^name:] at index at; not ok if it is none.
func (t *translator) posixClass(at int) (s set, ok bool, err error) {
	mark := t.at(1)
	if mark != ':' && mark != '.' && mark != '=' {
		return nil, false, nil
	}
	end := -1
	for i := at + 2; i+1 < len(t.src) && t.src[i] != ']' && t.src[i] != '\\'; i++ {
		if t.src[i] == mark && t.src[i+1] == ']' {
			end = i
			break
		}
	}
	if end < 0 {
		return nil, false, nil
	}
	if mark != ':' {
		return nil, false, t.fail(at, "collating elements are not supported")
	}
	name, negated := strings.CutPrefix(string(t.src[at+2:end]), "^")
	if t.opt.caseless && (name == "upper" || name == "lower") {
		name = "alpha"
	}
	pairs, known := posix[name]
	if !known {
		return nil, false, t.fail(at, "class [:%s:] is not known", name)
	}
	t.pos = end + 2
	s = chars(t.opt.utf, pairs...)
	if negated {
		s = s.not(t.opt.utf)
	}
	return s, true, nil
}
