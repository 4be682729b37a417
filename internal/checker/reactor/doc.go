// Package reactor leads the checks that need no goroutine: conversations
// (checker.Conversation) over TCP, any number of them on one thread.
//
// A Loop is a checker.Scheduler for such tasks: the same rules of when a task runs,
// what its Judge may do, and what becomes of a run that is removed or panics. It
// deliberately knows nothing of what is said over a connection, nor of what an
// outcome means.
package reactor
