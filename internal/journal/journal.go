// Package journal writes records with fields to systemd's journal, by its native
// protocol (systemd's JOURNAL_NATIVE_PROTOCOL): a datagram for each record, or, if that
// is too big, one with a sealed file in memory.
//
// It decides how a record is encoded and what "could not be written" means; what then
// becomes of it is the caller's. It is written here, and not taken from go-systemd,
// because who logs here must never wait: go-systemd's sender blocks for as long as the
// journal does not read, without a limit that could be set, writes what is too big to a
// file system, and cannot be pointed at another socket, so that no test could decode
// what it sends.
package journal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Socket is where the journal listens.
const Socket = "/run/systemd/journal/socket"

// Limits: the journal drops what has a longer name.
const (
	maxName = 64
	// sendBuffer is asked for: datagrams wait in it while the journal is busy.
	sendBuffer = 8 << 20
)

// Field is one of a record. The value may be any bytes.
type Field struct{ Name, Value string }

// Encode appends fields as the journal reads them. A name that is not one (Name) is
// left out.
func Encode(b []byte, fields ...Field) []byte {
	for _, f := range fields {
		if f.Name == "" || Name(f.Name) != f.Name {
			continue
		}
		b = append(b, f.Name...)
		if strings.Contains(f.Value, "\n") {
			b = append(b, '\n')
			b = binary.LittleEndian.AppendUint64(b, uint64(len(f.Value)))
		} else {
			b = append(b, '=')
		}
		b = append(append(b, f.Value...), '\n')
	}
	return b
}

// Name makes a field's name of a text: capitals, digits and underscores, the first a
// capital, at most 64. It is "" if nothing is left.
func Name(s string) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r >= 'a' && r <= 'z':
			r -= 'a' - 'A'
		case r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		case r == utf8.RuneError:
			continue
		default:
			r = '_'
		}
		if b.Len() == 0 && (r < 'A' || r > 'Z') {
			continue // one with an underscore in front is the journal's own
		}
		if b.Len() == maxName {
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}

// Writer sends records. It may be used by several goroutines and never blocks.
type Writer struct {
	at unix.SockaddrUnix

	mu  sync.Mutex
	fd  int
	buf []byte
}

// Dial returns a writer to a socket. Whether somebody listens shows with each record,
// so that a journal that is started anew is found again.
func Dial(path string) (*Writer, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("socket for the journal: %w", err)
	}
	// Less is allowed to most; then fewer wait.
	_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer)
	return &Writer{at: unix.SockaddrUnix{Name: path}, fd: fd}, nil
}

// Send writes a record, or says why not. The error wraps the errno: EAGAIN while the
// journal does not read, ENOENT or ECONNREFUSED without one.
func (w *Writer) Send(fields ...Field) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.buf = Encode(w.buf[:0], fields...)
	defer func() {
		if cap(w.buf) > 64<<10 {
			w.buf = nil
		}
	}()
	err := w.send(w.buf, nil)
	if errors.Is(err, unix.EMSGSIZE) || errors.Is(err, unix.ENOBUFS) {
		err = w.sendFile(w.buf)
	}
	if err != nil {
		return fmt.Errorf("write to the journal on %s: %w", w.at.Name, err)
	}
	return nil
}

func (w *Writer) send(b, control []byte) error {
	for {
		err := unix.Sendmsg(w.fd, b, control, &w.at, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// sendFile sends a record as a file in memory that nobody can change any more.
func (w *Writer) sendFile(b []byte) error {
	fd, err := unix.MemfdCreate("sluice-journal", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	const seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return err
	}
	return w.send(nil, unix.UnixRights(fd))
}

// Close ends it.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return unix.Close(w.fd)
}
