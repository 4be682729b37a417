package apply

import (
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// twins are two appliers that are told the same over tables to which the same happens.
// The second looks at the whole of every service that anything touches.
type twins struct {
	t   *rapid.T
	a   [2]*Applier
	tab [2]*ipvstest.Table
	vss map[config.VSKey]*framework.VirtualServer
	now time.Time
}

func (tw *twins) both(f func(a *Applier) error) {
	for _, a := range tw.a {
		if err := f(a); err != nil {
			tw.t.Fatal(err)
		}
	}
}

func (tw *twins) configure(cfgs []*config.VirtualServer, how framework.Trust) {
	next := map[config.VSKey]*framework.VirtualServer{}
	for _, c := range cfgs {
		if was := tw.vss[c.Key]; was != nil {
			next[c.Key], _ = framework.Next(was, c, how, noFiles)
		} else {
			next[c.Key], _ = framework.New(c, how, noFiles)
		}
	}
	tw.vss = next
	for i, a := range tw.a {
		var vss []*VirtualServer
		for _, c := range cfgs {
			vss = append(vss, Translate(c))
		}
		if a == nil {
			tw.a[i] = New(tw.tab[i], vss, nil)
			if err := tw.a[i].Adopt(tw.t.Context()); err != nil {
				tw.t.Fatal(err)
			}
		} else {
			a.Replace(vss)
		}
	}
	for _, c := range cfgs {
		tw.both(func(a *Applier) error { return a.Init(next[c.Key]) })
	}
}

// hand tells both what changed, and the second to look at everything.
func (tw *twins) hand(f *framework.VirtualServer, c framework.Change) {
	k := f.Config.Key
	for _, s := range c.Servers {
		rs := f.Servers[s.Index]
		tw.both(func(a *Applier) error {
			if s.AliveChanged {
				if err := a.SetAlive(k, rs.Config.Key, rs.Alive()); err != nil {
					return err
				}
			}
			if err := a.SetMaintenance(k, rs.Config.Key, rs.Maintenance()); err != nil {
				return err
			}
			return a.SetWeight(k, rs.Config.Key, rs.Share())
		})
	}
	tw.both(func(a *Applier) error { return a.Quorum(k, c.Quorum) })
	for _, s := range tw.a[1].Lookup(k).Services {
		if tw.a[1].due.urgent.has(s.ServiceKey) {
			tw.a[1].due.urgent.whole(s.ServiceKey)
		}
	}
}

// flush has both write, and compares what they did and where they are.
func (tw *twins) flush() {
	for _, t := range tw.tab {
		t.ResetLog()
	}
	// With a quorum that is back or a reload the second has one plan where the first
	// has two, so that what they do may come in another order.
	ordered := tw.a[0].due.bulk.len() == 0
	var errs [2]error
	for i, a := range tw.a {
		errs[i] = a.Flush(tw.t.Context(), tw.now)
	}
	tw.same(errs, ordered)
}

func (tw *twins) same(errs [2]error, ordered bool) {
	if fmt.Sprint(errs[0]) != fmt.Sprint(errs[1]) {
		tw.t.Fatalf("errors differ:\n%v\n%v", errs[0], errs[1])
	}
	var logs, tables, views [2][]string
	for i, t := range tw.tab {
		for _, at := range t.Attempts() {
			logs[i] = append(logs[i], fmt.Sprintf("%s weight %d: %v", at.Op, at.Op.Destination.Weight, at.Err))
		}
		ss, _ := t.Services(tw.t.Context())
		for _, s := range ss {
			ds, _ := t.Destinations(tw.t.Context(), s.ServiceKey)
			for _, d := range ds {
				tables[i] = append(tables[i], fmt.Sprint(s.ServiceKey, s.Scheduler, d.DestinationKey, d.Weight, d.Counters))
			}
			tables[i] = append(tables[i], fmt.Sprint(s.ServiceKey, s.Scheduler))
		}
		for _, c := range tw.a[i].vss {
			for _, v := range tw.a[i].View(c.vs.Key) {
				for _, d := range v.Destinations {
					views[i] = append(views[i], fmt.Sprint(c.vs.Key, v.Service.ServiceKey, d.DestinationKey, d.Wanted, d.Mirror, drainText(d.Drain)))
				}
			}
		}
	}
	if tw.a[0].Pending() != tw.a[1].Pending() {
		tw.t.Fatalf("pending: %t and %t", tw.a[0].Pending(), tw.a[1].Pending())
	}
	if !ordered {
		slices.Sort(logs[0])
		slices.Sort(logs[1])
	}
	if !slices.Equal(logs[0], logs[1]) {
		tw.t.Fatalf("operations differ:\n%q\n%q", logs[0], logs[1])
	}
	tw.targets()
	for _, l := range [][2][]string{tables, views} {
		slices.Sort(l[0])
		slices.Sort(l[1])
		if !slices.Equal(l[0], l[1]) {
			tw.t.Fatalf("where they are differs:\n%q\n%q", l[0], l[1])
		}
	}
}

// targets holds what is wanted of every service to all claims of it taken together the
// plain way.
func (tw *twins) targets() {
	for k := range tw.a[0].owners {
		wants := map[ipvs.DestinationKey]uint32{}
		gones, whys := map[ipvs.DestinationKey]bool{}, map[ipvs.DestinationKey]bool{}
		for _, c := range tw.a[0].owners[k] {
			for i := range c.vs.positions() {
				d := desired(c.vs, &c.facts, i, k)
				dk := d.dest.DestinationKey
				switch d.fate {
				case wanted:
					wants[dk] = max(wants[dk], d.dest.Weight)
				case gone:
					gones[dk] = true
				case leaves:
					whys[dk] = true
				}
			}
		}
		n := 0
		tgt, _ := tw.a[0].target(k, nil, true)
		for _, d := range tgt.dests {
			dk := d.dest.DestinationKey
			w, ok := wants[dk]
			switch {
			case ok != (d.fate == wanted), ok && w != d.dest.Weight,
				!ok && gones[dk] != (d.fate == gone), !ok && !gones[dk] && !whys[dk]:
				tw.t.Fatalf("%s in %s: %+v with weight %d, of all claims %t %d", dk, k, d.fate, d.dest.Weight, ok, w)
			}
			delete(wants, dk)
			delete(gones, dk)
			delete(whys, dk)
			n++
		}
		if len(wants)+len(gones)+len(whys) != 0 {
			tw.t.Fatalf("%s: nothing is said of %v %v %v, or it is said twice", k, wants, gones, whys)
		}
	}
}

func (tw *twins) server(t *rapid.T) (*framework.VirtualServer, int) {
	var fs []*framework.VirtualServer
	for _, c := range tw.a[0].vss {
		fs = append(fs, tw.vss[c.vs.Key])
	}
	if len(fs) == 0 {
		return nil, 0
	}
	f := rapid.SampledFrom(fs).Draw(t, "vs")
	return f, rapid.IntRange(0, len(f.Servers)-1).Draw(t, "rs")
}

func (tw *twins) verdicts(t *rapid.T) {
	for range rapid.IntRange(1, 4).Draw(t, "burst") {
		f, i := tw.server(t)
		if f == nil {
			return
		}
		c, err := f.SetVerdict(i, 0, rapid.SampledFrom([]framework.Verdict{framework.Up, framework.Down}).Draw(t, "verdict"))
		if err != nil {
			t.Fatal(err)
		}
		tw.hand(f, c)
		// Whatever else moved, this one is looked at.
		rs := f.Servers[i]
		if !rs.Alive() && !rs.Unverified() {
			tw.both(func(a *Applier) error { return a.SetAlive(f.Config.Key, rs.Config.Key, false) })
			tw.hand(f, framework.Change{})
		}
	}
}

// TestDestinationsAsWholeServices holds the path that looks at single destinations to
// the one that looks at whole services: the same operations and the same table after
// each of any sequence of verdicts, weights, reloads, drains, meddling and refusals.
// Servers are listed twice and shared by virtual servers, and sorry servers are real
// servers elsewhere.
func TestDestinationsAsWholeServices(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tw := &twins{t: t, tab: [2]*ipvstest.Table{ipvstest.New(), ipvstest.New()}, now: epoch}
		how := func() framework.Trust { return rapid.SampledFrom([]framework.Trust{trust, distrust}).Draw(t, "trust") }
		tw.configure(drawOverlapping(t), how())
		tw.flush()
		t.Repeat(map[string]func(*rapid.T){
			"verdict": func(t *rapid.T) { tw.verdicts(t); tw.flush() },
			"file": func(t *rapid.T) {
				f, i := tw.server(t)
				if f == nil {
					return
				}
				c, err := f.SetFile(i, 0, rapid.Int64Range(-4, 2).Draw(t, "value"))
				if err != nil {
					t.Fatal(err)
				}
				tw.hand(f, c)
				tw.flush()
			},
			"reload": func(t *rapid.T) { tw.configure(drawOverlapping(t), how()); tw.flush() },
			"connections": func(t *rapid.T) {
				ss, _ := tw.tab[0].Services(t.Context())
				for _, s := range ss {
					ds, _ := tw.tab[0].Destinations(t.Context(), s.ServiceKey)
					for _, d := range ds {
						c := ipvs.Counters{Active: rapid.Uint32Range(0, 1).Draw(t, "active")}
						for _, tab := range tw.tab {
							_ = tab.SetCounters(s.ServiceKey, d.DestinationKey, c)
						}
					}
				}
			},
			"tick": func(t *rapid.T) {
				tw.now = tw.now.Add(time.Minute)
				var errs [2]error
				for i, a := range tw.a {
					errs[i] = a.Tick(t.Context(), tw.now)
				}
				tw.same(errs, false)
			},
			"meddling": func(t *rapid.T) {
				ss, _ := tw.tab[0].Services(t.Context())
				for _, s := range ss {
					ds, _ := tw.tab[0].Destinations(t.Context(), s.ServiceKey)
					if len(ds) > 0 {
						d := rapid.SampledFrom(ds).Draw(t, "removed").Destination
						for _, tab := range tw.tab {
							_ = tab.DelDest(t.Context(), s.Service, d)
						}
					}
				}
				if rapid.Bool().Draw(t, "a verdict comes before it is seen") {
					tw.verdicts(t)
				}
				var errs [2]error
				for i, a := range tw.a {
					errs[i] = a.Reconcile(t.Context(), tw.now)
				}
				tw.same(errs, false)
			},
			"refusals": func(t *rapid.T) {
				seed := rapid.Uint32().Draw(t, "seed")
				for _, tab := range tw.tab {
					tab.Fail(func(o ipvs.Op) error {
						h := fnv.New32()
						fmt.Fprint(h, seed, o)
						if h.Sum32()%3 == 0 {
							return syscall.ENOMEM
						}
						return nil
					})
				}
				tw.verdicts(t)
				for i, a := range tw.a {
					_ = a.Flush(t.Context(), tw.now)
					tw.tab[i].Fail(nil)
				}
				tw.flushBoth()
			},
		})
	})
}

