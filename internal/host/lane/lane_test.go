package lane

import (
	order "cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
)

var unexported = cmp.AllowUnexported(state{}, rule{}, route{}, device{}, encap{})

func equal(a, b state) string {
	return cmp.Diff(a, b, unexported, cmpopts.EquateEmpty(), cmp.Comparer(func(a, b netip.Addr) bool { return a == b }), cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }))
}

func drLane(n uint32, server string) Lane {
	a := netip.MustParseAddr(server)
	return Lane{Mark: config.ViaMark + n, Server: a, Forward: config.Forwarding{Method: config.DR}, IPv6: a.Is6()}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The order of the first lane and of the last: the way before the rule that leads to it,
// the local rule at its new place before it leaves the old one.
func TestOrder(t *testing.T) {
	k := fresh(t)
	began := k.sorted()
	keeper := k.keeper(Options{})
	l := drLane(1, "10.0.0.11")
	if err := keeper.Err(l.Mark, false); err == nil {
		t.Error("works before it is there")
	}
	must(t, keeper.Sync(t.Context(), []Lane{l}))
	must(t, keeper.Err(l.Mark, false))
	want := []string{
		"add route to 0.0.0.0/0 table 0x53000001 metric 1 via 10.0.0.11 dev eth0",
		"add route prohibit 0.0.0.0/0 table 0x53000001 metric 9999",
		"add table sluice_lanes of nftables",
		"add rule IPv4 101 action 3 table 0x0 mark 0x0/0x0 goto 0 not false protocol 115",
		"add rule IPv4 100 action 1 table 0xff mark 0x0/0x0 goto 0 not false protocol 2",
		"add rule IPv4 50 action 1 table 0x53000001 mark 0x53000001/0xffffffff goto 0 not false protocol 115",
		"add rule IPv4 40 action 2 table 0x0 mark 0x53000000/0xffff0000 goto 100 not true protocol 115",
		"remove rule IPv4 0 action 1 table 0xff mark 0x0/0x0 goto 0 not false protocol 2",
	}
	if diff := cmp.Diff(want, k.log); diff != "" {
		t.Error(diff)
	}
	k.log = nil
	must(t, keeper.Sync(t.Context(), []Lane{l}))
	if k.log != nil {
		t.Errorf("again: %q", k.log)
	}
	must(t, keeper.Sync(t.Context(), nil))
	want = []string{
		"add rule IPv4 0 action 1 table 0xff mark 0x0/0x0 goto 0 not false protocol 2",
		"remove rule IPv4 100 action 1 table 0xff mark 0x0/0x0 goto 0 not false protocol 2",
		"remove rule IPv4 101 action 3 table 0x0 mark 0x0/0x0 goto 0 not false protocol 115",
		"remove rule IPv4 50 action 1 table 0x53000001 mark 0x53000001/0xffffffff goto 0 not false protocol 115",
		"remove rule IPv4 40 action 2 table 0x0 mark 0x53000000/0xffff0000 goto 100 not true protocol 115",
		"remove route to 0.0.0.0/0 table 0x53000001 metric 1 via 10.0.0.11 dev eth0",
		"remove route prohibit 0.0.0.0/0 table 0x53000001 metric 9999",
		"remove table sluice_lanes of nftables",
	}
	if diff := cmp.Diff(want, k.log); diff != "" {
		t.Error(diff)
	}
	if diff := equal(began, k.sorted()); diff != "" {
		t.Error(diff)
	}
}

func TestNothingIsOpenedWithoutLanes(t *testing.T) {
	var calls []string
	note := func(s string) func() error { return func() error { calls = append(calls, s); return nil } }
	k := fresh(t)
	open := k.open
	keeper := New(Options{Begin: note("begin"), End: note("end"), settings: sysctls{"eth0.accept_local": "1"}, open: func() (kernel, error) {
		calls = append(calls, "open")
		return open()
	}})
	must(t, keeper.Sync(t.Context(), nil))
	must(t, keeper.Sync(t.Context(), []Lane{drLane(1, "10.0.0.11")}))
	must(t, keeper.Sync(t.Context(), nil))
	must(t, keeper.Sync(t.Context(), nil))
	if diff := cmp.Diff([]string{"begin", "open", "open", "end"}, calls); diff != "" {
		t.Error(diff)
	}
}

// anyLanes draws some lanes of each kind.
func anyLanes() *rapid.Generator[[]Lane] {
	pool := []Lane{drLane(1, "10.0.0.11"), drLane(2, "10.0.0.12"), drLane(3, "fd00::11")}
	for i, f := range []config.Forwarding{{Method: config.TUN}, {Method: config.TUN, Tunnel: config.GRE}, {Method: config.TUN, Tunnel: config.GUE, Port: 6080}, {Method: config.TUN, Tunnel: config.GUE, Port: 6081}} {
		for j, a := range []string{"10.0.0.13", "fd00::13"} {
			for _, six := range []bool{false, true} {
				pool = append(pool, Lane{Mark: config.ViaMark + uint32(10+2*i+j), Server: netip.MustParseAddr(a), Forward: f, IPv6: six})
			}
		}
	}
	return rapid.SliceOfNDistinct(rapid.SampledFrom(pool), 0, 6, rapid.ID[Lane])
}

// Whatever there was, and wherever a process is killed: the next one reaches the same,
// and without lanes what was there before all.
func TestAnyEndIsGoneOnFrom(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		k := fresh(t)
		began := k.sorted()
		lanes := anyLanes()
		for range rapid.IntRange(1, 4).Draw(rt, "lives") {
			keeper := k.keeper(Options{Before: true})
			ctx, kill := context.WithCancel(context.Background())
			k.log, k.at, k.stop = nil, rapid.IntRange(1, 30).Draw(rt, "killed at"), kill
			for range rapid.IntRange(1, 3).Draw(rt, "reloads") {
				_ = keeper.Sync(ctx, lanes.Draw(rt, "want")) // killed or not
			}
			kill()
		}
		k.stop = nil
		want := lanes.Draw(rt, "last")
		keeper := k.keeper(Options{Before: true})
		must(t, keeper.Sync(context.Background(), want))
		for _, l := range want {
			taken := holders(want)[l]
			if err := keeper.Err(l.Mark, l.IPv6); taken != errors.Is(err, ErrTaken) || !taken && err != nil {
				rt.Fatalf("%v: %v", l, err)
			}
		}
		clean := fresh(t)
		must(t, clean.keeper(Options{}).Sync(context.Background(), want))
		if diff := equal(clean.sorted(), k.sorted()); diff != "" {
			rt.Fatalf("-from nothing +after all that:\n%s", diff)
		}
		k.log = nil
		must(t, keeper.Sync(context.Background(), want))
		if len(k.log) > 0 {
			rt.Fatalf("again: %q", k.log)
		}
		must(t, k.keeper(Options{Before: true}).Sync(context.Background(), nil))
		if diff := equal(began, k.sorted()); diff != "" {
			rt.Fatalf("left over:\n%s", diff)
		}
	})
}

