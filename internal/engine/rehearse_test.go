package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/edge"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// varied is a drawn configuration with everything besides that decides what a reload
// writes.
func varied(rt *rapid.T) *config.Config {
	cfg := drawn(rt)
	one := func(n int, label string) bool { return rapid.IntRange(0, n).Draw(rt, label) == 0 }
	g := &cfg.Global
	g.DepartureHold = rapid.SampledFrom([]time.Duration{0, time.Minute}).Draw(rt, "departure_hold")
	g.TrustNew, g.ReconcileInterval = one(3, "trust_new"), time.Minute
	if one(3, "report") {
		g.Drift = config.DriftReport
	}
	g.VIPDelay = time.Millisecond
	g.Passive.On = one(6, "passive")
	cfg.TrackFiles = []*config.TrackFile{{Name: "f", Path: rapid.SampledFrom([]string{"/f", "/g"}).Draw(rt, "path")}}
	for i, vc := range cfg.VirtualServers {
		vc.Quorum = rapid.Uint32Range(1, 3).Draw(rt, "quorum")
		vc.Hysteresis = rapid.Uint32Range(0, vc.Quorum-1).Draw(rt, "hysteresis")
		vc.DrainTimeout = rapid.SampledFrom([]time.Duration{0, 0, 20 * time.Second}).Draw(rt, "drain_timeout")
		if i%2 == 1 {
			// It is the same in each file: of other addresses nothing is compared here.
			vc.VIP = config.VIP{Device: "vip0", Follow: config.VIPQuorum}
		}
		if one(3, "min_alive") {
			vc.MinAlive = config.Floor{Servers: rapid.Uint32Range(1, 2).Draw(rt, "floor")}
		}
		if one(3, "damping") {
			vc.FlapDamping = config.Damping{Count: 2, Within: time.Minute}
		}
		if one(3, "on_failure") {
			vc.OnFailure = config.OnFailureDrain
		}
		if i == 0 && one(1, "udp") {
			// It is another virtual server of the same address.
			vc.Protocol, vc.Key.Protocol = config.UDP, config.UDP
			vc.UDPDrainTimeout = rapid.SampledFrom([]time.Duration{0, 10 * time.Second}).Draw(rt, "udp_drain_timeout")
		}
		if one(4, "shared") {
			// Two virtual servers claim one service.
			vc.Entries = append(slices.Clone(vc.Entries), cfg.VirtualServers[0].Entries[0])
		}
		for _, rc := range vc.RealServers {
			rc.Inhibit, rc.Checkers[0].Alpha = one(3, "inhibit"), one(4, "alpha")
			if one(4, "slow_start") {
				rc.SlowStart = time.Minute
			}
			if one(5, "track_file") {
				rc.TrackFiles = []config.TrackFileUse{{Name: "f", Weight: rapid.Int64Range(0, 1).Draw(rt, "file weight")}}
			}
			if one(5, "file_check") {
				rc.Checkers = append(rc.Checkers, &config.Checker{Kind: config.FileCheck, File: &config.TrackFileUse{Name: "f"}})
			}
			if one(5, "method") {
				rc.Forward.Method = config.DR
			}
			if one(5, "thresholds") {
				rc.UpperThreshold, rc.LowerThreshold = 10, 5
			}
			if one(6, "own drain_timeout") {
				rc.DrainTimeout = time.Second
			}
		}
	}
	return cfg
}

// happening is something that goes before a reload.
type happening struct {
	What          string
	VS, RS, N     int
	Up            bool
	configuration *config.Config
}

