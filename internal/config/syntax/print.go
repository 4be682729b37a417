package syntax

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// Print writes a tree as one file that reads back as the same tree, positions
// aside: no definitions, loops, conditions, includes and plain comments are
// left, extensions stand in their comments again. The one thing it cannot say is
// a predefined $NAME that stayed as written because a brace followed it.
func Print(w io.Writer, t *Tree) error {
	bw := bufio.NewWriter(w)
	if len(t.Nodes) > 0 && strings.HasPrefix(t.Nodes[0].Raw, byteOrder) {
		bw.WriteByte('\n') // else it would be skipped as the file's mark
	}
	printNodes(bw, t.Nodes, 0)
	if err := bw.Flush(); err != nil {
		return fmt.Errorf("print configuration: %w", err)
	}
	return nil
}

func printNodes(w *bufio.Writer, nodes []*Node, depth int) {
	for _, n := range nodes {
		indent := strings.Repeat("    ", depth)
		w.WriteString(indent)
		if n.Extension {
			w.WriteString(extensionSign)
			printInline(w, n)
			w.WriteByte('\n')
			continue
		}
		text, open := escapeSigns(n.Raw)
		w.WriteString(text)
		if n.Block {
			if open { // a quote swallows the rest of its line
				w.WriteString("\n" + indent + "{\n")
			} else {
				w.WriteString(" {\n")
			}
			printNodes(w, n.Children, depth+1)
			w.WriteString(indent + "}")
		}
		w.WriteByte('\n')
	}
}

// printInline writes an extension, whose block stands in one line. It returns
// true when a quote stays open: the parser closes the blocks of such a line.
func printInline(w *bufio.Writer, n *Node) (open bool) {
	text, open := escapeSigns(n.Raw)
	w.WriteByte(' ')
	w.WriteString(text)
	if !n.Block || open {
		return open
	}
	w.WriteString(" {")
	for _, c := range n.Children {
		if printInline(w, c) {
			return true
		}
	}
	w.WriteString(" }")
	return false
}

// escapeSigns protects comment signs outside quotes, and tells whether a quote
// stays open.
func escapeSigns(raw string) (text string, open bool) {
	var b strings.Builder
	from := 0
	open, _ = quotes(raw, commentSigns, func(i int, escaped bool) bool {
		if !escaped {
			b.WriteString(raw[from:i])
			b.WriteByte('\\')
			from = i
		}
		return true
	})
	b.WriteString(raw[from:])
	return b.String(), open
}
