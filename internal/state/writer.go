package state

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/event"
)

const (
	// pause is between two writes, whatever happens in between.
	pause = time.Second
	// again is the pause after one that failed.
	again = 10 * time.Second
)

// Writer keeps the file in step with the newest state.
type Writer struct {
	dir  *Dir
	log  *slog.Logger
	wake chan struct{}

	mu      sync.Mutex
	pending *State

	// writing is held by the one write at a time.
	writing sync.Mutex
	failed  error
}

// NewWriter returns a writer into the folder; Run has it work.
func NewWriter(dir *Dir, log *slog.Logger) *Writer {
	return &Writer{dir: dir, log: log, wake: make(chan struct{}, 1)}
}

// Save has the state written soon: it returns at once, and of several the newest
// counts. The state must not change any more.
func (w *Writer) Save(s *State) {
	w.mu.Lock()
	w.pending = s
	w.mu.Unlock()
	w.poke()
}

func (w *Writer) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run writes, at most once a second, until the context ends; then it writes what is
// left. A failure is logged when it begins, and tried again.
func (w *Writer) Run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return w.Flush()
		case <-w.wake:
		}
		wait := pause
		if w.Flush() != nil {
			wait = again
			w.poke()
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return w.Flush()
		case <-timer.C:
		}
	}
}

// Flush writes what is saved and not written yet. Its error is that of the last
// write: nil means that the newest state is on the disk.
func (w *Writer) Flush() error {
	w.writing.Lock()
	defer w.writing.Unlock()
	w.mu.Lock()
	s := w.pending
	w.pending = nil
	w.mu.Unlock()
	if s == nil {
		return w.failed
	}
	err := w.dir.write(s.Write)
	if err != nil {
		err = fmt.Errorf("write %s: %w", w.dir.File(), err)
		w.mu.Lock()
		if w.pending == nil {
			w.pending = s
		}
		w.mu.Unlock()
		if w.failed == nil {
			w.log.Error("State not saved, will retry; a restart meanwhile goes by the file before it and by the IPVS table", event.Key, event.StateFailed, "err", err)
		}
	} else if w.failed != nil {
		w.log.Info("State saved again", event.Key, event.StateSaved, "file", w.dir.File())
	}
	w.failed = err
	return err
}
