package http

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxNesting is PCRE2's default limit for parentheses within each other.
const maxNesting = 250

// translator reads PCRE2 syntax and writes the same for both engines, in the small
// language that they read alike: literals, explicit classes, groups, repetitions.
// All options are resolved on the way, so that no engine's idea of them matters.
type translator struct {
	src []rune
	pos int
	opt options

	re2, full strings.Builder
	// needFull is set by what the standard library cannot decide.
	needFull bool
	// looksBack is set when a match depends on what is before it.
	looksBack bool
	// resetsStart is set by \K, first seen at the byte offset resetAt.
	resetsStart bool
	resetAt     int

	depth  int
	groups int
	names  map[string]int
	// maxRef is the highest group referred to, by the escape at refAt.
	maxRef, refAt int
}

func translate(pattern string, opt options) (*translator, error) {
	t := &translator{opt: opt, names: map[string]int{}}
	if opt.utf {
		for i, r := range pattern {
			if r == utf8.RuneError {
				if _, n := utf8.DecodeRuneInString(pattern[i:]); n == 1 {
					return nil, &PatternError{i, "not valid UTF-8"}
				}
			}
			t.src = append(t.src, r)
		}
	} else {
		for i := range len(pattern) {
			t.src = append(t.src, byteRune(int(pattern[i])))
		}
	}
	if _, err := t.alternation(); err != nil {
		return nil, err
	}
	if t.more() {
		return nil, t.fail(t.pos, "unmatched closing parenthesis")
	}
	if t.maxRef > t.groups {
		return nil, t.fail(t.refAt, "reference to group %d, there are %d", t.maxRef, t.groups)
	}
	return t, nil
}

// fail makes an error at an index of src.
func (t *translator) fail(at int, format string, args ...any) error {
	return &PatternError{t.offset(at), fmt.Sprintf(format, args...)}
}

// offset is where a character is in the pattern, in octets.
func (t *translator) offset(at int) int {
	if t.opt.utf {
		return len(string(t.src[:at]))
	}
	return at
}

func (t *translator) more() bool { return t.pos < len(t.src) }

// peek returns the next character, -1 at the end.
func (t *translator) peek() rune { return t.at(0) }

func (t *translator) at(i int) rune {
	if t.pos+i >= len(t.src) {
		return -1
	}
	return t.src[t.pos+i]
}

// eat skips s if it is next.
func (t *translator) eat(s string) bool {
	for i, r := range []byte(s) {
		if t.at(i) != rune(r) {
			return false
		}
	}
	t.pos += len(s)
	return true
}

// until returns the text up to end and skips both.
func (t *translator) until(end rune) (string, bool) {
	for i := t.pos; i < len(t.src); i++ {
		if t.src[i] == end {
			s := string(t.src[t.pos:i])
			t.pos = i + 1
			return s, true
		}
	}
	return "", false
}

func (t *translator) both(s string) { t.emit(s, s) }

func (t *translator) emit(re2, full string) {
	t.re2.WriteString(re2)
	t.full.WriteString(full)
}

// fullOnly writes what the standard library has not.
func (t *translator) fullOnly(s string) {
	t.needFull = true
	t.full.WriteString(s)
}

// class writes a set.
func (t *translator) class(s set) {
	switch {
	case len(s) == 0:
		t.emit(`[^\x00-\x{10FFFF}]`, `(?!)`)
	case len(s) == 1 && s[0].lo == s[0].hi:
		t.both(literal(s[0].lo))
	default:
		t.both(s.String())
	}
}

