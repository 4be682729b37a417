// Package edge keeps what of the machine goes with the services in step with them:
// virtual addresses on a device, the guard around them, and the marks that carry large
// groups.
//
// It decides, from what each virtual server wishes, what the machine should have, in
// which order that is reached, and when a failure is tried again. It deliberately does
// not decide what a virtual server wishes (the engine does, by quorum, passive and the
// table), and it writes nothing itself: package host/vip and package host/filter do.
//
// # Decisions
//
// A Keeper is one goroutine. Wishes are left in its inbox, where the newest of a virtual
// server takes the place of the one before: whoever wishes never waits, and a machine
// that is slow does what is still wanted and no more.
//
// What several virtual servers share is counted: an address is announced while any of
// them announces it, taken in while any has something in the table, guarded while any
// guards it. Then the guard lets in the services of all of them. So one move of one
// virtual server costs what it changes, whatever else there is. An address that two of
// them want on two devices is put on the one whose name comes first, and told of.
//
// One pass goes: the guard opens and marks are set, addresses change, the guard closes and
// marks go. An address that would be announced for the first time waits for its mark,
// since without one it has no service; it does not wait for a guard that does not work.
// Nothing closes while an address that should be gone is not.
//
// A failure is told once, and tried again after a second, then after twice as long, up to
// half a minute; a reload has it tried at once. A retry reads the kernel and goes over everything, as does one pass each
// minute and, for addresses, whenever the kernel says that somebody else changed one.
//
// Nothing is opened and nothing removed before the first wishes: what an earlier process
// left is in use until this one knows better. Begin is called before the first write, and
// End when the last thing is gone, so that somebody else can remember that there is
// something to be removed.
package edge
