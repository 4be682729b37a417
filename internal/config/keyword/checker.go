package keyword

import (
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

func openChecker(kind config.CheckerKind) func(*frame, *syntax.Node, *frame) bool {
	return func(_ *frame, n *syntax.Node, child *frame) bool {
		child.ck = &rawChecker{f: child, kind: kind}
		switch kind {
		case config.FileCheck:
			child.ck.file = &rawTrackUse{n: n}
		case config.HTTPGet, config.SSLGet:
			child.ck.rawHTTP = &rawHTTP{}
		case config.TCPCheck, config.PingCheck:
		default:
			child.ck.rawOther = &rawOther{}
		}
		return true
	}
}

func closeChecker(child *frame) {
	if u := child.ck.file; u != nil {
		u.late = child.b.raw.tracks[u.name] == nil
	}
	child.judgeTLS()
	child.ck.seenTimeout = inherited(child.rs.timeout, child.vs.timeout)
	child.rs.checkers = append(child.rs.checkers, child.ck)
}

// closeBFD judges the name of a BFD_CHECK, which is not run.
func closeBFD(child *frame) {
	const dropped = "keepalived drops the check; BFD_CHECK is not served here in any case"
	switch c := child.ck; {
	case c.bfd == "":
		child.reportBlock(codeBFD, "a BFD_CHECK without name", dropped)
	case !child.b.bfds[c.bfd]:
		child.report(codeBFD, c.bfdAt, &c.bfdAt.Words[1], fmt.Sprintf("there is no bfd_instance %s before this line", c.bfd), child.b.didYouMean(c.bfd, child.b.bfdNames, dropped))
	case slices.Contains(child.rs.bfds, c.bfd):
		child.report(codeBFD, c.bfdAt, &c.bfdAt.Words[1], fmt.Sprintf("bfd_instance %s has a BFD_CHECK in this real server already", c.bfd), dropped)
	default:
		child.rs.bfds = append(child.rs.bfds, c.bfd)
	}
}

func setConnectIP(f *frame, v *value) { f.ck.ip = v.addr }

func openURL(f *frame, n *syntax.Node, child *frame) bool {
	child.url = &rawURL{f: child, url: config.URL{Pos: n.Pos}}
	return true
}

// closeURL assembles the url; without a path it is dropped.
func closeURL(child *frame) {
	u := child.url
	if u.url.Path == "" {
		child.reportBlock(codeURL, "a url without path", "this url is dropped, as keepalived does")
		return
	}
	if len(u.url.Status) == 0 {
		u.url.Status = []config.StatusRange{{First: 200, Last: 299}}
	}
	switch {
	case u.regex != nil:
		u.regex.NoMatch, u.regex.Options = u.noMatch, u.options
		u.regex.MinOffset, u.regex.MaxOffset, u.regex.HasMax = u.min, u.max.v, u.max.ok
		if u.max.ok && u.min > u.max.v {
			child.report(codeRegexOffsets, u.offsetsAt, &u.offsetsAt.Words[0], fmt.Sprintf("regex_min_offset %d is above regex_max_offset %d", u.min, u.max.v), "both are ignored, as keepalived does")
			u.regex.MinOffset, u.regex.MaxOffset, u.regex.HasMax = 0, 0, false
		}
		u.url.Regex = u.regex
	case u.settingsAt != nil && !u.regexInvalid:
		child.report(codeRegexParts, u.settingsAt, &u.settingsAt.Words[0], u.settingsAt.Keyword()+" without a regex", "it has no effect")
	}
	child.ck.urls = append(child.ck.urls, u)
}

func setDigest(f *frame, v *value) {
	b, err := hex.DecodeString(v.text)
	if err != nil || len(b) != 16 {
		f.report(codeHex, v.n, v.w, fmt.Sprintf("digest %q is not 32 hexadecimal digits", v.text), "the line is ignored: the body is not looked at; sluice and genhash print an MD5")
		return
	}
	copy(f.url.url.Digest[:], b)
	f.url.url.HasDigest = true
}

// setStatus reads codes, ranges and, as an extension, classes such as 2xx.
func setStatus(f *frame, v *value) {
	args := v.n.Args()
	for i := range args {
		w := &args[i]
		r, class, ok := parseStatus(w.Text)
		if !ok {
			f.report(codeStatusCode, v.n, w, fmt.Sprintf("status_code: %q is not NNN or NNN-NNN within 100-599", w.Text), "it is ignored")
			continue
		}
		if class {
			f.report(codeStatusClass, v.n, w, fmt.Sprintf("status_code %s is read as %d-%d", w.Text, r.First, r.Last), "keepalived would reject it; write the range")
		}
		f.url.url.Status = append(f.url.url.Status, r)
	}
}

func parseStatus(s string) (r config.StatusRange, class, ok bool) {
	if len(s) == 3 && strings.EqualFold(s[1:], "xx") && s[0] >= '1' && s[0] <= '5' {
		d := int(s[0]-'0') * 100
		return config.StatusRange{First: d, Last: d + 99}, true, true
	}
	a, b, isRange := strings.Cut(s, "-")
	if !isRange {
		b = a
	}
	r.First, r.Last = statusNumber(a), statusNumber(b)
	return r, false, r.First > 0 && r.Last >= r.First
}

func statusNumber(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || len(s) != 3 || n < 100 || n > 599 {
		return 0
	}
	return n
}

// setRegex reads the pattern by the script tokeniser, with escapes.
func setRegex(f *frame, v *value) {
	words, err := syntax.SplitArgv(v.n.Raw)
	if err != nil || len(words) < 2 || words[1] == "" {
		why := "it is empty"
		if err != nil {
			why = err.Error()
		}
		f.report(codeScript, v.n, &v.n.Words[1], "regex: the pattern cannot be read: "+why, "it is ignored; write regex PATTERN")
		f.url.regexInvalid = true
		return
	}
	if len(words) > 2 {
		f.report(codeSurplus, v.n, &v.n.Words[1], fmt.Sprintf("regex: %q after the pattern means nothing and is ignored", words[2]), "keepalived ignores it in silence; a pattern with blanks needs quotes")
	}
	f.url.regex = &config.Regex{Pos: v.n.Pos, Pattern: words[1]}
}

var regexOptions = strings.Fields(`allow_empty_class alt_bsux auto_callout caseless dollar_endonly dotall dupnames
extended firstline match_unset_backref multiline never_ucp never_utf no_auto_capture no_auto_possess
no_dotstar_anchor no_start_optimize ucp ungreedy utf never_backslash_c alt_circumflex alt_verbnames use_offset_limit`)

func setRegexOptions(f *frame, v *value) {
	f.url.settingsAt = v.n
	args := v.n.Args()
	for i := range args {
		if !slices.Contains(regexOptions, args[i].Text) {
			f.report(codeRegexOption, v.n, &args[i], fmt.Sprintf("regex_options: %q is not an option", args[i].Text),
				didYouMean(args[i].Text, regexOptions, "it is ignored, as keepalived does in silence; there are "+strings.Join(regexOptions, ", ")))
			continue
		}
		f.url.options = append(f.url.options, args[i].Text)
	}
}

// useWeight reads N [reverse|noreverse] of a track file's use.
func (f *frame) useWeight(u *rawTrackUse, n *syntax.Node, args []syntax.Word) {
	num, ok := f.number(n, &args[0], number(-maxInt32, maxInt32), "weight", "it is ignored; the track_file's weight is used")
	if !ok {
		return
	}
	u.weight.set(num)
	if len(args) == 1 {
		return
	}
	switch args[1].Text {
	case "reverse":
		u.reverse = true
	case "noreverse":
		u.reverse = false
	default:
		f.report(codeWord, n, &args[1], fmt.Sprintf("weight: %q is not one of reverse, noreverse", args[1].Text), "it is ignored")
	}
}
