package ipvs

import (
	"errors"
	"io/fs"
	"net/netip"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mdlayher/netlink"
	"pgregory.net/rapid"
)

func TestEncodeDaemon(t *testing.T) {
	littleEndian(t)
	for _, c := range []struct {
		name string
		in   SyncDaemon
		want string
	}{
		{"the least", SyncDaemon{State: SyncMaster, Interface: "eth0"}, `
			2000 0300  0800 0100 01000000  0900 0200 6574683000 000000  0800 0300 00000000`},
		{"all of it", SyncDaemon{SyncBackup, "lo", 7, 1400, 9000, 3, netip.MustParseAddr("239.1.2.3")}, `
			3c00 0300  0800 0100 02000000  0700 0200 6c6f0000  0800 0300 07000000
			0600 0400 7805 0000  0800 0500 ef010203  0600 0700 2823 0000  0500 0800 03 000000`},
		{"IPv6 group", SyncDaemon{State: SyncBackup, Interface: "lo", Group: netip.MustParseAddr("ff05::81")}, `
			3000 0300  0800 0100 02000000  0700 0200 6c6f0000  0800 0300 00000000
			1400 0600 ff050000 00000000 00000000 00000081`},
		{"IPv4 group in IPv6", SyncDaemon{State: SyncMaster, Interface: "lo", Group: netip.MustParseAddr("::ffff:224.0.0.9")}, `
			2400 0300  0800 0100 01000000  0700 0200 6c6f0000  0800 0300 00000000  0800 0500 e0000009`},
	} {
		if diff := cmp.Diff(unhex(t, c.want), appendDaemon([]byte{}, c.in)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// TestSyncCommands: what is sent, whole, and what its answers become.
func TestSyncCommands(t *testing.T) {
	littleEndian(t)
	var sent []byte
	answer := func(errno syscall.Errno) *scripted {
		return &scripted{answer: func(b []byte) []any {
			sent = b
			hs, _ := requests(b)
			putSeq(sent, 0)
			out := []any{errorMessage(hs[0].seq, errno)}
			for _, h := range hs[1:] {
				out = append(out, message(0x1c, 0, h.seq, []byte{cmdGetInfo, 1, 0, 0}), errorMessage(h.seq, 0))
			}
			return out
		}}
	}
	ctx := t.Context()
	d := SyncDaemon{State: SyncMaster, Interface: "lo"}
	if err := scriptedClient(t, answer(0)).StartSyncDaemon(ctx, d); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(unhex(t, `30000000 1c00 0500 00000000 00000000  09 01 0000
		1c00 0300  0800 0100 01000000  0700 0200 6c6f0000  0800 0300 00000000`), sent); diff != "" {
		t.Errorf("start (-want +got):\n%s", diff)
	}
	if err := scriptedClient(t, answer(0)).StopSyncDaemon(ctx, SyncBackup); err != nil {
		t.Error(err)
	}
	putSeq(sent[32:], 0)
	if diff := cmp.Diff(unhex(t, `20000000 1c00 0500 00000000 00000000  0a 01 0000  0c00 0300  0800 0100 02000000
		14000000 1c00 0500 00000000 00000000  0f 01 0000`), sent); diff != "" {
		t.Errorf("stop (-want +got):\n%s", diff)
	}
	if err := scriptedClient(t, answer(syscall.EEXIST)).StartSyncDaemon(ctx, d); !errors.Is(err, fs.ErrExist) || errors.Is(err, ErrUnknownResult) {
		t.Errorf("a second start: %v", err)
	}
	if err := scriptedClient(t, answer(syscall.ESRCH)).StopSyncDaemon(ctx, SyncMaster); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a second stop: %v", err)
	}
	// The kernel answers EINTR with silence, and has stopped the daemon.
	for _, c := range []struct {
		second syscall.Errno
		ok     bool
	}{{0, true}, {syscall.EPERM, false}} {
		quiet := &scripted{answer: func(b []byte) []any {
			hs, _ := requests(b)
			return []any{errorMessage(hs[0].seq-1, syscall.ESRCH), errorMessage(hs[1].seq, c.second)}
		}}
		if err := scriptedClient(t, quiet).StopSyncDaemon(ctx, SyncMaster); (err == nil) != c.ok || errors.Is(err, ErrUnknownResult) {
			t.Errorf("a stop without answer, and %d to what follows: %v", c.second, err)
		}
	}
	silent := &scripted{answer: func([]byte) []any { return nil }}
	if err := scriptedClient(t, silent).StopSyncDaemon(ctx, SyncMaster); !errors.Is(err, ErrUnknownResult) {
		t.Errorf("a stop without any answer: %v", err)
	}
	if err := scriptedClient(t, silent).StartSyncDaemon(ctx, d); !errors.Is(err, ErrUnknownResult) {
		t.Errorf("a start without answer: %v", err)
	}
	sent = nil
	long := d
	long.Interface = "1234567890123456"
	if err := scriptedClient(t, answer(0)).StartSyncDaemon(ctx, long); !errors.Is(err, syscall.EINVAL) || sent != nil {
		t.Errorf("a name of 16 bytes: %v, sent %x", err, sent)
	}
	list := &scripted{answer: func(b []byte) []any {
		hs, cmds := requests(b)
		if cmds[0] != cmdGetDaemon || hs[0].flags != flagRequest|flagDump {
			t.Errorf("command %d with flags %#x", cmds[0], hs[0].flags)
		}
		one := appendDaemon([]byte{cmdNewDaemon, 1, 0, 0}, SyncDaemon{State: SyncMaster, Interface: "lo", SyncID: 3})
		two := appendDaemon([]byte{cmdNewDaemon, 1, 0, 0}, SyncDaemon{State: SyncBackup, Interface: "lo", SyncID: 4})
		return []any{append(message(0x1c, 2, hs[0].seq, one), message(0x1c, 2, hs[0].seq, two)...), done(hs[0].seq, 0)}
	}}
	got, err := scriptedClient(t, list).SyncDaemons(ctx)
	want := []SyncDaemon{
		{State: SyncMaster, Interface: "lo", SyncID: 3, Port: 8848, TTL: 1, Group: DefaultSyncGroup},
		{State: SyncBackup, Interface: "lo", SyncID: 4, Port: 8848, TTL: 1, Group: DefaultSyncGroup},
	}
	if diff := cmp.Diff(want, got, sameAddrs); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func TestDecodeDaemon(t *testing.T) {
	daemon := func(f func(e *netlink.AttributeEncoder)) []byte {
		return encodeAnswer(t, func(e *netlink.AttributeEncoder) { nest(e, attrDaemon, f) })
	}
	least := func(e *netlink.AttributeEncoder) {
		e.Uint32(daemonState, 2)
		e.String(daemonIfName, "bond0.100")
		e.Uint32(daemonSyncID, 51)
	}
	old := SyncDaemon{State: SyncBackup, Interface: "bond0.100", SyncID: 51, Port: 8848, TTL: 1, Group: DefaultSyncGroup}
	whole := SyncDaemon{SyncBackup, "bond0.100", 51, 1472, 9000, 2, netip.MustParseAddr("ff05::81")}
	for _, c := range []struct {
		name string
		in   []byte
		want SyncDaemon
		ok   bool
	}{
		{"of an old kernel", daemon(least), old, true},
		{"of a new one", daemon(func(e *netlink.AttributeEncoder) {
			least(e)
			e.Uint16(daemonMaxLen, 1472)
			e.Bytes(daemonGroup6, netip.MustParseAddr("ff05::81").AsSlice())
			e.Uint16(daemonPort, 9000)
			e.Uint8(daemonTTL, 2)
			e.Uint32(99, 1)
		}), whole, true},
		{"IPv4 group of sixteen bytes", daemon(func(e *netlink.AttributeEncoder) {
			least(e)
			e.Bytes(daemonGroup, make([]byte, 16))
		}), SyncDaemon{}, false},
		{"IPv6 group of four bytes", daemon(func(e *netlink.AttributeEncoder) {
			least(e)
			e.Bytes(daemonGroup6, make([]byte, 4))
		}), SyncDaemon{}, false},
		{"port of four bytes", daemon(func(e *netlink.AttributeEncoder) { least(e); e.Uint32(daemonPort, 1) }), SyncDaemon{}, false},
		{"no state", daemon(func(e *netlink.AttributeEncoder) { e.String(daemonIfName, "lo") }), SyncDaemon{}, false},
		{"no interface", daemon(func(e *netlink.AttributeEncoder) { e.Uint32(daemonState, 1) }), SyncDaemon{}, false},
		{"no daemon", encodeAnswer(t, func(e *netlink.AttributeEncoder) { e.Uint32(attrTimeoutTCP, 1) }), SyncDaemon{}, false},
		{"nothing", nil, SyncDaemon{}, false},
	} {
		got, err := decodeDaemon(c.in)
		if (err == nil) != c.ok || got != c.want {
			t.Errorf("%s: %+v, %v; want %+v", c.name, got, err, c.want)
		}
	}
}

// TestDaemonRoundTrip: what is written is what is read, defaults filled in.
func TestDaemonRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := SyncDaemon{
			State:     SyncState(rapid.Uint32Range(1, 2).Draw(t, "state")),
			Interface: rapid.StringMatching(`[!-~]{1,15}`).Draw(t, "interface"),
			SyncID:    rapid.Uint32Range(0, 255).Draw(t, "syncid"),
			MaxLen:    rapid.Uint16().Draw(t, "maxlen"),
			Port:      rapid.Uint16().Draw(t, "port"),
			TTL:       rapid.Uint8().Draw(t, "ttl"),
		}
		if rapid.Bool().Draw(t, "group") {
			d.Group = drawAddr(t, drawFamily(t, "family"), "address")
		}
		got, err := decodeDaemon(appendDaemon([]byte{cmdNewDaemon, 1, 0, 0}, d))
		if err != nil || got != d.Canonical() {
			t.Fatalf("read %+v, %v; wrote %+v", got, err, d)
		}
	})
}

