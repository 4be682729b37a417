package engine

import (
	"sync"
	"time"
)

// inbox is an unbounded queue with one reader.
type inbox struct {
	mu     sync.Mutex
	events []letter
	// ready holds a token while there may be events.
	ready chan struct{}
	// begun is where its clock begins.
	begun time.Time
}

// letter is an event with when it was sent, by the inbox's clock.
type letter struct {
	occurrence
	sent time.Duration
}

func newInbox() *inbox { return &inbox{ready: make(chan struct{}, 1), begun: time.Now()} }

// now is the time since the inbox was made.
func (b *inbox) now() time.Duration { return time.Since(b.begun) }

func (b *inbox) send(ev occurrence) {
	sent := b.now()
	b.mu.Lock()
	b.events = append(b.events, letter{ev, sent})
	b.mu.Unlock()
	select {
	case b.ready <- struct{}{}:
	default:
	}
}

// take returns all that is queued, in the order it was sent.
func (b *inbox) take() []letter {
	b.mu.Lock()
	defer b.mu.Unlock()
	evs := b.events
	b.events = nil
	return evs
}
