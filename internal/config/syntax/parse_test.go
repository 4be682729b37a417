package syntax

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/config/diag"
)

// shape is a text, the tree it must become and what must be said about it.
type shape struct {
	text string
	want string
	diag []string
}

func run(t *testing.T, tests map[string]shape) {
	t.Helper()
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, list := parse(t, tt.text)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("tree (-want +got):\n%s", diff)
			}
			if tt.diag == nil {
				tt.diag = []string{}
			}
			if diff := cmp.Diff(tt.diag, codes(list)); diff != "" {
				t.Errorf("findings (-want +got):\n%s\n%v", diff, list)
			}
		})
	}
}

func TestWords(t *testing.T) {
	run(t, map[string]shape{
		"blanks":                                {text: " a \t b\vc\fd \r\n", want: "[a b c d]"},
		"a quote starts a word":                 {text: `x ab"cd ef"gh`, want: `[x ab "cd ef" gh]`},
		"an empty word":                         {text: `x ""`, want: `[x ""]`},
		"no escapes":                            {text: `x a\nb 'c d'`, want: `[x a\nb 'c d']`},
		"quoted keyword":                        {text: `"a b" c`, want: `["a b" c]`},
		"inner runs of blanks":                  {text: `x  "a   b"`, want: `[x "a   b"]`},
		"open quote":                            {text: `x y "a b`, want: `[x y]`, diag: []string{"E004 1:5"}},
		"nothing but an open quote":             {text: "\"a b\nc", want: `[c]`, diag: []string{"E004 1:1"}},
		"escaped quote is none for the comment": {text: `x \"a # b`, want: `[x \]`, diag: []string{}},
		"a lone escaped quote":                  {text: `\"a`, want: `[\]`, diag: []string{"E004 1:2"}},
		"a trailing backslash stays":            {text: "x y \\\nz", want: `[x y \] [z]`},
		"utf-8":                                 {text: "x zürich 名前", want: `[x zürich 名前]`},
		"latin-1":                               {text: "x z\xfcrich", want: "[x z\xfcrich]"},
		"byte order mark":                       {text: "\uFEFFx y", want: "[x y]", diag: []string{"W009 1:1"}},
		"carriage returns":                      {text: "a {\r\nb\r\n}\r\n", want: "[a]{[b]}"},
		"other signs are no comments":           {text: "// a\n; b\n=== c\n--- d\n<-- e", want: "[// a] [; b] [=== c] [--- d] [<-- e]"},
	})
}

func TestComments(t *testing.T) {
	run(t, map[string]shape{
		"whole lines":                  {text: "# a {\n ! b }\nc", want: "[c]"},
		"after values":                 {text: "a 1 # x\nb 2 ! y {", want: "[a 1] [b 2]"},
		"several signs":                {text: "a 1 ###BACKUP", want: "[a 1]"},
		"after braces":                 {text: "a {# x\nb\n}! y\nc", want: "[a]{[b]} [c]"},
		"glued":                        {text: "path /x#y z", want: "[path /x]", diag: []string{"W002 1:8"}},
		"password":                     {text: "auth_pass Secret1!", want: "[auth_pass Secret1]", diag: []string{"W002 1:18"}},
		"glued to a quote":             {text: `path "/x"#y`, want: `[path "/x"]`},
		"quoted":                       {text: `path "/x#y!"`, want: `[path "/x#y!"]`},
		"single quotes do not protect": {text: `path '/x #y'`, want: `[path '/x]`},
		"escaped":                      {text: `path /x\#y\!z # w`, want: `[path /x#y!z]`},
		"escapes in quotes stay":       {text: `path "/x\#y"`, want: `[path "/x\#y"]`},
		"other escapes stay":           {text: `path /x\\# y`, want: `[path /x\\]`, diag: []string{"W002 1:10"}},
		"open quote hides the sign":    {text: `path "/x # y`, want: `[path]`, diag: []string{"E004 1:6"}},
	})
	_, list := parse(t, "auth_pass Secret1!")
	if d := list[0]; d.Severity != diag.Warning || list.ExitCode() != 0 || !strings.Contains(d.Hint, "double quotes") {
		t.Errorf("keepalived is silent here, and the advice is missing: %+v", d)
	}
}

