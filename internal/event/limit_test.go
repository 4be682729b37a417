package event

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// line is a record that passed, and when.
type line struct {
	at       time.Duration
	text     string
	repeated int64
}

// sink remembers what passes.
type sink struct {
	mu    sync.Mutex
	start time.Time
	lines []line
}

func (s *sink) Enabled(context.Context, slog.Level) bool { return true }
func (s *sink) WithAttrs([]slog.Attr) slog.Handler       { return s }
func (s *sink) WithGroup(string) slog.Handler            { return s }

func (s *sink) Handle(_ context.Context, r slog.Record) error {
	l := line{time.Since(s.start), r.Message, 1}
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == Repeated {
			l.repeated = a.Value.Int64()
		}
		return true
	})
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, l)
	return nil
}

func limitedLog() (*slog.Logger, *Limiter, *sink) {
	s, l := &sink{start: time.Now()}, NewLimiter()
	return slog.New(l.Handler(s)), l, s
}

// TestAFlappingServer goes up and down each second for five minutes, and then stays
// down: ten lines, then one a minute, and the last says that it is down.
func TestAFlappingServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, l, s := limitedLog()
		for i := range 301 {
			if i%2 == 0 {
				log.Warn(fmt.Sprint("down ", i), Key, ServerDown, "rs", "r", "vs", "v")
			} else {
				log.Info(fmt.Sprint("up ", i), Key, ServerUp, "rs", "r", "vs", "v")
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		log.Info("up at last", Key, ServerUp, "rs", "r", "vs", "v")
		synctest.Wait()
		var want []line
		for i := range 10 {
			want = append(want, line{time.Duration(i) * time.Second, []string{"down ", "up "}[i%2] + fmt.Sprint(i), 1})
		}
		// What comes in the very second of a line may be in it or in the next one.
		var texts []string
		sum := int64(0)
		for i, got := range s.lines {
			sum += got.repeated
			if i < len(want) {
				if got != want[i] {
					t.Errorf("line %d is %v, want %v", i, got, want[i])
				}
				continue
			}
			texts = append(texts, fmt.Sprintf("%v %s", got.at, strings.Fields(got.text)[0]))
		}
		if n := l.Suppressed(); n != 302-uint64(len(s.lines)) {
			t.Errorf("%d lines were left out, want %d", n, 302-len(s.lines))
		}
		if sum != 302 {
			t.Errorf("the lines tell of %d records, want 302", sum)
		}
		if n := len(s.lines); n != 10+5+1 {
			t.Errorf("%d lines: %v", n, texts)
		}
		if last := s.lines[len(s.lines)-2]; last.text != "down 300" || last.at > 361*time.Second {
			t.Errorf("the last state is told by %v", last)
		}
		if len(l.keys) != 1 {
			t.Errorf("%d keys are known after an hour of silence", len(l.keys))
		}
		l.Close()
	})
}

// TestTheLimitIsForOneSubject: other servers, other kinds, and messages that are no
// kind's pass as ever.
func TestTheLimitIsForOneSubject(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, l, s := limitedLog()
		of := log.With("vs", "v")
		for i := range 50 {
			of.With("rs", "r").Warn("down", Key, ServerDown)
			of.Warn("down", Key, ServerDown, "rs", fmt.Sprint("other ", i))
			log.Error(fmt.Sprint("an error of its own ", i))
			log.Warn(fmt.Sprintf("test.conf:%d:1: unknown keyword", i), Key, Finding)
			log.Debug("debug")
			log.Info("Reloaded", Key, ReloadAccepted)
		}
		counts := map[string]int{}
		for _, l := range s.lines {
			counts[strings.Fields(l.text)[0]]++
		}
		want := map[string]int{"down": 10 + 50, "an": 50, "debug": 50, "Reloaded": 50}
		for i := range 50 {
			want[fmt.Sprintf("test.conf:%d:1:", i)] = 1
		}
		if diff := cmp.Diff(want, counts); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		l.Close()
		if last := s.lines[len(s.lines)-1]; last.text != "down" || last.repeated != 40 {
			t.Errorf("at the stop: %v", last)
		}
		of.With("rs", "r").Warn("after the stop", Key, ServerDown)
		if last := s.lines[len(s.lines)-1]; last.text != "after the stop" {
			t.Errorf("after the stop: %v", last)
		}
		l.Close()
	})
}

// TestASingleTooMany is no reason to go slow: when little was held back, the next line
// passes at once.
func TestASingleTooMany(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, l, s := limitedLog()
		defer l.Close()
		for range burst + 1 {
			log.Warn("x")
		}
		time.Sleep(span + time.Second)
		for range burst {
			log.Warn("x")
		}
		// The one that was held back is one of the ten of this minute.
		if n := len(s.lines); n != 2*burst || s.lines[burst].at != span || s.lines[burst].repeated != 1 || s.lines[n-1].at != span+time.Second {
			t.Errorf("%v", s.lines)
		}
	})
}

// TestTheLimitHolds: whatever comes when, in no minute are there more than ten lines of
// a key, each record is in a line, the newest is told within a minute, and what is known of keys is forgotten.
func TestTheLimitHolds(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		pauses := rapid.SliceOfN(rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Second, 3 * time.Second, 29 * time.Second, time.Minute, 61 * time.Second}), 1, 80).Draw(rt, "pauses")
		synctest.Test(t, func(t *testing.T) {
			log, l, s := limitedLog()
			for i, p := range pauses {
				time.Sleep(p)
				log.Warn(fmt.Sprint(i), Key, ServerDown, "rs", "r")
				if i == len(pauses)-1 {
					time.Sleep(span)
					synctest.Wait()
					if last := s.lines[len(s.lines)-1]; last.text != fmt.Sprint(i) {
						rt.Fatalf("the newest is %d, and after a minute the log says %v", i, last)
					}
				}
			}
			sum := int64(0)
			for i, got := range s.lines {
				sum += got.repeated
				if i >= burst && got.at-s.lines[i-burst].at < span {
					rt.Fatalf("11 lines from %v to %v", s.lines[i-burst].at, got.at)
				}
			}
			if sum != int64(len(pauses)) {
				rt.Fatalf("%d records are in %d lines", len(pauses), sum)
			}
			time.Sleep(3 * span)
			synctest.Wait()
			if len(l.keys) > 0 {
				rt.Fatalf("%d keys are known for ever", len(l.keys))
			}
			l.Close()
		})
	})
}

// TestTheNumberOfKeysIsBounded, and what is beyond passes.
func TestTheNumberOfKeysIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, l, s := limitedLog()
		for range 11 {
			for i := range maxKeys + 100 {
				log.Warn("down", Key, ServerDown, "rs", i)
			}
		}
		if len(l.keys) != maxKeys {
			t.Errorf("%d keys", len(l.keys))
		}
		if want := 10*maxKeys + 11*100; len(s.lines) != want {
			t.Errorf("%d lines, want %d", len(s.lines), want)
		}
		l.Close()
		if want := 11 * (maxKeys + 100); len(s.lines) != want {
			t.Errorf("%d lines at the end, want %d", len(s.lines), want)
		}
	})
}
