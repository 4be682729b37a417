package reactor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/tcp"
	"github.com/sluice-lb/sluice/internal/config"
)

// backend accepts and closes at once, on all addresses of 127/8.
func backend(t testing.TB) uint16 {
	l, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { l.Close(); <-done })
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

// loopback is the i-th of the addresses that are all this machine.
func loopback(i int) netip.Addr { return netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}) }

// BenchmarkReactorTCP is the cost of one check of a thousand targets, one after the
// other as fast as it goes, with that of the kernel and of the backend.
func BenchmarkReactorTCP(b *testing.B) {
	run := func(b *testing.B, r checker.Runner, end config.Close) {
		port := backend(b)
		ctx, stop := context.WithCancel(context.Background())
		var left atomic.Int64
		left.Store(int64(b.N))
		judge := func(o checker.Outcome) time.Duration {
			if o.Result != checker.OK {
				b.Error(o.Reason)
				stop()
			}
			if left.Add(-1) <= 0 {
				stop()
				return time.Hour
			}
			return 0
		}
		for i := range 1000 {
			c := &config.Checker{Kind: config.TCPCheck, Conn: config.Connection{
				Target: netip.AddrPortFrom(loopback(i), port), Timeout: 5 * time.Second, Close: end,
			}}
			r.Add(checker.Task{ID: checker.ID(i + 1), Probe: tcp.New(c), Judge: judge})
		}
		b.ReportAllocs()
		b.ResetTimer()
		if err := r.Run(ctx); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "checks/s")
	}
	for _, end := range []config.Close{config.CloseNormal, config.CloseReset} {
		b.Run(fmt.Sprintf("reactor/%v", end), func(b *testing.B) { run(b, New(Options{Limit: 256}), end) })
		b.Run(fmt.Sprintf("goroutines/%v", end), func(b *testing.B) { run(b, checker.NewScheduler(checker.Options{Limit: 256}), end) })
	}
}
