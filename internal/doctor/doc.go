// Package doctor judges a machine by what a configuration needs of it: kernel
// modules and settings, addresses and routes, the daemon's rights and limits.
//
// It decides which fact hurts which virtual server, how badly, and which command
// mends it. It deliberately gathers nothing (internal/host does) and prints nothing
// (internal/control/render does): Examine is a function of its input.
//
// Decisions:
//
//   - A rule speaks only where this configuration needs it. A director without NAT
//     is not told about ip_forward; what nobody uses is no finding, not even a good
//     one.
//
//   - What could not be read is unknown and says why. No rule takes a default for a
//     value: a doctor that says "fine" about what it did not see does harm.
//
//   - A failure is what loses or misleads connections now, for certain. A warning is
//     what does under a condition that is usual. A note is what cannot be seen from
//     here, or is somebody's choice.
//
//   - What sluiced sets by itself (manage_sysctls, ipvs_conntrack, lvs_timeouts) is
//     not complained about before it had the chance; afterwards it is, since then
//     somebody has put it back.
//
//   - A finding is about a rule and not about an object: a thousand missing
//     addresses are one finding that names the first few and the count.
//
//   - Commands are complete and can be pasted. A setting of another network namespace
//     is mended by a command that enters it; files below /etc do not reach it.
package doctor
