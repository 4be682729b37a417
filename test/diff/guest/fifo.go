package guest

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// fifo reads what a daemon writes to a named pipe, which the daemon makes, and may
// remove and make again. What was written stays in the pipe as long as someone has
// it open, so looking now and then misses nothing.
type fifo struct {
	name, path string

	mu    sync.Mutex
	fd    int // -1: not open
	inode uint64
	rest  []byte // of a message that is not whole yet
	lines []string
}

func newFifo(name, path string) *fifo { return &fifo{name: name, path: path, fd: -1} }

// follow looks for the pipe, and reads, until done is closed.
func (f *fifo) follow(done <-chan struct{}) {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		f.read()
		select {
		case <-tick.C:
		case <-done:
			f.mu.Lock()
			defer f.mu.Unlock()
			f.close()
			return
		}
	}
}

// read takes in what is there now.
func (f *fifo) read() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drain()
	var st unix.Stat_t
	if unix.Stat(f.path, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFIFO || f.fd >= 0 && st.Ino == f.inode {
		return
	}
	f.close()
	fd, err := unix.Open(f.path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return // it is gone again
	}
	f.fd, f.inode = fd, st.Ino
	f.drain()
}

func (f *fifo) close() {
	if f.fd >= 0 {
		f.drain()
		unix.Close(f.fd)
		f.fd = -1
	}
}

func (f *fifo) drain() {
	if f.fd < 0 {
		return
	}
	for buf := make([]byte, 65536); ; {
		n, err := unix.Read(f.fd, buf)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 {
			break
		}
		f.rest = append(f.rest, buf[:n]...)
	}
	for {
		message, rest, whole := cutMessage(f.rest)
		if !whole {
			return
		}
		f.rest = rest
		f.lines = append(f.lines, "fifo "+f.name+": "+message)
	}
}

// cutMessage takes the first message off: up to the end of the line, and the NUL
// that may follow it. A NUL in another place is shown where it stands.
func cutMessage(b []byte) (message string, rest []byte, whole bool) {
	line, rest, whole := bytes.Cut(b, []byte("\n"))
	if !whole {
		return "", b, false
	}
	message = strings.ReplaceAll(string(line), "\x00", `\0`)
	if len(rest) > 0 && rest[0] == 0 {
		return message + `\0`, rest[1:], true
	}
	return message, rest, true
}

// take returns the messages that have come since it was last called.
func (f *fifo) take() string {
	f.read()
	f.mu.Lock()
	defer f.mu.Unlock()
	lines := f.lines
	f.lines = nil
	if len(lines) == 0 {
		return ""
	}
	return strings.Join(lines, "\n") + "\n"
}

// eventsFile is what scripts append to.
type eventsFile struct {
	path string
	read int64
}

// newEventsFile makes the file, so that scripts of any user may write to it.
func newEventsFile(path string) (*eventsFile, error) {
	if err := os.WriteFile(path, nil, 0o666); err != nil {
		return nil, err
	}
	return &eventsFile{path: path}, os.Chmod(path, 0o666)
}

// take returns the lines that have come since it was last called.
func (e *eventsFile) take() (string, error) {
	b, err := os.ReadFile(e.path)
	if err != nil || int64(len(b)) < e.read {
		return "", err
	}
	news := string(b[e.read:])
	e.read = int64(len(b))
	return news, nil
}
