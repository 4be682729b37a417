package main

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-lb/sluice/internal/control"
	"github.com/sluice-lb/sluice/internal/engine"
)

// TestHandover: what an operator is told, whether the next process comes or not.
func TestHandover(t *testing.T) {
	for name, tt := range map[string]struct {
		refuse         error
		next           bool
		args           []string
		status         int
		stdout, stderr string
	}{
		"the next answers": {nil, true, nil, 0, "sluiced 2 answers", ""},
		"it never comes":   {nil, false, []string{"--wait", "0.2"}, 2, "process 77", "no other sluiced answers"},
		"without waiting":  {nil, false, []string{"--wait", "0"}, 0, "3 services, 1 destination draining", ""},
		"refused":          {errors.New("disk full"), false, nil, 1, "", "the daemon refuses: disk full"},
		"an argument":      {nil, false, []string{"now"}, exitUsage, "", "unexpected argument"},
	} {
		t.Run(name, func(t *testing.T) {
			old := time.Now()
			var handed atomic.Bool
			socket := filepath.Join(t.TempDir(), "s.sock")
			srv, err := control.Listen(socket)
			if err != nil {
				t.Fatal(err)
			}
			srv.Status = func(context.Context) *engine.Snapshot {
				s := snapshot(true)
				s.Version, s.Started = "1", old
				if handed.Load() && tt.next {
					s.Version, s.Started = "2", old.Add(time.Second)
				}
				return s
			}
			srv.Handover = func(context.Context) (control.Handover, error) {
				handed.Store(true)
				return control.Handover{PID: 77, Status: 75, Version: "1", Started: old, Services: 3, Draining: 1}, tt.refuse
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- srv.Serve(ctx) }()
			status, stdout, stderr := typed(append([]string{"handover", "--socket", socket}, tt.args...)...)
			if status != tt.status || !strings.Contains(stdout, tt.stdout) || !strings.Contains(stderr, tt.stderr) {
				t.Errorf("status %d, want %d\nstdout %s\nstderr %s", status, tt.status, stdout, stderr)
			}
			cancel()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
	if status, _, stderr := typed("handover", "--socket", "/nonexistent/s.sock"); status != exitUnreachable || !strings.Contains(stderr, "is sluiced running?") {
		t.Errorf("no daemon: status %d, %s", status, stderr)
	}
}
