package script

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// maxOutput is how much of what a script prints is kept.
	maxOutput = 4096
	// maxLeftovers is how many pipes are read on for children that scripts left
	// behind.
	maxLeftovers = 64
)

// output is the beginning of what a script prints.
type output struct {
	kept []byte
	lost int64
}

// Write keeps what still fits.
func (o *output) Write(b []byte) (int, error) {
	n := min(len(b), maxOutput-len(o.kept))
	o.kept = append(o.kept, b[:n]...)
	o.lost += int64(len(b) - n)
	return len(b), nil
}

// String is the output as one value of a log line.
func (o *output) String() string {
	s := strings.ToValidUTF8(strings.TrimRight(string(o.kept), "\n"), "?")
	if o.lost > 0 {
		s += fmt.Sprintf(" ... (%d bytes more)", o.lost)
	}
	return s
}

// drain reads to the end and keeps the beginning.
func (o *output) drain(r io.Reader) error {
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	for {
		n, err := r.Read(*b)
		_, _ = o.Write((*b)[:n])
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// drained takes what a pipe holds, without waiting, and says whether that was all
// that there will ever be. It clears the pipe's deadline.
func (o *output) drained(pipe *os.File) (end bool) {
	_ = pipe.SetReadDeadline(time.Time{})
	c, err := pipe.SyscallConn()
	if err != nil {
		return true
	}
	b := buffers.Get().(*[]byte)
	defer buffers.Put(b)
	err = c.Read(func(fd uintptr) bool {
		for o.lost == 0 { // else it is enough, and may go on for ever
			n, err := syscall.Read(int(fd), *b)
			if n <= 0 {
				end = n == 0 && err == nil
				return true
			}
			_, _ = o.Write((*b)[:n])
		}
		return true
	})
	return end || err != nil
}

var buffers = sync.Pool{New: func() any { b := make([]byte, maxOutput); return &b }}

// shared takes what no Leftovers of a Command does.
var shared Leftovers

// Leftovers reads on from pipes that children of ended scripts hold open, and
// throws away what comes. The zero value is ready for use.
type Leftovers struct {
	mu     sync.Mutex
	pipes  []*os.File // the oldest first
	closed bool
	wg     sync.WaitGroup
}

// add takes over a pipe.
func (l *Leftovers) add(r *os.File) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		r.Close()
		return
	}
	if len(l.pipes) >= maxLeftovers {
		l.pipes[0].Close()
		l.pipes = l.pipes[1:]
	}
	l.pipes = append(l.pipes, r)
	// Owned by l, which waits for it in Close.
	l.wg.Go(func() {
		_, _ = io.Copy(io.Discard, r) // until the last writer is gone
		l.remove(r)
	})
}

func (l *Leftovers) remove(r *os.File) {
	r.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	for i, p := range l.pipes {
		if p == r {
			l.pipes = append(l.pipes[:i], l.pipes[i+1:]...)
			return
		}
	}
}

// Close closes them all and waits for the readers.
func (l *Leftovers) Close() {
	l.mu.Lock()
	l.closed = true
	for _, p := range l.pipes {
		p.Close()
	}
	l.mu.Unlock()
	l.wg.Wait()
}
