package daemon

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// pidFile is a file with this process's number that says by a lock that the
// process is alive. A number alone cannot: after a crash it may be anybody's.
type pidFile struct {
	path string
	f    *os.File
}

// claimPIDFiles writes the files, or none if another live process holds one.
func claimPIDFiles(paths []string) (release func() error, err error) {
	var claimed []*pidFile
	release = func() error {
		var errs []error
		for _, p := range claimed {
			errs = append(errs, p.release())
		}
		return errors.Join(errs...)
	}
	seen := map[string]bool{}
	for _, path := range paths {
		if path = filepath.Clean(path); seen[path] {
			continue
		}
		seen[path] = true
		p, err := claimPIDFile(path, "/proc")
		if err != nil {
			return nil, errors.Join(err, release())
		}
		claimed = append(claimed, p)
	}
	return release, nil
}

// claimPIDFile writes one file. A reader finds an old number or the new one, never
// a part of it: a file that is complete takes the place of the old one. Whoever
// wants to replace a file must hold the old one's lock meanwhile, so that two who
// start at once cannot both succeed.
func claimPIDFile(path, proc string) (*pidFile, error) {
	failed := func(err error) error {
		return fmt.Errorf("pid file %s: %w; name another with -p or -c", path, err)
	}
	for {
		old, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
		if err != nil {
			return nil, failed(err)
		}
		again, err := replaceable(old, path, proc)
		if err != nil || again {
			old.Close()
			if err != nil {
				return nil, failed(err)
			}
			continue
		}
		p, err := writePIDFile(path)
		old.Close()
		if err != nil {
			return nil, failed(err)
		}
		return p, nil
	}
}

// replaceable locks the old file and says who holds it if that is impossible.
// again is true if it is no longer the file of its path.
func replaceable(old *os.File, path, proc string) (again bool, err error) {
	fi, err := old.Stat()
	if err != nil {
		return false, err
	}
	if !fi.Mode().IsRegular() {
		return false, errors.New("is not a regular file")
	}
	text, err := io.ReadAll(io.LimitReader(old, 64))
	if err != nil {
		return false, err
	}
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	switch err := unix.Flock(int(old.Fd()), unix.LOCK_EX|unix.LOCK_NB); {
	case errors.Is(err, unix.EWOULDBLOCK) && pid == 0:
		return false, errors.New("is held by another process that is starting: one of the two is enough")
	case errors.Is(err, unix.EWOULDBLOCK):
		return false, fmt.Errorf("is held by process %d, which is running: stop that one first", pid)
	case err != nil:
		return false, fmt.Errorf("lock: %w", err)
	}
	now, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(fi, now) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	// keepalived locks nothing.
	if name := director(proc, pid); name != "" && pid != os.Getpid() {
		return false, fmt.Errorf("names process %d, a %s that is running: stop that one first, two would undo each other's table", pid, name)
	}
	return false, nil
}

// director returns the name of a live process if it is one that a pid file of
// ours can be about, else "".
func director(proc string, pid int) string {
	if pid <= 0 {
		return ""
	}
	exe, err := os.Readlink(filepath.Join(proc, strconv.Itoa(pid), "exe"))
	if err != nil {
		return ""
	}
	// As the kernel names a program that was replaced while it runs.
	name := strings.TrimSuffix(filepath.Base(exe), " (deleted)")
	if name == "keepalived" || name == "sluiced" {
		return name
	}
	return ""
}

func writePIDFile(path string) (*pidFile, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, err
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		_, err = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return nil, errors.Join(err, os.Remove(f.Name()), f.Close())
	}
	return &pidFile{path: path, f: f}, nil
}

// release removes the file if it is still ours.
func (p *pidFile) release() error {
	defer p.f.Close()
	ours, err := p.f.Stat()
	if err != nil {
		return err
	}
	now, err := os.Lstat(p.path)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && !os.SameFile(ours, now):
		return nil
	case err != nil:
		return err
	}
	return os.Remove(p.path)
}
