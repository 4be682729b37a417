package event

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// quiet is a log that is not told anything.
var quiet = slog.DiscardHandler

func numbers(events []Event) (n []uint64) {
	for _, e := range events {
		n = append(n, e.Seq)
	}
	return n
}

// TestSinceRemembersTheNewest: against a list that forgets nothing.
func TestSinceRemembersTheNewest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 6).Draw(t, "size")
		total := rapid.IntRange(0, 15).Draw(t, "total")
		l := NewLog(size)
		log := slog.New(l.Handler(quiet))
		for i := range total {
			log.Warn(fmt.Sprint("event ", i+1))
		}
		if l.Last() != uint64(total) {
			t.Fatalf("the last is %d, want %d", l.Last(), total)
		}
		since := rapid.IntRange(0, 18).Draw(t, "since")
		limit := rapid.IntRange(0, 7).Draw(t, "limit")
		var want []uint64
		missed := 0
		for n := since + 1; n <= total; n++ {
			if n <= total-size {
				missed++
			} else {
				want = append(want, uint64(n))
			}
		}
		if limit > 0 && len(want) > limit {
			want = want[len(want)-limit:]
		}
		got, gone := l.Since(uint64(since), limit)
		if !slices.Equal(numbers(got), want) || gone != uint64(missed) {
			t.Fatalf("of %d in %d since %d, limit %d: %v and %d missed, want %v and %d", total, size, since, limit, numbers(got), gone, want, missed)
		}
		for _, e := range got {
			if e.Message != fmt.Sprint("event ", e.Seq) {
				t.Fatalf("number %d is %q", e.Seq, e.Message)
			}
		}
	})
}

func TestSinceTheEndOfNumbers(t *testing.T) {
	l := NewLog(2)
	slog.New(l.Handler(quiet)).Warn("x")
	if got, missed := l.Since(^uint64(0), 0); got != nil || missed != 0 {
		t.Errorf("%v, %d missed", got, missed)
	}
}

