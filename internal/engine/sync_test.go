package engine

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

func (r *rig) wantSync(want string) {
	r.Helper()
	synctest.Wait()
	ds, err := r.table.SyncDaemons(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	var out []string
	for _, d := range ds {
		out = append(out, fmt.Sprintf("%s %s %d", d.State, d.Interface, d.SyncID))
	}
	if got := strings.Join(out, ", "); got != want {
		r.Errorf("sync daemons %q, want %q", got, want)
	}
}

func synced(state config.SyncState, id uint8) *config.Config {
	cfg := conf(1)
	cfg.Global.Sync = &config.SyncDaemon{Interface: "lo", ID: id, State: state}
	return cfg
}

// TestSyncDaemons: what the configuration asks for runs, through reloads, a crash
// and a stop; what runs as wanted is not touched.
func TestSyncDaemons(t *testing.T) {
	in(t, func(r *rig) {
		r.start(synced(config.SyncBoth, 7))
		r.wantSync("master lo 7, backup lo 7")
		started := strings.Count(r.logged(), "Sync daemon started")
		r.reload(synced(config.SyncBoth, 7))
		r.crash()
		r.start(synced(config.SyncBoth, 7))
		if n := strings.Count(r.logged(), "Sync daemon started"); n != started {
			t.Errorf("%d starts, %d before the reload and the crash", n, started)
		}
		r.reload(synced(config.SyncBackup, 7))
		r.pass(syncFlush)
		r.wantSync("backup lo 7")
		r.reload(synced(config.SyncMaster, 8))
		r.wantSync("master lo 8, backup lo 7")
		r.pass(syncFlush)
		r.wantSync("master lo 8")
		r.reload(synced(config.SyncOff, 8))
		r.wantSync("")
		r.reload(synced(config.SyncBoth, 8))
		r.reload(conf(1))
		r.wantSync("")
		r.reload(synced(config.SyncBoth, 9))
	})
}

func TestSyncDaemonsEndWithTheServices(t *testing.T) {
	for on, want := range map[config.OnStop]string{config.OnStopRemove: "", config.OnStopKeep: "backup lo 3"} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t)
			cfg := synced(config.SyncBackup, 3)
			cfg.Global.OnStop = on
			r.start(cfg)
			r.stop(nil)
			r.wantSync(want)
		})
	}
}

// TestForeignSyncDaemonStays: nobody asked for it to be ours.
func TestForeignSyncDaemonStays(t *testing.T) {
	in(t, func(r *rig) {
		if err := r.table.StartSyncDaemon(t.Context(), ipvs.SyncDaemon{State: ipvs.SyncBackup, Interface: "lo", SyncID: 1}); err != nil {
			t.Fatal(err)
		}
		r.start(conf(1))
		r.reload(conf(1, 2))
		r.wantSync("backup lo 1")
		// With lvs_sync_daemon leftovers go, as with keepalived.
		r.reload(synced(config.SyncMaster, 2))
		r.pass(syncFlush)
		r.wantSync("master lo 2")
	})
}

// TestSyncDaemonWaitsForItsInterface: services are served meanwhile, and the log
// says it once.
func TestSyncDaemonWaitsForItsInterface(t *testing.T) {
	in(t, func(r *rig) {
		cfg := synced(config.SyncMaster, 1)
		cfg.Global.Sync.Interface = "eth7"
		r.start(cfg)
		r.want("1:1")
		r.pass(5 * time.Minute)
		if n := strings.Count(r.logged(), "Global setting not applied"); n != 1 {
			t.Errorf("logged %d times\n%s", n, r.logged())
		}
		r.table.SetInterfaces(map[string]int{"eth7": 1500})
		r.pass(time.Minute)
		r.wantSync("master eth7 1")
	})
}

// followed is a configuration whose sync daemons a track file decides on.
func followed(id uint8) *config.Config {
	cfg := synced(config.SyncOff, id)
	cfg.Global.Sync.File = &config.TrackFileUse{Name: "vrrp"}
	cfg.TrackFiles = []*config.TrackFile{{Name: "vrrp", Path: "/run/vrrp"}}
	return cfg
}

func (r *rig) file(value int64) {
	r.Helper()
	r.onLoop(func() { r.files["vrrp"] = value })
	r.e.FileValue("vrrp", value)
}

// onLoop changes what the loop reads.
func (r *rig) onLoop(f func()) {
	r.Helper()
	if err := r.e.call(r.Context(), func(*Engine) { f() }); err != nil {
		r.Fatal(err)
	}
}

func (r *rig) half(state ipvs.SyncState) SyncHalf {
	r.Helper()
	synctest.Wait()
	s := r.e.Snapshot().Sync
	if s == nil {
		r.Fatal("no sync daemon in the snapshot")
	}
	return s.Halves[state-1]
}

