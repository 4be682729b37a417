// Package framework decides whether a real server is usable and whether its
// virtual server has quorum.
//
// It is pure: no clock, no I/O, no goroutine, no lock. A Machine turns the
// results of one checker's runs into a verdict; a VirtualServer turns verdicts,
// weights and file values into who is alive and whether the quorum stands.
// Every state times every event can therefore be tested as a table.
//
// # What a verdict is made of
//
// There are three verdicts, not two: a checker that has not run yet is Unknown.
// keepalived starts a checker as up (or, with alpha, as down) and cannot tell
// that guess from knowledge; a reload then carries guesses over as facts. Here
// an unknown checker counts as its real server's Trusted flag says: trusted
// servers serve before their first check (keepalived's rule at a cold start),
// untrusted ones do not (alpha; a server that a reload adds to a working pool; a
// checker that is new on a server that is down).
//
// # Weights
//
// The effective weight is computed from the facts of the moment, the configured
// weight and each file's last value, never by adding to and subtracting from the
// last result: that is how keepalived's misc_dynamic weight grows without limit. What
// an operator asks for by command (Order) is one of these facts: a drain is weight 0
// whatever else there is, a weight stands in for the configured one.
//
// # Time
//
// A virtual server has a clock that only Advance moves, and NextAt says when time
// alone will change something. Everything else happens at the clock's present.
//
// # Work in proportion
//
// A new fact about one server of ten thousand is worked out for that server: what the
// servers add up to (tally) is kept by differences, and those that time will move are
// in a heap. Everything is worked out again (settle) only when other servers' standing
// may depend on the fact: the floor keeps some or would have to, so few are healthy
// that a hold ends early or no weight may grow. Both ways give the same, which a test
// holds them to. What few servers need (files, weights that checks ask for, orders,
// flaps, slow starts) is apart from the others' state.
//
// # The floor (min_alive)
//
// Failures leave at least so many of the configured servers in service. Decisions:
//
//   - What counts is what serves. A weight of 0, by the configuration, by a file or
//     by a check, is the operator's "out": such a server is not counted as serving
//     and is never kept in service.
//   - Of the failed servers in service those stay that failed last. One that is out
//     comes back, the last that failed first, only if these are too few (a drain took
//     a good one, or a reload raised the floor): to exchange one failed server for
//     another would cut connections and gain nothing.
//   - A server that waits for its first good check has not failed: it is not kept
//     unless it served before. As it may be good in a moment, no failed server comes
//     back for its place; but none that serves is let go for it either.
//   - A kept server is alive: for the table, for inhibit_on_failure, for notify
//     scripts, and for the quorum's sum. If it did not count for the quorum, the
//     sorry server would displace the very servers that the floor keeps, and the floor
//     would be void. A quorum above what the floor keeps is still lost; then the sorry
//     server serves, since the operator asked for that.
//   - At the floor is a state that has to be seen (AtFloor): the pool looks well
//     from outside until a client meets a server that fails.
//
// # Flap damping
//
// A server that went down so many times within a time flaps: once its checks pass
// it is held back, at first for the time divided by the count, and twice as long for
// each further flap, at most ten times the time. A further flap is one during a hold
// or within the time after it; a longer good time is forgiveness. A hold never costs
// service: while no other server is healthy, or fewer than the floor, the hold that
// would end first ends at once and for good.
//
// # Slow start
//
// A server that comes back (from a failure, from maintenance, by a reload) has a
// tenth of its weight, at least 1, which grows to the whole in ten steps. The quorum
// counts the whole from the beginning, Share is what goes into the table. It is left
// out for a server's first time after the start, when it would be the only healthy
// one, and at the floor, where the load would go to the servers that fail.
package framework