// flushBoth writes after refusals: what was refused and what was held back for it may
// have left other operations to each, but not another end. A deletion that was refused
// waits for a tick.
func (tw *twins) flushBoth() {
	var errs [2]error
	for i, a := range tw.a {
		errs[i] = errors.Join(a.Flush(tw.t.Context(), tw.now), a.Tick(tw.t.Context(), tw.now))
		tw.tab[i].ResetLog()
	}
	tw.same(errs, false)
}

// drawOverlapping draws virtual servers of which some name a server twice, and some
// the same service as another.
func drawOverlapping(t *rapid.T) []*config.VirtualServer {
	cfgs := drawConfig(t)
	for i, c := range cfgs {
		if rapid.Bool().Draw(t, "a server twice") {
			twice := *c.RealServers[0]
			twice.Weight = rapid.Int64Range(0, 5).Draw(t, "other weight")
			c.RealServers = append(c.RealServers, &twice)
		}
		if i > 0 && rapid.Bool().Draw(t, "shares a service") && c.Protocol == cfgs[0].Protocol {
			c.Entries = append(c.Entries, cfgs[0].Entries[0])
		}
	}
	return cfgs
}

func drainText(d *DrainView) string {
	if d == nil {
		return ""
	}
	return fmt.Sprint(d.Since, d.Why, d.WaitsFor, d.Deadline)
}
