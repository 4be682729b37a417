package daemon

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	_ "time/tzdata"

	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func place(t interface{ Fatal(...any) }, name string) *time.Location {
	l, err := time.LoadLocation(name)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestNextReload(t *testing.T) {
	berlin, newYork, lordHowe := place(t, "Europe/Berlin"), place(t, "America/New_York"), place(t, "Australia/Lord_Howe")
	for _, c := range []struct {
		from, text string
		local      *time.Location
		want       string // with its offset, or what the error says
		daily      bool
	}{
		{"2026-05-04T09:00:00Z", "11:30:00", time.UTC, "2026-05-04T11:30:00Z", true},
		{"2026-05-04T11:29:59.9Z", "11:30:00", time.UTC, "2026-05-04T11:30:00Z", true},
		{"2026-05-04T11:30:00Z", "11:30:00", time.UTC, "2026-05-05T11:30:00Z", true},
		{"2026-12-31T23:59:59Z", "23:59:59", time.UTC, "2027-01-01T23:59:59Z", true},
		{"2028-02-28T12:00:00Z", "11:00:00", time.UTC, "2028-02-29T11:00:00Z", true},
		{"2026-05-04T09:00:00Z", "26-05-04 11:30:00", time.UTC, "2026-05-04T11:30:00Z", false},
		{"2026-05-04T09:00:00Z", "2026-05-04 11:30:00", time.UTC, "2026-05-04T11:30:00Z", false},
		{"2026-05-04T09:00:00Z", "2126-05-04 11:30:00", time.UTC, "2126-05-04T11:30:00Z", false},

		// Here and in UTC; the day is that of the same place.
		{"2026-05-04T09:00:00Z", "11:30:00", berlin, "2026-05-04T11:30:00+02:00", true},
		{"2026-05-04T09:00:00Z", "11:30:00Z", berlin, "2026-05-04T11:30:00Z", true},
		{"2026-05-04T22:30:00Z", "00:15:00", berlin, "2026-05-06T00:15:00+02:00", true},
		{"2026-05-04T22:30:00Z", "00:15:00Z", berlin, "2026-05-05T00:15:00Z", true},
		{"2026-05-04T09:00:00Z", "26-05-04 11:30:00Z", newYork, "2026-05-04T11:30:00Z", false},
		{"2026-05-04T09:00:00Z", "26-05-04 11:30:00", newYork, "2026-05-04T11:30:00-04:00", false},

		// The clock goes from 2 to 3 on 29 March: what it leaves out is as much later.
		{"2026-03-28T12:00:00Z", "02:30:00", berlin, "2026-03-29T03:30:00+02:00", true},
		{"2026-03-29T01:29:00Z", "02:30:00", berlin, "2026-03-29T03:30:00+02:00", true},
		{"2026-03-29T01:30:00Z", "02:30:00", berlin, "2026-03-30T02:30:00+02:00", true},
		{"2026-03-28T12:00:00Z", "01:59:59", berlin, "2026-03-29T01:59:59+01:00", true},
		{"2026-03-28T12:00:00Z", "03:00:00", berlin, "2026-03-29T03:00:00+02:00", true},
		{"2026-03-28T12:00:00Z", "05:00:00", berlin, "2026-03-29T05:00:00+02:00", true},
		{"2026-03-28T12:00:00Z", "2026-03-29 02:30:00", berlin, "left out by a change of the clock", false},
		{"2026-03-28T12:00:00Z", "2026-03-29 02:30:00Z", berlin, "2026-03-29T02:30:00Z", false},
		// It goes from 3 to 2 on 25 October: what comes twice counts the first time.
		{"2026-10-24T12:00:00Z", "02:30:00", berlin, "2026-10-25T02:30:00+02:00", true},
		{"2026-10-25T00:30:00Z", "02:30:00", berlin, "2026-10-26T02:30:00+01:00", true},
		{"2026-10-24T12:00:00Z", "2026-10-25 02:30:00", berlin, "2026-10-25T02:30:00+02:00", false},
		{"2026-10-25T00:30:00Z", "2026-10-25 02:30:00", berlin, "is past", false},
		{"2026-10-24T12:00:00Z", "03:00:00", berlin, "2026-10-25T03:00:00+01:00", true},
		// West of Greenwich, and by half an hour.
		{"2026-03-08T00:00:00Z", "02:30:00", newYork, "2026-03-08T03:30:00-04:00", true},
		{"2026-11-01T00:00:00Z", "01:30:00", newYork, "2026-11-01T01:30:00-04:00", true},
		{"2026-10-03T12:00:00Z", "02:15:00", lordHowe, "2026-10-04T02:45:00+11:00", true},
		{"2026-04-04T12:00:00Z", "01:45:00", lordHowe, "2026-04-05T01:45:00+11:00", true},

		{"2026-05-04T11:30:00Z", "2026-05-04 11:30:00", time.UTC, "is past", false},
		{"2026-05-04T11:30:00Z", "99-05-04 11:30:00", time.UTC, "is past", false}, // 1999
		{"2026-05-04T09:00:00Z", "24:00:00", time.UTC, "is not a time", false},
		{"2026-05-04T09:00:00Z", "11:60:00", time.UTC, "is not a time", false},
		{"2026-05-04T09:00:00Z", "23:59:60", time.UTC, "is not a time", false},
		{"2026-05-04T09:00:00Z", "2026-02-30 11:30:00", time.UTC, "is not a time", false},
		{"2026-05-04T09:00:00Z", "26-13-01 11:30:00", time.UTC, "is not a time", false},
		{"2026-05-04T09:00:00Z", "11:30", time.UTC, "is not a time", false},
		{"2026-05-04T09:00:00Z", "1:30:00", time.UTC, "is not a time", false},
		{"2026-05-04T09:00:00Z", "1:30:0.5", time.UTC, "is not a time", false},
		{"2026-05-04T09:00:00Z", "11:30:00z", time.UTC, "is not a time", false},
		{"2026-05-04T09:00:00Z", "11:30:00 Z", time.UTC, "is not a time", false},
		{"2026-05-04T09:00:00Z", "2026-05-04T11:30:00", time.UTC, "is not a time", false},
		{"2026-05-04T09:00:00Z", "Z", time.UTC, "is not a time", false},
		{"2026-05-04T09:00:00Z", "tomorrow", time.UTC, "write HH:MM:SS, YY-MM-DD HH:MM:SS or YYYY-MM-DD HH:MM:SS, with a Z at the end if it is UTC", false},
	} {
		from, err := time.Parse(time.RFC3339Nano, c.from)
		if err != nil {
			t.Fatal(err)
		}
		due, daily, err := nextReload(from, c.text, c.local)
		got := due.Format(time.RFC3339)
		if err != nil {
			if got = err.Error(); strings.Contains(got, c.want) {
				got = c.want
			}
		}
		if got != c.want || daily != c.daily {
			t.Errorf("%s after %s in %s: %s, daily %v; want %s", c.text, c.from, c.local, got, daily, c.want)
		}
	}
}

// TestOnClockUndoesTheClock: whenever it is, what the clock shows is found again,
// and never later than it was.
func TestOnClockUndoesTheClock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		local := place(t, rapid.SampledFrom([]string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Pacific/Auckland", "Asia/Kolkata", "America/St_Johns"}).Draw(t, "place"))
		at := time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "at"), 0).In(local)
		if _, change := at.ZoneBounds(); !change.IsZero() && rapid.Bool().Draw(t, "near a change") {
			at = change.Add(time.Duration(rapid.IntRange(-4*3600, 4*3600).Draw(t, "seconds")) * time.Second)
		}
		wall := time.Date(at.Year(), at.Month(), at.Day(), at.Hour(), at.Minute(), at.Second(), 0, time.UTC)
		got, exists := onClock(wall, local)
		if !exists || got.After(at) || got.Format(time.DateTime) != at.Format(time.DateTime) {
			t.Errorf("%s: %s, %v", at, got, exists)
		}
	})
}

