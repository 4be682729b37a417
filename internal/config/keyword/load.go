package keyword

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// frame is an open block: what its statements act on.
type frame struct {
	b *builder
	// n opened the block; nil at the top.
	n     *syntax.Node
	block string
	// words are those of its kind of block.
	words  map[string]*keyword
	parent *frame
	// seen holds the statements of keywords that must not stand twice: few.
	seen []once

	vs  *rawVirtual
	rs  *rawReal
	ck  *rawChecker
	url *rawURL
	grp *rawGroup
	trk *rawTrack
	ssl *config.SSL
}

// once is a keyword that was given.
type once struct {
	kw *keyword
	n  *syntax.Node
}

// builder is one run over one tree.
type builder struct {
	index *index
	raw   raw
	list  diag.List
	top   *frame
	pool  pool
	// value is that of the statement at work.
	value value

	// once collects what is reported one time for the file.
	ignored []*syntax.Node
	// bfds are the names of bfd_instance blocks so far, in order in bfdNames.
	bfds      map[string]bool
	bfdNames  []string
	unserved  []*unserved
	extension *syntax.Node
	extFrame  *frame
	scripts   []scriptAt
	// silent are UDP checks that nothing else makes up for.
	silent []*rawChecker
	// suggested is how many names were looked at for suggestions.
	suggested int
	// viaOwn are checkers that check_via leaves alone, viaTold the lines of it that
	// cannot be followed.
	viaOwn  []*rawChecker
	viaTold map[said]bool
	// globalTracks are the names of track files that global_defs uses.
	globalTracks []string
	// trackUsers are the names of track files in use.
	trackUsers map[string]bool
}

// unserved is a feature that the file asks for and this daemon has not.
type unserved struct {
	feature string
	f       *frame
	n       *syntax.Node
	words   []string
	count   int
}

type scriptAt struct {
	f *frame
	n *syntax.Node
}

// build reads a tree. The configuration is whole even when the list holds
// fatal findings; whether it may be used is the caller's decision.
func build(x *index, tree *syntax.Tree) (*config.Config, diag.List) {
	b := &builder{index: x, bfds: map[string]bool{}}
	b.raw.groups = map[string]*rawGroup{}
	b.raw.tracks = map[string]*rawTrack{}
	b.raw.global.DrainInterval = config.DefaultDrainInterval
	b.raw.global.UDPDrainTimeout = config.DefaultUDPDrainTimeout
	b.raw.global.CheckerThreads = config.DefaultCheckerThreads
	b.raw.global.ReconcileInterval = config.DefaultReconcileInterval
	b.raw.global.StopTimeout = config.DefaultStopTimeout
	b.raw.global.ManageSysctls = true
	b.raw.global.DepartureHold = config.DefaultDepartureHold
	b.raw.global.ShareChecks = true
	hostDefaults(&b.raw.global)
	b.raw.global.Mail.Timeout = defaultMailTimeout
	b.raw.global.StartupTimeout, b.raw.global.ShutdownTimeout = defaultScriptTimeout, defaultScriptTimeout
	b.top = &frame{b: b, words: x.blocks[blockTop]}
	b.top.statements(tree.Nodes)
	cfg := b.resolve()
	cfg.Files = tree.Files
	b.pool.own(cfg)
	b.finish()
	return cfg, b.list
}

func (f *frame) statements(nodes []*syntax.Node) {
	for _, n := range nodes {
		f.statement(n)
	}
}

// statement reads one statement of an open block.
func (f *frame) statement(n *syntax.Node) {
	kw := f.words[n.Keyword()]
	switch {
	case kw == nil:
		f.unknown(n)
		return
	case n.Extension && !kw.extension:
		f.report(codeNotExtension, n, &n.Words[0], fmt.Sprintf("%s is not an extension of sluice and has no place in a #sluice comment", kw.name),
			"the comment is ignored; write the keyword outside a comment")
		return
	case kw.extension && !n.Extension && f.b.extension == nil:
		f.b.extension, f.b.extFrame = n, f
	}
	if kw.old != "" && kw.status != Skipped {
		f.deprecated(kw, n)
	}
	switch kw.status {
	case Accepted:
		if kw.arg.kind == argAny {
			if kw.set != nil {
				f.b.value = value{n: n, kw: kw}
				kw.set(f, &f.b.value)
			}
			return
		}
	case Skipped:
		f.b.ignored = append(f.b.ignored, n)
		if kw.name == blockBFDInstance && len(n.Args()) > 0 {
			name := n.Args()[0].Text
			f.b.bfds[name], f.b.bfdNames = true, append(f.b.bfdNames, name)
		}
		f.swallowed(n, n)
		return
	case NotServed:
		f.b.notServed(f, kw, n)
	}
	if kw.opens != "" {
		f.enter(kw, n)
		return
	}
	if n.Block {
		f.report(codeBlock, n, &n.Words[0], fmt.Sprintf("%s takes no block", kw.name), "the line itself is used; "+blockSkipped(n))
	}
	if f.twice(kw, n) {
		return
	}
	v, ok := f.parse(kw, n)
	if !ok {
		return
	}
	if kw.dup == lastReported || kw.dup == firstWins {
		f.remember(kw, n)
	}
	if kw.set != nil {
		kw.set(f, v)
	}
}

