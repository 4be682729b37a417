package syntax

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestDefinitions(t *testing.T) {
	run(t, map[string]shape{
		"both references": {text: "$A=1\nx $A ${A} y${A}z", want: "[x 1 1 y1z]"},
		"only before blanks, commas, parentheses and the end": {text: "$A=1\n$A_B=2\n$A-$A_B $A, f($A) $A/ $A", want: "[$A-2 1, f(1) $A/ 1]", diag: []string{"W010 3:1", "W010 3:19"}},
		"blanks":               {text: "  $A=  1 2  # c\nx $A", want: "[x 1 2]"},
		"empty":                {text: "$A=\nx $A y", want: "[x y]"},
		"nothing is left":      {text: "$A=\n$A\nx", want: "[x]"},
		"replaced":             {text: "$A=1\nx $A\n$A=2\nx $A", want: "[x 1] [x 2]"},
		"late":                 {text: "$A=$B\n$B=1\nx $A\n$B=2\nx $A", want: "[x 1] [x 2]"},
		"in quotes":            {text: "$A=1 2\nx \"a $A ${A}b\"", want: `[x "a 1 2 1 2b"]`},
		"a blank before =":     {text: "$B = 2\nx", want: "[x]", diag: []string{"E009 1:1"}},
		"not by substitution":  {text: "$A=$B=1\n$A\nx", want: "[x]", diag: []string{"E009 2:1"}},
		"in a block":           {text: "a {\n$A=1\nb $A\n}\nc $A", want: "[a]{[b 1]} [c 1]"},
		"behind a brace":       {text: "a { $A=1 }\nb $A\n}", want: "[a]{[b 1]}", diag: []string{"E001 3:1"}},
		"braces come out":      {text: "$A=b { c }\na { $A }", want: "[a]{[b]{[c]}}"},
		"quotes come out":      {text: "$A=\"x y\"\na $A", want: `[a "x y"]`},
		"a sign ends the line": {text: "$A=1 \\# 2\na $A b\nc \"$A b\"", want: `[a 1] [c "1 # 2 b"]`},
		"names from pieces":    {text: "$N=B\n$B=1\nx ${${N}}", want: "[x 1]"},
		"undefined":            {text: "x ${NO}y", want: "[x ${NO}y]", diag: []string{"E007 1:3"}},
		"undefined, quoted":    {text: "x \"a ${NO} b\"", want: `[x "a ${NO} b"]`, diag: []string{"W004 1:6"}},
		"undefined, bare":      {text: "x $VIP $home $1$x", want: "[x $VIP $home $1$x]", diag: []string{"W004 1:3"}},
		"a loop":               {text: "$A=x ${B}\n$B=y $A\na $A b {\nc\n}", want: "[a x y b]{[c]}", diag: []string{"E008 3:3"}},
		"itself":               {text: "$A=$A\na $A b", want: "[a b]", diag: []string{"E008 2:3"}},
		"a definition of _PWD": {text: "$_PWD=/x\na ${_PWD}", want: "[a /x]"},
		"predefined":           {text: "a ${_PWD} ${_INSTANCE} $_INSTANCE \"${_HASH}${_BANG}\"", want: `[a / node1 node1 "#!"]`},
		"a predefined comment": {text: "a ${_HASH} b\nc ${_BANG}d", want: "[a] [c]"},
		"environment":          {text: "a ${_ENV HOME} b${_ENV NONE}c", want: "[a /root bc]"},
		"environment, no name": {text: "a ${_ENV}", want: "[a ${_ENV}]", diag: []string{"E016 1:3"}},
		"random":               {text: "a ${_RANDOM} ${_RANDOM 5} ${_RANDOM 5 9} $_RANDOM", want: "[a 32767 32767 9 32767]"},
		"random, upside down":  {text: "a ${_RANDOM 9 5}", want: "[a 9]", diag: []string{"E016 1:3"}},
		"random, no number":    {text: "a \"${_RANDOM x}\"", want: `[a "${_RANDOM x}"]`, diag: []string{"E016 1:4"}},
	})
}

