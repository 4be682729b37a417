package daemon

import (
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluice-lb/sluice/internal/config"
)

// TestKnownTrackFiles: only a number is an answer to which side a director is on; for a
// weight all the rest counts as 0, or as before.
func TestKnownTrackFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	f := newFiles(slog.New(slog.DiscardHandler))
	f.emit = func(string, int64) {}
	t.Cleanup(f.watcher.Close)
	var set []*config.TrackFile
	want := map[string]bool{}
	for name, text := range map[string]string{"zero": "0\n", "one": "1", "empty": "\n", "words": "MASTER\n", "huge": "99999999999", "missing": ""} {
		path := filepath.Join(dir, name)
		if name != "missing" {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		set = append(set, &config.TrackFile{Name: name, Path: path})
		want[name] = name == "zero" || name == "one"
	}
	want["never"] = false
	values := f.Watch(set)
	for name, known := range want {
		if f.Known(name) != known {
			t.Errorf("%s (value %d): known %t, want %t", name, values[name], !known, known)
		}
	}
}
