package ipvstest

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-lb/sluice/pkg/ipvs"
)

type (
	// DaemonLister gives what "ipvsadm -L --daemon" prints: the other reader.
	DaemonLister interface{ Daemons(t *testing.T) string }

	// Interfacer makes an interface besides lo that is up, has an address of each
	// family and takes multicast.
	Interfacer interface {
		AddInterface(t *testing.T, name string, mtu int)
	}
)

// checkDaemons compares what runs with want, and the other reader with both.
func checkDaemons(t *testing.T, k Kernel, want ...ipvs.SyncDaemon) {
	t.Helper()
	got, err := k.SyncDaemons(t.Context())
	must(t, err)
	if diff := cmp.Diff(append([]ipvs.SyncDaemon{}, want...), got, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("daemons (-want +got):\n%s", diff)
	}
	l, ok := k.(DaemonLister)
	if !ok {
		return
	}
	out := l.Daemons(t)
	if n := strings.Count(out, " sync daemon ("); n != len(want) {
		t.Errorf("ipvsadm lists %d daemons, want %d:\n%s", n, len(want), out)
	}
	for _, d := range want {
		// ipvsadm: "master sync daemon (mcast=lo, syncid=3, maxlen=1472, group=224.0.0.81, port=8848, ttl=1)"
		line := ""
		for l := range strings.SplitSeq(out, "\n") {
			if strings.HasPrefix(l, d.State.String()) {
				line = l
			}
		}
		for _, part := range []string{
			d.State.String() + " sync daemon (mcast=" + d.Interface + ",", fmt.Sprintf("syncid=%d,", d.SyncID),
			fmt.Sprintf("maxlen=%d,", d.MaxLen), "group=" + d.Group.String() + ",", fmt.Sprintf("port=%d,", d.Port), fmt.Sprintf("ttl=%d)", d.TTL),
		} {
			if !strings.Contains(line, part) {
				t.Errorf("ipvsadm does not say %q: %s", part, line)
			}
		}
	}
}

// wantSyncError checks an answer, and that it says what it is about.
func wantSyncError(t *testing.T, err error, errno syscall.Errno, is error) {
	t.Helper()
	e, ok := errors.AsType[*ipvs.Error](err)
	if !ok || !errors.Is(err, errno) {
		t.Fatalf("got %v (%T), want an *ipvs.Error with %v", err, err, errno)
	}
	if is != nil && !errors.Is(err, is) {
		t.Errorf("%v does not match %v", err, is)
	}
	if e.Op == "" || e.Object == "" {
		t.Errorf("%#v names neither operation nor object", e)
	}
}

