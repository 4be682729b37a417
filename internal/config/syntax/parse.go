package syntax

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/sluice-lb/sluice/internal/config/diag"
)

// Parse reads a configuration: the file of that name, or, as keepalived does,
// the files that it matches as a pattern, with everything they include. The
// tree is never nil; whether it may be used is what the list says.
func Parse(name string, o Options) (*Tree, diag.List) {
	p := newParser(o)
	p.main(name)
	return p.finish()
}

// ParseString reads a configuration from a text. name is what positions and
// relative includes refer to.
func ParseString(name, text string, o Options) (*Tree, diag.List) {
	p := newParser(o)
	f := &file{name: name, dir: path.Dir(name)}
	p.tree.Files = append(p.tree.Files, name)
	p.stack = append(p.stack, f)
	p.read(f, &lineReader{rest: text, err: io.EOF})
	return p.finish()
}

// file is a file being read.
type file struct {
	name string
	// dir is what relative includes and ${_PWD} refer to.
	dir   string
	id    string
	chain []string
	// context is that of its own lines.
	context context
}

// context is where a logical line stands.
type context struct {
	file *file
	// chain is what Node.Chain becomes.
	chain []string
	// inside are the multi-line definitions being expanded.
	inside *expansion
	// ext tells that the line is in a #sluice comment.
	ext   bool
	depth int
}

// parser is one run over one configuration.
type parser struct {
	o    Options
	tree Tree
	list diag.List
	seen map[finding]bool
	junk int

	opened map[string]bool
	stack  []*file  // being read, outermost first
	chain  []string // of the line at work
	checks Checks
	defs   map[string]*definition
	collect

	block blocks

	// What the tree is made of is allocated in blocks.
	lines   slab[physical]
	nodes   slab[Node]
	letters slab[Word]

	logicals, files, replaced, words int
	bytes, work, substituted         int64
	stopped                          bool
}

// finding identifies what was already said: a loop must not repeat it.
type finding struct {
	code, message string
	pos           diag.Pos
}

func newParser(o Options) *parser {
	return &parser{o: o, checks: o.IncludeCheck, defs: map[string]*definition{}, seen: map[finding]bool{}, opened: map[string]bool{}}
}

func (p *parser) finish() (*Tree, diag.List) {
	p.atEnd()
	if p.junk > maxJunk {
		p.tree.Nodes = nil
	} else {
		p.tree.Nodes = p.block.top
	}
	return &p.tree, p.list
}

// report adds a finding about the bytes i..j of a line.
func (p *parser) report(k kind, l *line, i, j int, message, hint string, notes ...string) {
	src, _, _ := l.origin(i)
	p.reportAt(k, l.pos(i), l.width(i, max(i, j)), src, message, hint, notes...)
}

func (p *parser) reportAt(k kind, pos diag.Pos, width int, src *physical, message, hint string, notes ...string) {
	if p.stopped {
		return
	}
	id := finding{k.code, message, pos}
	if p.seen[id] {
		return
	}
	p.seen[id] = true
	d := diag.Diagnostic{Severity: k.severity, Class: k.class, Code: k.code, Pos: pos, Width: width, Message: message, Hint: hint}
	d.Notes = append(d.Notes, notes...)
	d.Notes = append(d.Notes, p.chain...)
	if src != nil {
		d.Source = strings.Clone(src.text) // it outlives the file
		if src.junk {
			p.junk++
		}
	}
	if k.severity == diag.Fatal {
		p.list = append(p.list, d)
		p.stopped = true
		return
	}
	if p.junk > maxJunk {
		p.reportAt(notText, pos, 1, nil, "too many lines that cannot be text: this is no configuration file",
			"the rest was not looked at; check the file's name")
		return
	}
	if len(p.list) >= maxFindings {
		p.reportAt(notText, pos, 1, nil, fmt.Sprintf("more than %d findings", maxFindings),
			"the rest was not looked at; check whether this is the right file")
		return
	}
	p.list = append(p.list, d)
}

// spend counts a logical line and tells whether there may be one more.
func (p *parser) spend(l *line) bool {
	if p.stopped {
		return false
	}
	p.logicals++
	p.work += int64(len(l.text))
	const hint = "a ~SEQ loop, a definition or an include multiplies too much"
	switch {
	case p.logicals > cmp.Or(p.o.logical, maxLogical):
		p.report(tooMuch, l, 0, 1, fmt.Sprintf("the configuration comes to more than %d lines", cmp.Or(p.o.logical, maxLogical)), hint)
	case p.words > maxWords:
		p.report(tooMuch, l, 0, 1, fmt.Sprintf("the configuration comes to more than %d words", maxWords), hint)
	case p.work > maxWork:
		p.report(tooMuch, l, 0, 1, fmt.Sprintf("the configuration comes to more than %d MiB", maxWork>>20), hint)
	}
	return !p.stopped
}

// read reads the lines of an open file.
func (p *parser) read(f *file, lines *lineReader) {
	defer func(before []string) { p.chain = before }(p.chain)
	p.chain = f.chain
	f.context = context{file: f, chain: f.chain}
	start := diag.At(f.name, 0, 0)
	for num := 1; !p.stopped; num++ {
		text, long, err := lines.next()
		p.bytes += int64(max(long, len(text)))
		if text != "" {
			ph := p.lines.one()
			ph.at, ph.text = start.On(num, 1), strings.TrimRight(text, "\r\n")
			p.physical(f, ph, long)
		}
		if p.bytes > maxBytes {
			p.reportAt(tooMuch, start.On(num, 1), 1, nil,
				fmt.Sprintf("the configuration has more than %d MiB", maxBytes>>20), "check what is included")
		}
		if err != nil {
			if !errors.Is(err, io.EOF) {
				p.reportAt(cannotRead, start.On(num, 0), 1, nil,
					fmt.Sprintf("reading stopped in the middle: %v", err), "nothing is run from half a file; try again")
			}
			break
		}
	}
	p.endCollect(f)
}

