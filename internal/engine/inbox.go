package engine

import "sync"

// inbox is an unbounded queue with one reader.
type inbox struct {
	mu     sync.Mutex
	events []occurrence
	// ready holds a token while there may be events.
	ready chan struct{}
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1)} }

func (b *inbox) send(ev occurrence) {
	b.mu.Lock()
	b.events = append(b.events, ev)
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// take returns all that is queued, in the order it was sent.
func (b *inbox) take() []occurrence {
	b.mu.Lock()
	defer b.mu.Unlock()
	evs := b.events
	b.events = nil
	return evs
}
