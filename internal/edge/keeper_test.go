package edge

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"net/netip"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

type wishes = map[config.VSKey]*Wish

// steps waits until the keeper is at rest and compares what it did.
func (r *rig) steps(t *testing.T, want string) {
	t.Helper()
	synctest.Wait()
	if got := r.m.taken(); got != want {
		t.Errorf("did %q, want %q", got, want)
	}
}

// pass lets time go by.
func pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(newMachine(), nil).run(t)
		r.steps(t, "")
		r.wish(wishes{vs(1): announced(1)})
		r.steps(t, "begin; guard 1/1; sync 1")
		r.wish(wishes{vs(2): announced(2)})
		r.steps(t, "guard 2/2; change 192.0.2.2 on sluice0")
		// Withdrawn: only the address, and what is local stays.
		r.wish(wishes{vs(1): but(announced(1), func(w *Wish) { w.Announce = false })})
		r.steps(t, "change 192.0.2.1 local")
		// One comes and one goes in one pass.
		r.wish(wishes{vs(1): nil, vs(3): announced(3)})
		r.steps(t, "guard 3/3; change 192.0.2.1 gone, 192.0.2.3 on sluice0; guard 2/2")
		r.wish(wishes{vs(2): nil, vs(3): nil})
		r.steps(t, "change 192.0.2.2 gone, 192.0.2.3 gone; guard off; end")
		if got := r.last(); got.Turn != 5 || got.Announced != 0 || got.Missing != nil || len(got.Failures) != 0 {
			t.Errorf("report %+v", got)
		}
		if r.m.opened != 0 {
			t.Error("the machine is open though there is nothing to do")
		}
	})
}

func TestMarksBeforeAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		r := newRig(m, nil).run(t)
		mapped := announced(1)
		mapped.Guard, mapped.Services = false, nil
		mapped.Mark, mapped.Mapped = 1000, []Mapped{{ipvs.TCP, netip.AddrPortFrom(addr(1), 80)}}
		send := func(w *Wish) {
			r.turn++
			r.Wish(Wishes{Turn: r.turn, Changed: wishes{vs(1): w}, NFTables: &config.NFTables{Table: "keepalived_ipvs"}})
		}
		m.marksErr = errTest
		send(mapped)
		r.steps(t, "begin; marks fail; sync 1")
		if got := m.addrs[addr(1)]; got.Announce {
			t.Error("announced without its mark")
		}
		if got := r.last(); got.Announced != 0 || !strings.Contains(got.Missing[addr(1)], "test trouble") || got.Failures[0].Feature != "nftables_ipvs" {
			t.Errorf("report %+v", got)
		}
		m.with(func() { m.marksErr = nil })
		pass(time.Second)
		r.steps(t, "marks 1; sync 1")
		if got := m.addrs[addr(1)]; !got.Announce {
			t.Error("not announced with its mark")
		}
		send(nil)
		r.steps(t, "change 192.0.2.1 gone; marks off; end")
	})
}

// TestNothingBeforeTheFirstWish: what an earlier process left is in use.
func TestNothingBeforeTheFirstWish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.addrs[addr(9)] = Place{Device: "sluice0", Announce: true}
		r := newRig(m, func(o *Options) { o.Leftover = true }).run(t)
		pass(10 * time.Minute)
		r.steps(t, "")
		r.wish(nil)
		r.steps(t, "sync 0; guard off; marks off; end")
		if len(m.addrs) != 0 {
			t.Errorf("left: %v", m.addrs)
		}
		pass(10 * time.Minute)
		r.steps(t, "")
	})
}

// TestNoFilterNothingLeft: a machine without nftables has no table that has to go.
func TestNoFilterNothingLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.guardErr, m.marksErr = errors.ErrUnsupported, fmt.Errorf("marks: %w", errors.ErrUnsupported)
		r := newRig(m, func(o *Options) { o.Leftover = true }).run(t)
		r.wish(nil)
		r.steps(t, "sync 0; guard fails; marks fail; end")
		if f := r.last().Failures; len(f) != 0 {
			t.Errorf("failures %v", f)
		}
	})
}

func TestShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(newMachine(), nil).run(t)
		other := announced(1)
		other.Services = []ipvs.ServiceKey{service(1, 443)}
		r.wish(wishes{vs(1): announced(1), vs(2): other})
		r.steps(t, "begin; guard 1/2; sync 1")
		r.wish(wishes{vs(1): but(announced(1), func(w *Wish) { w.Announce = false })})
		r.steps(t, "")
		r.wish(wishes{vs(2): nil})
		r.steps(t, "change 192.0.2.1 local; guard 1/1")
		// One that guards nothing has its services let in at a guarded address.
		bare := but(other, func(w *Wish) { w.Guard = false })
		r.wish(wishes{vs(2): bare})
		r.steps(t, "guard 1/2; change 192.0.2.1 on sluice0")
	})
}

