package http

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/dlclark/regexp2/v2"
	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
)

// TestPatternsMatchAsPCRE2 compares with recorded answers of the library that
// keepalived uses.
func TestPatternsMatchAsPCRE2(t *testing.T) {
	f, err := os.Open("testdata/pcre2.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	unquote := func(s string) string {
		t.Helper()
		u, err := strconv.Unquote(s)
		if err != nil {
			t.Fatalf("%s: %v", s, err)
		}
		return u
	}
	type subject struct {
		start int
		text  string
	}
	var subjects []subject
	patterns, linear := 0, 0
	for lines := bufio.NewScanner(f); lines.Scan(); {
		w := strings.Split(lines.Text(), "\t")
		switch w[0] {
		case "S":
			n, _ := strconv.Atoi(w[1])
			subjects = append(subjects, subject{n, unquote(w[2])})
		case "P":
			patterns++
			opts, pattern, want := strings.Fields(w[1]), unquote(w[2]), strings.Fields(w[3])
			for i, s := range subjects {
				if want[i] == "." {
					continue
				}
				r := &config.Regex{Pattern: pattern, Options: opts, MinOffset: s.start}
				p, err := Compile(r)
				if err != nil {
					if s.start > 0 && strings.Contains(pattern, `\K`) {
						continue
					}
					t.Errorf("%v %q: %v", opts, pattern, err)
					break
				}
				if p.Linear() && s.start == 0 && i == 0 {
					linear++
				}
				got, err := p.find([]byte(s.text))
				if err != nil {
					t.Errorf("%v %q on %q: %v", opts, pattern, s.text, err)
					continue
				}
				if ok, _ := p.Match([]byte(s.text)); ok != (want[i] != "-1") {
					t.Errorf("%v %q on %q from %d: match %v, PCRE2 says %s", opts, pattern, s.text, s.start, ok, want[i])
				} else if ok && !strings.Contains(pattern, `\K`) && strconv.Itoa(got) != want[i] {
					t.Errorf("%v %q on %q from %d: begins at %d, PCRE2 says %s", opts, pattern, s.text, s.start, got, want[i])
				}
			}
		}
	}
	if patterns < 250 || len(subjects) < 25 {
		t.Errorf("only %d patterns and %d subjects", patterns, len(subjects))
	}
	if linear < patterns/2 {
		t.Errorf("only %d of %d patterns match in linear time", linear, patterns)
	}
	t.Logf("%d patterns, %d linear, %d subjects", patterns, linear, len(subjects))
}

