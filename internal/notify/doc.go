// Package notify runs the scripts that tell an operator of a change: notify_up,
// notify_down, quorum_up and quorum_down.
//
// It decides when a script runs and whether it runs at all; how is package
// script's decision. It deliberately does not know what happened to a server or
// why: the engine says that something did, and nothing that a script does or fails
// to do comes back to it.
//
// Scripts of one virtual server run one after another, in the order of the events;
// those of different virtual servers run side by side, a few at a time. While an
// event waits, a newer one about the same subject (a real server of a virtual
// server, or its quorum) takes its place, at the end of the line. What runs is thus
// the series of events with the outdated ones left out, and the last that runs for
// a subject is always its last. keepalived starts each script at once and forgets
// it, so that the scripts of a flap overlap and may end in the wrong order.
//
// To the environment that package script gives, and unlike keepalived, it adds:
//
//	SLUICE_EVENT  rs_up, rs_down, quorum_up or quorum_down
//	SLUICE_VS     the virtual server, as the log names it
//	SLUICE_RS     the real server, likewise; absent for a quorum
//
// What a script prints goes to the log, cut off at 4 KiB.
//
// Decisions that were close:
//
//   - Down and up that both wait do not cancel each other: the up runs, though the
//     last that was told may have been an up as well. A script that is told twice is
//     harmless; one that is not told the last state is not.
//   - An event without a script changes nothing in the queue. Who configures
//     notify_down alone is told of each failure, even of one that is over.
//   - A warning about a script comes once for each configuration, after its run.
//   - At a stop SIGKILL comes without SIGTERM before it, a second after the stop
//     began, as in keepalived: two more seconds for one script would be taken from
//     those that still wait.
package notify