func TestTwoDevices(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		r := newRig(m, nil).run(t)
		r.wish(wishes{vs(1): announced(1), vs(2): but(announced(1), func(w *Wish) { w.Device = "eth9" })})
		synctest.Wait()
		if m.addrs[addr(1)].Device != "eth9" {
			t.Errorf("on %v", m.addrs)
		}
		f := r.last().Failures
		if len(f) != 1 || !strings.Contains(f[0].Reason, "192.0.2.1 on eth9 and on sluice0") {
			t.Errorf("failures %v", f)
		}
		if err := r.Release(t.Context()); err != nil { // it is nothing to wait for
			t.Error(err)
		}
		r.wish(wishes{vs(2): announced(1)})
		synctest.Wait()
		if f := r.last().Failures; len(f) != 0 || m.addrs[addr(1)].Device != "sluice0" || r.logged("vip_mended") != 1 {
			t.Errorf("failures %v, on %v", f, m.addrs)
		}
	})
}

func TestRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.bad[addr(1)] = errTest
		start := time.Now()
		var at []string
		m.after = func() {
			if s := m.steps[len(m.steps)-1]; strings.HasPrefix(s, "sync") {
				at = append(at, time.Since(start).String())
			}
		}
		tried := func(from int) (all string) {
			m.with(func() { all = strings.Join(at[from:], " ") })
			return all
		}
		r := newRig(m, nil).run(t)
		r.wish(wishes{vs(1): announced(1), vs(2): announced(2)})
		pass(50 * time.Second)
		if got := tried(0); got != "0s 1s 3s 7s 15s 31s" {
			t.Errorf("tried at %s", got)
		}
		pass(110 * time.Second) // 1m1s 1m31s 2m1s 2m31s, and each minute
		if got := tried(6); got != "1m0s 1m1s 1m31s 2m0s 2m1s 2m31s" {
			t.Errorf("tried at %s", got)
		}
		if n := r.logged("vip_failed"); n != 1 {
			t.Errorf("told %d times", n)
		}
		got := r.last()
		if got.Announced != 1 || got.Missing[addr(1)] != "test trouble" || len(got.Missing) != 1 || !got.Failures[0].Since.Equal(start) {
			t.Errorf("report %+v", got)
		}
		m.with(func() { delete(m.bad, addr(1)) })
		pass(30 * time.Second)
		if got := r.last(); got.Announced != 2 || got.Missing != nil || r.logged("vip_mended") != 1 {
			t.Errorf("report %+v", got)
		}
		// The next failure begins with short pauses.
		m.with(func() { m.bad[addr(2)] = errTest; m.steps, at, start = nil, nil, time.Now() })
		r.wish(wishes{vs(2): nil})
		synctest.Wait()
		pass(3 * time.Second)
		if got := tried(0); got != "1s 3s" {
			t.Errorf("tried at %s", got)
		}
		if m.guard == nil || len(m.guard.Addresses) != 2 {
			t.Errorf("the guard closed though an address is still there: %+v", m.guard)
		}
	})
}

func TestOpenFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.openErr = errTest
		r := newRig(m, nil).run(t)
		r.wish(wishes{vs(1): announced(1)})
		r.steps(t, "begin")
		got := r.last()
		if len(got.Failures) != 2 || got.Missing[addr(1)] == "" {
			t.Errorf("report %+v", got)
		}
		r.wish(wishes{vs(2): announced(2)}) // not before the retry
		r.steps(t, "")
		m.with(func() { m.openErr = nil })
		pass(time.Second)
		r.steps(t, "guard 2/2; sync 2")
		if got := r.last(); len(got.Failures) != 0 || got.Missing != nil || got.Announced != 2 || got.Turn != 2 {
			t.Errorf("report %+v", got)
		}
	})
}

func TestGuardFailsAddressesWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.guardErr = errTest
		r := newRig(m, nil).run(t)
		r.wish(wishes{vs(1): announced(1)})
		r.steps(t, "begin; guard fails; sync 1")
		if got := r.last(); got.Announced != 1 || len(got.Failures) != 1 || got.Failures[0].Feature != "vip_guard" {
			t.Errorf("report %+v", got)
		}
		m.with(func() { m.guardErr = nil })
		pass(time.Second)
		r.steps(t, "guard 1/1; sync 1")
		if r.logged("guard_failed") != 1 || r.logged("guard_mended") != 1 {
			t.Error(r.log.String())
		}
	})
}

