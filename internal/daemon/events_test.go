package daemon

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/event"
)

// TestTheDaemonTellsWhatHappened, from its start to its end, and a follower sees it.
func TestTheDaemonTellsWhatHappened(t *testing.T) {
	port, ln := backend(t)
	p := launch(t, confText(port), nil)
	p.out.await(t, 0, "Ready")
	var kinds []event.Kind
	seen := make(chan event.Kind, 1000)
	followed := make(chan error, 1)
	go func() {
		followed <- control.NewClient(p.socket).FollowEvents(t.Context(), control.EventQuery{Limit: control.All}, func(e control.Events) error {
			for _, e := range e.Events {
				seen <- e.Kind
			}
			return nil
		})
	}()
	await := func(want event.Kind) {
		t.Helper()
		limit := time.After(20 * time.Second)
		for {
			select {
			case k := <-seen:
				if kinds = append(kinds, k); k == want {
					return
				}
			case <-limit:
				t.Fatalf("no %s among %v", want, kinds)
			}
		}
	}
	await(event.Started)
	if !slices.Contains(kinds, event.CheckPassed) { // the first check may be quicker than the table
		await(event.CheckPassed)
	}
	ln.Close()
	await(event.CheckFailed)
	await(event.ServerDown)
	await(event.QuorumLost)
	p.write("virtual_server")
	if r, err := control.NewClient(p.socket).Reload(t.Context()); err != nil || r.OK {
		t.Fatalf("%+v %v", r, err)
	}
	await(event.ReloadRefused)
	p.write(confText(port))
	if r, err := control.NewClient(p.socket).Reload(t.Context()); err != nil || !r.OK {
		t.Fatalf("%+v %v", r, err)
	}
	await(event.ReloadAccepted)
	p.stop()
	if err := <-followed; err != nil {
		t.Error(err)
	}
	if !slices.Contains(kinds, event.Asked) || !slices.Contains(kinds, event.Finding) {
		t.Errorf("of %v", kinds)
	}
}

// TestO01StateIsTheLivingProcess's: it is asked over a socket and has the start of the
// process that answers; when that is gone there is no answer, and the next one's is
// another. Nothing is written for it.
func TestO01StateIsTheLivingProcesss(t *testing.T) {
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	port, _ := backend(t)
	var socket, text string
	var starts []time.Time
	for range 2 {
		text = confText(port)
		p := launch(t, text, func(o *Options) {
			if socket != "" {
				o.Socket = socket
			}
			socket = o.Socket
		})
		p.socket = socket
		p.out.await(t, 0, "Ready")
		c := control.NewClient(socket)
		e, err := c.Events(t.Context(), control.EventQuery{Limit: control.All})
		if err != nil || len(e.Events) == 0 {
			t.Fatalf("%+v %v", e, err)
		}
		s := p.status()
		if s.Generation == 0 || s.ConfigFile != p.file || s.Started.Sub(e.Start).Abs() > time.Minute {
			t.Errorf("generation %d of %q since %v, events since %v", s.Generation, s.ConfigFile, s.Started, e.Start)
		}
		starts = append(starts, e.Start)
		p.stop()
		if _, err := c.Status(t.Context()); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a daemon that is gone answers: %v", err)
		}
		if _, err := c.Events(t.Context(), control.EventQuery{}); err == nil {
			t.Error("a daemon that is gone tells of events")
		}
	}
	if starts[0].Equal(starts[1]) {
		t.Error("two processes have the same start")
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("files are left: %v %v", left, err)
	}
}

// TestTheLimitIsInFrontOfTheLog, and behind the events; the end of what repeats shows.
func TestTheLimitIsInFrontOfTheLog(t *testing.T) {
	var out bytes.Buffer
	log, err := NewLogger(&out, "text", slog.LevelInfo)
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{Log: log}
	flush := opts.listen()
	for i := range 100 {
		opts.Log.Info(fmt.Sprint("Adding service ", i), event.Key, event.ServerUp, "rs", "r")
		opts.Log.Warn(fmt.Sprint("Removing service ", i), event.Key, event.ServerDown, "rs", "r")
	}
	flush()
	opts.Log.Info("Stopped", event.Key, event.Stopped)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 12 || !strings.HasSuffix(lines[10], "WARN Removing service 99 rs=r repeated=190") || !strings.HasSuffix(lines[11], "Stopped") {
		t.Errorf("%d lines:\n%s", len(lines), out.String())
	}
	if all, missed := opts.events.Since(0, 0); len(all) != 201 || missed != 0 {
		t.Errorf("%d events, %d missed", len(all), missed)
	}
}
