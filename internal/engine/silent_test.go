package engine

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/apply"
	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// answerTime is what the kernel client gives an answer.
const answerTime = 5 * time.Second

// silent is a connection whose kernel answers until silence is set. It waits as the
// client does: no longer than answerTime and its context.
type silent struct {
	*ipvstest.Table
	silence *atomic.Bool
	closed  atomic.Bool
}

func (s *silent) wait(ctx context.Context) error {
	if s.closed.Load() {
		return os.ErrClosed
	}
	if !s.silence.Load() {
		return nil
	}
	select {
	case <-time.After(answerTime):
		return fmt.Errorf("no answer from the kernel: %w", os.ErrDeadlineExceeded)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *silent) Close() error { s.closed.Store(true); return nil }

func (s *silent) AddDest(ctx context.Context, v ipvs.Service, d ipvs.Destination) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.Table.AddDest(ctx, v, d)
}

func (s *silent) DelDest(ctx context.Context, v ipvs.Service, d ipvs.Destination) error {
	if err := s.wait(ctx); err != nil {
		return err
	}
	return s.Table.DelDest(ctx, v, d)
}

func (s *silent) Batch(ctx context.Context, ops []ipvs.Op) []error {
	if err := s.wait(ctx); err != nil {
		errs := make([]error, len(ops))
		for i := range errs {
			errs[i] = err
		}
		return errs
	}
	return s.Table.Batch(ctx, ops)
}

func (s *silent) Services(ctx context.Context) ([]ipvs.ServiceInfo, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Table.Services(ctx)
}

func (s *silent) Destinations(ctx context.Context, k ipvs.ServiceKey) ([]ipvs.DestinationInfo, error) {
	return s.AppendDestinations(ctx, nil, k)
}

func (s *silent) AppendDestinations(ctx context.Context, buf []ipvs.DestinationInfo, k ipvs.ServiceKey) ([]ipvs.DestinationInfo, error) {
	if err := s.wait(ctx); err != nil {
		return nil, err
	}
	return s.Table.AppendDestinations(ctx, buf, k)
}

// TestO08AKernelThatDoesNotAnswer: a connection on which one request is never answered
// is given up at its deadline and replaced, and what was asked is asked again on the
// new one. Meanwhile whoever reads is answered, and is told how old the last success is.
func TestO08AKernelThatDoesNotAnswer(t *testing.T) {
	in(t, func(r *rig) {
		var (
			mu  sync.Mutex
			all []*silent
		)
		made := func() []*silent {
			mu.Lock()
			defer mu.Unlock()
			return slices.Clone(all)
		}
		var silence atomic.Bool // of the first connection, for ever
		r.connect = func(context.Context) (apply.IPVS, error) {
			mu.Lock()
			defer mu.Unlock()
			c := &silent{Table: r.table, silence: new(atomic.Bool)}
			if len(all) == 0 {
				c.silence = &silence
			}
			all = append(all, c)
			return c, nil
		}
		r.start(conf(1, 2))
		r.pass(30 * time.Second)
		r.want("1:1 2:1")
		good := r.e.Overview().Kernel.LastSuccess
		if good.IsZero() || len(made()) != 1 {
			t.Fatalf("last success %v, %d connections", good, len(made()))
		}
		silence.Store(true)
		r.farm.set(2, checker.Failed, "refused")
		// The check fails within its delay_loop of 10 s, then the kernel is waited for.
		for range 14 {
			r.pass(time.Second)
			begun := time.Now()
			s := r.e.Overview()
			if took := time.Since(begun); took != 0 {
				t.Fatalf("a scrape took %v", took)
			}
			if len(made()) == 1 && s.Kernel.LastSuccess.After(good.Add(10*time.Second)) {
				t.Errorf("last success is %v, it was %v", s.Kernel.LastSuccess, good)
			}
		}
		r.pass(10 * time.Second)
		r.want("1:1")
		s, conns := r.e.Overview(), made()
		if len(conns) != 2 || !conns[0].closed.Load() || conns[1].closed.Load() {
			t.Errorf("%d connections, the first closed: %v", len(conns), conns[0].closed.Load())
		}
		if !s.Kernel.OK || s.Kernel.Errors != 1 || !s.Kernel.LastSuccess.After(good) {
			t.Errorf("%+v", s.Kernel)
		}
		// The wait is in the verdict's way to the kernel.
		if h := s.Measured.VerdictToKernel; h.Count() == 0 || h.Sum < answerTime {
			t.Errorf("verdicts took %v", h.Sum)
		}
	})
}