func syncDaemons(t *testing.T, k Kernel) {
	ctx := t.Context()
	checkDaemons(t, k)
	group6 := netip.MustParseAddr("ff05::81")
	ran := func(state ipvs.SyncState, id uint32, maxlen, port uint16, ttl uint8, group netip.Addr) ipvs.SyncDaemon {
		return ipvs.SyncDaemon{State: state, Interface: "lo", SyncID: id, MaxLen: maxlen, Port: port, TTL: ttl, Group: group}
	}
	v4 := ipvs.DefaultSyncGroup
	for _, c := range []struct {
		name        string
		start, runs ipvs.SyncDaemon
	}{
		{"master by default", ran(1, 0, 0, 0, 0, netip.Addr{}), ran(1, 0, 1472, 8848, 1, v4)},
		{"backup by default", ran(2, 0, 0, 0, 0, netip.Addr{}), ran(2, 0, 65507, 8848, 1, v4)},
		{"all of it", ran(1, 255, 1400, 9000, 7, netip.MustParseAddr("239.1.2.3")), ran(1, 255, 1400, 9000, 7, netip.MustParseAddr("239.1.2.3"))},
		{"backup with all of it", ran(2, 7, 1400, 9000, 7, netip.MustParseAddr("239.1.2.3")), ran(2, 7, 1400, 9000, 7, netip.MustParseAddr("239.1.2.3"))},
		{"IPv6 group", ran(1, 1, 0, 0, 0, group6), ran(1, 1, 1452, 8848, 1, group6)},
		{"IPv6 group of a backup", ran(2, 1, 0, 0, 0, group6), ran(2, 1, 65487, 8848, 1, group6)},
		{"longer than IP", ran(1, 1, 65535, 0, 0, netip.Addr{}), ran(1, 1, 65507, 8848, 1, v4)},
		{"short master", ran(1, 1, 1, 0, 0, netip.Addr{}), ran(1, 1, 1, 8848, 1, v4)},
		{"short backup", ran(2, 1, 1, 0, 0, netip.Addr{}), ran(2, 1, 1024, 8848, 1, v4)},
		{"largest port and ttl", ran(1, 1, 0, 65535, 255, netip.Addr{}), ran(1, 1, 1472, 65535, 255, v4)},
	} {
		t.Run(c.name, func(t *testing.T) {
			must(t, k.StartSyncDaemon(ctx, c.start))
			checkDaemons(t, k, c.runs)
			// A second one of that state leaves the first as it is.
			other := c.start
			other.SyncID = 99
			wantSyncError(t, k.StartSyncDaemon(ctx, other), syscall.EEXIST, fs.ErrExist)
			checkDaemons(t, k, c.runs)
			must(t, k.StopSyncDaemon(ctx, c.start.State))
			checkDaemons(t, k)
			wantSyncError(t, k.StopSyncDaemon(ctx, c.start.State), syscall.ESRCH, fs.ErrNotExist)
		})
	}
	if i, ok := k.(Interfacer); ok {
		for name, mtu := range map[string]int{"ether0": 1500, "jumbo0": 9000, "narrow0": 1400} {
			t.Run(name, func(t *testing.T) {
				i.AddInterface(t, name, mtu)
				master := ipvs.SyncDaemon{State: ipvs.SyncMaster, Interface: name}
				backup := ipvs.SyncDaemon{State: ipvs.SyncBackup, Interface: name}
				backup6 := ipvs.SyncDaemon{State: ipvs.SyncBackup, Interface: name, Group: group6}
				for _, d := range []ipvs.SyncDaemon{master, backup} {
					must(t, k.StartSyncDaemon(ctx, d))
				}
				master, backup = master.Canonical(), backup.Canonical()
				master.MaxLen, backup.MaxLen = 1472, uint16(max(mtu, 1500)-28)
				checkDaemons(t, k, master, backup)
				must(t, k.StopSyncDaemon(ctx, ipvs.SyncBackup))
				must(t, k.StopSyncDaemon(ctx, ipvs.SyncMaster))
				must(t, k.StartSyncDaemon(ctx, backup6))
				backup6 = backup6.Canonical()
				backup6.MaxLen = uint16(max(mtu, 1500) - 48)
				checkDaemons(t, k, backup6)
				must(t, k.StopSyncDaemon(ctx, ipvs.SyncBackup))
			})
		}
	}
	t.Run("stopped at once", func(t *testing.T) {
		// The kernel's thread may not have run before its end.
		for n := range 20 {
			for _, s := range []ipvs.SyncState{ipvs.SyncMaster, ipvs.SyncBackup} {
				must(t, k.StartSyncDaemon(ctx, ran(s, 1, 0, 0, 0, netip.Addr{})))
				if err := k.StopSyncDaemon(ctx, s); err != nil {
					t.Fatalf("%d: %v", n, err)
				}
			}
		}
		checkDaemons(t, k)
	})
	t.Run("both at once", func(t *testing.T) {
		must(t, k.StartSyncDaemon(ctx, ran(2, 1, 0, 0, 0, netip.Addr{})))
		must(t, k.StartSyncDaemon(ctx, ran(1, 2, 0, 0, 0, netip.Addr{})))
		master, backup := ran(1, 2, 1472, 8848, 1, v4), ran(2, 1, 65507, 8848, 1, v4)
		checkDaemons(t, k, master, backup)
		// A flush is for services.
		must(t, k.Flush(ctx))
		checkDaemons(t, k, master, backup)
		must(t, k.StopSyncDaemon(ctx, ipvs.SyncMaster))
		checkDaemons(t, k, backup)
		must(t, k.StopSyncDaemon(ctx, ipvs.SyncBackup))
		checkDaemons(t, k)
	})
}

