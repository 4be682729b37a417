package vip

import (
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/host"
)

// Alias is what ip-link(8) shows as the alias of a device that we made.
const Alias = "sluice virtual addresses"

// loopback is the one device that may be used and is no dummy.
const loopback = "lo"

// link is a device.
type link struct {
	index             uint32
	name, alias, kind string
	flags             uint32
}

func (l link) up() bool   { return l.flags&unix.IFF_UP != 0 }
func (l link) ours() bool { return l.alias == Alias && l.kind == dummy }

// usable says whether addresses may be put there.
func (l link) usable() bool { return l.kind == dummy || l.flags&unix.IFF_LOOPBACK != 0 }

// spot is one place where an address is.
type spot struct {
	index uint32
	bits  uint8
	proto uint8
}

// machine is what the kernel has, as far as it concerns us.
type machine struct {
	links map[uint32]link
	// addrs are all addresses of all devices, but those of a link's own scope.
	addrs map[netip.Addr][]spot
	// routes are those of ours in the table local.
	routes map[netip.Addr]bool
	// marks: the kernel keeps the originator of addresses.
	marks bool
}

func newMachine() machine {
	return machine{links: map[uint32]link{}, addrs: map[netip.Addr][]spot{}, routes: map[netip.Addr]bool{}}
}

func (m *machine) named(name string) (link, bool) {
	for _, l := range m.links {
		if l.name == name {
			return l, true
		}
	}
	return link{}, false
}

func (m *machine) add(a netip.Addr, s spot) {
	if !m.at(a, s.index) {
		m.addrs[a] = append(m.addrs[a], s)
	}
}

func (m *machine) drop(a netip.Addr, index uint32) {
	list := slices.DeleteFunc(slices.Clone(m.addrs[a]), func(s spot) bool { return s.index == index })
	if len(list) == 0 {
		delete(m.addrs, a)
		return
	}
	m.addrs[a] = list
}

// at says whether an address is on a device.
func (m *machine) at(a netip.Addr, index uint32) bool {
	return slices.ContainsFunc(m.addrs[a], func(s spot) bool { return s.index == index })
}

// count returns how many addresses are on a device.
func (m *machine) count(index uint32) (n int) {
	for _, spots := range m.addrs {
		for _, s := range spots {
			if s.index == index {
				n++
			}
		}
	}
	return n
}

// occupied returns the devices that have an address.
func (m *machine) occupied() map[uint32]bool {
	set := map[uint32]bool{}
	for _, spots := range m.addrs {
		for _, s := range spots {
			set[s.index] = true
		}
	}
	return set
}

// spotKey names an address on a device.
type spotKey struct {
	addr  netip.Addr
	index uint32
}

// ours says whether we put an address where it is.
func (v *Addresses) ours(a netip.Addr, s spot) bool {
	switch {
	case s.proto != 0:
		return s.proto == host.Protocol
	case v.m.marks || int(s.bits) != a.BitLen():
		return false
	}
	return v.added[spotKey{a, s.index}] || v.m.links[s.index].ours()
}

// verb is what an op does.
type verb uint8

const (
	makeLink  verb = iota // by name, and up
	raiseLink             // by index
	dropLink
	addAddress
	dropAddress
	addRoute // index is lo's
	dropRoute
)

// op is one message to the kernel.
type op struct {
	do    verb
	name  string
	index uint32
	addr  netip.Addr
}

// kernel is the machine itself.
type kernel interface {
	// read returns all of it, as it was at one time or after.
	read() (machine, error)
	readLinks() (map[uint32]link, error)
	// write does the ops in order and returns an error or nil for each. One that failed
	// does not keep the next from being done.
	write(ops []op) []error
	close() error
}
