package keyword

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/config/diag"
	"github.com/sluice-lb/sluice/internal/config/syntax"
)

// argKind is the grammar of a keyword's arguments.
type argKind int

const (
	argNone argKind = iota
	// argFlag takes no argument, as keepalived's, but warns of one like "no".
	argFlag
	argBool
	argNumber
	argTimer
	argText
	argWord
	argAddress
	argPort
	// argScript is a script with an optional user and group.
	argScript
	// argCustom is read by the keyword's own code; text is its grammar.
	argCustom
	// argAny is whatever follows a word of another daemon.
	argAny
)

// arg is a grammar with its limits.
type arg struct {
	kind     argKind
	min, max int64
	// optional arguments may be missing; the value is then missing.
	optional bool
	missing  int64
	// safe booleans are yes if the word is none: a protection that is misspelt holds.
	safe bool
	// strict numbers are refused by keepalived too when they have a tail.
	strict bool
	words  []string
	// fold compares words without regard to case.
	fold bool
	// limit is the longest text in bytes, 0 for none.
	limit int
	// text is a custom grammar for the documentation.
	text string
	// unit follows the number in the documentation.
	unit string
	// want is how many words a custom argument needs at least.
	want int
}

const (
	maxUint32 = math.MaxUint32
	maxInt32  = math.MaxInt32
	// maxTimer bounds times that keepalived does not bound, so that they fit
	// into a time.Duration.
	maxTimer = time.Duration(math.MaxUint32) * time.Second
	// maxConnect is keepalived's bound of connect_timeout.
	maxConnect = 4294967295 * time.Microsecond
)

func none() arg     { return arg{kind: argNone} }
func flag() arg     { return arg{kind: argFlag} }
func anything() arg { return arg{kind: argAny} }
func boolean() arg  { return arg{kind: argBool, optional: true} }
func onOtherwise() arg {
	return arg{kind: argBool, optional: true, safe: true}
}
func text() arg { return arg{kind: argText} }
func textMax(n int) arg {
	return arg{kind: argText, limit: n}
}
func number(lo, hi int64) arg       { return arg{kind: argNumber, min: lo, max: hi} }
func strictNumber(lo, hi int64) arg { return arg{kind: argNumber, min: lo, max: hi, strict: true} }
func timer(lo, hi time.Duration) arg {
	return arg{kind: argTimer, min: int64(lo), max: int64(hi)}
}
func words(w ...string) arg { return arg{kind: argWord, words: w} }
func foldWords(w ...string) arg {
	return arg{kind: argWord, words: w, fold: true}
}
func address() arg { return arg{kind: argAddress} }
func port() arg    { return arg{kind: argPort} }
func script() arg  { return arg{kind: argScript} }
func custom(grammar string, want int) arg {
	return arg{kind: argCustom, text: grammar, want: want}
}

func (a arg) in(unit string) arg { a.unit = unit; return a }

// String is the grammar in the documentation.
func (a arg) String() string {
	s := ""
	switch a.kind {
	case argNone, argFlag:
		return ""
	case argBool:
		return "[BOOL]"
	case argNumber:
		s = fmt.Sprintf("%d..%d", a.min, a.max)
		if a.unit != "" {
			s += " " + a.unit
		}
	case argTimer:
		s = "TIMER"
		switch {
		case a.max < int64(maxTimer):
			s += fmt.Sprintf(" %s..%s", seconds(time.Duration(a.min)), seconds(time.Duration(a.max)))
		case a.min > 0:
			s += " > 0"
		}
	case argText:
		s = "TEXT"
		if a.limit > 0 {
			s = fmt.Sprintf("TEXT of at most %d bytes", a.limit)
		}
	case argWord:
		s = strings.Join(a.words, " | ")
	case argAddress:
		s = "IP"
	case argPort:
		s = "1..65535"
	case argScript:
		s = "SCRIPT [USER [GROUP]]"
	case argCustom:
		return a.text
	}
	if a.optional {
		s = "[" + s + "]"
	}
	return s
}

// value is a parsed argument. Which fields are set follows from the grammar.
type value struct {
	n    *syntax.Node
	kw   *keyword
	w    *syntax.Word
	num  int64
	dur  time.Duration
	yes  bool
	text string
	addr netip.Addr
	argv []string
	// user and group follow a script.
	user, group string
}

