// Package notify runs the scripts that tell an operator of a change: notify_up,
// notify_down, quorum_up and quorum_down.
//
// It decides when a script runs, as whom, with what around it, for how long, and
// whether it runs at all. It deliberately does not know what happened to a server
// or why: the engine says that something did, and nothing that a script does or
// fails to do comes back to it.
//
// Scripts of one virtual server run one after another, in the order of the events;
// those of different virtual servers run side by side, a few at a time. While an
// event waits, a newer one about the same subject (a real server of a virtual
// server, or its quorum) takes its place, at the end of the line. What runs is thus
// the series of events with the outdated ones left out, and the last that runs for
// a subject is always its last. keepalived starts each script at once and forgets
// it, so that the scripts of a flap overlap and may end in the wrong order.
//
// A script is executed, never interpreted: no shell sees the configured line. It
// has the environment of the daemon without IFS, LD_PRELOAD, LD_LIBRARY_PATH and
// what systemd meant for the daemon alone (NOTIFY_SOCKET, WATCHDOG_USEC,
// WATCHDOG_PID), and in addition, unlike keepalived:
//
//	SLUICE_EVENT  rs_up, rs_down, quorum_up or quorum_down
//	SLUICE_VS     the virtual server, as the log names it
//	SLUICE_RS     the real server, likewise; absent for a quorum
//
// It reads from /dev/null, leads a process group of its own, starts in the root
// directory, and inherits no other descriptor. What it prints goes to the log, cut
// off at 4 KiB.
//
// Decisions that were close:
//
//   - Down and up that both wait do not cancel each other: the up runs, though the
//     last that was told may have been an up as well. A script that is told twice is
//     harmless; one that is not told the last state is not.
//   - An event without a script changes nothing in the queue. Who configures
//     notify_down alone is told of each failure, even of one that is over.
//   - A script is examined each time before it runs, not once at the start: modes
//     change. Between the examination and the exec a gap is left, as in keepalived;
//     only someone who may write to a path that was found safe can use it.
//   - A script that is not executable by its mode bits is tried all the same, since
//     the kernel knows access control lists and this package does not. The bits only
//     explain a refusal, and are what Check goes by.
//   - A file without a #! line is given to /bin/sh by name, as execvp(3) does and
//     keepalived in effect too; its arguments reach it untouched.
//   - A child that a script leaves behind keeps a reader for its output: closing the
//     pipe would end it with SIGPIPE at its next line, and under keepalived it would
//     have lived on. A number of such pipes is kept, then the oldest is closed.
//   - Pdeathsig is bound to the thread that forked, not to the process. The goroutine
//     that runs a script therefore stays on its thread until the script has ended.
//   - enable_script_security follows the configuration file. In keepalived it stays
//     on, once set, until the process ends.
//   - keepalived resets ignored signals for its scripts and can add supplementary
//     groups by set_supplementary_groups; this package does neither.
//   - Descendants that leave the process group, and orphans of a daemon that is
//     process 1, are not this package's business.
package notify
