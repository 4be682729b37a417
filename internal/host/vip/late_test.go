package vip

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/host"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// opened is a namespace's kernel and the socket that it reads by.
func opened(t *testing.T, patience time.Duration) (*rtnl, *netlink.Conn) {
	t.Helper()
	testkit.NeedRoot(t)
	var k *rtnl
	var reads *netlink.Conn
	if err := testkit.NewNS(t, "late").Do(func() (err error) {
		if k, err = openKernel(); err == nil {
			reads, err = netlink.Dial(unix.NETLINK_ROUTE, nil)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { k.close() })
	k.reads.Close()
	k.reads = host.NewAsker(reads, patience)
	return k, reads
}

// An answer that came after it was given up is nobody else's: Sync and Change go on.
func TestLateAnswerSpoilsNoReading(t *testing.T) {
	k, reads := opened(t, time.Millisecond)
	v, list := open(k), many(1000)
	synced(t, v, on("lo", list...))
	for range 2 {
		// The kernel passes over this one.
		if _, err := k.reads.Ask(unix.NLMSG_NOOP, 0, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		late := netlink.Message{Header: netlink.Header{Type: unix.RTM_GETADDR, Flags: netlink.Request | netlink.Dump}, Data: make([]byte, sizeAddress)}
		if _, err := reads.Send(late); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if n := synced(t, v, on("lo", list...)); n != 0 {
				t.Errorf("%d repaired, nobody changed anything", n)
			}
		}
	}
	if missing, err := v.Change(on("lo", many(1002)...)); err != nil || len(missing) > 0 {
		t.Errorf("%v, %v", missing, err)
	}
	synced(t, v, nil)
	if m, err := k.read(); err != nil || len(m.addrs) != 2 {
		t.Errorf("left: %v, %v", m.addrs, err)
	}
}

// After answers to writes were lost, the kernel drops all further ones until the last of
// what is there is read.
func TestLostAnswersSpoilNoOtherWrites(t *testing.T) {
	k, _ := opened(t, time.Minute)
	if err := k.writes.SetReadBuffer(1); err != nil {
		t.Fatal(err)
	}
	var absent []op
	list := many(portion)
	for _, a := range list {
		absent = append(absent, op{do: dropAddress, addr: a, index: 1})
	}
	for range 2 {
		lost := 0
		for _, err := range k.write(absent) {
			if errors.Is(err, errUnknown) && errors.Is(err, unix.ENOBUFS) {
				lost++
			}
		}
		if lost == 0 {
			t.Fatal("no answer was lost")
		}
		for _, do := range []verb{addAddress, dropAddress} {
			if err := k.write([]op{{do: do, addr: list[0], index: 1}})[0]; err != nil {
				t.Fatal(err)
			}
		}
	}
}
