package apply

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

func mustAddrPort(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// drawVS draws a virtual server of up to four of six servers, so that two
// configurations in a row often share some.
func drawVS(t *rapid.T, n int) *config.VirtualServer {
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}), 80)
	proto := rapid.SampledFrom([]config.Protocol{config.TCP, config.TCP, config.TCP, config.UDP}).Draw(t, "protocol")
	vs := &config.VirtualServer{
		Key:        config.VSKey{Protocol: proto, Addr: addr},
		Entries:    []config.Entry{{Addr: addr, Family: config.IPv4}},
		Protocol:   proto,
		Scheduler:  rapid.SampledFrom([]string{"rr", "wlc"}).Draw(t, "scheduler"),
		Quorum:     rapid.Uint32Range(1, 4).Draw(t, "quorum"),
		Hysteresis: rapid.Uint32Range(0, 2).Draw(t, "hysteresis"),
		OnFailure:  rapid.SampledFrom([]config.OnFailure{config.OnFailureRemove, config.OnFailureDrain}).Draw(t, "on_failure"),

		UDPDrainTimeout: rapid.SampledFrom([]time.Duration{0, 10 * time.Second}).Draw(t, "udp_drain_timeout"),
	}
	if rapid.Bool().Draw(t, "two entries") {
		vs.Entries = append(vs.Entries, config.Entry{Addr: netip.AddrPortFrom(addr.Addr(), 81), Family: config.IPv4})
	}
	for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(1, 6), 1, 4, rapid.ID[int]).Draw(t, "servers") {
		vs.RealServers = append(vs.RealServers, &config.RealServer{
			Key: rsKey(i), Weight: rapid.Int64Range(0, 3).Draw(t, "weight"),
			Inhibit:    rapid.Bool().Draw(t, "inhibit"),
			Forward:    config.Forwarding{Method: config.NAT},
			Checkers:   []*config.Checker{{Kind: config.TCPCheck, Conn: config.Connection{Target: rsKey(i).AddrPort}}},
			TrackFiles: []config.TrackFileUse{{Name: "m", Weight: 1}},
		})
	}
	if rapid.Bool().Draw(t, "sorry") {
		// 1..6 may be a real server, 9 never is.
		s := rapid.SampledFrom([]int{1, 2, 9}).Draw(t, "sorry server")
		withSorry(vs, s, rapid.Bool().Draw(t, "sorry inhibit"))
	}
	return vs
}

func drawConfig(t *rapid.T) []*config.VirtualServer {
	var cfgs []*config.VirtualServer
	for _, n := range rapid.SliceOfNDistinct(rapid.IntRange(1, 3), 0, 3, rapid.ID[int]).Draw(t, "virtual servers") {
		cfgs = append(cfgs, drawVS(t, n))
	}
	return cfgs
}

// model watches every state of the table on the way.
type model struct {
	t       *rapid.T
	table   *ipvstest.Table
	a       *Applier
	vss     map[config.VSKey]*framework.VirtualServer
	now     time.Time
	timeout bool
	// portion is how much bulk work a flush does.
	portion int
	// before is what each service held when the sequence of operations began.
	before map[ipvs.ServiceKey]bool
	// conns are the live connections that the model gave to destinations.
	foreign ipvs.ServiceKey
}

func hasUsable(ds []ipvs.DestinationInfo) bool {
	for _, d := range ds {
		if d.Weight > 0 {
			return true
		}
	}
	return false
}

// watch is called after every operation that the table accepted.
func (m *model) watch(op ipvs.Op, v ipvstest.View) {
	k := op.Service.ServiceKey
	if k == m.foreign {
		m.t.Fatalf("foreign service touched: %s", op)
	}
	want, _ := m.a.target(k, nil, true)
	if m.before[k] && want != nil && want.usable() && !hasUsable(v.Destinations(k)) {
		m.t.Fatalf("after %s the pool is empty on the way between two states that are not", op)
	}
}

