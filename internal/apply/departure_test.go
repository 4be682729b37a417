package apply

import (
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

func failDrain(vs *config.VirtualServer) *config.VirtualServer {
	vs.OnFailure = config.OnFailureDrain
	return vs
}

// TestOnFailureDrain: a failed server departs like one that was removed, and is back
// in place when it returns meanwhile.
func TestOnFailureDrain(t *testing.T) {
	r := newRig(t, trust, failDrain(vsOf(1, 2)))
	r.connections(1, 5, 0)
	r.ops()
	r.verdict(0, down)
	r.flush()
	r.wantOps("set 1:0")
	if v := r.a.View(r.only().Config.Key)[0].Destinations[1]; v.Drain == nil || v.Drain.Why != whyFailed.String() {
		t.Errorf("the view shows %+v", v)
	}
	r.tick(time.Minute)
	r.verdict(0, up)
	r.flush()
	r.wantOps("set 1:1")
	r.verdict(0, down)
	r.flush()
	r.connections(1, 0, 0)
	r.ops()
	r.tick(time.Minute)
	r.wantOps("del 1")
	r.verdict(0, up)
	r.flush()
	r.wantOps("add 1:1")
	// Without connections there is nothing to wait for.
	r.verdict(0, down)
	r.flush()
	r.wantOps("set 1:0", "del 1")
}

// TestOnFailureDrainIsBounded by drain_timeout, and inhibit_on_failure goes before.
func TestOnFailureDrainIsBounded(t *testing.T) {
	cfg := failDrain(vsOf(1, 2))
	cfg.RealServers[0].DrainTimeout = 30 * time.Second
	cfg.RealServers[1].Inhibit = true
	r := newRig(t, trust, cfg)
	r.connections(1, 1, 0)
	r.connections(2, 1, 0)
	r.verdict(0, down)
	r.verdict(1, down)
	r.flush()
	r.want(" 1:0 2:0")
	r.tick(30 * time.Second)
	r.want(" 2:0")
	if n, _ := r.a.Draining(); n != 0 {
		t.Errorf("%d draining", n)
	}
}

// TestOnFailureTakesTheReloadedPolicy: to drop the word removes what it kept.
func TestOnFailureTakesTheReloadedPolicy(t *testing.T) {
	r := newRig(t, trust, failDrain(vsOf(1, 2)))
	r.connections(1, 1, 0)
	r.verdict(0, down)
	r.flush()
	r.want(" 1:0 2:1")
	r.reload(trust, vsOf(1, 2))
	r.want(" 2:1")
}

func datagramVS(p config.Protocol, limit time.Duration, servers ...int) *config.VirtualServer {
	vs := vsOf(servers...)
	vs.Protocol, vs.Key.Protocol = p, p
	vs.UDPDrainTimeout = limit
	return vs
}

// TestD03UDPDrains: a planned departure waits for what has no "established", that is
// for inactive entries too, but not longer than its own limit; a failed server goes
// at once, whatever on_failure says.
func TestD03UDPDrains(t *testing.T) {
	for _, p := range []config.Protocol{config.UDP, config.SCTP} {
		key := svcKey()
		key.Protocol = protocol(p)
		inactive := func(r *rig, n int, c uint32) {
			r.must(r.table.SetCounters(key, destKey(n), ipvs.Counters{Inactive: c}))
		}
		r := newRig(t, trust, datagramVS(p, 10*time.Second, 1, 2, 3))
		inactive(r, 1, 900)
		inactive(r, 2, 900)
		r.ops()
		r.reload(trust, datagramVS(p, 10*time.Second, 2, 3))
		r.wantOps("set 1:0")
		if _, next := r.a.Draining(); !next.Equal(epoch.Add(10 * time.Second)) {
			t.Errorf("next deadline %s", next)
		}
		r.tick(9 * time.Second)
		r.wantOps()
		r.tick(time.Second)
		r.wantOps("del 1")
		f := r.only()
		f.Config.OnFailure = config.OnFailureDrain
		r.reload(trust, f.Config)
		r.verdict(0, down)
		r.flush()
		r.wantOps("del 2")
		// The whole service leaves by the same limit.
		inactive(r, 3, 1)
		r.reload(trust)
		r.wantOps("set 3:0")
		r.tick(10 * time.Second)
		r.wantOps("del 3", "del service")
	}
}

// TestD10EachServerHasItsTime: its own, its virtual server's, and its own still when
// its block has gone from the file.
func TestD10EachServerHasItsTime(t *testing.T) {
	cfg := func(servers ...int) *config.VirtualServer {
		vs := vsOf(servers...)
		vs.DrainTimeout = time.Minute
		for _, rs := range vs.RealServers {
			rs.DrainTimeout = time.Minute
			if rs.Key == rsKey(1) {
				rs.DrainTimeout = time.Hour
			}
			if rs.Key == rsKey(3) {
				rs.DrainTimeout = 0
			}
		}
		return vs
	}
	r := newRig(t, trust, cfg(1, 2, 3, 4))
	for n := range 4 {
		r.connections(n+1, 1, 0)
	}
	r.reload(trust, cfg(4))
	r.want(" 1:0 2:0 3:0 4:1")
	r.reload(trust, cfg(4)) // the second after which nothing knows of their blocks
	r.tick(time.Minute)
	r.want(" 1:0 3:0 4:1")
	r.tick(59 * time.Minute)
	r.want(" 3:0 4:1")
	r.tick(1000 * time.Hour)
	r.want(" 3:0 4:1")
	// A virtual server that goes keeps them too.
	r.reload(trust, cfg(1, 4))
	r.connections(1, 1, 0)
	r.reload(trust)
	r.tick(time.Minute)
	r.want(" 1:0 3:0")
	r.tick(time.Hour)
	r.want(" 3:0")
}

func (r *rig) reads(n int, c ipvs.Counters, scheduled uint64) {
	r.t.Helper()
	r.must(r.table.SetCounters(svcKey(), destKey(n), c))
	r.must(r.table.SetDestinationStats(svcKey(), destKey(n), ipvs.Stats{Connections: scheduled}))
}

// TestD02NewConnectionsAtWeightZero are reported once, with the sysctl that matters,
// and only if they are new.
func TestD02NewConnectionsAtWeightZero(t *testing.T) {
	type reading struct {
		active, inactive uint32
		scheduled        uint64
	}
	many := func(r reading, n int) []reading {
		var rs []reading
		for range n {
			rs = append(rs, r)
		}
		return rs
	}
	for name, tt := range map[string]struct {
		persistent bool
		readings   []reading // the first is the one at weight 0; a minute between two
		want       string
	}{
		"ends as it should":             {false, []reading{{3, 2, 100}, {1, 3, 100}, {0, 2, 100}, {0, 0, 100}}, ""},
		"one was still being opened":    {false, []reading{{3, 2, 100}, {4, 1, 100}, {4, 1, 100}}, ""},
		"the kernel's count moves":      {false, []reading{{3, 2, 100}, {2, 2, 101}, {2, 2, 102}}, "net.ipv4.vs.conn_reuse_mode"},
		"more than there were":          {false, []reading{{3, 2, 100}, {3, 3, 100}}, "net.ipv4.vs.conn_reuse_mode"},
		"active again":                  {false, []reading{{0, 5, 100}, {0, 5, 100}, {0, 5, 100}, {2, 3, 100}}, "net.ipv4.vs.conn_reuse_mode"},
		"inactive for ever":             {false, many(reading{0, 14048, 100}, 5), "net.ipv4.vs.conn_reuse_mode"},
		"active for ever":               {false, many(reading{1, 0, 100}, 50), ""},
		"statistics zeroed":             {false, []reading{{3, 2, 100}, {3, 2, 0}, {3, 2, 0}}, ""},
		"zeroed, and then new ones":     {false, []reading{{3, 2, 100}, {3, 2, 0}, {3, 2, 1}}, "net.ipv4.vs.conn_reuse_mode"},
		"clients return by persistence": {true, []reading{{3, 2, 100}, {3, 2, 104}}, "net.ipv4.vs.expire_quiescent_template"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := func(servers ...int) *config.VirtualServer {
				vs := vsOf(servers...)
				if tt.persistent {
					vs.Persistence = 300
				}
				return vs
			}
			r := newRig(t, trust, cfg(1, 2))
			r.a.Timeouts(ipvs.Timeouts{TCP: 900, TCPFin: 120, UDP: 300})
			log := r.logging()
			for i, x := range tt.readings {
				r.reads(1, ipvs.Counters{Active: x.active, Inactive: x.inactive}, x.scheduled)
				if i == 0 {
					r.reload(trust, cfg(2))
				} else if i%2 == 0 {
					r.tick(time.Minute)
				} else {
					r.now = r.now.Add(time.Minute)
					r.reconcile()
				}
			}
			note := ""
			for _, d := range r.a.View(r.only().Config.Key)[0].Destinations {
				if d.Drain != nil {
					note = d.Drain.Note
				}
			}
			if tt.want == "" {
				if note != "" || strings.Contains(log.String(), "gets new") {
					t.Errorf("a false alarm: %s\n%s", note, log)
				}
				return
			}
			wantLine(t, log.String(), "A draining destination gets new connections", "sysctl="+tt.want, "destination=10.0.0.1:80")
			if !strings.Contains(note, tt.want) {
				t.Errorf("the view says %q", note)
			}
		})
	}
}

