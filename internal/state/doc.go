// Package state is what survives the process: which services and destinations of
// the kernel's table are ours and which of those are on their way out, the last
// verdicts, and what operators asked for.
//
// The table itself survives as well, and is the stronger evidence of what serves.
// The file adds what a table cannot say: whose an entry is, since when and why it
// drains, and how a server fared that is not in it.
//
// # Decisions
//
// Names are texts ("192.0.2.1:80/tcp"), compared and never parsed: a file cannot
// make the daemon touch anything that the kernel does not list under that name.
//
// The file is JSON, so that it can be read in an emergency, and has a version. It
// is replaced in one step (a new file, fsync, rename, fsync of the folder), so that
// a crash leaves the old one or the new one. One that cannot be read, or is of a
// newer release, is set aside under another name, logged and ignored: losing it
// costs a check, refusing to start would cost the service.
//
// A state is encoded while it is written, from lists that are made meanwhile
// (State.Lists): at ten thousand real servers it is two megabytes of text, which are
// never in memory at once.
//
// The folder belongs to one process at a time (a lock that ends with it): two that
// write one file would each forget what is the other's.
package state
