// Package ipvs is a typed client for the kernel's IP Virtual Server over generic
// netlink (family "IPVS", <linux/ip_vs.h>).
//
// It decides how a service, a destination and a change of the table look on the
// wire, how an answer is matched with its question, and what an errno means for
// the operation that got it. It deliberately does not know what should be in the
// table, in which order to change it, or what keepalived calls things; it keeps
// no copy of the table, logs nothing and retries no write.
//
// # Reading
//
// An empty table is an empty list, and so are the destinations of a service that
// does not exist: the kernel answers both alike, so existence is never to be
// concluded from a dump of destinations. [Client.Service] tells it.
//
// The kernel dumps a table in pieces and lets go of its lock in between. IPVS
// numbers the entries and never sets the flag that netlink has for an interrupted
// dump, so that an entry deleted meanwhile makes the reader miss another one, in
// silence. A list that came in more than one piece is therefore read until two
// readings in a row name the same entries in the same order; that costs a second
// dump for tables of more than about 90 entries, and nothing for others. One that
// will not hold still, or that the kernel does flag, ends in [ErrInterrupted]:
// nothing partial is ever returned.
//
// # Writing
//
// [Client.Batch] packs operations into few sends and asks for one acknowledgement
// a send. The kernel works through a send before the call returns and answers
// failures one by one under their sequence numbers, even unasked, so silence plus
// the final acknowledgement means success for each. An answer is only ever taken
// for the question whose number it carries; what is left over from an exchange
// that was given up is thrown away before the next.
//
// Deleted destinations live on in the kernel for a minute or as long as they have
// connections, and adding one again revives it with its counters.
//
// # Synchronisation
//
// The kernel can multicast its connections to a second director and take in those
// of another: [Client.StartSyncDaemon]. Master and backup are two threads of the
// network namespace that know nothing of each other. They are of no process: one
// that ends leaves them running. The kernel cannot change a running one, so the
// client offers no Set; and while one runs, it refuses destinations of another
// family than their service's.
//
// A thread that is stopped before it first ran makes the kernel answer a stop
// with EINTR, which netlink never sends: a lone request would wait in vain. The
// stop goes together with a question that is always answered.
//
// # Errors
//
// Every error is an [*Error] that names operation and object and unwraps to the
// errno. errors.Is understands fs.ErrExist, fs.ErrPermission and fs.ErrNotExist;
// the last stands for both of the kernel's answers, ESRCH (no such service) and
// ENOENT (no such destination, scheduler or persistence engine).
//
// # Why not the library's calls
//
// genetlink.Conn.Execute costs five times the raw exchange for each operation and
// returns only the first error, and its attribute coders allocate for each
// attribute. So netlink opens the socket and genetlink looks up the family, while
// attributes are written to and read from one buffer here; the tests hold that
// coder to netlink's.
package ipvs