// TestEndOfADrainIsEstimated once only inactive connections are left, by the longest
// of the kernel's timeouts.
func TestEndOfADrainIsEstimated(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2))
	endsBy := func() time.Time {
		for _, d := range r.a.View(r.only().Config.Key)[0].Destinations {
			if d.Drain != nil {
				return d.Drain.EndsBy
			}
		}
		t.Fatal("nothing drains")
		return time.Time{}
	}
	r.reads(1, ipvs.Counters{Active: 2, Inactive: 9}, 100)
	r.reload(trust, vsOf(2))
	r.reads(1, ipvs.Counters{Inactive: 9}, 100)
	r.tick(time.Minute)
	if e := endsBy(); !e.IsZero() {
		t.Errorf("without knowing the kernel's timeouts: %s", e)
	}
	r.a.Timeouts(ipvs.Timeouts{TCPFin: 300})
	r.tick(time.Minute)
	if e := endsBy(); !e.Equal(epoch.Add(6 * time.Minute)) {
		t.Errorf("estimate %s, want 5 minutes from when the last active one was gone", e)
	}
	r.a.Timeouts(ipvs.Timeouts{TCPFin: 5})
	if e := endsBy(); !e.Equal(epoch.Add(3 * time.Minute)) {
		t.Errorf("estimate %s: TIME_WAIT takes two minutes whatever is set", e)
	}
	r.reads(1, ipvs.Counters{Active: 1, Inactive: 8}, 101)
	r.tick(time.Minute)
	if e := endsBy(); !e.IsZero() {
		t.Errorf("with an active one: %s", e)
	}
}

