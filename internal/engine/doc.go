// Package engine is the one owner: a single goroutine holds the framework's state
// and everything else sends it events.
//
// A verdict, a file's value, a reload, a tick and a command are values in one
// inbox. The loop empties the inbox, lets the framework decide, hands the facts to
// apply and flushes once, so that a burst becomes one ordered set of batches. After
// each turn it publishes what changed as immutable pieces; readers assemble a
// Snapshot from those and never ask the loop.
//
// The inbox is unbounded and sending never blocks. The loop itself calls the
// scheduler, so a bounded inbox could lock the two against each other; what bounds
// it is that a checker sends only when its verdict changes.
//
// # Who owns a checker's machine
//
// The retry logic (framework.Machine) of a checker is stepped on the scheduler's
// side, where its results arrive, and the loop sees changes of verdict only. A
// reload keeps the task of a checker whose definition is unchanged, with its
// machine and its phase, and swaps the rules under it. A verdict carries its task;
// one from a task that a reload removed is ignored.
//
// # Operators' orders
//
// What an operator asks of a real server by command (drain, weight) is kept by the
// keys of its virtual and real server and outlives what a reload does to either: a
// server that a rollback brings back is still drained. It ends by command or at its
// time. A command that would cost a pool its quorum is refused, since the one who
// gives it sees one server and not the pool; the drain deletes nothing, so it has no
// time limit of its own, and only the wait of the one who asked has.
//
// # Time
//
// What time alone changes (a hold ends, a weight rises) is the framework's to say
// when: the loop's timer wakes it at the earliest of all virtual servers' moments,
// and each event moves its virtual server's clock before it is handled.
//
// # Work in proportion
//
// A verdict on one real server of ten thousand costs the loop what one of ten costs
// it. Handlers mark what readers have to be told of (mark, markHead, and touched for
// all of a virtual server); publish then makes new situations for that alone and shares
// every other, and the parts of the lists that hold them, with the version before. What
// never changes (names, addresses, what is checked) is put into words when somebody
// reads, which is rare. A service that holds just what it should is told of by its
// servers' weights; only one in which something drains, is still to be written or was
// changed by somebody else is described destination by destination (views). Virtual
// servers that time will change are in a heap (moves).
//
// A test holds all of this to what making everything anew would tell.
//
// # Kernel errors
//
// What could not be written stays due in apply and is retried with a growing
// pause, 1 s to 30 s. While the table cannot be reached at all (no ip_vs module)
// checks go on, and everything is applied when it appears.
//
// # Reconciling
//
// Our services are read whole every reconcile_interval and in the turn of a reload,
// before it writes: the first thing that a reload is asked for is often to mend what
// somebody did to the table. The same read serves the drain list. In observe mode it
// is the copy that is compared, so that nothing is found.
//
// # From one process to the next
//
// After turns that changed something, at most once a second, and once a minute in
// any case, the loop hands out a State to be saved: what is ours in the table, drains
// with their time and reason, verdicts with the time of the run that last confirmed
// them, quorums. That is a few words with what is published: the lists are made of it,
// encoded and written by who saves it, one element at a time.
//
// At the start the table and that state are weighed against each other (believe): the
// table is the stronger evidence of who serves, the state knows who was down, whose
// an entry is and how far a drain got. Checkers go on from their verdicts, so that
// one that was up has its retries and one that was down its rises, and a quorum that
// stood stands within its hysteresis. A saved "up" counts for five minutes, or for
// ten delay_loops if that is longer: beyond it nobody knows. A saved "down" counts
// for ever, but is probed at once: a dead server that is trusted costs connections, a
// healthy one that is not costs them one probe.
package engine