// happenings draws a life: each element of What "reload" has a configuration.
func happenings(rt *rapid.T) []happening {
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) happening {
		h := happening{
			What: rapid.SampledFrom([]string{"verdict", "verdict", "verdict", "drain", "weight", "undrain", "file", "connections", "connections", "drift", "time", "passive", "reload"}).Draw(rt, "what"),
			VS:   rapid.IntRange(0, 3).Draw(rt, "vs"), RS: rapid.IntRange(0, 3).Draw(rt, "rs"),
			N: rapid.IntRange(0, 60).Draw(rt, "n"), Up: rapid.Bool().Draw(rt, "up"),
		}
		if h.What == "reload" {
			h.configuration = varied(rt)
		}
		return h
	}), 1, 25).Draw(rt, "life")
}

// life is an engine that runs over a table in memory, without checks of its own.
type life struct {
	*testing.T
	e     *Engine
	table *ipvstest.Table
	files fakeFiles
	wrong []string
}

// play runs happenings and, at each reload, compares the plan with what was written.
func play(t *testing.T, first *config.Config, hs []happening, last *config.Config) (wrong []string) {
	synctest.Test(t, func(t *testing.T) {
		l := &life{T: t, table: ipvstest.New(), files: fakeFiles{}}
		l.e = New(Options{
			Dial: func(context.Context) (apply.IPVS, error) { return l.table, nil },
			Read: func(context.Context) (Reader, error) { return l.table, nil },
			Probe: func(*config.Config, *config.Checker) (checker.Probe, error) {
				return farmProbe{}, nil
			},
			Scheduler: &counting{}, Files: l.files,
			Edge: func(w edge.Wishes) { l.e.Edge(edge.Report{Turn: w.Turn}) },
		})
		if err := l.e.Start(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.e.Run(ctx) }()
		for _, h := range append(hs, happening{What: "reload", configuration: last, N: 5}) {
			l.happen(h)
			synctest.Wait()
		}
		wrong = l.wrong
		cancel(errPart)
		<-done
	})
	return wrong
}

func (l *life) do(f func(e *Engine)) {
	if err := l.e.call(l.Context(), f); err != nil {
		l.Fatal(err)
	}
}

func (l *life) happen(h happening) {
	vsKey, rsKey := many(4, 4).VirtualServers[h.VS].Key, many(4, 4).VirtualServers[h.VS].RealServers[h.RS].Key
	switch h.What {
	case "verdict":
		v := map[bool]framework.Verdict{true: framework.Up, false: framework.Down}[h.Up]
		l.do(func(e *Engine) {
			if vs := e.byKey[vsKey]; vs != nil && h.RS < len(vs.tasks) {
				verdictEvent{task: vs.tasks[h.RS][0], verdict: v, changed: true}.handle(e)
			}
		})
	case "drain", "undrain", "weight":
		w := int64(h.N % 3)
		c := Command{Verb: Verb(h.What), VS: vsKey.String(), RS: rsKey.String(), Who: "alice", Force: true, Weight: &w, Reason: "because"}
		if h.What == "undrain" {
			c.Weight = nil
		}
		_, _ = l.e.Operate(l.Context(), c) // it may be unknown
	case "passive":
		if _, err := l.e.SetPassive(l.Context(), h.Up, "alice", ""); err != nil {
			l.Fatal(err)
		}
	case "file":
		// A watcher may not have seen it yet, and a reload reads it.
		if l.files["f"] = int64(h.N % 2); h.Up {
			l.e.FileValue("f", l.files["f"])
		}
	case "connections", "drift":
		l.meddle(h)
	case "time":
		time.Sleep(time.Duration(h.N) * time.Second)
	case "reload":
		l.compare(keeping(l.e.running.Load(), h.configuration, h.N))
	}
}

