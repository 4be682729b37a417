package render

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/engine"
)

// TestSyncDaemonsInTheStatus: each situation in a line that says what is the matter.
func TestSyncDaemonsInTheStatus(t *testing.T) {
	half := func(state string, change func(*engine.SyncHalf)) engine.SyncHalf {
		h := engine.SyncHalf{State: state, Wanted: true, Running: true, Since: ago(3 * time.Minute), Interface: "eth1", SyncID: 7, Group: "224.0.0.81", Port: 8848, MaxLen: 1472}
		change(&h)
		return h
	}
	as := func(*engine.SyncHalf) {}
	idle := engine.SyncHalf{State: "master"}
	for _, c := range []struct {
		name string
		sync *engine.Sync
		wide bool
		want string
	}{
		{"none", nil, false, ""},
		{"off", &engine.Sync{Halves: []engine.SyncHalf{idle, {State: "backup"}}}, false, "sync daemon: off\n"},
		{"runs", &engine.Sync{Halves: []engine.SyncHalf{idle, half("backup", func(h *engine.SyncHalf) { h.Traffic = &engine.SyncTraffic{Sockets: 1} })}}, true,
			"sync daemon backup on eth1, syncid 7: runs for 3m\n  224.0.0.81 port 8848, messages of at most 1472 octets\n"},
		{"drops", &engine.Sync{Halves: []engine.SyncHalf{idle, half("backup", func(h *engine.SyncHalf) { h.Traffic = &engine.SyncTraffic{Sockets: 1, Queue: 212992, Drops: 41} })}}, false,
			"sync daemon backup on eth1, syncid 7: runs for 3m, 212992 octets queued, 41 messages dropped\n"},
		{"not there", &engine.Sync{Halves: []engine.SyncHalf{half("master", func(h *engine.SyncHalf) { h.Running, h.Error = false, "start sync daemon:\x1b[2J no such interface" }), {State: "backup"}}}, false,
			"sync daemon master on eth1, syncid 7: DOES NOT RUN: start sync daemon:\uFFFD[2J no such interface\n"},
		{"changes sides", &engine.Sync{Halves: []engine.SyncHalf{half("master", func(h *engine.SyncHalf) { h.Wanted = false }), half("backup", as)}}, false,
			"sync daemon master on eth1, syncid 7: not wanted any more, ends when the other half has taken its place\nsync daemon backup on eth1, syncid 7: runs for 3m\n"},
		{"undecided", &engine.Sync{TrackFile: "vrrp", Undecided: true, Halves: []engine.SyncHalf{idle, {State: "backup"}}}, false,
			"sync daemon: not decided: track_file vrrp holds no number yet, what runs is left\n"},
		{"unknown", &engine.Sync{Error: "no answer", Halves: []engine.SyncHalf{half("master", as), {State: "backup"}}}, false,
			"sync daemon master on eth1, syncid 7: runs for 3m\nsync daemon: not known: no answer\n"},
	} {
		s := healthy()
		s.Sync = c.sync
		var b bytes.Buffer
		if _, err := Status(&b, s, Options{Wide: c.wide}); err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(b.String(), "\n\n")
		_, got, _ := strings.Cut(head+"\n", "since the start\n")
		if got != c.want {
			t.Errorf("%s:\n%swant\n%s", c.name, got, c.want)
		}
	}
}