// TestWhatIsAnEvent: the level, the kind, whom it is about, and the rest.
func TestWhatIsAnEvent(t *testing.T) {
	l := NewLog(Size)
	at := time.Date(2026, 11, 30, 11, 0, 0, 0, time.FixedZone("CET", 3600))
	log := slog.New(l.Handler(slog.NewTextHandler(&bytes.Buffer{}, &slog.HandlerOptions{Level: slog.LevelError})))
	log.Info("no kind")
	log.Debug("a kind, but of debug", Key, CheckFailed)
	log.Info("of info, though the log is told errors only", Key, ServerUp, "rs", "r", "vs", "v", "weight", 3, "took", 2*time.Millisecond, "since", at)
	log.With(Key, string(ScriptFailed), "vs", "v").With("script", "/s").Error("by With", "err", errors.New("a b"))
	log.WithGroup("g").With("a", 1).WithGroup("h").Warn("groups", "vs", "in a group", slog.Group("i", "b", 2), slog.Group("", "c", 3), Key, "of the group")
	log.WithGroup("").Warn("no group", "b", true)
	log.Log(t.Context(), slog.LevelWarn+1, "between")
	log.Warn("values", "v", valuer{}, slog.Attr{}) //nolint:sloglint // both are read
	type fact struct {
		Kind                            Kind
		Level, Message, VS, RS, Details string
	}
	var got []fact
	events, _ := l.Since(0, 0)
	for _, e := range events {
		details, err := json.Marshal(e.Attrs) // in order
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, fact{e.Kind, e.Level, e.Message, e.VirtualServer, e.RealServer, string(details)})
		if time.Since(e.Time) > time.Minute || time.Since(e.Time) < 0 {
			t.Errorf("%s is of %v", e.Message, e.Time)
		}
	}
	want := []fact{
		{ServerUp, "info", "of info, though the log is told errors only", "v", "r", `{"since":"2026-11-30T10:00:00Z","took":"2ms","weight":"3"}`},
		{ScriptFailed, "error", "by With", "v", "", `{"err":"a b","script":"/s"}`},
		{Note, "warn", "groups", "", "", `{"g.a":"1","g.h.c":"3","g.h.event":"of the group","g.h.i.b":"2","g.h.vs":"in a group"}`},
		{Note, "warn", "no group", "", "", `{"b":"true"}`},
		{Note, "warn", "between", "", "", `null`},
		{Note, "warn", "values", "", "", `{"v":"resolved"}`},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEventsAreCounted by level, the forgotten ones too.
func TestEventsAreCounted(t *testing.T) {
	l := NewLog(2)
	log := slog.New(l.Handler(slog.DiscardHandler))
	log.Debug("no event", Key, ServerUp)
	log.Info("no event either")
	for range 5 {
		log.Info("up", Key, ServerUp)
	}
	log.Warn("a note")
	log.Error("lost", Key, QuorumLost)
	log.Error("worse", Key, QuorumLost)
	if got := l.Counts(); got != [Levels]uint64{5, 1, 2} || l.Last() != 8 {
		t.Errorf("%v of %d", got, l.Last())
	}
}

// TestLoggersOfOneOriginShareNothing: With has room for more attributes, and what one
// record puts there is not the next one's.
func TestLoggersOfOneOriginShareNothing(t *testing.T) {
	l := NewLog(Size)
	for n := range 9 {
		log := slog.New(l.Handler(quiet))
		for i := range n {
			log = log.With(fmt.Sprint("a", i), i)
		}
		one, two := log.With("own", 2), log.With("own", 3)
		log.Warn("x", "own", 0)
		log.Warn("x", "own", 1)
		one.Warn("x")
		two.Warn("x")
	}
	all, _ := l.Since(0, 0)
	for i, e := range all {
		if e.Attrs["own"] != fmt.Sprint(i%4) {
			t.Errorf("record %d has %v", i, e.Attrs)
		}
	}
}

type valuer struct{}

func (valuer) LogValue() slog.Value { return slog.StringValue("resolved") }

// TestWhatIsPassedOnIsUnchanged: slog's own suite through both handlers.
func TestWhatIsPassedOnIsUnchanged(t *testing.T) {
	var buf bytes.Buffer
	slogtest.Run(t, func(t *testing.T) slog.Handler {
		buf.Reset()
		limiter := NewLimiter()
		t.Cleanup(limiter.Close)
		return NewLog(Size).Handler(limiter.Handler(slog.NewJSONHandler(&buf, nil)))
	}, func(t *testing.T) map[string]any {
		m := map[string]any{}
		if err := json.Unmarshal(buf.Bytes(), &m); err != nil {
			t.Fatal(err)
		}
		return m
	})
}

// TestAnEventIsBounded, however much a foreign server says.
func TestAnEventIsBounded(t *testing.T) {
	l := NewLog(Size)
	args := []any{Key, CheckFailed, "vs", strings.Repeat("v", 1e5)}
	for i := range 100 {
		args = append(args, strings.Repeat("ü", 300)+fmt.Sprint(i), strings.Repeat("äb", 1e5))
	}
	slog.New(l.Handler(quiet)).Warn(strings.Repeat("日", 1e5), args...)
	events, _ := l.Since(0, 0)
	b, err := json.Marshal(events[0])
	if err != nil {
		t.Fatal(err)
	}
	if len(b) > 30<<10 || len(events[0].Attrs) == 0 {
		t.Errorf("an event takes %d bytes and has %d attributes", len(b), len(events[0].Attrs))
	}
	for k, v := range events[0].Attrs {
		if !utf8.ValidString(k+v) || !strings.HasSuffix(v, "…") {
			t.Errorf("cut to %q", v)
		}
	}
	if m := events[0].Message; !utf8.ValidString(m) || len(m) > maxMessage {
		t.Errorf("the message is cut to %q", m)
	}
}

// TestMemoryGrowsWithWhatHappened.
func TestMemoryGrowsWithWhatHappened(t *testing.T) {
	l := NewLog(1 << 20)
	slog.New(l.Handler(quiet)).Warn("x")
	if cap(l.ring) > 16 {
		t.Errorf("one event has room for %d", cap(l.ring))
	}
	l = NewLog(8)
	for range 1000 {
		slog.New(l.Handler(quiet)).Warn("x")
	}
	if cap(l.ring) > 16 {
		t.Errorf("8 events have room for %d", cap(l.ring))
	}
}

// TestReadersSeeEachEventOnce: followers beside writers, none of which waits for them.
func TestReadersSeeEachEventOnce(t *testing.T) {
	const writers, each = 4, 500
	l := NewLog(writers * each)
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			var seen uint64
			for seen < writers*each {
				if err := l.Wait(t.Context(), seen); err != nil {
					t.Error(err)
					return
				}
				events, missed := l.Since(seen, 0)
				if len(events) == 0 || missed > 0 {
					t.Errorf("woken for %d events, %d missed", len(events), missed)
					return
				}
				for _, e := range events {
					if e.Seq != seen+1 {
						t.Errorf("%d comes after %d", e.Seq, seen)
						return
					}
					seen = e.Seq
				}
			}
		})
	}
	for range writers {
		wg.Go(func() {
			log := slog.New(l.Handler(quiet)).With("vs", "v")
			for i := range each {
				log.Warn("x", "i", i)
			}
		})
	}
	wg.Wait()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := l.Wait(ctx, writers*each); !errors.Is(err, context.Canceled) {
		t.Errorf("waiting for one that does not come: %v", err)
	}
	if err := l.Wait(ctx, 0); err != nil {
		t.Errorf("waiting for what is there: %v", err)
	}
}
