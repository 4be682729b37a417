// Package edge keeps what of the machine goes with the services in step with them:
// virtual addresses on a device, the guard around them, and the marks that carry large
// groups.
//
// It decides, from what each virtual server wishes, what the machine should have, in
// which order that is reached, and when a failure is tried again. It deliberately does
// not decide what a virtual server wishes (the engine does, by quorum, passive and the
// table), and it writes nothing itself: package host/vip and package host/filter do.
package edge
