package apply

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

const (
	up   = framework.Up
	down = framework.Down
)

func TestStartInstallsTrustedServers(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2))
	r.wantOps("add service", "add 1:1", "add 2:1")
	vs, rs := r.only().Config.Key, rsKey(1)
	if !r.a.Present(vs, rs) || r.a.Present(vs, rsKey(9)) || r.a.SorryInstalled(vs) {
		t.Errorf("present %t, stranger %t, sorry %t", r.a.Present(vs, rs), r.a.Present(vs, rsKey(9)), r.a.SorryInstalled(vs))
	}
}

func TestAlphaIsNotInstalledAtAll(t *testing.T) {
	r := newRig(t, distrust, vsOf(1, 2))
	r.wantOps("add service")
	r.verdict(0, up)
	r.flush()
	r.wantOps("add 1:1")
}

func TestAlphaWithInhibitIsInstalledAtZero(t *testing.T) {
	vs := vsOf(1)
	vs.RealServers[0].Inhibit = true
	r := newRig(t, distrust, vs)
	r.wantOps("add service", "add 1:0")
	r.verdict(0, up)
	r.flush()
	r.wantOps("set 1:1")
}

func TestStartBelowQuorumInstallsTheSorryServer(t *testing.T) {
	r := newRig(t, distrust, withSorry(vsOf(1), 9, false))
	r.wantOps("add service", "add 9:1")
	if !r.a.SorryInstalled(r.only().Config.Key) {
		t.Error("SorryInstalled is false")
	}
}

func TestFailureRemovesAtOnce(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2))
	r.connections(1, 5, 0)
	r.ops()
	r.verdict(0, down)
	r.flush()
	r.wantOps("del 1")
}

func TestFailureWithInhibitKeepsConnections(t *testing.T) {
	vs := vsOf(1, 2)
	vs.RealServers[0].Inhibit = true
	r := newRig(t, trust, vs)
	r.ops()
	r.verdict(0, down)
	r.flush()
	r.wantOps("set 1:0")
	r.tick(time.Hour)
	r.want(" 1:0 2:1")
	r.verdict(0, up)
	r.flush()
	r.want(" 1:1 2:1")
}

// TestSorryServerGoesInFirst and comes out last; what it replaces drains.
func TestSorryServerGoesInFirst(t *testing.T) {
	cfg := withSorry(vsOf(1, 2, 3), 9, false)
	cfg.Quorum = 2
	r := newRig(t, trust, cfg)
	r.connections(3, 4, 0)
	r.ops()
	r.verdict(0, down)
	r.verdict(1, down)
	r.flush()
	// 1 and 2 failed and go at once; 3 is healthy, so it drains.
	r.wantOps("add 9:1", "set 3:0", "del 1", "del 2")
	r.tick(time.Minute)
	r.want(" 3:0 9:1")
	r.connections(9, 2, 1)
	r.verdict(0, up)
	r.flush()
	r.wantOps("add 1:1", "set 3:1", "set 9:0")
	r.want(" 1:1 3:1 9:0")
	r.connections(9, 0, 0)
	r.tick(time.Minute)
	r.want(" 1:1 3:1")
}

// TestVerdictsWhileTheSorryServerServes are recorded and applied when the quorum
// is back, not one by one.
func TestVerdictsWhileTheSorryServerServes(t *testing.T) {
	cfg := withSorry(vsOf(1, 2, 3), 9, false)
	cfg.Quorum, cfg.Hysteresis = 2, 1
	r := newRig(t, distrust, cfg)
	r.ops()
	r.verdict(0, up)
	r.verdict(1, up)
	r.flush()
	r.wantOps()
	r.verdict(0, down)
	r.verdict(2, up)
	r.flush()
	r.wantOps()
	r.verdict(0, up)
	r.flush()
	r.wantOps("add 1:1", "add 2:1", "add 3:1", "set 9:0", "del 9")
}

func TestSorryServerInhibit(t *testing.T) {
	r := newRig(t, trust, withSorry(vsOf(1), 9, true))
	r.wantOps("add service", "add 1:1", "add 9:0")
	r.verdict(0, down)
	r.flush()
	r.wantOps("set 9:1", "del 1")
	r.verdict(0, up)
	r.flush()
	r.wantOps("add 1:1", "set 9:0")
	r.tick(time.Hour)
	r.want(" 1:1 9:0")
}

