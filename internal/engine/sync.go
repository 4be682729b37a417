package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

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

// syncDaemons makes the kernel's synchronisation daemons those of the configuration.
// One that runs with the wanted parameters is left alone, so that neither a reload
// nor a restart interrupts it; keepalived stops and starts it (facts 9.2). A daemon
// that is not wanted is stopped if it is ours: this process started it or took it
// over. Where lvs_sync_daemon stands, both states are.
func (e *Engine) syncDaemons(ctx context.Context) error {
	s, ok := e.conn.(syncer)
	want := wantedSync(e.config.Global.Sync)
	if !ok || len(want) == 0 && len(e.syncing) == 0 && e.config.Global.Sync == nil {
		return nil
	}
	running, err := s.SyncDaemons(ctx)
	if err != nil {
		return fmt.Errorf("lvs_sync_daemon: %w", err)
	}
	runs := map[ipvs.SyncState]ipvs.SyncDaemon{}
	for _, d := range running {
		runs[d.State] = d
	}
	var errs []error
	for _, state := range syncStates {
		errs = append(errs, e.syncDaemon(ctx, s, state, want, runs))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("lvs_sync_daemon: %w", err)
	}
	return nil
}

func (e *Engine) syncDaemon(ctx context.Context, s syncer, state ipvs.SyncState, want, runs map[ipvs.SyncState]ipvs.SyncDaemon) error {
	d, wanted := want[state]
	r, running := runs[state]
	if wanted && running && sameSync(d, r) {
		e.syncing[state] = true
		return nil
	}
	if running && (wanted || e.syncing[state] || e.config.Global.Sync != nil) {
		if err := s.StopSyncDaemon(ctx, state); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		e.log.Info("Sync daemon stopped", event.Key, event.SyncDaemon, "state", state.String(), "interface", r.Interface, "syncid", r.SyncID)
	}
	delete(e.syncing, state)
	if !wanted {
		return nil
	}
	if err := s.StartSyncDaemon(ctx, d); err != nil {
		return err
	}
	e.syncing[state] = true
	e.log.Info("Sync daemon started", event.Key, event.SyncDaemon, "state", state.String(), "interface", d.Interface, "syncid", d.SyncID)
	return nil
}

// wantedSync are the daemons that a configuration asks for, by their state.
func wantedSync(c *config.SyncDaemon) map[ipvs.SyncState]ipvs.SyncDaemon {
	if c == nil {
		return nil
	}
	d := ipvs.SyncDaemon{Interface: c.Interface, SyncID: uint32(c.ID), MaxLen: c.MaxLen, Port: c.Port, TTL: c.TTL, Group: c.Group}
	want := map[ipvs.SyncState]ipvs.SyncDaemon{}
	for _, state := range syncStates {
		if c.State == config.SyncBoth || c.State == config.SyncMaster && state == ipvs.SyncMaster || c.State == config.SyncBackup && state == ipvs.SyncBackup {
			d.State = state
			want[state] = d
		}
	}
	return want
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
