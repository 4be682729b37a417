package apply

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// logging has the applier write to a buffer from now on.
func (r *rig) logging() *bytes.Buffer {
	var b bytes.Buffer
	r.a.log = slog.New(slog.NewTextHandler(&b, nil))
	return &b
}

func (r *rig) reconcile() {
	r.t.Helper()
	r.must(r.a.Reconcile(r.t.Context(), r.now))
}

func (r *rig) service() ipvs.Service {
	r.t.Helper()
	ss, err := r.table.Services(r.t.Context())
	r.must(err)
	for _, s := range ss {
		if s.ServiceKey == svcKey() {
			return s.Service
		}
	}
	r.t.Fatal("the service is not there")
	return ipvs.Service{}
}

func (r *rig) dest(n int) ipvs.Destination {
	r.t.Helper()
	ds, err := r.table.Destinations(r.t.Context(), svcKey())
	r.must(err)
	for _, d := range ds {
		if d.DestinationKey == destKey(n) {
			return d.Destination
		}
	}
	return ipvs.Destination{DestinationKey: destKey(n)}
}

// driftCase is one thing that somebody else can do.
type driftCase struct {
	change func(*rig) error
	ops    []string
	log    []string // in the one line that says what was found
}

func driftCases() map[string]driftCase {
	set := func(n int, f func(*ipvs.Destination)) func(*rig) error {
		return func(r *rig) error {
			d := r.dest(n)
			f(&d)
			return r.table.SetDest(r.t.Context(), r.service(), d)
		}
	}
	return map[string]driftCase{
		"service removed": {func(r *rig) error { return r.table.DelService(r.t.Context(), r.service()) },
			[]string{"add service", "add 1:1", "add 2:1"}, []string{`what="service missing"`, `found="not there"`, `wanted="rr with 2 destinations"`}},
		"table flushed": {func(r *rig) error { return r.table.Flush(r.t.Context()) },
			[]string{"add service", "add 1:1", "add 2:1"}, []string{`what="service missing"`}},
		"scheduler": {func(r *rig) error { s := r.service(); s.Scheduler = "sh"; return r.table.SetService(r.t.Context(), s) },
			[]string{"set service"}, []string{`what="service changed"`, `found="scheduler sh"`, `wanted="scheduler rr"`}},
		"persistence": {func(r *rig) error {
			s := r.service()
			s.Flags, s.Timeout = ipvs.Persistent, 300
			return r.table.SetService(r.t.Context(), s)
		}, []string{"set service"}, []string{`found="persistence 300 s, flags 0x1"`, `wanted="persistence 0 s, flags 0x0"`}},
		"destination removed": {func(r *rig) error { return r.table.DelDest(r.t.Context(), r.service(), r.dest(1)) },
			[]string{"add 1:1"}, []string{"destination=10.0.0.1:80", `what="destination missing"`, `wanted="weight 1, NAT"`}},
		"destination added": {func(r *rig) error {
			r.must(r.table.AddDest(r.t.Context(), r.service(), ipvs.Destination{DestinationKey: destKey(7), Weight: 3}))
			return r.table.SetCounters(svcKey(), destKey(7), ipvs.Counters{Active: 1})
		}, []string{"set 7:0"}, []string{"destination=10.0.0.7:80", `what="destination added"`, `found="weight 3, NAT"`, `wanted="not there"`}},
		"weight down": {set(1, func(d *ipvs.Destination) { d.Weight = 0 }),
			[]string{"set 1:1"}, []string{`what="destination changed"`, `found="weight 0"`, `wanted="weight 1"`}},
		"weight up":  {set(1, func(d *ipvs.Destination) { d.Weight = 9 }), []string{"set 1:1"}, []string{`found="weight 9"`}},
		"method":     {set(1, func(d *ipvs.Destination) { d.Forward = ipvs.DirectRoute }), []string{"set 1:1"}, []string{`found=DR`, `wanted=NAT`}},
		"thresholds": {set(1, func(d *ipvs.Destination) { d.UpperThreshold, d.LowerThreshold = 9, 3 }), []string{"set 1:1"}, []string{`found="uthreshold 9, lthreshold 3"`}},
	}
}

