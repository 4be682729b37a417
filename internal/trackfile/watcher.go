package trackfile

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/sluice-lb/sluice/internal/event"
)

// File is a file to watch.
type File struct {
	// Name is the track_file block's.
	Name string
	Path string
}

// Event says that a file's value or its warning changed.
type Event struct {
	Name  string
	Value int64
	// Warning is Value.Warning: "" when all is well (again).
	Warning string
}

// Intervals of the watcher.
const (
	// coalesce is how long after the first event the files are read, so that a
	// burst becomes one reading.
	coalesce = 10 * time.Millisecond
	// pollSlow is how often all files are read although no event came, pollFast
	// the same while some directory could not be watched.
	pollSlow = 10 * time.Second
	pollFast = time.Second
)

// ErrClosed is returned by a Watcher whose Run has ended.
var ErrClosed = errors.New("track file watcher is closed")

// Watcher keeps the values of a set of files up to date. Make one with New.
//
// Two locks, taken in the order mu, signs: mu guards the files and is held while
// directories are added and emit is called; signs is held for map look-ups only.
// The goroutine that reads fsnotify's channels takes only the latter, since
// fsnotify may send on them with a lock of its own held that adding needs too.
type Watcher struct {
	log  *slog.Logger
	emit func(Event)
	// pollEvery overrides both poll intervals in tests.
	pollEvery time.Duration

	mu     sync.Mutex
	files  []*file
	fsn    *fsnotify.Watcher // nil: polling alone
	closed bool
	// refused remembers the directories that could not be watched, to say so once.
	refused map[string]bool
	pump    sync.WaitGroup

	signs struct {
		sync.Mutex
		// interest lists, for each path that was looked up, who depends on it;
		// dirs counts how many of its keys lie in a directory.
		interest map[string]map[*file]bool
		dirs     map[string]int
		dirty    map[*file]bool
	}
	wake chan struct{}
}

// file is one watched file.
type file struct {
	File
	settler
	// looked are the paths that the last walk looked up.
	looked map[string]bool
	// again is when an unsettled reading must be repeated; zero for never.
	again time.Time
}

// New returns a watcher of no files. It calls emit, from one goroutine at a
// time, for each change; emit may block, but must not call the Watcher.
func New(log *slog.Logger, emit func(Event)) *Watcher {
	w := &Watcher{log: log, emit: emit, refused: map[string]bool{}, wake: make(chan struct{}, 1)}
	w.signs.interest = map[string]map[*file]bool{}
	w.signs.dirs = map[string]int{}
	w.signs.dirty = map[*file]bool{}
	return w
}

// Set replaces the set of watched files. Each new file has been read when it
// returns, without an event: ask Values. A file that was in the set before (the
// same name; the path may differ) keeps its last value where the rules say so,
// and is read again; if that changed it, there is an event. So a receiver that
// queues events and calls Set and Values from its own turn needs no more: an older
// value of a kept file may still be queued, but the newest is queued behind it. An
// error (two files of one name, a closed watcher) leaves the old set as it is.
func (w *Watcher) Set(files []File) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return ErrClosed
	}
	seen := map[string]bool{}
	for _, f := range files {
		if f.Name == "" || f.Path == "" || seen[f.Name] {
			return fmt.Errorf("watch track file %q (%q): a name is missing, or used twice", f.Name, f.Path)
		}
		seen[f.Name] = true
	}
	w.open(len(files))
	old := map[string]*file{}
	for _, f := range w.files {
		old[f.Name] = f
	}
	w.files = w.files[:0:0]
	for _, want := range files {
		f, kept := old[want.Name]
		if !kept {
			f = &file{}
		}
		delete(old, want.Name)
		f.File = want
		w.files = append(w.files, f)
		if kept {
			w.refresh(f)
			continue
		}
		w.follow(f)
		if f.accept(look(f.Path)); f.now.Warning != "" {
			w.warn(f)
		}
	}
	for _, f := range old {
		w.unfollow(f)
	}
	w.nudge() // Run's timer may have to be earlier now
	return nil
}

