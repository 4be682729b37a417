// Package host is the machine around the daemon: kernel settings, the IPVS
// module, limits, capabilities, namespaces, addresses, and the process itself as
// the kernel schedules it.
//
// It decides which settings sluice needs and how to say that one is missing. It
// deliberately does not decide whether to touch them (manage_sysctls, observe
// mode): that is the daemon's. It never logs; what it found goes back to the
// caller.
//
// Files below /proc/sys/net belong to the network namespace of the thread that
// opens them. A caller that works in another namespace must have locked and
// moved its thread before.
//
// # Decisions
//
// An [Asker] asks rtnetlink, for this package and those below it, on a socket that lives
// on: a socket belongs to the namespace of the thread that opened it, and a new one could
// not be had later. So an exchange that is given up must not spoil the next.
//
//   - The kernel works on a request within the send, and a read has it make the next piece
//     of a list. The send may take long, as it waits for the lock that all of routing
//     shares, and then the answer is there. So an Asker takes what is there before it looks
//     at the clock, and patience is for a socket with nothing in it.
//   - Whatever ends an exchange before its answer is whole (patience, an answer that was
//     lost for want of room or is malformed) leaves the socket dirty, and before the next
//     request all that is in it is thrown away. That also brings a list to its end of which
//     only a part was read; else the kernel would refuse the next list (EBUSY), and, once
//     answers were lost, drop all others until the last is read.
//   - What the kernel refuses is a whole answer.
//   - Only messages with the request's own number answer it, the end of a list included.
//     Those of the library's Receive lack the end, hence the messages are read here.
package host
