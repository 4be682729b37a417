package lane

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/testkit"
)

// Whatever was done whose answer was lost, in making lanes and in taking them away: the
// next Sync without such a loss reaches what it would have from nothing.
func TestLostAnswersLeaveNothing(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		k, lanes := fresh(t), anyLanes()
		began := k.sorted()
		keeper := k.keeper(Options{})
		for range rapid.IntRange(1, 5).Draw(rt, "syncs") {
			lost := rapid.SliceOfN(rapid.IntRange(1, 30), 0, 3).Draw(rt, "lost")
			k.log, k.lose = nil, func(at int) bool { return slices.Contains(lost, at) }
			_ = keeper.Sync(context.Background(), lanes.Draw(rt, "want"))
		}
		k.lose = nil
		for _, want := range [][]Lane{lanes.Draw(rt, "last"), nil} {
			must(t, keeper.Sync(context.Background(), want))
			clean := fresh(t)
			must(t, clean.keeper(Options{}).Sync(context.Background(), want))
			if diff := equal(clean.sorted(), k.sorted()); diff != "" {
				rt.Fatalf("%v: -from nothing +after all that:\n%s", want, diff)
			}
		}
		if diff := equal(began, k.sorted()); diff != "" {
			rt.Fatalf("left over:\n%s", diff)
		}
	})
}

// One removal that fails keeps no other from being done, but for the local rule's, and is
// tried again soon, though there is no lane any more.
func TestUndoneIsTriedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := fresh(t)
		began := k.sorted()
		keeper := k.keeper(Options{watch: func(ctx context.Context, _ chan<- struct{}) error { <-ctx.Done(); return ctx.Err() }})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- keeper.Run(ctx, func(err error) { t.Error(err) }) }()
		l := drLane(1, "10.0.0.11")
		must(t, keeper.Sync(ctx, []Lane{l}))
		k.refuse["remove route to 0.0.0.0/0 table 0x53000001 metric 1 via 10.0.0.11 dev eth0"] = os.ErrDeadlineExceeded
		if err := keeper.Sync(ctx, nil); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
		keeper.mu.Lock()
		if len(k.routes) != 1 || k.filter != "" || len(k.rules) != len(began.rules) {
			t.Errorf("left more than what was refused: %v", k.state)
		}
		clear(k.refuse)
		keeper.mu.Unlock()
		synctest.Wait()
		<-time.After(2 * retry)
		synctest.Wait()
		if diff := equal(began, k.sorted()); diff != "" {
			t.Errorf("left over:\n%s", diff)
		}
		cancel()
		if err := <-done; err != context.Canceled {
			t.Error(err)
		}
	})
}

// The routes of a device that is made anew went with it, though they are the same again.
func TestRoutesOfADeviceThatIsMadeAnew(t *testing.T) {
	k := fresh(t)
	keeper := k.keeper(Options{})
	l := Lane{Mark: config.ViaMark + 1, Server: netip.MustParseAddr("10.0.0.11"), Forward: config.Forwarding{Method: config.TUN}, IPv6: true}
	must(t, keeper.Sync(t.Context(), []Lane{l}))
	w, _ := k.way(l.Server)
	w.source = netip.MustParseAddr("10.0.0.2")
	k.ways[l.Server] = w
	must(t, keeper.Sync(t.Context(), []Lane{l}))
	clean := fresh(t)
	clean.ways = k.ways
	must(t, clean.keeper(Options{}).Sync(t.Context(), []Lane{l}))
	if diff := equal(clean.sorted(), k.sorted()); diff != "" {
		t.Errorf("-from nothing +with another source:\n%s", diff)
	}
}

// late is the kernel, whose answer to the operation with a number is given up after it was
// done, and comes later.
type late struct {
	*linux
	conn *netlink.Conn
	n    *int
}

func (k late) do(ctx context.Context, o op) error {
	err := k.linux.do(ctx, o)
	if *k.n--; err != nil || *k.n != 0 {
		return err
	}
	_, err = k.ask(unix.NLMSG_NOOP, 0, nil) // the kernel passes over this one
	for _, kind := range []netlink.HeaderType{unix.RTM_GETRULE, unix.RTM_GETLINK} {
		if _, err := k.conn.Send(netlink.Message{Header: netlink.Header{Type: kind, Flags: netlink.Request | netlink.Dump}, Data: make([]byte, unix.SizeofIfInfomsg)}); err != nil {
			return err
		}
	}
	return err
}

