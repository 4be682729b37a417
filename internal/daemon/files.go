package daemon

import (
	"context"
	"log/slog"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
	"github.com/sluice-lb/sluice/internal/trackfile"
)

// files gives the engine its track files.
type files struct {
	log     *slog.Logger
	watcher *trackfile.Watcher
	// emit is set before the first value can come.
	emit func(name string, value int64)
	// inits are the track files whose init_file was handled: first start only.
	inits map[string]bool
}

func newFiles(log *slog.Logger) *files {
	f := &files{log: log}
	f.watcher = trackfile.New(log, func(ev trackfile.Event) { f.emit(ev.Name, ev.Value) })
	return f
}

// Watch replaces the watched set. At the first call init_file is honoured.
func (f *files) Watch(tfs []*config.TrackFile) map[string]int64 {
	set := make([]trackfile.File, len(tfs))
	for i, tf := range tfs {
		if f.inits == nil && tf.InitSet {
			if err := trackfile.WriteInit(tf); err != nil {
				f.log.Error("init_file not written", event.Key, event.TrackFileFailed, "track_file", tf.Name, "path", tf.Path, "err", err)
			}
		}
		set[i] = trackfile.File{Name: tf.Name, Path: tf.Path}
	}
	f.inits = map[string]bool{}
	if err := f.watcher.Set(set); err != nil {
		f.log.Error("Some track files are not watched", event.Key, event.TrackFileFailed, "err", err)
	}
	values := make(map[string]int64, len(tfs))
	for name, v := range f.watcher.Values() {
		values[name] = v.Value
	}
	return values
}

// Run watches until the context ends.
func (f *files) Run(ctx context.Context) error { return f.watcher.Run(ctx) }