// holders are the lanes whose tunnel has the ends of an earlier one's.
func holders(lanes []Lane) (taken map[Lane]bool) {
	type at struct {
		server netip.Addr
		ends   ends
	}
	taken, has := map[Lane]bool{}, map[at]device{}
	lanes = slices.Clone(lanes)
	slices.SortFunc(lanes, func(a, b Lane) int {
		return order.Or(order.Compare(a.family(), b.family()), order.Compare(a.Mark, b.Mark))
	})
	for _, l := range lanes {
		if l.Forward.Method != config.TUN {
			continue
		}
		d := l.device(way{})
		k := at{l.Server, d.ends()}
		if first, held := has[k]; held && first != d && !d.external {
			taken[l] = true
		} else {
			has[k] = d
		}
	}
	return taken
}

func TestWhatCannotBe(t *testing.T) {
	server := netip.MustParseAddr("10.0.0.11")
	for name, tc := range map[string]struct {
		lane    func(*Lane)
		prepare func(*fake)
		set     sysctls
		want    string
	}{
		"behind a gateway":  {prepare: func(k *fake) { k.ways[server] = way{device: "eth0", source: server, gateway: true} }, want: "directly connected"},
		"itself":            {prepare: func(k *fake) { k.ways[server] = way{err: errHere} }, want: "is this machine"},
		"NAT":               {lane: func(l *Lane) { l.Forward.Method = config.NAT }, want: "NAT"},
		"another family":    {lane: func(l *Lane) { l.IPv6 = true }, want: "family"},
		"no address":        {lane: func(l *Lane) { l.IPv6, l.Forward.Method = true, config.TUN }, prepare: func(k *fake) { k.ways[server] = way{device: "eth0", source: server} }, want: "eth0"},
		"no right":          {prepare: func(k *fake) { k.refuse["add table sluice_lanes of nftables"] = unix.EPERM }, want: "CAP_NET_ADMIN"},
		"accept_local":      {set: sysctls{}, want: "net.ipv4.conf.eth0.accept_local has to be 1"},
		"strict":            {set: sysctls{"all.accept_local": "1", "all.rp_filter": "1"}, want: "net.ipv4.conf.eth0.rp_filter has to be 2"},
		"local rule before": {prepare: func(k *fake) { k.rules[0].pref = 10 }, want: "at 10"},
		"two local rules":   {prepare: func(k *fake) { k.rules = append(k.rules, kernelRule(unix.AF_INET, 200, unix.RT_TABLE_LOCAL)) }, want: "two"},
		"no nftables": {prepare: func(k *fake) {
			k.refuse["add table sluice_lanes of nftables"] = noNFTables(unix.EOPNOTSUPP)
		}, want: "nf_tables_inet"},
		"no tunnel": {lane: func(l *Lane) { l.Forward.Method = config.TUN }, prepare: func(k *fake) {
			k.refuse["add device sluice-ipip of kind ipip"] = unix.EOPNOTSUPP
		}, want: "lacks a part"},
	} {
		t.Run(name, func(t *testing.T) {
			k := fresh(t)
			l := drLane(1, "10.0.0.11")
			if tc.prepare != nil {
				tc.prepare(k)
			}
			if tc.lane != nil {
				tc.lane(&l)
			}
			before := slices.Clone(k.rules)
			var o Options
			if tc.set != nil {
				o.settings = tc.set
			}
			told := ""
			o.Changed = func(_ Lane, err error) { told = text(err) }
			keeper := k.keeper(o)
			_ = keeper.Sync(t.Context(), []Lane{l})
			err := keeper.Err(l.Mark, l.IPv6)
			if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), "check_via") || told != err.Error() {
				t.Errorf("%v, told %q, want %q", err, told, tc.want)
			}
			if name == "local rule before" || name == "two local rules" {
				if diff := cmp.Diff(before, k.rules, unexported); diff != "" {
					t.Errorf("touched what is not ours: %s", diff)
				}
			}
		})
	}
}

