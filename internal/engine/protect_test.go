package engine

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

func floorConf(floor config.Floor, servers ...int) *config.Config {
	cfg := conf(servers...)
	cfg.VirtualServers[0].MinAlive = floor
	return cfg
}

var half = config.Floor{Percent: 50}

// fail has the given servers' checks fail, one after the other.
func (r *rig) fail(servers ...int) {
	r.Helper()
	for _, n := range servers {
		r.farm.set(n, checker.Failed, "connection refused")
		r.pass(10 * time.Second)
	}
}

func (r *rig) mend(servers ...int) {
	r.Helper()
	for _, n := range servers {
		r.farm.set(n, checker.OK, "")
		r.pass(10 * time.Second)
	}
}

// states are the states of the first virtual server's real servers.
func (r *rig) states() string {
	r.Helper()
	var out []string
	for _, rs := range r.e.Snapshot().VirtualServers[0].RealServers {
		out = append(out, string(rs.State))
	}
	return strings.Join(out, " ")
}

// atFloor checks the alarm: in the snapshot, and how often the log has told of its
// begin and end.
func (r *rig) atFloor(want bool, begun, ended int) {
	r.Helper()
	log := r.logged()
	if vs := r.e.Snapshot().VirtualServers[0]; vs.AtFloor != want || vs.FloorSince.IsZero() == want {
		r.Errorf("at the floor: %t since %v, want %t", vs.AtFloor, vs.FloorSince, want)
	}
	b, e := 0, 0
	for line := range strings.Lines(log) {
		if strings.Contains(line, "level=ERROR") && strings.Contains(line, "is at its floor") {
			b++
		}
		if strings.Contains(line, "level=INFO") && strings.Contains(line, "is off its floor") {
			e++
		}
	}
	if b != begun || e != ended {
		r.Errorf("the log tells of %d begins and %d ends, want %d and %d:\n%s", b, e, begun, ended, log)
	}
}

// TestFloor: two of four stay, those that failed last; their notify_down is not run,
// and what they hold is not lost.
func TestFloor(t *testing.T) {
	in(t, func(r *rig) {
		r.start(floorConf(half, 1, 2, 3, 4))
		r.pass(30 * time.Second)
		r.fail(1, 2)
		r.want("3:1 4:1")
		r.atFloor(false, 0, 0)
		r.writes()
		r.fail(3, 4)
		r.want("3:1 4:1")
		if n := r.writes(); n != 0 {
			t.Errorf("%d writes for servers that stay", n)
		}
		r.atFloor(true, 1, 0)
		if got := r.states(); got != "down down kept kept" {
			t.Error(got)
		}
		vs := r.e.Snapshot().VirtualServers[0]
		if rs := vs.RealServers[2]; rs.Reason != "failed, kept by min_alive: TCP_CHECK: connection refused" || vs.MinAlive != 2 || !vs.QuorumUp || vs.Alive != 2 {
			t.Errorf("%+v", vs)
		}
		for _, n := range r.notes {
			if n.Kind == QuorumDown || n.Kind == RealServerDown && (strings.Contains(n.RS, "0.3") || strings.Contains(n.RS, "0.4")) {
				t.Errorf("told of %+v", n)
			}
		}
		r.mend(1)
		r.want("1:1 4:1")
		r.atFloor(true, 1, 0)
		r.mend(4)
		r.atFloor(false, 1, 1)
		r.mend(2, 3)
		r.want("1:1 2:1 3:1 4:1")
		if got := r.states(); got != "up up up up" {
			t.Error(got)
		}
	})
}

