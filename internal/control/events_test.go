package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-lb/sluice/internal/engine"
	"github.com/sluice-lb/sluice/internal/event"
)

// telling serves the events of a log that remembers as many.
func telling(t *testing.T, size int) (l *event.Log, log *slog.Logger, path string, end func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "s.sock")
	l = event.NewLog(size)
	return l, slog.New(l.Handler(slog.DiscardHandler)), path, serveEvents(t, l, path)
}

func serveEvents(t *testing.T, l *event.Log, path string) (end func()) {
	t.Helper()
	s, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	s.OfferEvents(l)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx) }()
	ended := false
	end = func() {
		if ended {
			return
		}
		ended = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(end)
	return end
}

func sequence(events []event.Event) []uint64 {
	n := []uint64{}
	for _, e := range events {
		n = append(n, e.Seq)
	}
	return n
}

func TestEventsAreChosen(t *testing.T) {
	l, log, path, _ := telling(t, 6)
	before := time.Now()
	log.Warn("forgotten") // 1
	log.Warn("forgotten") // 2
	log.Info("a", event.Key, event.ServerUp, "vs", "[192.0.2.10]:tcp:80", "rs", "[10.0.0.1]:tcp:80", "rs_label", "Blue One")
	log.Info("b", event.Key, event.ServerDown, "vs", "[192.0.2.10]:tcp:80", "rs", "[10.0.0.2]:tcp:80")
	log.Info("c", event.Key, event.QuorumLost, "vs", "[192.0.2.11]:tcp:80", "vs_label", "Shop")
	log.Info("d", event.Key, event.DrainDone, "service", "TCP 192.0.2.10:80", "destination", "10.0.0.2:80")
	log.Info("e", event.Key, event.Started)
	log.Info("f", event.Key, event.ServerDown, "vs", "v", "rs", "r")
	c := NewClient(path)
	for name, tt := range map[string]struct {
		q      EventQuery
		want   []uint64
		missed uint64
	}{
		"all":                     {EventQuery{Limit: All}, []uint64{3, 4, 5, 6, 7, 8}, 0},
		"the newest two":          {EventQuery{Limit: 2}, []uint64{7, 8}, 0},
		"none":                    {EventQuery{}, []uint64{}, 0},
		"since a number":          {EventQuery{Limit: All, Since: 6}, []uint64{7, 8}, 0},
		"since a forgotten one":   {EventQuery{Limit: All, Since: 1}, []uint64{3, 4, 5, 6, 7, 8}, 1},
		"the newest since":        {EventQuery{Limit: 1, Since: 4}, []uint64{8}, 0},
		"since the future":        {EventQuery{Limit: All, Since: 99}, []uint64{}, 0},
		"of this daemon":          {EventQuery{Limit: All, Since: 7, Start: l.Start()}, []uint64{8}, 0},
		"of an earlier one":       {EventQuery{Limit: All, Since: 7, Start: l.Start().Add(-time.Hour)}, []uint64{3, 4, 5, 6, 7, 8}, 0},
		"since before the oldest": {EventQuery{Limit: All, Begin: before}, []uint64{3, 4, 5, 6, 7, 8}, 2},
		"since a time to come":    {EventQuery{Limit: All, Begin: time.Now().Add(time.Hour)}, []uint64{}, 0},
		"a virtual server":        {EventQuery{Limit: All, VS: "192.0.2.10"}, []uint64{3, 4, 6}, 0},
		"one by its label":        {EventQuery{Limit: All, VS: "shop"}, []uint64{5}, 0},
		"a real server":           {EventQuery{Limit: All, RS: "10.0.0.2"}, []uint64{4, 6}, 0},
		"a real one by its label": {EventQuery{Limit: All, RS: "blue"}, []uint64{3}, 0},
		"kinds":                   {EventQuery{Limit: All, Kinds: []event.Kind{event.ServerDown, event.Started}}, []uint64{4, 7, 8}, 0},
		"the newest of a kind":    {EventQuery{Limit: 1, VS: "192.0.2.10", Kinds: []event.Kind{event.ServerDown}}, []uint64{4}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := c.Events(t.Context(), tt.q)
			if err != nil {
				t.Fatal(err)
			}
			if n := sequence(got.Events); !slices.Equal(n, tt.want) || got.Missed != tt.missed || got.Last != 8 || !got.Start.Equal(l.Start()) {
				t.Errorf("%v, %d missed, last %d of %v; want %v and %d", n, got.Missed, got.Last, got.Start, tt.want, tt.missed)
			}
		})
	}
	all, _ := l.Since(0, 0)
	if got, _ := c.Events(t.Context(), EventQuery{Limit: All}); cmp.Diff(all, got.Events) != "" {
		t.Errorf("what is told is not what is remembered (-want +got):\n%s", cmp.Diff(all, got.Events))
	}
}

func TestEventsRefuseNonsense(t *testing.T) {
	_, _, path, _ := telling(t, 6)
	c := NewClient(path)
	for _, query := range []string{"since=yesterday", "limit=-1", "limit=x", "start=1", "kind=server_upp", "kind=server_up&kind="} {
		b, err := c.do(t.Context(), http.MethodGet, "/v1/events?"+query, nil)
		if refusal, ok := errors.AsType[*engine.CommandError](err); !ok || refusal.Code != engine.CodeInvalid {
			t.Errorf("%s: %s %v", query, b, err)
		}
	}
	if err := c.FollowEvents(t.Context(), EventQuery{Kinds: []event.Kind{"server_upp"}}, nil); err == nil || !strings.Contains(err.Error(), "server_upp") {
		t.Errorf("following an unknown kind: %v", err)
	}
}