// A local rule that somebody else moved stays there, also at the end.
func TestForeignLocalRule(t *testing.T) {
	k := fresh(t)
	k.rules[0].pref = 99
	began := k.sorted()
	keeper := k.keeper(Options{})
	must(t, keeper.Sync(t.Context(), []Lane{drLane(1, "10.0.0.11")}))
	must(t, keeper.Err(config.ViaMark+1, false))
	if !slices.ContainsFunc(k.rules, func(r rule) bool { return r.to == 99 }) {
		t.Errorf("%v", k.rules)
	}
	must(t, keeper.Sync(t.Context(), nil))
	if diff := equal(began, k.sorted()); diff != "" {
		t.Error(diff)
	}
}

func TestSettingsAreMadeIfAllowed(t *testing.T) {
	set := sysctls{"all.rp_filter": "1"}
	var told []string
	k := fresh(t)
	keeper := k.keeper(Options{settings: set, Manage: func() bool { return true }, Set: func(name, value, was, _ string) { told = append(told, name+" "+value+" "+was) }})
	must(t, keeper.Sync(t.Context(), []Lane{drLane(1, "10.0.0.11")}))
	must(t, keeper.Err(config.ViaMark+1, false))
	if diff := cmp.Diff([]string{"net.ipv4.conf.eth0.accept_local 1 0", "net.ipv4.conf.eth0.rp_filter 2 0"}, told); diff != "" {
		t.Error(diff)
	}
	keeper = fresh(t).keeper(Options{settings: sysctls{"eth0.accept_local": "locked", "all.accept_local": "0"}})
	if err := keeper.answers("eth0"); err != nil { // it is not 0
		t.Error(err)
	}
}

func TestUnreadableKernel(t *testing.T) {
	keeper := New(Options{open: func() (kernel, error) { return nil, unix.EPERM }})
	l := drLane(1, "10.0.0.11")
	if err := keeper.Sync(t.Context(), []Lane{l}); !errors.Is(err, unix.EPERM) || !errors.Is(keeper.Err(l.Mark, false), unix.EPERM) {
		t.Errorf("%v, %v", err, keeper.Err(l.Mark, false))
	}
}
