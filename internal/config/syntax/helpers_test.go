package syntax

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-lb/sluice/internal/config/diag"
)

// opensBlock knows a few block keywords, as a keyword table does.
func opensBlock(path []string) bool {
	switch strings.Join(path, "/") {
	case "global_defs", "virtual_server", "virtual_server_group", "vrrp_instance",
		"virtual_server/real_server", "virtual_server/real_server/TCP_CHECK",
		"virtual_server/real_server/HTTP_GET", "virtual_server/real_server/HTTP_GET/url":
		return true
	}
	return false
}

func testOptions() Options {
	return Options{
		Resolver:   Memory{},
		ConfigID:   "node1",
		OpensBlock: opensBlock,
		Env: func(name string) (string, bool) {
			return map[string]string{"HOME": "/root"}[name], name == "HOME"
		},
		Random: func(_, high int64) int64 { return high },
	}
}

// parse reads a text and returns its tree in the short form of short.
func parse(t *testing.T, text string) (string, diag.List) {
	t.Helper()
	tree, list := ParseString("test.conf", text, testOptions())
	checkSpans(t, tree, list, map[string]string{"test.conf": text})
	return short(tree.Nodes), list
}

// short writes nodes in one line: words in [], blocks in {}, quoted words in
// quotes, extensions with a + in front.
func short(nodes []*Node) string {
	var b strings.Builder
	for i, n := range nodes {
		if i > 0 {
			b.WriteByte(' ')
		}
		if n.Extension {
			b.WriteByte('+')
		}
		b.WriteByte('[')
		for k, w := range n.Words {
			if k > 0 {
				b.WriteByte(' ')
			}
			if w.Quoted {
				b.WriteString(`"` + w.Text + `"`)
			} else {
				b.WriteString(w.Text)
			}
		}
		b.WriteByte(']')
		if n.Block {
			b.WriteString("{" + short(n.Children) + "}")
		}
	}
	return b.String()
}

// codes lists findings as "CODE line:col".
func codes(list diag.List) []string {
	out := []string{}
	for _, d := range list {
		out = append(out, fmt.Sprintf("%s %d:%d", d.Code, d.Pos.Line, d.Pos.Col))
	}
	return out
}

// tester is *testing.T and rapid's.
type tester interface {
	Helper()
	Errorf(string, ...any)
}

// checkSpans holds that every place that a tree and its findings name lies in
// its file.
func checkSpans(t tester, tree *Tree, list diag.List, files map[string]string) {
	t.Helper()
	rows := map[string][]string{}
	for name, text := range files {
		rows[name] = strings.Split(text, "\n")
	}
	check := func(what string, pos diag.Pos, width int) {
		lines, ok := rows[pos.File()]
		if !ok {
			t.Errorf("%s: unknown file %q", what, pos.File())
			return
		}
		if pos.Line < 1 || int(pos.Line) > len(lines) || pos.Col < 1 {
			t.Errorf("%s: %v is not in the file", what, pos)
			return
		}
		text := lines[pos.Line-1]
		if len(text) > maxLine {
			return
		}
		if n := len([]rune(text)); int(pos.Col) > n+1 || width > 1 && int(pos.Col)+width-1 > n {
			t.Errorf("%s: %v, %d wide, is not in the line %q", what, pos, width, text)
		}
	}
	var walk func([]*Node)
	walk = func(nodes []*Node) {
		for _, n := range nodes {
			if len(n.Words) == 0 {
				t.Errorf("a node without words at %v", n.Pos)
				continue
			}
			check("node", n.Pos, 1)
			for _, w := range n.Words {
				check("word "+w.Text, w.Pos, int(w.Width))
			}
			if n.End.Line != 0 {
				check("end", n.End, 1)
			}
			walk(n.Children)
		}
	}
	walk(tree.Nodes)
	for _, d := range list {
		if d.Pos.Line != 0 {
			check(d.Code, d.Pos, d.Width)
		}
	}
}
