package http

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/dlclark/regexp2/v2"

	"github.com/sluice-lb/sluice/internal/config"
)

// Bounds of a match by backtracking, which PCRE bounds too.
const (
	// MatchTimeout ends a match that backtracks without end.
	MatchTimeout = 250 * time.Millisecond
	// backtrackSlots bounds its stack, 8 bytes a slot.
	backtrackSlots = 2 << 20
	clockPeriod    = 10 * time.Millisecond
)

func init() {
	// The default of 100 ms would make MatchTimeout that much longer. The clock's
	// goroutine ends by itself a second after the last match.
	regexp2.SetTimeoutCheckPeriod(clockPeriod)
}

// Pattern is a PCRE2 pattern, compiled for one of two engines: the standard
// library's where it decides the same (linear time), otherwise one that
// backtracks, within MatchTimeout. What neither has is refused: recursion,
// branch reset, verbs, callouts, \G, \X, Unicode properties without utf, and the
// option ucp.
//
// Without the option utf a pattern is about bytes, and letters are ASCII.
type Pattern struct {
	re   *regexp.Regexp
	full *regexp2.Regexp

	utf       bool
	firstline bool
	min, max  int // bounds of a match's first byte; max -1 for none
}

// PatternError says what is wrong with a pattern and where.
type PatternError struct {
	// Pos is the offset in bytes; -1 when an option is at fault.
	Pos int
	Msg string
}

func (e *PatternError) Error() string {
	if e.Pos < 0 {
		return e.Msg
	}
	return fmt.Sprintf("at offset %d of the pattern: %s", e.Pos, e.Msg)
}

// Compile makes a Pattern of what a url's regex keywords say. The error is a
// *PatternError. As in keepalived, offsets that contradict each other count as
// none.
func Compile(r *config.Regex) (*Pattern, error) {
	opt, err := parseOptions(r.Options)
	if err != nil {
		return nil, err
	}
	p := &Pattern{utf: opt.utf, firstline: opt.firstline, min: max(r.MinOffset, 0), max: -1}
	if r.HasMax {
		p.max = r.MaxOffset
		if p.min > p.max {
			p.min, p.max = 0, -1
		}
	}
	t, err := translate(r.Pattern, opt)
	if err != nil {
		return nil, err
	}
	if t.resetsStart && (p.min > 0 || p.max >= 0 || p.firstline) {
		return nil, &PatternError{t.resetAt, `\K together with offsets or firstline is not supported`}
	}
	// The standard library cannot look at what is before the first offset.
	if !t.needFull && (p.min == 0 || !t.looksBack) {
		// It fails for large repetitions.
		if p.re, err = regexp.Compile(t.re2.String()); err == nil {
			return p, nil
		}
	}
	p.full, err = regexp2.Compile(t.full.String(), regexp2.OptionMaxBacktrackingStackSize(backtrackSlots))
	if err != nil {
		return nil, &PatternError{-1, fmt.Sprintf("not understood after translation to %q: %v", t.full.String(), err)}
	}
	p.full.MatchTimeout = MatchTimeout
	return p, nil
}

// Linear tells whether matching takes linear time.
func (p *Pattern) Linear() bool { return p.re != nil }

// Match tells whether the subject matches within the offsets. An error means that
// there is no answer: too much backtracking, or no UTF-8 under the option utf.
func (p *Pattern) Match(subject []byte) (bool, error) {
	if p.min > len(subject) {
		return false, nil
	}
	if p.utf && !utf8.Valid(subject) {
		return false, errors.New("the answer is not valid UTF-8")
	}
	if p.utf && p.min < len(subject) && !utf8.RuneStart(subject[p.min]) {
		return false, errors.New("regex_min_offset is within a character")
	}
	start, err := p.find(subject)
	if err != nil || start < 0 {
		return false, err
	}
	if p.max >= 0 && start > p.max {
		return false, nil
	}
	if p.firstline {
		if nl := bytes.IndexByte(subject[p.min:], '\n'); nl >= 0 && start > p.min+nl {
			return false, nil
		}
	}
	return true, nil
}

