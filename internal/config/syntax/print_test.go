package syntax

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config/diag"
)

// strip writes nodes without their places, one a line. Text compares in a time
// that does not grow with the depth as cmp's does.
func strip(nodes []*Node) string {
	var b strings.Builder
	var walk func([]*Node, int)
	walk = func(nodes []*Node, depth int) {
		for _, n := range nodes {
			fmt.Fprintf(&b, "%*s%q block=%t extension=%t", depth, "", n.Raw, n.Block, n.Extension)
			for _, w := range n.Words {
				fmt.Fprintf(&b, " %q,%t", w.Text, w.Quoted)
			}
			b.WriteByte('\n')
			walk(n.Children, depth+1)
		}
	}
	walk(nodes, 0)
	return b.String()
}

// roundTrip prints a tree and reads it again.
func roundTrip(t interface {
	tester
	Fatalf(string, ...any)
}, tree *Tree, o Options) {
	t.Helper()
	var b bytes.Buffer
	if err := Print(&b, tree); err != nil {
		t.Fatalf("print: %v", err)
	}
	again, list := ParseString("again", b.String(), o)
	for _, d := range list {
		if d.Code == "F003" || d.Code == "F004" {
			return // what a loop said once, the printed form says a thousand times
		}
	}
	if want, got := strip(tree.Nodes), strip(again.Nodes); want != got {
		diff := cmp.Diff(want, got)
		t.Fatalf("printed and read again (-want +got):\n%s\nprinted:\n%s\n%v", diff, b.String(), list)
	}
	if list.HasFatal() {
		t.Fatalf("the printed form does not read: %v\n%s", list, b.String())
	}
}

func TestPrint(t *testing.T) {
	tree, _ := ParseString("f", "$X=1\n~SEQ(N,2) a $N { b \"x # y\" ${X} { } }\ng \\#z\n#sluice c 1 { d { e } }\nf \"g", testOptions())
	var b bytes.Buffer
	if err := Print(&b, tree); err != nil {
		t.Fatal(err)
	}
	want := `a 1 {
    b "x # y" 1 {
    }
}
a 2 {
    b "x # y" 1 {
    }
}
g \#z
#sluice c 1 { d { e } }
f "g
`
	if diff := cmp.Diff(want, b.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := Print(fullDisk{}, tree); !errors.Is(err, errFull) {
		t.Errorf("no error from the writer: %v", err)
	}
}

type fullDisk struct{}

var errFull = errors.New("no space left")

func (fullDisk) Write([]byte) (int, error) { return 0, errFull }

// config draws a text that is more or less a configuration.
func config() *rapid.Generator[string] {
	word := rapid.SampledFrom([]string{"virtual_server", "real_server", "10.0.0.1", "80", "weight", `"a b"`, `""`, `"x {`, "'q", `\#`, `\"`, `\`, "$A", "${A}",
		"${UNDEF}", "${B}", "$M", "#c", "!c", "x#y", "{", "}", "{", "}", "@node1", "@node2", "$A=1 2", "$B=${A} {", "$M= \\", "~SEQ(X,3)", "$X", "~LST({X,Y},{a,b},{c})", "#sluice rise",
		"#sluice t {", "${_HASH}", "${_PWD}", "include /x", "include", "ä", "\x00", "é\xff", "\\{", "{}", "\"}\""})
	sep := rapid.SampledFrom([]string{" ", " ", " ", "\n", "\n", "\t", "", " \\\n"})
	return rapid.Custom(func(t *rapid.T) string {
		var b strings.Builder
		for range rapid.IntRange(0, 60).Draw(t, "words") {
			b.WriteString(word.Draw(t, "word"))
			b.WriteString(sep.Draw(t, "sep"))
		}
		return b.String()
	})
}

func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := config().Draw(t, "text")
		hold(t, text)
	})
}

// hold asserts what must be true of every text.
func hold(t interface {
	tester
	Fatalf(string, ...any)
}, text string) {
	t.Helper()
	o := testOptions()
	o.logical = 5000
	tree, list := ParseString("f", text, o)
	if tree == nil {
		t.Fatalf("no tree")
	}
	checkSpans(t, tree, list, map[string]string{"f": text})
	if len(list) > maxFindings+1 {
		t.Fatalf("%d findings", len(list))
	}
	kept := false
	for _, d := range list {
		kept = kept || d.Code == "W010"
		if d.Code == "" || d.Message == "" || d.Severity >= diag.Error && d.Class == diag.ClassNone {
			t.Fatalf("incomplete finding %+v", d)
		}
		if strings.Contains(d.Message, "\n") {
			t.Fatalf("a message in bad style: %q", d.Message)
		}
	}
	again, second := ParseString("f", text, o)
	if first, second := strip(tree.Nodes), strip(again.Nodes); first != second {
		diff := cmp.Diff(first, second)
		t.Fatalf("not the same twice (-first +second):\n%s", diff)
	}
	if !reflect.DeepEqual(list, second) {
		diff := cmp.Diff(list, second)
		t.Fatalf("not the same findings twice (-first +second):\n%s", diff)
	}
	if kept {
		return // what Print cannot say
	}
	if !list.HasFatal() || list.Count(diag.Fatal) == 1 && list[len(list)-1].Code == "F001" {
		roundTrip(t, tree, o)
	}
}

// Configurations that strangers published, where they are at hand.
func TestStrangersFiles(t *testing.T) {
	files, _ := filepath.Glob("../../../../shared/configs/*.conf")
	if len(files) == 0 {
		t.Skip("no files at hand")
	}
	want := map[string]string{"32": "E003", "34": "F001", "43a": "N001"}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		number, _, _ := strings.Cut(filepath.Base(name), "-")
		tree, list := Parse(name, Options{Resolver: OS{}, OpensBlock: opensBlock})
		checkSpans(t, tree, list, map[string]string{name: string(text)})
		code := ""
		for _, d := range list {
			code += d.Code
		}
		if code != want[number] {
			t.Errorf("%s: got %v, want %q", name, list, want[number])
		}
		roundTrip(t, tree, testOptions())
	}
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"virtual_server 10.0.0.1 80 {\n real_server 10.0.0.2 80 {\n weight 1\n }\n}\n",
		"$A=1\n$B= \\\n a ${A} \\\n b\nx $B\n", "~SEQ(X,1,2,9) a $X { b }\n~LST({A,B},{1,2}) c $A$B z\n",
		"@node1 a\n@^node1 b\n#sluice c { d }\n", "a \"b\\\" # c\" \\# d # e\n", "include /x\nincludea *.conf\n", "${${_HASH}}${_ENV HOME}${_RANDOM 1 2}",
		"a {\xff \x00 ä", "\uFEFFa", "\uFEFF\uFEFF", "virtual_server x\n}", "a { { } }", "$A=${B}\n$B=${A}\nx $A",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if len(text) > maxLine/4 {
			return // printed, a line may be longer
		}
		hold(t, text)
	})
}
