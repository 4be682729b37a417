package ipvs

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// As Linux 6.1 writes it on a little-endian machine; the group is 224.0.0.81, port 8848.
const procUDP = `   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 2131: 510000E0:2290 00000000:0000 07 00000000:0000A280 00:00000000 00000000     0        0 13578 2 0000000000000000 41
 2132: 510000E0:2291 00000000:0000 07 00000000:00000010 00:00000000 00000000     0        0 13579 2 0000000000000000 2
 3099: 0100000A:C350 510000E0:2290 01 00000300:00000000 00:00000000 00000000     0        0 13580 2 0000000000000000 0
 4000: 520000E0:2290 00000000:0000 07 00000000:0000A280 00:00000000 00000000     0        0 13581 2 0000000000000000 9
 4001: 510000E0:0035 00000000:0000 07 00000000:0000A280 00:00000000 00000000     0        0 13582 2 0000000000000000 9
 4002: 00000000:2290 00000000:0000 07 00000000:0000A280 00:00000000 00000000     0        0 13583 2 0000000000000000 9
`

const procUDP6 = `  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
 2131: 000002FF000000000000000051000000:2290 00000000000000000000000000000000:0000 07 00000000:00000100 00:00000000 00000000     0        0 13578 2 0000000000000000 5
`

// TestSyncSocketsAreFoundByTheirGroup among those of others.
func TestSyncSocketsAreFoundByTheirGroup(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"udp": procUDP, "udp6": procUDP6} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		d    SyncDaemon
		want []SyncSocket
	}{
		{SyncDaemon{State: SyncBackup}, []SyncSocket{{8848, 0xa280, 41}, {8849, 16, 2}}},
		{SyncDaemon{State: SyncMaster}, []SyncSocket{{8848, 0x300, 0}}},
		{SyncDaemon{State: SyncBackup, Port: 8849}, []SyncSocket{{8849, 16, 2}}},
		{SyncDaemon{State: SyncBackup, Group: netip.MustParseAddr("224.0.0.82")}, []SyncSocket{{8848, 0xa280, 9}}},
		{SyncDaemon{State: SyncBackup, Group: netip.MustParseAddr("ff02::51")}, []SyncSocket{{8848, 256, 5}}},
		{SyncDaemon{State: SyncMaster, Group: netip.MustParseAddr("ff02::51")}, []SyncSocket{}},
	} {
		got, err := SyncSockets(dir, c.d)
		if err != nil || !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, %v, want %v", c.d, got, err, c.want)
		}
	}
	if _, err := SyncSockets(filepath.Join(dir, "none"), SyncDaemon{State: SyncBackup}); err == nil {
		t.Error("a list that cannot be read is no error")
	}
}

func FuzzReadSyncSockets(f *testing.F) {
	f.Add(procUDP, true)
	f.Add(procUDP6, false)
	f.Add("1: :  :2290 7 ::: 0 0 0 0 0 0 0 18446744073709551615", true)
	f.Fuzz(func(t *testing.T, text string, four bool) {
		d := SyncDaemon{State: SyncBackup}
		if !four {
			d.Group = netip.MustParseAddr("ff02::51")
		}
		got, err := readSyncSockets(strings.NewReader(text), d.Canonical())
		if err != nil {
			return // a line that is longer than any
		}
		if n := strings.Count(text, "\n") + 1; len(got) > n {
			t.Errorf("%d sockets of %d lines", len(got), n)
		}
		for _, s := range got {
			if s.Port < DefaultSyncPort || s.Port >= DefaultSyncPort+maxSyncPorts {
				t.Errorf("port %d", s.Port)
			}
		}
	})
}