// TestQ02SorryServerIsARealServer: one destination, two roles; there is never
// none.
func TestQ02SorryServerIsARealServer(t *testing.T) {
	r := newRig(t, trust, withSorry(vsOf(1, 2), 1, false))
	r.ops()
	r.verdict(0, down)
	r.verdict(1, down)
	r.flush()
	r.wantOps("del 2")
	r.want(" 1:1")
	r.verdict(0, up)
	r.flush()
	r.wantOps()
	r.want(" 1:1")
	r.verdict(1, up)
	r.flush()
	r.want(" 1:1 2:1")
}

// TestD01RemovedByReloadDrains: weight 0, then read, then park, then delete at the
// tick after the last connection ended.
func TestD01RemovedByReloadDrains(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2))
	r.connections(1, 3, 1)
	r.ops()
	r.reload(trust, vsOf(2))
	r.wantOps("set 1:0")
	r.tick(time.Minute)
	r.wantOps()
	if n, _ := r.a.Draining(); n != 1 {
		t.Errorf("%d draining, want 1", n)
	}
	r.connections(1, 0, 1)
	r.tick(time.Minute)
	r.want(" 1:0 2:1")
	r.connections(1, 0, 0)
	r.tick(time.Minute)
	r.wantOps("del 1")
}

// TestD05PersistenceTemplatesAreNotWaitedFor: with expire_quiescent_template, which
// the daemon sets, a template does not lead its client to weight 0, so that what it
// counts keeps no drain alive; connections do.
func TestD05PersistenceTemplatesAreNotWaitedFor(t *testing.T) {
	persistent := func(active uint32) ipvs.Counters { return ipvs.Counters{Active: active, Persistent: 7} }
	r := newRig(t, trust, vsOf(1, 2))
	r.must(r.table.SetCounters(svcKey(), destKey(1), persistent(1)))
	r.ops()
	r.reload(trust, vsOf(2))
	r.wantOps("set 1:0")
	r.tick(time.Minute)
	r.wantOps()
	r.must(r.table.SetCounters(svcKey(), destKey(1), persistent(0)))
	r.tick(time.Minute)
	r.wantOps("del 1")
}

func TestIdleServerRemovedByReloadGoesAtOnce(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2))
	r.ops()
	r.reload(trust, vsOf(2))
	r.wantOps("set 1:0", "del 1")
}

// TestD03UDPIsDeletedAtOnce, and so is SCTP.
func TestD03UDPIsDeletedAtOnce(t *testing.T) {
	for _, p := range []config.Protocol{config.UDP, config.SCTP} {
		of := func(servers ...int) *config.VirtualServer {
			vs := vsOf(servers...)
			vs.Protocol, vs.Key.Protocol = p, p
			return vs
		}
		r := newRig(t, trust, of(1, 2))
		r.ops()
		r.reload(trust, of(2))
		r.wantOps("del 1")
		r.reload(trust)
		r.wantOps("del 2", "del service")
	}
}

// TestD07BackInMidDrain: the weight comes back in place and the ticker lets go.
func TestD07BackInMidDrain(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2))
	r.connections(1, 3, 0)
	r.reload(trust, vsOf(2))
	r.ops()
	r.reload(trust, vsOf(1, 2))
	r.wantOps("set 1:1")
	r.connections(1, 0, 0)
	r.tick(time.Hour)
	r.want(" 1:1 2:1")
}

// TestD07BackInMidDrainUnchecked: a server that comes back unchecked goes on
// draining until its first good check, which restores its weight in place; if that
// check fails it goes like any failed server.
func TestD07BackInMidDrainUnchecked(t *testing.T) {
	for name, tt := range map[string]struct {
		verdict framework.Verdict
		want    string
	}{"good": {up, " 1:1 2:1"}, "bad": {down, " 2:1"}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, trust, vsOf(1, 2))
			r.connections(1, 3, 0)
			r.reload(trust, vsOf(2))
			r.ops()
			r.reload(distrust, vsOf(1, 2))
			r.wantOps()
			r.tick(time.Hour)
			r.want(" 1:0 2:1")
			r.verdict(0, tt.verdict)
			if tt.verdict == down { // as the engine does for a server that was never up
				r.must(r.a.SetAlive(r.only().Config.Key, rsKey(1), false))
			}
			r.flush()
			r.want(tt.want)
		})
	}
}

