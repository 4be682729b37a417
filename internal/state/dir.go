package state

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/event"
)

const (
	fileName = "state.json"
	lockName = "lock"
	// tempPattern is os.CreateTemp's.
	tempPattern = "state.json.tmp-*"
	// maxSize is far beyond what 100,000 checkers take.
	maxSize = 256 << 20
)

// ErrLocked is wrapped by Open's error when another process has the folder.
var ErrLocked = errors.New("another process uses it")

// Dir is the folder of one state file, which this process has for itself.
type Dir struct {
	path string
	log  *slog.Logger
	lock *os.File
}

// Open takes the folder, and makes it if need be.
func Open(path string, log *slog.Logger) (*Dir, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	lock, err := os.OpenFile(filepath.Join(path, lockName), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, fmt.Errorf("state folder: %w", err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			err = ErrLocked
		}
		return nil, fmt.Errorf("state folder %s: %w", path, err)
	}
	d := &Dir{path: path, log: log, lock: lock}
	// What a crash left halfway.
	left, _ := filepath.Glob(filepath.Join(path, tempPattern))
	for _, f := range left {
		_ = os.Remove(f)
	}
	return d, nil
}

// Close gives the folder back.
func (d *Dir) Close() error { return d.lock.Close() }

// File is the state file's path.
func (d *Dir) File() string { return filepath.Join(d.path, fileName) }

// Load returns the saved state; nil without one. A file that is of no use is set
// aside and logged.
func (d *Dir) Load() *State {
	b, err := d.read()
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var s *State
	if err == nil {
		s, err = Decode(b)
	}
	if err == nil {
		return s
	}
	kind := "damaged"
	if errors.Is(err, ErrNewer) {
		kind = "newer"
	}
	aside := d.File() + "." + kind + "-" + time.Now().UTC().Format("20060102T150405Z")
	if rerr := os.Rename(d.File(), aside); rerr != nil {
		aside = ""
		err = errors.Join(err, rerr)
	}
	d.log.Error("State file ignored; what is in the IPVS table is adopted without it", event.Key, event.StateFailed, "file", d.File(), "err", err, "set_aside", aside)
	return nil
}

func (d *Dir) read() ([]byte, error) {
	f, err := os.Open(d.File())
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSize+1))
	if err == nil && len(b) > maxSize {
		err = fmt.Errorf("longer than %d MB", maxSize>>20)
	}
	return b, err
}

// write replaces the file in one step.
func (d *Dir) write(content func(io.Writer) error) error {
	f, err := os.CreateTemp(d.path, tempPattern) // 0600
	if err != nil {
		return err
	}
	err = content(f)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(f.Name(), d.File())
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFolder(d.path)
}

// syncFolder makes a rename outlive a loss of power.
func syncFolder(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