// TestFailedAndNotWantedAnyMore: a guard that was never known to be written is closed.
func TestFailedAndNotWantedAnyMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.guardErr = errTest
		r := newRig(m, nil).run(t)
		r.wish(wishes{vs(1): announced(1)})
		r.steps(t, "begin; guard fails; sync 1")
		r.wish(wishes{vs(1): nil})
		r.steps(t, "change 192.0.2.1 gone")
		pass(time.Second)
		r.steps(t, "sync 0; guard fails")
		m.with(func() { m.guardErr = nil })
		pass(2 * time.Second)
		r.steps(t, "sync 0; guard off; end")
		if len(r.last().Failures) != 0 {
			t.Errorf("failures %v", r.last().Failures)
		}
	})
}

func TestDoorbell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		r := newRig(m, nil).run(t)
		r.wish(wishes{vs(1): announced(1)})
		r.steps(t, "begin; guard 1/1; sync 1")
		for range 5 {
			m.rings <- struct{}{}
			pass(short)
		}
		r.steps(t, "")
		pass(calm)
		r.steps(t, "sync 1")
		// A watch that ends is told of, and begun again with the next round.
		m.watchErr = errTest
		m.rings <- struct{}{}
		synctest.Wait()
		if r.logged("vip_unwatched") != 1 {
			t.Error("not told")
		}
		m.watchErr = nil
		pass(time.Minute)
		r.steps(t, "guard 1/1; sync 1")
		m.rings <- struct{}{}
		pass(2 * calm)
		r.steps(t, "sync 1")
	})
}

func TestNewestWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(newMachine(), nil)
		for range 100 { // nobody works yet, and nobody waits
			r.wish(wishes{vs(1): announced(1)})
			r.wish(wishes{vs(1): nil, vs(2): announced(2)})
		}
		r.run(t)
		r.steps(t, "begin; guard 1/1; sync 1")
		if got := r.last(); got.Turn != 200 || got.Announced != 1 || r.m.addrs[addr(2)].Device == "" {
			t.Errorf("report %+v", got)
		}
	})
}

func TestRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		r := newRig(m, nil).run(t)
		r.wish(wishes{vs(1): announced(1)})
		synctest.Wait()
		m.with(func() { m.bad[addr(1)] = errTest })
		r.wish(wishes{vs(1): nil})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if err := r.Release(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("released with an address left: %v", err)
		}
		m.with(func() { delete(m.bad, addr(1)) })
		if err := r.Release(t.Context()); err != nil || len(m.addrs) != 0 || m.guard != nil {
			t.Errorf("%v, left %v", err, m.addrs)
		}
	})
	r := newRig(newMachine(), nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.Run(ctx)
	if err := r.Release(t.Context()); !errors.Is(err, errEnded) {
		t.Errorf("got %v of a keeper that has ended", err)
	}
}

// TestUnnoted: service does not wait for the state folder.
func TestUnnoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		r := newRig(newMachine(), func(o *Options) {
			o.Begin = func() error {
				if calls++; calls < 3 {
					return errTest
				}
				return nil
			}
		}).run(t)
		for range 5 {
			r.wish(wishes{vs(1): announced(1)})
			synctest.Wait()
		}
		if calls != 3 || r.logged("vip_unnoted") != 1 || len(r.m.addrs) != 1 {
			t.Errorf("%d calls: %s", calls, r.log.String())
		}
	})
}

// TestAnew: a reload has what fails tried at once, and with short pauses after that. What
// works is not gone over.
func TestAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.bad[addr(1)], m.guardErr, m.marksErr = errTest, errTest, errTest
		r := newRig(m, nil).run(t)
		r.wish(wishes{vs(1): announced(1)})
		pass(20 * time.Second) // the next try is at 31s
		m.taken()
		anew := func() {
			r.turn++
			r.Wish(Wishes{Turn: r.turn, Anew: true})
			synctest.Wait()
		}
		anew()
		if got := m.taken(); !strings.Contains(got, "guard fails") || !strings.Contains(got, "sync 1") {
			t.Errorf("did %q", got)
		}
		if rep := r.last(); rep.Turn != r.turn || len(rep.Failures) != 2 {
			t.Errorf("report %+v", rep)
		}
		pass(time.Second)
		if got := m.taken(); !strings.Contains(got, "sync 1") {
			t.Errorf("a second later it did %q", got)
		}
		m.with(func() { m.bad, m.guardErr = map[netip.Addr]error{}, nil })
		anew()
		if rep := r.last(); len(rep.Failures) != 0 || rep.Announced != 1 {
			t.Errorf("report %+v", rep)
		}
		m.taken()
		anew()
		if got := m.taken(); got != "" || r.last().Turn != r.turn {
			t.Errorf("though all works it did %q; report %+v", got, r.last())
		}
	})
}
