package vip

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/mdlayher/netlink"

	"github.com/sluice-lb/sluice/internal/edge"
)

var _ edge.Addresses = (*Addresses)(nil)

// Addresses is the machine's virtual addresses. It may be used by several goroutines.
type Addresses struct {
	k      kernel
	events *netlink.Conn

	mu   sync.Mutex
	want map[netip.Addr]edge.Place
	// whole: want is all there is to want. What is ours and not in it goes.
	whole bool
	// uses counts the wanted addresses of each device.
	uses map[string]int
	// m is what we believe, once it was read.
	m    machine
	read bool
	// added are the addresses that this process put somewhere, for kernels that do not
	// keep that.
	added map[spotKey]bool
}

// Open opens the kernel of the calling thread's network namespace, and changes nothing.
func Open() (*Addresses, error) {
	events, err := openEvents()
	if err != nil {
		return nil, fmt.Errorf("vip_device: listen to rtnetlink: %w", err)
	}
	k, err := openKernel()
	if err != nil {
		_ = events.Close()
		return nil, fmt.Errorf("vip_device: open rtnetlink: %w", err)
	}
	v := open(k)
	v.events = events
	return v, nil
}

func open(k kernel) *Addresses {
	return &Addresses{k: k, want: map[netip.Addr]edge.Place{}, uses: map[string]int{}, added: map[spotKey]bool{}, m: newMachine()}
}

// Close lets go of the kernel and leaves everything as it is.
func (v *Addresses) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	err := v.k.close()
	if v.events != nil {
		err = errors.Join(err, v.events.Close())
	}
	return err
}

// Sync reads the kernel and makes all that is ours what is wanted, as edge.Addresses says.
func (v *Addresses) Sync(want map[netip.Addr]edge.Place) (repaired int, missing map[netip.Addr]error, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.whole = true
	clear(v.want)
	clear(v.uses)
	for a, p := range want {
		v.wish(a, p)
	}
	return v.sync()
}

// Change is Sync for some addresses, and goes by what the kernel had. It reads the kernel
// where that proves wrong, and then tells of others too. Sync has to come before.
func (v *Addresses) Change(want map[netip.Addr]edge.Place) (missing map[netip.Addr]error, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if !v.whole {
		return nil, errors.New("vip_device: nobody said yet which addresses there are to be; this is a bug")
	}
	for a, p := range want {
		v.wish(a, p)
	}
	if v.read {
		w := v.apply(slices.SortedFunc(maps.Keys(want), netip.Addr.Compare))
		if !w.stale {
			return w.missing, w.err
		}
	}
	_, missing, err = v.sync()
	return missing, err
}

// wish notes what is wanted of one address.
func (v *Addresses) wish(a netip.Addr, p edge.Place) {
	if old, ok := v.want[a]; ok {
		if v.uses[old.Device]--; v.uses[old.Device] == 0 {
			delete(v.uses, old.Device)
		}
		delete(v.want, a)
	}
	if p != (edge.Place{}) {
		v.want[a] = p
		v.uses[p.Device]++
	}
}

// sync reads and applies until nothing has changed between.
func (v *Addresses) sync() (repaired int, missing map[netip.Addr]error, err error) {
	const attempts = 4
	for attempt := 1; ; attempt++ {
		now, err := v.k.read()
		if err != nil {
			v.read = false
			return repaired, nil, fmt.Errorf("vip_device: %w", err)
		}
		if v.read {
			repaired += v.differs(&now)
		}
		v.m, v.read = now, true
		v.forget()
		w := v.apply(v.concerned())
		if !w.stale || attempt == attempts {
			return repaired, w.missing, w.err
		}
	}
}

// differs counts what of ours is other than we left it.
func (v *Addresses) differs(now *machine) (n int) {
	for index, l := range v.m.links {
		if v.uses[l.name] == 0 || !l.usable() {
			continue
		}
		if is, ok := now.links[index]; !ok || is.name != l.name || l.up() && !is.up() {
			n++
		}
	}
	for a, spots := range v.m.addrs {
		for _, s := range spots {
			if v.wanted(a, s) && !now.at(a, s.index) {
				n++
			}
		}
	}
	for a := range v.m.routes {
		if v.routed(a) && !now.routes[a] {
			n++
		}
	}
	// What is ours and not wanted, and we did not leave.
	before := v.m
	v.m = *now
	defer func() { v.m = before }()
	for a, spots := range now.addrs {
		for _, s := range spots {
			if v.ours(a, s) && !v.wanted(a, s) && !before.at(a, s.index) {
				n++
			}
		}
	}
	for a := range now.routes {
		if !v.want[a].Local && !before.routes[a] {
			n++
		}
	}
	return n
}

// wanted says whether an address should be where it is.
func (v *Addresses) wanted(a netip.Addr, s spot) bool {
	p := v.want[a]
	return p.Announce && v.m.links[s.index].name == p.Device
}

// routed says whether an address is to be taken in without being on the device.
func (v *Addresses) routed(a netip.Addr) bool {
	p := v.want[a]
	return p.Local && !p.Announce
}

// forget drops from added what is not there any more.
func (v *Addresses) forget() {
	for k := range v.added {
		if !v.m.at(k.addr, k.index) {
			delete(v.added, k)
		}
	}
}

// concerned are the addresses that are wanted or ours.
func (v *Addresses) concerned() []netip.Addr {
	set := make(map[netip.Addr]struct{}, len(v.want))
	for a := range v.want {
		set[a] = struct{}{}
	}
	for a, spots := range v.m.addrs {
		if slices.ContainsFunc(spots, func(s spot) bool { return v.ours(a, s) }) {
			set[a] = struct{}{}
		}
	}
	for a := range v.m.routes {
		set[a] = struct{}{}
	}
	return slices.SortedFunc(maps.Keys(set), netip.Addr.Compare)
}

// Watch calls changed when something contradicts what is believed, until the context ends.
func (v *Addresses) Watch(ctx context.Context, changed func()) error { return v.watch(ctx, changed) }
