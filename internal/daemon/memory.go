package daemon

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"time"
)

// steadyPercent is how far the heap may grow between two collections. TCP_CHECK and
// HTTP_GET allocate nothing, so that a small one costs no CPU where there are many
// checks; what allocates is a reload, a change and the state file.
const steadyPercent = 25

// loadPercent is the same while a configuration is read and put to use, when what is
// there already is looked through again and again for nothing.
const loadPercent = 100

// settleTimes are how long after a load memory is given back: when what was replaced
// is looked at no longer, and when the first round of checks is over, with its changes
// and their state file.
var settleTimes = []time.Duration{time.Second, 10 * time.Second}

// memory gives back to the system what reading a configuration needed, the pages of
// the program that did it among that.
type memory struct {
	log *slog.Logger
	// loaded asks for it; one request more than the one at work is enough.
	loaded chan struct{}
	free   func()
	// ours: the operator has not set the percentage.
	ours bool
}

func newMemory(log *slog.Logger) *memory {
	m := &memory{log: log, loaded: make(chan struct{}, 1), free: debug.FreeOSMemory, ours: os.Getenv("GOGC") == ""}
	m.load()
	return m
}

// load is called before a configuration is read.
func (m *memory) load() { m.percent(loadPercent) }

func (m *memory) percent(n int) {
	if m.ours {
		debug.SetGCPercent(n)
	}
}

// settle is called after a configuration was put to use, or refused.
func (m *memory) settle() {
	select {
	case m.loaded <- struct{}{}:
	default:
	}
}

// run works beside everything else: the collection marks while the checks run, and
// stops them for less than a millisecond.
func (m *memory) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-m.loaded:
		}
		loaded := time.Now()
		for _, settled := range settleTimes {
			select {
			case <-ctx.Done():
				return
			case <-time.After(time.Until(loaded.Add(settled))):
			}
			began := time.Now()
			m.percent(steadyPercent)
			m.free()
			if err := forgetProgram(); err != nil {
				m.log.Debug("The program stays in memory", "err", err)
			}
			m.log.Debug("Memory given back", "took", time.Since(began).Round(time.Microsecond))
		}
	}
}