// TestD06WholeServiceRemoved: every destination drains, the service goes last.
func TestD06WholeServiceRemoved(t *testing.T) {
	r := newRig(t, trust, withSorry(vsOf(1, 2), 9, true))
	r.connections(1, 1, 0)
	r.ops()
	r.reload(trust)
	r.wantOps("set 1:0", "set 2:0", "del 2", "del 9")
	if v := r.a.Leaving(); len(v) != 1 || v[0].Destinations[0].Drain.Why != whyVSRemoved.String() {
		t.Errorf("leaving %+v", v)
	}
	r.connections(1, 0, 0)
	r.tick(time.Minute)
	r.wantOps("del 1", "del service")
	// And back: a new service, not a leftover.
	r.reload(trust, vsOf(1))
	r.wantOps("add service", "add 1:1")
}

func TestLeavingServiceComesBack(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2))
	r.connections(1, 1, 0)
	r.connections(2, 1, 0)
	r.reload(trust)
	r.ops()
	r.reload(trust, vsOf(1))
	r.wantOps("set 1:1")
	r.want(" 1:1 2:0")
	r.connections(2, 0, 0)
	r.tick(time.Minute)
	r.want(" 1:1")
}

// TestD10DrainTimeout is for each service; the other waits for ever.
func TestD10DrainTimeout(t *testing.T) {
	bounded := vsOf(1, 2)
	bounded.DrainTimeout = 90 * time.Second
	for _, rs := range bounded.RealServers {
		rs.DrainTimeout = bounded.DrainTimeout
	}
	r := newRig(t, trust, bounded)
	r.connections(1, 1, 0)
	left := vsOf(2)
	left.DrainTimeout = 90 * time.Second
	r.reload(trust, left)
	if _, next := r.a.Draining(); next != epoch.Add(90*time.Second) {
		t.Errorf("next deadline %s", next)
	}
	r.tick(89 * time.Second)
	r.want(" 1:0 2:1")
	r.tick(time.Second)
	r.want(" 2:1")

	r = newRig(t, trust, vsOf(1, 2))
	r.connections(1, 1, 0)
	r.reload(trust, vsOf(2))
	r.tick(1000 * time.Hour)
	r.want(" 1:0 2:1")
}

// TestD12CountersAreWide: 65536 connections are not none, and the sum of two full
// counters is not either.
func TestD12CountersAreWide(t *testing.T) {
	for _, c := range []ipvs.Counters{{Active: 65536, Inactive: 131072}, {Active: 1 << 31, Inactive: 1 << 31}} {
		if idle(c) {
			t.Errorf("%+v counts as idle", c)
		}
	}
	r := newRig(t, trust, vsOf(1, 2))
	r.connections(1, 65536, 131072)
	r.reload(trust, vsOf(2))
	r.tick(time.Minute)
	r.want(" 1:0 2:1")
}

// TestD13InterruptedReadDeletesNothing: the tick is skipped.
func TestD13InterruptedReadDeletesNothing(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2))
	r.connections(1, 1, 0)
	r.reload(trust, vsOf(2))
	r.connections(1, 0, 0)
	r.ops()
	r.table.FailReads(func(ipvs.ServiceKey) error { return ipvs.ErrInterrupted })
	if err := r.a.Tick(t.Context(), r.now); !errors.Is(err, ipvs.ErrInterrupted) {
		t.Errorf("tick: %v", err)
	}
	r.wantOps()
	r.table.FailReads(nil)
	r.tick(time.Minute)
	r.wantOps("del 1")
}

// TestD19DrainOutranksFailure: a server in maintenance fails because it is being
// shut down.
func TestD19DrainOutranksFailure(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2))
	key := r.only().Config.Key
	r.must(r.a.SetWeight(key, rsKey(1), 0))
	r.flush()
	r.connections(1, 4, 0)
	r.ops()
	r.verdict(0, down)
	r.flush()
	r.wantOps()
	r.tick(time.Hour)
	r.want(" 1:0 2:1")
}

