// Package reactor leads the checks that need no goroutine: conversations
// (checker.Conversation) over TCP, any number of them on one thread.
//
// A Loop is a checker.Scheduler for such tasks: the same rules of when a task runs,
// what its Judge may do, and what becomes of a run that is removed or panics. It
// deliberately knows nothing of what is said over a connection, nor of what an
// outcome means. How a socket is made, and whose fault an error is, is package
// dial's, so that both drivers give the same reasons.
//
// # Decisions
//
// A check is half kernel work, and the other half is what is saved here: no
// goroutine, no timer, no allocation and no hand-over. A Loop has its own schedule,
// its own epoll descriptor and in effect its own thread; a task is judged where its answer
// came in and is put back into the schedule there. A polite TCP check is socket,
// setsockopt, connect, epoll_ctl and close, and its part of a wait. The socket is registered
// once, edge triggered, for all that can happen, and taken out by the close. Its
// error is only read when epoll reports one, its own address only when the kernel
// could have joined it to itself: when the target's port is one that source ports
// are drawn from (net.ipv4.ip_local_port_range, read at the start).
//
// The goroutine is not locked to a thread, though it seldom leaves it: one that is
// locked can only give way by a hand-over to another thread, and one that never gives
// way has the runtime's monitor look after it all the time (kernel.wait).
//
// System calls that cannot block are made raw, without a word to the Go scheduler.
// The wait for events is not, if it may block: the collector and other goroutines
// go on meanwhile.
//
// io_uring would save the system calls that are left, but not the kernel's work
// behind them, which is nearly all of the cost; it is switched off on many machines.
//
// # Time
//
// A Loop sleeps until something is due; there are no ticks. When it has to wake up
// the time is rounded up to 4 ms, so that at ten thousand checks a second one
// wakeup serves forty of them, and at one a second nobody notices. At most 32 are
// begun before their answers are looked at: on a local network they are there
// already, and the last of a crowd is not measured as slow.
//
// The next run is counted from the completion of the last, as everywhere, but what
// the loop was late to begin it is given back. The period is what was asked for and
// what the check took, without the rounding; and after a machine stood still, when
// all is due at once, each task returns to its own phase. Without that, what once ran
// together would run together for ever (case S07). At least half of the delay is
// kept between two runs.
//
// The clock is the monotonic one.
//
// # How a connection ends
//
// With checker_close normal, the default, it is closed: the peer sees a FIN, as from
// keepalived. What it does not see is the handshake's third packet by itself: the FIN,
// or the request, acknowledges as well, and comes at once (TCP_QUICKACK off). RFC 9293,
// 3.10.7.4, has every peer take it so, and proxies have checked like that for years; a
// quarter of a check's CPU goes with that packet, on the server's side too. It is why a
// Conversation here speaks first or ends: one that waits for a greeting would wait 200
// ms longer. With full the packet goes by itself, for what stands in between and does
// not know the RFC. With reset the socket is dissolved (connect to no address): the peer
// sees a RST, and the socket, still registered, makes the next connection. That is
// two system calls for a check in place of four. The polite end is the default since
// a reset is not free for the backend: servers log it as an error, count it, or have
// accept fail; and load balancers on the way take it for a broken client.
//
// But a polite end leaves the source port in TIME_WAIT for a minute. The kernel has
// 28,232 ports to draw for each target address and port, so that up to 470 checks a
// second of ONE target are safe; at 10,000 a second they are used up in three seconds,
// unless net.ipv4.tcp_tw_reuse is 1 (by default it is for the loopback alone), and
// the check is Unable. Checks of different targets do not share ports. Where many
// services have the same real server, sharing the check (share_checks) comes before
// resetting it.
//
// Sockets wait to be used again by family, source address, interface and mark, at most
// 64 of each kind, and count as descriptors in use. One that cannot connect at once
// is replaced by a new one, which finds the same reason as a polite check: its source
// address may be gone. After a failure a socket is not used again. With a fixed
// source port nothing changes: such connections are always reset, and closed.
//
// # Limits
//
// Nothing here can block, so that no run can hang, unless a Conversation or a Judge
// does: then Overdue rises, as it does for a stuck Scheduler.
package reactor