// FuzzNextReload: what is taken for a time is one that is to come, and a day or
// less away (with what a change of the clock adds) if it has no date.
func FuzzNextReload(f *testing.F) {
	for _, s := range []string{"12:00:00", "12:00:00Z", "26-01-01 00:00:00", "2026-01-01 00:00:00Z", "02:30:00", "", "Z", "99:99:99", "-1:00:00", "12:00:0\x00"} {
		f.Add(s, int64(1774749600))
	}
	berlin := place(f, "Europe/Berlin")
	f.Fuzz(func(t *testing.T, text string, sec int64) {
		from := time.Unix(sec%(1<<35), 0)
		due, daily, err := nextReload(from, text, berlin)
		switch {
		case err != nil && (!due.IsZero() || err.Error() == ""):
			t.Errorf("%q: %v with %v", text, due, err)
		case err == nil && !due.After(from), daily && due.Sub(from) > 49*time.Hour:
			t.Errorf("%q after %s: %s", text, from, due)
		}
	})
}

// clockwork is a reloadTimes in a bubble, whose clock begins at midnight of the
// first of January 2000 in UTC.
type clockwork struct {
	*testing.T
	*reloadTimes
	file string
	out  lockedBuffer

	mu    sync.Mutex
	times []string
}

// inBubble starts one that looks every so often.
func inBubble(t *testing.T, keep bool, every time.Duration, f func(c *clockwork)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		c := &clockwork{T: t, file: filepath.Join(dir, "at")}
		log := slog.New(slog.NewTextHandler(&c.out, nil))
		c.reloadTimes = newReloadTimes(log, keep, func(context.Context) {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.times = append(c.times, time.Now().Format("2 15:04:05"))
		})
		c.every, c.local = every, time.UTC
		ctx, cancel := context.WithCancel(t.Context())
		var ends sync.WaitGroup
		ends.Go(func() { c.run(ctx) })
		defer func() { cancel(); ends.Wait() }()
		f(c)
	})
}

