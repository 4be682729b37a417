package engine

import (
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

// TestChecksAreMeasured: how long they took, by kind, and how far those came that
// failed.
func TestChecksAreMeasured(t *testing.T) {
	in(t, func(r *rig) {
		put := func(n int, took time.Duration, f *checker.Fault) {
			o := checker.Outcome{Result: checker.Failed, Reason: "as the test says", Took: took, Fault: f}
			if f == nil && n == 1 {
				o.Result = checker.OK
			}
			r.farm.put(n, o)
		}
		put(1, 500*time.Microsecond, nil)
		put(2, 700*time.Millisecond, &checker.Fault{Stage: checker.StageConnect})
		put(3, time.Minute, nil)
		r.farm.put(4, checker.Outcome{Result: checker.Unable, Reason: "no descriptors", Took: time.Hour})
		r.start(conf(1, 2, 3, 4))
		r.pass(10 * time.Second)
		all := r.e.Overview().Checks
		if len(all) != 1 || all[0].Kind != config.TCPCheck.String() {
			t.Fatalf("%+v", all)
		}
		// Those that fail are checked again after a second.
		c := all[0]
		if c.OK != 1 || c.Unable != 1 || c.Failed < 2 {
			t.Fatalf("%+v", c)
		}
		h := c.Took
		if h.Count() != c.OK+c.Failed || h.Counts[0] != 1 || h.Counts[len(h.Bounds)] == 0 {
			t.Errorf("%+v", h)
		}
		connect, unknown := c.FailedAt[checker.StageConnect], c.FailedAt[checker.Stages]
		if connect == 0 || unknown == 0 || connect+unknown != c.Failed {
			t.Errorf("failed at %v", c.FailedAt)
		}
		for i, bound := range h.Bounds {
			want := uint64(0)
			switch bound {
			case 500 * time.Microsecond:
				want = 1
			case time.Second:
				want = connect
			}
			if h.Counts[i] != want {
				t.Errorf("%d took up to %v, want %d", h.Counts[i], bound, want)
			}
		}
		if want := 500*time.Microsecond + time.Duration(connect)*700*time.Millisecond + time.Duration(unknown)*time.Minute; h.Sum != want {
			t.Errorf("sum %v, want %v", h.Sum, want)
		}
	})
}

// TestVerdictsOnTheirWayAreMeasured: each that changes the table once, and no other.
func TestVerdictsOnTheirWayAreMeasured(t *testing.T) {
	in(t, func(r *rig) {
		measured := func() uint64 {
			t.Helper()
			r.pass(0)
			h := r.e.Overview().Measured.VerdictToKernel
			return h.Count()
		}
		r.start(conf(1, 2, 3))
		r.pass(time.Minute)
		// They were in the table from the start, so that passing changes nothing.
		if n := measured(); n != 0 {
			t.Errorf("%d verdicts changed the table at the start", n)
		}
		for n := 1; n <= 2; n++ {
			r.farm.set(n, checker.Failed, "refused")
			r.pass(time.Minute)
			if got := measured(); got != uint64(n) {
				t.Errorf("%d verdicts, want %d", got, n)
			}
		}
		r.farm.set(1, checker.OK, "connected")
		r.pass(time.Minute)
		if got := measured(); got != 3 {
			t.Errorf("%d verdicts, want 3", got)
		}
		m := r.e.Overview().Measured
		if m.Lag.Count() < 3 || m.Turn.Count() < 3 || m.Lag.Sum != 0 {
			t.Errorf("lag %+v, turns %+v", m.Lag, m.Turn)
		}
		done := map[string]uint64{}
		var calls uint64
		for _, o := range m.Operations {
			done[o.Kind] = o.Done
			if o.Refused != 0 {
				t.Errorf("%+v", o)
			}
		}
		for _, c := range m.Calls {
			calls += c.Took.Count()
		}
		if done["add_service"] != 1 || done["add_destination"] != 4 || done["delete_destination"] != 2 || calls == 0 {
			t.Errorf("operations %v, %d calls", done, calls)
		}
		var sum uint64
		for _, n := range done {
			sum += n
		}
		if k := r.e.Overview().Kernel; k.Operations != sum {
			t.Errorf("%d operations, by kind %d", k.Operations, sum)
		}
	})
}

// TestAVerdictThatChangesNothingIsNotMeasured: while the sorry server serves, the table
// does not hold the real servers.
func TestAVerdictThatChangesNothingIsNotMeasured(t *testing.T) {
	in(t, func(r *rig) {
		cfg := conf(1, 2)
		cfg.VirtualServers[0].Quorum = 2
		cfg.VirtualServers[0].Sorry = &config.SorryServer{Key: config.RSKey{AddrPort: netip.MustParseAddrPort(target(9))}, Forward: config.Forwarding{Method: config.NAT}}
		r.start(cfg)
		r.pass(time.Minute)
		r.farm.set(1, checker.Failed, "refused")
		r.pass(time.Minute)
		r.want("9:1")
		before := r.e.Overview()
		r.farm.set(2, checker.Failed, "refused")
		r.pass(time.Minute)
		after := r.e.Overview()
		if after.VirtualServers[0].Alive != 0 || after.Kernel.Operations != before.Kernel.Operations {
			t.Fatalf("the verdict changed the table, or there was none: %+v", after.VirtualServers[0])
		}
		was, is := before.Measured.VerdictToKernel, after.Measured.VerdictToKernel
		if was.Count() != 1 || is.Count() != 1 {
			t.Errorf("%d verdicts, then %d; want 1", was.Count(), is.Count())
		}
	})
}

// TestTheFirstCertificateToEndIsTold: of each check, and of the virtual server the one
// that ends first.
func TestTheFirstCertificateToEndIsTold(t *testing.T) {
	in(t, func(r *rig) {
		cfg := each(conf(1, 2, 3), func(rs *config.RealServer) { rs.Checkers[0].Kind = config.SSLGet })
		plain := *cfg.VirtualServers[0]
		at := netip.AddrPortFrom(vip.Addr(), 81)
		plain.Key.Addr, plain.Entries = at, []config.Entry{{Addr: at, Family: config.IPv4}}
		plain.RealServers = conf(4).VirtualServers[0].RealServers
		cfg.VirtualServers = append(cfg.VirtualServers, &plain)
		soon, late := time.Unix(2e9, 0), time.Unix(3e9, 0)
		show := func(n int, result checker.Result, ends time.Time) {
			o := checker.Outcome{Result: result, Reason: "as the test says"}
			if !ends.IsZero() {
				o.Certificate = &checker.Certificate{NotAfter: ends}
			}
			r.farm.put(n, o)
		}
		show(1, checker.OK, late)
		show(2, checker.Failed, soon)
		show(3, checker.Failed, time.Time{}) // refused
		r.start(cfg)
		want := func(first, second time.Time) {
			t.Helper()
			r.pass(time.Minute)
			all := r.e.Snapshot().VirtualServers
			if o := r.e.Overview().VirtualServers; !o[0].CertificateEnds.Equal(first) || !all[0].CertificateEnds.Equal(first) || !o[1].CertificateEnds.IsZero() {
				t.Errorf("the virtual servers' end at %v and %v, want %v", o[0].CertificateEnds, o[1].CertificateEnds, first)
			}
			rs := all[0].RealServers
			if !rs[0].Checkers[0].CertificateEnds.Equal(late) || !rs[1].Checkers[0].CertificateEnds.Equal(second) || !rs[2].Checkers[0].CertificateEnds.IsZero() {
				t.Errorf("%+v", rs)
			}
		}
		want(soon, soon)
		// It was renewed.
		show(2, checker.OK, late.Add(time.Hour))
		want(late, late.Add(time.Hour))
	})
}
