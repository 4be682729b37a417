package engine

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// TestAddressesInOrder: whatever moves, and whenever the machine reports: an address is
// announced only for services that are in the table, with their quorum if it follows
// that, and by an active director; nothing leaves the table sooner than vip_delay after
// the address went; and what is in the table is taken in as long as it is there.
func TestAddressesInOrder(t *testing.T) {
	for seed := range uint64(80) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			edged(t, func(r *rig) { wander(r, rand.New(rand.NewPCG(seed, 11))) })
		})
	}
}

func wander(r *rig, rnd *rand.Rand) {
	const delay = 3 * time.Second
	draw := func() *config.Config {
		cfg := &config.Config{Global: config.Global{VIPDelay: delay, DrainInterval: 2 * time.Second}}
		for i, vc := range many(3, 2).VirtualServers {
			if rnd.IntN(4) == 0 {
				continue
			}
			vc.VIP = config.VIP{Device: "vip0", Follow: config.VIPQuorum}
			vc.Quorum = 1 + uint32(rnd.IntN(2))
			if i < 2 && rnd.IntN(2) == 0 {
				vc.Sorry = &config.SorryServer{Key: realServer(99).Key, Forward: config.Forwarding{Method: config.NAT}}
			}
			if i == 2 {
				vc.VIP.Follow = config.VIPAlways
				vc.Protocol, vc.Key.Protocol, vc.UDPDrainTimeout = config.UDP, config.UDP, 10*time.Second
			}
			cfg.VirtualServers = append(cfg.VirtualServers, vc)
		}
		return cfg
	}
	// What is done to the table is looked at as it is done.
	r.table.OnApply(nil)
	leaves := func() {
		r.table.Fail(func(op ipvs.Op) error {
			a := op.Service.Addr
			r.ground.mu.Lock()
			defer r.ground.mu.Unlock()
			on, went := r.ground.announced()[a], r.ground.gone[a]
			switch {
			case op.Kind != ipvs.OpDelService && !(op.Kind == ipvs.OpSetDest && op.Destination.Weight == 0 && op.Destination.Addr != realServer(99).Key.Addr()):
			case on:
				r.Errorf("%s while the address is announced", op)
			case !went.IsZero() && time.Since(went) < delay:
				r.Errorf("%s %v after the address went", op, time.Since(went))
			}
			return nil
		})
	}
	leaves()
	r.start(draw())
	r.pass(11 * time.Second)
	look := func(what string) {
		synctest.Wait()
		s := r.e.Snapshot()
		there := map[string]bool{}
		services, err := r.table.Services(r.Context())
		if err != nil {
			r.Fatal(err)
		}
		for i := range services {
			there[services[i].ServiceKey.String()] = true
		}
		r.ground.mu.Lock()
		defer r.ground.mu.Unlock()
		on := r.ground.announced()
		takenIn := map[string]bool{}
		for _, w := range r.ground.wishes {
			for _, a := range w.Addresses {
				takenIn[a.String()] = takenIn[a.String()] || w.Local
			}
		}
		for i := range s.VirtualServers {
			vs := &s.VirtualServers[i]
			k := vs.Services[0].Key
			if !on[k.Addr] {
				continue
			}
			if s.Passive != nil || vs.Withheld || !there[k.String()] || vs.VIP.Follow == "quorum" && !vs.QuorumUp {
				r.Fatalf("%s: %s is announced, passive %v, there %t, %+v", what, vs.Name, s.Passive, there[k.String()], vs)
			}
		}
		for name := range there {
			addr, _, _ := strings.Cut(name, ":")
			if !takenIn[addr] {
				r.Fatalf("%s: %s is in the table and not taken in", what, name)
			}
		}
	}
	for range 60 {
		what := ""
		switch n := rnd.IntN(6); rnd.IntN(6) {
		case 0:
			r.reload(draw())
			what = "a reload"
		case 1:
			r.passive(n < 2)
			what = fmt.Sprint("passive ", n < 2)
		case 2, 3:
			rs := realServer(n)
			result := []checker.Result{checker.OK, checker.Failed}[rnd.IntN(2)]
			r.farm.mu.Lock()
			r.farm.result[rs.Key.String()] = checker.Outcome{Result: result, Took: time.Millisecond}
			r.farm.mu.Unlock()
			what = fmt.Sprint("server ", n, " ", result)
		case 4:
			r.ground.mu.Lock()
			r.ground.stuck = n < 3
			r.ground.mu.Unlock()
			r.ground.report()
			what = fmt.Sprint("stuck ", n < 3)
		case 5:
			services, err := r.table.Services(r.Context())
			if err != nil || len(services) == 0 {
				continue
			}
			k := services[n%len(services)].ServiceKey
			ds, _ := r.table.Destinations(r.Context(), k)
			if len(ds) > 0 {
				_ = r.table.SetCounters(k, ds[0].DestinationKey, ipvs.Counters{Active: uint32(n % 2)})
			}
			what = "connections"
		}
		look(what)
		r.pass(time.Duration(rnd.IntN(12_000)) * time.Millisecond)
		look(what + " and time")
	}
	r.ground.mu.Lock()
	r.ground.stuck = false
	r.ground.mu.Unlock()
	r.table.Fail(nil)
	r.stop(nil)
	if len(r.ground.wishes) != 0 {
		r.Errorf("wishes are left: %v", r.ground.wishes)
	}
}