// TestP08WeightZeroFromTheFirstMoment: installed at 0, still checked, removed when
// it fails.
func TestP08WeightZeroFromTheFirstMoment(t *testing.T) {
	vs := vsOf(1, 2)
	vs.RealServers[0].Weight = 0
	r := newRig(t, trust, vs)
	r.wantOps("add service", "add 1:0", "add 2:1")
	if r.only().Sum() != 1 {
		t.Errorf("quorum sum %d, want 1", r.only().Sum())
	}
	r.verdict(0, down)
	r.flush()
	r.wantOps("del 1")
}

func TestSameReloadWritesNothing(t *testing.T) {
	cfg := func() *config.VirtualServer { return withSorry(vsOf(1, 2, 3), 9, true) }
	r := newRig(t, trust, cfg())
	r.verdict(0, down)
	r.flush()
	r.ops()
	r.reload(distrust, cfg())
	r.wantOps()
}

// TestQ01SorryServerActiveOverAReload: no kernel change at all.
func TestQ01SorryServerActiveOverAReload(t *testing.T) {
	cfg := func() *config.VirtualServer { return withSorry(vsOf(1, 2), 9, false) }
	r := newRig(t, trust, cfg())
	r.verdict(0, down)
	r.verdict(1, down)
	r.flush()
	r.ops()
	r.reload(trust, cfg())
	r.wantOps()
	r.want(" 9:1")
}

// TestR01AttributesAreSetInPlace: one operation for each changed attribute.
func TestR01AttributesAreSetInPlace(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(*config.VirtualServer)
		want   string
	}{
		"scheduler":   {func(v *config.VirtualServer) { v.Scheduler = "wlc" }, "set service"},
		"persistence": {func(v *config.VirtualServer) { v.Persistence = 300 }, "set service"},
		"flags":       {func(v *config.VirtualServer) { v.Flags.Flag1 = true }, "set service"},
		"weight up":   {func(v *config.VirtualServer) { v.RealServers[0].Weight = 7 }, "set 1:7"},
		"weight down": {func(v *config.VirtualServer) { v.RealServers[0].Weight = 0 }, "set 1:0"},
		"threshold":   {func(v *config.VirtualServer) { v.RealServers[0].UpperThreshold = 9 }, "set 1:1"},
		"method":      {func(v *config.VirtualServer) { v.RealServers[0].Forward.Method = config.DR }, "set 1:1"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, trust, vsOf(1, 2))
			r.ops()
			cfg := vsOf(1, 2)
			tt.change(cfg)
			r.reload(trust, cfg)
			r.wantOps(tt.want)
			r.reload(trust, cfg)
			r.wantOps()
		})
	}
}

// TestRaiseBeforeCut: replacing every server never empties the pool.
func TestRaiseBeforeCut(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2))
	r.ops()
	r.reload(trust, vsOf(3, 4))
	r.wantOps("add 3:1", "add 4:1", "set 1:0", "set 2:0", "del 1", "del 2")
}

// TestFailedRaiseHoldsTheCuts: if the kernel refuses the newcomers, those that
// serve stay, and all is mended when it takes them.
func TestFailedRaiseHoldsTheCuts(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2))
	refuse := func(o ipvs.Op) error {
		if o.Kind == ipvs.OpAddDest {
			return ipvs.NewError(o, syscall.ENOMEM)
		}
		return nil
	}
	r.table.Fail(refuse)
	var vss []*VirtualServer
	cfg := vsOf(3)
	vss = append(vss, Translate(cfg))
	f, _ := framework.Next(r.only(), cfg, trust, noFiles)
	r.a.Replace(vss)
	r.vss[cfg.Key] = f
	r.must(r.a.Init(f))
	err := r.a.Flush(t.Context(), r.now)
	if err == nil || !strings.Contains(err.Error(), "held back") || !errors.Is(err, syscall.ENOMEM) {
		t.Errorf("flush: %v", err)
	}
	r.want(" 1:1 2:1")
	r.table.Fail(nil)
	r.flush()
	r.want(" 3:1")
}

