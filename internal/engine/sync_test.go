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
		r.wantSync("backup lo 7")
		r.reload(synced(config.SyncMaster, 8))
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