// put replaces the file, so that it is another one even with the same text.
func (c *clockwork) put(text string) {
	c.Helper()
	if err := os.WriteFile(c.file+".new", []byte(text), 0o644); err != nil {
		c.Fatal(err)
	}
	if err := os.Rename(c.file+".new", c.file); err != nil {
		c.Fatal(err)
	}
}

func (c *clockwork) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (c *clockwork) reloaded(want ...string) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if fmt.Sprint(c.times) != fmt.Sprint(want) {
		c.Errorf("reloads at %v, want %v\n%s", c.times, want, c.logged())
	}
}

func (c *clockwork) exists(want bool) {
	c.Helper()
	if _, err := os.Lstat(c.file); (err == nil) != want {
		c.Errorf("the file: %v", err)
	}
}

// said counts the lines of the log with a text.
func (c *clockwork) said(text string) int { return strings.Count(c.logged(), text) }

func (c *clockwork) logged() string {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return c.out.b.String()
}

func TestReloadTimeIsUsedOnce(t *testing.T) {
	for _, c := range []struct {
		text   string
		repeat bool
	}{{"00:00:11\n", false}, {"00:00:11", false}, {"2000-01-01 00:00:11Z\nwhatever follows\n", false}, {"00-01-01 00:00:11", false}, {"2000-01-01 00:00:11", true}} {
		inBubble(t, false, reloadLook, func(w *clockwork) {
			w.put(c.text)
			w.configure(w.file, c.repeat)
			w.pass(10 * time.Second)
			w.exists(true)
			w.reloaded()
			w.pass(25 * time.Hour)
			w.reloaded("1 00:00:11")
			w.exists(false)
			if w.said("Reload scheduled") != 1 {
				w.Error(w.logged())
			}
			// The next one is heard of.
			w.put("01:00:30") // 15 s from now
			w.pass(time.Minute)
			w.reloaded("1 00:00:11", "2 01:00:30")
		})
	}
}

