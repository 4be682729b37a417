package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/event"
)

// reloadTimes reloads at the time that reload_time_file holds.
//
// The file is looked at every two seconds rather than watched: that is right on
// every file system, for a folder that comes and goes, and for a file that is
// replaced; the clock must be looked at anyway, as it can be set and the machine
// can sleep; and a read of a few bytes is cheap. A time counts from the look
// before the one that found it, so that a second that passes in between is late,
// not missed. What was not understood is said once it is found a second time,
// since it may be half written.
//
// When the time has come the file is deleted first and the reload is done then,
// whatever becomes of it. A file that cannot be deleted has no effect until it is
// changed. The observer of another daemon reloads too, and deletes nothing: for
// that daemon a deleted file is a cancelled reload.
type reloadTimes struct {
	log    *slog.Logger
	reload func(context.Context)
	// keep leaves the file in its place.
	keep  bool
	every time.Duration
	local *time.Location

	mu     sync.Mutex
	path   string
	repeat bool
	// changed is set when path is another one.
	changed bool

	// What follows is run's alone.

	// looked is when the file was looked at last, found what was in it.
	looked time.Time
	found  timeFile
	due    time.Time
	daily  bool
	// told is whether found was complained of.
	told bool
}

// reloadLook is how often the file is looked at.
const reloadLook = 2 * time.Second

func newReloadTimes(log *slog.Logger, keep bool, reload func(context.Context)) *reloadTimes {
	return &reloadTimes{log: log, keep: keep, every: reloadLook, reload: reload, local: time.Local}
}

// configure takes what the running configuration says; "" is no file.
func (r *reloadTimes) configure(path string, repeat bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if path != r.path {
		r.path, r.changed = path, true
	}
	r.repeat = repeat
}

// run reloads at its times until the context ends.
func (r *reloadTimes) run(ctx context.Context) {
	r.looked = time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if r.look(time.Now()) && ctx.Err() == nil {
			r.reload(ctx)
		}
		wait := r.every
		if !r.due.IsZero() {
			wait = min(wait, max(0, r.due.Sub(time.Now().Round(0))))
		}
		timer.Reset(wait)
	}
}

// look reads the file and tells whether its time has come.
func (r *reloadTimes) look(now time.Time) bool {
	r.mu.Lock()
	path, repeat := r.path, r.repeat
	changed := r.changed
	r.changed = false
	r.mu.Unlock()
	// Without its monotonic part a time is the clock's on the wall.
	now = now.Round(0)
	if changed {
		r.found, r.looked = timeFile{}, now
		r.cancel("another file is configured")
	}
	if path == "" {
		return false
	}
	file := readTimeFile(path)
	if file.same(r.found) {
		r.complain(path)
	} else {
		r.take(now, path, file)
	}
	r.looked = now
	if r.due.IsZero() || now.Before(r.due) {
		return false
	}
	r.log.Info("The time of reload_time_file has come", event.Key, event.ReloadScheduled, "path", path, "time", r.due)
	if !r.daily || !repeat {
		r.due = time.Time{}
		r.delete(path)
		return true
	}
	// Not the missed ones as well, after a long sleep.
	r.due, _, _ = nextReload(now, r.found.text, r.local)
	r.log.Info("Reload scheduled", event.Key, event.ReloadScheduled, "path", path, "time", r.due)
	return true
}

// take schedules by a file that was not seen before.
func (r *reloadTimes) take(now time.Time, path string, file timeFile) {
	had := r.found.text
	r.found, r.told = file, false
	if file.err != nil || file.text == "" {
		r.cancel("the file holds no time now")
		return
	}
	from := r.looked
	if now.Before(from) {
		from = now // the clock was put back
	}
	due, daily, err := nextReload(from, file.text, r.local)
	if err != nil {
		r.found.err = err
		r.cancel("the file holds another time now")
		return
	}
	if file.text != had || !due.Equal(r.due) {
		r.log.Info("Reload scheduled", event.Key, event.ReloadScheduled, "path", path, "time", due)
	}
	r.due, r.daily = due, daily
}

// complain says what is wrong with the file, once.
func (r *reloadTimes) complain(path string) {
	if r.found.err == nil || r.told {
		return
	}
	r.told = true
	r.log.Warn("No reload is scheduled by reload_time_file", event.Key, event.SettingIgnored, "path", path, "err", r.found.err)
}