// meddle does something to the table beside the engine.
func (l *life) meddle(h happening) {
	services, err := l.table.Services(l.Context())
	if err != nil || len(services) == 0 {
		return
	}
	s := services[h.VS%len(services)].Service
	dests, err := l.table.Destinations(l.Context(), s.ServiceKey)
	if err != nil {
		l.Fatal(err)
	}
	stranger := ipvs.Destination{DestinationKey: ipvs.DestinationKey{Addr: netip.MustParseAddr("10.9.9.9"), Port: 80}, Weight: 1}
	switch {
	case h.What == "drift" && h.N%5 == 0:
		_ = l.table.DelService(l.Context(), s)
	case h.What == "drift" && h.N%5 == 1:
		_ = l.table.AddDest(l.Context(), s, stranger)
	case h.What == "drift" && h.N%5 == 2:
		s.Scheduler = "sh"
		_ = l.table.SetService(l.Context(), s)
	case len(dests) == 0:
	case h.What == "connections":
		_ = l.table.SetCounters(s.ServiceKey, dests[h.RS%len(dests)].DestinationKey, ipvs.Counters{Active: uint32(h.N % 4), Inactive: uint32(h.N % 3)})
	case h.N%5 == 3:
		_ = l.table.DelDest(l.Context(), s, dests[h.RS%len(dests)].Destination)
	default:
		d := dests[h.RS%len(dests)].Destination
		d.Weight = uint32(h.N % 4)
		_ = l.table.SetDest(l.Context(), s, d)
	}
}

// keeping is a configuration with some virtual servers as those that run, of a file that
// keeps them.
func keeping(runs, cfg *config.Config, keep int) *config.Config {
	mix := *again(cfg)
	for i, vc := range mix.VirtualServers {
		for _, was := range again(runs).VirtualServers {
			if was.Key == vc.Key && keep>>i&1 == 1 {
				mix.VirtualServers[i] = was
			}
		}
	}
	return &mix
}

// compare plans a reload, does it, and looks at what both did.
func (l *life) compare(cfg *config.Config) {
	l.settle()
	// The kernel gives them back to a destination that is added again; until then nobody
	// can see them, and a plan that adds one and takes it away again not either.
	l.table.EndKept()
	before, table := l.dump(), contents(l)
	l.table.ResetLog()
	planned, err := l.e.Plan(l.Context(), cfg, l.files.Watch)
	if err != nil {
		l.wrong = append(l.wrong, err.Error())
		return
	}
	synctest.Wait()
	if n := len(l.table.Attempts()); n > 0 {
		l.wrong = append(l.wrong, fmt.Sprintf("the plan made %d operations on the real table", n))
	}
	if diff := cmp.Diff(before, l.dump()); diff != "" {
		l.wrong = append(l.wrong, "the plan changed the engine (-before +after):\n"+diff)
	}
	if diff := cmp.Diff(table, contents(l)); diff != "" {
		l.wrong = append(l.wrong, "the plan changed the table (-before +after):\n"+diff)
	}
	done, err := l.e.ReloadTo(l.Context(), cfg)
	if err != nil {
		l.wrong = append(l.wrong, err.Error())
		return
	}
	at := len(l.table.Log())
	l.settle()
	log := l.table.Log()
	if diff := cmp.Diff(byService(log), byService(planned.ops)); diff != "" {
		l.wrong = append(l.wrong, "(-written +planned):\n"+diff)
	}
	if len(planned.Operations) != len(log) || int(done.Operations) != at {
		l.wrong = append(l.wrong, fmt.Sprintf("%d operations planned, %d said, %d written", len(planned.Operations), done.Operations, len(log)))
	}
}

// settle waits for what waits for an address; time moves everything else in seconds.
func (l *life) settle() {
	time.Sleep(2 * time.Millisecond)
	synctest.Wait()
}

func byService(ops []ipvs.Op) map[string][]string {
	by := map[string][]string{}
	for _, op := range ops {
		k := op.Service.ServiceKey.String()
		line := fmt.Sprint(op.Kind, " ", op.Service.Canonical())
		if op.Kind > ipvs.OpDelService {
			line = fmt.Sprint(op.Kind, " ", op.Destination.Canonical())
		}
		by[k] = append(by[k], line)
	}
	return by
}

