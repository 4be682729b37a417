package engine

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

// TestPassiveByCommand: the address first, then vip_delay, then everything drains; checks
// go on, and it comes back in place with what they found.
func TestPassiveByCommand(t *testing.T) {
	edged(t, func(r *rig) {
		r.start(withVIP(conf(1, 2, 3), config.VIPAlways))
		r.pass(time.Minute)
		r.connections(1, 1)
		r.ground.stuck = true
		if c := r.passive(true); c.Services != 1 || !c.Passive.On || len(c.Passive.Sources) != 1 || c.Passive.Sources[0].Who != "anna" || c.Passive.Sources[0].Why != "new kernel" {
			r.Errorf("the command says %+v", c)
		}
		r.wish("guard local 80/tcp")
		r.want("1:1 2:1 3:1")
		// One that fails before the address is reported gone is out at once.
		r.farm.set(2, checker.Failed, "refused")
		r.ground.report()
		r.pass(900 * time.Millisecond)
		if got := r.content(); got != "1:1 2:1 3:1" && got != "1:1 3:1" {
			r.Errorf("the table holds %q", got)
		}
		r.pass(time.Second)
		r.want("1:0")
		r.wish("guard local")
		s := r.e.Snapshot()
		if s.Passive == nil || !s.VirtualServers[0].Withheld || s.VirtualServers[0].RealServers[0].State != StatePassive || len(s.Leaving) != 0 {
			r.Errorf("status says %+v", s)
		}
		x, err := r.e.Explain(r.Context(), "192.0.2.1", target(1))
		if err != nil || !strings.Contains(x.Summary, "withheld: this director is passive since ") || !strings.Contains(x.Summary, "by anna: new kernel") || !strings.Contains(x.Summary, "after sluice passive off") || x.sum() != -1 {
			r.Errorf("explained by %+v, %v", x, err)
		}
		r.pass(11 * time.Second)
		if s := r.e.Snapshot().VirtualServers[0].RealServers; s[1].State != StateDown {
			r.Errorf("the one that fails is %s", s[1].State)
		}
		if c := r.passive(false); c.Passive.On {
			r.Errorf("the command says %+v", c)
		}
		r.want("1:1 3:1")
		r.wish("announce guard local 80/tcp")
		r.ground.stuck = false
		r.stop(nil)
	})
}

// sum is what the parts of a weight come to, -1 for one that is out.
func (x *Explanation) sum() (n int64) {
	for _, p := range x.Weight {
		n += p.Adds
	}
	if x.RealServer.WeightWanted < 0 && n == 0 {
		return -1
	}
	return n
}

// TestPassiveTakenBack before vip_delay is over: nothing is written.
func TestPassiveTakenBack(t *testing.T) {
	edged(t, func(r *rig) {
		r.start(withVIP(conf(1, 2), config.VIPAlways))
		r.pass(time.Minute)
		r.writes()
		r.passive(true)
		r.pass(900 * time.Millisecond)
		r.passive(false)
		r.wish("announce guard local 80/tcp")
		r.pass(time.Minute)
		r.passive(true)
		r.pass(100 * time.Millisecond)
		r.passive(false)
		r.passive(true)
		r.pass(950 * time.Millisecond)
		r.passive(false)
		r.pass(time.Minute)
		if n := r.writes(); n != 0 {
			r.Errorf("%d operations", n)
		}
		r.stop(nil)
	})
}