// twice applies the rule for a repeated keyword; it tells whether to skip this
// one. A first one that could not be read does not count.
func (f *frame) twice(kw *keyword, n *syntax.Node) bool {
	if kw.dup != lastReported && kw.dup != firstWins {
		return false
	}
	before := f.given(kw)
	if before == nil {
		return false
	}
	hint := "the last one is used, as keepalived does"
	if kw.dup == firstWins {
		hint = "the first one is used, as keepalived does"
	}
	f.report(codeDuplicate, n, &n.Words[0], kw.name+" is given twice", hint, "the first one is on "+lineOf(before.Pos, n.Pos))
	return kw.dup == firstWins
}

func (f *frame) remember(kw *keyword, n *syntax.Node) {
	for i := range f.seen {
		if f.seen[i].kw == kw {
			f.seen[i].n = n
			return
		}
	}
	f.seen = append(f.seen, once{kw, n})
}

// given returns where a keyword was given before, nil if it was not.
func (f *frame) given(kw *keyword) *syntax.Node {
	for _, s := range f.seen {
		if s.kw == kw {
			return s.n
		}
	}
	return nil
}

// enter reads a block.
func (f *frame) enter(kw *keyword, n *syntax.Node) {
	if !n.Block {
		f.report(codeBlock, n, &n.Words[0], fmt.Sprintf("%s needs a block in braces", kw.name), "it is read as an empty one")
	}
	child := &frame{b: f.b, n: n, block: kw.opens, words: kw.inside, parent: f, vs: f.vs, rs: f.rs, ck: f.ck}
	if kw.arg.kind == argCustom && len(n.Args()) < kw.arg.want {
		f.missing(n, kw)
		return
	}
	if kw.arg.kind == argNone {
		f.surplus(n, 0)
	}
	if kw.open != nil && !kw.open(f, n, child) {
		return
	}
	if !free(kw.opens) {
		child.statements(n.Children)
	}
	if kw.close != nil {
		kw.close(child)
	}
}

// unknown reports a word that keepalived does not know here.
func (f *frame) unknown(n *syntax.Node) {
	name := n.Keyword()
	what := ""
	if f.n != nil {
		what = " in " + title(f.n)
	}
	var hint string
	switch homes := f.b.index.homes(name); {
	case looksLikeComment(name):
		hint = fmt.Sprintf("%q does not start a comment; write # or !", name)
	case instead(f.block, name) != "":
		hint = instead(f.block, name)
	case len(homes) > 0:
		for i, h := range homes {
			if h == blockTop {
				homes[i] = "the top level"
			}
		}
		hint = fmt.Sprintf("%s is a keyword of %s", name, enumerate(homes))
	default:
		hint = didYouMean(name, f.b.index.names(f.block), "")
	}
	if n.Extension && hint == "" {
		hint = "no extension of sluice has this name"
	}
	f.report(codeUnknown, n, &n.Words[0], fmt.Sprintf("unknown keyword %q%s", name, what), join("; ", hint, blockSkipped(n)))
}

// instead answers for words of old releases, of other programs and of rumour.
func instead(block, name string) string {
	switch name {
	case "nb_get_retry":
		return "write retry; nb_get_retry is only for HTTP_GET and SSL_GET"
	case "lvs_id":
		return `did you mean "router_id"? very old releases called it lvs_id`
	case "delay":
		if block != blockGlobal && block != blockTop {
			return `did you mean "delay_loop"?`
		}
	case "nat_mask", "net_mask":
		return "keepalived has no such setting any more"
	case "lb_kind":
		if block == blockReal {
			return "write lvs_method here"
		}
	case "lb_algo":
		if block == blockReal {
			return "the scheduler belongs to the virtual_server"
		}
	case "quorum_max":
		return "there is no such keyword for virtual servers"
	case "dynamic":
		if block == blockFile {
			return "the manual names it, but keepalived never had it; a weight does this"
		}
	case "connect_timeout":
		if block == blockMisc {
			return "write misc_timeout here"
		}
	}
	return ""
}

