package engine

import (
	"net/netip"
	"testing"
	"testing/synctest"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/pkg/ipvs"
)

func (r *rig) wantTimeouts(want ipvs.Timeouts) {
	r.Helper()
	got, err := r.table.Timeouts(r.Context())
	if err != nil || got != want {
		r.Errorf("timeouts %+v, %v, want %+v", got, err, want)
	}
}

// TestTimeouts: set at start, changed and given back by reloads, restored at stop.
func TestTimeouts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		before, err := r.table.Timeouts(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		with := func(tcp, fin uint32) *config.Config {
			cfg := conf(1)
			cfg.Global.LVSTimeouts.TCP, cfg.Global.LVSTimeouts.TCPFin = tcp, fin
			return cfg
		}
		r.start(with(77, 0))
		r.wantTimeouts(ipvs.Timeouts{TCP: 77, TCPFin: before.TCPFin, UDP: before.UDP})
		r.reload(with(0, 5))
		r.wantTimeouts(ipvs.Timeouts{TCP: before.TCP, TCPFin: 5, UDP: before.UDP})
		r.reload(conf(1))
		r.wantTimeouts(before)
		r.reload(with(78, 0))
		r.stop(nil)
		r.wantTimeouts(before)
	})
}

// TestFlush: lvs_flush empties the table at the start of a process and never again;
// lvs_flush_on_stop at its end. Without them a stranger's service stays.
func TestFlush(t *testing.T) {
	for name, tt := range map[string]struct {
		flush       bool
		onStop      string
		began, left int
	}{
		"neither":           {false, "", 2, 1},
		"vs":                {false, "vs", 2, 1},
		"lvs_flush":         {true, "", 1, 0},
		"lvs_flush_on_stop": {false, "all", 2, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				foreign := ipvs.Service{ServiceKey: ipvs.ServiceKey{Family: ipvs.INET, Protocol: ipvs.TCP, Addr: netip.MustParseAddr("198.51.100.1"), Port: 80}, Scheduler: "rr"}
				if err := r.table.AddService(t.Context(), foreign); err != nil {
					t.Fatal(err)
				}
				services := func() int {
					ss, err := r.table.Services(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					return len(ss)
				}
				cfg := func() *config.Config {
					c := conf(1)
					c.Global.LVSFlush, c.Global.LVSFlushOnStop = tt.flush, tt.onStop
					return c
				}
				r.start(cfg())
				r.reload(cfg())
				if n := services(); n != tt.began {
					t.Errorf("%d services, want %d", n, tt.began)
				}
				r.want("1:1")
				r.stop(nil)
				if n := services(); n != tt.left {
					t.Errorf("%d services after the stop, want %d", n, tt.left)
				}
			})
		})
	}
}
