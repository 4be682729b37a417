package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// change carries a plan out on an engine that does not run.
func (e *Engine) change(tb testing.TB, p *plan) {
	tb.Helper()
	ev := reloadEvent{p, make(chan reloaded, 1)}
	ev.handle(e)
	for len(ev.applied) == 0 {
		e.turn(tb.Context())
	}
	if !(<-ev.applied).ok {
		tb.Fatal("the plan was for another configuration")
	}
}

// again is a configuration of the same content that shares nothing with cfg, with its
// virtual servers in another place of the file.
func again(cfg *config.Config) *config.Config {
	c := *cfg
	c.VirtualServers = make([]*config.VirtualServer, len(cfg.VirtualServers))
	for i, vc := range cfg.VirtualServers {
		v := *vc
		v.Pos.Line += 7
		v.RealServers = make([]*config.RealServer, len(vc.RealServers))
		for j, rc := range vc.RealServers {
			r := *rc
			r.Pos.Line += 7
			r.Checkers = make([]*config.Checker, len(rc.Checkers))
			for k, ck := range rc.Checkers {
				x := *ck
				x.Pos.Line += 7
				r.Checkers[k] = &x
			}
			v.RealServers[j] = &r
		}
		c.VirtualServers[i] = &v
	}
	return &c
}

// TestS01ReloadOfALargeFile: of 300 services with 100 real servers each, one gets a
// server more. One operation is made and one probe added; whatever else there is goes
// on as it was, to the very object.
func TestS01ReloadOfALargeFile(t *testing.T) {
	cfg := many(300, 100)
	sched := &counting{}
	e, _ := still(t, cfg, sched)
	was, tasks := slices.Clone(e.vss), map[config.RSKey]*task{}
	for i, rs := range e.vss[17].Servers {
		tasks[rs.Config.Key] = e.vss[17].tasks[i][0]
	}
	ops := e.applier.Operations()
	sched.counts = counts{}

	next := again(cfg)
	vc := next.VirtualServers[17]
	newcomer := realServer(1 << 20)
	vc.RealServers = slices.Insert(vc.RealServers, 40, newcomer)
	e.change(t, planned(e.running.Load(), next))

	if n := e.applier.Operations() - ops; n != 0 {
		t.Errorf("%d operations for a server that waits for its first check", n)
	}
	if sched.counts != (counts{added: 1}) {
		t.Errorf("the schedule: %+v", sched.counts)
	}
	for i, vs := range e.vss {
		if i != 17 && vs != was[i] {
			t.Fatalf("virtual server %d was made anew", i)
		}
	}
	for i, rs := range e.vss[17].Servers {
		if old := tasks[rs.Config.Key]; (old == nil) != (rs.Config == newcomer) || old != nil && old != e.vss[17].tasks[i][0] {
			t.Errorf("the check of %s was made anew", rs.Config.Key)
		}
	}
	for _, ev := range []verdictEvent{{task: e.vss[17].tasks[40][0], verdict: framework.Up, changed: true}} {
		ev.handle(e)
		e.turn(t.Context())
	}
	if n := e.applier.Operations() - ops; n != 1 {
		t.Errorf("%d operations after its first good check, want the addition", n)
	}
}

// TestS01ReloadThatChangesNothing makes no operation and touches no check, in whatever
// lines of the file things stand.
func TestS01ReloadThatChangesNothing(t *testing.T) {
	cfg := many(100, 100)
	sched := &counting{}
	e, _ := still(t, cfg, sched)
	was := slices.Clone(e.vss)
	ops := e.applier.Operations()
	sched.counts = counts{}
	e.change(t, planned(e.running.Load(), again(cfg)))
	if n := e.applier.Operations() - ops; n != 0 || sched.counts != (counts{}) || !slices.Equal(was, e.vss) {
		t.Errorf("%d operations, schedule %+v, virtual servers kept: %v", n, sched.counts, slices.Equal(was, e.vss))
	}
	if e.generation != 2 || !e.reload.OK {
		t.Errorf("generation %d, %+v", e.generation, e.reload)
	}
}

