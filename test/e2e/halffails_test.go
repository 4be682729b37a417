package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// reading is what /proc/net/ip_vs said of a pool.
type reading struct {
	at time.Time
	// failed are the destinations whose server has failed, healthy those with a
	// weight whose server has not, sorry the sorry server's weight.
	failed, healthy, sorry int
}

// follow reads a service every few milliseconds until settled says that it has seen
// enough, and returns all that it read once it is asked.
func (b *bed) follow(service string, classify func(testkit.Dest, *reading), settled func(reading) bool) func() []reading {
	stop, done := make(chan struct{}), make(chan []reading, 1)
	go func() {
		var all []reading
		defer func() { done <- all }()
		for {
			select {
			case <-stop:
				return
			default:
			}
			r := reading{at: time.Now()}
			text, err := b.Director.ReadProcNet("ip_vs")
			if err != nil {
				continue
			}
			table, err := testkit.ParseProc(text)
			if err != nil {
				continue
			}
			for _, s := range table {
				if s.Key != service {
					continue
				}
				for _, d := range s.Dests {
					classify(d, &r)
				}
			}
			all = append(all, r)
			if settled(r) {
				return
			}
			// An emulated machine needs its CPUs for the daemon.
			<-time.After(5 * time.Millisecond)
		}
	}()
	b.Cleanup(func() { close(stop) })
	return func() []reading {
		select {
		case all := <-done:
			return all
		case <-time.After(2 * patience):
			b.Fatalf("the table of %s is not what it should be after %v:\n%s", service, 2*patience, b.table())
			return nil
		}
	}
}

// TestKernelHalfFails: of 400 servers half, or three quarters, fail at the same
// moment. Each is out of the table within delay_loop and a second; where that loses
// the quorum the sorry server serves before the first healthy one is taken out.
func TestKernelHalfFails(t *testing.T) {
	const members, quorum = 400, 150
	for name, failing := range map[string]int{"half": members / 2, "three quarters": members * 3 / 4} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, testkit.NewNAT, 2)
			c := newCrowd(t, b.Backends[0].NS, 7001, members)
			b.write(globals + c.pool(80, fmt.Sprintf("quorum %d\n sorry_server RS2 80", quorum)))
			begun := time.Now()
			b.start()
			install := time.Since(begun)
			testkit.Eventually(t, patience, func() string {
				if least, _ := spread(c.between(time.Time{}, time.Now())); least == 0 {
					return "not all members were asked"
				}
				return ""
			})
			lost := members-failing < quorum
			readings := b.follow("tcp "+b.VIP.String()+":80", func(d testkit.Dest, r *reading) {
				switch {
				case d.Addr.Addr() == b.Backends[1].Addr:
					r.sorry = d.Weight
				case int(d.Addr.Port()) < 7001+failing:
					r.failed++
				case d.Weight > 0:
					r.healthy++
				}
			}, func(r reading) bool { return r.failed == 0 && (r.sorry > 0) == lost && (r.healthy == 0) == lost })
			c.refuse(0, failing)
			failedAt := time.Now()
			all := readings()
			var out time.Duration
			var pause time.Duration
			for i, r := range all {
				if i > 0 {
					pause = max(pause, r.at.Sub(all[i-1].at))
				}
				if r.failed > 0 && i+1 < len(all) {
					out = all[i+1].at.Sub(failedAt)
				}
				if r.healthy < members-failing && r.sorry == 0 {
					t.Fatalf("reading %d of %d: %d of %d healthy servers serve, and no sorry server", i, len(all), r.healthy, members-failing)
				}
			}
			if last := all[len(all)-1]; last.failed != 0 || (last.sorry > 0) != lost || (last.healthy > 0) == lost {
				t.Errorf("in the end the table has %+v", last)
			}
			bound := 2 * time.Second
			if guest() {
				// How slow this machine is: how late the checks of the healthy servers
				// were meanwhile, and what the start took, which wrote as many
				// operations.
				bound += 2*c.late(failing, failedAt.Add(-2*time.Second), time.Second) + 2*install + pause
			}
			t.Logf("%d servers were out %v after the last of them refused, of %v at most; start %v, the reader's longest pause %v, %d readings",
				failing, out.Round(time.Millisecond), bound.Round(time.Millisecond), install.Round(time.Millisecond), pause.Round(time.Millisecond), len(all))
			if out > bound {
				t.Errorf("want %v at most", bound)
			}
		})
	}
}
