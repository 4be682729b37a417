package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

// syncer is what lvs_sync_daemon needs of a table. Both the kernel client and the
// table in memory have it.
type syncer interface {
	SyncDaemons(context.Context) ([]ipvs.SyncDaemon, error)
	StartSyncDaemon(context.Context, ipvs.SyncDaemon) error
	StopSyncDaemon(context.Context, ipvs.SyncState) error
}

var syncStates = []ipvs.SyncState{ipvs.SyncMaster, ipvs.SyncBackup}

// daemons are sync daemons by their state, of which each runs at most once.
type daemons map[ipvs.SyncState]ipvs.SyncDaemon

// How often the daemons are looked at that nothing is known to have changed, and how
// often while the track file that decides says nothing: it may begin with the number
// that it counted as before, which is no change that anybody is told of.
const (
	syncLook  = 30 * time.Second
	syncAwait = time.Second
)

// syncFlush is how long one that another has taken the place of goes on. A master sends
// what it has gathered after two seconds, which it looks for once a second, and throws it
// away when it is stopped; and the other director's backup has to be there still when that
// comes.
const syncFlush = 4 * time.Second

// syncDaemons makes the kernel's synchronisation daemons those of the configuration.
// One that runs with the wanted parameters is left alone, so that neither a reload
// nor a restart interrupts it; keepalived stops and starts it (facts 9.2). A daemon
// that is not wanted is stopped if it is ours: this process started it or took it
// over. Where lvs_sync_daemon stands, both states are.
//
// What is to run is started before what is not wanted any more is stopped, and that only
// when its last messages are through: the kernel has both at once, and neither of two
// directors that change sides misses any. If the start fails, what ran goes on meanwhile.
func (e *Engine) syncDaemons(ctx context.Context) error {
	s, ok := e.conn.(syncer)
	c := e.config.Global.Sync
	if !ok || c == nil && len(e.syncing) == 0 {
		e.syncs.forget(e)
		return nil
	}
	running, err := s.SyncDaemons(ctx)
	if err != nil {
		err = fmt.Errorf("lvs_sync_daemon: %w", err)
		e.syncs.refused(e, c, err)
		return err
	}
	runs := daemons{}
	for _, d := range running {
		runs[d.State] = d
	}
	want, undecided := e.wantedSync(c, runs)
	var errs []error
	failed := map[ipvs.SyncState]error{}
	for _, state := range syncStates {
		if d, wanted := want[state]; wanted {
			failed[state] = e.startSync(ctx, s, d, runs)
			errs = append(errs, failed[state])
		}
	}
	inPlace := errors.Join(errs...) == nil
	for _, state := range syncStates {
		r, running := runs[state]
		_, wanted := want[state]
		replaced := running && !wanted && len(want) > 0
		switch {
		case replaced && inPlace && !e.syncs.over(state):
			continue
		case !replaced || !inPlace:
			delete(e.syncs.leaving, state)
		}
		switch {
		case wanted || replaced && !inPlace:
		case !running:
			delete(e.syncing, state)
		case c != nil || e.syncing[state]:
			failed[state] = e.stopSync(ctx, s, r, runs)
			errs = append(errs, failed[state])
		}
	}
	e.syncs.found(e, c, undecided, want, runs, failed)
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("lvs_sync_daemon: %w", err)
	}
	return nil
}

// startSync has one run as wanted. runs is kept to what does.
func (e *Engine) startSync(ctx context.Context, s syncer, d ipvs.SyncDaemon, runs daemons) error {
	if r, running := runs[d.State]; running {
		if sameSync(d, r) {
			e.syncing[d.State] = true
			return nil
		}
		if err := e.stopSync(ctx, s, r, runs); err != nil {
			return err
		}
	}
	if err := s.StartSyncDaemon(ctx, d); err != nil {
		return err
	}
	e.syncing[d.State], runs[d.State] = true, d
	e.log.Info("Sync daemon started", event.Key, event.SyncDaemon, "state", d.State.String(), "interface", d.Interface, "syncid", d.SyncID)
	return nil
}

func (e *Engine) stopSync(ctx context.Context, s syncer, r ipvs.SyncDaemon, runs daemons) error {
	if err := s.StopSyncDaemon(ctx, r.State); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	delete(e.syncing, r.State)
	delete(runs, r.State)
	e.log.Info("Sync daemon stopped", event.Key, event.SyncDaemon, "state", r.State.String(), "interface", r.Interface, "syncid", r.SyncID)
	return nil
}

// knower is what can be asked of track files besides their values: a file that is not
// there, or holds no number, counts as 0 for weights, and must not be taken for an
// answer to which side this director is on.
type knower interface{ Known(trackFile string) bool }

// wantedSync are the daemons that a configuration asks for, by their state. If a track
// file decides and says nothing yet, they are those that run, and undecided says so.
func (e *Engine) wantedSync(c *config.SyncDaemon, runs daemons) (want daemons, undecided bool) {
	if c == nil {
		return nil, false
	}
	state := c.State
	if c.File != nil {
		state = config.SyncMaster
		if e.values[c.File.Name] == 0 {
			state = config.SyncBackup
		}
		k, ok := e.opts.Files.(knower)
		undecided = ok && !k.Known(c.File.Name)
	}
	d := ipvs.SyncDaemon{Interface: c.Interface, SyncID: uint32(c.ID), MaxLen: c.MaxLen, Port: c.Port, TTL: c.TTL, Group: c.Group}
	want = daemons{}
	for _, half := range syncStates {
		_, running := runs[half]
		asked := state == config.SyncBoth || state == config.SyncMaster && half == ipvs.SyncMaster || state == config.SyncBackup && half == ipvs.SyncBackup
		if undecided && running || !undecided && asked {
			d.State = half
			want[half] = d
		}
	}
	return want, undecided
}

// syncFile has the daemons looked at if a track file that changed decides on them.
func (e *Engine) syncFile(name string) {
	if c := e.config.Global.Sync; c != nil && c.File != nil && c.File.Name == name {
		e.globalsDue, e.globalsAt = true, time.Time{}
	}
}

// sameSync reports whether a daemon that runs is the wanted one. The kernel chooses
// and cuts message lengths, so one that was not asked for counts not.
func sameSync(want, runs ipvs.SyncDaemon) bool {
	want, runs = want.Canonical(), runs.Canonical()
	if want.MaxLen == 0 {
		runs.MaxLen = 0
	}
	return want == runs
}

// endSync stops the daemons that are ours.
func (e *Engine) endSync(ctx context.Context) error {
	s, ok := e.conn.(syncer)
	if !ok {
		return nil
	}
	var errs []error
	for _, state := range syncStates {
		if !e.syncing[state] {
			continue
		}
		if err := s.StopSyncDaemon(ctx, state); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, fmt.Errorf("lvs_sync_daemon: %w", err))
		}
	}
	clear(e.syncing)
	return errors.Join(errs...)
}