// TestD18WhatSomebodyChangesIsPutBack, whatever it is, by the fewest operations, and
// told once.
func TestD18WhatSomebodyChangesIsPutBack(t *testing.T) {
	for name, tt := range driftCases() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, trust, vsOf(1, 2))
			log := r.logging()
			r.must(tt.change(r))
			r.ops()
			r.reconcile()
			r.wantOps(tt.ops...)
			wantLine(t, log.String(), append(tt.log, `msg="Somebody changed the IPVS table, putting it back"`, "service=192.0.2.1:80/tcp")...)
			if n := r.a.Repaired(); n != 1 || r.a.Drifted() {
				t.Errorf("%d repaired, still drifted %t", n, r.a.Drifted())
			}
			log.Reset()
			r.reconcile()
			r.wantOps()
			if log.Len() > 0 {
				t.Errorf("a second time: %s", log)
			}
		})
	}
}

// TestDriftReportOnlyTells: once, again when it changes, and when it is over.
func TestDriftReportOnlyTells(t *testing.T) {
	for name, tt := range driftCases() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, trust, vsOf(1, 2))
			r.a.ReportOnly(true)
			log := r.logging()
			r.must(tt.change(r))
			r.ops()
			r.reconcile()
			r.now = r.now.Add(time.Minute)
			r.reconcile()
			r.wantOps()
			wantLine(t, log.String(), append(tt.log, "leaving it as it is (drift report)")...)
			if v := r.a.View(r.only().Config.Key)[0].Drift; len(v) != 1 || !v[0].Since.Equal(epoch) {
				t.Errorf("the view shows %+v", v)
			}
			// Mended by whoever did it, or by us when that is asked for.
			r.a.ReportOnly(false)
			r.reconcile()
			r.wantOps(tt.ops...)
			if v := r.a.View(r.only().Config.Key)[0].Drift; len(v) != 0 || r.a.Repaired() != 1 {
				t.Errorf("the view shows %+v, repaired %d", v, r.a.Repaired())
			}
		})
	}
}

func TestDriftReportTellsOfChangesAndTheEnd(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2))
	r.a.ReportOnly(true)
	log := r.logging()
	for _, w := range []uint32{5, 6, 1} {
		d := r.dest(1)
		d.Weight = w
		r.must(r.table.SetDest(t.Context(), r.service(), d))
		r.reconcile()
	}
	for _, want := range []string{`found="weight 5"`, `found="weight 6"`, "as wanted again"} {
		wantLine(t, log.String(), want)
	}
	if len(r.a.View(r.only().Config.Key)[0].Drift) != 0 {
		t.Error("the view still shows drift")
	}
}

// TestD18HandsOff: with drift report an operator's weight 0 outlives the verdicts of
// other servers and a reload, until the server's own verdict moves it.
func TestD18HandsOff(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2, 3))
	r.a.ReportOnly(true)
	d := r.dest(1)
	d.Weight = 0
	r.must(r.table.SetDest(t.Context(), r.service(), d))
	r.reconcile()
	r.verdict(1, down)
	r.flush()
	r.verdict(1, up)
	r.flush()
	r.reload(trust, vsOf(1, 2, 3))
	r.reconcile()
	r.want(" 1:0 2:1 3:1")
	r.verdict(0, down)
	r.flush()
	r.verdict(0, up)
	r.flush()
	r.want(" 1:1 2:1 3:1")
}

// TestReconcileNeedsAWholeRead: what could not be read is left as it is believed to
// be; other services are mended.
func TestReconcileNeedsAWholeRead(t *testing.T) {
	for name, fail := range map[string]ipvs.ServiceKey{"services": {}, "destinations": svcKey()} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, trust, vsOf(1, 2))
			r.connections(1, 2, 0)
			r.reload(trust, vsOf(2))
			r.connections(1, 0, 0)
			d := r.dest(2)
			d.Weight = 9
			r.must(r.table.SetDest(t.Context(), r.service(), d))
			r.ops()
			r.table.FailReads(func(k ipvs.ServiceKey) error {
				if k == fail {
					return ipvs.ErrInterrupted
				}
				return nil
			})
			if err := r.a.Reconcile(t.Context(), r.now); !errors.Is(err, ipvs.ErrInterrupted) {
				t.Errorf("error %v", err)
			}
			r.wantOps()
			r.table.FailReads(nil)
			r.reconcile()
			r.wantOps("set 2:1", "del 1")
		})
	}
}