func syncErrors(t *testing.T, k Kernel) {
	ctx := t.Context()
	on := func(state ipvs.SyncState, device string, more ...func(*ipvs.SyncDaemon)) ipvs.SyncDaemon {
		d := ipvs.SyncDaemon{State: state, Interface: device}
		for _, f := range more {
			f(&d)
		}
		return d
	}
	group := func(g string) func(*ipvs.SyncDaemon) {
		return func(d *ipvs.SyncDaemon) { d.Group = netip.MustParseAddr(g) }
	}
	for _, c := range []struct {
		name  string
		d     ipvs.SyncDaemon
		errno syscall.Errno
	}{
		{"unknown interface", on(ipvs.SyncMaster, "no-such0"), syscall.ENODEV},
		{"no interface", on(ipvs.SyncMaster, ""), syscall.ENODEV},
		{"interface of 15 bytes", on(ipvs.SyncBackup, "123456789012345"), syscall.ENODEV},
		{"interface of 16 bytes", on(ipvs.SyncBackup, "1234567890123456"), syscall.EINVAL},
		{"no state", on(0, "lo"), syscall.EINVAL},
		{"both states", on(3, "lo"), syscall.EINVAL},
		{"no state, and an unknown interface", on(0, "no-such0"), syscall.ENODEV},
		{"unicast", on(ipvs.SyncMaster, "lo", group("192.0.2.1")), syscall.EINVAL},
		{"unicast IPv6", on(ipvs.SyncMaster, "lo", group("2001:db8::1")), syscall.EINVAL},
		{"unicast, and an unknown interface", on(ipvs.SyncMaster, "no-such0", group("192.0.2.1")), syscall.EINVAL},
		{"a group with a zone", on(ipvs.SyncMaster, "lo", group("ff02::81%lo")), syscall.EINVAL},
		{"syncid 256", on(ipvs.SyncMaster, "lo", func(d *ipvs.SyncDaemon) { d.SyncID = 256 }), syscall.EINVAL},
	} {
		t.Run(c.name, func(t *testing.T) {
			wantSyncError(t, k.StartSyncDaemon(ctx, c.d), c.errno, nil)
			checkDaemons(t, k)
		})
	}
	wantSyncError(t, k.StopSyncDaemon(ctx, 0), syscall.EINVAL, nil)
	wantSyncError(t, k.StopSyncDaemon(ctx, 3), syscall.EINVAL, nil)

	// Synchronisation and destinations of another family exclude each other.
	s := address(ipvs.TCP, "192.0.2.1:80")
	same, other := dest("198.51.100.1:80"), dest("[2001:db8::10]:80", tunnel(ipvs.IPIP, 0, 0))
	add(t, k, s, other)
	wantSyncError(t, k.StartSyncDaemon(ctx, on(ipvs.SyncBackup, "lo")), syscall.EINVAL, nil)
	must(t, k.DelDest(ctx, s, other))
	must(t, k.StartSyncDaemon(ctx, on(ipvs.SyncBackup, "lo")))
	wantError(t, k.AddDest(ctx, s, other), syscall.EINVAL, nil)
	wantError(t, k.SetDest(ctx, s, other), syscall.EINVAL, nil)
	wantError(t, k.DelDest(ctx, s, other), syscall.ENOENT, fs.ErrNotExist)
	must(t, k.AddDest(ctx, s, same))
	must(t, k.StopSyncDaemon(ctx, ipvs.SyncBackup))
	must(t, k.AddDest(ctx, s, other))
}
