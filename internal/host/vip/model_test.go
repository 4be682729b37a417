package vip

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/internal/host"
)

// modelKernel is a kernel that somebody else uses too, and that refuses what must not be.
type modelKernel struct {
	m     machine
	next  uint32
	fail  int // so many ops from now fails
	lose  bool
	hit   bool // one has failed
	wrong string
	// check looks at each op before it is done.
	check func(o op) string
}

func newModel(marks bool) *modelKernel {
	k := &modelKernel{m: newMachine(), next: 10, fail: -2}
	k.m.marks = marks
	k.m.links[1] = link{index: 1, name: loopback, flags: unix.IFF_UP | unix.IFF_LOOPBACK}
	k.m.links[2] = link{index: 2, name: "eth0", flags: unix.IFF_UP}
	k.m.links[3] = link{index: 3, name: "byhand", kind: dummy}
	return k
}

func (k *modelKernel) copy() machine {
	c := machine{links: maps.Clone(k.m.links), addrs: map[netip.Addr][]spot{}, routes: maps.Clone(k.m.routes), marks: k.m.marks}
	for a, spots := range k.m.addrs {
		c.addrs[a] = slices.Clone(spots)
	}
	return c
}

func (k *modelKernel) read() (machine, error) { return k.copy(), nil }
func (k *modelKernel) readLinks() (map[uint32]link, error) {
	return maps.Clone(k.m.links), nil
}
func (k *modelKernel) close() error { return nil }

func (k *modelKernel) write(ops []op) []error {
	errs := make([]error, len(ops))
	for i, o := range ops {
		if k.fail--; k.fail == -1 {
			k.hit = true
			if errs[i] = unix.ENOMEM; k.lose {
				errs[i] = errUnknown
				_ = k.one(o)
			}
			continue
		}
		errs[i] = k.one(o)
	}
	return errs
}

func (k *modelKernel) one(o op) error {
	if k.check != nil && k.wrong == "" {
		if why := k.check(o); why != "" {
			k.wrong = fmt.Sprintf("%+v: %s", o, why)
		}
	}
	l, known := k.m.links[o.index]
	if o.do != makeLink && !known {
		return unix.ENODEV
	}
	switch o.do {
	case makeLink:
		if _, ok := k.m.named(o.name); ok {
			return unix.EEXIST
		}
		k.next++
		k.m.links[k.next] = link{index: k.next, name: o.name, alias: Alias, kind: dummy, flags: unix.IFF_UP}
	case raiseLink:
		l.flags |= unix.IFF_UP
		k.m.links[o.index] = l
	case dropLink:
		k.removeLink(o.index)
	case addAddress:
		if k.m.at(o.addr, o.index) {
			return unix.EEXIST
		}
		s := spot{index: o.index, bits: uint8(o.addr.BitLen())}
		if k.m.marks {
			s.proto = host.Protocol
		}
		k.m.add(o.addr, s)
	case dropAddress:
		if !k.m.at(o.addr, o.index) {
			return unix.EADDRNOTAVAIL
		}
		k.m.drop(o.addr, o.index)
	case addRoute:
		if k.m.routes[o.addr] {
			return unix.EEXIST
		}
		k.m.routes[o.addr] = true
	case dropRoute:
		if !k.m.routes[o.addr] {
			return unix.ESRCH
		}
		delete(k.m.routes, o.addr)
	}
	return nil
}

func (k *modelKernel) removeLink(index uint32) {
	delete(k.m.links, index)
	for a := range k.m.addrs {
		k.m.drop(a, index)
	}
}

