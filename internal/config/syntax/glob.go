package syntax

import (
	"errors"
	"io/fs"
	"path"
	"slices"
	"strings"
)

// matches is what a pattern came to.
type matches struct {
	// names are what exists, in order of name, each once.
	names []string
	// missing are the alternatives that have no match.
	missing []string
	// alternatives is how many a brace pattern has, 1 without braces.
	alternatives int
	wild         bool
	// noDir tells that a directory of the pattern does not exist.
	noDir bool
	// failed are errors other than that something does not exist.
	failed []error
}

// maxAlternatives bounds a brace pattern.
const maxAlternatives = 4096

var errBraces = errors.New("the braces come to too many alternatives")

// glob finds what matches a shell pattern with csh's braces, relative to dir.
func glob(r Resolver, dir, pattern string) matches {
	alternatives, ok := expandBraces(pattern)
	m := matches{alternatives: len(alternatives)}
	if !ok {
		m.failed = append(m.failed, errBraces)
		return m
	}
	for _, a := range alternatives {
		before := len(m.names)
		failed := len(m.failed)
		if !hasMeta(a) {
			m.exists(r, join(dir, unescape(a)))
		} else {
			m.wild = true
			base, rest := dir, a
			if trimmed := strings.TrimLeft(a, "/"); trimmed != a {
				base, rest = "/", trimmed
			}
			m.walk(r, base, rest, false)
		}
		if len(m.names) == before && len(m.failed) == failed {
			m.missing = append(m.missing, a)
		}
	}
	slices.Sort(m.names)
	m.names = slices.Compact(m.names)
	return m
}

// exists adds a name if there is a file of that name.
func (m *matches) exists(r Resolver, name string) {
	_, err := r.Stat(name)
	switch {
	case err == nil:
		m.names = append(m.names, name)
	case !errors.Is(err, fs.ErrNotExist):
		m.failed = append(m.failed, err)
	}
}

// walk goes down the segments of a pattern. after tells that a wildcard came
// before.
func (m *matches) walk(r Resolver, dir, pattern string, after bool) {
	segment, rest, more := strings.Cut(pattern, "/")
	rest = strings.TrimLeft(rest, "/")
	if !hasMeta(segment) {
		name := join(dir, unescape(segment))
		if !more {
			m.exists(r, name)
			return
		}
		m.walk(r, name, rest, after)
		return
	}
	names, err := r.ReadDir(dir)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			if !after {
				m.failed = append(m.failed, err)
			}
		} else if !after {
			m.noDir = true
		}
		return
	}
	slices.Sort(names)
	segment = strings.ReplaceAll(segment, "[!", "[^")
	for _, n := range names {
		if strings.HasPrefix(n, ".") && !strings.HasPrefix(segment, ".") {
			continue
		}
		if ok, err := path.Match(segment, n); err != nil || !ok {
			if err == nil || segment != n { // a pattern that is none is a name
				continue
			}
		}
		if more {
			m.walk(r, join(dir, n), rest, true)
		} else {
			m.names = append(m.names, join(dir, n))
		}
	}
}

// join puts a name behind a directory, as little changed as possible.
func join(dir, name string) string {
	switch {
	case strings.HasPrefix(name, "/") || dir == "." || dir == "":
		return name
	case strings.HasSuffix(dir, "/"):
		return dir + name
	}
	return dir + "/" + name
}

// hasMeta tells whether a pattern has a wildcard.
func hasMeta(s string) bool {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '\\':
			i++
		case '*', '?', '[':
			return true
		}
	}
	return false
}

// unescape takes the backslashes of a pattern without wildcards away.
func unescape(s string) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+1 < len(s) {
			i++
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

// expandBraces expands {a,b} as csh does: nested, in order, "{}" is itself. It
// returns false when there are too many alternatives.
func expandBraces(pattern string) ([]string, bool) {
	out := []string{}
	todo := []string{pattern}
	for len(todo) > 0 {
		s := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		parts, open, end := braces(s)
		if parts == nil {
			if out = append(out, s); len(out) > maxAlternatives {
				return nil, false
			}
			continue
		}
		if len(todo)+len(parts) > maxAlternatives {
			return nil, false
		}
		for _, part := range slices.Backward(parts) {
			todo = append(todo, s[:open]+part+s[end+1:])
		}
	}
	return out, true
}

// braces finds the first brace group of a pattern: its alternatives and where
// its braces stand. parts is nil without one.
func braces(s string) (parts []string, open, end int) {
	for open = 0; open < len(s); open++ {
		switch s[open] {
		case '\\':
			open++
			continue
		case '{':
		default:
			continue
		}
		if strings.HasPrefix(s[open:], "{}") {
			continue
		}
		depth, from := 0, open+1
		parts = nil
		for end = open; end < len(s); end++ {
			switch s[end] {
			case '\\':
				end++
			case '{':
				depth++
			case ',':
				if depth == 1 {
					parts = append(parts, s[from:end])
					from = end + 1
				}
			case '}':
				if depth--; depth == 0 {
					return append(parts, s[from:end]), open, end
				}
			}
		}
		return nil, 0, 0 // never closed: it is text
	}
	return nil, 0, 0
}