// TestQ09FloorHoldsOnReloadAndAtStart is the incident: at the floor with all checks
// failing, an unrelated reload adds a server, and later the daemon is restarted. The
// first checks after each must not take out what the floor keeps.
func TestQ09FloorHoldsOnReloadAndAtStart(t *testing.T) {
	for name, prepare := range map[string]func(*config.Config) *config.Config{
		"plain": func(c *config.Config) *config.Config { return c },
		"inhibit": func(c *config.Config) *config.Config {
			return each(c, func(rs *config.RealServer) { rs.Inhibit = true })
		},
		"alpha": func(c *config.Config) *config.Config {
			return each(c, func(rs *config.RealServer) { rs.Checkers[0].Alpha = true })
		},
		"sorry server": func(c *config.Config) *config.Config {
			c.VirtualServers[0].Sorry = &config.SorryServer{Key: config.RSKey{AddrPort: netip.MustParseAddrPort(target(9))}, Forward: config.Forwarding{Method: config.NAT}}
			return c
		},
	} {
		t.Run(name, func(t *testing.T) {
			// The newcomer is trusted, so that its first check is its failure; with
			// alpha it has never been good, and 2 comes back and not it.
			kept := "3:1 4:1 5:1"
			if name == "alpha" {
				kept = "2:1 3:1 4:1"
			}
			in(t, func(r *rig) {
				r.start(prepare(floorConf(half, 1, 2, 3, 4)))
				r.pass(30 * time.Second)
				r.fail(1, 2, 3, 4)
				serves := func(want string) {
					t.Helper()
					var got []string
					for d := range strings.FieldsSeq(r.content()) {
						if !strings.HasSuffix(d, ":0") {
							got = append(got, d)
						}
					}
					if strings.Join(got, " ") != want {
						t.Errorf("in service are %q, want %q", got, want)
					}
				}
				serves("3:1 4:1")
				r.farm.set(5, checker.Failed, "connection refused")
				r.reload(prepare(floorConf(half, 1, 2, 3, 4, 5)))
				r.pass(time.Minute)
				serves(kept)
				r.atFloor(true, 1, 0)
				// Another unrelated change, and the same file.
				for range 2 {
					r.writes()
					r.reload(prepare(floorConf(half, 1, 2, 3, 4, 5)))
					r.pass(time.Minute)
					if n := r.writes(); n != 0 {
						t.Errorf("%d writes", n)
					}
				}
				r.crash()
				r.start(prepare(floorConf(half, 1, 2, 3, 4, 5)))
				serves(kept)
				r.pass(time.Minute)
				serves(kept)
				r.atFloor(true, 2, 0)
				// The checks' definition changes: still nobody is let go.
				r.reload(each(prepare(floorConf(half, 1, 2, 3, 4, 5)), func(rs *config.RealServer) { rs.Checkers[0].Conn.BindPort = 99 }))
				r.pass(time.Minute)
				serves(kept)
				r.stop(nil)

				// A cold start with an empty table.
				r.start(prepare(floorConf(half, 1, 2, 3, 4, 5)))
				r.pass(time.Minute)
				if n := len(strings.Fields(r.content())) - strings.Count(r.content(), ":0"); n != 3 {
					t.Errorf("after a cold start the table holds %q", r.content())
				}
				r.atFloor(true, 3, 0)
			})
		})
	}
}

// TestQ10FloorCountsDisabledServersAsOut: 4 servers, floor 50 %, one is disabled by
// its weight and one by a file; one fails. It stays in and is marked so.
func TestQ10FloorCountsDisabledServersAsOut(t *testing.T) {
	in(t, func(r *rig) {
		cfg := floorConf(half, 1, 2, 3, 4)
		rs := cfg.VirtualServers[0].RealServers
		rs[0].Weight = 0
		rs[1].TrackFiles = []config.TrackFileUse{{Name: "m"}}
		cfg.TrackFiles = []*config.TrackFile{{Name: "m", Path: "/run/m"}}
		r.files["m"] = 1
		r.start(cfg)
		r.pass(30 * time.Second)
		r.fail(3)
		r.want("1:0 2:0 3:1 4:1")
		if got := r.states(); got != "maintenance maintenance kept up" {
			t.Error(got)
		}
		r.atFloor(true, 1, 0)
		r.fail(4, 1, 2)
		r.want("2:0 3:1 4:1")
		// The drain ends: 2 is bad too, and stays out.
		r.e.FileValue("m", 0)
		r.pass(time.Second)
		r.want("3:1 4:1")
		r.mend(3)
		r.want("3:1 4:1")
		r.mend(4)
		r.want("3:1 4:1")
		r.atFloor(false, 1, 1)
		// A drain takes one of the good ones: a failed one comes back for it.
		r.e.FileValue("m", 1)
		r.pass(time.Second)
		r.mend(2)
		r.e.FileValue("m", 0)
		r.pass(time.Second)
		r.want("2:1 3:1 4:1")
	})
}