func TestRefusedPatternsNameThePlace(t *testing.T) {
	tests := []struct {
		options, pattern string
		pos              int
		message          string
	}{
		{"", `ab(?R)`, 2, "recursion is not supported"},
		{"", `a(b)(?1)`, 4, "recursion"},
		{"", `(?<n>a)(?&n)`, 7, "recursion"},
		{"", `(?P<n>a)(?P>n)`, 8, "recursion"},
		{"", `(a)(?-1)`, 3, "recursion"},
		{"", `(a)(?+1)`, 3, "recursion"},
		{"", `(a)\g<1>`, 3, "recursion"},
		{"", `(?|a|b)`, 0, "branch reset"},
		{"", `(*UTF)a`, 0, "verbs"},
		{"", `a(*SKIP)`, 1, "verbs"},
		{"", `a(?C1)b`, 1, "callouts"},
		{"", `a\Gb`, 1, `\G is not supported`},
		{"", `a\Xb`, 1, `\X is not supported`},
		{"", `\pL`, 0, "only supported with the option utf"},
		{"utf", `é\p{Nope}`, 2, `property "Nope"`},
		{"utf", `a\p{L`, 1, "without an end"},
		{"utf", `a\p`, 1, "needs a property"},
		{"utf", "a\xff", 1, "not valid UTF-8"},
		{"utf", `\x{d800}`, 0, "does not exist"},
		{"utf", `\C`, 0, `\C is not supported`},
		{"never_backslash_c", `\C`, 0, `\C is not supported`},
		{"", `\x{100}`, 0, "does not exist in this mode"},
		{"", `\x{zz}`, 0, "hexadecimal"},
		{"", `\o{9}`, 0, "octal"},
		{"", `\o1`, 0, "brace"},
		{"", `a\N{U+41}`, 1, `\N{...}`},
		{"", `a\y`, 1, `escape \y is not known`},
		{"", `a\u0041`, 1, `escape \u is not known`},
		{"", `a\`, 1, "at the end"},
		{"", `a[\`, 2, "at the end"},
		{"", `a\c`, 1, "printable"},
		{"", `a[b`, 1, "class without an end"},
		{"", `a[]`, 1, "class without an end"},
		{"", `[z-a]`, 1, `range "z-a" is upside down`},
		{"", `[a-\d]`, 1, "ends with a set"},
		{"", `[\d-z]`, 1, "begins with a set"},
		{"", `[[:nope:]]`, 1, "[:nope:] is not known"},
		{"", `[[.a.]]`, 1, "collating"},
		{"", `[a\R]`, 2, "does not exist in a class"},
		{"", `a(b`, 1, "group without an end"},
		{"", `a(?:b`, 1, "group without an end"},
		{"", `a(?i`, 1, "group without an end"},
		{"", `a)b`, 1, "unmatched closing"},
		{"", `(?#a`, 0, "comment without an end"},
		{"", `(?<n`, 0, "name without an end"},
		{"", `(?<1>a)`, 0, "not valid"},
		{"", `(?P=n`, 0, "without an end"},
		{"", `(?z)`, 0, "is not known"},
		{"", `(?xx)a`, 0, "xx"},
		{"", `(?i--m)`, 0, "two hyphens"},
		{"", `*a`, 0, "nothing to repeat"},
		{"", `a**`, 2, "follows a quantifier"},
		{"", `a{2}{3}`, 4, "follows a quantifier"},
		{"", `^*`, 1, "cannot be repeated"},
		{"", `a{3,2}`, 1, "upside down"},
		{"", `a{70000}`, 1, "beyond 65535"},
		{"", `a{1,99999999999999999999}`, 1, "beyond 65535"},
		{"", `(a)\2`, 3, "reference to group 2, there are 1"},
		{"", `\99999999999999999999`, 0, "too large"},
		{"", `a\k<n>`, 1, `no group named "n"`},
		{"", `a\k1`, 1, "needs a group"},
		{"", `a\g`, 1, "needs a group"},
		{"", `a\g{-1}`, 1, "refers to no group"},
		{"", `a\g{0}`, 1, "refers to no group"},
		{"", `(?<n>a)(?<n>b)`, 7, "two groups named"},
		{"", `(?(<n>)a)`, 0, "condition (<n>) is not supported"},
		{"", `(?(?=a)b|c)`, 0, "condition (?=a"},
		{"", `(a)(?(1)b|c|d)`, 3, "more than two branches"},
		{"", `(a)(?(1)b`, 3, "group without an end"},
		{"", `(?(1`, 0, "condition without an end"},
		{"", strings.Repeat("(", 300) + strings.Repeat(")", 300), 250, "nested"},
		{"ucp", `a`, -1, "ucp is not supported"},
		{"utf never_utf", `a`, -1, "contradict"},
		{"nosuch", `a`, -1, `"nosuch" is not known`},
	}
	for _, tt := range tests {
		_, err := Compile(&config.Regex{Pattern: tt.pattern, Options: strings.Fields(tt.options)})
		e, ok := errors.AsType[*PatternError](err)
		if !ok {
			t.Errorf("%q %q: %v, want an error", tt.options, tt.pattern, err)
			continue
		}
		if e.Pos != tt.pos || !strings.Contains(e.Error(), tt.message) {
			t.Errorf("%q %q: at %d: %v\nwant at %d: ...%s", tt.options, tt.pattern, e.Pos, e, tt.pos, tt.message)
		}
	}
}

func TestOffsets(t *testing.T) {
	tests := []struct {
		pattern, subject string
		options          string
		min, max         int // max -1: none
		want             bool
	}{
		{"b", "abab", "", 0, -1, true},
		{"b", "abab", "", 2, -1, true},
		{"b", "abab", "", 4, -1, false},
		{"b", "abab", "", 5, -1, false},
		{"b", "abab", "", 0, 1, true},
		{"b", "abab", "", 0, 0, false},
		{"b", "abab", "", 2, 3, true},
		{"b", "aba", "", 2, 3, false},
		{"^a", "aa", "", 1, -1, false},
		{`\ba`, "aa a", "", 1, 2, false},
		{`\ba`, "aa a", "", 1, 3, true},
		{"(?<=a)b", "ab", "", 1, 1, true},
		{"b", "\xff\xffb", "", 1, 2, true},
		{"b", "\xff\xffb", "", 0, 1, false},
		{"(b)(?=c)", "\xff\xffbc", "", 1, 2, true},
		{"(b)(?=c)", "\xff\xffbc", "", 0, 1, false},
		{"b", "éb", "utf", 2, 2, true},
		{"(b)(?=c)", "ébc", "utf", 2, 2, true},
		{"(b)(?=c)", "ébc", "utf", 0, 1, false},
		// Contradicting offsets count as none.
		{"a", "a", "", 5, 3, true},
	}
	for _, tt := range tests {
		r := &config.Regex{Pattern: tt.pattern, Options: strings.Fields(tt.options), MinOffset: tt.min, MaxOffset: tt.max, HasMax: tt.max >= 0}
		p, err := Compile(r)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := p.Match([]byte(tt.subject)); got != tt.want || err != nil {
			t.Errorf("%q on %q [%d, %d]: %v, %v, want %v", tt.pattern, tt.subject, tt.min, tt.max, got, err, tt.want)
		}
	}
	if _, err := Compile(&config.Regex{Pattern: `a\Kb`, MinOffset: 1}); err == nil || !strings.Contains(err.Error(), "offset 1 of the pattern") {
		t.Errorf(`\K with offsets: %v`, err)
	}
}

func TestMatchErrors(t *testing.T) {
	p, err := Compile(&config.Regex{Pattern: "a", Options: []string{"utf"}, MinOffset: 1})
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range []string{"\xff", "éa"} {
		if ok, err := p.Match([]byte(s)); ok || err == nil {
			t.Errorf("%q: %v, %v, want an error", s, ok, err)
		}
	}
	// Exponential for a backtracking engine; the look-ahead keeps it there.
	p, err = Compile(&config.Regex{Pattern: `(?=x)(x+x+)+y`})
	if err != nil {
		t.Fatal(err)
	}
	if p.Linear() {
		t.Fatal("look-ahead in linear time")
	}
	if ok, err := p.Match([]byte(strings.Repeat("x", 5000))); ok || err == nil {
		t.Errorf("catastrophic pattern: %v, %v, want an error", ok, err)
	}
}

func TestLargeRepetitionsStillWork(t *testing.T) {
	p, err := Compile(&config.Regex{Pattern: `^a{1500}$`})
	if err != nil {
		t.Fatal(err)
	}
	for n, want := range map[int]bool{1499: false, 1500: true, 1501: false} {
		if ok, err := p.Match([]byte(strings.Repeat("a", n))); ok != want || err != nil {
			t.Errorf("%d: %v, %v", n, ok, err)
		}
	}
	// More states than the standard library takes.
	if p, err = Compile(&config.Regex{Pattern: `(?:(?:a{100}){100}){100}`}); err != nil || p.Linear() {
		t.Errorf("%v", err)
	}
}

// Both engines, given the same pattern, say the same: the translation has no
// engine's own meaning left in it.
func TestEnginesAgree(t *testing.T) {
	pieces := []string{"a", "b", "k", `\d`, `\w`, `\s`, `\W`, `\h`, ".", "[^a]", "[a-c]", `[\W]`, "(?:ab|b)", "(a)", "a*", "b+?", "x?", "a{2}", `\x{e9}`, `\xff`, `\b`, "|", "(?i)", `\A`, `\z`, `[[:punct:]]`, `\n`}
	texts := []string{"a", "b", "K", "1", " ", "\n", "\xe9", "\xff", "x", "-", "c", "\xa0"}
	rapid.Check(t, func(t *rapid.T) {
		pattern := strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 6).Draw(t, "pattern"), "")
		subject := []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(texts), 0, 8).Draw(t, "subject"), ""))
		r := &config.Regex{Pattern: pattern}
		p, err := Compile(r)
		if err != nil {
			return
		}
		if !p.Linear() {
			t.Fatalf("%q is not linear", pattern)
		}
		opt, _ := parseOptions(nil)
		tr, err := translate(pattern, opt)
		if err != nil {
			t.Fatal(err)
		}
		q := &Pattern{max: -1, full: mustFull(t, tr.full.String())}
		a, errA := p.find(subject)
		b, errB := q.find(subject)
		if a != b || errA != nil || errB != nil {
			t.Fatalf("%q on %q: %d, %v and %d, %v (%s and %s)", pattern, subject, a, errA, b, errB, tr.re2.String(), tr.full.String())
		}
	})
}

func mustFull(t interface{ Fatal(...any) }, pattern string) *regexp2.Regexp {
	re, err := regexp2.Compile(pattern)
	if err != nil {
		t.Fatal(fmt.Sprintf("%q: %v", pattern, err))
	}
	return re
}

// FuzzPattern: no pattern makes the translator panic, and what it accepts an
// engine understands.
func FuzzPattern(f *testing.F) {
	for _, s := range []string{`^a(?<n>b)\k<n>[^\W-]{2,3}+$`, `(?(1)a|b)`, `[[:^alpha:]\Q]\E]`, `\x{e9}\o{351}\101`, "(?x) a # b\n", `a{,2}`} {
		f.Add(s, "subject\nabb", false)
		f.Add(s, "é", true)
	}
	f.Fuzz(func(t *testing.T, pattern, subject string, utf bool) {
		if len(pattern) > 200 || len(subject) > 200 {
			return
		}
		r := &config.Regex{Pattern: pattern}
		if utf {
			r.Options = []string{"utf"}
		}
		p, err := Compile(r)
		if err != nil {
			e, ok := errors.AsType[*PatternError](err)
			if !ok || e.Pos > len(pattern) {
				t.Fatalf("%q: %v", pattern, err)
			}
			if strings.Contains(e.Msg, "not understood after translation") {
				t.Fatalf("%q: %v", pattern, err)
			}
			return
		}
		p.Match([]byte(subject))
	})
}
