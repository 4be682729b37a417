package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
)

// many writes a configuration of 10,000 real servers.
func many(t *testing.T, services int, check string) string {
	t.Helper()
	var b strings.Builder
	n, each := 0, 10_000/services
	for s := range services {
		fmt.Fprintf(&b, "virtual_server 10.%d.%d.1 80 {\n delay_loop 5\n lb_algo wlc\n lb_kind NAT\n protocol TCP\n", s>>8, s&255)
		for range each {
			fmt.Fprintf(&b, " real_server 172.16.%d.%d 8080 {\n  weight 1\n  %s\n }\n", n>>8, n&255, check)
			n++
		}
		b.WriteString("}\n")
	}
	file := filepath.Join(t.TempDir(), "many.conf")
	if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// What stays of a configuration is its model alone, and that is small: no text of
// the file, no tree, and equal parts once.
func TestMemoryOfALoadedConfiguration(t *testing.T) {
	const (
		tcp  = "TCP_CHECK {\n   connect_timeout 3\n  }"
		http = "HTTP_GET {\n   url {\n    path /health\n    status_code 200\n   }\n   connect_timeout 3\n  }"
		// A real server with its check takes 384 bytes, a service some 370.
		limit = 450
	)
	for name, tt := range map[string]struct {
		services int
		check    string
	}{
		"one service": {1, tcp}, "a thousand services": {1000, tcp}, "HTTP": {1, http},
	} {
		t.Run(name, func(t *testing.T) {
			file := many(t, tt.services, tt.check)
			before := alive()
			cfg, found := load(Options{File: file})
			if cfg == nil || len(found) > 0 {
				t.Fatal(found)
			}
			bytes := (alive() - before) / 10_000
			if bytes > limit {
				t.Errorf("%d bytes for each real server, at most %d are right", bytes, limit)
			}
			t.Logf("%d bytes", bytes)
			keep(cfg)
		})
	}
}

// alive is how much the heap holds that is in use.
func alive() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

func keep(c *config.Config) { runtime.KeepAlive(c) }

// However many reloads come at once, memory is given back after them as after one, and
// not before what they replaced is let go.
func TestMemoryIsGivenBackAfterALoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(slog.New(slog.DiscardHandler))
		var times atomic.Int32
		m.free = func() { times.Add(1) }
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		m.settle()
		m.settle() // before anybody looks: one load
		go func() { m.run(ctx); close(ended) }()
		after := func(d time.Duration, want int32) {
			t.Helper()
			<-time.After(d)
			synctest.Wait()
			if got := times.Load(); got != want {
				t.Errorf("%d times, want %d", got, want)
			}
		}
		after(settleTimes[0]/2, 0)
		after(settleTimes[0], 1)
		after(time.Hour, 2)
		m.settle()
		synctest.Wait()
		m.settle() // while the first one waits
		after(time.Hour, 6)
		m.settle()
		cancel()
		<-ended
		if times.Load() != 6 {
			t.Error("given back after the end")
		}
	})
}

func TestOperatorsGOGCHasTheLastWord(t *testing.T) {
	old := debug.SetGCPercent(70)
	defer debug.SetGCPercent(old)
	for _, tt := range []struct {
		gogc                string
		load, settled, want int
	}{{"70", 70, 70, 70}, {"", loadPercent, steadyPercent, loadPercent}} {
		t.Setenv("GOGC", tt.gogc)
		debug.SetGCPercent(70)
		synctest.Test(t, func(t *testing.T) {
			is := func(when string, want int) {
				t.Helper()
				got := debug.SetGCPercent(1)
				if debug.SetGCPercent(got); got != want {
					t.Errorf("GOGC=%q, %s: %d, want %d", tt.gogc, when, got, want)
				}
			}
			m := newMemory(slog.New(slog.DiscardHandler))
			m.free = func() {}
			is("at the start", tt.load)
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { m.run(ctx); close(ended) }()
			m.settle()
			<-time.After(time.Minute)
			is("once it is settled", tt.settled)
			m.load()
			is("before a reload", tt.want)
			cancel()
			<-ended
		})
	}
}