// TestFloorBringsBack: a drain of a good server at the floor brings the one that
// failed last back, and its return lets that one go.
func TestFloorBringsBack(t *testing.T) {
	in(t, func(r *rig) {
		cfg := floorConf(config.Floor{Servers: 1}, 1, 2)
		cfg.VirtualServers[0].RealServers[1].TrackFiles = []config.TrackFileUse{{Name: "m"}}
		cfg.TrackFiles = []*config.TrackFile{{Name: "m", Path: "/run/m"}}
		each(cfg, func(rs *config.RealServer) { rs.SMTPAlert = true })
		r.start(cfg)
		r.pass(30 * time.Second)
		r.fail(1)
		r.want("2:1")
		r.notes = nil
		r.e.FileValue("m", 1)
		r.pass(time.Second)
		r.want("1:1 2:0")
		r.e.FileValue("m", 0)
		r.pass(time.Second)
		r.want("2:1")
		var told []string
		for _, n := range r.notes {
			told = append(told, n.RS+" "+n.Mail)
		}
		if want := []string{"[10.0.0.1]:tcp:80 " + mailKept, "[10.0.0.1]:tcp:80 " + mailReleased}; !slices.Equal(told, want) {
			t.Errorf("told %q, want %q", told, want)
		}
	})
}

// TestFloorLetsUnverifiedServersGoGently: a kept server whose failing check a reload
// replaced has not failed the new one; when others take over it drains.
func TestFloorLetsUnverifiedServersGoGently(t *testing.T) {
	in(t, func(r *rig) {
		r.start(floorConf(config.Floor{Servers: 1}, 1, 2))
		r.pass(30 * time.Second)
		r.fail(1, 2)
		r.want("2:1")
		r.connections(2, 3)
		r.farm.delay = 500 * time.Millisecond
		r.farm.set(1, checker.OK, "")
		r.farm.set(2, checker.Unable, "no socket")
		r.reload(each(floorConf(config.Floor{Servers: 1}, 1, 2), func(rs *config.RealServer) { rs.Checkers[0].Conn.BindPort = 99 }))
		r.want("2:1")
		if got := r.states(); got != "unverified kept" {
			t.Error(got)
		}
		r.pass(time.Second)
		r.want("1:1 2:0")
		r.atFloor(false, 1, 1)
	})
}

// TestSlowStart: the weight grows in ten steps, driven by the loop's own timer; the
// quorum counts the whole weight from the first moment.
func TestSlowStart(t *testing.T) {
	slow := func(servers ...int) *config.Config {
		cfg := each(conf(servers...), func(rs *config.RealServer) { rs.Weight, rs.SlowStart = 100, 100*time.Second })
		cfg.VirtualServers[0].Quorum = 200
		return cfg
	}
	in(t, func(r *rig) {
		r.start(slow(1, 2))
		r.want("1:100 2:100")
		r.pass(30 * time.Second)
		r.fail(1)
		r.want("2:100")
		r.farm.set(1, checker.OK, "")
		for r.content() == "2:100" {
			r.pass(time.Second)
		}
		r.want("1:10 2:100")
		vs := r.e.Snapshot().VirtualServers[0]
		if vs.Alive != 200 || !vs.QuorumUp || vs.RealServers[0].RisesUntil.IsZero() || !vs.RealServers[1].RisesUntil.IsZero() || vs.RealServers[0].WeightWanted != 10 {
			t.Errorf("%+v", vs)
		}
		r.writes()
		r.pass(10 * time.Second)
		r.want("1:19 2:100")
		// A reload goes on with it, and what it adds starts slowly after its check.
		r.reload(slow(1, 2, 3))
		r.pass(time.Second)
		r.want("1:19 2:100 3:10")
		r.pass(70 * time.Second)
		r.want("1:82 2:100 3:73")
		r.pass(time.Minute)
		r.want("1:100 2:100 3:100")
		if n := r.writes(); n != 10+1+10 {
			t.Errorf("%d writes for ten steps of two servers", n)
		}
		if log := r.logged(); strings.Count(log, `"Slow start over"`) != 2 || strings.Count(log, `msg="Slow start"`) != 2 {
			t.Errorf("the log:\n%s", log)
		}
		// The only one rises at once.
		r.fail(1, 2, 3)
		r.want("")
		r.mend(2)
		r.want("2:100")
	})
}