// TestS01ReloadThatChangesOneWeight makes the one operation.
func TestS01ReloadThatChangesOneWeight(t *testing.T) {
	cfg := many(1, 10000)
	sched := &counting{}
	e, table := still(t, cfg, sched)
	table.KeepLog(true)
	table.ResetLog()
	sched.counts = counts{}
	next := again(cfg)
	next.VirtualServers[0].RealServers[1234].Weight = 5
	e.change(t, planned(e.running.Load(), next))
	log := table.Log()
	if want := next.VirtualServers[0].RealServers[1234].Key.String(); len(log) != 1 || !strings.Contains(fmt.Sprint(log[0]), want) {
		t.Errorf("%d operations %v, want one of %s", len(log), log[:min(len(log), 3)], want)
	}
	if sched.counts != (counts{}) {
		t.Errorf("the schedule: %+v", sched.counts)
	}
}

// TestReloadWritesBeforeItCompares: what a reload changes does not wait until the whole
// table was read, and the reload is over when it was.
func TestReloadWritesBeforeItCompares(t *testing.T) {
	e, table := still(t, many(3, 2), &counting{})
	next := again(e.config)
	next.VirtualServers[0].RealServers[0].Weight = 7
	ev := reloadEvent{planned(e.running.Load(), next), make(chan reloaded, 1)}
	reads := 0
	table.FailReads(func(ipvs.ServiceKey) error { reads++; return nil })
	ops := e.applier.Operations()
	ev.handle(e)
	e.turn(t.Context())
	if n := e.applier.Operations() - ops; n != 1 || reads != 0 || len(ev.applied) != 0 {
		t.Errorf("first turn: %d operations, %d reads, reported %v", n, reads, len(ev.applied))
	}
	if d := e.wait(time.Now()); d != 0 {
		t.Errorf("the next turn is in %v", d)
	}
	e.turn(t.Context())
	if n := e.applier.Operations() - ops; n != 1 || reads == 0 || len(ev.applied) != 1 {
		t.Errorf("second turn: %d operations, %d reads, reported %v", n, reads, len(ev.applied))
	}
}

// TestReloadPlansAgain: a plan for a configuration that another reload replaced is not
// carried out, but made anew.
func TestReloadPlansAgain(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		r.pass(20 * time.Second)
		stale := reloadEvent{planned(r.e.running.Load(), conf(1, 3)), make(chan reloaded, 1)}
		r.reload(conf(1, 4))
		r.e.inbox.send(stale)
		if (<-stale.applied).ok {
			t.Error("a plan for another configuration was carried out")
		}
		done := make(chan error, 8)
		for n := range 8 {
			go func() { done <- r.e.Reload(r.Context(), conf(1, n+10)) }()
		}
		for range 8 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		r.pass(20 * time.Second)
		s := r.e.Snapshot()
		if s.Generation != 10 || len(s.VirtualServers[0].RealServers) != 2 {
			t.Errorf("generation %d, servers %+v", s.Generation, s.VirtualServers[0].RealServers)
		}
	})
}

// TestTrackFileOfAnotherPath: the virtual servers say the same, and yet their file has
// another value.
func TestTrackFileOfAnotherPath(t *testing.T) {
	in(t, func(r *rig) {
		fresh := func(path string) *config.Config {
			cfg := each(conf(1, 2), func(rs *config.RealServer) {
				rs.TrackFiles = []config.TrackFileUse{{Name: "maintenance"}}
			})
			cfg.VirtualServers[0].RealServers[1].TrackFiles = nil
			cfg.TrackFiles = []*config.TrackFile{{Name: "maintenance", Path: path}}
			return cfg
		}
		r.start(fresh("/a"))
		r.pass(20 * time.Second)
		r.want("1:1 2:1")
		r.files["maintenance"] = 1
		r.reload(fresh("/b"))
		r.want("1:0 2:1")
		if f := r.e.Snapshot().VirtualServers[0].RealServers[0].TrackFiles[0]; f.Path != "/b" || f.Value != 1 {
			t.Errorf("status shows %+v", f)
		}
		r.e.FileValue("maintenance", 0)
		r.want("1:1 2:1")
		r.reload(fresh("/b"))
		r.want("1:1 2:1")
	})
}

