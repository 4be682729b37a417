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

// Known tells whether a watched file says anything: one that is not there, or holds no
// number, does not.
func (f *files) Known(trackFile string) bool {
	v, watched := f.watcher.Values()[trackFile]
	return watched && v.State == trackfile.OK
}

// look returns the values that Watch would, without watching. A file that is watched
// already has its value; any other is opened only if it may be.
func (f *files) look(running []*config.TrackFile, open bool) func([]*config.TrackFile) map[string]int64 {
	at := make(map[string]string, len(running))
	for _, tf := range running {
		at[tf.Name] = tf.Path
	}
	return func(tfs []*config.TrackFile) map[string]int64 {
		known := f.watcher.Values()
		values := make(map[string]int64, len(tfs))
		for _, tf := range tfs {
			switch v, watched := known[tf.Name]; {
			case watched && at[tf.Name] == tf.Path:
				values[tf.Name] = v.Value
			case !open:
				values[tf.Name] = 0
			default:
				value, _, err := trackfile.Read(tf.Path)
				if err != nil {
					value = v.Value // as the watcher keeps it
				}
				values[tf.Name] = value
			}
		}
		return values
	}
}

// Run watches until the context ends.
func (f *files) Run(ctx context.Context) error { return f.watcher.Run(ctx) }