// TestO08TheLastSuccessAges while no connection answers, and the loop goes on.
func TestO08TheLastSuccessAges(t *testing.T) {
	in(t, func(r *rig) {
		var silence atomic.Bool
		var dialled atomic.Int32
		r.connect = func(context.Context) (apply.IPVS, error) {
			dialled.Add(1)
			return &silent{Table: r.table, silence: &silence}, nil
		}
		r.start(conf(1, 2))
		r.pass(30 * time.Second)
		silence.Store(true)
		r.farm.set(2, checker.Failed, "refused")
		r.pass(10 * time.Minute)
		s := r.e.Overview()
		if age := s.At.Sub(s.Kernel.LastSuccess); age < 9*time.Minute || s.Kernel.OK || !strings.Contains(s.Kernel.Error, "no answer") {
			t.Errorf("last success %v ago, %+v", age, s.Kernel)
		}
		// Each attempt waits 5 s, and the pauses grow to 30 s.
		if n := dialled.Load(); n < 10 || n > 40 {
			t.Errorf("connected %d times in ten minutes", n)
		}
		if s.VirtualServers[0].Alive != 1 {
			t.Errorf("the verdict was not taken up: %+v", s.VirtualServers[0])
		}
		silence.Store(false)
		r.pass(time.Minute)
		r.want("1:1")
		if s := r.e.Overview(); !s.Kernel.OK || s.At.Sub(s.Kernel.LastSuccess) > time.Minute {
			t.Errorf("%+v", s.Kernel)
		}
	})
}

// TestO08StatusIsBounded: one that reads a kernel that is silent says so after 5 s, also
// to those that come while it waits, and reads by another connection the next time.
func TestO08StatusIsBounded(t *testing.T) {
	in(t, func(r *rig) {
		var silence atomic.Bool
		var readers atomic.Int32
		r.read = func(context.Context) (Reader, error) {
			readers.Add(1)
			return &silent{Table: r.table, silence: &silence}, nil
		}
		cfg := conf(1, 2)
		for port := uint16(1); port <= 20; port++ {
			more, at := *cfg.VirtualServers[0], netip.AddrPortFrom(vip.Addr(), port)
			more.Key.Addr, more.Entries = at, []config.Entry{{Addr: at, Family: config.IPv4}}
			cfg.VirtualServers = append(cfg.VirtualServers, &more)
		}
		r.start(cfg)
		r.pass(30 * time.Second)
		if s := r.e.Status(r.Context()); s.Kernel.Error != "" || readers.Load() != 1 {
			t.Fatalf("%+v, %d connections", s.Kernel, readers.Load())
		}
		silence.Store(true)
		const clients = 10
		took, told := make(chan time.Duration, clients), make(chan *Snapshot, clients)
		for range clients {
			go func() {
				begun := time.Now()
				s := r.e.StatusForeign(r.Context())
				took <- time.Since(begun)
				told <- s
			}()
		}
		synctest.Wait()
		for range clients {
			if d := <-took; d > 5*time.Second {
				t.Errorf("status took %v", d)
			}
			if s := <-told; s.Kernel.Error == "" || s.Foreign.Error == "" || len(s.VirtualServers) != 21 || len(s.VirtualServers[0].RealServers) != 2 {
				t.Errorf("%+v, foreign %+v, %d virtual servers", s.Kernel, s.Foreign, len(s.VirtualServers))
			}
		}
		silence.Store(false)
		before := readers.Load()
		if s := r.e.Status(r.Context()); s.Kernel.Error != "" || readers.Load() != before+1 {
			t.Errorf("%+v, %d connections, were %d", s.Kernel, readers.Load(), before)
		}
	})
}
