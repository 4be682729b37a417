package framework

import (
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
)

func TestResume(t *testing.T) {
	cfg := &config.VirtualServer{Quorum: 3, Hysteresis: 1}
	for range 3 {
		cfg.RealServers = append(cfg.RealServers, &config.RealServer{Weight: 1, Checkers: []*config.Checker{{Kind: config.TCPCheck}}})
	}
	for name, tt := range map[string]struct {
		verdicts [3]Verdict
		quorum   bool
		trust    bool
		alive    [3]bool
		up       bool
		event    QuorumEvent
	}{
		"all unknown, trusted":              {[3]Verdict{}, false, true, [3]bool{true, true, true}, false, QuorumUnchanged},
		"known to be up without trust":      {[3]Verdict{Up, Up, Unknown}, false, false, [3]bool{true, true, false}, false, QuorumUnchanged},
		"down outweighs trust":              {[3]Verdict{Down, Up, Unknown}, true, true, [3]bool{false, true, true}, true, QuorumUnchanged},
		"a quorum within the hysteresis":    {[3]Verdict{Up, Up, Down}, true, true, [3]bool{true, true, false}, true, QuorumUnchanged},
		"the same that did not stand":       {[3]Verdict{Up, Up, Down}, false, true, [3]bool{true, true, false}, false, QuorumUnchanged},
		"a quorum that the verdicts do not": {[3]Verdict{Up, Down, Down}, true, true, [3]bool{true, false, false}, false, QuorumLost},
	} {
		place := map[*config.RealServer]int{}
		for i, rc := range cfg.RealServers {
			place[rc] = i
		}
		vs, ev := Resume(cfg, func(*config.RealServer) bool { return tt.trust }, func(string) int64 { return 0 },
			Saved{Quorum: tt.quorum, Verdict: func(rc *config.RealServer, _ int) Verdict { return tt.verdicts[place[rc]] }})
		for i, rs := range vs.Servers {
			if rs.Alive() != tt.alive[i] {
				t.Errorf("%s: server %d alive %t", name, i, rs.Alive())
			}
		}
		if vs.QuorumUp() != tt.up || ev != tt.event {
			t.Errorf("%s: quorum %t, %s; want %t, %s", name, vs.QuorumUp(), ev, tt.up, tt.event)
		}
	}
}

// TestResumeMachine: one that was up has its retries, one that was down its rises.
func TestResumeMachine(t *testing.T) {
	r := Rules{Retry: 2, Rise: 2, DelayLoop: time.Second, DelayBeforeRetry: time.Second}
	up := ResumeMachine(Up, true)
	for i, want := range []bool{false, false, true} {
		if changed, _ := up.Step(r, false); changed != want {
			t.Errorf("failure %d of one that was up: changed %t", i+1, changed)
		}
	}
	down := ResumeMachine(Down, true)
	for i, want := range []bool{false, true} {
		if changed, _ := down.Step(r, true); changed != want {
			t.Errorf("success %d of one that was down: changed %t", i+1, changed)
		}
	}
}
