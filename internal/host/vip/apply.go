package vip

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/edge"
)

// work is one way from what the kernel has to what is wanted, and what came of it.
type work struct {
	v       *Addresses
	missing map[netip.Addr]error
	// err is of everything: none of it can be done.
	err error
	// stale: the kernel is not as we believe.
	stale bool
	// devices are the indexes of those that are ready, and broken why others are not.
	devices map[string]uint32
	broken  map[string]error
}

// apply does what is to be done for some addresses, in the order of the package's doc.
func (v *Addresses) apply(keys []netip.Addr) *work {
	w := &work{v: v, missing: map[netip.Addr]error{}, devices: map[string]uint32{}, broken: map[string]error{}}
	w.prepare(keys)
	w.routes(keys, addRoute, func(a netip.Addr) bool {
		// Nobody watches routes: before its address leaves at last, one is made sure of.
		return v.routed(a) && (!v.m.routes[a] || slices.ContainsFunc(v.m.addrs[a], func(s spot) bool { return v.ours(a, s) }))
	})
	w.come(keys)
	w.leave(keys)
	w.routes(keys, dropRoute, func(a netip.Addr) bool {
		return v.m.routes[a] && (!v.want[a].Local || v.want[a].Announce && w.bound(a))
	})
	w.tidy()
	return w
}

// bound says whether an address is where it is wanted.
func (w *work) bound(a netip.Addr) bool {
	index, ready := w.devices[w.v.want[a].Device]
	return ready && w.v.m.at(a, index)
}

// prepare makes the devices that are named.
func (w *work) prepare(keys []netip.Addr) {
	for _, a := range keys {
		p := w.v.want[a]
		if p.Device == "" || w.devices[p.Device] != 0 || w.broken[p.Device] != nil {
			continue
		}
		index, err := w.device(p.Device)
		if err != nil {
			w.broken[p.Device] = err
			continue
		}
		w.devices[p.Device] = index
	}
}

// device returns the index of a device that is there and up.
func (w *work) device(name string) (uint32, error) {
	l, ok := w.v.m.named(name)
	if !ok {
		if name == loopback {
			return 0, fmt.Errorf("vip_device %s: this network namespace has no such device", name)
		}
		// EEXIST: somebody else made it meanwhile.
		if err := w.v.k.write([]op{{do: makeLink, name: name}})[0]; err != nil && !errors.Is(err, unix.EEXIST) {
			return 0, w.refused(err, deviceError(name, err))
		}
		links, err := w.v.k.readLinks()
		if err != nil {
			return 0, fmt.Errorf("vip_device %s: %w", name, err)
		}
		for index, l := range w.v.m.links {
			if _, ok := links[index]; !ok && w.v.uses[l.name] > 0 {
				w.stale = true // with what was on it
			}
		}
		w.v.m.links = links
		if l, ok = w.v.m.named(name); !ok {
			w.stale = true
			return 0, fmt.Errorf("vip_device %s: the device is gone again just after it was made", name)
		}
	}
	if !l.usable() {
		return 0, kindError(l)
	}
	if !l.up() {
		if err := w.v.k.write([]op{{do: raiseLink, index: l.index}})[0]; err != nil {
			w.stale = w.stale || errors.Is(err, unix.ENODEV)
			return 0, w.refused(err, fmt.Errorf("vip_device %s: the device is down and cannot be set up: %w%s", name, err, advice(err, loopback)))
		}
		l.flags |= unix.IFF_UP
		w.v.m.links[l.index] = l
		// IPv6 addresses were lost when it went down.
	}
	return l.index, nil
}

// refused notes an error that is everything's: without the right nothing can be done.
func (w *work) refused(cause, text error) error {
	if errors.Is(cause, unix.EPERM) {
		w.err = text
	}
	if errors.Is(cause, errUnknown) {
		w.stale = true
	}
	return text
}

// routes adds or drops the routes of some addresses.
func (w *work) routes(keys []netip.Addr, do verb, which func(netip.Addr) bool) {
	var ops []op
	var lo uint32
	for _, a := range keys {
		if !which(a) {
			continue
		}
		if lo == 0 {
			l, _ := w.v.m.named(loopback)
			lo = max(l.index, 1)
		}
		ops = append(ops, op{do: do, addr: a, index: lo})
	}
	for i, err := range w.v.k.write(ops) {
		a := ops[i].addr
		switch {
		case err == nil, do == addRoute && errors.Is(err, unix.EEXIST), do == dropRoute && errors.Is(err, unix.ESRCH):
			if do == addRoute {
				w.v.m.routes[a] = true
			} else {
				delete(w.v.m.routes, a)
			}
		default:
			what := "add"
			if do == dropRoute {
				what = "remove"
			}
			w.missing[a] = w.refused(err, fmt.Errorf("vip_device: %s the route that keeps %s local: %w%s", what, a, err, advice(err, loopback)))
		}
	}
}