// TestR06SomebodyElseChangedTheTable: what the next change runs into is read back
// and repaired in the same Flush.
func TestR06SomebodyElseChangedTheTable(t *testing.T) {
	ctx := context.Background()
	t.Run("service deleted", func(t *testing.T) {
		r := newRig(t, trust, vsOf(1, 2, 3))
		r.must(r.table.DelService(ctx, ipvs.Service{ServiceKey: svcKey()}))
		r.verdict(0, down)
		r.flush()
		r.want(" 2:1 3:1")
	})
	t.Run("destination added", func(t *testing.T) {
		r := newRig(t, distrust, vsOf(1))
		r.must(r.table.AddDest(ctx, ipvs.Service{ServiceKey: svcKey()}, ipvs.Destination{DestinationKey: destKey(1), Weight: 50}))
		r.verdict(0, up)
		r.flush()
		r.want(" 1:1")
	})
	t.Run("destination deleted", func(t *testing.T) {
		r := newRig(t, trust, vsOf(1, 2))
		r.must(r.table.DelDest(ctx, ipvs.Service{ServiceKey: svcKey()}, ipvs.Destination{DestinationKey: destKey(1)}))
		r.verdict(0, down)
		r.flush()
		r.want(" 2:1")
	})
	t.Run("draining destination deleted", func(t *testing.T) {
		r := newRig(t, trust, vsOf(1, 2))
		r.connections(1, 1, 0)
		r.reload(trust, vsOf(2))
		r.must(r.table.DelDest(ctx, ipvs.Service{ServiceKey: svcKey()}, ipvs.Destination{DestinationKey: destKey(1)}))
		r.tick(time.Minute)
		if n, _ := r.a.Draining(); n != 0 {
			t.Errorf("%d still on the drain list", n)
		}
	})
	t.Run("all flushed during a drain", func(t *testing.T) {
		r := newRig(t, trust, vsOf(1, 2))
		r.connections(1, 1, 0)
		r.reload(trust, vsOf(2))
		r.must(r.table.Flush(ctx))
		r.tick(time.Minute)
		r.want(" 2:1")
	})
}

// TestLostAnswerIsReadBack: an operation whose result is unknown is neither
// repeated blindly nor forgotten.
func TestLostAnswerIsReadBack(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2))
	r.ops()
	lost := true
	r.table.Fail(func(ipvs.Op) error {
		if lost {
			lost = false
			return ipvs.ErrUnknownResult
		}
		return nil
	})
	r.verdict(0, down)
	r.flush()
	r.want(" 2:1")
}

// TestU04ForeignServicesAreLeftAlone at start, on reload and at the end.
func TestU04ForeignServicesAreLeftAlone(t *testing.T) {
	ctx := context.Background()
	foreign := ipvs.Service{ServiceKey: ipvs.ServiceKey{Family: ipvs.INET, Protocol: ipvs.TCP, Addr: rsKey(77).Addr(), Port: 80}, Scheduler: "rr"}
	r := newRig(t, trust, vsOf(1))
	r.must(r.table.AddService(ctx, foreign))
	r.must(r.table.AddDest(ctx, foreign, ipvs.Destination{DestinationKey: destKey(1), Weight: 1}))
	r.start(trust, vsOf(1, 2))
	r.reload(trust, vsOf(2))
	r.must(r.a.Remove(ctx))
	ss, err := r.table.Services(ctx)
	r.must(err)
	if len(ss) != 1 || ss[0].ServiceKey != foreign.ServiceKey {
		t.Errorf("left in the table: %+v", ss)
	}
}

// TestU03RestartWritesNothing: a new process over the same table and the same
// configuration.
func TestU03RestartWritesNothing(t *testing.T) {
	r := newRig(t, trust, withSorry(vsOf(1, 2), 9, true))
	r.ops()
	r.start(trust, withSorry(vsOf(1, 2), 9, true))
	r.wantOps()
}

// TestD08RestartInMidDrain: what is unwanted goes on draining, what is wanted has
// its weight back.
func TestD08RestartInMidDrain(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2, 3))
	r.connections(1, 2, 0)
	r.connections(3, 2, 0)
	r.reload(trust, vsOf(2))
	r.want(" 1:0 2:1 3:0")
	r.ops()
	r.start(trust, vsOf(1, 2))
	r.wantOps("set 1:1")
	r.want(" 1:1 2:1 3:0")
	v := r.a.View(r.only().Config.Key)
	var drains []string
	for _, d := range v[0].Destinations {
		if d.Drain != nil {
			drains = append(drains, d.String()+" "+d.Drain.Why+" "+d.Drain.WaitsFor)
		}
	}
	if len(drains) != 1 || !strings.Contains(drains[0], "10.0.0.3:80 "+whyUnknown.String()+" 2 active") {
		t.Errorf("drains %q", drains)
	}
	r.connections(3, 0, 0)
	r.tick(time.Minute)
	r.want(" 1:1 2:1")
}