func literal(r rune) string {
	if strings.ContainsRune(`\.+*?()|[]{}^$`, r) {
		return `\` + string(r)
	}
	return string(r)
}

// char writes one character, in both cases if asked.
func (t *translator) char(r rune) {
	s := set{{r, r}}
	if t.opt.caseless {
		s = s.folded(t.opt.utf)
	}
	t.class(s)
}

// alternation reads branches up to a closing parenthesis or the end. Options that
// change in one branch hold for the following ones, and end with the group.
func (t *translator) alternation() (branches int, err error) {
	if t.depth++; t.depth > maxNesting {
		return 0, t.fail(t.pos, "parentheses are nested more than %d deep", maxNesting)
	}
	saved := t.opt
	for {
		branches++
		if err := t.sequence(); err != nil {
			return 0, err
		}
		if t.peek() != '|' {
			break
		}
		t.pos++
		t.both("|")
	}
	t.opt = saved
	t.depth--
	return branches, nil
}

func (t *translator) sequence() error {
	for {
		t.skipExtended()
		if r := t.peek(); r < 0 || r == '|' || r == ')' {
			return nil
		}
		repeatable, err := t.atom()
		if err != nil {
			return err
		}
		t.skipExtended()
		if err := t.quantifier(repeatable); err != nil {
			return err
		}
	}
}

// skipExtended skips blanks and comments under the option extended.
func (t *translator) skipExtended() {
	for t.opt.extended && t.more() {
		switch r := t.peek(); {
		case strings.ContainsRune(" \t\n\v\f\r", r):
			t.pos++
		case r == '#':
			if _, ok := t.until('\n'); !ok {
				t.pos = len(t.src)
			}
		default:
			return
		}
	}
}

// atom reads one item that a quantifier may follow; not repeatable are those
// where PCRE has none or nobody writes one.
func (t *translator) atom() (repeatable bool, err error) {
	at := t.pos
	r := t.peek()
	t.pos++
	switch r {
	case '(':
		return t.group(at)
	case '[':
		s, err := t.bracket(at)
		if err != nil {
			return false, err
		}
		t.class(s)
		return true, nil
	case '.':
		s := universe(t.opt.utf)
		if !t.opt.dotall {
			s = chars(t.opt.utf, '\n', '\n').not(t.opt.utf)
		}
		t.class(s)
		return true, nil
	case '^':
		t.circumflex()
		return false, nil
	case '$':
		t.dollar(t.opt.multiline)
		return false, nil
	case '*', '+', '?':
		return false, t.fail(at, "quantifier %q has nothing to repeat", r)
	case '\\':
		return t.escape(at)
	}
	t.char(r)
	return true, nil
}

func (t *translator) circumflex() {
	t.looksBack = true
	switch {
	case !t.opt.multiline:
		t.both(`\A`)
	case t.opt.altCircumflex:
		t.emit(`(?m:^)`, `(?:\A|(?<=\n))`)
	default:
		// Not after a newline that ends the subject, where the standard library's
		// matches.
		t.fullOnly(`(?:\A|(?<=\n)(?!\z))`)
	}
}

// dollar is the end of the subject, or before a last newline; or of any line.
func (t *translator) dollar(multiline bool) {
	switch {
	case multiline:
		t.emit(`(?m:$)`, `(?=\n|\z)`)
	case t.opt.dollarEndonly:
		t.both(`\z`)
	case t.depth == 1 && t.lastInBranch():
		// Nothing follows, so that taking the newline along does no harm.
		t.emit(`(?:\n?\z)`, `(?=\n?\z)`)
	default:
		t.fullOnly(`(?=\n?\z)`)
	}
}

func (t *translator) lastInBranch() bool {
	saved := t.pos
	t.skipExtended()
	r := t.peek()
	t.pos = saved
	return r < 0 || r == '|'
}

// quantifier reads *, +, ?, {n}, {n,} or {n,m} with ? or + behind, if there is one.
func (t *translator) quantifier(repeatable bool) error {
	at := t.pos
	q, big, err := t.repetition()
	if q == "" || err != nil {
		return err
	}
	if !repeatable {
		return t.fail(at, "quantifier follows what cannot be repeated here")
	}
	lazy := t.opt.ungreedy
	switch {
	case t.eat("?"):
		lazy = !lazy
	case t.eat("+"):
		t.fullOnly(q + "+")
		return t.noSecond()
	}
	if lazy {
		q += "?"
	}
	t.both(q)
	t.needFull = t.needFull || big
	return t.noSecond()
}

func (t *translator) noSecond() error {
	at := t.pos
	t.skipExtended()
	if q, _, err := t.repetition(); q != "" || err != nil {
		return t.fail(at, "quantifier follows a quantifier")
	}
	return nil
}

// repetition returns the quantifier proper, "" if there is none; big ones are
// beyond the standard library.
func (t *translator) repetition() (q string, big bool, err error) {
	switch r := t.peek(); r {
	case '*', '+', '?':
		t.pos++
		return string(r), false, nil
	case '{':
	default:
		return "", false, nil
	}
	at := t.pos
	t.pos++
	low, ok := t.digits()
	high, comma := low, t.eat(",")
	if comma {
		high, _ = t.digits()
	}
	if !ok || !t.eat("}") {
		t.pos = at // a literal brace
		return "", false, nil
	}
	text := string(t.src[at:t.pos])
	limit := func(s string) (int, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n > 65535 {
			return 0, t.fail(at, "repetition %s is beyond 65535", text)
		}
		return n, nil
	}
	n, err := limit(low)
	if err != nil {
		return "", false, err
	}
	m := n
	if high != "" {
		if m, err = limit(high); err != nil {
			return "", false, err
		}
		if m < n {
			return "", false, t.fail(at, "repetition %s is upside down", text)
		}
	}
	return text, n > 1000 || m > 1000, nil
}

func (t *translator) digits() (string, bool) {
	from := t.pos
	for t.peek() >= '0' && t.peek() <= '9' {
		t.pos++
	}
	return string(t.src[from:t.pos]), t.pos > from
}

// refer writes a back-reference.
func (t *translator) refer(n, at int) {
	if n > t.maxRef {
		t.maxRef, t.refAt = n, at
	}
	ref := `\` + strconv.Itoa(n)
	if t.opt.caseless {
		ref = `(?i:` + ref + `)`
	} else {
		ref = `(?:` + ref + `)`
	}
	if t.opt.matchUnset {
		ref = fmt.Sprintf(`(?:(?(%d)%s|))`, n, ref)
	}
	t.fullOnly(ref)
}

func (t *translator) referName(name string, at int) error {
	n, ok := t.names[name]
	if !ok {
		return t.fail(at, "no group named %q before its reference", name)
	}
	t.refer(n, at)
	return nil
}

// name notes a named group; groups are written without their names, since the
// engines number named ones differently.
func (t *translator) name(name string, at int) error {
	valid := name != "" && len(name) <= 32 && (name[0] < '0' || name[0] > '9') &&
		!slices.ContainsFunc([]byte(name), func(c byte) bool {
			return c != '_' && (c < '0' || c > '9') && (c|0x20 < 'a' || c|0x20 > 'z')
		})
	if !valid {
		return t.fail(at, "group name %q is not valid", name)
	}
	if _, dup := t.names[name]; dup {
		return t.fail(at, "two groups named %q are not supported", name)
	}
	t.groups++
	t.names[name] = t.groups
	return nil
}
