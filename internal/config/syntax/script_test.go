package syntax

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestSplitScript(t *testing.T) {
	for raw, want := range map[string][]string{
		``:                              nil,
		`misc_path`:                     {"misc_path"},
		`misc_path /x/y one two`:        {"misc_path", "/x/y", "one", "two"},
		`notify_up "/x/y a b" user grp`: {"notify_up", "/x/y a b", "user", "grp"},
		`m "a b"c'd e'`:                 {"m", "a bc" + "d e"},
		`m 'a "b" c' d`:                 {"m", `a "b" c`, "d"},
		`m "it's"`:                      {"m", "it's"},
		`m "" x`:                        {"m", "", "x"},
		`m "a \"b\" c"`:                 {"m", `a \"b\" c`},
		`m a\ b c`:                      {"m", `a\ b`, "c"},
		`m "a\x20b\\"`:                  {"m", `a\x20b\\`},
		`m a\`:                          {"m", `a\`},
	} {
		got, err := SplitScript(raw)
		if err != nil {
			t.Errorf("%s: %v", raw, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
}

func TestSplitArgv(t *testing.T) {
	for command, want := range map[string][]string{
		`/x/y -a 'b c' "d e"`: {"/x/y", "-a", "b c", "d e"},
		`a\ b`:                {"a b"},
		`a\tb \a\b\E\f\n\r\v`: {"a\tb", "\a\b\x1b\f\n\r\v"},
		`\101\60\0601`:        {"A0" + "01"},
		`\x41\x4aB\x4g`:       {"AJB\x04g"},
		`\xg`:                 {"xg"},
		`\cA\cz\c`:            {"\x01\x1ac"},
		`'\x41 \n'`:           {"A \n"},
		`\q\"\'\\\$`:          {`q"'\$`},
		`\777`:                {"\xff"},
		`a '' b`:              {"a", "", "b"},
		`end\`:                {`end\`},
	} {
		got, err := SplitArgv(command)
		if err != nil {
			t.Errorf("%s: %v", command, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", command, diff)
		}
	}
}

// One unescaping pass: the file's name has one backslash.
func TestScriptIsUnescapedOnce(t *testing.T) {
	tree, list := ParseString("f", `misc_path "/tmp/my\\x20file"`, testOptions())
	if len(list) != 0 {
		t.Fatal(list)
	}
	words, err := SplitScript(tree.Nodes[0].Raw)
	if err != nil {
		t.Fatal(err)
	}
	argv, err := SplitArgv(words[1])
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{`/tmp/my\x20file`}, argv); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestOpenQuotes(t *testing.T) {
	for _, s := range []string{`a "b`, `a 'b`, `a "b'`, `a "b\"`, `'`} {
		if _, err := SplitScript(s); !errors.Is(err, ErrUnbalancedQuote) {
			t.Errorf("SplitScript(%s): %v", s, err)
		}
		if _, err := SplitArgv(s); !errors.Is(err, ErrUnbalancedQuote) {
			t.Errorf("SplitArgv(%s): %v", s, err)
		}
	}
}

// Whatever the arguments, quoting them for stage 2 and then for stage 1 gives
// them back.
func TestScriptRoundTrip(t *testing.T) {
	escape := func(s, what string) string {
		var b strings.Builder
		for _, c := range []byte(s) {
			if strings.IndexByte(what, c) >= 0 {
				b.WriteByte('\\')
			}
			b.WriteByte(c)
		}
		return b.String()
	}
	rapid.Check(t, func(t *rapid.T) {
		args := rapid.SliceOfN(rapid.StringMatching(`[a-z\\"' $#{}]*`), 1, 5).Draw(t, "args")
		var parts []string
		for _, a := range args {
			parts = append(parts, `'`+escape(a, `\"'`)+`'`)
		}
		word := strings.Join(parts, " ")
		got, err := SplitArgv(word)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(args, got); diff != "" {
			t.Fatalf("stage 2 of %s (-want +got):\n%s", word, diff)
		}
		words, err := SplitScript(`misc_path "` + word + `" user`)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"misc_path", word, "user"}, words); diff != "" {
			t.Fatalf("stage 1 (-want +got):\n%s", diff)
		}
	})
}

func TestShellSigns(t *testing.T) {
	for word, want := range map[string]string{
		"/x/y": "", "a;": ";", "|": "|", "&&": "&", ">/dev/null": ">", "<x": "<", "$(id)": "$(", "$HOME": "", "`id`": "`", "$": "",
	} {
		if got := ShellSigns(word); got != want {
			t.Errorf("%s: got %q, want %q", word, got, want)
		}
	}
}

func FuzzSplitScript(f *testing.F) {
	for _, s := range []string{`misc_path "/x/y a b" user`, `m 'a\x41 b'\ c`, `m "a`, `m \101\c`, "\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		words, err := SplitScript(raw)
		if err != nil {
			if words != nil {
				t.Fatalf("words with an error: %q", words)
			}
			return
		}
		total := 0
		for _, w := range words {
			total += len(w)
			argv, err := SplitArgv(w)
			if err != nil && !errors.Is(err, ErrUnbalancedQuote) {
				t.Fatal(err)
			}
			length := 0
			for _, a := range argv {
				length += len(a)
			}
			if length > len(w) {
				t.Fatalf("%q grew to %q", w, argv)
			}
		}
		if total > len(raw) {
			t.Fatalf("%q grew to %q", raw, words)
		}
	})
}