func TestSyncErrorText(t *testing.T) {
	d := SyncDaemon{State: SyncMaster, Interface: "eth7"}
	unicast := d
	unicast.Group = netip.MustParseAddr("192.0.2.1")
	neither := d
	neither.State = 3
	for _, c := range []struct {
		start bool
		d     SyncDaemon
		errno syscall.Errno
		want  string
	}{
		{true, d, syscall.EEXIST, "start sync daemon master on eth7: file exists: a master runs already; stop it to change it"},
		{true, d, syscall.ENODEV, "start sync daemon master on eth7: no such device: no such interface in this network namespace, or it takes no multicast"},
		{true, d, syscall.EADDRINUSE, "start sync daemon master on eth7: address already in use: another program uses UDP port 8848"},
		{true, d, syscall.ENETUNREACH, "start sync daemon master on eth7: network is unreachable: the interface must be up and have an address"},
		{true, d, syscall.EINVAL, "start sync daemon master on eth7: invalid argument: IPVS synchronisation and destinations of another family exclude each other"},
		{true, unicast, syscall.EINVAL, "start sync daemon master on eth7: invalid argument: 192.0.2.1 is no multicast group"},
		{true, neither, syscall.EINVAL, "start sync daemon state-3 on eth7: invalid argument: a daemon is a master or a backup"},
		{true, d, syscall.EPERM, "start sync daemon master on eth7: operation not permitted: needs CAP_NET_ADMIN"},
		{true, d, syscall.ENOMEM, "start sync daemon master on eth7: cannot allocate memory"},
		{false, SyncDaemon{State: SyncBackup}, syscall.ESRCH, "stop sync daemon backup: no such process: no backup runs here"},
		{false, SyncDaemon{State: SyncBackup}, syscall.EINVAL, "stop sync daemon backup: invalid argument"},
	} {
		if got := NewSyncError(c.start, c.d, c.errno).Error(); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

// FuzzDecodeDaemon: an answer is refused or says what could be written again.
func FuzzDecodeDaemon(f *testing.F) {
	seeds(f)
	f.Add(appendDaemon([]byte{cmdNewDaemon, 1, 0, 0}, SyncDaemon{SyncBackup, "lo", 7, 1400, 9000, 3, netip.MustParseAddr("239.1.2.3")}))
	f.Add(appendDaemon([]byte{cmdNewDaemon, 1, 0, 0}, SyncDaemon{State: SyncMaster, Interface: "eth0", Group: netip.MustParseAddr("ff05::81")}))
	f.Fuzz(func(t *testing.T, data []byte) {
		d, err := decodeDaemon(data)
		if err != nil {
			if d != (SyncDaemon{}) {
				t.Errorf("%v, and yet %+v", err, d)
			}
			return
		}
		if d.State == 0 || d.Port == 0 || d.TTL == 0 || !d.Group.IsValid() {
			t.Errorf("%+v has no default filled in", d)
		}
		if again, err := decodeDaemon(appendDaemon([]byte{cmdNewDaemon, 1, 0, 0}, d)); err != nil || again != d {
			t.Errorf("%+v becomes %+v, %v", d, again, err)
		}
	})
}