// blockSkipped says how far an unused statement reaches.
func blockSkipped(n *syntax.Node) string {
	if !n.Block {
		return "the line is ignored"
	}
	if n.End.Line == 0 || n.End.Line == n.Pos.Line {
		return "its block is skipped"
	}
	return fmt.Sprintf("its block is skipped, to the closing brace on %s", lineOf(n.End, n.Pos))
}

// swallowed looks in a skipped block for what can only be there because a brace
// is missing.
func (f *frame) swallowed(n, outer *syntax.Node) {
	for _, c := range n.Children {
		switch c.Keyword() {
		case blockVirtual, blockGroup, blockGlobal:
			if !c.Block {
				continue
			}
			f.report(codeInSkipped, c, &c.Words[0], fmt.Sprintf("%s stands inside %s, which is not for this daemon", title(c), title(outer)),
				fmt.Sprintf("it is skipped too; close the block of %s (%s) before it", outer.Keyword(), lineOf(outer.Pos, c.Pos)))
			continue
		}
		f.swallowed(c, outer)
	}
}

// notServed counts a keyword of a feature that is not built.
func (b *builder) notServed(f *frame, kw *keyword, n *syntax.Node) {
	for _, u := range b.unserved {
		if u.feature != kw.feature {
			continue
		}
		u.count++
		if !slices.Contains(u.words, kw.name) {
			u.words = append(u.words, kw.name)
		}
		return
	}
	b.unserved = append(b.unserved, &unserved{feature: kw.feature, f: f, n: n, words: []string{kw.name}, count: 1})
}

// finish reports what is said once for a file.
func (b *builder) finish() {
	for _, u := range b.unserved {
		meaning := meanings[u.feature]
		msg := fmt.Sprintf("%s: %s not served yet", u.feature, beVerb(u.words))
		if u.feature == u.words[0] {
			msg = u.feature + " is not served yet"
		}
		d := u.f.diagnostic(codeNotServed, u.n, &u.n.Words[0], msg, meaning)
		if u.count > 1 {
			d.Notes = append([]string{fmt.Sprintf("and %d more in this configuration", u.count-1)}, d.Notes...)
		}
		b.list = append(b.list, d)
	}
	if n := b.extension; n != nil {
		b.extFrame.report(codeExtension, n, &n.Words[0], fmt.Sprintf("%s is an extension of sluice", n.Keyword()),
			"keepalived would reject this word; in a shared file write it as a comment: #sluice "+n.Raw)
	}
	if len(b.ignored) > 0 {
		b.ignoredNotice()
	}
	b.silentNotice()
	b.viaOwnNotice()
	if !b.raw.security && len(b.scripts) > 0 {
		s := b.scripts[0]
		s.f.report(codeSecurity, s.n, &s.n.Words[0], "scripts are configured without enable_script_security",
			"write enable_script_security in global_defs, so that a script which others may change is not run")
	}
}

// ignoredNotice lists the blocks that were passed over.
func (b *builder) ignoredNotice() {
	var names []string
	count := map[string]int{}
	for _, n := range b.ignored {
		if count[n.Keyword()]++; count[n.Keyword()] == 1 {
			names = append(names, n.Keyword())
		}
	}
	for i, name := range names {
		if c := count[name]; c > 1 {
			names[i] = fmt.Sprintf("%s (%d times)", name, c)
		}
	}
	n := b.ignored[0]
	b.top.report(codeIgnoredBlocks, n, &n.Words[0], "the VRRP, BFD and static address parts are not handled by this daemon: "+strings.Join(names, ", "),
		"they are skipped; leave them to keepalived -P or another daemon")
}

func beVerb(words []string) string {
	if len(words) == 1 {
		return words[0] + " is"
	}
	return enumerate(words) + " are"
}

// enumerate joins words as "a, b and c".
func enumerate(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}

// join puts parts together; after a question the separator is left out.
func join(sep string, parts ...string) string {
	var kept []string
	for _, p := range parts {
		if p != "" {
			kept = append(kept, p)
		}
	}
	return strings.ReplaceAll(strings.Join(kept, sep), "?"+sep, "? ")
}
