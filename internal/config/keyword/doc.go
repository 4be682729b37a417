// Package keyword turns the tree of a parsed file into the typed configuration:
// it knows every word of keepalived's LVS half, where the word may stand, what
// its arguments may be, what is used when it is not there, and from where it is
// inherited.
//
// One table (table*.go) holds all words. The parser, the suggestions for
// misspelt words, the "missing open brace" rule of the syntax package and
// docs/configuration.md are made from it, so that they cannot disagree.
//
// The work has two halves. The first (statement, the set and open functions)
// reads statements into raw structs that only remember what was written. The
// second (resolve) knows the whole file: inheritance, defaults, corrections of
// ports, duplicates, groups. keepalived resolves a few things where they stand,
// and the raw structs record those at once (a real server takes the forwarding
// method that its virtual server has at that line).
//
// Decisions worth knowing:
//
//   - A finding never stops the reading. Even a missing parameter, at which
//     keepalived exits, is only noted, and the rest of the file is judged.
//
//   - Where keepalived guesses (it takes "5s" for 5 microseconds, "weight x" for
//     weight 0) this package does not: the line is ignored and the finding says
//     what keepalived would have done.
//
//   - An unknown scheduler or forwarding method rejects the virtual server. A
//     service that is not there is noticed; one that balances in another way
//     than was asked for is not.
//
//   - Inheritance is resolved when the whole file is known, for every checker
//     alike. keepalived's SMTP_CHECK looks at what stands before the end of its
//     block; where that gives another connect_timeout a warning says so.
//
//   - Users, names of hosts, CPUs and paths are taken as written. Whether they
//     exist is seen when they are used: a test of a file must give the same
//     answer on every machine, and a name server must not hold it.
//
//   - A keyword has no effect in silence only if nothing is lost by it. Its
//     arguments are judged all the same, since keepalived -t judges them; those
//     of VRRP and BFD are not, since that is another daemon's matter.
//
//   - The tree and the raw structs are forgotten when the configuration is made. What
//     it keeps of them goes through one place (pool), which copies texts and has
//     equal parts once. A message is put together only for a finding, and what looks
//     at all names of a file to find one has a bound: a file of 30,000 real servers
//     must be read within a fraction of a second, however wrong it is.
//
// It deliberately knows nothing of how the file is read (config/syntax), of
// what a checker does, of the kernel, and of whether scripts and files that are
// named exist.
package keyword
