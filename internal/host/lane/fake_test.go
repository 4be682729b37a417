package lane

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// fake is a kernel in memory that checks after each operation what must hold always.
type fake struct {
	t interface {
		Helper()
		Fatalf(string, ...any)
	}
	state
	ways map[netip.Addr]way
	log  []string
	// reads counts how often all was read.
	reads int
	// stop is called before the operation with this number, from 1; refuse is what each
	// operation of a text gets.
	at     int
	stop   func()
	refuse map[string]error
	// lose says whose answer is lost, by number.
	lose func(at int) bool
}

func kernelRule(f uint8, pref, table uint32) rule {
	return rule{family: f, action: unix.FR_ACT_TO_TBL, protocol: unix.RTPROT_KERNEL, pref: pref, table: table}
}

// fresh is the kernel of a machine that has just started, with a rule of somebody else's.
func fresh(t *testing.T) *fake {
	k := &fake{t: t, ways: map[netip.Addr]way{}, refuse: map[string]error{}}
	for _, f := range []uint8{unix.AF_INET, unix.AF_INET6} {
		k.state.rules = append(k.state.rules, kernelRule(f, 0, unix.RT_TABLE_LOCAL), kernelRule(f, 32766, unix.RT_TABLE_MAIN),
			rule{family: f, action: unix.FR_ACT_TO_TBL, protocol: 3, pref: 60, table: 77, mark: 7, mask: 0xffffffff})
	}
	k.state.devices = nil
	return k
}

func (k *fake) open() (kernel, error) { return k, nil }

func (k *fake) close() {}

func (k *fake) read() (state, error) {
	k.reads++
	return state{rules: slices.Clone(k.rules), routes: slices.Clone(k.routes), devices: slices.Clone(k.devices), filter: k.filter, moved: map[uint8]bool{}}, nil
}

func (k *fake) way(a netip.Addr) (way, error) {
	w, ok := k.ways[a]
	if !ok {
		w = way{device: "eth0", source: netip.MustParseAddr("10.0.0.1"), other: netip.MustParseAddr("fd00::1")}
		if a.Is6() {
			w.source, w.other = w.other, w.source
		}
	}
	return w, w.err
}

func (k *fake) do(_ context.Context, o op) error {
	k.log = append(k.log, o.String())
	if k.stop != nil && len(k.log) == k.at {
		k.stop() // what is under way is still done
	}
	if err := k.refuse[o.String()]; err != nil {
		return err
	}
	switch w := o.what.(type) {
	case rule:
		k.rules = change(o.verb, k.rules, w, func(r rule) bool {
			r.protocol = w.protocol
			return r == w
		})
	case route:
		if w.device != "" && !strings.HasPrefix(w.device, "eth") && o.verb == add && !slices.ContainsFunc(k.devices, func(d device) bool { return d.name == w.device }) {
			return unix.ENODEV
		}
		k.routes = change(o.verb, k.routes, w, func(r route) bool { return r.slot() == w.slot() })
	case device:
		if o.verb == add && slices.ContainsFunc(k.devices, func(d device) bool { return d.name != w.name && d.ends() == w.ends() }) {
			return unix.EEXIST
		}
		k.devices = change(o.verb, k.devices, w, func(d device) bool { return d.name == w.name })
		if o.verb == remove { // and its routes with it
			k.routes = slices.DeleteFunc(k.routes, func(r route) bool { return r.device == w.name })
		}
	case filter:
		if k.filter = w; o.verb == remove {
			k.filter = ""
		}
	}
	k.hold()
	if k.lose == nil || !k.lose(len(k.log)) {
		return nil
	}
	if d, ok := o.what.(device); ok && o.verb == add { // made, and not up yet
		k.devices[slices.Index(k.devices, d)].down = true
	}
	return os.ErrDeadlineExceeded
}

func change[T comparable](v verb, list []T, w T, same func(T) bool) []T {
	list = slices.DeleteFunc(slices.Clone(list), same)
	if v == add {
		list = append(list, w)
	}
	return list
}

// hold is what holds after each operation: there is a local rule, and no marked packet
// whose lane counts goes anywhere but its way, or past IPVS's hook unhidden.
func (k *fake) hold() {
	k.t.Helper()
	for _, f := range []uint8{unix.AF_INET, unix.AF_INET6} {
		first := uint32(1 << 31)
		for _, r := range k.rules {
			if r.family == f && r.local() {
				first = min(first, r.pref)
			}
		}
		if first > prefLocal {
			k.t.Fatalf("after %s there is no rule for local addresses of family %d:\n%v", k.log[len(k.log)-1], f, k.rules)
		}
		for _, r := range k.rules {
			if r.family != f || r.pref != prefLane || first < prefLane {
				continue
			}
			forbidden := slices.ContainsFunc(k.routes, func(o route) bool { return o.family == f && o.table == r.mark && o.kind == unix.RTN_PROHIBIT })
			if !forbidden || k.filter != "53000000" {
				k.t.Fatalf("after %s mark %#x of family %d goes anywhere, or IPVS sees it: %q", k.log[len(k.log)-1], r.mark, f, k.filter)
			}
		}
	}
}

func (k *fake) sorted() state {
	s := state{filter: k.filter, rules: slices.Clone(k.rules), routes: slices.Clone(k.routes), devices: slices.Clone(k.devices)}
	by := func(a, b interface{ String() string }) int {
		if a.String() < b.String() {
			return -1
		}
		return 1
	}
	slices.SortFunc(s.rules, func(a, b rule) int { return by(a, b) })
	slices.SortFunc(s.routes, func(a, b route) int { return by(a, b) })
	slices.SortFunc(s.devices, func(a, b device) int { return by(a, b) })
	return s
}

// sysctls are settings by "device.name"; others are 0.
type sysctls map[string]string

func (s sysctls) read(device, name string) (string, error) {
	if v, ok := s[device+"."+name]; ok {
		return v, nil
	}
	return "0", nil
}

func (s sysctls) ensure(device, name, want string) (string, bool, error) {
	old, _ := s.read(device, name)
	if old == "locked" {
		return old, false, errors.New("read-only file system")
	}
	s[device+"."+name] = want
	return old, old != want, nil
}

func (k *fake) keeper(o Options) *Keeper {
	o.open = k.open
	if o.settings == nil {
		o.settings = sysctls{"eth0.accept_local": "1"}
	}
	return New(o)
}