// TestP16ClaimsOfTwoVirtualServers: what one no longer wants stays as long as the
// other does.
func TestP16ClaimsOfTwoVirtualServers(t *testing.T) {
	group := func(ordinal int, servers ...int) *config.VirtualServer {
		vs := vsOf(servers...)
		vs.Key = config.VSKey{Protocol: config.TCP, Group: "g", Ordinal: ordinal}
		return vs
	}
	r := newRig(t, trust, group(0, 1, 2), group(1, 2, 3))
	r.want(" 1:1 2:1 3:1")
	r.ops()
	r.reload(trust, group(0, 1, 2))
	r.wantOps("set 3:0", "del 3")
	r.want(" 1:1 2:1")
}

func TestGroupWritesEveryEntry(t *testing.T) {
	vs := vsOf(1)
	vs.Entries = nil
	for _, p := range []string{"192.0.2.1:80", "192.0.2.1:81", "[2001:db8::1]:80"} {
		e := config.Entry{Addr: mustAddrPort(p)}
		e.Family = config.FamilyOf(e.Addr.Addr())
		vs.Entries = append(vs.Entries, e)
	}
	vs.Entries = append(vs.Entries, config.Entry{FWMark: 5, Family: config.IPv4})
	vs.RealServers[0].Forward = config.Forwarding{Method: config.TUN}
	r := newRig(t, trust, vs)
	ports := map[string]uint16{}
	ss, err := r.table.Services(t.Context())
	r.must(err)
	for _, s := range ss {
		ds, err := r.table.Destinations(t.Context(), s.ServiceKey)
		r.must(err)
		if len(ds) != 1 {
			t.Fatalf("%s has %d destinations", s.ServiceKey, len(ds))
		}
		ports[s.ServiceKey.String()] = ds[0].Port
	}
	want := map[string]uint16{"192.0.2.1:80/tcp": 80, "192.0.2.1:81/tcp": 81, "[2001:db8::1]:80/tcp": 80, "fwmark 5/inet": 0}
	for k, p := range want {
		if got, ok := ports[k]; !ok || got != p {
			t.Errorf("%s: destination port %d (there: %t), want %d: a tunnel keeps the packet's port", k, got, ok, p)
		}
	}
	if len(ports) != len(want) {
		t.Errorf("services %v", ports)
	}
}

func TestUnknownNames(t *testing.T) {
	r := newRig(t, trust, vsOf(1))
	key := r.only().Config.Key
	for name, err := range map[string]error{
		"vs alive":  r.a.SetAlive(config.VSKey{}, rsKey(1), true),
		"rs alive":  r.a.SetAlive(key, rsKey(8), true),
		"rs weight": r.a.SetWeight(key, rsKey(8), 1),
		"quorum":    r.a.Quorum(config.VSKey{}, framework.QuorumLost),
		"init":      r.a.Init(&framework.VirtualServer{Config: &config.VirtualServer{}}),
	} {
		if !errors.Is(err, ErrUnknown) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNoTable(t *testing.T) {
	a := New(nil, []*VirtualServer{Translate(vsOf(1))}, nil)
	for _, err := range []error{a.Flush(t.Context(), epoch), a.Tick(t.Context(), epoch), a.Adopt(t.Context()), a.Remove(t.Context())} {
		if !errors.Is(err, ErrNoTable) {
			t.Errorf("%v", err)
		}
	}
	r := newRig(t, trust, vsOf(1))
	r.table.Fail(func(o ipvs.Op) error { return ipvs.NewError(o, syscall.EPERM) })
	r.verdict(0, down)
	if err := r.a.Flush(t.Context(), epoch); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("%v", err)
	}
	if !r.a.Pending() {
		t.Error("a refused change is forgotten")
	}
	r.table.Fail(nil)
	r.flush()
	r.want("")
}
