package syntax

import "errors"

// ErrUnbalancedQuote is what a script line with an open quote fails with;
// keepalived ignores such a script.
var ErrUnbalancedQuote = errors.New("a quote is never closed")

// SplitScript splits a statement's Raw line by the first stage of keepalived's
// script rules: blanks separate, both " and ' quote, quotes are removed and
// adjacent pieces join, and backslash sequences are kept. The first word is the
// keyword, the second the command with its parameters (for SplitArgv), the third
// and fourth a user and a group.
func SplitScript(raw string) ([]string, error) {
	return split(raw, false)
}

// SplitArgv splits a command by the second stage: as SplitScript, but
// backslash sequences are resolved, once and inside single quotes too. It is
// also how the argument of regex is read. The sequences are \a \b \E (escape)
// \f \n \r \t \v, \o to \ooo (octal), \xH and \xHH, \cC (control); before any
// other character the backslash is dropped.
func SplitArgv(command string) ([]string, error) {
	return split(command, true)
}

func split(s string, unescape bool) ([]string, error) {
	var (
		out  []string
		word []byte
		in   bool // inside a word, an empty quoted one included
		mark byte // the open quote
	)
	for i := 0; i < len(s); i++ {
		c := s[i]
		switch {
		case c == '\\' && i+1 < len(s):
			in = true
			if unescape {
				b, n := escape(s[i+1:])
				word = append(word, b)
				i += n
			} else {
				word = append(word, c, s[i+1])
				i++
			}
		case mark != 0 && c == mark:
			mark = 0
		case mark == 0 && (c == '"' || c == '\''):
			mark, in = c, true
		case mark == 0 && isBlank(c):
			if in {
				out = append(out, string(word))
				word, in = word[:0], false
			}
		default:
			in = true
			word = append(word, c)
		}
	}
	if mark != 0 {
		return nil, ErrUnbalancedQuote
	}
	if in {
		out = append(out, string(word))
	}
	return out, nil
}

// escape resolves the sequence behind a backslash and returns how many bytes it
// took.
func escape(s string) (byte, int) {
	switch c := s[0]; c {
	case 'a':
		return '\a', 1
	case 'b':
		return '\b', 1
	case 'E':
		return 0x1b, 1
	case 'f':
		return '\f', 1
	case 'n':
		return '\n', 1
	case 'r':
		return '\r', 1
	case 't':
		return '\t', 1
	case 'v':
		return '\v', 1
	case 'x':
		v, n := digits(s[1:], 16, 2)
		if n == 0 {
			return c, 1
		}
		return v, n + 1
	case 'c':
		if len(s) > 1 {
			return s[1] & 0x1f, 2
		}
		return c, 1
	default:
		if v, n := digits(s, 8, 3); n > 0 {
			return v, n
		}
		return c, 1
	}
}

// digits reads up to most digits of a base; a value above a byte wraps, as a C
// char does.
func digits(s string, base, most int) (v byte, n int) {
	for n < most && n < len(s) {
		d := digit(s[n])
		if d >= base {
			break
		}
		v = v*byte(base) + byte(d)
		n++
	}
	return v, n
}

// digit returns the value of a hexadecimal digit, or 16.
func digit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return 16
}

// ShellSigns returns the first sign in a command word that only a shell would
// understand (scripts are executed without one), or "".
func ShellSigns(word string) string {
	for i := range len(word) {
		switch c := word[i]; c {
		case ';', '|', '&', '>', '<', '`':
			return string(c)
		case '$':
			if i+1 < len(word) && word[i+1] == '(' {
				return "$("
			}
		}
	}
	return ""
}