// byteOrder is the mark that some editors put in front of a file.
const byteOrder = "\uFEFF"

// physical works on one line of a file.
func (p *parser) physical(f *file, ph *physical, long int) {
	if ph.at.Line == 1 && strings.HasPrefix(ph.text, byteOrder) {
		p.reportAt(byteOrderMark, ph.at, 1, ph, "the file starts with a byte order mark",
			"it is skipped; keepalived takes it for a part of the first word")
		ph.text = ph.text[len(byteOrder):]
	}
	ph.junk = isJunk(ph.text)
	at := ph.at
	switch {
	case long > 0 || len(ph.text) > maxLine:
		ph.junk = true
		p.reportAt(lineTooLong, at, 1, ph, fmt.Sprintf("the line is longer than %d bytes", maxLine),
			"it is ignored; break it up, a block may stand on several lines")
		return
	case strings.IndexByte(ph.text, 0) >= 0:
		at = ph.place(strings.IndexByte(ph.text, 0))
		p.reportAt(nulByte, at, 1, ph, "the line holds a NUL byte", "it is ignored, as keepalived does; delete the byte")
		return
	case len(ph.text) >= keepalivedLine:
		at = ph.place(keepalivedLine - 1)
		p.reportAt(longLine, at, 1, ph, fmt.Sprintf("keepalived reads at most %d bytes of a line", keepalivedLine),
			"the line is used here; keepalived would drop the part before this place and read the rest as a line of its own")
	}
	whole := whole(ph)
	l, comment := p.decomment(whole)
	c := &f.context
	if p.collecting != nil {
		p.collectLine(l, comment)
		return
	}
	if l.text != "" && !p.logical(l, c) {
		return
	}
	p.extension(comment, c)
}

// extension reads the statement in a "#sluice " comment.
func (p *parser) extension(comment line, c *context) {
	for isExtension(comment.text) && !p.stopped {
		l := comment.sub(len(extensionSign), len(comment.text))
		ext := *c
		ext.ext = true
		l, comment = p.decomment(l)
		if l.text != "" && !p.logical(l, &ext) {
			return
		}
	}
}

// isJunk tells whether a line holds what no text does: control characters, or
// bytes that are not UTF-8 in a quarter of its length (which leaves Latin-1).
func isJunk(s string) bool {
	bad := 0
	for i := 0; i < len(s); {
		switch c := s[i]; {
		case c < ' ' && !isBlank(c) || c == 0x7f:
			return true
		case c < utf8.RuneSelf:
			i++
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				bad++
			}
			i += n
		}
	}
	return bad*4 > len(s)
}

// logical works on a logical line from the condition on. It returns false when
// a condition dropped the whole line.
func (p *parser) logical(l line, c *context) bool {
	if c.depth > maxDepth {
		p.report(tooDeep, &l, 0, len(l.text), fmt.Sprintf("definitions, loops and includes nest more than %d deep", maxDepth), "")
		return true
	}
	var later []expansion // the further lines of multi-line definitions
	before := p.chain
	p.chain = c.chain
	outer := p.enterLine(c)
	done := false // substitution
	for first := true; ; first = false {
		if l = l.trim(); l.text == "" || !p.spend(&l) {
			break
		}
		if l.text[0] == '@' {
			rest, keep := p.condition(l)
			if !keep {
				p.leaveLine(outer, &l, c)
				p.expand(later, c)
				p.chain = before
				return !first
			}
			if l = rest; l.text == "" {
				break
			}
		}
		if p.define(l, c) {
			break
		}
		if l.text[0] == '~' {
			if p.loop(l, c) {
				break
			}
		} else {
			if !done {
				done = true
				l, later = p.substitute(l, c)
			}
			if l.text == "" || p.include(l, c) {
				break
			}
		}
		brace := firstBrace(l.text)
		if brace < 0 {
			p.statement(l, c)
			break
		}
		if text := l.sub(0, brace); text.trim().text != "" {
			p.statement(text.trim(), c)
		}
		if l.text[brace] == '{' {
			p.open(&l, brace)
		} else {
			p.close(&l, brace)
		}
		l = l.sub(brace+1, len(l.text))
	}
	p.leaveLine(outer, &l, c)
	p.expand(later, c)
	p.chain = before
	return true
}

// firstBrace returns where the first brace stands that is neither quoted nor
// part of a reference to a name that is not defined, or -1.
func firstBrace(s string) int {
	brace := -1
	if strings.IndexByte(s, '{') < 0 && strings.IndexByte(s, '}') < 0 {
		return brace
	}
	quotes(s, "{}", func(i int, _ bool) bool {
		k := i - 1
		if s[i] == '}' {
			k = strings.LastIndexByte(s[:i], '$')
		}
		if k >= 0 && s[k] == '$' && bracedName(s[k:]) > i-k {
			return true
		}
		brace = i
		return false
	})
	return brace
}

// condition reads "@ID rest" and "@^ID rest".
func (p *parser) condition(l line) (rest line, keep bool) {
	end := strings.IndexAny(l.text, blanks)
	if end < 0 {
		end = len(l.text)
	}
	id, not := strings.CutPrefix(l.text[1:end], "^")
	if (id == p.o.ConfigID) == not {
		return l, false
	}
	return l.sub(end, len(l.text)).trim(), true
}
