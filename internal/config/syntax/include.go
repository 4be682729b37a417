package syntax

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/sluice-lb/sluice/internal/config/diag"
)

// variants are the include checks that each letter behind "include" implies.
var variants = map[byte]Checks{
	'r': CheckRead,
	'm': CheckRead | CheckMatch,
	'w': CheckRead | CheckMatch | CheckWildcard,
	'b': CheckRead | CheckBrace,
	'a': CheckAll,
}

// includeVariant reads the keyword of an include line that has nothing else
// before the next blank.
func includeVariant(word string) (Checks, bool) {
	letter, ok := strings.CutPrefix(word, "include")
	switch {
	case !ok || len(letter) > 1:
		return 0, false
	case letter == "":
		return 0, true
	}
	c, ok := variants[letter[0]]
	return c, ok
}

// include reads an include line and tells whether the line was one.
func (p *parser) include(l line, c *context) bool {
	end := firstWord(l.text)
	if end == len(l.text) {
		return false
	}
	checks, ok := includeVariant(l.text[:end])
	if !ok {
		return false
	}
	if c.ext && len(p.block.stack) > p.block.floor {
		p.report(includeBare, &l, 0, end, "include inside a block of a #sluice comment", "it is ignored; include on a line of its own")
		return true
	}
	pattern := l.sub(end, len(l.text)).trim()
	if p.o.Resolver == nil {
		p.report(includeNothing, &pattern, 0, len(pattern.text), "there are no files to include here", "")
		return true
	}
	i := inclusion{p: p, l: pattern, checks: checks | p.checks, saved: p.checks}
	i.run(c)
	return true
}

// inclusion is one include line at work.
type inclusion struct {
	p      *parser
	l      line
	checks Checks
	saved  Checks
}

func (i *inclusion) run(c *context) {
	m := glob(i.p.o.Resolver, c.file.dir, i.l.text)
	for _, err := range m.failed {
		i.problem(CheckRead, includeNothing, fmt.Sprintf("include %s: %v", i.shown(), cause(err)), "mend its permissions")
	}
	i.missing(m)
	alone := len(m.names) == 1 && !m.wild && m.alternatives == 1
	chain := append([]string{"included from " + i.l.pos(0).String()}, c.chain...)
	for _, name := range m.names {
		if i.p.stopped {
			return
		}
		f := &file{name: name, dir: path.Dir(name), chain: chain}
		why, hint := i.p.openFile(f, func() bool { return i.mayRead(f) })
		if why == "" {
			i.p.checks = i.saved
			continue
		}
		k := includeSkipped
		if alone {
			k = includeNothing
		}
		i.problem(CheckRead, k, fmt.Sprintf("%s is not included: %s", name, why), hint)
	}
}

func (i *inclusion) shown() string { return shorten(i.l.text) }

// problem reports what is wrong with the line: as a violated check, if that is
// in force, or as k.
func (i *inclusion) problem(check Checks, k kind, message, hint string) {
	if i.checks&check != 0 {
		k = checkViolated
		hint = "the include check asks for this to be an error" + strings.TrimSuffix("; "+hint, "; ")
	}
	i.p.report(k, &i.l, 0, len(i.l.text), message, hint)
}

// missing reports what has no match.
func (i *inclusion) missing(m matches) {
	if len(m.missing) == 0 {
		return
	}
	const goOn = "keepalived goes on without it"
	switch {
	case m.alternatives > 1:
		k := includeSkipped
		if len(m.names) == 0 && !m.wild {
			k = includeNothing
		}
		some := m.missing[:min(len(m.missing), 5)]
		check := CheckBrace
		if len(m.names) == 0 && m.wild {
			check |= CheckWildcard
		}
		i.problem(check, k, fmt.Sprintf("include %s: nothing matches %s", i.shown(), shorten(strings.Join(some, ", "))), goOn)
	case m.noDir:
		i.problem(CheckMatch, includeEmpty, fmt.Sprintf("include %s: the directory does not exist", i.shown()), goOn)
	case m.wild:
		i.problem(CheckWildcard, includeEmpty, fmt.Sprintf("include %s: nothing matches", i.shown()), "")
	default:
		hint := goOn + "; check the name, which is relative to the directory of this file"
		if strings.HasPrefix(i.l.text, `"`) {
			hint = goOn + "; quotes are a part of the name here, write it without them"
		}
		i.problem(CheckMatch, includeNothing, fmt.Sprintf("include %s: no such file", i.shown()), hint)
	}
}

// mayRead tells whether a file may be read, and reports why not: it is being
// read already, or it is one too many.
func (i *inclusion) mayRead(f *file) bool {
	p := i.p
	if k := slices.IndexFunc(p.stack, func(open *file) bool { return open.id == f.id }); k >= 0 {
		var names []string
		for _, open := range p.stack[k:] {
			names = append(names, open.name)
		}
		p.report(includeCycle, &i.l, 0, len(i.l.text), fmt.Sprintf("include cycle: %s -> %s", strings.Join(names, " -> "), f.name),
			"the file is not read a second time; delete this line")
		return false
	}
	p.files++
	switch {
	case len(p.stack) >= maxDepth:
		p.report(tooDeep, &i.l, 0, len(i.l.text), fmt.Sprintf("includes nest more than %d deep", maxDepth), "")
	case p.files > maxFiles:
		p.report(tooMuch, &i.l, 0, len(i.l.text), fmt.Sprintf("more than %d files are included", maxFiles), "files that include each other twice multiply")
	}
	return !p.stopped
}

