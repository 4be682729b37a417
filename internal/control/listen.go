package control

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// DefaultSocket is where the daemon listens unless told otherwise.
const DefaultSocket = "/run/sluice/sluiced.sock"

// ErrRunning is wrapped by Listen's error when another daemon has the socket.
var ErrRunning = errors.New("another sluiced is running")

const (
	// socketMode lets the owner and the socket's group connect.
	socketMode = 0o660
	// maxPath is what sockaddr_un holds, less the final NUL.
	maxPath = 107
	// probeTimeout bounds the look whether somebody answers on an old socket.
	probeTimeout = time.Second
)

// runDirs are emptied at boot; a directory in there is made when it is missing.
var runDirs = []string{"/run/", "/var/run/"}

// socket is a bound socket and the lock that makes it ours.
type socket struct {
	net.Listener
	path string
	// id is the inode that we bound, so that Close removes no other.
	id   inode
	lock *os.File
}

type inode struct{ dev, ino uint64 }

func listen(path string) (*socket, error) {
	if !filepath.IsAbs(path) {
		return nil, fmt.Errorf("listen on %q: not an absolute path", path)
	}
	if len(path) > maxPath {
		return nil, fmt.Errorf("listen on %s: the path is longer than the %d bytes that a socket's may have", path, maxPath)
	}
	dir := filepath.Dir(path)
	for _, run := range runDirs {
		if strings.HasPrefix(path, run) {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return nil, fmt.Errorf("listen on %s: %w", path, err)
			}
		}
	}
	lock, err := takeLock(path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	s, err := bind(path)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	s.lock = lock
	return s, nil
}

// takeLock holds path.lock for the life of the process and writes its id there.
func takeLock(path string) (*os.File, error) {
	f, err := os.OpenFile(path+".lock", os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer f.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
		}
		b := make([]byte, 20)
		n, _ := f.ReadAt(b, 0)
		if pid, err := strconv.Atoi(strings.TrimSpace(string(b[:n]))); err == nil {
			return nil, fmt.Errorf("%w (process %d)", ErrRunning, pid)
		}
		return nil, ErrRunning
	}
	if err := f.Truncate(0); err == nil {
		// The id is a courtesy for the message above.
		_, _ = fmt.Fprintln(f, os.Getpid())
	}
	return f, nil
}

// bind makes the socket under the lock. It is bound inside a directory that only
// we can enter and is moved to its place when its mode is right, so that nobody
// connects before, and nobody finds the place empty between the old and the new.
func bind(path string) (*socket, error) {
	switch fi, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return nil, err
	case fi.Mode().Type() != fs.ModeSocket:
		return nil, fmt.Errorf("something that is not a socket is there (%s)", fi.Mode())
	default:
		// A daemon that lost its lock file to somebody's rm still answers.
		c, err := net.DialTimeout("unix", path, probeTimeout) //nolint:noctx // the limit is short
		if err == nil {
			c.Close()
		}
		if !errors.Is(err, unix.ECONNREFUSED) && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("%w (it answers on this socket)", ErrRunning)
		}
	}
	tmp, err := os.MkdirTemp(filepath.Dir(path), ".s")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(tmp)
	// Through /proc, since the longer path might not fit into sockaddr_un.
	fd, err := unix.Open(tmp, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	l, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: fmt.Sprintf("/proc/self/fd/%d/s", fd)})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	s := &socket{Listener: l, path: path}
	made := filepath.Join(tmp, "s")
	err = os.Chmod(made, socketMode)
	if err == nil {
		s.id, err = inodeOf(made)
	}
	if err == nil {
		err = os.Rename(made, path)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return s, nil
}

func inodeOf(path string) (inode, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return inode{}, &fs.PathError{Op: "lstat", Path: path, Err: err}
	}
	return inode{st.Dev, st.Ino}, nil
}

// Close ends listening, removes the socket if it is still the one that was made,
// and gives the lock back.
func (s *socket) Close() error {
	err := s.Listener.Close()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	if id, ierr := inodeOf(s.path); ierr == nil && id == s.id {
		err = errors.Join(err, os.Remove(s.path))
	}
	return errors.Join(err, s.lock.Close())
}
