package syntax

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-lb/sluice/internal/config/diag"
)

// blocks is the tree under construction.
type blocks struct {
	top   []*Node
	stack []*Node // open, outermost first
	path  []string
	// pending is the statement that a brace would open a block of.
	pending *Node
	// floor is how many blocks were open when the current extension began: it
	// can close none of those.
	floor int
	// suspect is the first statement that can only stand where it does because
	// the block around it was left open.
	suspect, left *Node
}

// lineState is what an extension's line must leave as it found it.
type lineState struct {
	pending *Node
	floor   int
}

func (p *parser) enterLine(c *context) lineState {
	s := lineState{p.block.pending, p.block.floor}
	if c.ext {
		p.block.pending, p.block.floor = nil, len(p.block.stack)
	}
	return s
}

func (p *parser) leaveLine(s lineState, l *line, c *context) {
	if !c.ext {
		return
	}
	b := &p.block
	p.emptyBlock("the #sluice comment")
	if len(b.stack) > b.floor {
		n := b.stack[len(b.stack)-1]
		p.reportNode(extUnbalanced, n, fmt.Sprintf("the #sluice comment leaves %s open", title(n)),
			"it is closed at the end of the line; a #sluice comment ends with its line")
		for len(b.stack) > b.floor {
			p.pop(l.pos(0))
		}
	}
	b.pending, b.floor = s.pending, s.floor
}

// statement adds a statement; l is trimmed and not empty.
func (p *parser) statement(l line, c *context) {
	p.wantBrace()
	n := p.nodes.one()
	n.Raw, n.Chain, n.Extension = l.text, c.chain, c.ext
	var dropped int
	n.Words, dropped = p.split(&l)
	p.words += len(n.Words)
	if dropped >= 0 && len(n.Words) < 2 {
		// With two words in front it may be a script, whose rules differ.
		p.report(openQuote, &l, dropped, len(l.text), openQuoteText, openQuoteHint)
	}
	src, _, _ := l.origin(0)
	n.Pos, n.Source = l.pos(0), src.text
	b := &p.block
	// A statement that is no statement keeps its block, so that the braces
	// stay matched, but nobody sees it.
	if keep := p.sane(&l, n); keep {
		if len(b.stack) == 0 {
			b.top = append(b.top, n)
		} else {
			up := b.stack[len(b.stack)-1]
			up.Children = append(up.Children, n)
		}
	}
	b.pending = n
	if len(b.path) == 1 && b.path[0] == "global_defs" && len(n.Words) > 0 && n.Words[0].Text == "include_check" {
		p.includeCheck(n, src)
	}
}

// sane reports what is wrong with a statement as a piece of language, and tells
// whether it may stand in the tree.
func (p *parser) sane(l *line, n *Node) bool {
	const ignored = "the line is ignored, as keepalived does"
	switch l.text[0] {
	case '@':
		p.report(lateSign, l, 0, firstWord(l.text), "a condition must be the first thing in a line, and there can be only one",
			ignored+"; a substitution cannot produce one")
		return false
	case '~':
		p.report(lateSign, l, 0, firstWord(l.text), fmt.Sprintf("unknown loop %q", shorten(l.text[:firstWord(l.text)])),
			ignored+"; there are ~SEQ(...), ~SEQx(...) and ~LST(...), at the start of a line")
		return false
	case '$':
		end := identifier(l.text[1:]) + 1
		rest := strings.TrimLeft(l.text[end:], blanks)
		if end > 1 && strings.HasPrefix(rest, "=") {
			hint := ignored + "; write it without the blank"
			if l.text[end] == '=' {
				hint = ignored + "; a substitution cannot produce a definition"
			}
			p.report(badDefinition, l, 0, end, fmt.Sprintf("this is not a definition of $%s", shorten(l.text[1:end])), hint)
			return false
		}
	case 'i':
		if _, ok := includeVariant(l.text); ok {
			p.report(includeBare, l, 0, len(l.text), "include without a file", ignored)
			return false
		}
	}
	if strings.IndexByte(l.text, '$') >= 0 {
		p.leftovers(l)
	}
	return len(n.Words) > 0
}

func firstWord(s string) int {
	if i := strings.IndexAny(s, blanks); i >= 0 {
		return i
	}
	return len(s)
}

// opens tells whether the pending statement's keyword must have a block.
func (p *parser) opens(n *Node) bool {
	if p.o.OpensBlock == nil || len(n.Words) == 0 || n.Words[0].Quoted {
		return false
	}
	b := &p.block
	b.path = append(b.path, n.Words[0].Text)
	yes := p.o.OpensBlock(b.path)
	b.path = b.path[:len(b.path)-1]
	return yes
}

// wantBrace is called when something else than an opening brace follows the
// pending statement. If that must have a block, keepalived enters it anyway.
func (p *parser) wantBrace() {
	n := p.block.pending
	p.block.pending = nil
	if n == nil || !p.opens(n) {
		return
	}
	p.reportNode(missingOpen, n, fmt.Sprintf("missing opening brace after %s", title(n)),
		"the block is taken to start here, as keepalived does; write { at the end of the line")
	p.push(n)
}