// TestSSLOfAReload: the client side of all SSL_GET is not in any virtual server's
// configuration.
func TestSSLOfAReload(t *testing.T) {
	fresh := func(ca string) *config.Config {
		cfg := many(2, 2)
		cfg.SSL = &config.SSL{CA: ca}
		c := cfg.VirtualServers[1].RealServers[0].Checkers[0]
		c.Kind, c.HTTP = config.SSLGet, &config.HTTP{}
		return cfg
	}
	sched := &counting{}
	e, _ := still(t, fresh("/a"), sched)
	sched.counts = counts{}
	e.change(t, planned(e.running.Load(), fresh("/a")))
	if sched.counts != (counts{}) {
		t.Errorf("the same CA: %+v", sched.counts)
	}
	e.change(t, planned(e.running.Load(), fresh("/b")))
	if sched.counts != (counts{updated: 1}) {
		t.Errorf("another CA: %+v", sched.counts)
	}
}

// TestX06ReloadReadsTheCAAgain: the file of a check that verifies may have other
// issuers by now, though nothing is changed in the configuration.
func TestX06ReloadReadsTheCAAgain(t *testing.T) {
	fresh := func(verify bool) *config.Config {
		cfg := many(2, 2)
		c := cfg.VirtualServers[1].RealServers[0].Checkers[0]
		c.Kind, c.HTTP = config.SSLGet, &config.HTTP{TLS: &config.TLS{Verify: verify, CA: "/ca.pem"}}
		return cfg
	}
	for verify, want := range map[bool]counts{false: {}, true: {updated: 1}} {
		sched := &counting{}
		e, _ := still(t, fresh(verify), sched)
		sched.counts = counts{}
		e.change(t, planned(e.running.Load(), fresh(verify)))
		if sched.counts != want {
			t.Errorf("tls_verify %t: %+v, want %+v", verify, sched.counts, want)
		}
	}
}

// drawn is a configuration of a few of a few virtual servers, in some order.
func drawn(rt *rapid.T) *config.Config {
	full := many(4, 4)
	cfg := &config.Config{Global: full.Global}
	cfg.Global.ShareChecks = rapid.Bool().Draw(rt, "share")
	for i, vc := range full.VirtualServers {
		if rapid.IntRange(0, 4).Draw(rt, "without") == 0 {
			continue
		}
		vc.RealServers = slices.DeleteFunc(vc.RealServers, func(*config.RealServer) bool { return rapid.IntRange(0, 4).Draw(rt, "gone") == 0 })
		if len(vc.RealServers) == 0 {
			continue
		}
		if rapid.IntRange(0, 4).Draw(rt, "scheduler") == 0 {
			vc.Scheduler = "wlc"
		}
		if i == 1 && rapid.Bool().Draw(rt, "sorry") {
			vc.Sorry = &config.SorryServer{Key: realServer(99).Key, Forward: config.Forwarding{Method: config.NAT}}
		}
		for _, rc := range vc.RealServers {
			if rapid.IntRange(0, 4).Draw(rt, "other weight") == 0 {
				rc.Weight = rapid.Int64Range(0, 3).Draw(rt, "weight")
			}
			if rapid.IntRange(0, 6).Draw(rt, "other target") == 0 {
				rc.Checkers[0].Conn.FWMark = 1
			}
			if rapid.IntRange(0, 6).Draw(rt, "other interval") == 0 {
				rc.Checkers[0].DelayLoop = time.Minute
			}
		}
		cfg.VirtualServers = append(cfg.VirtualServers, vc)
	}
	if rapid.IntRange(0, 3).Draw(rt, "reverse") == 0 {
		slices.Reverse(cfg.VirtualServers)
	}
	return cfg
}

