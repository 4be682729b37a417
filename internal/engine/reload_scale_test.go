package engine

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// many makes a configuration of services with so many real servers each, every check
// of another target.
func many(services, servers int) *config.Config {
	cfg := &config.Config{Global: config.Global{DrainInterval: time.Minute}}
	for i := range services {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, byte(i >> 8), byte(i)}), 80)
		vs := &config.VirtualServer{
			Key: config.VSKey{Protocol: config.TCP, Addr: at}, Entries: []config.Entry{{Addr: at, Family: config.IPv4}},
			Protocol: config.TCP, Scheduler: "rr", Quorum: 1,
		}
		for j := range servers {
			vs.RealServers = append(vs.RealServers, realServer(i*servers+j))
		}
		cfg.VirtualServers = append(cfg.VirtualServers, vs)
	}
	return cfg
}

func realServer(n int) *config.RealServer {
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, byte(n >> 16), byte(n >> 8), byte(n)}), 80)
	return &config.RealServer{
		Key: config.RSKey{AddrPort: at}, Weight: 1, Forward: config.Forwarding{Method: config.NAT},
		Checkers: []*config.Checker{{
			Kind: config.TCPCheck, Conn: config.Connection{Target: at, Timeout: time.Second},
			Schedule: config.Schedule{DelayLoop: 10 * time.Second, DelayBeforeRetry: time.Second, Warmup: 10 * time.Second, Rise: 1},
		}},
	}
}

// counting is a scheduler that runs nothing.
type counting struct {
	counts
	tasks map[checker.ID]checker.Task
}

type counts struct{ added, removed, updated, hurried int }

func (c *counting) Add(t checker.Task) {
	c.added++
	if c.tasks != nil {
		c.tasks[t.ID] = t
	}
}
func (c *counting) Remove(id checker.ID)   { c.removed++; delete(c.tasks, id) }
func (c *counting) Update(checker.Task)    { c.updated++ }
func (c *counting) RunNow(checker.ID)      { c.hurried++ }
func (c *counting) Overdue() time.Duration { return 0 }

// still is an engine that has started and does not run, over a table in memory.
func still(tb testing.TB, cfg *config.Config, sched Scheduler) (*Engine, *ipvstest.Table) {
	tb.Helper()
	table := ipvstest.New()
	table.KeepLog(false)
	e := New(Options{
		Dial:      func(context.Context) (apply.IPVS, error) { return table, nil },
		Probe:     func(*config.Config, *config.Checker) (checker.Probe, error) { return farmProbe{}, nil },
		Scheduler: sched, Files: fakeFiles{},
	})
	if err := e.Start(tb.Context(), cfg); err != nil {
		tb.Fatal(err)
	}
	for e.portions {
		e.turn(tb.Context())
	}
	return e, table
}

// BenchmarkMemory is what the engine holds for each real server, its scheduler and
// its table left out.
func BenchmarkMemory(b *testing.B) {
	for _, shape := range [][2]int{{1000, 10}, {1, 10000}} {
		b.Run(fmt.Sprintf("%dx%d", shape[0], shape[1]), func(b *testing.B) {
			cfg := many(shape[0], shape[1])
			for b.Loop() {
				before := heapBytes()
				e, table := still(b, cfg, &counting{})
				after := heapBytes()
				b.ReportMetric(float64(after-before)/float64(shape[0]*shape[1]), "bytes/server")
				runtime.KeepAlive(e)
				runtime.KeepAlive(table)
			}
		})
	}
}

// TestSizes: there is one of each for every real server. What makes them larger should
// be worth it ten thousand times.
func TestSizes(t *testing.T) {
	if n := unsafe.Sizeof(task{}); n > 96 {
		t.Errorf("a task has %d bytes", n)
	}
	if n := unsafe.Sizeof(run{}); n > 128 {
		t.Errorf("a run has %d bytes", n)
	}
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
