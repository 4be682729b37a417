package daemon

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/event"
)

// reloadFile is there while a reload goes on, for those who wait for its end.
//
// Which file it is the running configuration says, since the new one is not known
// before it is read; for the same reason there is none at the start. What a crash
// in the middle of a reload left is removed at the start, or it would be waited
// for without end. A keepalived that reads the same configuration for VRRP has the
// same file: whoever ends first removes it, and the other does not mind. Nothing
// but an empty regular file is taken for it, so that a path written by mistake
// costs no file. The observer of another daemon leaves it to that one.
//
// No failure is a reason not to reload.
type reloadFile struct {
	log  *slog.Logger
	idle bool
}

// create makes the file and returns what removes it.
func (r reloadFile) create(path string) (remove func()) {
	if path == "" || r.idle {
		return func() {}
	}
	if err := createEmpty(path); err != nil {
		r.log.Warn("Nothing shows that a reload goes on; the reload itself is not affected", event.Key, event.FileFailed, "reload_file", path, "err", err)
		return func() {}
	}
	return func() { r.remove(path) }
}

// remove removes the file; a missing one is what is wanted.
func (r reloadFile) remove(path string) {
	if path == "" || r.idle {
		return
	}
	if err := removeEmpty(path); err != nil {
		r.log.Warn("A file says that a reload goes on, and none does: remove it", event.Key, event.FileFailed, "reload_file", path, "err", err)
	}
}

func createEmpty(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	switch {
	case errors.Is(err, fs.ErrExist):
		fi, err := os.Lstat(path)
		if err != nil {
			return err
		}
		return isEmpty(fi)
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("folder %s is missing: make it, or name another path after reload_file", filepath.Dir(path))
	case err != nil:
		return err
	}
	// Others look for it, so the umask must not have the last word on its mode.
	return errors.Join(f.Chmod(0o644), f.Close())
}

func removeEmpty(path string) error {
	fi, err := os.Lstat(path)
	if err == nil {
		err = isEmpty(fi)
	}
	if err == nil {
		err = os.Remove(path)
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	return err
}

// isEmpty tells whether a file can be a reload_file.
func isEmpty(fi fs.FileInfo) error {
	if !fi.Mode().IsRegular() || fi.Size() > 0 {
		return fmt.Errorf("%s is not an empty file and so stays as it is: name another path after reload_file", fi.Name())
	}
	return nil
}
