// Package ipvstest is IPVS without a kernel: a [Table] in memory with the methods
// of an ipvs.Client, and [Conformance], the suite that holds the table to the
// kernel's answers.
//
// The suite decides what "as the kernel" means: every answer that the table
// imitates is a row in it, and it runs against the real ip_vs too. Where kernels
// differ among themselves the table is the strictest: it refuses thresholds of
// 2^31, which only newer kernels do, and connection timeouts that only a kernel
// with a slow clock would take.
//
// The table knows nothing of packets. Connection counters are what a test sets.
// As in the kernel they survive SetDest, and a destination that is deleted with
// connections on it gets them back when it is added again: the kernel keeps it on
// its trash list until they are gone. (The kernel keeps idle ones there as well,
// for a minute, with their traffic statistics; the table forgets those.)
//
// Synchronisation daemons are a note in the table that they run. It has the
// interfaces of SetInterfaces, all of them up, with addresses and with a route for
// multicast; the kernel fails a start on one that lacks these.
//
// One order is not imitated: the kernel lists services as its hash table has
// them, the table as they were added. Both list addresses before marks, and
// destinations with the newest first.
package ipvstest
