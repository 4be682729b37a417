package lane

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/config"
)

// A setting is noted before it is made, and is as it was once no lane needs its device:
// in a later process too, and not if somebody has changed it since.
func TestSettingsArePutBack(t *testing.T) {
	set := sysctls{"all.rp_filter": "1", "eth1.accept_local": "1"}
	var noted []Setting
	options := func() Options {
		return Options{Before: true, settings: set, Manage: func() bool { return true }, Made: noted, Remember: func(made []Setting) error {
			for _, s := range made {
				if now, _ := set.read(s.Device, s.Name); len(made) > len(noted) && s == made[len(made)-1] && now != s.Was {
					t.Errorf("%v is noted when it is %s already", s, now)
				}
			}
			noted = made
			return nil
		}}
	}
	k := fresh(t)
	must(t, k.keeper(options()).Sync(t.Context(), []Lane{drLane(1, "10.0.0.11")}))
	want := []Setting{{"eth0", "accept_local", "0", "1"}, {"eth0", "rp_filter", "0", "2"}}
	if diff := cmp.Diff(want, noted); diff != "" {
		t.Error(diff)
	}
	// Killed. Somebody sets one back, which is mended, and the next process has a lane more.
	set["eth0.accept_local"] = "0"
	keeper := k.keeper(options())
	must(t, keeper.Sync(t.Context(), []Lane{drLane(1, "10.0.0.11"), drLane(2, "10.0.0.12")}))
	if diff := cmp.Diff(want, noted); diff != "" || set["eth0.accept_local"] != "1" {
		t.Error(diff, set)
	}
	// While the way is not known nothing is.
	k.ways[drLane(1, "10.0.0.11").Server] = way{err: errHere}
	must(t, keeper.Sync(t.Context(), []Lane{drLane(1, "10.0.0.11")}))
	if set["eth0.accept_local"] != "1" {
		t.Error("put back too early")
	}
	set["eth0.rp_filter"] = "0"
	must(t, keeper.Sync(t.Context(), nil))
	if set["eth0.accept_local"] != "0" || set["eth0.rp_filter"] != "0" || set["eth1.accept_local"] != "1" || len(noted) != 0 {
		t.Errorf("%v, noted %v", set, noted)
	}
}

func TestNothingIsSetUnlessItCanBeNoted(t *testing.T) {
	set, broken := sysctls{}, errors.New("disk full")
	keeper := fresh(t).keeper(Options{settings: set, Manage: func() bool { return true }, Remember: func([]Setting) error { return broken }})
	_ = keeper.Sync(t.Context(), []Lane{drLane(1, "10.0.0.11")})
	if err := keeper.Err(config.ViaMark+1, false); !errors.Is(err, broken) || set["eth0.accept_local"] != "" {
		t.Errorf("%v, %v", err, set)
	}
}

// A server's new way is taken within seconds, though no bell rings for a route of
// somebody else's; and while nothing changes the kernel is asked for ways only.
func TestWayIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := fresh(t)
		keeper := k.keeper(Options{settings: sysctls{"all.accept_local": "1"}, watch: func(ctx context.Context, _ chan<- struct{}) error {
			<-ctx.Done()
			return ctx.Err()
		}})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- keeper.Run(ctx, func(err error) { t.Error(err) }) }()
		l := drLane(1, "10.0.0.11")
		must(t, keeper.Sync(ctx, []Lane{l}))
		k.log = nil
		device := func() string {
			keeper.mu.Lock()
			defer keeper.mu.Unlock()
			for _, r := range k.routes {
				if r.metric == metric {
					return r.device
				}
			}
			return ""
		}
		<-time.After(3 * glance)
		synctest.Wait()
		if k.reads != 1 {
			t.Errorf("%d times all was read", k.reads)
		}
		w, _ := k.way(l.Server)
		w.device = "eth1"
		keeper.mu.Lock()
		k.ways[l.Server] = w
		keeper.mu.Unlock()
		<-time.After(2 * glance)
		synctest.Wait()
		if got := device(); got != "eth1" {
			t.Errorf("by %s", got)
		}
		keeper.mu.Lock()
		k.ways[l.Server] = way{err: errors.New("there is no route to it")}
		keeper.mu.Unlock()
		<-time.After(2 * glance)
		synctest.Wait()
		if keeper.Err(l.Mark, false) == nil {
			t.Error("works without a route")
		}
		cancel()
		<-done
	})
}