func TestReloadTimeRepeats(t *testing.T) {
	inBubble(t, false, time.Minute/2, func(w *clockwork) {
		w.put("03:00:01")
		w.configure(w.file, true)
		w.pass(72 * time.Hour)
		w.reloaded("1 03:00:01", "2 03:00:01", "3 03:00:01")
		w.exists(true)
		w.put("00:30:00")
		w.pass(24 * time.Hour)
		w.reloaded("1 03:00:01", "2 03:00:01", "3 03:00:01", "4 00:30:00")
		// A reload may take reload_repeat away.
		w.configure(w.file, false)
		w.pass(72 * time.Hour)
		w.reloaded("1 03:00:01", "2 03:00:01", "3 03:00:01", "4 00:30:00", "5 00:30:00")
		w.exists(false)
	})
}

// TestReloadTimeOfASecondThatPasses: the file is found after its time, and late is
// better than tomorrow.
func TestReloadTimeOfASecondThatPasses(t *testing.T) {
	inBubble(t, false, reloadLook, func(w *clockwork) {
		w.configure(w.file, false)
		w.pass(2*reloadLook + 100*time.Millisecond)
		w.put("00:00:05")
		w.pass(24 * time.Hour)
		w.reloaded("1 00:00:06")
	})
	// What passed before the start, or before the configuration named the file, is
	// not made up for.
	inBubble(t, false, reloadLook, func(w *clockwork) {
		w.pass(10 * time.Second)
		w.put("00:00:05")
		w.configure(w.file, false)
		w.pass(25 * time.Hour)
		w.reloaded("2 00:00:05")
	})
}

func TestReloadTimeIsChangedAndTakenBack(t *testing.T) {
	inBubble(t, false, time.Minute/2, func(w *clockwork) {
		w.put("01:00:00")
		w.configure(w.file, false)
		w.pass(time.Minute)
		w.put("02:00:00")
		w.pass(90 * time.Minute)
		w.reloaded()
		if err := os.Remove(w.file); err != nil {
			w.Fatal(err)
		}
		w.pass(24 * time.Hour)
		w.reloaded()
		if w.said("Scheduled reload cancelled") != 1 {
			w.Error(w.logged())
		}
		w.put("03:00:00") // two hours from now
		w.pass(time.Minute)
		w.put("")
		w.pass(24 * time.Hour)
		w.put("03:00:00")
		w.pass(time.Minute)
		w.configure(w.file+".other", false)
		w.pass(24 * time.Hour)
		w.configure(w.file, false)
		w.pass(time.Minute)
		w.configure("", false)
		w.pass(24 * time.Hour)
		w.reloaded()
		w.exists(true)
		if w.said("Scheduled reload cancelled") != 4 || w.said("WARN") != 0 {
			w.Error(w.logged())
		}
	})
}