func TestBraces(t *testing.T) {
	spread := "[vs x]{[rs y]{[w 1]}}"
	run(t, map[string]shape{
		"spread":                              {text: "vs x\n{\nrs y\n\n{\nw 1\n}\n}", want: spread},
		"usual":                               {text: "vs x {\n rs y {\n  w 1\n }\n}\n", want: spread},
		"one line":                            {text: "vs x { rs y { w 1 } }", want: spread},
		"glued":                               {text: "vs x{rs y{w 1}}", want: spread},
		"mixed":                               {text: "vs x {rs y\n{ w 1}\n}", want: spread},
		"empty block":                         {text: "a {}\nb { }", want: "[a]{} [b]{}"},
		"unknown block":                       {text: "virtual_server x {\nfoo y {\nbar { baz }\n}\nlb 1\n}\nz", want: "[virtual_server x]{[foo y]{[bar]{[baz]}} [lb 1]} [z]"},
		"quoted braces":                       {text: `a "{" b`, want: `[a "{" b]`},
		"a quoted brace alone":                {text: `"{"`, want: `["{"]`},
		"quotes with escaped quotes":          {text: `p "a \" { b" c`, want: `[p "a \" { b]`, diag: nil},
		"after a quoted text":                 {text: `a "x"{ b }`, want: `[a "x"]{[b]}`},
		"backslash before a brace":            {text: `a \{ b }`, want: `[a \]{[b]}`},
		"stray close":                         {text: "a\n}\nb", want: "[a] [b]", diag: []string{"E001 2:1"}},
		"stray open":                          {text: "{\na { { b }\n} c", want: "[a]{[b]} [c]", diag: []string{"E002 1:1", "E002 2:5", "E001 3:1"}},
		"missing open":                        {text: "virtual_server x 80\n  protocol TCP\n}\nb", want: "[virtual_server x 80]{[protocol TCP]} [b]", diag: []string{"E003 1:1"}},
		"missing open, empty":                 {text: "virtual_server x }\nb", want: "[virtual_server x]{} [b]", diag: []string{"E003 1:1"}},
		"missing open, nested":                {text: "virtual_server x {\nreal_server y\nweight 1\n}\n}", want: "[virtual_server x]{[real_server y]{[weight 1]}}", diag: []string{"E003 2:1"}},
		"missing open at the end":             {text: "virtual_server x", want: "[virtual_server x]{}", diag: []string{"E003 1:1"}},
		"a known block elsewhere needs none":  {text: "real_server y\nweight 1", want: "[real_server y] [weight 1]"},
		"missing close":                       {text: "a {\n b {\n  c\n }\n", want: "[a]{[b]{[c]}}", diag: []string{"F001 1:1"}},
		"missing closes":                      {text: "a {\n b {\n  c\n", want: "[a]{[b]{[c]}}", diag: []string{"F001 2:2"}},
		"undefined names are not taken apart": {text: "rs ${IP} 80 { w 1 }", want: "[rs ${IP} 80]{[w 1]}", diag: []string{"E007 1:4"}},
		"only names are kept whole":           {text: "a ${b c}", want: "[a $]{[b c]}"},
	})
}

