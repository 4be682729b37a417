// Package fifo writes each change of a real server and of a quorum to the named
// pipes of lvs_notify_fifo and notify_fifo, and keeps the programs that read them
// running.
//
// It decides when a pipe is made, whether one that is there may be used, and what a
// message looks like. It deliberately does not know how a program is started, nor
// why something changed: the first is a function that is handed in, and what the
// engine says is written as it comes.
//
// A message is one line, a line feed and a NUL, in one write (facts 11.5):
//
//	RS [192.0.2.11]:tcp:80 [192.0.2.1]:tcp:80 DOWN
//	VS [192.0.2.1]:tcp:80 UP
//
// A pipe is open for reading and writing and never waits: without a reader the
// kernel keeps what fits (64 KiB), and the rest is lost.
//
// # Decisions
//
//   - What is lost is counted and logged: at once, then at most each minute with the
//     number. keepalived loses it without a word.
//   - A reload leaves a pipe alone that it does not change: readers see no end and
//     lose nothing. keepalived closes, removes and makes each anew. The same goes for
//     its program; one that has ended is started again, so that a reload after mending
//     it is all that is needed. If the program alone changes, the new one is started
//     once the old one has ended, since two readers would share out the messages.
//   - At the end of a pipe (a stop, or a reload without it) its program first gets a
//     second to read what is left and see the end of the file, and SIGTERM only then.
//     keepalived sends it at once, and the last messages are lost.
//   - A pipe is removed only if it was made here and its name still leads to it.
//   - One that was there keeps its owner and mode, and stays when the daemon ends. If
//     it is not a FIFO, a symbolic link, or owned by neither the daemon's user nor the
//     configured one, it is not used: its owner could replace it or read along.
//   - Requests and messages wait in one queue and are served by one goroutine, so that
//     a message always goes to the pipes of the configuration it was told under, and a
//     slow user database or file system holds up nobody else.
//   - A message longer than the kernel writes in one piece (PIPE_BUF, 4096 bytes)
//     could be torn, so it is counted as lost instead.
//   - There is no dump of the state for a new reader, as in keepalived: sluice's
//     status says how things are.
package fifo
