package fifo

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
)

// pipeBuf is what the kernel writes in one piece or not at all (PIPE_BUF).
const pipeBuf = 4096

// mode is what a FIFO is made with; the umask takes from it.
const mode = 0o644

// pipe is a FIFO that is open.
type pipe struct {
	path, user, group string
	fd                int
	made              bool // by us, so it is ours to remove
	dev, ino          uint64
	reader            *reader // nil for none

	written, lost int // since they were counted
	// unsaid are losses that are not logged yet, for the reason why; said is when the
	// last ones were.
	unsaid int
	why    error
	said   time.Time
}

// open makes a FIFO, or opens one that is there if it may be used.
func open(f config.FIFO) (*pipe, error) {
	uid, gid, err := owner(f.User, f.Group)
	if err != nil {
		return nil, err
	}
	p := &pipe{path: f.Path, user: f.User, group: f.Group, fd: -1}
	switch err := unix.Mkfifo(f.Path, mode); err {
	case nil:
		p.made = true
	case unix.EEXIST:
		if err := examine(f.Path, uid); err != nil {
			return nil, err
		}
	default:
		return nil, &fs.PathError{Op: "make FIFO", Path: f.Path, Err: err}
	}
	if err := p.open(uid, gid); err != nil {
		if p.made && p.dev == 0 { // it was not reached
			_ = unix.Unlink(f.Path)
		}
		_ = p.close()
		return nil, err
	}
	return p, nil
}

// open opens what examine has seen. As time has passed since, what counts is asked
// of the descriptor once more.
func (p *pipe) open(uid, gid int) error {
	var err error
	for {
		p.fd, err = unix.Open(p.path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		p.fd = -1
		return &fs.PathError{Op: "open", Path: p.path, Err: err}
	}
	var st unix.Stat_t
	if err := unix.Fstat(p.fd, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: p.path, Err: err}
	}
	if err := acceptable(p.path, st.Mode, int(st.Uid), uid); err != nil {
		p.made = false // whatever this is
		return err
	}
	p.dev, p.ino = st.Dev, st.Ino
	if p.made && (uid >= 0 || gid >= 0) {
		if err := unix.Fchown(p.fd, uid, gid); err != nil {
			return fmt.Errorf("give %s to uid %d, gid %d: %w", p.path, uid, gid, err)
		}
	}
	return nil
}

// examine says why what is at path may not be used. It must not open it: that could
// have an effect on a device.
func examine(path string, uid int) error {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return &fs.PathError{Op: "stat", Path: path, Err: err}
	}
	return acceptable(path, st.Mode, int(st.Uid), uid)
}

func acceptable(path string, mode uint32, owner, uid int) error {
	switch mode & unix.S_IFMT {
	case unix.S_IFIFO:
	case unix.S_IFLNK:
		return fmt.Errorf("%s is a symbolic link, which is not followed: name the FIFO itself", path)
	default:
		return fmt.Errorf("%s is there already and no FIFO: remove it, or name another path", path)
	}
	if owner == os.Geteuid() || owner == uid {
		return nil
	}
	expected := fmt.Sprintf("the daemon's (%d)", os.Geteuid())
	if uid >= 0 {
		expected += fmt.Sprintf(" or the configured one's (%d)", uid)
	}
	return fmt.Errorf("%s is there already and owned by uid %d, expected %s: remove it, or change its owner", path, owner, expected)
}

// owner resolves the configured owner; -1 is to leave it.
func owner(name, group string) (uid, gid int, err error) {
	uid, gid = -1, -1
	if name == "" {
		return uid, gid, nil
	}
	u, err := user.Lookup(name)
	if n, numErr := strconv.ParseUint(name, 10, 31); err != nil && numErr == nil {
		// A number need not be in the user database.
		if u, err = user.LookupId(name); err != nil {
			u, err = &user.User{Uid: strconv.FormatUint(n, 10), Gid: "-1"}, nil
		}
	}
	if err != nil {
		if errors.As(err, new(user.UnknownUserError)) {
			err = fmt.Errorf("there is no user %q to own it", name)
		}
		return uid, gid, err
	}
	if uid, err = strconv.Atoi(u.Uid); err != nil {
		return -1, -1, fmt.Errorf("user %s: %w", name, err)
	}
	if group == "" {
		gid, err = strconv.Atoi(u.Gid)
		return uid, gid, err
	}
	g, err := user.LookupGroup(group)
	if err != nil {
		if n, numErr := strconv.ParseUint(group, 10, 31); numErr == nil {
			return uid, int(n), nil
		}
		if errors.As(err, new(user.UnknownGroupError)) {
			err = fmt.Errorf("there is no group %q to own it", group)
		}
		return -1, -1, err
	}
	gid, err = strconv.Atoi(g.Gid)
	return uid, gid, err
}

// hint says what to do about errors whose text does not.
func hint(err error) string {
	errno, ok := errors.AsType[syscall.Errno](err)
	switch {
	case !ok:
		return "reload once it is mended"
	case errno == unix.ENOENT:
		return "make the folder, or name another path, then reload"
	case errno == unix.EROFS:
		return "the service unit may make it so: add the folder to ReadWritePaths, or use one below /run/sluice"
	case errno == unix.EPERM:
		return "the service unit may lack CAP_CHOWN, which another owner than the daemon's user takes"
	case errno == unix.EACCES:
		return "the daemon's user may not write to the folder or to the FIFO"
	}
	return "reload once it is mended"
}

// write sends one message, or loses it.
func (p *pipe) write(message []byte) {
	err := p.send(message)
	if err == nil {
		p.written++
		return
	}
	p.lost++
	p.unsaid++
	p.why = err
}

var errTooLong = fmt.Errorf("a message is longer than %d bytes", pipeBuf)

func (p *pipe) send(message []byte) error {
	if len(message) > pipeBuf {
		return errTooLong
	}
	for {
		// In one piece or not at all, since it is not longer than PIPE_BUF.
		_, err := unix.Write(p.fd, message)
		if err != unix.EINTR {
			return err
		}
	}
}

// say logs losses.
func (p *pipe) say(log *slog.Logger) {
	why, hint := "the daemon could not keep up", ""
	switch {
	case errors.Is(p.why, unix.EAGAIN):
		why, hint = "the FIFO is full", "its reader is too slow or gone"
		if !p.sound() {
			hint = "somebody removed or replaced it, readers wait at another file: reload makes it again"
		}
	case p.why != nil:
		why = p.why.Error()
	}
	log.Error("Messages to notify FIFO are lost", event.Key, event.FIFOFailed, "fifo", p.path, "lost", p.unsaid, "err", why, "hint", hint)
	p.unsaid, p.why, p.said = 0, nil, time.Now()
}

// sound says whether the name still leads to the FIFO that is open.
func (p *pipe) sound() bool {
	var st unix.Stat_t
	return unix.Lstat(p.path, &st) == nil && st.Dev == p.dev && st.Ino == p.ino
}

// close closes the FIFO, and removes it if that is ours to do.
func (p *pipe) close() error {
	if p.fd >= 0 {
		unix.Close(p.fd)
		p.fd = -1
	}
	if !p.made || !p.sound() {
		return nil
	}
	if err := unix.Unlink(p.path); err != nil && err != unix.ENOENT {
		return &fs.PathError{Op: "remove", Path: p.path, Err: err}
	}
	return nil
}