func TestMissingCloseNamesTheBlock(t *testing.T) {
	_, list := parse(t, "vrrp_instance V {\n state X\n\nvirtual_server 1.2.3.4 80 {\n real_server 5 {\n }\n}\n")
	want := diag.Diagnostic{Severity: diag.Fatal, Class: diag.ClassConfig, Code: "F001", Pos: diag.At("test.conf", 1, 1),
		Width: 13, Source: "vrrp_instance V {", Message: "the block of vrrp_instance V is never closed",
		Notes: []string{"virtual_server 1.2.3.4 80 (line 4) cannot stand inside it"}}
	if len(list) != 1 {
		t.Fatalf("got %v", list)
	}
	want.Hint = list[0].Hint
	if diff := cmp.Diff(want, list[0]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	// The block that swallowed another one took its brace; the outer one is
	// open at the end, but the place to look is inside.
	_, list = parse(t, "virtual_server a {\n real_server b {\n  weight 1\n real_server c {\n }\n}\n")
	if len(list) != 1 || list[0].Pos.Line != 1 || len(list[0].Notes) != 1 ||
		list[0].Notes[0] != "a brace may be missing further up: real_server c (line 4) stands inside real_server b (line 2)" {
		t.Errorf("got %+v", list)
	}
}

func TestConditions(t *testing.T) {
	run(t, map[string]shape{
		"kept":                      {text: "@node1 a\n @node1\tb", want: "[a] [b]"},
		"dropped":                   {text: "@node2 a\n@node b\n@node11 c", want: ""},
		"negated":                   {text: "@^node2 a\n@^node1 b", want: "[a]"},
		"alone":                     {text: "@node1\n@node2\na", want: "[a]"},
		"braces":                    {text: "@node1 a {\n b\n@node1 }\nc", want: "[a]{[b]} [c]"},
		"definitions":               {text: "$A=1\n@node2 $A=2\n@node1 $B=3\nx $A $B", want: "[x 1 3]"},
		"loops":                     {text: "@node1 ~SEQ(X,2) a $X", want: "[a 1] [a 2]"},
		"behind a brace":            {text: "a { @node2 b }\nc\n}", want: "[a]{[c]}"},
		"behind a brace, kept":      {text: "a { @node1 b }\nc", want: "[a]{[b]} [c]"},
		"only one":                  {text: "@node1 @node1 a", want: "", diag: []string{"E010 1:8"}},
		"not by substitution":       {text: "$A=@node1 b\n$A", want: "", diag: []string{"E010 2:1"}},
		"a bad one keeps its block": {text: "@node1 @x a {\n b\n}\nc", want: "[c]", diag: []string{"E010 1:8"}},
	})
}

func TestExtensions(t *testing.T) {
	run(t, map[string]shape{
		"leading":                       {text: "vs {\n  #sluice rise 2\n}", want: "[vs]{+[rise 2]}"},
		"trailing":                      {text: "rs x { # y\n w 1 #sluice rise 2\n}", want: "[rs x]{[w 1] +[rise 2]}"},
		"behind a brace":                {text: "vs { #sluice a\n} #sluice b", want: "[vs]{+[a]} +[b]"},
		"with a block":                  {text: "#sluice track { a { b } c 1 }", want: "+[track]{+[a]{+[b]} +[c 1]}"},
		"with a comment":                {text: "#sluice a 1 # b", want: "+[a 1]"},
		"several":                       {text: "#sluice a 1 #sluice b 2", want: "+[a 1] +[b 2]"},
		"substitution":                  {text: "$A=5\n#sluice a $A", want: "+[a 5]"},
		"condition":                     {text: "@node2 #sluice a\n@node1 #sluice b\n@node2 c #sluice d", want: "+[b]"},
		"not one":                       {text: "# sluice a\n#sluicex b\n#sluice\n!sluice c", want: ""},
		"quoted":                        {text: `a "#sluice b"`, want: `[a "#sluice b"]`},
		"between keyword and brace":     {text: "virtual_server x #sluice a\n{\n b\n}", want: "[virtual_server x]{[b]} +[a]"},
		"left open":                     {text: "#sluice a { b\nc", want: "+[a]{+[b]} [c]", diag: []string{"E017 1:9"}},
		"closes too much":               {text: "vs {\n#sluice a }\nb\n}", want: "[vs]{+[a] [b]}", diag: []string{"E001 2:11"}},
		"in a definition":               {text: "$A= \\\n a 1 \\\n #sluice b\n c\n$A", want: "[a 1] +[b] [c]"},
		"behind a line of a definition": {text: "$A= \\\n a 1 \\ #sluice b\n c\n$A", want: "[a 1] +[b] [c]"},
		"a loop":                        {text: "#sluice ~SEQ(X,2) a $X { b }", want: "+[a 1]{+[b]} +[a 2]{+[b]}"},
		"a loop in a block":             {text: "#sluice t { ~SEQ(X,2) a $X }\nb", want: "+[t]{} [b]", diag: []string{"E011 1:13", "E017 1:9"}},
		"define":                        {text: "#sluice $A=1 \\\nx $A", want: `[x 1 \]`},
	})
}

func TestLineLimits(t *testing.T) {
	long := strings.Repeat("x", 2000)
	huge := strings.Repeat("x", maxLine+1)
	run(t, map[string]shape{
		"keepalived's limit": {text: strings.Repeat("x", 1022) + "\ny", want: "[" + strings.Repeat("x", 1022) + "] [y]"},
		"above it":           {text: strings.Repeat("x", 1023) + "\ny", want: "[" + strings.Repeat("x", 1023) + "] [y]", diag: []string{"W001 1:1023"}},
		"far above it":       {text: "a\n" + long, want: "[a] [" + long + "]", diag: []string{"W001 2:1023"}},
		"ours":               {text: "a " + huge[:maxLine-2] + "\nb", want: "[a " + huge[:maxLine-2] + "] [b]", diag: []string{"W001 1:1023"}},
		"above ours":         {text: "a\n" + huge + "\nb", want: "[a] [b]", diag: []string{"E006 2:1"}},
		"far above ours":     {text: "a\n" + huge + huge + huge + "\nb", want: "[a] [b]", diag: []string{"E006 2:1"}},
		"a long comment":     {text: "a # " + long, want: "[a]", diag: []string{"W001 1:1023"}},
		"NUL":                {text: "a\nb \x00 c\nd", want: "[a] [d]", diag: []string{"E005 2:3"}},
	})
}

func TestJunkEndsSoon(t *testing.T) {
	junk := strings.Repeat("\x7fELF\x00\x01 { \" }\n", 5000)
	tree, list := ParseString("x", "a {\n"+junk, testOptions())
	if len(list) > maxJunk+1 || list[len(list)-1].Code != "F004" || !list.HasFatal() || len(tree.Nodes) != 0 {
		t.Errorf("%d findings, the last is %v, %d nodes", len(list), list[len(list)-1], len(tree.Nodes))
	}
	tree, list = ParseString("x", strings.Repeat("}\n", 5000), testOptions())
	if len(list) != maxFindings+1 || !list.HasFatal() {
		t.Errorf("%d findings, the last is %v, %d nodes", len(list), list[len(list)-1], len(tree.Nodes))
	}
}

func TestDepth(t *testing.T) {
	_, list := ParseString("x", strings.Repeat("a {\n", maxDepth)+strings.Repeat("}\n", maxDepth), testOptions())
	if len(list) != 0 {
		t.Errorf("%d blocks: %v", maxDepth, list)
	}
	_, list = ParseString("x", strings.Repeat("a {", 10_000), testOptions())
	if got := codes(list); !strings.HasPrefix(got[len(got)-1], "F005") {
		t.Errorf("got %v", got)
	}
}

func TestPositions(t *testing.T) {
	text := "$V=10.0.0.1\n" +
		"\tvs ä ${V} \"q x\" y$V { b }\n" +
		"$M= \\\n" +
		"  m1 $V \\\n" +
		"  m2\n" +
		"a $M\n"
	tree, list := ParseString("f", text, testOptions())
	if len(list) != 0 {
		t.Fatal(list)
	}
	type at struct {
		Text             string
		Line, Col, Width int32
	}
	var got []at
	var walk func([]*Node)
	walk = func(nodes []*Node) {
		for _, n := range nodes {
			for _, w := range n.Words {
				got = append(got, at{w.Text, w.Pos.Line, w.Pos.Col, w.Width})
			}
			walk(n.Children)
			if n.Block {
				got = append(got, at{"}", n.End.Line, n.End.Col, 1})
			}
		}
	}
	walk(tree.Nodes)
	want := []at{
		{"vs", 2, 2, 2}, {"ä", 2, 5, 1}, {"10.0.0.1", 2, 7, 4}, {"q x", 2, 12, 5}, {"y10.0.0.1", 2, 18, 3},
		{"b", 2, 24, 1}, {"}", 2, 26, 1},
		{"a", 6, 1, 1}, {"m1", 4, 3, 2}, {"10.0.0.1", 4, 6, 2}, {"m2", 5, 3, 2},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if n := tree.Nodes[0]; n.Source != "\tvs ä ${V} \"q x\" y$V { b }" || n.Raw != `vs ä 10.0.0.1 "q x" y10.0.0.1` {
		t.Errorf("source %q, raw %q", n.Source, n.Raw)
	}
	if got, want := tree.Nodes[2].Chain, []string{"expanded from $M at f:6:3"}; !cmp.Equal(got, want) {
		t.Errorf("chain %q, want %q", got, want)
	}
}

// Columns of long lines are counted in steps; they must be those of a plain
// count, for bytes that are no UTF-8 too.
func TestColumnsOfLongLines(t *testing.T) {
	text := strings.Repeat("aä名\xff ", 700)
	ph := physical{text: text}
	want := 1
	for off := range text {
		if got := ph.column(off); got != want {
			t.Fatalf("byte %d: got column %d, want %d", off, got, want)
		}
		want++
	}
	if got := ph.column(len(text)); got != want {
		t.Errorf("behind the line: got %d, want %d", got, want)
	}
}