// anew is a plan in which everything is taken for changed.
func anew(from, to *config.Config) *plan {
	p := planned(from, again(to))
	for i, vc := range again(to).VirtualServers {
		p.to.VirtualServers[i] = vc
		p.steps[i].vc, p.steps[i].kernel = vc, apply.Translate(vc)
	}
	return p
}

// shown is all that the table and status say.
func shown(tb testing.TB, e *Engine, table *ipvstest.Table) string {
	tb.Helper()
	var b strings.Builder
	services, err := table.Services(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	slices.SortFunc(services, func(x, y ipvs.ServiceInfo) int { return cmp.Compare(x.ServiceKey.String(), y.ServiceKey.String()) })
	for _, s := range services {
		ds, err := table.Destinations(tb.Context(), s.ServiceKey)
		if err != nil {
			tb.Fatal(err)
		}
		var lines []string
		for _, d := range ds {
			lines = append(lines, fmt.Sprint(d.Destination))
		}
		slices.Sort(lines)
		fmt.Fprintln(&b, s.Service, lines)
	}
	for _, vs := range e.Snapshot().VirtualServers {
		fmt.Fprintln(&b, vs.Name, vs.QuorumUp, vs.Alive, vs.Scheduler)
		for _, rs := range vs.RealServers {
			fmt.Fprintln(&b, " ", rs.Address, rs.State, rs.Reason, rs.WeightConfigured, rs.WeightWanted)
		}
	}
	return b.String()
}

// TestReloadsAmongVerdicts: reloads that do only what changed, planned some time before
// they are carried out and with many verdicts in one turn, end where the same events do
// one after the other with everything made anew at each reload.
func TestReloadsAmongVerdicts(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		first := drawn(rt)
		sched := &counting{tasks: map[checker.ID]checker.Task{}}
		quick, quickTable := still(t, first, sched)
		slow, slowTable := still(t, again(first), &counting{})
		var waiting *plan
		finish := func() {
			if waiting == nil {
				return
			}
			quick.change(t, waiting)
			slow.change(t, anew(slow.running.Load(), again(waiting.to)))
			waiting = nil
		}
		for range rapid.IntRange(1, 40).Draw(rt, "events") {
			switch {
			case rapid.IntRange(0, 5).Draw(rt, "event") > 0:
				key := many(4, 4).VirtualServers[rapid.IntRange(0, 3).Draw(rt, "vs")].Key
				server := rapid.IntRange(0, 3).Draw(rt, "rs")
				v := rapid.SampledFrom([]framework.Verdict{framework.Up, framework.Down}).Draw(rt, "verdict")
				for _, e := range []*Engine{quick, slow} {
					if vs := e.byKey[key]; vs != nil && server < len(vs.tasks) {
						verdictEvent{task: vs.tasks[server][0], verdict: v, changed: true}.handle(e)
					}
				}
				slow.turn(t.Context())
			case waiting == nil:
				waiting = planned(quick.running.Load(), drawn(rt))
			default:
				finish()
			}
		}
		finish()
		for _, e := range []*Engine{quick, slow} {
			e.turn(t.Context())
			e.turn(t.Context())
		}
		if a, b := shown(t, quick, quickTable), shown(t, slow, slowTable); a != b {
			rt.Errorf("in proportion:\n%s\nanew:\n%s", a, b)
		}
		wantRuns(rt, quick, sched)
	})
}