func contents(l *life) string {
	var b strings.Builder
	services, err := l.table.Services(l.Context())
	if err != nil {
		l.Fatal(err)
	}
	for _, s := range services {
		ds, _ := l.table.Destinations(l.Context(), s.ServiceKey)
		fmt.Fprintln(&b, s, ds)
	}
	return b.String()
}

// dump is all that an engine holds, as text, between two turns.
func (l *life) dump() (text string) {
	l.do(func(e *Engine) {
		e.written = append(e.written, func() {
			d := dumper{seen: map[uintptr]bool{}}
			d.value("engine", reflect.ValueOf(e).Elem(), 0)
			slices.Sort(d.lines)
			text = strings.Join(d.lines, "\n")
		})
	})
	synctest.Wait()
	return text
}

// dumper follows everything but what is of the configuration, which does not change,
// and of other goroutines.
type dumper struct {
	seen  map[uintptr]bool
	lines []string
}

var undumped = []string{"config.", "slog.", "context.", "sync.", "chan ", "func(", "time.Location", "engine.Options", "inbox", "ipvstest.", "unique.", "engine.published", "engine.runTally", "engine.measures", "engine.situation"}

func (d *dumper) value(at string, v reflect.Value, depth int) {
	name := v.Type().String()
	for _, u := range undumped {
		if strings.Contains(name, u) && v.Kind() != reflect.Map && v.Kind() != reflect.Slice {
			if v.Kind() == reflect.Pointer {
				d.lines = append(d.lines, fmt.Sprintf("%s = %x", at, v.Pointer()))
			}
			return
		}
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() || d.seen[v.Pointer()] {
			d.lines = append(d.lines, fmt.Sprintf("%s = %x", at, v.Pointer()))
			return
		}
		d.seen[v.Pointer()] = true
		d.lines = append(d.lines, fmt.Sprintf("%s = %x", at, v.Pointer()))
		d.value(at, v.Elem(), depth+1)
	case reflect.Interface:
		if !v.IsNil() {
			d.value(at, v.Elem(), depth+1)
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			d.lines = append(d.lines, fmt.Sprintf("%s = %v", at, v))
			return
		}
		for i := range v.NumField() {
			if f := v.Type().Field(i).Name; f != "written" && f != "after" && f != "reader" {
				d.value(at+"."+f, v.Field(i), depth+1)
			}
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			d.value(fmt.Sprintf("%s[%d]", at, i), v.Index(i), depth+1)
		}
	case reflect.Map:
		d.lines = append(d.lines, fmt.Sprintf("%s has %d", at, v.Len()))
		keys := v.MapKeys()
		slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		for _, k := range keys {
			d.value(fmt.Sprintf("%s[%v]", at, k), v.MapIndex(k), depth+1)
		}
	case reflect.Func, reflect.Chan:
	default:
		d.lines = append(d.lines, fmt.Sprintf("%s = %v", at, v))
	}
}

// TestPlanIsWhatTheReloadDoes: whatever went before, and whatever the new file says, the
// operations that are planned are those that the reload then makes, and a plan leaves
// no trace.
func TestPlanIsWhatTheReloadDoes(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		if wrong := play(t, varied(rt), happenings(rt), varied(rt)); len(wrong) > 0 {
			rt.Fatal(strings.Join(wrong, "\n"))
		}
	})
}

// BenchmarkFreeze is what a plan costs the loop.
func BenchmarkFreeze(b *testing.B) {
	for _, shape := range [][2]int{{1, 10_000}, {1000, 10}, {10_000, 1}} {
		b.Run(fmt.Sprintf("services=%d/servers=%d", shape[0], shape[1]), func(b *testing.B) {
			e := loaded(b, many(shape[0], shape[1]))
			b.ReportAllocs()
			for b.Loop() {
				e.freeze()
			}
		})
	}
}

