package engine

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/framework"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// BenchmarkSurvives is what the loop pays for a state of 1,000 virtual servers with
// 10 real servers each, at most once a second.
func BenchmarkSurvives(b *testing.B) {
	cfg := &config.Config{}
	for i := range 1000 {
		c := conf(1, 2, 3, 4, 5, 6, 7, 8, 9, 10)
		vs := c.VirtualServers[0]
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), 80)
		vs.Key.Addr, vs.Entries[0].Addr = at, at
		cfg.VirtualServers = append(cfg.VirtualServers, vs)
	}
	e := loaded(b, cfg)
	for b.Loop() {
		e.survives(time.Now())
	}
}

// loaded is an engine that has started and does not run.
func loaded(b *testing.B, cfg *config.Config) *Engine {
	b.Helper()
	table := ipvstest.New()
	table.KeepLog(false)
	e := New(Options{
		Dial:      func(context.Context) (apply.IPVS, error) { return table, nil },
		Probe:     func(_ *config.Config, c *config.Checker) (checker.Probe, error) { return farmProbe{}, nil },
		Scheduler: checker.NewScheduler(checker.Options{}), Files: fakeFiles{},
	})
	if err := e.Start(b.Context(), cfg); err != nil {
		b.Fatal(err)
	}
	for _, vs := range e.vss {
		for i, rs := range vs.Servers {
			if _, err := vs.SetVerdict(i, 0, framework.Up); err != nil {
				b.Fatal(rs, err)
			}
		}
	}
	return e
}