// openFile reads a file, unless there is a reason not to; that is returned with
// what to do about it. before may stop it for a reason that it reported.
func (p *parser) openFile(f *file, before func() bool) (why, hint string) {
	info, err := p.o.Resolver.Stat(f.name)
	if err != nil {
		return reason(err)
	}
	switch mode := info.Mode; {
	case mode.IsDir():
		return "it is a directory", "name the files in it, for example " + strings.TrimSuffix(f.name, "/") + "/*.conf"
	case !mode.IsRegular():
		return "it is not a regular file", "name a file"
	case mode.Perm()&0o111 != 0:
		return "it is executable", "keepalived skips such files, since they look like scripts; chmod a-x " + f.name
	}
	if f.id = info.ID; f.id == "" {
		f.id = f.name
	}
	if !before() {
		return "", ""
	}
	r, err := p.o.Resolver.Open(f.name)
	if err != nil {
		return reason(err)
	}
	defer r.Close()
	if !p.opened[f.name] {
		p.opened[f.name] = true
		p.tree.Files = append(p.tree.Files, f.name)
	}
	p.stack = append(p.stack, f)
	p.read(f, &lineReader{r: r})
	p.stack = p.stack[:len(p.stack)-1]
	return "", ""
}

// cause strips the operation and name from a file error: the message names the
// file already.
func cause(err error) error {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err
	}
	return err
}

// reason says why a file cannot be opened and what to do about it.
func reason(err error) (why, hint string) {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "no such file", "check the name"
	case errors.Is(err, fs.ErrPermission):
		return "permission denied", "run as root, or mend the permissions of the file and its directories"
	}
	return cause(err).Error(), "mend that and try again"
}

// main reads the file that was asked for.
func (p *parser) main(name string) {
	at := diag.At(name, 0, 0)
	if p.o.Resolver == nil {
		p.reportAt(cannotRead, at, 1, nil, "there is nothing to read files with", "")
		return
	}
	m := glob(p.o.Resolver, ".", name)
	if len(m.names) > 1 {
		p.reportAt(severalMain, at, 1, nil, fmt.Sprintf("%q matches %d files", name, len(m.names)), "all are read, in order of name, as keepalived does: "+shorten(strings.Join(m.names, " ")))
	}
	const sorry = "cannot read the configuration: "
	read := 0
	for _, match := range m.names {
		if p.stopped {
			return
		}
		f := &file{name: match, dir: path.Dir(match)}
		why, hint := p.openFile(f, func() bool { return true })
		if why != "" {
			p.reportAt(cannotRead, diag.At(match, 0, 0), 1, nil, sorry+why, hint)
			return
		}
		read++
		p.checks = p.o.IncludeCheck
	}
	switch {
	case read > 0:
	case len(m.failed) > 0:
		why, hint := reason(m.failed[0])
		p.reportAt(cannotRead, at, 1, nil, sorry+why, hint)
	case m.wild:
		p.reportAt(cannotRead, at, 1, nil, sorry+"nothing matches", "check the pattern; no file is no configuration")
	default:
		p.reportAt(cannotRead, at, 1, nil, sorry+"no such file", "check the name; keepalived would call this fine in a test and run without services")
	}
}

// checkNames are the words of include_check.
var checkNames = map[string]Checks{
	"read": CheckRead, "match": CheckMatch, "wildcard_match": CheckWildcard, "brace_match": CheckBrace,
}

// includeCheck obeys an include_check statement: it holds from here on.
func (p *parser) includeCheck(n *Node, src *physical) {
	if len(n.Words) == 1 {
		p.checks = CheckAll
		return
	}
	plain := false
	for _, w := range n.Args() {
		name := w.Text
		sign := byte(0)
		if name != "" && (name[0] == '+' || name[0] == '-') {
			sign, name = name[0], name[1:]
		}
		c, ok := checkNames[name]
		switch {
		case !ok:
			names := []string{"read", "match", "wildcard_match", "brace_match"}
			hint := "it is ignored; the checks are " + strings.Join(names, ", ")
			if s := diag.Suggest(name, names); s != "" {
				hint = fmt.Sprintf("did you mean %q? %s", s, hint)
			}
			p.reportAt(badCheck, w.Pos, int(w.Width), src, fmt.Sprintf("unknown include check %q", shorten(name)), hint)
		case sign == '+':
			p.checks |= c
		case sign == '-':
			p.checks &^= c
		case plain:
			p.reportAt(badCheck, w.Pos, int(w.Width), src, fmt.Sprintf("include check %q needs a + or - in front", name), "it is ignored, as keepalived does")
		default:
			plain = true
			p.checks = CheckRead | c
		}
	}
}
