// Package script runs the scripts of a configuration.
//
// It decides how a script is found, whether it is safe to run, as whom and with
// what around it, and it runs it to exactly one outcome. It deliberately does not
// know what a script is for, when one is due, or what its outcome means: that is
// for those who have scripts, the checks, the notices and the FIFOs.
//
// A script is executed, never interpreted: no shell sees the configured line. It
// has the environment of the daemon without IFS, LD_PRELOAD, LD_LIBRARY_PATH and
// what systemd meant for the daemon alone (NOTIFY_SOCKET, WATCHDOG_USEC,
// WATCHDOG_PID). It reads from /dev/null, leads a process group of its own, starts
// in the root directory with the default action for each signal and at ordinary
// priority, inherits no other descriptor, and dies with the daemon. Of what it
// prints the first 4 KiB are kept.
//
// # Outcomes
//
// A script ends by itself, or at its timeout, or because it is stopped; or it
// could not be started. The choice is made once and in one place: whoever can be
// reaped before the first signal is sent has ended by itself. Only then is it
// reaped, so that no signal can reach a stranger with the same number, and what is
// left of a group that was ended is killed before its number is free.
//
// # Decisions
//
// A script is examined each time before it runs, not once at the start: modes
// change. Between the examination and the exec a gap is left, as in keepalived;
// only someone who may write to a path that was found safe can use it.
//
// A script that is not executable by its mode bits is tried all the same, since
// the kernel knows access control lists and this package does not. The bits only
// explain a refusal, and are what Check goes by.
//
// What cannot be started is an error. In keepalived the failed exec of a check is
// a success, as is "command not found" (facts 4.13).
//
// A file without a #! line is given to /bin/sh by name, as execvp(3) does and
// keepalived in effect too; its arguments reach it untouched.
//
// A child that a script leaves behind keeps a reader for its output: closing the
// pipe would end it with SIGPIPE at its next line, and under keepalived it would
// have lived on. A number of such pipes is kept, then the oldest is closed.
//
// Pdeathsig is bound to the thread that forked, not to the process, and Go ends
// threads. So one thread forks for all and stays while there is a process of its.
// The alternative, a thread for each running script, would meet Go's limit of ten
// thousand; and forks take turns in Go anyhow. On a machine that is too busy to
// fork as often as it is asked to, a script whose turn does not come while its
// context lasts is not run, which is an error and no verdict of a script.
//
// The end of a process is awaited through its pidfd, on the runtime's poller, so
// that a waiting script costs two goroutines and no thread. Kernels before 5.3
// cost a thread.
//
// The timeout counts from the exec, not from when the script was asked for: a
// daemon that is short of time must not blame the script.
//
// enable_script_security follows the configuration file. In keepalived it stays
// on, once set, until the process ends.
//
// Descendants that leave the process group, and orphans of a daemon that is
// process 1, are not this package's business.
package script
