package http

import (
	"slices"
	"strings"
	"unicode"
)

// set is a set of characters: spans in order that do not touch. Without utf it
// holds what byteRune makes of bytes.
type set []span

type span struct{ lo, hi rune }

// universe is all characters. Surrogates are none.
func universe(utf bool) set {
	if utf {
		return set{{0, 0xd7ff}, {0xe000, unicode.MaxRune}}
	}
	return set{{0, 0x7f}, {highBytes + 0x80, highBytes + 0xff}}
}

// chars makes a set of pairs of code points, first and last, dropping what the
// mode has not.
func chars(utf bool, pairs ...int) set {
	var s set
	for i := 0; i < len(pairs); i += 2 {
		lo, hi := pairs[i], pairs[i+1]
		switch {
		case utf:
			s = append(s, span{rune(lo), rune(hi)})
		case lo > 0xff:
		case lo < 0x80 && hi >= 0x80:
			// What lies between the two halves may fold to an ASCII letter.
			s = append(s, span{rune(lo), 0x7f}, span{highBytes + 0x80, byteRune(min(hi, 0xff))})
		default:
			s = append(s, span{byteRune(lo), byteRune(min(hi, 0xff))})
		}
	}
	return s.normal()
}

func (s set) normal() set {
	slices.SortFunc(s, func(a, b span) int { return int(a.lo) - int(b.lo) })
	out := s[:0]
	for _, x := range s {
		if n := len(out); n > 0 && x.lo <= out[n-1].hi+1 {
			out[n-1].hi = max(out[n-1].hi, x.hi)
			continue
		}
		out = append(out, x)
	}
	return out
}

func (s set) with(t set) set { return append(slices.Clone(s), t...).normal() }

func (s set) not(utf bool) set {
	var out set
	for _, u := range universe(utf) {
		lo := u.lo
		for _, x := range s {
			if x.hi < lo || x.lo > u.hi {
				continue
			}
			if x.lo > lo {
				out = append(out, span{lo, x.lo - 1})
			}
			lo = x.hi + 1
		}
		if lo <= u.hi {
			out = append(out, span{lo, u.hi})
		}
	}
	return out
}

// folded adds the other cases: of ASCII letters alone, or with utf of all.
func (s set) folded(utf bool) set {
	out := slices.Clone(s)
	for _, x := range s {
		hi := x.hi
		if !utf {
			hi = min(hi, 0x7f)
		}
		for r := x.lo; r <= hi; r++ {
			switch {
			case utf:
				for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
					out = append(out, span{f, f})
				}
			case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z':
				out = append(out, span{r ^ 0x20, r ^ 0x20})
			}
		}
	}
	return out.normal()
}

// String is the set as a class that both engines read alike, without escapes
// that mean different things.
func (s set) String() string {
	var b strings.Builder
	one := func(r rune) {
		if strings.ContainsRune(`\]^-[`, r) {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	b.WriteByte('[')
	for _, x := range s {
		one(x.lo)
		if x.hi > x.lo {
			b.WriteByte('-')
			one(x.hi)
		}
	}
	b.WriteByte(']')
	return b.String()
}

// tableSet makes a set of one of the unicode package's tables.
func tableSet(t *unicode.RangeTable) set {
	var s set
	add := func(lo, hi, stride uint32) {
		if stride == 1 {
			s = append(s, span{rune(lo), rune(hi)})
			return
		}
		for r := lo; r <= hi; r += stride {
			s = append(s, span{rune(r), rune(r)})
		}
	}
	for _, r := range t.R16 {
		add(uint32(r.Lo), uint32(r.Hi), uint32(r.Stride))
	}
	for _, r := range t.R32 {
		add(r.Lo, r.Hi, r.Stride)
	}
	return s.normal()
}

// shorthand is the set of \d, \w, \s, \h, \v or \N and of their capitals. The
// letters are ASCII in both modes: there is no ucp.
func shorthand(c rune, utf bool) (set, bool) {
	var s set
	switch unicode.ToLower(c) {
	case 'd':
		s = chars(utf, '0', '9')
	case 'w':
		s = chars(utf, '0', '9', 'A', 'Z', '_', '_', 'a', 'z')
	case 's':
		s = chars(utf, '\t', '\r', ' ', ' ')
	case 'h':
		s = chars(utf, '\t', '\t', ' ', ' ', 0xa0, 0xa0, 0x1680, 0x1680, 0x180e, 0x180e, 0x2000, 0x200a, 0x202f, 0x202f, 0x205f, 0x205f, 0x3000, 0x3000)
	case 'v':
		s = chars(utf, '\n', '\r', 0x85, 0x85, 0x2028, 0x2029)
	case 'n':
		if c == 'N' {
			return chars(utf, '\n', '\n').not(utf), true
		}
		return nil, false
	default:
		return nil, false
	}
	if unicode.IsUpper(c) {
		s = s.not(utf)
	}
	return s, true
}

// posix are the named classes, for ASCII.
var posix = map[string][]int{
	"alnum": {'0', '9', 'A', 'Z', 'a', 'z'}, "alpha": {'A', 'Z', 'a', 'z'}, "ascii": {0, 0x7f},
	"blank": {'\t', '\t', ' ', ' '}, "cntrl": {0, 0x1f, 0x7f, 0x7f}, "digit": {'0', '9'},
	"graph": {'!', '~'}, "lower": {'a', 'z'}, "print": {' ', '~'},
	"punct": {'!', '/', ':', '@', '[', '`', '{', '~'}, "space": {'\t', '\r', ' ', ' '},
	"upper": {'A', 'Z'}, "word": {'0', '9', 'A', 'Z', '_', '_', 'a', 'z'},
	"xdigit": {'0', '9', 'A', 'F', 'a', 'f'},
}