// BenchmarkPlan is a whole plan, on whoever asks, with one server in ten changed.
func BenchmarkPlan(b *testing.B) {
	for _, shape := range [][2]int{{1, 10_000}, {1000, 10}} {
		b.Run(fmt.Sprintf("services=%d/servers=%d", shape[0], shape[1]), func(b *testing.B) {
			e := loaded(b, many(shape[0], shape[1]))
			next := many(shape[0], shape[1])
			rnd := rand.New(rand.NewPCG(1, 2))
			for _, vc := range next.VirtualServers {
				for _, rc := range vc.RealServers {
					if rnd.IntN(10) == 0 {
						rc.Weight = 2
					}
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				f := e.freeze()
				p := planned(e.running.Load(), next)
				s, err := newStage(b.Context(), e.conn.(Reader), keysOf(f, p))
				if err != nil {
					b.Fatal(err)
				}
				r := rehearsal{engine: f.engine(s, fakeFiles{}.Watch), plan: p, stage: s}
				out, err := r.run(b.Context())
				if err != nil || len(out.Operations) == 0 {
					b.Fatal(err, "nothing planned")
				}
			}
		})
	}
}

// TestRehearsalKnowsEveryField: whoever adds a field to what a rehearsal copies has to
// decide whether it is copied, and then to add it here.
func TestRehearsalKnowsEveryField(t *testing.T) {
	for _, c := range []struct {
		of     reflect.Type
		fields string
	}{
		// Not copied: what is of other goroutines, of publishing and saving, of the stop, of
		// the schedule, and what is worked out from the rest.
		{reflect.TypeFor[Engine](), "opts log inbox config generation vss byKey uses applier values nextID runs hasty rules touched allTouched headTouched tableTouched moved owners moves notices decided local conn stuck flushed globalsDue globalsAt globalsErr syncing syncs original orders ordersDue holds passive edge after written portions memory operator marks marked saving stopping rehearsal started reload applied kernel backoff retryAt tickAt connected reconcile tally measures published running logAll labels reader trials syncCounters"},
		{reflect.TypeFor[server](), "VirtualServer name since rs tasks shown marked place plain moveAt move suspended hold floorSince withheld vip told"},
		{reflect.TypeFor[edging](), "on heard turn report pending anew via nftables dirty waiting departing ended ghosts withdrawn reported"},
		{reflect.TypeFor[vipState](), "addresses wish before gone lost stays"},
		{reflect.TypeFor[ghost](), "vipState device guard mark mapped services"},
		{reflect.TypeFor[passivity](), "on sources command"},
		{reflect.TypeFor[hold](), "since until over servers file"},
		{reflect.TypeFor[reconciling](), "due behind after at failed timeouts"},
		{reflect.TypeFor[framework.VirtualServer](), "Config Servers tally quorumUp now moments failures"},
		{reflect.TypeFor[framework.RealServer](), "Config Checkers more failedAs standing Trusted passing failing cold"},
		{field(reflect.TypeFor[framework.RealServer](), "more").Elem(), "files dynamic order flaps rises place"},
		{reflect.TypeFor[apply.Applier](), "conn log vss byKey owners away mirror parked due more portion limits fin staying moved follows reportOnly drift repaired remembered operations observer"},
		{field(reflect.TypeFor[apply.Applier](), "vss").Elem().Elem(), "vs facts ready withheld order"},
		{field(reflect.TypeFor[apply.Applier](), "mirror").Elem().Elem(), "service slots index live usable timeout atOnce serving"},
		{field(reflect.TypeFor[apply.Applier](), "parked"), "drains services next known"},
		{field(reflect.TypeFor[apply.Applier](), "due"), "urgent bulk held"},
	} {
		var has []string
		for i := range c.of.NumField() {
			has = append(has, c.of.Field(i).Name)
		}
		if diff := cmp.Diff(strings.Fields(c.fields), has); diff != "" {
			t.Errorf("%s has other fields than its copy was made for (-known +has):\n%s", c.of, diff)
		}
	}
}

func field(of reflect.Type, name string) reflect.Type {
	f, _ := of.FieldByName(name)
	return f.Type
}