// begin remembers where a sequence of operations starts, and forbids the deletion
// of a destination that has connections unless it failed or time is up.
func (m *model) begin() {
	m.before = map[ipvs.ServiceKey]bool{}
	counters := map[parkedKey]ipvs.Counters{}
	ss, _ := m.table.Services(m.t.Context())
	for _, s := range ss {
		ds, _ := m.table.Destinations(m.t.Context(), s.ServiceKey)
		m.before[s.ServiceKey] = hasUsable(ds)
		for _, d := range ds {
			counters[parkedKey{s.ServiceKey, d.DestinationKey}] = d.Counters
		}
	}
	m.table.OnApply(func(op ipvs.Op, v ipvstest.View) {
		m.watch(op, v)
		if op.Kind != ipvs.OpDelDest && op.Kind != ipvs.OpDelService {
			return
		}
		if m.atOnce(op.Service.ServiceKey) {
			return
		}
		for k, c := range counters {
			if k.service != op.Service.ServiceKey || idle(c) || op.Kind == ipvs.OpDelDest && k.dest != op.Destination.DestinationKey {
				continue
			}
			failed := m.failed(k)
			d := m.a.parked.get(k)
			expired := d != nil && d.limit > 0 && m.now.Sub(d.since) >= d.limit
			if !failed && !expired {
				m.t.Fatalf("%s cuts %d active and %d inactive connections", op, c.Active, c.Inactive)
			}
			delete(counters, k)
		}
	})
}

// atOnce reports whether a service has no drains.
func (m *model) atOnce(k ipvs.ServiceKey) bool {
	if t, _ := m.a.target(k, nil, true); t != nil {
		return t.atOnce
	}
	a := m.a.mirror[k]
	return a != nil && a.atOnce
}

// failed reports whether a real server behind the destination is known to be down,
// and is to be removed for that.
func (m *model) failed(k parkedKey) bool {
	for _, c := range m.a.owners[k.service] {
		f := m.vss[c.vs.Key]
		if c.vs.DrainFailed && !datagram(k.service) {
			continue
		}
		for i, rs := range c.vs.Servers {
			if at(rs.Dest, k.service).DestinationKey == k.dest && !f.Servers[i].Alive() && !f.Servers[i].Unverified() {
				return true
			}
		}
	}
	return false
}

func (m *model) flush() error {
	m.begin()
	return m.rest(m.a.Flush(m.t.Context(), m.now))
}

// rest writes what portions are left, as the engine does.
func (m *model) rest(err error) error {
	for n := 0; m.a.More(); n++ {
		if n == 1000 {
			m.t.Fatal("there is always one more portion")
		}
		m.begin()
		err = errors.Join(err, m.a.Flush(m.t.Context(), m.now))
	}
	return err
}

