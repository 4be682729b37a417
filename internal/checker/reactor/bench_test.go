package reactor

import (
	"context"
	"fmt"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/tcp"
	"github.com/sluice-lb/sluice/internal/config"
)

// backend accepts and closes at once, on all addresses of 127/8, and allocates
// nothing for it.
func backend(t testing.TB) uint16 {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrInet4{})
	}
	if err == nil {
		err = unix.Listen(fd, 4096)
	}
	if err != nil {
		t.Fatal(err)
	}
	own, err := unix.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, _, errno := syscall.Syscall6(unix.SYS_ACCEPT4, uintptr(fd), 0, 0, unix.SOCK_CLOEXEC, 0, 0)
			switch errno {
			case 0:
				unix.Close(int(c))
			case unix.EINVAL: // shut down
				return
			}
		}
	}()
	t.Cleanup(func() {
		unix.Shutdown(fd, unix.SHUT_RDWR) // accept does not return then, and the test shows it
		<-done
		unix.Close(fd)
	})
	return uint16(own.(*unix.SockaddrInet4).Port)
}

// loopback is the i-th of the addresses that are all this machine.
func loopback(i int) netip.Addr { return netip.AddrFrom4([4]byte{127, 1, byte(i >> 8), byte(i)}) }

// crowd gives a runner n targets that are asked again and again, and calls after
// with the number of each run.
func crowd(t testing.TB, r checker.Runner, n int, end config.Close, after func(int)) {
	port := backend(t)
	runs := 0
	judge := func(o checker.Outcome) time.Duration {
		if o.Result != checker.OK {
			t.Error(o.Reason)
		}
		runs++
		after(runs)
		return 0
	}
	for i := range n {
		c := &config.Checker{Kind: config.TCPCheck, Conn: config.Connection{
			Target: netip.AddrPortFrom(loopback(i), port), Timeout: 20 * time.Second, Close: end,
		}}
		r.Add(checker.Task{ID: checker.ID(i + 1), Probe: tcp.New(c), Timeout: 20 * time.Second, Judge: judge})
	}
}

// The regression guard: what a check may cost. A check allocates nothing, and makes
// five system calls and its part of a wait, four with a full handshake, or two where
// sockets are used again.
func TestCheckCostsNoAllocationAndFewSystemCalls(t *testing.T) {
	const warm, n, limit = 4000, 8000, 1000
	for end, most := range map[config.Close]float64{config.CloseNormal: 5.5, config.CloseFull: 4.5, config.CloseReset: 2.6} {
		k := must(newKernel())
		l := newLoop(Options{Limit: limit}, k)
		// What is kept of a connection is made when more are open at once than ever
		// before, and how many that are is up to the backend's share of the CPUs.
		for i := range limit {
			made := &link{tag: tag{index: uint32(i)}, fd: -1}
			l.links, l.free = append(l.links, made), append(l.free, made)
		}
		ctx, stop := context.WithCancel(context.Background())
		var before, after runtime.MemStats
		var calls uint64
		crowd(t, l, 500, end, func(run int) {
			switch run {
			case warm:
				runtime.ReadMemStats(&before)
				calls = k.calls
			case warm + n:
				calls = k.calls - calls
				runtime.ReadMemStats(&after)
				stop()
			}
		})
		if err := l.Run(ctx); err != nil {
			t.Fatal(err)
		}
		stop()
		// The test's own runtime allocates a little at times.
		if allocs := after.Mallocs - before.Mallocs; allocs > n/100 {
			t.Errorf("%v: %d allocations for %d checks", end, allocs, n)
		}
		if each := float64(calls) / n; each > most {
			t.Errorf("%v: %.2f system calls for each check, %v at most", end, each, most)
		}
		t.Logf("%v: %d allocations, %.2f system calls for each of %d checks", end, after.Mallocs-before.Mallocs, float64(calls)/n, n)
	}
}

// BenchmarkReactorTCP is the cost of one check of a thousand targets, one after the
// other as fast as it goes, with that of the kernel and of the backend.
func BenchmarkReactorTCP(b *testing.B) {
	for _, end := range []config.Close{config.CloseNormal, config.CloseFull, config.CloseReset} {
		for name, r := range map[string]func() checker.Runner{
			"reactor":    func() checker.Runner { return New(Options{Limit: 256}) },
			"goroutines": func() checker.Runner { return checker.NewScheduler(checker.Options{Limit: 256}) },
		} {
			b.Run(fmt.Sprintf("%s/%v", name, end), func(b *testing.B) {
				ctx, stop := context.WithCancel(context.Background())
				r := r()
				crowd(b, r, 1000, end, func(run int) {
					if run == b.N {
						stop()
					}
				})
				b.ReportAllocs()
				b.ResetTimer()
				if err := r.Run(ctx); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "checks/s")
			})
		}
	}
}

// BenchmarkTurn is what the loop itself costs: a check of ten thousand in a
// simulation, whose part is small.
func BenchmarkTurn(b *testing.B) {
	w := newWorld(b, Options{})
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	n := 0
	for i := range 10000 {
		w.Add(checker.Task{ID: checker.ID(i), Probe: to(i, time.Second), First: checker.Spread(checker.ID(i), time.Second), Judge: func(checker.Outcome) time.Duration {
			if n++; n == b.N {
				stop()
			}
			return time.Second
		}})
	}
	b.ReportAllocs()
	b.ResetTimer()
	if err := w.Run(ctx); err != nil {
		b.Fatal(err)
	}
}
