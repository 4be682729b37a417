package vip

import (
	"net/netip"
	"os"
	"testing"

	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/internal/testkit"
)

func TestMain(m *testing.M) {
	if os.Getenv(restlessEnv) != "" {
		restless()
	}
	testkit.Main(m)
}

// many returns n addresses, half of each family.
func many(n int) []netip.Addr {
	list := make([]netip.Addr, 0, n)
	for i := range n {
		hi, lo := byte(i>>9), byte(i>>1)
		if i%2 == 0 {
			list = append(list, netip.AddrFrom4([4]byte{10, 99, hi, lo}))
		} else {
			list = append(list, netip.AddrFrom16([16]byte{0x20, 1, 0xd, 0xb8, 13: 1, 14: hi, 15: lo}))
		}
	}
	return list
}

// on wishes addresses on a device.
func on(device string, list ...netip.Addr) map[netip.Addr]edge.Place {
	want := map[netip.Addr]edge.Place{}
	for _, a := range list {
		want[a] = edge.Place{Device: device, Announce: true, Local: true}
	}
	return want
}

// openIn opens a namespace's kernel.
func openIn(t testing.TB, ns *testkit.NS) *Addresses {
	t.Helper()
	var v *Addresses
	if err := ns.Do(func() (err error) { v, err = Open(); return err }); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { v.Close() })
	return v
}

// synced is Sync that must succeed with all.
func synced(t testing.TB, v *Addresses, want map[netip.Addr]edge.Place) (repaired int) {
	t.Helper()
	repaired, missing, err := v.Sync(want)
	if err != nil || len(missing) > 0 {
		t.Fatalf("%d missing, %v: %v", len(missing), err, first(missing))
	}
	return repaired
}

func first(missing map[netip.Addr]error) error {
	for _, err := range missing {
		return err
	}
	return nil
}