// settled checks that the table is what is wanted: every wanted destination
// exactly, anything else of ours only draining at weight 0.
func (m *model) settled() {
	keys := map[ipvs.ServiceKey]bool{}
	for _, c := range m.a.vss {
		for _, s := range c.vs.Services {
			keys[s.ServiceKey] = true
		}
	}
	ss, _ := m.table.Services(m.t.Context())
	have := map[ipvs.ServiceKey]ipvs.Service{}
	for _, s := range ss {
		have[s.ServiceKey] = s.Service
	}
	for k := range keys {
		if len(m.a.owners[k]) == 0 {
			ds, _ := m.table.Destinations(m.t.Context(), k)
			for _, d := range ds {
				if d.Weight != 0 || m.atOnce(k) {
					m.t.Fatalf("%s in %s is withheld and does not drain: %+v", d.DestinationKey, k, d)
				}
			}
			if _, ok := have[k]; ok != (len(ds) > 0) {
				m.t.Fatalf("%s is withheld and there: %t, with %d destinations", k, ok, len(ds))
			}
			continue
		}
		want, ready := m.a.target(k, nil, true)
		s, ok := have[k]
		if !ready || !ok || !sameService(s, want.service) {
			m.t.Fatalf("service %s: there %t, %+v, want %+v", k, ok, s, want.service)
		}
		ds, _ := m.table.Destinations(m.t.Context(), k)
		n := 0
		for _, d := range ds {
			w, wanted := want.wants()[d.DestinationKey]
			switch {
			case wanted && !sameDestination(w, d.Destination):
				m.t.Fatalf("%s in %s is %+v, want %+v", d.DestinationKey, k, d.Destination, w)
			case wanted:
				n++
			case d.Weight != 0 || m.atOnce(k):
				m.t.Fatalf("%s in %s is not wanted and does not drain: %+v", d.DestinationKey, k, d)
			case m.a.parked.get(parkedKey{k, d.DestinationKey}) == nil:
				m.t.Fatalf("%s in %s drains but is not on the list", d.DestinationKey, k)
			}
		}
		if n != len(want.wants()) {
			m.t.Fatalf("%s holds %d of %d wanted destinations", k, n, len(want.wants()))
		}
	}
	for k := range have {
		if !keys[k] && k != m.foreign && m.a.mirror[k] == nil {
			m.t.Fatalf("service %s is nobody's", k)
		}
	}
	if m.a.Pending() {
		m.t.Fatal("work is pending after a clean flush")
	}
}

