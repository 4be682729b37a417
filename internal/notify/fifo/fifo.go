package fifo

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
)

// Bounds.
const (
	// maxPending is how many messages may wait for Run. They wait for moments, unless
	// the user database or the file system hangs.
	maxPending = 16384
	// reportEvery is how often losses of one FIFO are logged at most.
	reportEvery = time.Minute
	// readRest is what a program gets to read what is left, before SIGTERM.
	readRest = time.Second
	// StopLimit is the most that Run takes after the end of its context.
	StopLimit = 5 * time.Second
)

// Config is what a configuration says of FIFOs.
type Config struct {
	// FIFOs get every message each.
	FIFOs []config.FIFO
	// ScriptUser and ScriptGroup are whom a script runs as that names nobody. If they
	// change, such a script is started anew.
	ScriptUser, ScriptGroup string
}

// Options are what New wants to know.
type Options struct {
	// Log is where failures go; nil for nowhere.
	Log *slog.Logger
	// Start runs the script of a FIFO, whose path is its last argument already, and
	// returns once it has ended, with the reason if that is not a good one. At the
	// end of the context it must end it: SIGTERM to its process group, and SIGKILL a
	// little later. nil for no scripts.
	Start func(context.Context, *config.Script) error
}

// Stats are counts for metrics.
type Stats struct {
	// Open is how many FIFOs are in use, of Configured.
	Open, Configured int
	// Written and Lost count messages, once for each FIFO.
	Written, Lost uint64
}

// Writer writes to FIFOs. Its methods may be called from several goroutines and
// never block.
type Writer struct {
	log   *slog.Logger
	start func(context.Context, *config.Script) error
	kick  chan struct{} // of size 1: there may be something to do

	mu       sync.Mutex
	inbox    []item
	messages int // in inbox
	overflow int // found no room there
	closed   bool
	stats    Stats

	// What follows belongs to Run.

	pipes   []*pipe
	readers sync.WaitGroup
}

// item is a message or a new configuration.
type item struct {
	message []byte
	config  *Config
}

// New returns a Writer without FIFOs. Nothing is made or written before Run.
func New(o Options) *Writer {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Writer{log: o.Log, start: o.Start, kick: make(chan struct{}, 1)}
}

// Configure replaces the configuration for all messages that follow. A FIFO that
// cannot be used is logged and left out.
func (w *Writer) Configure(c Config) {
	w.mu.Lock()
	w.stats.Configured = len(c.FIFOs)
	w.mu.Unlock()
	w.put(item{config: &c})
}

// RealServer tells that a real server of a virtual server went up or down. The
// names are keepalived's: "[192.0.2.11]:tcp:80".
func (w *Writer) RealServer(rs, vs string, up bool) {
	w.put(item{message: message("RS "+rs+" "+vs, up)})
}

// VirtualServer tells that a virtual server gained or lost its quorum.
func (w *Writer) VirtualServer(vs string, up bool) {
	w.put(item{message: message("VS "+vs, up)})
}

func message(what string, up bool) []byte {
	if up {
		return []byte(what + " UP\n\x00")
	}
	return []byte(what + " DOWN\n\x00")
}

func (w *Writer) put(i item) {
	w.mu.Lock()
	switch {
	case w.closed:
	case i.config != nil:
		w.inbox = append(w.inbox, i)
	case w.stats.Configured == 0: // the common case costs nothing
	case w.messages >= maxPending:
		w.overflow++
	default:
		w.messages++
		w.inbox = append(w.inbox, i)
	}
	w.mu.Unlock()
	select {
	case w.kick <- struct{}{}:
	default: // it is due to look already
	}
}

// Stats returns the counts.
func (w *Writer) Stats() Stats {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.stats
}

// Run makes the FIFOs and writes what is told until its context ends, then writes
// what is left, removes what it made, ends the programs, and returns nil. It may be
// called once.
//
// The context must outlive whoever tells of changes, the engine, or what is told at
// a stop is lost.
func (w *Writer) Run(ctx context.Context) error {
	life := context.WithoutCancel(ctx)
	report := time.NewTimer(0)
	<-report.C
	for {
		w.turn(life, false)
		if wait, ok := w.report(); ok {
			report.Reset(wait)
		}
		select {
		case <-w.kick:
		case <-report.C:
		case <-ctx.Done():
			w.turn(life, true)
			w.end()
			return nil
		}
	}
}

