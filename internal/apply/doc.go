// Package apply is the seam between what the framework decides and what the
// kernel's IPVS table holds. It alone translates keepalived's words (virtual
// server, real server, sorry server, quorum) into the kernel's (service,
// destination).
//
// # Level-triggered
//
// The front (Init, SetAlive, SetWeight, Quorum, Replace) records facts and marks
// what they touch; Flush then writes. For each service of the kernel one pure
// function computes the content it should have (desired) and another the
// operations that lead there from what it has (diff). A first start, a verdict, a
// reload, a retry after a kernel error and the repair of what somebody else
// changed are this one path. All facts of one turn of the engine end in one
// Flush, and so in the fewest batches.
//
// # In proportion to the change
//
// desired is a function of one destination: it folds all claims of it, and what a
// service should hold is by definition its value over all destinations that are
// claimed. So a verdict has one destination looked at, and a reload, a quorum that
// moved or a table that was read anew a whole service, by the same path; a property
// test holds the one to the other.
//
// What is urgent (what verdicts and weights moved, and a service that lost its quorum)
// goes before what is bulk (what a start, a reload, a quorum that is back or a repair
// asks for). A Flush writes all that is urgent and one portion of the bulk, then
// returns, so that its caller can take in what happened meanwhile: a failure waits for
// one portion at most, and never for the installation of ten thousand others. Over the
// portions the order of operations below holds within each service, since a plan that
// is cut short has nothing of its later lists. What is refused waits for the next run
// and does not stop the portions.
//
// The mirror is packed, and its index has no pointers: about 90 bytes for a
// destination, and nothing of a target is kept between two flushes.
//
// # The order of operations
//
// Additions and weight raises first, weight cuts next, deletions last, so that a
// pool is never empty on the way between two states that are not. A sorry server
// goes in before the real servers come out (keepalived does it the other way
// round) and comes out after they are back. If a raise fails, the cuts and
// deletions that would leave a pool without a usable destination are held back.
//
// # Three ways to leave the table
//
//   - removed: a server whose check failed, without inhibit_on_failure, is deleted
//     at once; its connections are lost. That is keepalived's contract; with
//     on_failure drain it departs.
//   - weight 0: inhibit_on_failure, or a weight that is 0; the entry stays.
//   - departed: the entry is no longer wanted though nothing is wrong with it: a
//     reload dropped it, its virtual server is gone, the sorry server took over, the
//     sorry server is no longer needed. Its weight becomes 0, then its counters are
//     read, then it is deleted if they are zero and otherwise parked on the drain
//     list until they are (Tick). Weight first, then read, then delete: in any other
//     order a connection can be scheduled between the read and the deletion, and is
//     cut. UDP and SCTP have no connections whose end can be seen, so that a
//     departure there has a short limit of its own (udp_drain_timeout), and a
//     failed server always goes at once.
//
// A parked destination that is wanted again gets its weight back in place. It is
// never deleted and added again: with expire_nodest_conn set that resets its
// connections.
//
// # Withheld and staying
//
// A virtual server that is withheld claims nothing: its services leave as if it were not
// configured, by the same path, with its own limits and a reason of its own. It goes on
// taking in facts, so that it comes back with what was found out meanwhile, in place. Its
// services that somebody else put into the table are taken over and drain as well.
//
// A service that nobody claims may have to stay for a moment, since its address has to go
// first. That is a mark at the service and no time: who knows of addresses says when. One
// that is to be withheld needs no such mark. It is claimed until the moment has come, so
// that its failures are written as ever.
//
// A maintenance drain (a track file or an operator takes a configured server to 0)
// outranks a failing check: a server that is being shut down fails its checks, and
// reacting to that with a deletion would cut the drain short.
//
// # Drift
//
// The mirror is what our writes left in the table. Reconcile reads the table and
// compares the two: a difference is somebody else's doing, for what is ours is
// written from one goroutine. To repair, the read becomes the mirror and everything
// of the service due, so that diff puts it back. To report, the mirror stays: later
// writes then touch what they are about and leave the rest as somebody wanted it. A
// write that the kernel refuses since the table is not as believed has the service
// read and put right in either mode, for what is written to has to be known.
//
// A change that made something as it is wanted is no drift, nor is the removal of a
// destination that drains. A service that appears with a tuple that is wanted is
// taken over, with what it holds; what is not configured of that drains.
//
// # A drain that does not end
//
// Two readings are compared at weight 0. New connections there come from clients
// that the kernel still leads to it: by an entry in TIME_WAIT whose port is used
// again, or by a persistence template. That is told once, with the sysctl.
//
// Templates themselves are not waited for: with expire_quiescent_template, which the
// daemon sets unless told not to, they do not lead to weight 0, and with timeouts of
// hours no drain would end.
//
// # Whose it is
//
// Ours is what is configured, what Replace saw go, and what an earlier process had
// (Owned, Remember). A service that the configuration lost while no process ran
// drains and goes like one that a reload took away, and a drain goes on with the time
// and reason it had. A service that was ours and has come to hold a destination that
// was not is somebody else's by now, and is left alone whole. A service that is
// configured is taken over whatever it holds, and what is strange in it drains.
//
// # One destination, several claims
//
// A sorry server may equal a real server, two virtual servers may share a group,
// and a file may name a service twice. A destination is wanted as long as anyone
// wants it, with the highest weight that is asked for; it is removed or drained
// only when nobody wants it any more.
package apply