func (m *model) boot(cfgs []*config.VirtualServer, how framework.Trust) {
	var vss []*VirtualServer
	for _, c := range cfgs {
		c.DrainTimeout = 0
		if m.timeout {
			c.DrainTimeout = 3 * time.Minute
		}
		vss = append(vss, Translate(c))
	}
	m.a = New(m.table, vss, nil)
	m.a.portion = m.portion
	if err := m.a.Adopt(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	m.vss = map[config.VSKey]*framework.VirtualServer{}
	m.init(cfgs, how)
}

func (m *model) init(cfgs []*config.VirtualServer, how framework.Trust) {
	next := map[config.VSKey]*framework.VirtualServer{}
	for _, c := range cfgs {
		if was := m.vss[c.Key]; was != nil {
			next[c.Key], _ = framework.Next(was, c, how, noFiles)
		} else {
			next[c.Key], _ = framework.New(c, how, noFiles)
		}
		if err := m.a.Init(next[c.Key]); err != nil {
			m.t.Fatal(err)
		}
	}
	m.vss = next
}

func (m *model) drawServer(t *rapid.T) (*framework.VirtualServer, int) {
	var fs []*framework.VirtualServer
	for _, c := range m.a.vss {
		fs = append(fs, m.vss[c.vs.Key])
	}
	if len(fs) == 0 {
		return nil, 0
	}
	f := rapid.SampledFrom(fs).Draw(t, "vs")
	return f, rapid.IntRange(0, len(f.Servers)-1).Draw(t, "rs")
}

func (m *model) hand(f *framework.VirtualServer, c framework.Change, err error) {
	if err != nil {
		m.t.Fatal(err)
	}
	for _, s := range c.Servers {
		rs := f.Servers[s.Index]
		if s.AliveChanged {
			m.ok(m.a.SetAlive(f.Config.Key, rs.Config.Key, rs.Alive()))
		}
		m.ok(m.a.SetWeight(f.Config.Key, rs.Config.Key, rs.Weight()))
	}
	m.ok(m.a.Quorum(f.Config.Key, c.Quorum))
}

// verdict gives a server a verdict and hands it on as the engine does.
func (m *model) verdict(t *rapid.T, f *framework.VirtualServer, i int) {
	rs := f.Servers[i]
	unverified := rs.Unverified()
	c, err := f.SetVerdict(i, 0, rapid.SampledFrom([]framework.Verdict{framework.Up, framework.Down}).Draw(t, "verdict"))
	if unverified && !rs.Alive() && !rs.Unverified() {
		m.ok(m.a.SetAlive(f.Config.Key, rs.Config.Key, false))
	}
	m.hand(f, c, err)
}

func (m *model) ok(err error) {
	if err != nil {
		m.t.Fatal(err)
	}
}

// TestNoStateOnTheWayIsEmpty is the promise as a property: over random
// configurations, verdicts, quorums, sorry servers, file values, reloads, drains,
// restarts, refusals and meddling, no prefix of any sequence of operations leaves
// a pool without a usable destination when it had one before and has one after;
// nothing with connections is deleted unless it failed; nothing foreign is touched;
// and every sequence ends with the table as wanted.
func TestNoStateOnTheWayIsEmpty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{t: t, table: ipvstest.New(), now: epoch, timeout: rapid.Bool().Draw(t, "timeout"),
			portion: rapid.SampledFrom([]int{portion, 1, 2, 3}).Draw(t, "portion")}
		m.foreign = ipvs.ServiceKey{Family: ipvs.INET, Protocol: ipvs.TCP, Addr: netip.MustParseAddr("203.0.113.1"), Port: 80}
		m.ok(m.table.AddService(t.Context(), ipvs.Service{ServiceKey: m.foreign, Scheduler: "rr"}))
		hows := []framework.Trust{trust, distrust}
		how := func() framework.Trust { return rapid.SampledFrom(hows).Draw(t, "trust") }
		m.boot(drawConfig(t), how())
		m.ok(m.flush())
		m.settled()
		t.Repeat(map[string]func(*rapid.T){
			"verdict": func(t *rapid.T) {
				for range rapid.IntRange(1, 4).Draw(t, "burst") {
					f, i := m.drawServer(t)
					if f == nil {
						return
					}
					m.verdict(t, f, i)
				}
				m.ok(m.flush())
				m.settled()
			},
			"file": func(t *rapid.T) {
				f, i := m.drawServer(t)
				if f == nil {
					return
				}
				c, err := f.SetFile(i, 0, rapid.Int64Range(-4, 2).Draw(t, "value"))
				m.hand(f, c, err)
				m.ok(m.flush())
				m.settled()
			},
			"reload": func(t *rapid.T) {
				cfgs := drawConfig(t)
				var vss []*VirtualServer
				for _, c := range cfgs {
					if m.timeout {
						c.DrainTimeout = 3 * time.Minute
					}
					vss = append(vss, Translate(c))
				}
				m.a.Replace(vss)
				m.init(cfgs, how())
				if rapid.Bool().Draw(t, "a verdict comes amid it") {
					m.begin()
					_ = m.a.Flush(t.Context(), m.now)
					if f, i := m.drawServer(t); f != nil {
						m.verdict(t, f, i)
					}
				}
				m.ok(m.flush())
				m.settled()
			},
			"withhold": func(t *rapid.T) {
				for _, c := range m.a.vss {
					m.ok(m.a.Withhold(rapid.Bool().Draw(t, "withheld"), c.vs.Key))
				}
				m.ok(m.flush())
				m.settled()
			},
			"connections": func(t *rapid.T) {
				ss, _ := m.table.Services(t.Context())
				for _, s := range ss {
					ds, _ := m.table.Destinations(t.Context(), s.ServiceKey)
					for _, d := range ds {
						c := ipvs.Counters{Active: rapid.Uint32Range(0, 2).Draw(t, "active"), Inactive: rapid.Uint32Range(0, 1).Draw(t, "inactive")}
						m.ok(m.table.SetCounters(s.ServiceKey, d.DestinationKey, c))
					}
				}
			},
			"drift": func(t *rapid.T) {
				m.table.OnApply(nil)
				m.meddle(t)
				if rapid.Bool().Draw(t, "a verdict comes before it is seen") {
					if f, i := m.drawServer(t); f != nil {
						m.verdict(t, f, i)
						_ = m.rest(m.a.Flush(t.Context(), m.now))
					}
				}
				m.reconcile(t)
				m.settled()
				m.table.ResetLog()
				m.reconcile(t)
				for _, op := range m.table.Log() {
					if op.Kind != ipvs.OpDelDest && op.Kind != ipvs.OpDelService { // the end of a drain
						t.Fatalf("a reconcile of what is as wanted does %s", op)
					}
				}
			},
			"drift that nobody may mend": func(t *rapid.T) {
				m.table.OnApply(nil)
				m.meddle(t)
				m.table.ResetLog()
				m.a.ReportOnly(true)
				m.reconcile(t)
				m.a.ReportOnly(false)
				for _, op := range m.table.Log() {
					if len(m.a.owners[op.Service.ServiceKey]) > 0 && op.Kind != ipvs.OpDelDest {
						t.Fatalf("drift report does %s", op)
					}
				}
				m.reconcile(t)
				m.settled()
			},
			"tick": func(t *rapid.T) {
				m.now = m.now.Add(time.Minute)
				m.begin()
				m.ok(m.rest(m.a.Tick(t.Context(), m.now)))
			},
			"restart": func(t *rapid.T) {
				var cfgs []*config.VirtualServer
				for _, c := range m.a.vss {
					cfgs = append(cfgs, m.vss[c.vs.Key].Config)
				}
				leaving := len(m.a.Leaving())
				m.boot(cfgs, trust)
				m.ok(m.flush())
				if leaving == 0 {
					m.settled()
				} else {
					// Services that were leaving are nobody's to this process.
					m.forgetStrangers(t)
				}
			},
			"restart with state": m.restartWithState,
			"refusals": func(t *rapid.T) {
				n := rapid.IntRange(1, 3).Draw(t, "every")
				i := 0
				m.table.Fail(func(o ipvs.Op) error {
					if i++; i%n == 0 {
						return ipvs.NewError(o, rapid.SampledFrom([]syscall.Errno{syscall.ENOMEM, syscall.EINVAL, syscall.ENOENT, syscall.EEXIST}).Draw(t, "errno"))
					}
					return nil
				})
				if f, i := m.drawServer(t); f != nil {
					m.verdict(t, f, i)
				}
				_ = m.flush()
				m.table.Fail(nil)
				m.ok(m.flush())
				m.settled()
			},
			"meddling": func(t *rapid.T) {
				m.table.OnApply(nil)
				ss, _ := m.table.Services(t.Context())
				for _, s := range ss {
					if s.ServiceKey == m.foreign {
						continue
					}
					if rapid.Bool().Draw(t, "delete service") {
						m.ok(m.table.DelService(t.Context(), s.Service))
					}
				}
				// Every claim is looked at again, as a reload of the same file does.
				m.ok(m.a.Adopt(t.Context()))
				m.ok(m.flush())
				m.settled()
			},
		})
	})
}