// TestPassiveIsSaidByThree: a file, the configuration and a command, of which any is
// enough; a file that is not known says nothing.
func TestPassiveIsSaidByThree(t *testing.T) {
	edged(t, func(r *rig) {
		cfg := func(on bool, file string) *config.Config {
			c := conf(1, 2)
			c.TrackFiles = []*config.TrackFile{{Name: "role", Path: "/role"}}
			c.Global.Passive.On = on
			if file != "" {
				c.Global.Passive.File = &config.TrackFileUse{Name: file}
			}
			return c
		}
		r.files["role"] = 1
		r.start(cfg(false, "nonesuch"))
		r.want("1:1 2:1")
		r.reload(cfg(false, "role"))
		r.want("")
		r.e.FileValue("role", 0)
		r.want("1:1 2:1")
		r.files["role"] = 0
		r.reload(cfg(true, "role"))
		r.want("")
		r.passive(true)
		r.e.FileValue("role", 2)
		synctest.Wait()
		p := r.e.Snapshot().Passive
		if p == nil || len(p.Sources) != 3 || p.Sources[1].Who != "track_file role" || p.Sources[1].Why != "it is 2" {
			r.Errorf("it is passive by %+v", p)
		}
		r.e.FileValue("role", 0)
		r.reload(cfg(false, "role"))
		r.want("")
		r.passive(false)
		r.want("1:1 2:1")
		if r.e.Snapshot().Passive != nil {
			r.Error("it is passive by nobody")
		}
		r.stop(nil)
	})
}

// TestPassiveThroughARestart: the order is kept, the drain goes on, and what a process
// that was killed left announced goes in the same order as ever.
func TestPassiveThroughARestart(t *testing.T) {
	edged(t, func(r *rig) {
		r.start(withVIP(conf(1, 2), config.VIPAlways))
		r.pass(time.Minute)
		r.connections(1, 1)
		r.passive(true)
		r.pass(2 * time.Second)
		r.want("1:0")
		r.crash()
		r.ground.turn = 0
		r.start(withVIP(conf(1, 2), config.VIPAlways))
		r.pass(time.Minute)
		r.want("1:0")
		r.wish("guard local")
		s := r.e.Snapshot()
		if s.Passive == nil || s.Passive.Sources[0].Who != "anna" || s.VirtualServers[0].Services[0].Destinations[0].Drain == nil {
			r.Errorf("status says %+v", s)
		}
		r.passive(false)
		r.want("1:1 2:1")
		r.wish("announce guard local 80/tcp")
		r.crash()
		// The next one is passive from its start, and finds everything serving.
		r.ground.turn, r.ground.stuck = 0, true
		cfg := withVIP(conf(1, 2), config.VIPAlways)
		cfg.Global.Passive.On = true
		r.start(cfg)
		r.wish("guard local 80/tcp")
		r.pass(3 * time.Second)
		r.want("1:1 2:1")
		r.ground.report()
		r.pass(1100 * time.Millisecond)
		r.want("1:0")
		r.wish("guard local")
		r.crash()
		// As does one that is no longer configured.
		r.ground.turn = 0
		r.start(withVIP(conf(1), config.VIPAlways))
		r.pass(time.Minute)
		r.want("1:1")
		r.crash()
		r.ground.turn = 0
		clear(r.ground.wishes)
		other := many(1, 1)
		r.start(withVIP(other, config.VIPAlways))
		r.wish("local 80/tcp")
		r.pass(3 * time.Second)
		r.want("1:1")
		r.ground.report()
		r.pass(1100 * time.Millisecond)
		r.want("1:0")
		r.wish("local")
		r.stop(nil)
	})
}

// TestPassiveReload: what a reload brings is withheld from the start, what it takes away
// drains on.
func TestPassiveReload(t *testing.T) {
	edged(t, func(r *rig) {
		r.start(withVIP(conf(1), config.VIPAlways))
		r.pass(time.Minute)
		r.connections(1, 1)
		r.passive(true)
		r.pass(2 * time.Second)
		r.want("1:0")
		both := withVIP(conf(1), config.VIPAlways)
		both.VirtualServers = append(both.VirtualServers, many(1, 1).VirtualServers...)
		r.writes()
		r.reload(both)
		if n := r.writes(); n != 0 {
			r.Errorf("%d operations", n)
		}
		r.want("1:0")
		r.reload(&config.Config{Global: config.Global{DrainInterval: time.Minute}})
		r.want("1:0")
		r.wish("guard local")
		r.reload(both)
		r.passive(false)
		r.want("1:1")
		if len(r.services()) != 2 {
			r.Errorf("%v", r.services())
		}
		r.stop(nil)
	})
}
