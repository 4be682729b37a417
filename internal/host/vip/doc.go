// Package vip puts virtual addresses on a device, through rtnetlink, and keeps them
// there.
//
// It decides how the kernel gets from what it has to what is wanted, and what of the
// kernel's is ours. It deliberately does not decide what is wanted (package edge does),
// and knows nothing of services.
//
// # Decisions
//
// A mark in the kernel and no file says what is ours, so that a kill at any moment leaves
// nothing that the next process does not know: addresses and routes have host.Protocol as
// their originator, and a device that we made has Alias. A device is made and named ours
// by one send, which a kill does not cut in two. What has no mark was there before: it is
// used where it serves and never removed.
//
// Kernels before 5.18 keep no originator of an address. There, each /32 and /128 on a
// device of ours is ours, and on another device what this process put there: what an
// earlier process left on a device that is not ours is used, and stays.
//
// The device has to be a dummy, or lo. Others have neighbors, who would ask for the
// address and get answers.
//
// IPv6 addresses skip duplicate detection, which has no meaning on a dummy and would
// leave the address unusable for a second. They keep the kernel's prefix route, since
// FRR makes no connected route of an address without one, and so would not announce it.
//
// An address that is to be taken in without being on the device (edge.Place.Local) has a
// route of type local in the table local. The kernel accepts and sends packets by that
// table and not by the list of addresses, so established connections do not notice; a
// routing daemon goes by the list. The route has no preferred source: the kernel removes
// routes that have one together with that address.
//
// Order within one change: devices, routes, addresses that come, addresses that go, routes
// that go, devices that go. So an address that moves is on both devices for a moment and
// never on none.
//
// Where hundreds of addresses leave a device of ours bare, the device goes and is made anew
// at once if it is still named: removing 10,000 addresses one by one takes seconds.
//
// Many messages are one send, and only the last asks for an acknowledgment: the kernel
// works on them in order and says which of them failed, by sequence number. Answers that
// were lost for want of room make the result unknown, and then the kernel is read again.
//
// What we believe of the machine is kept and is right until somebody else changes it.
// Change goes by it; Sync reads everything, and what differs has been changed by others.
// Watch rings only for events that contradict what is believed of what concerns us, so that
// our own changes ring for nothing; it notes the rest, for addresses that become wanted.
package vip