// reconcile reads the table, sometimes in vain first: then nothing may be written.
func (m *model) reconcile(t *rapid.T) {
	if rapid.Bool().Draw(t, "a read fails") {
		n := len(m.table.Attempts())
		m.table.FailReads(func(ipvs.ServiceKey) error { return ipvs.ErrInterrupted })
		if m.a.Pending() {
			_ = m.rest(m.a.Flush(t.Context(), m.now))
			n = len(m.table.Attempts())
		}
		_ = m.a.Reconcile(t.Context(), m.now)
		m.table.FailReads(nil)
		if !m.a.Pending() && len(m.table.Attempts()) != n {
			t.Fatal("written on the strength of a read that failed")
		}
	}
	m.begin()
	m.ok(m.rest(m.a.Reconcile(t.Context(), m.now)))
}

// meddle is somebody else at work in our services.
func (m *model) meddle(t *rapid.T) {
	ss, _ := m.table.Services(t.Context())
	for _, s := range ss {
		if s.ServiceKey == m.foreign || rapid.Bool().Draw(t, "leave it alone") {
			continue
		}
		ds, _ := m.table.Destinations(t.Context(), s.ServiceKey)
		switch rapid.IntRange(0, 4).Draw(t, "meddling") {
		case 0:
			m.ok(m.table.DelService(t.Context(), s.Service))
		case 1:
			s.Scheduler = "sh"
			m.ok(m.table.SetService(t.Context(), s.Service))
		case 2:
			d := ipvs.Destination{DestinationKey: destKey(rapid.IntRange(1, 8).Draw(t, "added")), Weight: rapid.Uint32Range(0, 2).Draw(t, "weight")}
			_ = m.table.AddDest(t.Context(), s.Service, d)
			m.ok(m.table.SetCounters(s.ServiceKey, d.DestinationKey, ipvs.Counters{Active: rapid.Uint32Range(0, 1).Draw(t, "active")}))
		case 3:
			if len(ds) > 0 {
				m.ok(m.table.DelDest(t.Context(), s.Service, rapid.SampledFrom(ds).Draw(t, "removed").Destination))
			}
		case 4:
			if len(ds) > 0 {
				d := rapid.SampledFrom(ds).Draw(t, "edited").Destination
				d.Weight, d.UpperThreshold = rapid.Uint32Range(0, 4).Draw(t, "weight"), rapid.Uint32Range(0, 1).Draw(t, "threshold")
				m.ok(m.table.SetDest(t.Context(), s.Service, d))
			}
		}
	}
}