// find returns where the first match begins, -1 for none.
func (p *Pattern) find(subject []byte) (int, error) {
	if p.re != nil {
		text := subject[p.min:]
		mapped := !p.utf && !ascii(text)
		if mapped {
			text = spread(text)
		}
		loc := p.re.FindIndex(text)
		switch {
		case loc == nil:
			return -1, nil
		case mapped:
			return p.min + utf8.RuneCount(text[:loc[0]]), nil
		}
		return p.min + loc[0], nil
	}
	var text []rune
	from := p.min
	if p.utf {
		text = bytes.Runes(subject)
		from = utf8.RuneCount(subject[:p.min])
	} else {
		text = make([]rune, len(subject))
		for i, b := range subject {
			text[i] = byteRune(int(b))
		}
	}
	m, err := p.full.FindRunesMatchStartingAt(text, from)
	if err != nil || m == nil {
		return -1, err
	}
	if !p.utf {
		return m.RuneIndex, nil
	}
	n := 0
	for _, r := range text[:m.RuneIndex] {
		n += utf8.RuneLen(r)
	}
	return n, nil
}

// highBytes is where the bytes from 0x80 are put for engines that know characters
// only: a private area, in which nothing is a letter, a blank or another's upper
// case, as those bytes are for PCRE without utf.
const highBytes = 0xe000

// byteRune is the character that stands for a byte.
func byteRune(b int) rune {
	if b < 0x80 {
		return rune(b)
	}
	return highBytes + rune(b)
}

// spread writes each byte as its character, in UTF-8.
func spread(p []byte) []byte {
	out := make([]byte, 0, len(p)+len(p)/2)
	for _, b := range p {
		out = utf8.AppendRune(out, byteRune(int(b)))
	}
	return out
}

func ascii(p []byte) bool {
	for _, b := range p {
		if b >= 0x80 {
			return false
		}
	}
	return true
}

// options are the words of regex_options, and of (?...) in a pattern.
type options struct {
	caseless, multiline, dotall, extended, ungreedy, noAutoCapture bool // scoped

	emptyClass, altBsux, altCircumflex, dollarEndonly, firstline, matchUnset, utf, neverC bool
}

func parseOptions(words []string) (o options, err error) {
	neverUTF := false
	for _, w := range words {
		switch w {
		case "caseless":
			o.caseless = true
		case "multiline":
			o.multiline = true
		case "dotall":
			o.dotall = true
		case "extended":
			o.extended = true
		case "ungreedy":
			o.ungreedy = true
		case "no_auto_capture":
			o.noAutoCapture = true
		case "allow_empty_class":
			o.emptyClass = true
		case "alt_bsux":
			o.altBsux = true
		case "alt_circumflex":
			o.altCircumflex = true
		case "dollar_endonly":
			o.dollarEndonly = true
		case "firstline":
			o.firstline = true
		case "match_unset_backref":
			o.matchUnset = true
		case "utf":
			o.utf = true
		case "never_backslash_c":
			o.neverC = true
		case "never_utf":
			neverUTF = true
		case "dupnames":
			// Allows what is refused where it is used.
		case "auto_callout", "no_auto_possess", "no_dotstar_anchor", "no_start_optimize",
			"use_offset_limit", "alt_verbnames", "never_ucp":
			// No effect on what matches: no callout is installed, verbs are refused,
			// offsets work in any case.
		case "ucp":
			return o, &PatternError{-1, "regex option ucp is not supported"}
		default:
			return o, &PatternError{-1, fmt.Sprintf("regex option %q is not known", w)}
		}
	}
	if o.utf && neverUTF {
		return o, &PatternError{-1, "regex options utf and never_utf contradict each other"}
	}
	return o, nil
}