// parse reads the arguments of a statement. What it cannot use it has reported.
func (f *frame) parse(kw *keyword, n *syntax.Node) (*value, bool) {
	a := kw.arg
	args := n.Args()
	v := &f.b.value // setters do not keep it
	*v = value{n: n, kw: kw, w: &n.Words[0], num: a.missing, yes: true}
	need, takes := 0, 1
	switch a.kind {
	case argNone, argFlag:
		takes = 0
	case argCustom:
		need, takes = a.want, math.MaxInt
	case argScript:
		need, takes = 1, math.MaxInt
	default:
		if !a.optional {
			need = 1
		}
	}
	if len(args) < need {
		// A quote that is never closed drops the word it stands in; keepalived
		// ignores such a script and does not call it missing.
		if _, err := syntax.SplitScript(n.Raw); err != nil && (a.kind == argScript || kw.name == "regex") {
			f.report(codeScript, n, &n.Words[0], kw.name+": "+err.Error(), "the line is ignored, as keepalived does")
			return nil, false
		}
		f.missing(n, kw)
		return nil, false
	}
	if len(args) > takes {
		if a.kind == argFlag && f.flagArgument(n, kw) {
			takes = len(args)
		}
		f.surplus(n, takes)
	}
	if takes == 0 || len(args) == 0 || a.kind == argCustom {
		return v, true
	}
	v.w = &n.Words[1]
	word := args[0].Text
	ok := true
	switch a.kind {
	case argBool:
		if v.yes, ok = f.boolWord(kw, n, v.w); a.safe && !ok {
			v.yes, ok = true, true
		}
	case argNumber:
		v.num, ok = f.number(n, v.w, a, kw.name, f.ignored(kw))
	case argTimer:
		v.dur, ok = f.timer(kw, n, v.w)
	case argText:
		v.text = word
		if a.limit > 0 && len(word) > a.limit {
			v.text = word[:a.limit]
			f.report(codeTruncated, n, v.w, fmt.Sprintf("%s %q is longer than %d bytes", kw.name, word, a.limit),
				fmt.Sprintf("cut to %q, as keepalived does", v.text))
		}
	case argWord:
		if a.fold {
			word = foldOne(word, a.words)
		}
		v.text = word
		if ok = slices.Contains(a.words, word); !ok {
			f.report(codeWord, n, v.w, fmt.Sprintf("%s: %q is not one of %s", kw.name, args[0].Text, strings.Join(a.words, ", ")),
				didYouMean(args[0].Text, a.words, f.ignored(kw)))
		}
	case argAddress:
		v.addr, ok = f.address(n, v.w, kw.name, then(f.ignored(kw)))
	case argPort:
		var p uint16
		p, ok = f.port(n, v.w, kw.name, false, then(f.ignored(kw)))
		v.num = int64(p)
	case argScript:
		ok = f.script(v)
	}
	return v, ok
}

// ignored is the usual hint for a value that was not used.
func (f *frame) ignored(kw *keyword) string {
	if kw.ignored == "" {
		kw.ignored = "the line is ignored"
		if kw.def != "" {
			kw.ignored += "; without it the default is " + kw.def
		}
	}
	return kw.ignored
}

// outcome is what becomes of a statement that cannot be used, in words that are
// put together only when they are needed: almost all statements can be used.
type outcome struct {
	text string
	// skipped is the statement whose block is passed over, nil for none.
	skipped *syntax.Node
}

func then(text string) outcome { return outcome{text: text} }

func (o outcome) String() string {
	if o.skipped != nil {
		return o.text + blockSkipped(o.skipped)
	}
	return o.text
}

func foldOne(word string, among []string) string {
	for _, w := range among {
		if strings.EqualFold(w, word) {
			return w
		}
	}
	return word
}

// boolWord reads one of keepalived's words for yes and no.
func (f *frame) boolWord(kw *keyword, n *syntax.Node, w *syntax.Word) (yes, ok bool) {
	switch w.Text {
	case "on", "true", "yes":
		return true, true
	case "off", "false", "no":
		return false, true
	}
	then := f.ignored(kw)
	if kw.arg.safe {
		then = "it counts as on, so that nothing is left unprotected by a slip"
	}
	f.report(codeBool, n, w, fmt.Sprintf("%s: %q is not one of on, off, true, false, yes, no", kw.name, w.Text),
		didYouMean(w.Text, []string{"on", "off", "true", "false", "yes", "no"}, then))
	return false, false
}

// number reads a decimal integer within the limits of a. what is its name in
// messages, then what happens when it is refused.
func (f *frame) number(n *syntax.Node, w *syntax.Word, a arg, what, then string) (int64, bool) {
	s := strings.TrimLeft(w.Text, " \t")
	num, err := strconv.ParseInt(s, 10, 64)
	if s == "" || s[0] == '+' || (err != nil && !isRange(err)) {
		hint := fmt.Sprintf("write a number within %s; %s", limits(a.min, a.max), then)
		if prefix := numericPrefix(s); !a.strict && prefix >= a.min && prefix <= a.max && !strings.HasPrefix(s, "-") {
			hint += fmt.Sprintf("; keepalived outside -t would use %d", prefix)
		}
		f.report(codeNumber, n, w, fmt.Sprintf("%s: %q is not a number", what, w.Text), hint)
		return 0, false
	}
	if err != nil || num < a.min || num > a.max {
		f.report(codeRange, n, w, fmt.Sprintf("%s %s is outside %s", what, s, limits(a.min, a.max)), then)
		return 0, false
	}
	return num, true
}