func TestMultiLineDefinitions(t *testing.T) {
	run(t, map[string]shape{
		"alone":            {text: "$M= \\\n a { \\\n  b \\\n }\n$M\n$M", want: "[a]{[b]} [a]{[b]}"},
		"first line":       {text: "$M=a 1 \\\n b 2\nx\n$M", want: "[x] [a 1] [b 2]"},
		"at a line's end":  {text: "$M=a 1 \\\n b 2\nx ${M}", want: "[x a 1] [b 2]"},
		"in a block":       {text: "$M=a 1 \\\n b 2\nx { $M\n}", want: "[x]{[a 1] [b 2]}"},
		"inside a line":    {text: "$M=a 1 \\\n b 2\nx ${M} y", want: "[x ${M} y]", diag: []string{"E018 3:3"}},
		"empty lines":      {text: "$M=\\\n\\\n a \\\n # c\n b\nx $M", want: "[x a] [b]"},
		"a blank line":     {text: "$M= \\\n a \\\n\nb\n$M", want: "[a] [b]", diag: []string{"W008 4:1"}},
		"a lost backslash": {text: "$M= \\\n a # x \\\nb\n$M", want: "[b] [a]", diag: []string{"W005 2:8"}},
		"conditions":       {text: "$M= \\\n @node1 a \\\n @node2 b\n$M", want: "[a]"},
		"parameters":       {text: "$M= \\\n a $X \\\n $X=2 \\\n a $X\n$X=1\n$M", want: "[a 1] [a 2]"},
		"nested": {text: "$IN= \\\n i $X \\\n j\n$OUT= \\\n o { \\\n $X=1 \\\n $IN \\\n }\n$OUT",
			want: "[o]{[i 1] [j]}"},
		"nested at the end": {text: "$IN=i \\\n j\n$OUT=o $IN \\\n p\nx $OUT", want: "[x o i] [j] [p]"},
		"a loop in it":      {text: "$M= \\\n ~SEQ(X,2) a $X \\\n b\n$M", want: "[a 1] [a 2] [b]"},
		"in a loop":         {text: "$M= \\\n a $X { \\\n b \\\n }\n~SEQ(X,2) $M", want: "[a 1]{[b]} [a 2]{[b]}"},
		"itself":            {text: "$M= \\\n a \\\n $M\n$M\nb", want: "[a] [b]", diag: []string{"E008 3:2"}},
		"each other":        {text: "$M= \\\n a \\\n x $N\n$N= \\\n b \\\n $M\n$M\nc", want: "[a] [x b] [c]", diag: []string{"E008 6:2"}},
		"cut off":           {text: "a\n$M= \\\n b \\\n", want: "[a]"},
		"empty":             {text: "$M= \\\n \\\n\na", want: "", diag: []string{"W008 4:1"}},
	})
}

func TestLoops(t *testing.T) {
	run(t, map[string]shape{
		"to an end":                {text: "~SEQ(X,3) a $X", want: "[a 1] [a 2] [a 3]"},
		"to nought":                {text: "~SEQ(X,0) a $X", want: "[a 1] [a 0]"},
		"to below nought":          {text: "~SEQ(X,-2) a $X", want: "[a -1] [a -2]"},
		"from and to":              {text: "~SEQ(X,5,3) a $X\n~SEQ(X, 3, 4) b $X", want: "[a 5] [a 4] [a 3] [b 3] [b 4]"},
		"steps":                    {text: "~SEQ(X,1,3,8) a $X", want: "[a 1] [a 4] [a 7]"},
		"steps down":               {text: "~SEQ(X,1,-3,-5) a $X", want: "[a 1] [a -2] [a -5]"},
		"bases":                    {text: "~SEQ(X,0x10,010,0x20) a $X", want: "[a 16] [a 24] [a 32]"},
		"hexadecimal":              {text: "~SEQx(X,9,11) a $X", want: "[a 9] [a a] [a b]"},
		"one":                      {text: "~SEQ(X,7,7) a $X", want: "[a 7]"},
		"at the far end":           {text: "~SEQ(X,9223372036854775806,9223372036854775807) a $X", want: "[a 9223372036854775806] [a 9223372036854775807]"},
		"at the near end":          {text: "~SEQ(X,-9223372036854775807,-9223372036854775808) a $X", want: "[a -9223372036854775807] [a -9223372036854775808]"},
		"a wide step":              {text: "~SEQ(X,-9223372036854775808,9223372036854775807,9223372036854775807) a $X", want: "[a -9223372036854775808] [a -1] [a 9223372036854775806]"},
		"references":               {text: "$N=2\n~SEQ(X,$N,${N}3) a $X\n~SEQ(Y,$N) b", want: "[a 2] [a 3] [a 4] [a 5] [a 6] [a 7] [a 8] [a 9] [a 10] [a 11] [a 12] [a 13] [a 14] [a 15] [a 16] [a 17] [a 18] [a 19] [a 20] [a 21] [a 22] [a 23] [b] [b]"},
		"nested":                   {text: "~SEQ(X,2) ~SEQ(Y,2) a $X $Y", want: "[a 1 1] [a 1 2] [a 2 1] [a 2 2]"},
		"stays defined":            {text: "~SEQ(X,2) a\nb $X", want: "[a] [a] [b 2]"},
		"with blocks":              {text: "~SEQ(X,2) rs 10.0.0.$X 80 { w $X }", want: "[rs 10.0.0.1 80]{[w 1]} [rs 10.0.0.2 80]{[w 2]}"},
		"step of nought":           {text: "~SEQ(X,1,0,3) a\nb", want: "[b]", diag: []string{"E011 1:1"}},
		"step away":                {text: "~SEQ(X,1,-1,3) a\nb", want: "[b]", diag: []string{"E011 1:1"}},
		"no number":                {text: "~SEQ(X,1,y) a\n~SEQ(X,08) a\n~SEQ(X,0b1) a\n~SEQ(X,1_0) a", want: "", diag: []string{"E011 1:1", "E011 2:1", "E011 3:1", "E011 4:1"}},
		"too few, too many":        {text: "~SEQ(X) a\n~SEQ(X,1,1,1,1) a", want: "", diag: []string{"E011 1:1", "E011 2:1"}},
		"no name":                  {text: "~SEQ(1,2) a\n~SEQ(,2) a\n~SEQ($X,2) a", want: "", diag: []string{"E011 1:1", "E011 2:1", "E011 3:1"}},
		"hexadecimal below nought": {text: "~SEQx(X,-2) a", want: "", diag: []string{"E011 1:1"}},
		"no parenthesis":           {text: "~SEQ(X,2 a", want: "", diag: []string{"E011 1:1"}},
		"unknown":                  {text: "~FOO(X) {\n a\n}\n~SEQ x\nb", want: "[b]", diag: []string{"E010 1:1", "E010 4:1"}},
		"not at the start":         {text: "a ~SEQ(X,2) b", want: "[a ~SEQ(X,2) b]"},
		"list":                     {text: "~LST(X, a,b , c) v $X", want: "[v a] [v b] [v c]"},
		"list with gaps":           {text: "~LST(X,a,,c) v $X w", want: "[v a w] [v w] [v c w]"},
		"list of groups":           {text: "~LST({A, B}, {a1, b1}, {a2}) v ${A}-${B}.", want: "[v a1-b1.] [v a2-.]"},
		"list of too many":         {text: "~LST({A,B},{1,2,3}) v", want: "", diag: []string{"E011 1:1"}},
		"list without names":       {text: "~LST(,a) v\n~LST({1},{a}) v", want: "", diag: []string{"E011 1:1", "E011 2:1"}},
		"list unbalanced":          {text: "~LST({A,B,{1}) v\n~LST(A,b}) v\n~LST({A}{b}) v\n~LST({A) v", want: "", diag: []string{"E011 1:1", "E011 2:1", "E011 3:1", "E011 4:1"}},
		"list in a sequence":       {text: "~SEQ(X,2) ~LST(Y,a,b) v $X$Y z", want: "[v $Xa z] [v $Xb z] [v $Xa z] [v $Xb z]", diag: nil},
	})
}

