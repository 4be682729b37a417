package syntax

import "github.com/sluice-lb/sluice/internal/config/diag"

// Tree is a parsed configuration.
type Tree struct {
	// Nodes are the top-level statements in order.
	Nodes []*Node
	// Files are all files read, in the order they were opened.
	Files []string
}

// Node is one statement: a keyword with its arguments and, if a block follows,
// the statements inside it. Free-form lines (an address in a
// virtual_server_group) are nodes too: their first word is the keyword.
type Node struct {
	// Words are the statement's tokens by keepalived's ordinary rules; at least
	// one. Words[0] is the keyword.
	Words []Word
	// Raw is the logical line after substitution, without comments: what the
	// script tokeniser splits (SplitScript).
	Raw string
	Pos diag.Pos
	// Source is the physical line that the statement stands on.
	Source string
	// Children are the statements of its block.
	Children []*Node
	// End is where the block's closing brace stands.
	End diag.Pos
	// Chain says how the file came to be read, innermost first, as
	// "included from FILE:LINE:COL"; empty in the main file.
	Chain []string
	// Block tells that a block follows, even an empty one.
	Block bool
	// Extension tells that the statement came from a "#sluice " comment.
	Extension bool
}

// Word is one token.
type Word struct {
	Text string
	// Pos is where the word stands; for one that a substitution produced, where
	// the reference stands.
	Pos diag.Pos
	// Width is how many characters of the file it takes there, quotes included.
	Width  int32
	Quoted bool
}

// Keyword returns the first word's text.
func (n *Node) Keyword() string { return n.Words[0].Text }

// Args returns the words after the keyword.
func (n *Node) Args() []Word { return n.Words[1:] }