// TestModel: whatever is wanted, whatever fails and whatever others do, what we do never
// touches what is not ours, never takes an address away that is wanted, and ends with
// exactly what is wanted, for a new process too.
func TestModel(t *testing.T) {
	list := many(5)
	foreign := netip.MustParseAddr("203.0.113.7")
	rapid.Check(t, func(t *rapid.T) {
		marks := rapid.Bool().Draw(t, "marks")
		k := newModel(marks)
		v := open(k)
		want := map[netip.Addr]edge.Place{}
		// others are the addresses that others have put somewhere, by name of the device.
		others := map[string]bool{}
		put := func(a netip.Addr, index uint32) {
			k.m.add(a, spot{index: index, bits: 24})
			others[fmt.Sprint(a, index)] = true
		}
		if rapid.Bool().Draw(t, "foreign") {
			put(foreign, 3)
		}
		k.check = func(o op) string {
			p := want[o.addr]
			switch o.do {
			case dropLink:
				for a, spots := range k.m.addrs {
					for _, s := range spots {
						if s.index == o.index && (others[fmt.Sprint(a, s.index)] || want[a].Announce && want[a].Device == k.m.links[o.index].name) {
							return "somebody's address or a wanted one is there"
						}
					}
				}
				if l, ok := k.m.links[o.index]; ok && !l.ours() {
					return "not our device"
				}
				for _, p := range want {
					if p.Device == k.m.links[o.index].name {
						return "it is named"
					}
				}
			case dropAddress:
				if !k.m.at(o.addr, o.index) {
					return "" // no harm
				}
				if others[fmt.Sprint(o.addr, o.index)] {
					return "not ours"
				}
				on, _ := k.m.named(p.Device)
				if p.Announce && (on.index == o.index || !k.m.at(o.addr, on.index)) {
					return "it is wanted and nowhere else"
				}
				if p.Local && !p.Announce && !k.m.routes[o.addr] && !k.hit {
					return "it is to stay local, and there is no route yet"
				}
			case addAddress:
				for _, s := range k.m.addrs[o.addr] {
					if others[fmt.Sprint(o.addr, s.index)] {
						return "somebody else has it"
					}
				}
			}
			return ""
		}
		_, _, _ = v.Sync(nil)
		names := []string{"sluice0", "sluice1", "byhand", loopback}
		for range rapid.IntRange(1, 10).Draw(t, "steps") {
			k.fail, k.lose, k.hit = -2, false, false
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0: // somebody deletes an address
				a := rapid.SampledFrom(list).Draw(t, "deleted")
				for _, s := range slices.Clone(k.m.addrs[a]) {
					k.m.drop(a, s.index)
					v.heardAddress(a, s, false)
					delete(others, fmt.Sprint(a, s.index))
				}
			case 1: // or a device
				if l, ok := k.m.named(rapid.SampledFrom(names[:2]).Draw(t, "device")); ok {
					k.removeLink(l.index)
					for _, a := range append(list, foreign) {
						delete(others, fmt.Sprint(a, l.index))
					}
				}
			case 2: // or sets it down
				for index, l := range k.m.links {
					l.flags &^= unix.IFF_UP
					k.m.links[index] = l
				}
			case 3: // or puts one elsewhere
				if a := rapid.SampledFrom(list).Draw(t, "elsewhere"); len(k.m.addrs[a]) == 0 {
					put(a, 2)
					_, wanted := want[a]
					wanted = wanted && !v.m.at(a, 2)
					if v.heardAddress(a, spot{index: 2, bits: 24}, true) != wanted {
						t.Fatalf("%s is wanted: %v, and the bell says otherwise", a, wanted)
					}
				}
			case 4: // or a route away
				clear(k.m.routes)
			case 5: // a new process
				if marks {
					v = open(k)
					if _, err := v.Change(nil); err == nil {
						t.Fatal("changed something before it knew all")
					}
				}
				if _, _, err := v.Sync(want); err != nil {
					t.Fatal(err)
				}
			default:
				change := map[netip.Addr]edge.Place{}
				for range rapid.IntRange(1, 4).Draw(t, "changes") {
					p := edge.Place{Device: rapid.SampledFrom(names).Draw(t, "on"), Announce: rapid.Bool().Draw(t, "announce"), Local: rapid.Bool().Draw(t, "local")}
					if !p.Announce && !p.Local && rapid.Bool().Draw(t, "gone") {
						p = edge.Place{}
					}
					a := rapid.SampledFrom(list).Draw(t, "address")
					change[a] = p
					if want[a] = p; p == (edge.Place{}) {
						delete(want, a)
					}
				}
				if rapid.IntRange(0, 3).Draw(t, "fails") == 0 {
					k.fail, k.lose = rapid.IntRange(0, 4).Draw(t, "after"), rapid.Bool().Draw(t, "lost")
				}
				if _, err := v.Change(change); err != nil && !k.hit {
					t.Fatal(err)
				}
			}
		}
		k.fail, k.lose, k.hit = -2, false, false
		if _, _, err := v.Sync(want); err != nil {
			t.Fatal(err)
		}
		repaired, missing, err := v.Sync(want)
		if err != nil || repaired != 0 {
			t.Fatalf("%d repaired with nothing changed, %v", repaired, err)
		}
		if k.wrong != "" {
			t.Fatal(k.wrong)
		}
		for a, p := range want {
			on, ok := k.m.named(p.Device)
			elsewhere := others[fmt.Sprint(a, 2)]
			switch {
			case p.Announce && elsewhere != (missing[a] != nil):
				t.Fatalf("%s is on another device: %v, and missing: %v", a, elsewhere, missing[a])
			case p.Announce && !elsewhere && (!ok || !on.up() || !k.m.at(a, on.index) || len(k.m.addrs[a]) != 1 || k.m.routes[a]):
				t.Fatalf("%s wants %+v and is at %+v, route %v", a, p, k.m.addrs[a], k.m.routes[a])
			case !p.Announce && p.Local != k.m.routes[a]:
				t.Fatalf("%s wants %+v, route %v", a, p, k.m.routes[a])
			case !ok || !on.up() && on.usable():
				t.Fatalf("%s names %s, which is not there", a, p.Device)
			}
		}
		for a, spots := range k.m.addrs {
			for _, s := range spots {
				if p := want[a]; !others[fmt.Sprint(a, s.index)] && (!p.Announce || p.Device != k.m.links[s.index].name) {
					t.Fatalf("%s is left on %s", a, k.m.links[s.index].name)
				}
			}
		}
		for a := range k.m.routes {
			if !want[a].Local {
				t.Fatalf("the route of %s is left", a)
			}
		}
		if _, _, err := v.Sync(nil); err != nil {
			t.Fatal(err)
		}
		for _, l := range k.m.links {
			if l.ours() {
				t.Fatalf("device %s is left", l.name)
			}
		}
		for a, spots := range k.m.addrs {
			for _, s := range spots {
				if !others[fmt.Sprint(a, s.index)] {
					t.Fatalf("%s is left at the end", a)
				}
			}
		}
	})
}
