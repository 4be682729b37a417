// Package trackfile turns watched files into numbers.
//
// It decides what the content of a file means (Parse, by keepalived's rules
// with two differences, below), when a change of the file is finished enough
// to count, and where to look for changes. It deliberately knows nothing of
// what a number does to a weight: that formula is the framework's.
//
// Two differences from keepalived. Content that is not a number keeps the last
// value and says so, where keepalived takes it for 0: a slip of the pen in a
// maintenance file must not put a server back into service. And every
// directory on the way to the file is watched, symbolic links resolved, where
// keepalived watches one directory as it was at the reload: a directory that
// appears later, or a link that is pointed elsewhere, counts at once.
//
// An absent or empty file is 0, as with keepalived. But the shell's
// "echo 5 > file" makes the file empty before it writes, and an editor moves
// the old file away before it creates the new one. So a reading that is not a
// number must hold for a short quiet period before it counts, while a number
// counts at once.
//
// Watching is a means to be quick, not to be right: whatever an event says,
// the file is read afresh, and a slow poll reads all files where no events
// come (network file systems, an exhausted inotify).
package trackfile
