package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/event"
)

// happened serves the events of a log, as a daemon that was just started would.
func happened(t *testing.T, socket string) (log *slog.Logger, end func()) {
	t.Helper()
	srv, err := control.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	events := event.NewLog(event.Size)
	srv.OfferEvents(events)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ctx) }()
	var once sync.Once
	end = func() {
		once.Do(func() {
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	t.Cleanup(end)
	return slog.New(events.Handler(slog.DiscardHandler)), end
}

func TestEvents(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	log, _ := happened(t, socket)
	for i := range 30 {
		log.Warn(fmt.Sprintf("Removing service %d", i), event.Key, event.ServerDown, "vs", "[192.0.2.1]:tcp:80", "rs", fmt.Sprintf("[10.0.0.%d]:tcp:80", i))
	}
	log.Error("Lost quorum", event.Key, event.QuorumLost, "vs", "[192.0.2.2]:tcp:80")
	for name, tt := range map[string]struct {
		args   []string
		status int
		lines  int
		has    string
	}{
		"the newest":         {nil, 0, 20, "ERR  Lost quorum vs=[192.0.2.2]:tcp:80"},
		"fewer":              {[]string{"-n", "3"}, 0, 3, "WARN Removing service 28 rs=[10.0.0.28]:tcp:80 vs=[192.0.2.1]:tcp:80"},
		"since a time":       {[]string{"--since", "10m"}, 0, 31, "Removing service 0"},
		"since a number":     {[]string{"--since", "29"}, 0, 2, "Removing service 29"},
		"since, but fewer":   {[]string{"--since", "10m", "-n", "2"}, 0, 2, "Lost quorum"},
		"since tomorrow":     {[]string{"--since", time.Now().Add(24 * time.Hour).Format(time.RFC3339)}, 0, 0, ""},
		"of a kind":          {[]string{"--kind", "quorum_lost,quorum_gained"}, 0, 1, "Lost quorum"},
		"of servers":         {[]string{"--vs", "192.0.2.1", "--rs", "10.0.0.1]"}, 0, 1, "Removing service 1 "},
		"of an unknown kind": {[]string{"--kind", "qourum_lost"}, 1, 0, ""},
		"since nonsense":     {[]string{"--since", "yesterday"}, 64, 0, ""},
		"too few":            {[]string{"-n", "-1"}, 64, 0, ""},
		"operand":            {[]string{"x"}, 64, 0, ""},
		"no daemon":          {[]string{"--socket", socket + "x"}, 3, 0, ""},
		"nobody to follow":   {[]string{"-f", "--socket", socket + "x"}, 3, 0, ""},
		"following a typo":   {[]string{"-f", "--kind", "qourum_lost"}, 1, 0, ""},
	} {
		t.Run(name, func(t *testing.T) {
			status, out, errs := typed(append([]string{"events", "--socket", socket}, tt.args...)...)
			if n := strings.Count(out, "\n"); status != tt.status || n != tt.lines || !strings.Contains(out, tt.has) || (errs == "") != (status == 0) {
				t.Errorf("status %d, %d lines: %s%s", status, n, out, errs)
			}
		})
	}
	status, out, _ := typed("events", "--socket", socket, "--json", "-n", "2")
	var last event.Event
	for line := range strings.Lines(out) {
		if err := json.Unmarshal([]byte(line), &last); err != nil {
			t.Fatal(err)
		}
	}
	if status != 0 || last.Seq != 31 || last.Kind != event.QuorumLost || last.VirtualServer != "[192.0.2.2]:tcp:80" {
		t.Errorf("status %d, the last is %+v of\n%s", status, last, out)
	}
}

func TestSince(t *testing.T) {
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.FixedZone("CET", 3600))
	for text, want := range map[string]string{
		"90s": "2026-11-30T09:58:30", "09:30": "2026-11-30T09:30:00", "11:00:01": "2026-11-29T11:00:01", "2026-11-01": "2026-11-01T00:00:00",
		"2026-11-01 08:00": "2026-11-01T08:00:00", "2026-11-01 08:00:01": "2026-11-01T08:00:01", "2026-11-30T07:00:00Z": "2026-11-30T08:00:00",
	} {
		var q control.EventQuery
		if err := since(&q, text, now); err != nil || q.Begin.In(now.Location()).Format("2006-01-02T15:04:05") != want {
			t.Errorf("%s is %v, %v; want %s", text, q.Begin, err, want)
		}
	}
	var q control.EventQuery
	if err := since(&q, "17", now); err != nil || q.Since != 17 || !q.Begin.IsZero() {
		t.Errorf("17 is %+v, %v", q, err)
	}
	for _, text := range []string{"-1", "-5m", "soon", "25:00"} {
		if err := since(&q, text, now); err == nil {
			t.Errorf("%q is taken for a time", text)
		}
	}
}

// pipe is a buffer that a test can wait on.
type pipe struct {
	mu      sync.Mutex
	text    strings.Builder
	changed chan struct{}
}

func (p *pipe) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case p.changed <- struct{}{}:
	default:
	}
	return p.text.Write(b)
}

func (p *pipe) await(t *testing.T, part string) {
	t.Helper()
	limit := time.After(30 * time.Second)
	for {
		p.mu.Lock()
		text := p.text.String()
		p.mu.Unlock()
		if strings.Contains(text, part) {
			return
		}
		select {
		case <-p.changed:
		case <-limit:
			t.Fatalf("no %q in:\n%s", part, text)
		}
	}
}

// TestFollowingOverARestart: nothing is shown twice, nothing is missing, and the gap is
// said on stderr.
func TestFollowingOverARestart(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	log, end := happened(t, socket)
	log.Info("first", event.Key, event.Started)
	log.Info("second", event.Key, event.ReloadAccepted)
	out, errs := &pipe{changed: make(chan struct{}, 1)}, &pipe{changed: make(chan struct{}, 1)}
	root := newRoot(&app{stdout: out, stderr: errs})
	root.SetArgs([]string{"events", "--socket", socket, "-f", "-n", "1"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- root.ExecuteContext(ctx) }()
	out.await(t, "second\n")
	log.Info("third", event.Key, event.Stopping)
	end()
	errs.await(t, "sluiced is gone, waiting for it\n")
	log, _ = happened(t, socket)
	log.Info("fourth", event.Key, event.Started)
	errs.await(t, "it was restarted\n")
	out.await(t, "fourth\n")
	log.Info("fifth", event.Key, event.ReloadAccepted)
	out.await(t, "fifth\n")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	var words []string
	for line := range strings.Lines(out.text.String()) {
		f := strings.Fields(line)
		words = append(words, f[len(f)-1])
	}
	if got := strings.Join(words, " "); got != "second third fourth fifth" {
		t.Errorf("shown: %s", got)
	}
	if n := strings.Count(errs.text.String(), "\n"); n != 2 {
		t.Errorf("on stderr:\n%s", errs.text.String())
	}
}