// Values returns the present value of each file by name.
func (w *Watcher) Values() map[string]Value {
	w.mu.Lock()
	defer w.mu.Unlock()
	values := make(map[string]Value, len(w.files))
	for _, f := range w.files {
		values[f.Name] = f.now
	}
	return values
}

// Run watches until the context is done, then closes the watcher and returns nil.
func (w *Watcher) Run(ctx context.Context) error {
	defer w.Close()
	period := pollSlow
	poll := time.NewTicker(period)
	defer poll.Stop()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		all := false
		select {
		case <-ctx.Done():
			return nil
		case <-w.wake:
			timer.Reset(coalesce)
			select {
			case <-ctx.Done():
				return nil
			case <-timer.C:
			}
		case <-timer.C:
		case <-poll.C:
			all = true
		}
		next, every := w.turn(all)
		if every != period {
			period = every
			poll.Reset(period)
		}
		if next > 0 {
			timer.Reset(next)
		} else {
			timer.Stop()
		}
	}
}

// Close stops watching; Run does it at its end. It is for a Watcher that is Set
// and never Run.
func (w *Watcher) Close() {
	w.mu.Lock()
	w.closed = true
	fsn := w.fsn
	w.fsn = nil
	w.mu.Unlock()
	if fsn != nil {
		fsn.Close()
	}
	w.pump.Wait()
}

// turn reads what has to be read and returns how long until the next unsettled
// reading is due (0 for none) and until the next poll.
func (w *Watcher) turn(all bool) (next, poll time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	dirty := w.takeDirty()
	now := time.Now()
	for _, f := range w.files {
		if dirty[f] {
			f.touched = now
		}
		if all || dirty[f] || !f.again.IsZero() && !now.Before(f.again) {
			w.refresh(f)
		}
		if !f.again.IsZero() {
			d := max(f.again.Sub(now), time.Millisecond)
			if next == 0 || d < next {
				next = d
			}
		}
	}
	poll = pollSlow
	if w.fsn == nil || len(w.refused) > 0 {
		poll = pollFast
	}
	if w.pollEvery > 0 {
		poll = w.pollEvery
	}
	return next, poll
}

// refresh follows and reads a file, and emits what changed.
func (w *Watcher) refresh(f *file) {
	w.follow(f)
	old := f.now
	now := time.Now()
	changed, again := f.offer(now, look(f.Path))
	f.again = time.Time{}
	if again > 0 {
		f.again = now.Add(again)
	}
	if !changed {
		return
	}
	if f.now.Value != old.Value {
		w.log.Info("Track file changed", event.Key, event.TrackFile, "track_file", f.Name, "path", f.Path, "value", f.now.Value, "was", old.Value)
	}
	if f.now.Warning != "" && f.now.Warning != old.Warning {
		w.warn(f)
	}
	w.emit(Event{Name: f.Name, Value: f.now.Value, Warning: f.now.Warning})
}

func (w *Watcher) warn(f *file) {
	w.log.Warn("Track file keeps its last value", event.Key, event.TrackFileKept, "track_file", f.Name, "path", f.Path,
		"value", f.now.Value, "reason", f.now.Warning)
}

func look(path string) reading {
	v, state, err := Read(path)
	return reading{v, state, err}
}

// open starts fsnotify when the first file comes.
func (w *Watcher) open(files int) {
	if files == 0 || w.fsn != nil {
		return
	}
	fsn, err := fsnotify.NewWatcher()
	if err != nil {
		if !w.refused[""] {
			w.log.Warn("Cannot watch track files, reading them every second instead", event.Key, event.TrackFilePolled, "err", err)
		}
		w.refused[""] = true
		return
	}
	delete(w.refused, "")
	w.fsn = fsn
	w.pump.Go(func() { w.listen(fsn) })
}