func isRange(err error) bool {
	return errors.Is(err, strconv.ErrRange)
}

// numericPrefix is what C's strtol makes of a word: its leading digits, or 0.
func numericPrefix(s string) int64 {
	end := 0
	for end < len(s) && s[end] >= '0' && s[end] <= '9' {
		end++
	}
	n, _ := strconv.ParseInt(s[:end], 10, 64)
	return n
}

// timer reads seconds with up to six decimals.
func (f *frame) timer(kw *keyword, n *syntax.Node, w *syntax.Word) (time.Duration, bool) {
	s := strings.TrimLeft(w.Text, " \t")
	within := func() string {
		return seconds(time.Duration(kw.arg.min)) + "-" + seconds(time.Duration(kw.arg.max))
	}
	whole, frac, _ := strings.Cut(s, ".")
	if (whole == "" && frac == "") || !digits(whole) || !digits(frac) {
		if strings.HasPrefix(s, "-") {
			f.report(codeRange, n, w, fmt.Sprintf("%s %s is negative and so outside %s", kw.name, s, within()), f.ignored(kw))
			return 0, false
		}
		hint := fmt.Sprintf("write seconds within %s, such as 5 or 0.25; %s", within(), f.ignored(kw))
		if us, ok := keepalivedTimer(s); ok {
			hint += fmt.Sprintf("; keepalived would wait %s: it knows seconds alone, without a unit", us)
		}
		f.report(codeTimer, n, w, fmt.Sprintf("%s: %q is not a time in seconds", kw.name, w.Text), hint)
		return 0, false
	}
	outside := func() (time.Duration, bool) {
		f.report(codeRange, n, w, fmt.Sprintf("%s %s is outside %s", kw.name, s, within()), f.ignored(kw))
		return 0, false
	}
	sec := int64(0)
	if whole != "" {
		var err error
		if sec, err = strconv.ParseInt(whole, 10, 64); err != nil || sec > int64(maxTimer/time.Second) {
			return outside()
		}
	}
	// Six decimals make microseconds; a seventh rounds.
	tenths := int64(0)
	if frac != "" {
		tenths, _ = strconv.ParseInt((frac + "0000000")[:7], 10, 64)
	}
	d := time.Duration(sec)*time.Second + time.Duration((tenths+5)/10)*time.Microsecond
	if d < time.Duration(kw.arg.min) || d > time.Duration(kw.arg.max) {
		return outside()
	}
	if len(frac) > 6 {
		f.report(codeTimerDecimals, n, w, fmt.Sprintf("%s: %s has more than six decimals", kw.name, s),
			fmt.Sprintf("rounded to %s s, as keepalived does", seconds(d)))
	}
	return d, true
}

// digits tells whether a text has nothing else.
func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return true
}

// keepalivedTimer is what keepalived makes of a time with a tail: the point is
// deleted and zeros are added for six decimals before the number is read, so
// that the tail stops the reading too early.
func keepalivedTimer(s string) (string, bool) {
	whole, frac, _ := strings.Cut(s, ".")
	digits := whole + frac
	end := 0
	for end < len(digits) && digits[end] >= '0' && digits[end] <= '9' {
		end++
	}
	if end == 0 || end == len(digits) {
		return "", false
	}
	us, err := strconv.ParseInt(digits[:end], 10, 64)
	if err != nil {
		return "", false
	}
	return fmt.Sprintf("%d µs", us), true
}

// seconds prints a duration as the language writes it.
func seconds(d time.Duration) string {
	s := strconv.FormatInt(int64(d/time.Second), 10)
	if us := int64(d % time.Second / time.Microsecond); us != 0 {
		s += "." + strings.TrimRight(fmt.Sprintf("%06d", us), "0")
	}
	return s
}

