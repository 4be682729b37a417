package diag

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func text(t *testing.T, o TextOptions, l ...Diagnostic) string {
	t.Helper()
	var b bytes.Buffer
	if err := List(l).WriteText(&b, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func lines(l ...string) string { return strings.Join(l, "\n") + "\n" }

func TestWriteText(t *testing.T) {
	for name, tt := range map[string]struct {
		d    Diagnostic
		want string
	}{
		"with everything": {
			Diagnostic{Severity: Error, Code: "E113", Pos: At("/etc/k.conf", 42, 16), Width: 10,
				Source: "        weight 3000000000", Message: "weight 3000000000 is outside 0-2147483647",
				Notes: []string{"in real_server 10.0.0.11 80 (line 40)"}, Hint: "the virtual server's weight (1) is used"},
			lines("/etc/k.conf:42:16: error: weight 3000000000 is outside 0-2147483647 [E113]",
				"   42 |         weight 3000000000",
				"      |                ^~~~~~~~~~",
				"   in real_server 10.0.0.11 80 (line 40)",
				"   the virtual server's weight (1) is used"),
		},
		"tabs keep the caret in line": {
			Diagnostic{Severity: Warning, Code: "W1", Pos: At("f", 7, 4), Width: 3, Source: "\t\tä abc", Message: "m"},
			lines("f:7:4: warning: m [W1]", "    7 | \t\tä abc", "      | \t\t ^~~"),
		},
		"wide characters count two cells": {
			Diagnostic{Severity: Error, Pos: At("f", 7, 4), Width: 2, Source: "名前 値段 x", Message: "m"},
			lines("f:7:4: error: m", "    7 | 名前 値段 x", "      |      ^~~~"),
		},
		"combining marks count none": {
			Diagnostic{Severity: Error, Pos: At("f", 7, 4), Width: 1, Source: "e\u0301 x", Message: "m"},
			lines("f:7:4: error: m", "    7 | e\u0301 x", "      |   ^"),
		},
		"no column, no caret": {
			Diagnostic{Severity: Error, Pos: At("f", 7, 0), Source: "a", Message: "m"},
			lines("f:7: error: m", "    7 | a"),
		},
		"no source": {
			Diagnostic{Severity: Fatal, Code: "F2", Pos: At("f", 0, 0), Message: "no such file", Hint: "check it"},
			lines("f: fatal: no such file [F2]", "   check it"),
		},
		"nowhere": {
			Diagnostic{Severity: Notice, Message: "m"}, "notice: m\n",
		},
		"width beyond the line": {
			Diagnostic{Severity: Error, Pos: At("f", 1, 3), Width: 99, Source: "a bc", Message: "m"},
			lines("f:1:3: error: m", "    1 | a bc", "      |   ^~"),
		},
		"behind the line": {
			Diagnostic{Severity: Error, Pos: At("f", 1, 6), Width: 2, Source: "a bc", Message: "m"},
			lines("f:1:6: error: m", "    1 | a bc", "      |      ^"),
		},
		"a large line number": {
			Diagnostic{Severity: Error, Pos: At("f", 1234567, 1), Width: 1, Source: "a", Message: "m"},
			lines("f:1234567:1: error: m", "1234567 | a", "        | ^"),
		},
		"control characters": {
			Diagnostic{Severity: Error, Pos: At("f", 1, 5), Width: 1, Source: "\x1b]0\a x \xff\u202e", Message: "bad \x1b[2J", Hint: "h\r"},
			lines("f:1:5: error: bad \uFFFD[2J", "    1 | \uFFFD]0\uFFFD x \uFFFD\uFFFD", "      |     ^", "   h\uFFFD"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, text(t, TextOptions{}, tt.d)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWriteTextColor(t *testing.T) {
	d := Diagnostic{Severity: Error, Pos: At("f", 1, 1), Width: 1, Source: "a", Message: "m"}
	plain := text(t, TextOptions{}, d)
	colored := text(t, TextOptions{Color: true}, d)
	if plain == colored || !strings.Contains(colored, "\x1b[1;31merror:\x1b[0m m") {
		t.Errorf("got %q", colored)
	}
}

func TestLongLinesAreCut(t *testing.T) {
	long := strings.Repeat("a", 5<<20) + " HERE " + strings.Repeat("b", 5<<20)
	out := text(t, TextOptions{Columns: 60}, Diagnostic{Severity: Error, Pos: At("f", 1, 5<<20+2), Width: 4, Source: long, Message: "m"})
	rows := strings.Split(out, "\n")
	if len(out) > 400 {
		t.Fatalf("%d bytes were written", len(out))
	}
	at := strings.Index(rows[1], "HERE")
	if at < 0 {
		t.Fatalf("the place is not shown: %q", rows[1])
	}
	// The ellipsis has three bytes and takes one cell.
	if got := strings.Index(rows[2], "^~~~"); got != at-2 {
		t.Errorf("caret at %d, want %d:\n%s", got, at-2, out)
	}
	if strings.Count(rows[1], "…") != 2 {
		t.Errorf("the cuts are not marked: %q", rows[1])
	}
}

// The caret stands under the character at the column, whatever the line holds.
func TestCaretProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		source := rapid.StringOfN(rapid.RuneFrom(nil, unicode.Latin, unicode.Han, unicode.Mn, unicode.Zs), 1, 200, -1).Draw(t, "source")
		col := rapid.IntRange(1, utf8.RuneCountInString(source)).Draw(t, "col")
		d := Diagnostic{Pos: At("f", 1, col), Width: rapid.IntRange(0, 20).Draw(t, "width"), Source: source}
		shown, caret := d.excerpt(rapid.IntRange(0, 300).Draw(t, "columns"))
		width := func(s string) (n int) {
			for _, r := range s {
				n += cells(r)
			}
			return n
		}
		if strings.Count(caret, "^") != 1 {
			t.Fatalf("caret %q", caret)
		}
		before := width(caret[:strings.IndexByte(caret, '^')])
		want := []rune(source)[col-1]
		if unicode.IsSpace(want) || cells(want) == 0 {
			return
		}
		cell := 0
		for _, r := range shown {
			if cell == before && cells(r) > 0 {
				if r != visible(want) {
					t.Fatalf("the caret is under %q, not %q:\n%s\n%s", r, want, shown, caret)
				}
				return
			}
			cell += cells(r)
		}
		t.Fatalf("the caret is behind the line:\n%s\n%s", shown, caret)
	})
}

func TestWriteJSON(t *testing.T) {
	l := List{
		{Severity: Error, Class: ClassConfig, Code: "E1", Pos: At("f", 2, 3), Width: 4, Source: "a \"b\" \xff", Message: "m", Notes: []string{"n"}, Hint: "h"},
		{Severity: Fatal, Class: ClassNotFound, Code: "F1", Source: strings.Repeat("x", 1<<20)},
	}
	var b bytes.Buffer
	if err := l.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got []map[string]any
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatalf("%v in %s", err, b.Bytes())
	}
	want := []map[string]any{
		{"file": "f", "line": 2.0, "col": 3.0, "width": 4.0, "severity": "error", "class": "config", "code": "E1",
			"source": "a \"b\" \uFFFD", "message": "m", "notes": []any{"n"}, "hint": "h"},
		{"severity": "fatal", "class": "not-found", "code": "F1", "message": ""},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	b.Reset()
	if err := List(nil).WriteJSON(&b); err != nil || b.String() != "[]\n" {
		t.Errorf("empty list: %q, %v", b.String(), err)
	}
}

type full struct{}

var errFull = errors.New("no space left")

func (full) Write([]byte) (int, error) { return 0, errFull }

func TestWriteErrors(t *testing.T) {
	l := List{{Message: "m"}}
	if err := l.WriteText(full{}, TextOptions{}); !errors.Is(err, errFull) {
		t.Errorf("text: %v", err)
	}
	if err := l.WriteJSON(full{}); !errors.Is(err, errFull) {
		t.Errorf("JSON: %v", err)
	}
	if err := List(nil).WriteJSON(full{}); !errors.Is(err, errFull) {
		t.Errorf("empty JSON: %v", err)
	}
}

func TestClassNames(t *testing.T) {
	seen := map[string]bool{}
	for c := ClassNone; c <= ClassMissing+1; c++ {
		if s := c.String(); s == "" || seen[s] {
			t.Errorf("class %d is %q", c, s)
		} else {
			seen[s] = true
		}
	}
}
