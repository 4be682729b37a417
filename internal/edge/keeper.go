package edge

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
)

const (
	// reconcile is how often everything is gone over unless Options says otherwise.
	reconcile = time.Minute
	// calm is how long after somebody else's first change the kernel is read.
	calm = 100 * time.Millisecond
	// firstPause and longestPause are those before a retry.
	firstPause, longestPause = time.Second, 30 * time.Second
)

// Options is what a Keeper works with.
type Options struct {
	Log *slog.Logger
	// Addresses and Filter open the machine, when there is something to do.
	Addresses func() (Addresses, error)
	Filter    func() (Filter, error)
	// Tell hears how the machine is after each pass. It must not wait for the Keeper.
	Tell func(Report)
	// Begin is called before the first write, and End when the last thing is gone: they
	// remember over a kill that there is something to be removed.
	Begin, End func() error
	// Leftover: the process before this one called Begin and not End.
	Leftover bool
	// Reconcile is how often everything is gone over, 0 for each minute.
	Reconcile time.Duration
}

// Keeper keeps the machine in step with the wishes of virtual servers.
type Keeper struct {
	Options

	mu sync.Mutex
	// pending is what was wished since the last pass, with the newest turn.
	pending Wishes
	waiting bool

	bell     chan struct{}   // something is pending
	rung     chan struct{}   // somebody else changed an address
	unheard  chan error      // a watch has ended
	releases chan chan error // who waits until all is done
	ended    chan struct{}

	// All below is Run's.

	ctx      context.Context
	goal     *aggregate
	nftables *config.NFTables
	turn     uint64
	known    bool // there have been wishes
	begun    bool
	leftover bool

	addresses Addresses
	unwatch   func()
	// synced: Addresses has read the kernel since it was opened.
	synced bool
	// placed is what Addresses was told last, held are those among it that wait for marks.
	placed map[netip.Addr]Place
	held   map[netip.Addr]bool
	// trouble is what could not be done, by address, and bound the addresses that are on
	// their devices, with their names.
	trouble map[netip.Addr]error
	bound   map[netip.Addr]string

	filter Filter
	// guarded and marking are what Filter has, and owed that it may have something else.
	guarded              *Guard
	marking              *Marking
	guardOwed, marksOwed bool

	repaired uint64
	// broken is why a feature as a whole does not work; failures is what was reported of
	// that and of trouble, and told what was logged.
	broken   map[string]error
	failures map[string]Failure
	told     map[string]string
	unnoted  bool // Begin or End has failed, and that was told
	pause    time.Duration
	retry    *time.Timer
	retrying bool // retry is set
	waiters  []chan error
}

// New returns a Keeper that does nothing before Run.
func New(o Options) *Keeper {
	if o.Reconcile <= 0 {
		o.Reconcile = reconcile
	}
	return &Keeper{
		Options: o,
		bell:    make(chan struct{}, 1), rung: make(chan struct{}, 1), unheard: make(chan error, 1),
		releases: make(chan chan error), ended: make(chan struct{}),
		goal: newAggregate(), begun: o.Leftover, leftover: o.Leftover,
		placed: map[netip.Addr]Place{}, held: map[netip.Addr]bool{}, trouble: map[netip.Addr]error{}, bound: map[netip.Addr]string{},
		broken: map[string]error{}, failures: map[string]Failure{}, told: map[string]string{}, pause: firstPause,
	}
}

// Wish leaves wishes to be worked on, in place of earlier ones of the same virtual
// servers. It does not wait.
func (k *Keeper) Wish(w Wishes) {
	k.mu.Lock()
	if k.pending.Changed == nil {
		k.pending.Changed = make(map[config.VSKey]*Wish, len(w.Changed))
	}
	maps.Copy(k.pending.Changed, w.Changed)
	k.pending.Turn, k.pending.NFTables, k.pending.Anew = w.Turn, w.NFTables, k.pending.Anew || w.Anew
	k.waiting = true
	k.mu.Unlock()
	ring(k.bell)
}

