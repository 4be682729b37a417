package vip

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/internal/testkit"
)

const device = "sluice0"

// onDevice are the addresses that ip(8) sees on a device, but link-local ones, sorted. The
// device may be missing.
func onDevice(t testing.TB, ns *testkit.NS, name string) (list []netip.Addr) {
	t.Helper()
	var links []struct {
		Ifname   string
		Flags    []string
		AddrInfo []struct {
			Local     netip.Addr
			Prefixlen int
			Scope     string
			Nodad     bool
			Valid     uint32 `json:"valid_life_time"`
		} `json:"addr_info"`
	}
	if err := json.Unmarshal([]byte(ns.Run(t, "ip", "-j", "addr", "show")), &links); err != nil {
		t.Fatal(err)
	}
	for _, l := range links {
		if l.Ifname != name {
			continue
		}
		for _, a := range l.AddrInfo {
			if a.Scope == "link" || a.Scope == "host" {
				continue
			}
			if a.Prefixlen != a.Local.BitLen() || a.Valid != 1<<32-1 {
				t.Errorf("%s: /%d, valid for %d", a.Local, a.Prefixlen, a.Valid)
			}
			list = append(list, a.Local)
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}

// devices are the names of what `ip link show type dummy` lists, with their state.
func devices(t testing.TB, ns *testkit.NS) string {
	t.Helper()
	var links []struct {
		Ifname, Ifalias string
		Flags           []string
	}
	out := ns.Run(t, "ip", "-j", "link", "show", "type", "dummy")
	if err := json.Unmarshal([]byte(out), &links); strings.TrimSpace(out) != "" && err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, l := range links {
		state := "down"
		if slices.Contains(l.Flags, "UP") {
			state = "up"
		}
		names = append(names, strings.TrimSpace(l.Ifname+" "+state+" "+l.Ifalias))
	}
	return strings.Join(names, "; ")
}

// routesOf are the routes of ours in the table local.
func routesOf(t testing.TB, ns *testkit.NS) (list []netip.Addr) {
	t.Helper()
	for _, family := range []string{"-4", "-6"} {
		var routes []struct {
			Type, Dst, Dev string
			Protocol       any
		}
		out := ns.Run(t, "ip", family, "-j", "route", "show", "table", "local")
		if err := json.Unmarshal([]byte(out), &routes); strings.TrimSpace(out) != "" && err != nil {
			t.Fatal(err)
		}
		for _, r := range routes {
			if fmt.Sprint(r.Protocol) != "115" {
				continue
			}
			if r.Type != "local" || r.Dev != "lo" {
				t.Errorf("route %+v", r)
			}
			list = append(list, netip.MustParseAddr(r.Dst))
		}
	}
	slices.SortFunc(list, netip.Addr.Compare)
	return list
}

// sorted is a list as the functions above return it.
func sorted(list ...netip.Addr) []netip.Addr {
	out := slices.Clone(list)
	slices.SortFunc(out, netip.Addr.Compare)
	if len(out) == 0 {
		return nil
	}
	return out
}

// holds compares the machine with what should be there.
func holds(t testing.TB, ns *testkit.NS, bound, routes []netip.Addr) {
	t.Helper()
	same := cmp.Comparer(func(a, b netip.Addr) bool { return a == b })
	if diff := cmp.Diff(sorted(bound...), onDevice(t, ns, device), same); diff != "" {
		t.Errorf("addresses (-want +got):\n%.2000s", diff)
	}
	if diff := cmp.Diff(sorted(routes...), routesOf(t, ns), same); diff != "" {
		t.Errorf("local routes (-want +got):\n%.2000s", diff)
	}
}

// local takes the announcement from a wish.
func local(want map[netip.Addr]edge.Place, list ...netip.Addr) map[netip.Addr]edge.Place {
	for _, a := range list {
		want[a] = edge.Place{Device: device, Local: true}
	}
	return want
}

func TestKernelVIPLife(t *testing.T) {
	testkit.Kernel(t)
	ns := testkit.NewNS(t, "life")
	list := many(4)
	v := openIn(t, ns)
	synced(t, v, on(device, list...))
	if got, want := devices(t, ns), device+" up "+Alias; got != want {
		t.Errorf("devices %q, want %q", got, want)
	}
	holds(t, ns, list, nil)

	change := local(map[netip.Addr]edge.Place{}, list[:2]...)
	change[list[2]] = edge.Place{}
	if missing, err := v.Change(change); err != nil || len(missing) > 0 {
		t.Fatalf("%v, %v", missing, err)
	}
	holds(t, ns, list[3:], list[:2])

	// Another instance, as after a restart, finds it all in order.
	again := openIn(t, ns)
	want := local(on(device, list[3]), list[:2]...)
	if n := synced(t, again, want); n != 0 {
		t.Errorf("%d repaired at the first look", n)
	}
	holds(t, ns, list[3:], list[:2])
	if n := synced(t, again, on(device, list...)); n != 0 {
		t.Errorf("%d repaired, nobody changed anything", n)
	}
	holds(t, ns, list, nil)

	// Moved to another device: there first.
	synced(t, again, on("sluice1", list...))
	holds(t, ns, nil, nil)
	if got := onDevice(t, ns, "sluice1"); len(got) != len(list) {
		t.Errorf("on the other device: %v", got)
	}
	if got, want := devices(t, ns), "sluice1 up "+Alias; got != want {
		t.Errorf("devices %q, want %q", got, want)
	}
	// As long as it is named it stays, with nothing on it.
	named := map[netip.Addr]edge.Place{}
	for _, a := range list {
		named[a] = edge.Place{Device: "sluice1"}
	}
	synced(t, again, named)
	if got, want := devices(t, ns), "sluice1 up "+Alias; got != want || len(onDevice(t, ns, "sluice1")) != 0 {
		t.Errorf("devices %q, want %q and nothing on it", got, want)
	}
	synced(t, again, nil)
	if got := devices(t, ns); got != "" {
		t.Errorf("devices left: %q", got)
	}
	holds(t, ns, nil, nil)
}

func TestKernelVIPTenThousand(t *testing.T) {
	testkit.Kernel(t)
	ns := testkit.NewNS(t, "many")
	list := many(10_000)
	v := openIn(t, ns)
	took := func(what string, do func()) {
		t.Helper()
		start := time.Now()
		do()
		t.Logf("10,000 addresses, %s: %v", what, time.Since(start).Round(time.Millisecond))
	}
	took("put on the device", func() { synced(t, v, on(device, list...)) })
	holds(t, ns, list, nil)
	took("read, nothing to do", func() { synced(t, v, on(device, list...)) })
	took("one of them moved", func() {
		if missing, err := v.Change(local(map[netip.Addr]edge.Place{}, list[0])); err != nil || len(missing) > 0 {
			t.Fatalf("%v, %v", missing, err)
		}
	})
	holds(t, ns, list[1:], list[:1])
	took("all kept local and withdrawn", func() { synced(t, v, local(map[netip.Addr]edge.Place{}, list...)) })
	holds(t, ns, nil, list)
	took("all put back", func() { synced(t, v, on(device, list...)) })
	holds(t, ns, list, nil)
	took("removed", func() { synced(t, v, nil) })
	holds(t, ns, nil, nil)
	if got := devices(t, ns); got != "" {
		t.Errorf("devices left: %q", got)
	}
}
