package lane

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// What somebody takes away is put back: soon after the bell, and without one within the
// minute.
func TestRepair(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k, bell := fresh(t), make(chan struct{})
		keeper := k.keeper(Options{watch: func(ctx context.Context, ring chan<- struct{}) error {
			for {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-bell:
					ring <- struct{}{}
				}
			}
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- keeper.Run(ctx, func(err error) { t.Error(err) }) }()
		must(t, keeper.Sync(ctx, []Lane{drLane(1, "10.0.0.11")}))
		synctest.Wait()
		whole := k.sorted()
		for _, within := range []time.Duration{2 * calm, 2 * interval} {
			keeper.mu.Lock()
			k.routes = k.routes[1:] // the way; what forbids stays
			keeper.mu.Unlock()
			if within < interval {
				bell <- struct{}{}
			}
			<-time.After(within)
			synctest.Wait()
			if diff := equal(whole, k.sorted()); diff != "" {
				t.Errorf("within %v: %s", within, diff)
			}
		}
		cancel()
		if err := <-done; err != context.Canceled {
			t.Error(err)
		}
	})
}