// TestSyncDaemonFollowsATrackFile: a change of sides starts the new half at once, and the
// old one goes on until its last messages are through.
func TestSyncDaemonFollowsATrackFile(t *testing.T) {
	in(t, func(r *rig) {
		r.files["vrrp"] = 1
		r.start(followed(7))
		r.wantSync("master lo 7")
		r.file(0)
		r.wantSync("master lo 7, backup lo 7")
		r.pass(syncFlush - time.Millisecond)
		r.wantSync("master lo 7, backup lo 7")
		if h := r.half(ipvs.SyncMaster); h.Wanted || !h.Running {
			t.Errorf("the master that leaves is shown as %+v", h)
		}
		r.pass(time.Millisecond)
		r.wantSync("backup lo 7")
		// Back within that time: nothing is interrupted, and the clock begins anew.
		r.file(200)
		r.pass(syncFlush / 2)
		stops := strings.Count(r.logged(), "Sync daemon stopped")
		r.file(0)
		r.pass(syncFlush * 3 / 4)
		r.file(1)
		r.pass(syncFlush * 3 / 4)
		r.wantSync("master lo 7, backup lo 7")
		if n := strings.Count(r.logged(), "Sync daemon stopped"); n != stops {
			t.Errorf("%d stops while sides changed quickly", n-stops)
		}
		r.pass(syncFlush)
		r.wantSync("master lo 7")
		// A reload and a restart keep to the file.
		starts := strings.Count(r.logged(), "Sync daemon started")
		r.reload(followed(7))
		r.crash()
		r.start(followed(7))
		r.pass(time.Minute)
		r.wantSync("master lo 7")
		if n := strings.Count(r.logged(), "Sync daemon started"); n != starts {
			t.Errorf("%d starts by a reload and a restart", n-starts)
		}
	})
}

// TestSyncDaemonWithoutAnAnswer: what runs is left until the file holds a number, also
// when that is the one that it counted as before.
func TestSyncDaemonWithoutAnAnswer(t *testing.T) {
	in(t, func(r *rig) {
		r.start(followed(7))
		r.wantSync("")
		if !r.e.Snapshot().Sync.Undecided {
			t.Error("not shown")
		}
		r.onLoop(func() { r.files["vrrp"] = 0 }) // without an event: 0 it was
		r.pass(syncAwait)
		r.wantSync("backup lo 7")
		r.file(1)
		r.pass(syncFlush)
		r.wantSync("master lo 7")
		r.onLoop(func() { delete(r.files, "vrrp") })
		r.e.FileValue("vrrp", 0)
		r.pass(time.Minute)
		r.wantSync("master lo 7")
		r.crash()
		r.start(followed(7))
		r.pass(time.Minute)
		r.wantSync("master lo 7")
		if n := strings.Count(r.logged(), "Sync daemons left as they are"); n != 3 {
			t.Errorf("logged %d times, want once for each time", n)
		}
		if err := r.table.StopSyncDaemon(t.Context(), ipvs.SyncMaster); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Minute)
		r.wantSync("")
	})
}

// TestSyncDaemonStoppedByOthers: it is started again, and what cannot start is shown with
// the reason while the other half goes on.
func TestSyncDaemonStoppedByOthers(t *testing.T) {
	in(t, func(r *rig) {
		r.files["vrrp"] = 0
		r.start(followed(7))
		if err := r.table.StopSyncDaemon(t.Context(), ipvs.SyncBackup); err != nil {
			t.Fatal(err)
		}
		r.pass(syncLook)
		r.wantSync("backup lo 7")
		r.table.SetInterfaces(map[string]int{})
		r.file(1)
		r.pass(time.Minute)
		r.wantSync("backup lo 7")
		if h := r.half(ipvs.SyncMaster); !h.Wanted || h.Running || h.Error == "" || h.Interface != "lo" {
			t.Errorf("the master that cannot start is shown as %+v", h)
		}
		if h := r.half(ipvs.SyncBackup); h.Wanted || !h.Running || h.Error != "" {
			t.Errorf("the backup that goes on is shown as %+v", h)
		}
		r.table.SetInterfaces(map[string]int{"lo": 65536})
		r.pass(time.Minute)
		r.wantSync("master lo 7")
		if h := r.half(ipvs.SyncMaster); !h.Running || h.Error != "" || h.Port != 8848 || h.Group != "224.0.0.81" || h.SyncID != 7 {
			t.Errorf("the master is shown as %+v", h)
		}
	})
}

// TestSyncTraffic: the sockets' figures are read for who asks, of what runs alone and once
// a second at most.
func TestSyncTraffic(t *testing.T) {
	in(t, func(r *rig) {
		reads := 0
		r.sockets = func(d ipvs.SyncDaemon) ([]ipvs.SyncSocket, error) {
			reads++
			if d.State != ipvs.SyncBackup || d.Port != 8848 {
				t.Errorf("asked for %+v", d)
			}
			return []ipvs.SyncSocket{{Queue: 100, Drops: 3}, {Queue: 20, Drops: 4}}, nil
		}
		r.start(synced(config.SyncBackup, 1))
		for range 5 {
			if h := r.half(ipvs.SyncBackup); h.Traffic == nil || *h.Traffic != (SyncTraffic{2, 120, 7}) {
				t.Fatalf("traffic %+v", h.Traffic)
			}
			if h := r.half(ipvs.SyncMaster); h.Traffic != nil {
				t.Fatalf("one that does not run has traffic %+v", h.Traffic)
			}
		}
		if reads != 1 {
			t.Errorf("%d readings in a moment", reads)
		}
		r.pass(countersAge)
		if r.half(ipvs.SyncBackup); reads != 2 {
			t.Errorf("%d readings after a while, want 2", reads)
		}
	})
}
