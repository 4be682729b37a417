package trackfile

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
)

// WriteInit writes a track file's init_file value, if it has one and the file
// is missing or is to be overwritten. The content appears at once (a temporary
// file, then a rename), with mode 0600 less the umask, as with keepalived. It
// is for the first start only, never for a reload or a configuration test.
//
// A symbolic link is followed. Anything but a regular file in that place is an
// error and stays untouched.
func WriteInit(tf *config.TrackFile) error {
	if !tf.InitSet {
		return nil
	}
	if err := writeInit(tf.Path, tf.Init, tf.InitOverwrite); err != nil {
		return fmt.Errorf("write init_file of track_file %s: %w", tf.Name, err)
	}
	return nil
}

func writeInit(path string, value int64, overwrite bool) error {
	if target, err := filepath.EvalSymlinks(path); err == nil {
		path = target
	}
	switch fi, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return err
	case !fi.Mode().IsRegular():
		return fmt.Errorf("%s is not a regular file (%s)", path, fi.Mode().Type())
	case !overwrite:
		return nil
	}
	// CreateTemp's mode is 0600.
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(tmp, "%d\n", value)
	if err = errors.Join(err, tmp.Close()); err == nil {
		err = rename(tmp.Name(), path, overwrite)
	}
	if err != nil {
		return errors.Join(err, os.Remove(tmp.Name()))
	}
	return nil
}

// rename moves a file into place. Without overwrite a file that somebody else
// created in the meantime wins; file systems that cannot promise that are
// trusted to have no such race.
func rename(from, to string, overwrite bool) error {
	if !overwrite {
		err := unix.Renameat2(unix.AT_FDCWD, from, unix.AT_FDCWD, to, unix.RENAME_NOREPLACE)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, unix.EEXIST):
			return os.Remove(from)
		case !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOSYS):
			return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
		}
	}
	return os.Rename(from, to)
}

// isGone tells whether an error says that a path is not there.
func isGone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR)
}