func TestReloadTimeThatIsNone(t *testing.T) {
	for text, says := range map[string]string{
		"tomorrow\n":            "write HH:MM:SS, YY-MM-DD HH:MM:SS or YYYY-MM-DD HH:MM:SS",
		"2000-01-01 00:00:00":   "is past",
		strings.Repeat("9", 99): "is not a time",
	} {
		inBubble(t, false, reloadLook, func(w *clockwork) {
			w.put(text)
			w.configure(w.file, true)
			w.pass(reloadLook / 2)
			if w.said("WARN") != 0 {
				w.Errorf("said at the first look already:\n%s", w.logged())
			}
			w.pass(time.Hour)
			w.reloaded()
			w.exists(true)
			if w.said("WARN") != 1 || w.said(says) != 1 {
				w.Error(w.logged())
			}
			// It is said again for another one.
			w.put("half past nine")
			w.pass(time.Hour)
			if w.said("WARN") != 2 {
				w.Error(w.logged())
			}
		})
	}
	// What is half written at one look is not complained of.
	inBubble(t, false, reloadLook, func(w *clockwork) {
		w.configure(w.file, false)
		w.pass(reloadLook + time.Second)
		w.put("00:01:")
		w.pass(reloadLook)
		w.put("00:01:00")
		w.pass(time.Hour)
		w.reloaded("1 00:01:00")
		if w.said("WARN") != 0 {
			w.Error(w.logged())
		}
	})
}

// TestReloadTimeFileOfAnotherKind: nothing waits for a writer.
func TestReloadTimeFileOfAnotherKind(t *testing.T) {
	for kind, mk := range map[string]func(path string) error{
		"folder": func(path string) error { return os.Mkdir(path, 0o755) },
		"FIFO":   func(path string) error { return unix.Mkfifo(path, 0o600) },
	} {
		inBubble(t, false, reloadLook, func(w *clockwork) {
			if err := mk(w.file); err != nil {
				w.Fatal(err)
			}
			w.configure(w.file, false)
			w.pass(time.Hour)
			w.exists(true)
			if w.said("not a regular file") != 1 {
				w.Errorf("%s: %s", kind, w.logged())
			}
		})
	}
}

// TestReloadTimeFileThatStays: an observer must not delete what the other daemon
// reads, and yet a time counts once.
func TestReloadTimeFileThatStays(t *testing.T) {
	inBubble(t, true, reloadLook, func(w *clockwork) {
		w.put("00:00:30")
		w.configure(w.file, false)
		w.pass(25 * time.Hour)
		w.reloaded("1 00:00:30")
		w.exists(true)
		w.put("00:00:30")
		w.pass(25 * time.Hour)
		w.reloaded("1 00:00:30", "3 00:00:30")
	})
}

// TestReloadTimeByTheWallClock: a clock that is set is followed.
func TestReloadTimeByTheWallClock(t *testing.T) {
	dir := t.TempDir()
	w := &clockwork{T: t, file: filepath.Join(dir, "at")}
	w.reloadTimes = newReloadTimes(slog.New(slog.NewTextHandler(&w.out, nil)), false, nil)
	w.local = time.UTC
	at := time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC)
	w.configure(w.file, true)
	w.put("12:30:00")
	look := func(minutes float64, want bool) {
		t.Helper()
		if got := w.look(at.Add(time.Duration(minutes * float64(time.Minute)))); got != want {
			t.Errorf("after %v minutes: %v", minutes, got)
		}
	}
	look(0, false)
	look(29, false)
	look(300, true) // put forward, or asleep
	look(301, false)
	w.put("12:20:00")
	look(10, false) // put back, and another time
	look(19.9, false)
	look(20, true)
	look(20.1, false)
}

// TestReloadAtATime: the whole daemon does it.
func TestReloadAtATime(t *testing.T) {
	port, _ := backend(t)
	at := filepath.Join(t.TempDir(), "at")
	p := launch(t, "global_defs {\nreload_time_file "+at+"\n}\n"+confText(port), nil)
	p.out.await(t, 0, "Ready")
	mark := p.mark()
	text := time.Now().Add(1500*time.Millisecond).UTC().Format(time.DateTime) + "Z\n"
	if err := os.WriteFile(at+".new", []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(at+".new", at); err != nil {
		t.Fatal(err)
	}
	p.out.await(t, mark, "(?s)The time of reload_time_file has come.*Reloaded")
	if _, err := os.Stat(at); err != nil {
		t.Error("observing, it has deleted the file:", err)
	}
	if p.stop() != 0 {
		t.Error(p.out.b.String())
	}
}
