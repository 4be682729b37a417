package script

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
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
