package daemon

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/internal/web"
	"github.com/sluice-lb/sluice/pkg/ipvs"
	"github.com/sluice-lb/sluice/pkg/ipvs/ipvstest"
)

// writer is a daemon that writes a table in memory, with the signals that it gets.
type writer struct {
	*testing.T
	table   *ipvstest.Table
	signals chan os.Signal
	over    chan error
	at      string
}

func writing(t *testing.T, text string) *writer {
	t.Helper()
	free, l := backend(t)
	l.Close()
	d := &writer{T: t, table: ipvstest.New(), signals: make(chan os.Signal, 8), over: make(chan error, 1), at: fmt.Sprintf("127.0.0.1:%d", free)}
	file := filepath.Join(t.TempDir(), "test.conf")
	text = fmt.Sprintf(text, d.at)
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	log, err := NewLogger(&bytes.Buffer{}, "text", slog.LevelError)
	if err != nil {
		t.Fatal(err)
	}
	opts := Options{File: file, Log: log}
	cfg, found := load(opts)
	if err := usable(found, true); err != nil {
		t.Fatal(err)
	}
	made, err := newDaemon(opts, cfg, found)
	if err != nil {
		t.Fatal(err)
	}
	made.table.memory = d.table
	made.table.global.ManageSysctls = false
	ctx, cancel := context.WithCancel(t.Context())
	t.Cleanup(cancel)
	go func() { d.over <- made.run(ctx, d.signals) }()
	return d
}

// asks returns the status and the text for a path, 0 if nobody answers.
func (d *writer) asks(path string) (int, string) {
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	r, err := c.Get("http://" + d.at + path)
	if err != nil {
		return 0, err.Error()
	}
	defer r.Body.Close()
	b, _ := io.ReadAll(r.Body)
	return r.StatusCode, string(b)
}

func (d *writer) answers(path string, code int, text string) {
	d.Helper()
	testkit.Eventually(d.T, 20*time.Second, func() string {
		if got, body := d.asks(path); got != code || !strings.Contains(body, text) {
			return fmt.Sprintf("%s: %d %s, want %d with %q", path, got, body, code, text)
		}
		return ""
	})
}

var o10Service = ipvs.ServiceKey{Family: ipvs.INET, Protocol: ipvs.TCP, Addr: netip.MustParseAddr("192.0.2.10"), Port: 80}

// weights are those of the service's destinations.
func (d *writer) weights() map[uint16]uint32 {
	d.Helper()
	ds, err := d.table.Destinations(d.Context(), o10Service)
	if err != nil {
		return nil
	}
	all := map[uint16]uint32{}
	for _, dest := range ds {
		all[dest.Port] = dest.Weight
	}
	return all
}

// counted is a backend that counts who comes, and can go and come back.
type counted struct {
	at string
	n  atomic.Int64
	l  net.Listener
}

func (c *counted) open(t *testing.T) {
	l, err := net.Listen("tcp", c.at)
	if err != nil {
		t.Fatal(err)
	}
	c.at, c.l = l.Addr().String(), l
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			c.n.Add(1)
			conn.Close()
		}
	}()
}

func (c *counted) port() uint16 { return uint16(c.l.Addr().(*net.TCPAddr).Port) }

