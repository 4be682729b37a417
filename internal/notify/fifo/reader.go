package fifo

import (
	"context"
	"slices"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
)

// reader is a program that reads a FIFO.
type reader struct {
	script *config.Script
	path   string
	cancel context.CancelFunc
	done   chan struct{} // closed when it has ended
}

// withPath is a FIFO's script with the path and whom it runs as; nil for none.
func withPath(f config.FIFO, c *Config) *config.Script {
	if f.Script == nil {
		return nil
	}
	s := *f.Script
	s.Argv = append(slices.Clip(s.Argv), f.Path)
	if s.User == "" {
		s.User = c.ScriptUser
		if s.Group == "" {
			s.Group = c.ScriptGroup
		}
	}
	return &s
}

func same(a, b *config.Script) bool {
	return a.User == b.User && a.Group == b.Group && slices.Equal(a.Argv, b.Argv)
}

// ended says whether a program is over.
func (r *reader) ended() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

// read sees to it that a FIFO has the program s, nil for none.
func (w *Writer) read(life context.Context, p *pipe, s *config.Script) {
	was := p.reader
	if was != nil && s != nil && same(was.script, s) && !was.ended() {
		return
	}
	p.reader = nil
	if was != nil {
		was.cancel() // the FIFO stays, so there is no end of file for it to see
	}
	if s == nil || w.start == nil {
		return
	}
	ctx, cancel := context.WithCancel(life)
	r := &reader{script: s, path: p.path, cancel: cancel, done: make(chan struct{})}
	p.reader = r
	// Ends with the program, which cancel ends.
	w.readers.Go(func() {
		defer close(r.done)
		defer cancel()
		if was != nil {
			<-was.done
		}
		if ctx.Err() != nil {
			return
		}
		w.log.Info("Script of notify FIFO is started", event.Key, event.ScriptBegun, "fifo", r.path, "script", s.Argv[0])
		err := w.start(ctx, s)
		switch {
		case ctx.Err() != nil:
			w.log.Debug("Script of notify FIFO was ended", "fifo", r.path, "script", s.Argv[0], "err", err)
		default:
			w.log.Warn("Script of notify FIFO has ended, nothing reads the FIFO", event.Key, event.FIFOUnread, "fifo", r.path, "script", s.Argv[0], "err", err,
				"hint", "it is started again by a reload")
		}
	})
}

// retire ends a program whose FIFO is closed, once it has had the time to notice.
func (w *Writer) retire(r *reader) {
	w.readers.Go(func() {
		grace := time.NewTimer(readRest)
		defer grace.Stop()
		select {
		case <-r.done:
		case <-grace.C:
			r.cancel()
		}
	})
}
