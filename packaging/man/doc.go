// Package man makes the manual pages: sluice(1) of the tree of verbs, sluiced(8) of
// the daemon's options, sluice.conf(5) of the reference of keywords. The pages are kept
// beside it, and tests say when they are behind; "make man" writes them anew.
//
// Decisions that were close:
//
//   - Tests write the pages, not a program: the verbs and the options are in main
//     packages, which nothing can import, and a hidden verb that prints its own manual
//     would be carried by every machine. docs/configuration.md is made in that way too.
//   - The pages are committed, so that installing needs neither Go's tests nor groff,
//     and that a change of an option is seen in a review. They bear no date and no
//     version, which would change them with every commit.
//   - A writer of our own, in man(7) and not mdoc(7), since cobra's writes markdown's
//     structure for every verb into a file of its own: fourteen pages where one is
//     looked for.
//   - sluice.conf(5) is docs/configuration.md in other clothes: what one says the other
//     cannot miss. A table becomes a list, since a terminal has no room for it.
package man
