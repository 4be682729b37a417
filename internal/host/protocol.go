package host

// Protocol is the originator that our addresses, routes and rules carry in the kernel
// (IFA_PROTO, RTA_PROTOCOL, FRA_PROTOCOL; ip-address(8), ip-route(8) and ip-rule(8) show
// it as proto). It says after a crash what is ours. No routing daemon has this number.
const Protocol = 115