// TestRestartDoesNotTrustADrainedFailure: a server that on_failure drain left at
// weight 0 is told apart from one in use.
func TestRestartDoesNotTrustADrainedFailure(t *testing.T) {
	r := newRig(t, trust, failDrain(vsOf(1, 2)))
	r.connections(1, 1, 0)
	r.verdict(0, down)
	r.flush()
	f := r.only()
	exists, usable, weight := r.a.Adopted(r.a.Lookup(f.Config.Key), rsKey(1))
	if !exists || !usable || weight != 0 {
		t.Errorf("exists %t, usable %t, weight %d", exists, usable, weight)
	}
	r.start(func(rc *config.RealServer) bool { return rc.Key != rsKey(1) }, f.Config)
	r.want(" 1:0 2:1")
	r.verdict(0, framework.Up)
	r.flush()
	r.want(" 1:1 2:1")
}

// TestConnectionsOfARaisedWeightAreNoAlarm: somebody gave a draining destination its
// weight back, and it was put to 0 again.
func TestConnectionsOfARaisedWeightAreNoAlarm(t *testing.T) {
	r := newRig(t, trust, vsOf(1, 2))
	r.reads(1, ipvs.Counters{Active: 1}, 100)
	r.reload(trust, vsOf(2))
	log := r.logging()
	d := r.dest(1)
	d.Weight = 5
	r.must(r.table.SetDest(t.Context(), r.service(), d))
	r.reads(1, ipvs.Counters{Active: 9}, 108)
	r.tick(time.Minute)
	r.tick(time.Minute)
	r.tick(time.Minute)
	r.want(" 1:0 2:1")
	wantLine(t, log.String(), "Somebody changed")
	if strings.Contains(log.String(), "gets new connections") {
		t.Errorf("a false alarm: %s", log)
	}
}