// Everything that can grow out of little comes to an end soon, with one fatal
// finding.
func TestExplosions(t *testing.T) {
	if testing.CoverMode() == "atomic" {
		t.Skip("counting every step takes minutes")
	}
	doubling := func(last string) string {
		var b strings.Builder
		for i := range 64 {
			fmt.Fprintf(&b, "$A%d=${A%d}${A%d}\n", i, i+1, i+1)
		}
		fmt.Fprintf(&b, "$A64=%s\n", last)
		return b.String()
	}
	wide := strings.Repeat("a ", maxLine/2-20)
	for name, text := range map[string]string{
		"sequence":           "~SEQ(X,1000000000) a\n",
		"empty sequence":     "~SEQ(X,9000000000000000000)\n",
		"nested sequences":   "~SEQ(X,100000) ~SEQ(Y,100000) ~SEQ(Z,100000) a $X $Y $Z\n",
		"doubled text":       doubling("x") + "a ${A0}\n~SEQ(X,100000) b ${A0}\n",
		"doubled nothing":    doubling("") + "a ${A0}\n",
		"wide lines":         "~SEQ(X,1000000) " + wide + "\n",
		"wide substitutions": "~SEQ(X,1000000) ${X} " + wide + "\n",
		"many definitions":   "$M= \\\n" + strings.Repeat(" a \\\n", 2000) + "b\n~SEQ(X,1000) $M\n",
	} {
		t.Run(name, func(t *testing.T) {
			start := cpu(t)
			_, list := ParseString("x", text, testOptions())
			took := cpu(t) - start
			if len(list.Errors()) == 0 {
				t.Error("nothing was found")
			}
			if n := len(list); n > 3 {
				t.Errorf("%d findings: %v ...", n, list[:3])
			}
			if took > 10*time.Second {
				t.Errorf("took %v", took)
			}
			t.Logf("%v: %v", took, list)
		})
	}
}

func TestEnvironmentStaysInItsLine(t *testing.T) {
	o := testOptions()
	o.Env = func(string) (string, bool) { return "a\nb {\x00", true }
	tree, list := ParseString("x", "v \"${_ENV X}\"\nw", o)
	if diff := cmp.Diff(`[v "a b { "] [w]`, short(tree.Nodes)); diff != "" || len(list) != 0 {
		t.Errorf("(-want +got):\n%s\n%v", diff, list)
	}
}