// emptyBlock is wantBrace where nothing follows any more.
func (p *parser) emptyBlock(what string) {
	n := p.block.pending
	p.block.pending = nil
	if n == nil || !p.opens(n) {
		return
	}
	n.Block, n.End = true, n.Pos
	p.reportNode(missingOpen, n, fmt.Sprintf("missing opening brace after %s", title(n)), what+" ends here; the block is taken as empty")
}

func (p *parser) open(l *line, at int) {
	n := p.block.pending
	if n == nil {
		p.report(strayOpen, l, at, at+1, "an opening brace without a keyword in front of it",
			"it is ignored, as keepalived does; delete it", p.around()...)
		return
	}
	p.block.pending = nil
	p.suspicious(n)
	p.push(n)
}

func (p *parser) close(l *line, at int) {
	p.wantBrace()
	b := &p.block
	if len(b.stack) <= b.floor {
		hint := "it is ignored, as keepalived does; delete it, or look for an opening brace that is missing above"
		if b.floor > 0 {
			hint = "it is ignored; a #sluice comment cannot close a block that began outside it"
		}
		p.report(strayClose, l, at, at+1, "a closing brace that closes nothing", hint)
		return
	}
	p.pop(l.pos(at))
}

func (p *parser) push(n *Node) {
	b := &p.block
	n.Block = true
	keyword := ""
	if len(n.Words) > 0 {
		keyword = n.Words[0].Text
	}
	b.stack = append(b.stack, n)
	b.path = append(b.path, keyword)
	if len(b.stack) > maxDepth {
		p.reportNode(tooDeep, n, fmt.Sprintf("blocks nest more than %d deep", maxDepth), "")
	}
}

func (p *parser) pop(end diag.Pos) {
	b := &p.block
	last := len(b.stack) - 1
	b.stack[last].End = end
	b.stack, b.path = b.stack[:last], b.path[:last]
	b.pending = nil
}

// suspicious looks whether a block that is about to open belongs further out.
func (p *parser) suspicious(n *Node) {
	b := &p.block
	if b.suspect != nil || len(b.stack) == 0 || p.o.OpensBlock == nil || p.opens(n) {
		return
	}
	inner := b.path
	for k := len(inner) - 1; k >= 0 && b.suspect == nil; k-- {
		b.path = slices.Clone(inner[:k])
		if p.opens(n) {
			b.suspect, b.left = n, b.stack[len(b.stack)-1]
		}
	}
	b.path = inner
}

// atEnd closes what the last file left open.
func (p *parser) atEnd() {
	b := &p.block
	p.emptyBlock("the configuration")
	if len(b.stack) == 0 || p.stopped {
		return
	}
	n := b.stack[len(b.stack)-1]
	var notes []string
	if b.left != nil && slices.Contains(b.stack, b.left) {
		n = b.left
	}
	if b.suspect != nil && b.left != n && b.left.End.Line != 0 {
		// The block that swallowed another one took that one's brace.
		notes = append(notes, fmt.Sprintf("a brace may be missing further up: %s (%s) stands inside %s (%s)",
			title(b.suspect), lineOf(b.suspect.Pos, n.Pos), title(b.left), lineOf(b.left.Pos, n.Pos)))
	}
	if b.suspect != nil && b.left == n {
		notes = append(notes, fmt.Sprintf("%s (%s) cannot stand inside it", title(b.suspect), lineOf(b.suspect.Pos, n.Pos)))
	}
	var others []string
	for _, o := range slices.Backward(b.stack) {
		if o != n {
			others = append(others, fmt.Sprintf("%s (%s)", title(o), lineOf(o.Pos, n.Pos)))
		}
	}
	if len(others) > 0 {
		notes = append(notes, "also open at the end: "+strings.Join(others[:min(len(others), 5)], ", "))
	}
	p.reportNode(missingClose, n, fmt.Sprintf("the block of %s is never closed", title(n)),
		"nothing is run from this file, since every block behind it would be misread; write the missing }", notes...)
}

// reportNode adds a finding about a statement's keyword.
func (p *parser) reportNode(k kind, n *Node, message, hint string, notes ...string) {
	width := 1
	if len(n.Words) > 0 {
		width = int(n.Words[0].Width)
	}
	src := &physical{text: n.Source, junk: isJunk(n.Source)}
	defer func(before []string) { p.chain = before }(p.chain)
	p.chain = n.Chain
	p.reportAt(k, n.Pos, width, src, message, hint, notes...)
}

// around says which blocks are open, as a note.
func (p *parser) around() []string {
	var in []string
	for _, n := range slices.Backward(p.block.stack) {
		in = append(in, fmt.Sprintf("%s (line %d)", title(n), n.Pos.Line))
		if len(in) == 4 {
			break
		}
	}
	if len(in) == 0 {
		return nil
	}
	return []string{"in " + strings.Join(in, ", ")}
}

// title is a statement's beginning for messages: "virtual_server 192.0.2.10 80".
func title(n *Node) string {
	var b strings.Builder
	for i, w := range n.Words {
		if i == 3 || b.Len() > 60 {
			break
		}
		if i > 0 {
			b.WriteByte(' ')
		}
		b.WriteString(w.Text)
	}
	return shorten(b.String())
}

// lineOf names a line as seen from another place.
func lineOf(at, from diag.Pos) string {
	if at.SameFile(from) {
		return fmt.Sprintf("line %d", at.Line)
	}
	return fmt.Sprintf("%s:%d", at.File(), at.Line)
}