// ring leaves a ring unless one is there.
func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// take empties the inbox into the goal, and reports whether failures are to be tried anew.
func (k *Keeper) take() (anew bool) {
	k.mu.Lock()
	w, some := k.pending, k.waiting
	k.pending, k.waiting = Wishes{}, false
	k.mu.Unlock()
	if !some {
		return false
	}
	k.known, k.turn = true, w.Turn
	if old := k.nftables; (old == nil) != (w.NFTables == nil) || old != nil && *old != *w.NFTables {
		k.goal.remark = true
	}
	k.nftables = w.NFTables
	for key, wish := range w.Changed {
		k.goal.set(key, wish)
	}
	return w.Anew
}

// idle says whether nothing is pending.
func (k *Keeper) idle() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !k.waiting
}

// errEnded is what who waits hears when nobody works any more.
var errEnded = errors.New("virtual addresses and their guard: nobody works on them any more")

// Release waits until all that was wished before is done, with no failure left, or until
// the context ends. Run has to be running.
func (k *Keeper) Release(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case k.releases <- done:
	case <-k.ended:
		return errEnded
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Run works until the context ends. It leaves the machine as it is then.
func (k *Keeper) Run(ctx context.Context) {
	k.ctx = ctx
	defer k.end()
	minute := time.NewTicker(k.Reconcile)
	defer minute.Stop()
	k.retry = time.NewTimer(time.Hour)
	k.retry.Stop()
	defer k.retry.Stop()
	quiet := time.NewTimer(time.Hour)
	quiet.Stop()
	defer quiet.Stop()
	disturbed := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.bell:
			k.pass(scope{})
		case <-minute.C:
			k.watch()
			k.pass(scope{addresses: true, filter: true})
		case <-k.retry.C:
			k.retrying = false
			k.pass(scope{addresses: true, filter: true, retry: true})
		case <-k.rung:
			if !disturbed {
				disturbed = true
				quiet.Reset(calm)
			}
		case <-quiet.C:
			disturbed = false
			k.pass(scope{addresses: true})
		case err := <-k.unheard:
			k.deafen()
			k.Log.Warn("Changes that others make to addresses are not heard of, looking each minute instead", event.Key, event.VIPUnwatched, "err", err)
		case done := <-k.releases:
			k.waiters = append(k.waiters, done)
			k.release()
		}
	}
}

// release answers who waits, once there is nothing left to do.
func (k *Keeper) release() {
	if k.failing() || !k.idle() {
		return
	}
	for _, done := range k.waiters {
		done <- nil
	}
	k.waiters = nil
}

func (k *Keeper) end() {
	for _, done := range k.waiters {
		done <- errEnded
	}
	close(k.ended)
	k.shut()
}

// shut closes the machine and leaves it as it is.
func (k *Keeper) shut() {
	k.deafen()
	if k.addresses != nil {
		_ = k.addresses.Close()
		k.addresses, k.synced = nil, false
	}
	if k.filter != nil {
		_ = k.filter.Close()
		k.filter = nil
	}
}

// watch hears of what others change, if it does not yet.
func (k *Keeper) watch() {
	if k.addresses == nil || k.unwatch != nil {
		return
	}
	ctx, cancel := context.WithCancel(k.ctx)
	over := make(chan struct{})
	watched := k.addresses
	go func() {
		defer close(over)
		err := watched.Watch(ctx, func() { ring(k.rung) })
		select {
		case k.unheard <- err:
		case <-ctx.Done():
		}
	}()
	k.unwatch = func() {
		cancel()
		<-over
		select {
		case <-k.unheard: //nolint:errcheck // it was about this one
		default:
		}
	}
}

// deafen ends the watch, if there is one.
func (k *Keeper) deafen() {
	if k.unwatch != nil {
		k.unwatch()
		k.unwatch = nil
	}
}
