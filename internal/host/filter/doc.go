// Package filter writes our tables of nftables: the guard around virtual addresses, and
// the marks that carry large groups.
//
// It decides what the tables look like, how a change reaches them, and how it is found
// out that somebody else changed them. It deliberately does not decide what they should
// hold (package edge does), it keeps no goroutine and no socket between two calls, and it
// touches no table but its own.
//
// Decisions that were close:
//
//   - The guard never asks connection tracking: one ct expression would switch it on for
//     every packet of a machine that was chosen because it does without. A TCP segment
//     that is no lone SYN passes instead, and the kernel's own stack answers those that
//     belong to nothing.
//   - The guard stands at priority 90: after every chain that may give a packet a mark
//     (nftables_ipvs_priority is the operator's) or drop it, and before 98, where IPVS
//     takes the packet away.
//   - A change is found through the kernel's generation number of the rule set, which
//     every transaction of anybody counts up: one small question says whether the tables
//     are still as we left them. If they are, a change is the difference to what was
//     written last; if not, they are read and compared, so that each call is a
//     reconciliation and its usual price is that of the difference.
//   - One call is one transaction, of ten thousand elements too: packets meet the old table
//     or the new one. The socket's buffers are made large enough for it. Where that is not
//     allowed (a container's CAP_NET_ADMIN does not reach it), the transaction is cut: what
//     comes in is added before anything is taken away, and a guard that is new has its
//     rules last, so that what was open stays so. A table that has to be made anew is
//     gone for a moment then, which is a guard that lets in and a mark that is missing.
//   - Sets hold exact keys in the kernel's hash tables and no intervals: a group's ten
//     thousand addresses are so many elements, each of which comes and goes alone, and a
//     lookup is one hash.
//   - The guard's table is ours by its name, as the tables of other programs are. That of
//     nftables_ipvs has a name that an operator chose, perhaps by mistake that of his
//     firewall: what has its chains and maps, ours or an earlier keepalived's, is taken
//     over, anything else is refused. Its rules carry a comment, by which a start that no
//     longer wants it finds what a killed process left under another name.
//   - nftables_ipvs is a table per family, with the names of keepalived: what operators look
//     at stays where it was, and the table of one program is replaced by the other's.
package filter
