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
package framework
