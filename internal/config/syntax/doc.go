// Package syntax reads keepalived's configuration language: from files to a
// tree of statements. It decides what a line, a word, a block, a comment, a
// definition, a loop, a condition and an include are; it deliberately does not
// know what any keyword means, with two exceptions that the language itself
// needs: include_check in global_defs, and whether a keyword opens a block,
// which the caller answers (Options.OpensBlock). It reads files through a
// Resolver alone; OS is the one for real ones.
//
// The order in which a line is worked on is keepalived's: comment, multi-line
// definition, @ condition, definition, ~SEQ and ~LST, substitution, comment
// again, include, braces, words. What stands behind a brace starts again at the
// condition.
//
// Where sluice differs from keepalived, on purpose:
//
//   - A brace that follows a statement opens that statement's block whatever
//     the keyword is, so that an unknown block cannot close the block around
//     it. A closing brace that is missing at the end is fatal.
//   - A name that is not defined stays one piece of text: ${NAME} is not taken
//     apart at its braces, and it is an error.
//   - A quote that is escaped for the comment rule (\") does not end a quoted
//     text for the brace rule either: the two see the same text as quoted.
//   - Lines may have 64 KiB, keepalived's have 1023 bytes (a warning).
//   - Cycles of definitions or includes are errors, and there are bounds on
//     what a file can make of itself (see limits).
//   - A comment that starts "#sluice " is a statement (Node.Extension).
//
// The texts of a tree (Node.Raw, Node.Source, Word.Text) are pieces of the chunks in
// which the file was read: a line costs no memory of its own, and a text that is to
// outlive the tree has to be copied. Findings have their own.
package syntax