// Through the real socket: the answer of one operation that comes late spoils none of the
// next, whichever it is, in making lanes and in taking them away.
func TestLateAnswerSpoilsNoLane(t *testing.T) {
	testkit.NeedRoot(t)
	ns := testkit.NewNS(t, "late")
	ns.IP(t, "address add 10.9.0.1/32 dev lo", "route add 10.9.0.0/24 dev lo src 10.9.0.1")
	shown := func() string {
		var all strings.Builder
		for _, what := range []string{"-4 rule", "-6 rule", "-4 route show table all", "-6 route show table all"} {
			all.WriteString(ns.Run(t, "ip", strings.Fields(what)...))
		}
		return all.String() + ns.Run(t, "nft", "list", "tables")
	}
	n := 0
	keeper := New(Options{settings: sysctls{"lo.accept_local": "1"}, open: func() (kernel, error) {
		c, err := netlink.Dial(unix.NETLINK_ROUTE, nil)
		if err != nil {
			return nil, err
		}
		return late{newLinux(c, time.Millisecond), c, &n}, nil
	}})
	sync := func(lanes ...Lane) error {
		return ns.Do(func() error { return keeper.Sync(context.Background(), lanes) })
	}
	before := shown()
	l := drLane(1, "10.9.0.11")
	must(t, sync(l))
	must(t, keeper.Err(l.Mark, false))
	made := shown()
	if made == before {
		t.Fatal("nothing was made")
	}
	must(t, sync())
	for at := 1; at < 100; at++ {
		n = at
		err := sync(l)
		if err == nil && n > 0 {
			if at < 8 {
				t.Errorf("%d operations only", at-1)
			}
			n = 0
			must(t, sync())
			return // there are no more operations
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || strings.Contains(err.Error(), "sequence") {
			t.Fatalf("%d: %v", at, err)
		}
		must(t, sync(l))
		must(t, keeper.Err(l.Mark, false))
		if now := shown(); now != made {
			t.Fatalf("%d: %s\nwant %s", at, now, made)
		}
		n = at
		if err := sync(); !errors.Is(err, os.ErrDeadlineExceeded) || strings.Count(fmt.Sprint(err), "\n") > 0 {
			t.Fatalf("%d: %v; want the one that was given up", at, err)
		}
		must(t, sync())
		if now := shown(); now != before {
			t.Fatalf("%d: left %s\nwant %s", at, now, before)
		}
	}
}

// What cannot be read is not taken for absent: it would stay.
func TestUnreadableTable(t *testing.T) {
	var was unix.Rlimit
	must(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Max: was.Max}))
	f, err := readFilter()
	must(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &was))
	if !errors.Is(err, unix.EMFILE) {
		t.Errorf("%q, %v; want that no socket was to be had", f, err)
	}
}

// A tunnel that is not up, as one that was not finished, is made anew, with its routes.
func TestKernelTunnelDown(t *testing.T) {
	ns := plain(t)
	ns.Run(t, "modprobe", "-a", "fou", "ipip", "sit")
	keeper := New(Options{Manage: func() bool { return true }})
	var lanes []Lane
	for n, f := range []config.Forwarding{{Method: config.TUN}, {Method: config.TUN, Tunnel: config.GUE, Port: 6080}} {
		l := drLane(uint32(n+1), fmt.Sprintf("10.0.0.%d", 11+n))
		l.Forward = f
		lanes = append(lanes, l, Lane{Mark: l.Mark, Server: l.Server, Forward: f, IPv6: true})
	}
	shown := func() string {
		t.Helper()
		must(t, ns.Do(func() error { return keeper.Sync(context.Background(), lanes) }))
		for _, l := range lanes {
			must(t, keeper.Err(l.Mark, l.IPv6))
		}
		return ns.Run(t, "sh", "-c", "{ for f in '' -6; do ip $f route show table all proto 115; done; for k in ipip sit; do ip -br link show up type $k; done | cut -d@ -f1; } | sort")
	}
	was := shown()
	contains(t, was, "sluice-ipip")
	for _, name := range []string{"sluice-ipip", "slu53000002", "slu53000001-6"} {
		ns.IP(t, "link set "+name+" down")
		if now := shown(); now != was {
			t.Errorf("%s: %s\nwas %s", name, now, was)
		}
	}
	must(t, ns.Do(func() error { return keeper.Sync(context.Background(), nil) }))
}