// TestO10WhatAnnouncesAnAddressComesFirst: /vs/NAME follows the pool; in a planned stop it
// answers 503 first, then withdraw_delay passes with the checks going on and the table as
// it is, then the service drains, then it is gone.
func TestO10WhatAnnouncesAnAddressComesFirst(t *testing.T) {
	one, two := &counted{at: "127.0.0.1:0"}, &counted{at: "127.0.0.1:0"}
	one.open(t)
	two.open(t)
	const delay = 2 * time.Second
	text := "global_defs {\n #sluice http_listen %s\n #sluice on_stop drain\n #sluice withdraw_delay 2\n}\n" +
		strings.ReplaceAll(confText(int(one.port()), int(two.port())), "delay_loop 1", "delay_loop 0.2")
	d := writing(t, text)
	const vs = "/vs/192.0.2.10:80"
	d.answers("/readyz", http.StatusOK, "ready")
	d.answers(vs, http.StatusOK, "weight 2 alive")

	one.l.Close()
	two.l.Close()
	d.answers(vs, http.StatusServiceUnavailable, "no quorum")
	d.answers("/readyz", http.StatusOK, "")
	one.open(t)
	d.answers(vs, http.StatusOK, "weight 1 alive")
	testkit.Eventually(t, 20*time.Second, func() string {
		if got := d.weights(); len(got) != 1 || got[one.port()] != 1 {
			return fmt.Sprintf("the table has %v", got)
		}
		return ""
	})
	dk := ipvs.DestinationKey{Addr: netip.MustParseAddr("127.0.0.1"), Port: one.port()}
	if err := d.table.SetCounters(o10Service, dk, ipvs.Counters{Active: 1}); err != nil {
		t.Fatal(err)
	}

	begun := time.Now()
	d.signals <- unix.SIGTERM
	d.answers(vs, http.StatusServiceUnavailable, "stopping")
	told := time.Now()
	if got := d.weights()[one.port()]; got != 1 {
		t.Errorf("weight %d when the withdrawal was told of", got)
	}
	checks := one.n.Load()
	var drained time.Time
	testkit.Eventually(t, 20*time.Second, func() string {
		if w, ok := d.weights()[one.port()]; !ok || w != 0 {
			return fmt.Sprintf("weight %d, there: %v", w, ok)
		}
		drained = time.Now()
		return ""
	})
	if took := drained.Sub(begun); took < delay {
		t.Errorf("the table was touched after %v, want %v at least (told after %v)", took, delay, told.Sub(begun))
	}
	if one.n.Load() == checks {
		t.Error("nothing was checked during the delay")
	}
	// Who asks hears of the stop as long as it drains.
	d.answers("/readyz", http.StatusServiceUnavailable, "stopping")
	d.answers("/healthz", http.StatusOK, "ok, stopping")
	if err := d.table.SetCounters(o10Service, dk, ipvs.Counters{}); err != nil {
		t.Fatal(err)
	}
	if err := <-d.over; err != nil {
		t.Error(err)
	}
	if left, err := d.table.Services(t.Context()); err != nil || len(left) > 0 {
		t.Errorf("at the end the table has %v, %v", left, err)
	}
	if code, _ := d.asks(vs); code != 0 {
		t.Errorf("after the end: %d", code)
	}
}

// TestTheWithdrawalEnds at its time, by a second signal that is none of the same stop, or
// with a handover.
func TestTheWithdrawalEnds(t *testing.T) {
	const delay = 12 * time.Second
	for name, tt := range map[string]struct {
		after  time.Duration
		signal os.Signal
		handed bool
		delay  time.Duration
		vips   time.Duration
		want   time.Duration
	}{
		"at its time":            {delay: delay, want: delay},
		"off":                    {},
		"for the addresses":      {vips: delay, want: delay},
		"for who asks":           {vips: time.Second, delay: delay, want: delay},
		"by a second signal":     {after: 3 * time.Second, signal: unix.SIGTERM, delay: delay, want: 3 * time.Second},
		"by an interrupt":        {after: 7 * time.Second, signal: unix.SIGINT, delay: delay, want: 7 * time.Second},
		"not by the same signal": {after: time.Millisecond, signal: unix.SIGTERM, delay: delay, want: delay},
		"not by a hangup":        {after: 3 * time.Second, signal: unix.SIGHUP, delay: delay, want: delay},
		"by a handover":          {after: 4 * time.Second, handed: true, delay: delay, want: 4 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := slog.New(slog.DiscardHandler)
				d := &daemon{log: log, web: &web.Server{Log: log}, handing: make(chan struct{})}
				d.withdrawDelay.Store(int64(tt.delay))
				signals := make(chan os.Signal, 1)
				go func() {
					time.Sleep(tt.after)
					if tt.signal != nil {
						signals <- tt.signal
					}
					if tt.handed {
						close(d.handing)
					}
				}()
				begun := time.Now()
				d.withdraw(t.Context(), signals, func(context.Context) time.Duration { return tt.vips })
				if took := time.Since(begun); took != tt.want {
					t.Errorf("took %v, want %v", took, tt.want)
				}
				synctest.Wait()
			})
		})
	}
}
