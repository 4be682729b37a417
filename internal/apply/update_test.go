package apply

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// drawSharing draws a configuration whose virtual servers may share a service.
func drawSharing(t *rapid.T, was []*config.VirtualServer) []*config.VirtualServer {
	if rapid.IntRange(0, 4).Draw(t, "other order") == 0 {
		cfgs := slices.Clone(was)
		slices.Reverse(cfgs)
		return cfgs
	}
	cfgs := drawConfig(t)
	for i, c := range cfgs {
		if rapid.Bool().Draw(t, "shares") {
			c.Entries = append(c.Entries, config.Entry{Addr: netip.MustParseAddrPort("192.0.2.100:80"), Family: config.IPv4})
		}
		c.DrainTimeout = rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(t, "drain_timeout")
		for _, rc := range c.RealServers {
			if rc.DrainTimeout = c.DrainTimeout; rapid.IntRange(0, 4).Draw(t, "own drain_timeout") == 0 {
				rc.DrainTimeout = 2 * time.Minute
			}
		}
		// Some stay as they were.
		j := slices.IndexFunc(was, func(w *config.VirtualServer) bool { return w.Key == c.Key })
		if j >= 0 && rapid.Bool().Draw(t, "stays") {
			cfgs[i] = was[j]
		}
	}
	return cfgs
}

// TestUpdateIsReplace: telling the applier what changed ends where telling it
// everything does.
func TestUpdateIsReplace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ok := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		now := epoch
		tables := []*ipvstest.Table{ipvstest.New(), ipvstest.New()}
		as := []*Applier{New(tables[0], nil, nil), New(tables[1], nil, nil)}
		for _, a := range as {
			ok(a.Adopt(t.Context()))
		}
		var cfgs []*config.VirtualServer
		vss := map[config.VSKey]*framework.VirtualServer{}
		reload := func(next []*config.VirtualServer) {
			var order []config.VSKey
			var all, changed []*VirtualServer
			fs := map[config.VSKey]*framework.VirtualServer{}
			for _, c := range next {
				order, all = append(order, c.Key), append(all, Translate(c))
				if f := vss[c.Key]; f != nil && f.Config == c {
					fs[c.Key] = f
					continue
				}
				changed = append(changed, Translate(c))
				fs[c.Key], _ = framework.New(c, trust, noFiles)
			}
			as[0].Replace(all)
			for _, c := range next {
				ok(as[0].Init(fs[c.Key]))
			}
			as[1].Update(order, changed)
			for k := range vss {
				if fs[k] == nil && as[1].Lookup(k) != nil {
					t.Errorf("%s is gone and still known", k)
				}
			}
			for _, vs := range changed {
				ok(as[1].Init(fs[vs.Key]))
			}
			cfgs, vss = next, fs
		}
		reload(drawSharing(t, nil))
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "step") {
			case 0:
				reload(drawSharing(t, cfgs))
			case 1:
				now = now.Add(70 * time.Second)
				for _, a := range as {
					ok(a.Tick(t.Context(), now))
				}
			case 2:
				ss, _ := tables[0].Services(t.Context())
				for _, s := range ss {
					ds, _ := tables[0].Destinations(t.Context(), s.ServiceKey)
					for _, d := range ds {
						c := ipvs.Counters{Active: rapid.Uint32Range(0, 1).Draw(t, "connections")}
						for _, table := range tables {
							ok(table.SetCounters(s.ServiceKey, d.DestinationKey, c))
						}
					}
				}
			default:
				if len(cfgs) == 0 {
					continue
				}
				f := vss[rapid.SampledFrom(cfgs).Draw(t, "virtual server").Key]
				i := rapid.IntRange(0, len(f.Servers)-1).Draw(t, "server")
				c, err := f.SetVerdict(i, 0, rapid.SampledFrom([]framework.Verdict{framework.Up, framework.Down}).Draw(t, "verdict"))
				ok(err)
				for _, a := range as {
					for _, s := range c.Servers {
						ok(a.SetAlive(f.Config.Key, f.Servers[s.Index].Config.Key, f.Servers[s.Index].Alive()))
					}
					ok(a.Quorum(f.Config.Key, c.Quorum))
				}
			}
			var seen [2]string
			for i, a := range as {
				ok(a.Flush(t.Context(), now))
				seen[i] = described(t, a, tables[i])
			}
			if seen[0] != seen[1] {
				t.Fatalf("replaced:\n%s\nupdated:\n%s", seen[0], seen[1])
			}
		}
		if a, b := as[0].Operations(), as[1].Operations(); a != b {
			t.Errorf("%d operations, updated %d", a, b)
		}
	})
}

// described is what a table and its applier's drain list hold.
func described(t *rapid.T, a *Applier, table *ipvstest.Table) string {
	var lines []string
	ss, err := table.Services(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range ss {
		ds, err := table.Destinations(t.Context(), s.ServiceKey)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, fmt.Sprint(s.Service))
		for _, d := range ds {
			lines = append(lines, fmt.Sprint(s.Service, d.Destination))
		}
	}
	for k, d := range a.parked.drains {
		lines = append(lines, fmt.Sprint(k, d.since, d.why, d.limit))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestUpdateCostsWhatChanged: nothing is due of what stays.
func TestUpdateCostsWhatChanged(t *testing.T) {
	t.Parallel()
	var cfgs []*config.VirtualServer
	for n := range 100 {
		c := vsOf(1, 2, 3)
		c.Key.Addr = netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 80)
		c.Entries[0].Addr = c.Key.Addr
		cfgs = append(cfgs, c)
	}
	r := newRig(t, trust, cfgs...)
	order := make([]config.VSKey, len(cfgs))
	for i, c := range cfgs {
		order[i] = c.Key
	}
	r.a.Update(order, nil)
	if r.a.Pending() {
		t.Errorf("%d services are due though nothing changed", r.a.due.bulk.len())
	}
	changed := *cfgs[7]
	changed.Scheduler = "wlc"
	f, _ := framework.New(&changed, trust, noFiles)
	r.a.Update(order, []*VirtualServer{Translate(&changed)})
	r.must(r.a.Init(f))
	if r.a.due.bulk.len() != 1 {
		t.Errorf("%d services are due for one that changed", r.a.due.bulk.len())
	}
	r.ops()
	r.flush()
	r.wantOps("set service")
}