var errEnough = errors.New("enough")

// TestEventsAreFollowed: first what was, then what comes, what was missed is said, and
// the end of the daemon is the end of the stream, with what happened until then.
func TestEventsAreFollowed(t *testing.T) {
	l, log, path, end := telling(t, 50)
	for range 5 {
		log.Warn("before")
	}
	c := NewClient(path)
	var got []uint64
	calls := 0
	err := c.FollowEvents(t.Context(), EventQuery{Limit: 2}, func(a Events) error {
		got = append(got, sequence(a.Events)...)
		if !a.Start.Equal(l.Start()) || a.Missed != 0 {
			t.Errorf("start %v, %d missed", a.Start, a.Missed)
		}
		switch calls++; {
		case calls == 1:
			log.Info("of no kind")
			log.Warn("now")
		case a.Last == 6:
			log.Info("the last", event.Key, event.Stopping)
			// Off this call, which the end waits for.
			go end()
		}
		return nil
	})
	if err != nil || !slices.Equal(got, []uint64{4, 5, 6, 7}) {
		t.Errorf("%v, %v", got, err)
	}
	if err := c.FollowEvents(t.Context(), EventQuery{}, nil); err == nil {
		t.Error("a daemon that is gone is followed")
	}
}

func TestFollowersMayGo(t *testing.T) {
	_, log, path, _ := telling(t, 50)
	c := NewClient(path)
	if err := c.FollowEvents(t.Context(), EventQuery{}, func(Events) error { return errEnough }); !errors.Is(err, errEnough) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	err := c.FollowEvents(ctx, EventQuery{Kinds: []event.Kind{event.ServerUp}}, func(Events) error {
		log.Warn("not of that kind")
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestASlowFollowerIsToldWhatItMissed, and keeps nobody waiting.
func TestASlowFollowerIsToldWhatItMissed(t *testing.T) {
	_, log, path, _ := telling(t, 3)
	conn, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "GET /v1/events?follow=1 HTTP/1.0\r\n\r\n")
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, 1<<20)
	next := func(part string) string {
		t.Helper()
		for lines.Scan() {
			if strings.Contains(lines.Text(), part) {
				return lines.Text()
			}
		}
		t.Fatalf("the stream ended without %q: %v", part, lines.Err())
		return ""
	}
	next(`"events":[]`)
	// More than the socket holds while nobody reads, so that the ring turns over.
	for i := range 5000 {
		log.Warn("x", "i", i, "filler", strings.Repeat("x", 400))
	}
	if got := next(`"i":"4999"`); !strings.Contains(got, `"seq":5000`) {
		t.Errorf("the newest is %s", got)
	}
	missed := false
	_, log, path, _ = telling(t, 3)
	for range 10 {
		log.Warn("x")
	}
	err = NewClient(path).FollowEvents(t.Context(), EventQuery{Since: 2, Limit: All}, func(a Events) error {
		missed = a.Missed == 5 && slices.Equal(sequence(a.Events), []uint64{8, 9, 10})
		return errEnough
	})
	if !errors.Is(err, errEnough) || !missed {
		t.Errorf("%v, told of what it missed: %v", err, missed)
	}
}

// pipes is a listener whose connections are in memory, so that their time is virtual.
type pipes struct{ conns chan net.Conn }

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}
func (p pipes) Close() error { close(p.conns); return nil }
func (pipes) Addr() net.Addr { return &net.UnixAddr{} }

// TestAStreamOutlivesTheLimitsOfARequest, and a client that reads nothing does not
// outlive them.
func TestAStreamOutlivesTheLimitsOfARequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := event.NewLog(10)
		log := slog.New(l.Handler(slog.DiscardHandler))
		s := &Server{}
		s.OfferEvents(l)
		ctx, cancel := context.WithCancel(t.Context())
		srv := s.server(ctx)
		p := pipes{make(chan net.Conn)}
		done := make(chan error)
		go func() { done <- srv.Serve(p) }()
		follow := func() net.Conn {
			ours, theirs := net.Pipe()
			p.conns <- theirs
			fmt.Fprintf(ours, "GET /v1/events?follow=1 HTTP/1.1\r\nHost: x\r\n\r\n")
			return ours
		}
		reader, idler := follow(), follow()
		lines := bufio.NewReader(reader)
		last := ""
		go func() {
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				if strings.HasPrefix(line, "{") {
					last = line
				}
			}
		}()
		// The other one reads the head and then nothing more.
		if _, err := idler.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		for range 100 {
			time.Sleep(writeTimeout)
			log.Warn("once in a while")
		}
		synctest.Wait()
		if !strings.Contains(last, `"seq":100`) {
			t.Errorf("after 50 minutes the stream says %q", last)
		}
		if _, err := io.Copy(io.Discard, idler); err != nil {
			t.Errorf("who did not read: %v", err)
		}
		cancel()
		synctest.Wait()
		if err := srv.Shutdown(t.Context()); err != nil {
			t.Errorf("the stream goes on after the stop: %v", err)
		}
		<-done
		reader.Close()
	})
}
