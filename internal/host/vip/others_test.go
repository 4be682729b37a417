package vip

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// watching returns a channel that has something once the watch rang.
func watching(t *testing.T, v *Addresses) <-chan struct{} {
	rings := make(chan struct{}, 1)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		over <- v.Watch(ctx, func() {
			select {
			case rings <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("the watch ended with %v", err)
		}
	})
	return rings
}

func rang(t *testing.T, rings <-chan struct{}, what string) {
	t.Helper()
	select {
	case <-rings:
	case <-time.After(30 * time.Second):
		t.Errorf("%s: nobody rang", what)
	}
}

func TestKernelVIPDrift(t *testing.T) {
	testkit.Kernel(t)
	ns := testkit.NewNS(t, "drift")
	list := many(6)
	v := openIn(t, ns)
	want := local(on(device, list[:4]...), list[4:]...)
	synced(t, v, want)
	rings := watching(t, v)
	for _, c := range []struct {
		command  string
		repaired int
		silent   bool
	}{
		{"address del " + list[0].String() + "/32 dev " + device, 1, false},
		{"address del " + list[1].String() + "/128 dev " + device, 1, false},
		{"link set dev " + device + " down", 3, false}, // and with it both of IPv6
		{"link del dev " + device, 5, false},
		{"route del local " + list[4].String() + " dev lo table local", 1, true},
		{"-6 route del local " + list[5].String() + " dev lo table local", 1, true},
		{"link add sluice9 type dummy", 0, true},
	} {
		if family, rest, ok := strings.Cut(c.command, " "); ok && family == "-6" {
			ns.Run(t, "ip", append([]string{"-6"}, strings.Fields(rest)...)...)
		} else {
			ns.IP(t, c.command)
		}
		if !c.silent {
			rang(t, rings, c.command)
		}
		if n := synced(t, v, want); n != c.repaired {
			t.Errorf("%s: %d repaired, want %d", c.command, n, c.repaired)
		}
		holds(t, ns, list[:4], list[4:])
		if n := synced(t, v, want); n != 0 {
			t.Errorf("%s: %d repaired again", c.command, n)
		}
		for len(rings) > 0 {
			<-rings
		}
	}
	// What was ours and comes back goes.
	if missing, err := v.Change(map[netip.Addr]edge.Place{list[0]: {}}); err != nil || len(missing) > 0 {
		t.Fatal(missing, err)
	}
	ns.IP(t, "link del dev "+device)
	delete(want, list[0])
	// Change meets a device that is gone, and reads the kernel.
	if missing, err := v.Change(on(device, list[0])); err != nil || len(missing) > 0 {
		t.Fatal(missing, err)
	}
	holds(t, ns, list[:4], list[4:])
}

func TestKernelVIPOthers(t *testing.T) {
	testkit.Kernel(t)
	ns := testkit.NewNS(t, "others")
	list := many(4)
	mine, mine6 := list[0], list[1]
	foreign := netip.MustParseAddr("203.0.113.7")
	ns.IP(t, "link add "+device+" type dummy", "address add 203.0.113.7/32 dev "+device,
		"link add eth9 type dummy", "address add "+list[2].String()+"/24 dev eth9", "address add "+list[3].String()+"/64 dev eth9 nodad",
		"link add br9 type bridge", "link add veth9 type veth peer name veth8")
	v := openIn(t, ns)
	want := on(device, list...)
	want[foreign] = edge.Place{Device: device, Announce: true}
	_, missing, err := v.Sync(want)
	if err != nil || len(missing) != 2 {
		t.Fatalf("%v, %v", missing, err)
	}
	for _, a := range list[2:] {
		if got := missing[a].Error(); !strings.HasPrefix(got, "vip_device sluice0: "+a.String()+" is on device eth9 already") || !strings.Contains(got, "ip address del "+a.String()) {
			t.Errorf("%s: %s", a, got)
		}
	}
	holds(t, ns, []netip.Addr{mine, mine6, foreign}, nil)
	ns.IP(t, "address del "+list[2].String()+"/24 dev eth9")
	if _, missing, err := v.Sync(want); err != nil || len(missing) != 1 {
		t.Fatalf("%v, %v", missing, err)
	}
	holds(t, ns, []netip.Addr{mine, mine6, foreign, list[2]}, nil)

	for _, name := range []string{"br9", "veth9"} {
		missing, err := v.Change(on(name, mine))
		if err != nil || missing[mine] == nil {
			t.Fatalf("%s: %v, %v", name, missing, err)
		}
		if got, want := missing[mine].Error(), "vip_device "+name+": a device of this name exists and is a "+strings.TrimSuffix(strings.Replace(name, "br9", "bridge9", 1), "9")+", not a dummy"; !strings.HasPrefix(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
	holds(t, ns, []netip.Addr{mine, mine6, foreign, list[2]}, nil) // where it was

	synced(t, v, nil)
	holds(t, ns, []netip.Addr{foreign}, nil)
	if got := devices(t, ns); !strings.Contains(got, device+" up") || strings.Contains(got, Alias) {
		t.Errorf("devices %q: somebody else's is there and not ours", got)
	}
	if got := ns.Run(t, "ip", "-br", "address", "show", "dev", "eth9"); !strings.Contains(got, list[3].String()+"/64") {
		t.Errorf("somebody else's address is gone: %s", got)
	}
}

// TestNoRight needs no kernel of its own: a bridge and lo are everywhere.
func TestNoRight(t *testing.T) {
	testkit.NeedRoot(t)
	ns := testkit.NewNS(t, "right")
	err := ns.Do(func() (err error) {
		header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var all, less [2]unix.CapUserData
		if err := unix.Capget(&header, &all[0]); err != nil {
			return err
		}
		less = all
		less[0].Effective &^= 1 << unix.CAP_NET_ADMIN
		if err := unix.Capset(&header, &less[0]); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, unix.Capset(&header, &all[0])) }()
		v, err := Open()
		if err != nil {
			return err
		}
		defer v.Close()
		for _, name := range []string{loopback, device} {
			_, missing, err := v.Sync(on(name, many(2)...))
			if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "vip_device "+name+": ") || !strings.Contains(err.Error(), "CAP_NET_ADMIN") {
				t.Errorf("%s: %v", name, err)
			}
			if len(missing) != 2 {
				t.Errorf("%s: missing %v", name, missing)
			}
			t.Log(err)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestOtherKind: see TestNoRight.
func TestOtherKind(t *testing.T) {
	testkit.NeedRoot(t)
	ns := testkit.NewNS(t, "kind")
	ns.IP(t, "link add "+device+" type bridge")
	v := openIn(t, ns)
	list := many(2)
	_, missing, err := v.Sync(on(device, list...))
	if err != nil || len(missing) != 2 || !strings.Contains(missing[list[0]].Error(), "vip_device sluice0: a device of this name exists and is a bridge, not a dummy") {
		t.Errorf("%v, %v", missing, err)
	}
	// lo is allowed, and never ours.
	synced(t, v, on(loopback, list...))
	synced(t, v, nil)
	ns.IP(t, "address add "+list[0].String()+"/32 dev lo")
	synced(t, v, on(loopback, list...)) // used where it is
	synced(t, v, nil)
	if out := ns.Run(t, "ip", "-br", "address", "show", "dev", "lo"); !strings.Contains(out, list[0].String()+"/32") || strings.Contains(out, list[1].String()) {
		t.Errorf("on lo: %s", out)
	}
}
