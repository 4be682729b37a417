// Package host is the machine around the daemon: kernel settings, the IPVS
// module, limits, capabilities, namespaces, addresses, and the process itself as
// the kernel schedules it.
//
// It decides which settings sluice needs and how to say that one is missing. It
// deliberately does not decide whether to touch them (manage_sysctls, observe
// mode): that is the daemon's. It never logs; what it found goes back to the
// caller.
//
// Files below /proc/sys/net belong to the network namespace of the thread that
// opens them. A caller that works in another namespace must have locked and
// moved its thread before.
package host
