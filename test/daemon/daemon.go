// Package daemon starts sluiced and keepalived alike, for the tests that compare
// them: it finds or builds the program, knows its command line, and reads from its
// log when it has started and when it has taken a reload.
package daemon

import (
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/sluice-lb/sluice/internal/testkit"
)

// Daemon says how to start one.
type Daemon struct {
	Name    string   `json:"name"`
	Command []string `json:"command"`
}

// Sluice is the name of the daemon that is not a keepalived.
const Sluice = "sluice"

// Patience bounds every wait for a daemon; an emulated machine is slow, and some
// files make keepalived turn for ever.
const Patience = 40 * time.Second

// Socket is where sluiced answers that was started with its files in a folder.
func Socket(dir string) string { return filepath.Join(dir, "sluice.sock") }

// Argv is the command line for a configuration; what the daemon keeps goes into
// dir. keepalived runs its checkers alone.
func (d Daemon) Argv(dir, conf string, more ...string) []string {
	argv := slices.Clone(d.Command)
	if d.Name == Sluice {
		return append(append(argv, "-f", conf, "--socket", Socket(dir), "--state-dir", filepath.Join(dir, "state")), more...)
	}
	argv = append(argv, "-C", "-n", "-l", "-D", "-f", conf)
	// Another that runs is found by these files, that of BFD included.
	for _, o := range []string{"-p", "-c", "-r", "-b"} {
		argv = append(argv, o, filepath.Join(dir, "pid"+o))
	}
	return append(argv, more...)
}

// Phrases of the log say that something is done.
type Phrases struct {
	// any of these is enough.
	any []string
	// calm is enough too, once some time has passed since: not every file makes
	// keepalived's checkers report.
	calm string
}

// last is what keepalived's checkers log last when they start and when they have
// reloaded, whether or not there is a BFD_CHECK.
const last = "Activating BFD healthchecker"

// idle is what it logs in place of that when there is nothing to do.
const idle = "no configuration to run"

// Marks are the Phrases of each daemon for the same thing.
type Marks struct{ sluice, keepalived Phrases }

var (
	// Ready: the first table is there.
	Ready = Marks{
		sluice:     Phrases{any: []string{"INFO Ready "}},
		keepalived: Phrases{any: []string{last, idle}, calm: "Startup complete"},
	}
	// Reloaded: the new configuration was taken, or refused.
	Reloaded = Marks{
		sluice:     Phrases{any: []string{"INFO Reloaded ", "Reload refused", "Reload not finished"}},
		keepalived: Phrases{any: []string{last, idle}, calm: "Reload"},
	}
)

// What Await returns when the phrase did not come.
const (
	Ended = "ended"
	Late  = "late"
	// calmFor is how long after a calm phrase nothing more is expected.
	calmFor = 6 * time.Second
)

// Await waits for a phrase in what the daemon prints from a line on. It returns ""
// when it came, else what happened instead.
func Await(p *testkit.Process, d Daemon, from int, m Marks) string {
	want := m.keepalived
	if d.Name == Sluice {
		want = m.sluice
	}
	var calm time.Time
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(Patience); time.Now().Before(deadline); <-tick.C {
		running := p.Running()
		lines := p.Lines()[from:]
		for _, w := range want.any {
			if contains(lines, w) {
				return ""
			}
		}
		if !running {
			return Ended
		}
		if want.calm != "" && contains(lines, want.calm) {
			if calm.IsZero() {
				calm = time.Now()
			} else if time.Since(calm) > calmFor {
				return ""
			}
		}
	}
	return Late
}

func contains(lines []string, phrase string) bool {
	return slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, phrase) })
}