// follow walks to a file and watches every directory on the way, each before
// the look-up in it, so that no change can fall between looking and watching.
func (w *Watcher) follow(f *file) {
	path, err := filepath.Abs(f.Path)
	if err != nil {
		path = f.Path
	}
	before := f.looked
	f.looked = map[string]bool{}
	walk(path, func(dir, name string) {
		full := filepath.Join(dir, name)
		f.looked[full] = true
		w.addInterest(f, full)
		w.watch(dir)
	})
	for full := range before {
		if !f.looked[full] {
			w.dropInterest(f, full)
		}
	}
}

func (w *Watcher) unfollow(f *file) {
	for full := range f.looked {
		w.dropInterest(f, full)
	}
	f.looked = nil
	w.signs.Lock()
	delete(w.signs.dirty, f)
	w.signs.Unlock()
}

// watch asks fsnotify to watch a directory. It asks on every walk: a directory
// that was replaced has the old path and a new inode, and asking again costs
// one system call.
func (w *Watcher) watch(dir string) {
	if w.fsn == nil {
		return
	}
	err := w.fsn.Add(dir)
	if err == nil {
		delete(w.refused, dir)
		return
	}
	// A directory that vanished meanwhile is its parent's event.
	if !w.refused[dir] && !isGone(err) {
		w.refused[dir] = true
		w.log.Warn("Cannot watch a track file's directory, reading the file every second instead", event.Key, event.TrackFilePolled,
			"dir", dir, "err", err)
	}
}

func (w *Watcher) addInterest(f *file, full string) {
	w.signs.Lock()
	defer w.signs.Unlock()
	users := w.signs.interest[full]
	if users == nil {
		users = map[*file]bool{}
		w.signs.interest[full] = users
		w.signs.dirs[filepath.Dir(full)]++
	}
	users[f] = true
}

func (w *Watcher) dropInterest(f *file, full string) {
	dir := filepath.Dir(full)
	w.signs.Lock()
	users := w.signs.interest[full]
	delete(users, f)
	unused := false
	if users != nil && len(users) == 0 {
		delete(w.signs.interest, full)
		if w.signs.dirs[dir]--; w.signs.dirs[dir] == 0 {
			delete(w.signs.dirs, dir)
			unused = true
		}
	}
	w.signs.Unlock()
	if unused {
		delete(w.refused, dir)
		if w.fsn != nil {
			// It fails if the directory is gone, and then all is well too.
			_ = w.fsn.Remove(dir)
		}
	}
}

// listen reads fsnotify's channels until they close.
func (w *Watcher) listen(fsn *fsnotify.Watcher) {
	events, errs := fsn.Events, fsn.Errors
	for events != nil || errs != nil {
		select {
		case ev, ok := <-events:
			if !ok {
				events = nil
				continue
			}
			w.mark(filepath.Clean(ev.Name))
		case _, ok := <-errs:
			if !ok {
				errs = nil
				continue
			}
			// Most likely the kernel's queue was full: anything may have changed.
			w.markAll()
		}
	}
}

// mark notes who depends on a path. An event of a watched directory itself
// (moved, deleted) makes everybody look again, since fsnotify identifies
// watches by path and a moved directory can carry another's watch away.
func (w *Watcher) mark(path string) {
	w.signs.Lock()
	users := w.signs.interest[path]
	for f := range users {
		w.signs.dirty[f] = true
	}
	isDir, used := w.signs.dirs[path] > 0, len(users) > 0
	w.signs.Unlock()
	switch {
	case isDir:
		w.markAll()
	case used:
		w.nudge()
	}
}

func (w *Watcher) markAll() {
	w.signs.Lock()
	for _, users := range w.signs.interest {
		for f := range users {
			w.signs.dirty[f] = true
		}
	}
	w.signs.Unlock()
	w.nudge()
}

func (w *Watcher) takeDirty() map[*file]bool {
	w.signs.Lock()
	defer w.signs.Unlock()
	dirty := maps.Clone(w.signs.dirty)
	clear(w.signs.dirty)
	return dirty
}

func (w *Watcher) nudge() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// watched lists the watched directories, for tests.
func (w *Watcher) watched() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fsn == nil {
		return nil
	}
	return slices.Sorted(slices.Values(w.fsn.WatchList()))
}
