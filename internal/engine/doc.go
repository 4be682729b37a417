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
// # One probe for each distinct check
//
// What the scheduler runs is a run, and a run has members: the tasks of all real
// servers, in whatever virtual servers, whose checkers ask the same at the same
// intervals (share_checks). Each member steps its own machine by its own rules, so
// that retries, rise, weights and quorums stay each virtual server's; the next run is
// when the first of them wants it. A task that nobody shares has a run of its own, by
// the same path. The loop alone changes who is a member of what, by a new list each
// time; the judge of a run takes the list and needs no lock of the loop's.
//
// A run may come before a member's own would: one that was hurried for a new member,
// or a retry of another. In peace the member falls in with it. While it counts
// failures or successes an outcome that says no more than the last one did is not
// counted before the member's own time, since retries that are used up faster than
// configured take servers out that would have come back.
//
// A MISC_CHECK is shared by real servers of one address only, since a script may look
// at more than its arguments. Suspended virtual servers are no members. The phase of
// a shared check follows from what it asks; without sharing the virtual server's name
// is in it, or all would ask at the same moment.
//
// # Reloads
//
// A reload costs the loop what it changes. The difference between the running
// configuration and the new one is worked out where Reload was called (plan): both
// are immutable. What is the same, but for its place in the file, is the running one's
// very object in the merged configuration, so that a pointer says "unchanged": such a
// virtual server keeps its state, its tasks and its claim in apply, and nothing is
// allocated for its servers. A plan that another reload overtook is not carried out
// but made again. A virtual server with a hold is decided by the loop at each reload,
// since its hold may end by it.
//
// What is in no virtual server's own configuration is compared by itself: track files
// (a new path may bring a new value), the client side of SSL_GET, share_checks.
//
// # What is told of one server
//
// A run remembers what it found once something failed, and forgets it after a day of
// good results: peace costs a pointer. Explain puts that into words with all else that
// bears on one real server, from what is published, and asks nothing of the loop. Its
// weight is told in parts that add up to what is wanted; the last part says what no
// other explains, so that a wrong account shows.
//
// A trial (Test) runs a server's checks once beside the schedule. It has no part in
// any verdict: its probes are its own and are run on the caller's goroutine. How many
// there may be at a time is bounded, since each asks a server more than was configured.
//
// A label is put to the log's lines in one place, by the names in them: no line, and no
// event made of one, can forget it.
// # What a reload would do
//
// Plan is a rehearsal: the very code of a reload runs on a copy of the state, over a
// copy of the table, with a schedule that runs nothing and nobody to be told. A second
// code that predicts the first would have to know holds, floors, trust, shared
// services, drains and drift as well, and be wrong as soon as one of them changes. A
// property test holds the plan to the operations that the reload then makes.
//
// The loop copies plain memory, after a turn that left nothing to be written behind;
// what the copies need besides (indexes, places, tasks) is made, and the rehearsal
// run, by who asked for the plan. The table is read over the connection that Status has,
// or in observe mode from the copy that is written to. If the loop wrote meanwhile both are
// taken again. A test knows all fields of what is copied, so that a new one is not forgotten.
//
// The rehearsal's table is ipvstest's, which its conformance suite holds to the kernel:
// what it refuses, lists and in which order decides what a reload goes on to do. What it
// does not know, since this kernel lacks a module or the machine has an address, the
// plan does not foresee; nor what happens between plan and reload.
//
// What of the configuration changes is found in its printed form (config.Print), so that
// no keyword is forgotten. Of values only numbers and words that choose are told.
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
// # What goes with the services
//
// What virtual servers wish of the machine (an address on a device, the guard, marks) is
// handed over after a turn has written the table, for those whose wish changed, and what
// came of it comes back as an event (Edge). A wish is looked at when a quorum, a reload,
// passive or a service that came into the table or left it may change it; where nothing
// of the machine is configured there is none, and nobody is called.
//
// An address that follows the quorum comes with it, also while servers that start as down
// (alpha) have not been checked: quorum and hysteresis say how much it takes. To wait for all
// first verdicts would keep the only director away for as long as one check is not able to
// give one, and to wait for some time, vip_delay say, would seldom change anything, since first
// checks are spread over warmup.
//
// Behind an announced address nothing drains before it is gone: the address goes in the
// turn of its cause, and what follows (the sorry server, the drain of what a reload or
// passive takes away) waits until that turn was reported and vip_delay after it, at most
// five seconds longer. Meanwhile apply believes what was before: a quorum that is lost is
// not told, a virtual server is not withheld yet, a service that a reload took away
// stays. What is withdrawn and wanted again has moved nothing. What is left in the table
// of a virtual server that is no more has a ghost, whose wish is that packets are taken
// in until its last connection has ended.
//
// Passive is one fact with three sources. A process that starts passive withholds before
// it reads the table, or a drain would get its weights back; what serves there all the
// same was announced, and stays until its address is gone. A rehearsal waits for nothing:
// it finds out what a reload does, and not when.
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
// A kernel that does not answer is another thing than one that refuses: each exchange
// has its deadline, and the connection on which it passed is not used again. Nothing is
// asked of the kernel until the pause is over and there is a new connection; then the
// whole of our services is compared, since nobody knows what was done. Readers are not
// kept waiting by any of this: what is published is read without the loop, and what
// Status reads of the kernel itself is bounded by five seconds for the whole answer.
//
// # Reconciling
//
// Our services are read whole every reconcile_interval and at a reload: the first thing
// that a reload is asked for is often to mend what somebody did to the table. The read
// takes its time with many servers, and what the reload itself changes must not wait
// for it: as long as nothing speaks against what we believe of the table, that is
// written first and the table compared in the very next turn; a write that does not
// fit the table is found out by the kernel's refusal, as with any verdict. Reload
// returns when both are done. The same read serves the drain list. In observe mode it
// is the copy that is compared, so that nothing is found.
//
// # What is measured
//
// Each event carries when it was sent, so that the loop's lag is known, and a verdict
// that changes what the table should hold is remembered until apply says that what is
// urgent was written (apply.Observer): that is its way to the kernel. One turn's
// verdicts are taken together; with none of their operations accepted they count
// nothing.
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