// forgetStrangers deletes services that the model's new process does not know, as
// an operator would, so that later checks see only its own.
func (m *model) forgetStrangers(t *rapid.T) {
	m.table.OnApply(nil)
	ss, _ := m.table.Services(t.Context())
	for _, s := range ss {
		if len(m.a.owners[s.ServiceKey]) == 0 && s.ServiceKey != m.foreign {
			m.ok(m.table.DelService(t.Context(), s.Service))
		}
	}
	m.settled()
}

// TestDiffReaches: for any two contents the plan, executed in its order, ends at
// the wanted one, up to what drains.
func TestDiffReaches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) map[ipvs.DestinationKey]ipvs.Destination {
			ds := map[ipvs.DestinationKey]ipvs.Destination{}
			for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(1, 6), 0, 6, rapid.ID[int]).Draw(t, label) {
				d := ipvs.Destination{DestinationKey: destKey(i), Weight: rapid.Uint32Range(0, 3).Draw(t, fmt.Sprint(label, i))}
				ds[d.DestinationKey] = d
			}
			return ds
		}
		have := newActual(ipvs.Service{ServiceKey: svcKey(), Scheduler: "rr"}, 0)
		for _, d := range draw("have") {
			have.put(d)
		}
		want := &target{service: have.service, whole: true}
		for _, d := range draw("want") {
			want.dests = append(want.dests, ideal{dest: d, fate: wanted})
		}
		p := diff(have, want, math.MaxInt)
		for _, op := range append(append(p.raise, p.cut...), p.remove...) {
			if op.Kind == ipvs.OpDelDest {
				have.drop(op.Destination.DestinationKey)
			} else {
				have.put(op.Destination)
			}
		}
		for _, d := range p.depart {
			if have.weight(d.key) != 0 {
				t.Fatalf("%s departs at weight %d", d.key, have.weight(d.key))
			}
			have.drop(d.key)
		}
		if have.len() != len(want.dests) {
			t.Fatalf("%d destinations, want %d", have.len(), len(want.dests))
		}
		for k, d := range want.wants() {
			if got, _ := have.get(k); got != d {
				t.Fatalf("%s is %+v, want %+v", k, got, d)
			}
		}
		if again := diff(have, want, math.MaxInt); len(again.raise)+len(again.cut)+len(again.remove)+len(again.depart) != 0 {
			t.Fatalf("a second plan is not empty: %+v", again)
		}
	})
}