// come puts addresses on their devices.
func (w *work) come(keys []netip.Addr) {
	var ops []op
	for _, a := range keys {
		p := w.v.want[a]
		if !p.Announce {
			continue
		}
		if err := w.broken[p.Device]; err != nil {
			w.missing[a] = err
			continue
		}
		if w.bound(a) {
			// Before it leaves another device, it is made sure that it is still here.
			if !slices.ContainsFunc(w.v.m.addrs[a], func(s spot) bool { return w.leaves(a, s) }) {
				continue
			}
		} else if err := w.elsewhere(a, p); err != nil {
			w.missing[a] = err
			continue
		}
		ops = append(ops, op{do: addAddress, addr: a, index: w.devices[p.Device]})
	}
	for i, err := range w.v.k.write(ops) {
		a, index := ops[i].addr, ops[i].index
		switch {
		case err == nil:
			w.v.added[spotKey{a, index}] = true
			w.v.m.add(a, spot{index: index, bits: uint8(a.BitLen()), proto: w.v.mark()})
		case errors.Is(err, unix.EEXIST) && w.bound(a):
		case errors.Is(err, unix.EEXIST), errors.Is(err, unix.ENODEV):
			w.stale = true
			fallthrough
		default:
			if errors.Is(err, errUnknown) {
				w.v.added[spotKey{a, index}] = true // if it is there, it was not before
			}
			device := w.v.want[a].Device
			w.missing[a] = w.refused(err, fmt.Errorf("vip_device %s: add %s: %w%s", device, a, err, advice(err, device)))
		}
	}
	if w.v.m.marks {
		clear(w.v.added)
	}
}

// mark is what the kernel keeps of our originator.
func (v *Addresses) mark() uint8 {
	if v.m.marks {
		return protocol
	}
	return 0
}

// elsewhere is the error of an address that somebody else has on another device.
func (w *work) elsewhere(a netip.Addr, p edge.Place) error {
	for _, s := range w.v.m.addrs[a] {
		if l := w.v.m.links[s.index]; l.name != "" && !w.v.ours(a, s) {
			return fmt.Errorf("vip_device %s: %s is on device %s already, and is not put on a second one; remove it there (ip address del %s/%d dev %s) or say vip_device none for this virtual server",
				p.Device, a, l.name, a, s.bits, l.name)
		}
	}
	return nil
}

// leaves says whether an address is somewhere that it is to leave, once it is where it is
// wanted.
func (w *work) leaves(a netip.Addr, s spot) bool {
	return w.v.ours(a, s) && !w.v.wanted(a, s) && !(w.v.want[a].Announce && s.index == w.devices[w.v.want[a].Device])
}

// leave takes what is ours from where it is not wanted, any more or any longer there.
func (w *work) leave(keys []netip.Addr) {
	var ops []op
	for _, a := range keys {
		for _, s := range w.v.m.addrs[a] {
			if w.leaves(a, s) && (!w.v.want[a].Announce || w.bound(a) && w.missing[a] == nil) {
				ops = append(ops, op{do: dropAddress, addr: a, index: s.index})
			}
		}
	}
	ops = w.wholesale(ops)
	for i, err := range w.v.k.write(ops) {
		a, index := ops[i].addr, ops[i].index
		if err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) && !errors.Is(err, unix.ENODEV) {
			name := w.v.m.links[index].name
			w.missing[a] = w.refused(err, fmt.Errorf("vip_device %s: remove %s: %w%s", name, a, err, advice(err, name)))
			continue
		}
		w.v.m.drop(a, index)
		delete(w.v.added, spotKey{a, index})
	}
}

// wholesale is from how many addresses on that leave a device of ours bare the device goes
// instead. The kernel looks through all IPv6 routes for each address that is removed, and
// once for a device.
const wholesale = 256

// wholesale takes from ops what goes with a device.
func (w *work) wholesale(ops []op) []op {
	leaving := map[uint32]int{}
	for _, o := range ops {
		leaving[o.index]++
	}
	for index, n := range leaving {
		if n < wholesale || !w.v.m.links[index].ours() || n != w.v.m.count(index) || w.v.k.write([]op{{do: dropLink, index: index}})[0] != nil {
			continue
		}
		name := w.v.m.links[index].name
		delete(w.v.m.links, index)
		if w.v.uses[name] > 0 {
			if _, err := w.device(name); err != nil {
				w.stale = true
			}
		}
		ops = slices.DeleteFunc(ops, func(o op) bool {
			if o.index == index {
				w.v.m.drop(o.addr, index)
				delete(w.v.added, spotKey{o.addr, index})
			}
			return o.index == index
		})
	}
	return ops
}

// tidy removes devices of ours that nothing wants and nothing is on.
func (w *work) tidy() {
	var occupied map[uint32]bool
	for index, l := range w.v.m.links {
		if !l.ours() || w.v.uses[l.name] > 0 {
			continue
		}
		if occupied == nil {
			occupied = w.v.m.occupied()
		}
		if occupied[index] {
			continue
		}
		err := w.v.k.write([]op{{do: dropLink, index: index}})[0]
		if err != nil && !errors.Is(err, unix.ENODEV) {
			if text := w.refused(err, fmt.Errorf("vip_device %s: remove the device: %w%s", l.name, err, advice(err, l.name))); w.err == nil {
				w.err = text
			}
			continue
		}
		delete(w.v.m.links, index)
	}
}