// address reads an IP address. keepalived cuts off what follows a "-" or "/".
func (f *frame) address(n *syntax.Node, w *syntax.Word, what string, then outcome) (netip.Addr, bool) {
	s := w.Text
	if i := strings.IndexAny(s, "-/"); i > 0 {
		s = s[:i]
	}
	ip, err := netip.ParseAddr(s)
	if err != nil || ip.Zone() != "" {
		hint := then.String()
		if err == nil && (what == "connect_ip" || what == "bindto") {
			hint += "; name the interface with bind_if and leave the zone away"
		}
		f.report(codeAddress, n, w, fmt.Sprintf("%s: %q is not an IP address", what, w.Text), hint)
		return netip.Addr{}, false
	}
	if s != w.Text {
		f.report(codeAddressTail, n, w, fmt.Sprintf("%s: %q is read as %s", what, w.Text, s),
			"what follows is cut off, as keepalived does in silence; a range is only for a virtual_server_group")
	}
	return ip.Unmap(), true
}

// port reads 1..65535; with zero allowed a word of zeros is 0, "no port".
func (f *frame) port(n *syntax.Node, w *syntax.Word, what string, zero bool, then outcome) (uint16, bool) {
	s := w.Text
	if zero && s != "" && strings.Trim(s, "0") == "" {
		return 0, true
	}
	p, err := strconv.ParseUint(s, 10, 64)
	switch {
	case err != nil && !isRange(err) || strings.HasPrefix(s, "+"):
		f.report(codePort, n, w, fmt.Sprintf("%s: %q is not a port", what, s), "write 1-65535; "+then.String())
		return 0, false
	case err != nil || p == 0 || p > 65535:
		f.report(codePort, n, w, fmt.Sprintf("%s: port %s is outside 1-65535", what, s), then.String())
		return 0, false
	}
	return uint16(p), true
}

// missing reports a required parameter that is not there.
func (f *frame) missing(n *syntax.Node, kw *keyword) {
	if kw.soft {
		f.report(codeMissingSoft, n, &n.Words[len(n.Words)-1], kw.name+" needs a parameter", "write "+kw.name+" "+kw.arg.String()+"; "+f.ignored(kw))
		return
	}
	hint := "the configuration cannot be used"
	if !kw.extension {
		hint += "; keepalived exits at this line"
	}
	if g := kw.arg.String(); g != "" {
		hint = "write " + kw.name + " " + g + "; " + hint
	}
	f.report(codeMissing, n, &n.Words[len(n.Words)-1], kw.name+" needs a parameter", hint)
}

// surplus warns of words after the first `takes` arguments.
func (f *frame) surplus(n *syntax.Node, takes int) {
	args := n.Args()
	if takes >= len(args) {
		return
	}
	w := args[takes]
	last := args[len(args)-1]
	d := f.diagnostic(codeSurplus, n, &w, fmt.Sprintf("%q after %s means nothing and is ignored", w.Text, n.Keyword()),
		"keepalived ignores it in silence")
	if looksLikeComment(w.Text) {
		d.Hint = fmt.Sprintf("%q does not start a comment here; write # or !", w.Text)
	}
	if last.Pos.SameLine(w.Pos) && last.Pos.Col > w.Pos.Col {
		d.Width = int(last.Pos.Col-w.Pos.Col) + wordWidth(&last)
	}
	f.b.list = append(f.b.list, d)
}

// flagArgument warns of "no" and its like after a word that only switches on,
// and tells whether it did.
func (f *frame) flagArgument(n *syntax.Node, kw *keyword) bool {
	w := &n.Words[1]
	switch strings.ToLower(w.Text) {
	case "no", "off", "false", "0":
		f.report(codeIgnoredArg, n, w, fmt.Sprintf("%s takes no argument here: %q switches it on", kw.name, kw.name+" "+w.Text),
			"delete the line to switch it off")
		return true
	case "yes", "on", "true", "1":
		return true
	}
	return false
}

func looksLikeComment(s string) bool {
	for _, p := range []string{"//", ";", "==", "--", "<--", "/*"} {
		if strings.HasPrefix(s, p) {
			return true
		}
	}
	return false
}

// maxSuggested is how many names of a configuration are looked at for suggestions.
// Ten thousand wrong names of ten thousand would take longer than all the rest.
const maxSuggested = 1_000_000

// didYouMean is didYouMean among names that the file gives.
func (b *builder) didYouMean(word string, among []string, hint string) string {
	if b.suggested += len(among); b.suggested > maxSuggested {
		return hint
	}
	return didYouMean(word, among, hint)
}

// didYouMean puts a suggestion in front of a hint.
func didYouMean(word string, among []string, hint string) string {
	near := ""
	if i := slices.IndexFunc(among, func(s string) bool { return strings.EqualFold(s, word) }); i >= 0 {
		near = among[i]
	} else if near = diag.Suggest(word, among); near == "" {
		return hint
	}
	if hint == "" {
		return fmt.Sprintf("did you mean %q?", near)
	}
	return fmt.Sprintf("did you mean %q? %s", near, hint)
}