// TestFlapDamping: the third failure within the time holds the server back after it
// passed; the loop lets it in when the time is over.
func TestFlapDamping(t *testing.T) {
	in(t, func(r *rig) {
		cfg := conf(1, 2)
		cfg.VirtualServers[0].FlapDamping = config.Damping{Count: 3, Within: 5 * time.Minute}
		r.start(cfg)
		r.pass(30 * time.Second)
		for range 2 {
			r.fail(1)
			r.want("2:1")
			r.mend(1)
			r.want("1:1 2:1")
		}
		r.fail(1)
		r.notes = nil
		r.mend(1)
		r.want("2:1")
		rs := r.e.Snapshot().VirtualServers[0].RealServers[0]
		if rs.State != StateDamped || !strings.Contains(rs.Reason, "flap_damping until "+rs.HeldUntil.Format(time.TimeOnly)) {
			t.Errorf("%+v", rs)
		}
		if log := r.logged(); !strings.Contains(log, "Holding back service [10.0.0.1]:tcp:80") {
			t.Errorf("the log:\n%s", log)
		}
		if len(r.notes) != 0 {
			t.Errorf("told %+v of a server that is not back", r.notes)
		}
		// 5 minutes / 3.
		r.pass(time.Until(rs.HeldUntil) - time.Second)
		r.want("2:1")
		r.pass(time.Second)
		r.want("1:1 2:1")
		if len(r.notes) != 1 || r.notes[0].Kind != RealServerUp {
			t.Errorf("told %+v", r.notes)
		}
		if got := r.states(); got != "up up" {
			t.Error(got)
		}
		// It flaps further, and the other one fails: unsteady is better than none.
		r.fail(1)
		r.mend(1)
		r.want("2:1")
		r.fail(2)
		r.want("1:1")
	})
}

// TestFloorComesAndGoesByReload: a floor that a reload brings is held at once, with
// its alarm, and one that a reload takes away is gone at once.
func TestFloorComesAndGoesByReload(t *testing.T) {
	in(t, func(r *rig) {
		r.start(conf(1, 2))
		r.pass(30 * time.Second)
		r.fail(1, 2)
		r.want("")
		r.reload(floorConf(half, 1, 2))
		r.want("2:1")
		r.atFloor(true, 1, 0)
		if vs := r.e.Snapshot().VirtualServers[0]; !vs.QuorumUp {
			t.Error("the quorum is down with a server in service")
		}
		r.reload(conf(1, 2))
		r.want("")
		r.atFloor(false, 1, 1)
	})
}

// TestSlowStartBeginsAtTheReload and not at what happened last before it.
func TestSlowStartBeginsAtTheReload(t *testing.T) {
	in(t, func(r *rig) {
		slow := func(servers ...int) *config.Config {
			cfg := each(conf(servers...), func(rs *config.RealServer) {
				rs.Weight, rs.SlowStart, rs.Checkers[0].DelayLoop = 100, 100*time.Second, time.Hour
			})
			cfg.Global.TrustNew = true
			return cfg
		}
		r.start(slow(1, 2))
		r.pass(30 * time.Minute)
		r.reload(slow(1, 2, 3))
		r.want("1:100 2:100 3:10")
		if until := r.e.Snapshot().VirtualServers[0].RealServers[2].RisesUntil; !until.Equal(time.Now().Add(100 * time.Second)) {
			t.Errorf("it rises until %v at %v", until, time.Now())
		}
	})
}