func (r *reloadTimes) cancel(why string) {
	if !r.due.IsZero() {
		r.log.Info("Scheduled reload cancelled", event.Key, event.ReloadCancelled, "time", r.due, "reason", why)
	}
	r.due = time.Time{}
}

func (r *reloadTimes) delete(path string) {
	if r.keep {
		return
	}
	if err := os.Remove(path); err != nil {
		r.log.Warn("reload_time_file was used and cannot be deleted; it has no effect until it is changed", event.Key, event.FileFailed, "path", path, "err", err)
		return
	}
	r.found = timeFile{}
}

// timeFile is a reload_time_file as it was found. A missing one is the zero value.
type timeFile struct {
	text string
	err  error
	info fs.FileInfo
}

// same tells whether nothing has been written since.
func (f timeFile) same(o timeFile) bool {
	if f.info == nil || o.info == nil {
		return f.info == nil && o.info == nil && (f.err == nil) == (o.err == nil)
	}
	return f.text == o.text && os.SameFile(f.info, o.info) && f.info.ModTime().Equal(o.info.ModTime())
}

// maxTimeFile is more than a time and a line's end take.
const maxTimeFile = 64

// readTimeFile reads the first line. Nothing that blocks is read.
func readTimeFile(path string) timeFile {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return timeFile{}
	}
	if err != nil {
		return timeFile{err: err}
	}
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil:
		return timeFile{err: err}
	case !info.Mode().IsRegular():
		return timeFile{info: info, err: errors.New("it is not a regular file")}
	}
	b, err := io.ReadAll(io.LimitReader(f, maxTimeFile))
	line, _, _ := strings.Cut(string(b), "\n")
	return timeFile{text: strings.TrimSpace(line), err: err, info: info}
}

var errReloadPast = errors.New("is past: write a time that is to come")

// nextReload is the first time after from that a text means, and whether it means
// one each day. A time of day that the change to summer time leaves out is as much
// later; one that comes twice in the other change counts once, the first time. A
// date with such a left out time is an error.
func nextReload(from time.Time, text string, local *time.Location) (due time.Time, daily bool, err error) {
	s, utc := strings.CutSuffix(text, "Z")
	if utc {
		local = time.UTC
	}
	layouts := map[int]string{8: time.TimeOnly, 17: "06-01-02 15:04:05", 19: time.DateTime}
	layout := layouts[len(s)]
	asked, err := time.Parse(layout, s)
	// With its length the text is as exact as its layout: Parse would also take an
	// hour of one digit, or a fraction.
	if layout == "" || err != nil {
		return time.Time{}, false, fmt.Errorf("%q is not a time: write HH:MM:SS, YY-MM-DD HH:MM:SS or YYYY-MM-DD HH:MM:SS, with a Z at the end if it is UTC", text)
	}
	if layout != time.TimeOnly {
		due, exists := onClock(asked, local)
		switch {
		case !exists:
			return time.Time{}, false, fmt.Errorf("%q is left out by a change of the clock: write a time that there is", text)
		case !due.After(from):
			return time.Time{}, false, fmt.Errorf("%q %w", text, errReloadPast)
		}
		return due, false, nil
	}
	y, m, d := from.In(local).Date()
	for day := 0; ; day++ {
		wall := time.Date(y, m, d+day, asked.Hour(), asked.Minute(), asked.Second(), 0, time.UTC)
		if due, _ := onClock(wall, local); due.After(from) {
			return due, true, nil
		}
	}
}

// onClock is when a place's clock first shows what wall shows in UTC. If it never
// does, the clock being put forward over that, it is what would have been.
func onClock(wall time.Time, local *time.Location) (t time.Time, exists bool) {
	as := func(near time.Time) time.Time {
		_, offset := near.In(local).Zone()
		return wall.Add(-time.Duration(offset) * time.Second).In(local)
	}
	shows := func(t time.Time) bool { return t.Format(time.DateTime) == wall.Format(time.DateTime) }
	later := as(as(wall))
	// No change is by more than three hours, and no two are that near.
	earlier := as(later.Add(-3 * time.Hour))
	for _, t := range []time.Time{earlier, later} {
		if shows(t) {
			return t, true
		}
	}
	return earlier, false
}