// TestReconcileLooksAtDrainsByTheSameRead: and does not believe a counter that was
// read while somebody had given the destination its weight back.
func TestReconcileLooksAtDrainsByTheSameRead(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2))
	r.connections(1, 1, 0)
	r.reload(trust, vsOf(2))
	r.connections(1, 0, 0)
	d := r.dest(1)
	d.Weight = 4
	r.must(r.table.SetDest(t.Context(), r.service(), d))
	log := r.logging()
	r.ops()
	reads := 0
	r.table.FailReads(func(ipvs.ServiceKey) error { reads++; return nil })
	r.reconcile()
	r.wantOps("set 1:0")
	wantLine(t, log.String(), "destination=10.0.0.1:80", `found="weight 4"`, `wanted="weight 0"`)
	if reads != 2 {
		t.Errorf("%d reads, want the services and one service's destinations", reads)
	}
	r.reconcile()
	r.wantOps("del 1")
	if reads != 4 {
		t.Errorf("%d reads in all, want 4", reads)
	}
}

// TestR06RefusalLeadsToRepair: a refusal that says that the table is not as believed
// is told and mended at once.
func TestR06RefusalLeadsToRepair(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2, 3))
	log := r.logging()
	r.must(r.table.DelService(t.Context(), r.service()))
	r.verdict(0, down)
	r.flush()
	r.want(" 2:1 3:1")
	wantLine(t, log.String(), "putting it back", `what="service missing"`)
	log.Reset()
	r.must(r.table.DelDest(t.Context(), r.service(), r.dest(2)))
	r.verdict(1, down)
	r.flush()
	r.want(" 3:1")
	if strings.Contains(log.String(), "Somebody changed") {
		t.Errorf("what was wanted anyway is told as drift: %s", log)
	}
}

// unsure is a table that does what it is asked for once and does not say so.
type unsure struct {
	*ipvstest.Table
	once bool
}

func (u *unsure) SetDest(ctx context.Context, s ipvs.Service, d ipvs.Destination) error {
	err := u.Table.SetDest(ctx, s, d)
	if err == nil && !u.once {
		u.once = true
		return ipvs.ErrUnknownResult
	}
	return err
}

// TestOwnWriteIsNoDrift, even if nobody knew that it was done.
func TestOwnWriteIsNoDrift(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2))
	log := r.logging()
	r.connections(1, 1, 0)
	r.a.Connect(&unsure{Table: r.table})
	r.reload(trust, vsOf(2))
	r.want(" 1:0 2:1")
	if strings.Contains(log.String(), "Somebody changed") {
		t.Errorf("our own write is told as drift: %s", log)
	}
}

// TestDriftStaysUntilItIsPutBack: a repair that the kernel refuses is not counted.
func TestDriftStaysUntilItIsPutBack(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2))
	r.must(r.table.DelDest(t.Context(), r.service(), r.dest(1)))
	r.table.Fail(func(ipvs.Op) error { return syscall.ENOMEM })
	log := r.logging()
	for range 3 {
		if err := r.a.Reconcile(t.Context(), r.now); !errors.Is(err, syscall.ENOMEM) {
			t.Errorf("error %v", err)
		}
	}
	if v := r.a.View(r.only().Config.Key)[0].Drift; len(v) != 1 || r.a.Repaired() != 0 {
		t.Errorf("view %+v, repaired %d", v, r.a.Repaired())
	}
	wantLine(t, log.String(), "Somebody changed")
	r.table.Fail(nil)
	r.flush()
	if r.a.Repaired() != 1 || r.a.Drifted() {
		t.Errorf("repaired %d, drifted %t", r.a.Repaired(), r.a.Drifted())
	}
}