// turn does all that waits.
func (w *Writer) turn(life context.Context, last bool) {
	w.mu.Lock()
	inbox, overflow := w.inbox, w.overflow
	w.inbox, w.messages, w.overflow = nil, 0, 0
	w.closed = last
	w.mu.Unlock()
	for _, i := range inbox {
		if i.config != nil {
			w.apply(life, i.config)
			continue
		}
		for _, p := range w.pipes {
			p.write(i.message)
		}
	}
	for _, p := range w.pipes {
		p.lost += overflow
		p.unsaid += overflow
	}
	w.count()
}

// count adds the pipes' counts to the statistics.
func (w *Writer) count() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Open = len(w.pipes)
	for _, p := range w.pipes {
		w.stats.Written += uint64(p.written)
		w.stats.Lost += uint64(p.lost)
		p.written, p.lost = 0, 0
	}
}

// report logs losses whose time has come. If some must wait, it says how long.
func (w *Writer) report() (wait time.Duration, ok bool) {
	for _, p := range w.pipes {
		if p.unsaid == 0 {
			continue
		}
		if left := reportEvery - time.Since(p.said); !p.said.IsZero() && left > 0 {
			if !ok || left < wait {
				wait, ok = left, true
			}
			continue
		}
		p.say(w.log)
	}
	return wait, ok
}

// apply goes over to a configuration: what is unchanged stays, what is gone is
// closed, and what is new is made.
func (w *Writer) apply(life context.Context, c *Config) {
	var kept []*pipe
	old := w.pipes
	for _, f := range c.FIFOs {
		for i, p := range old {
			if p != nil && p.path == f.Path && p.user == f.User && p.group == f.Group && p.sound() {
				kept, old[i] = append(kept, p), nil
				break
			}
		}
	}
	for _, p := range old {
		if p != nil {
			w.close(p)
		}
	}
	w.pipes = nil
	for _, f := range c.FIFOs {
		p := find(kept, f.Path)
		if p == nil {
			var err error
			if p, err = open(f); err != nil {
				w.log.Error("Notify FIFO cannot be used, nothing is written to it", event.Key, event.FIFOFailed, "fifo", f.Path, "pos", f.Pos, "err", err, "hint", hint(err))
				continue
			}
			w.log.Info("Notify FIFO is open", event.Key, event.FIFOOpen, "fifo", f.Path, "made", p.made)
		}
		w.pipes = append(w.pipes, p)
		w.read(life, p, withPath(f, c))
	}
}

func find(pipes []*pipe, path string) *pipe {
	for _, p := range pipes {
		if p.path == path {
			return p
		}
	}
	return nil
}

// close ends a FIFO: its program may read what is left.
func (w *Writer) close(p *pipe) {
	if p.unsaid > 0 {
		p.say(w.log)
	}
	w.mu.Lock()
	w.stats.Written += uint64(p.written)
	w.stats.Lost += uint64(p.lost)
	w.mu.Unlock()
	if err := p.close(); err != nil {
		w.log.Warn("Notify FIFO could not be removed", event.Key, event.FIFOUnread, "fifo", p.path, "err", err, "hint", "remove it by hand, or leave it: it is used again")
	}
	if p.reader != nil {
		w.retire(p.reader)
	}
}

// end closes everything and waits for the programs.
func (w *Writer) end() {
	for _, p := range w.pipes {
		w.close(p)
	}
	w.pipes = nil
	w.count()
	over := make(chan struct{})
	go func() { // ends with the last reader
		w.readers.Wait()
		close(over)
	}()
	select {
	case <-over:
	case <-time.After(StopLimit):
		w.log.Error("Scripts of notify FIFOs do not end, they are left behind", event.Key, event.ScriptFailed, "limit", StopLimit)
	}
}