// wantRuns holds what is scheduled to the tasks that there are.
func wantRuns(rt *rapid.T, e *Engine, sched *counting) {
	members, ids := map[*run]int{}, map[checker.ID]bool{}
	for _, vs := range e.vss {
		for i, ts := range vs.tasks {
			for k, tk := range ts {
				if tk.vs != vs || int(tk.server) != i || int(tk.check) != k || !slices.Contains(tk.run.members, tk) {
					rt.Errorf("a task of %s is in another place", vs.name)
				}
				members[tk.run]++
				ids[tk.run.id] = true
			}
		}
	}
	known := 0
	for _, r := range e.runs {
		for ; r != nil; r = r.next {
			if known++; members[r] == 0 {
				rt.Error("a run without a task can be joined")
			}
		}
	}
	for r, n := range members {
		if len(r.members) != n {
			rt.Errorf("a run has %d members, and %d tasks are in it", len(r.members), n)
		}
	}
	if e.config.Global.ShareChecks && known != len(members) || !e.config.Global.ShareChecks && known != 0 {
		rt.Errorf("%d of %d runs can be joined, sharing %v", known, len(members), e.config.Global.ShareChecks)
	}
	if scheduled := slices.Collect(maps.Keys(sched.tasks)); len(scheduled) != len(ids) {
		rt.Errorf("%d runs are scheduled for %d", len(scheduled), len(ids))
	}
}

// TestPhasesOverAReload: checks that a reload does not change run when they would have.
func TestPhasesOverAReload(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2, 3))
		r.pass(20 * time.Second)
		last := func() map[int]time.Time {
			synctest.Wait()
			at := map[int]time.Time{}
			for i, rs := range r.e.Snapshot().VirtualServers[0].RealServers {
				at[i] = rs.Checkers[0].LastAt
			}
			return at
		}
		before := last()
		r.pass(3 * time.Second)
		r.reload(conf(1, 2, 3, 4))
		r.pass(7 * time.Second)
		after := last()
		for i, at := range before {
			if want := at.Add(10 * time.Second); after[i] != want && after[i] != at {
				t.Errorf("server %d was checked at %v, want %v", i, after[i], want)
			}
		}
	})
}

func BenchmarkReload30000(b *testing.B) {
	cfg := many(300, 100)
	e, _ := still(b, cfg, &counting{})
	nexts := [2]*config.Config{again(cfg), again(cfg)}
	vc := nexts[1].VirtualServers[17]
	vc.RealServers = append(vc.RealServers, realServer(1<<20))
	reloads(b, e, nexts)
}

func BenchmarkReloadUnchanged(b *testing.B) {
	cfg := many(300, 100)
	e, _ := still(b, cfg, &counting{})
	reloads(b, e, [2]*config.Config{again(cfg), again(cfg)})
}

func BenchmarkReload1x10000(b *testing.B) {
	cfg := many(1, 10000)
	e, _ := still(b, cfg, &counting{})
	nexts := [2]*config.Config{again(cfg), again(cfg)}
	nexts[1].VirtualServers[0].RealServers[5000].Weight = 7
	reloads(b, e, nexts)
}

// reloads measures what a reload costs its caller (plan), the loop before the change is
// written (apply) and the comparison afterwards (compare).
func reloads(b *testing.B, e *Engine, nexts [2]*config.Config) {
	b.ReportAllocs()
	var plan, apply, compare time.Duration
	ops := e.applier.Operations()
	n := 0
	for b.Loop() {
		n++
		begun := time.Now()
		p := planned(e.running.Load(), nexts[n%2])
		planAt := time.Now()
		ev := reloadEvent{p, make(chan reloaded, 1)}
		ev.handle(e)
		e.turn(b.Context())
		applyAt := time.Now()
		for len(ev.applied) == 0 {
			e.turn(b.Context())
		}
		plan += planAt.Sub(begun)
		apply += applyAt.Sub(planAt)
		compare += time.Since(applyAt)
	}
	each := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / float64(n) }
	b.ReportMetric(each(plan), "plan-ms")
	b.ReportMetric(each(apply), "apply-ms")
	b.ReportMetric(each(compare), "compare-ms")
	b.ReportMetric(float64(e.applier.Operations()-ops)/float64(n), "operations")
}