// TestU04AdoptsWhatIsThere: somebody else's destinations in a service that we want
// drain, and both is said.
func TestU04AdoptsWhatIsThere(t *testing.T) {
	r := &rig{t: t, table: ipvstest.New(), now: epoch}
	s := ipvs.Service{ServiceKey: svcKey(), Scheduler: "wlc"}
	r.must(r.table.AddService(t.Context(), s))
	for _, n := range []int{1, 7} {
		r.must(r.table.AddDest(t.Context(), s, ipvs.Destination{DestinationKey: destKey(n), Weight: 1}))
	}
	r.connections(7, 2, 0)
	r.table.ResetLog()
	cfg := vsOf(1, 2)
	r.a = New(r.table, []*VirtualServer{Translate(cfg)}, nil)
	log := r.logging()
	r.must(r.a.Adopt(t.Context()))
	wantLine(t, log.String(), "Taking over a service", `found="scheduler wlc"`, `wanted="scheduler rr"`, "not_configured=10.0.0.7:80")
	f, _ := framework.New(cfg, trust, noFiles)
	r.vss = map[config.VSKey]*framework.VirtualServer{cfg.Key: f}
	r.must(r.a.Init(f))
	r.flush()
	r.wantOps("set service", "add 2:1", "set 7:0")
	r.connections(7, 0, 0)
	r.reconcile()
	r.want(" 1:1 2:1")
	// And a service that appears while we run, when a reload wants it.
	other := vsOf(1)
	other.Key.Addr = mustAddrPort("192.0.2.9:80")
	other.Entries[0].Addr = other.Key.Addr
	os := ipvs.Service{ServiceKey: Translate(other).Services[0].ServiceKey, Scheduler: "rr"}
	r.must(r.table.AddService(t.Context(), os))
	r.must(r.table.AddDest(t.Context(), os, ipvs.Destination{DestinationKey: destKey(8), Weight: 1}))
	log.Reset()
	r.reload(trust, cfg, other)
	wantLine(t, log.String(), "Taking over a service", "service=192.0.2.9:80/tcp", "not_configured=10.0.0.8:80")
}

// TestLeavingServiceTakesNobodyAlong: a destination that somebody added to a service
// that is about to be deleted drains first.
func TestLeavingServiceTakesNobodyAlong(t *testing.T) {
	r := newRig(t, trust, vsOf(1))
	r.connections(1, 1, 0)
	r.reload(trust)
	r.must(r.table.AddDest(t.Context(), r.service(), ipvs.Destination{DestinationKey: destKey(7), Weight: 1}))
	r.connections(7, 1, 0)
	r.connections(1, 0, 0)
	r.tick(time.Minute)
	r.want(" 7:0")
	r.connections(7, 0, 0)
	r.tick(time.Minute)
	if ss, _ := r.table.Services(t.Context()); len(ss) != 0 {
		t.Errorf("the table holds %v", ss)
	}
}

// TestDrainingDestinationThatSomebodyRemoved is no drift, and not waited for.
func TestDrainingDestinationThatSomebodyRemoved(t *testing.T) {
	for _, report := range []bool{false, true} {
		for name, look := range map[string]func(*rig){"tick": func(r *rig) { r.tick(time.Minute) }, "reconcile": (*rig).reconcile} {
			t.Run(fmt.Sprint(name, report), func(t *testing.T) {
				r := newRig(t, trust, vsOf(1, 2))
				r.connections(1, 1, 0)
				r.reload(trust, vsOf(2))
				r.a.ReportOnly(report)
				r.must(r.table.DelDest(t.Context(), r.service(), r.dest(1)))
				r.ops()
				look(r)
				r.wantOps()
				if n, _ := r.a.Draining(); n != 0 || r.a.Drifted() {
					t.Errorf("%d draining, drifted %t", n, r.a.Drifted())
				}
			})
		}
	}
}

// wantLine checks that exactly one line of a log holds all of the texts.
func wantLine(t *testing.T, log string, texts ...string) {
	t.Helper()
	n := 0
lines:
	for line := range strings.Lines(log) {
		for _, s := range texts {
			if !strings.Contains(line, s) {
				continue lines
			}
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d lines hold %q, want one:\n%s", n, texts, log)
	}
}
