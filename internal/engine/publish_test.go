package engine

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/state"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// mixed makes virtual servers with everything that is published: a floor, damping,
// slow starts, files, a sorry server, a direct one whose servers share a destination,
// and two that share a service.
func mixed(rnd *rand.Rand) *config.Config {
	some := func() []int {
		ns := rnd.Perm(6)[:1+rnd.IntN(5)]
		for i := range ns {
			ns[i]++
		}
		return ns
	}
	cfg := holding(conf(some()...), time.Minute)
	first := cfg.VirtualServers[0]
	first.OnFailure = []config.OnFailure{config.OnFailureRemove, config.OnFailureDrain}[rnd.IntN(2)]
	for i := range 4 {
		vs := conf(some()...).VirtualServers[0]
		at := netip.MustParseAddrPort(fmt.Sprintf("192.0.2.%d:80", 10+i))
		vs.Key.Addr, vs.Entries[0].Addr = at, at
		second := netip.MustParseAddrPort(fmt.Sprintf("192.0.2.%d:81", 10+i))
		vs.Entries = append(vs.Entries, config.Entry{Addr: second, Family: config.IPv4})
		switch i {
		case 0:
			vs.MinAlive = half
			vs.FlapDamping = config.Damping{Count: 2, Within: time.Minute}
		case 1:
			vs.Quorum = 2
			vs.Sorry = &config.SorryServer{Key: config.RSKey{AddrPort: netip.MustParseAddrPort(target(9))}, Forward: config.Forwarding{Method: config.NAT}, Inhibit: rnd.IntN(2) == 0}
		case 2:
			for _, rs := range vs.RealServers {
				rs.Weight, rs.SlowStart = 50, 40*time.Second
				rs.TrackFiles = []config.TrackFileUse{{Name: "f", Weight: 1}}
			}
		case 3:
			vs.Entries = append(vs.Entries, first.Entries...) // shared with the first
			vs.DrainTimeout = 30 * time.Second
		}
		if rnd.IntN(5) > 0 {
			cfg.VirtualServers = append(cfg.VirtualServers, vs)
		}
	}
	cfg.TrackFiles = []*config.TrackFile{{Name: "f", Path: "/f"}}
	return cfg
}

// TestWhatIsPublishedIsTheWholeTruth: after whatever events, what was published a
// piece at a time is what publishing everything anew gives, and what would be saved is
// what is ours.
func TestWhatIsPublishedIsTheWholeTruth(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { publishWalk(t, rand.New(rand.NewPCG(seed, 3))) })
		})
	}
}

func publishWalk(t *testing.T, rnd *rand.Rand) {
	r := newRig(t)
	r.state.on = true
	for n := range 7 {
		r.farm.set(n, checker.OK, "ok")
	}
	r.start(mixed(rnd))
	for step := range 50 {
		did := ""
		switch n := 1 + rnd.IntN(6); rnd.IntN(9) {
		case 0:
			r.reload(mixed(rnd))
			did = "reload"
		case 1:
			_ = r.operate(Command{Verb: VerbDrain, Server: target(n), Force: true})
			did = fmt.Sprint("drain ", n)
		case 2:
			_ = r.operate(Command{Verb: VerbUndrain, Server: target(n)})
			did = fmt.Sprint("undrain ", n)
		case 3, 4, 5:
			ok := rnd.IntN(2) == 0
			r.farm.set(n, map[bool]checker.Result{true: checker.OK, false: checker.Failed}[ok], fmt.Sprint("for step ", step))
			did = fmt.Sprint("server ", n, " good ", ok)
		case 6:
			r.e.FileValue("f", int64(rnd.IntN(60)-50))
			did = "file"
		case 7:
			if rnd.IntN(2) == 0 {
				r.table.Fail(func(op ipvs.Op) error {
					if op.Destination.Addr == netip.MustParseAddr(fmt.Sprintf("10.0.0.%d", n)) {
						return errors.New("no memory")
					}
					return nil
				})
			} else {
				r.table.Fail(nil)
			}
			did = "the kernel's mood"
		case 8:
			all, _ := r.table.Services(t.Context())
			for _, s := range all {
				ds, _ := r.table.Destinations(t.Context(), s.ServiceKey)
				for _, d := range ds {
					_ = r.table.SetCounters(s.ServiceKey, d.DestinationKey, ipvs.Counters{Active: uint32(rnd.IntN(2))})
				}
				if rnd.IntN(4) == 0 && len(ds) > 0 {
					_ = r.table.DelDest(t.Context(), s.Service, ds[0].Destination)
				}
			}
			did = "connections"
		}
		synctest.Wait()
		audit(r, fmt.Sprintf("step %d, %s", step, did))
		r.pass(time.Duration(rnd.IntN(30)) * time.Second)
		audit(r, fmt.Sprintf("after step %d, %s", step, did))
		if t.Failed() {
			break
		}
	}
	r.table.Fail(nil)
	r.stop(nil)
}

// audit compares what is published with everything made anew, each service by its
// view.
func audit(r *rig, when string) {
	r.Helper()
	err := r.e.call(r.Context(), func(e *Engine) {
		p, now := e.published.Load(), time.Now()
		unsettled := map[ipvs.ServiceKey]bool{}
		for k := range e.owners {
			unsettled[k] = true
		}
		for i, vs := range e.vss {
			kept := slices.Clone(vs.rs)
			fresh := e.piece(vs, unsettled, nil, true, now)
			got, want := p.pieces.at(i).read(e.config, now), fresh.read(e.config, now)
			if reflect.DeepEqual(want, got) {
				// The rule, and much cheaper to find out.
			} else if diff := gocmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{}), cmpopts.IgnoreFields(Checker{}, "LastAt", "Took")); diff != "" {
				r.Errorf("%s: %s is published (-anew +published):\n%s", when, vs.name, diff)
			}
			for j := range vs.rs {
				if s := p.pieces.at(i).situations.at(j); !s.same(vs.rs[j]) || s != kept[j] {
					r.Errorf("%s: %s, real server %d: published %+v, anew %+v", when, vs.name, j, s, vs.rs[j])
				}
			}
			vs.rs = kept
		}
		var got, want []state.Service
		for s := range p.savedServices {
			if s.More != nil {
				s.Destinations, s.More = slices.Collect(s.More), nil
			}
			got = append(got, s)
		}
		for _, o := range e.applier.Owned() {
			want = append(want, savedService(o))
		}
		byName := cmpopts.SortSlices(func(a, b state.Destination) int { return cmp.Compare(a.Destination, b.Destination) })
		if diff := gocmp.Diff(want, got, byName, cmpopts.EquateEmpty()); diff != "" {
			r.Errorf("%s: saved (-ours +saved):\n%s", when, diff)
		}
		var leave, told []Service
		for _, v := range e.applier.Leaving() {
			leave = append(leave, serviceOf(v))
		}
		for _, v := range p.leaving {
			told = append(told, serviceOf(v.ServiceView))
		}
		if diff := gocmp.Diff(leave, told, cmpopts.SortSlices(func(a, b Service) int { return cmp.Compare(a.Name, b.Name) }), cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			r.Errorf("%s: leaving (-are +published):\n%s", when, diff)
		}
		var next time.Time
		for _, vs := range e.vss {
			if at := vs.NextAt(); !at.IsZero() && (next.IsZero() || at.Before(next)) {
				next = at
			}
		}
		if !e.moves.next().Equal(next) {
			r.Errorf("%s: the next move is at %v, by the heap %v", when, next, e.moves.next())
		}
	})
	if err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
}
