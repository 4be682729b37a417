// Package event remembers what happened last: the same facts as the log has, with
// numbers, for those who ask (sluice events, the dashboard); and it decides which
// records reach the log.
//
// # Decisions
//
// There is one source for both the log and the events: slog handlers in front of the
// log's own, so that what is shown is what was logged. A record with the attribute Key
// is an event of that kind; any other of level warn or above is one of the kind Note.
// Events are remembered from level info on, also while the log is less talkative.
//
// The kinds are a catalogue (Catalogue): each has one meaning, one level and a topic,
// which is what it tells the newest state of. docs/events.md is made from it.
//
// Levels have one meaning each:
//
//   - debug: what one check or one turn did;
//   - info: a change for the better, or one that was asked for;
//   - warn: a change for the worse that the pool bears, or a setting without effect;
//   - error: something that was promised does not hold, and somebody has to act.
//
// In a steady state nothing is written, be it a good one or a bad one: a line is a
// change. What changes all the time is cut short (Limiter): of one topic of one subject
// ten lines pass in a minute, then one line a minute that has the newest text and how
// many it stands for. What somebody asked for always passes. Events are in front of that
// and have all.
//
// Memory: the ring grows with what happened up to its size, texts are cut, and an event
// holds a bounded number of attributes. A reader copies the part that it asks for and
// makes nothing else while the writers wait.
package event

import (
	"context"
	"sync"
	"time"
)

// Key is the attribute that names a record's kind. The text log leaves it out.
const Key = "event"

// Size is how many events a daemon remembers.
const Size = 2048

// Limits of what is kept of one event. Longer texts are cut.
const (
	maxAttrs   = 16
	maxMessage = 1024
	maxText    = 512
)

// Event is one thing that happened.
type Event struct {
	// Seq counts events from 1 since the daemon was started.
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"` // when it happened
	// Level is "info", "warn" or "error".
	Level string `json:"level"`
	// Kind is one of the catalogue: "server_up", "quorum_lost", "drain_done", ...
	Kind Kind `json:"event"`
	// Message is the log's line without the attributes.
	Message string `json:"message"`
	// VirtualServer and RealServer are whom it is about, "" for the daemon.
	VirtualServer string `json:"virtual_server,omitempty"`
	RealServer    string `json:"real_server,omitempty"`
	// Attrs are the other attributes, as the text log writes them.
	Attrs map[string]string `json:"attrs,omitempty"`
}

// stored is an event as it is kept: a map for each would be most of the memory.
type stored struct {
	Event
	// attrs are keys and values by turns; nobody changes them.
	attrs []string
}

// Log remembers the last events. It may be used by several goroutines.
type Log struct {
	start time.Time
	size  int

	mu   sync.Mutex
	ring []stored // grows up to size; then next%size is the oldest
	next uint64
	// levels counts the events of each.
	levels [Levels]uint64
	// changed is closed by the next event; nil while nobody waits.
	changed chan struct{}
}

// NewLog returns one that remembers as many events, at least one. It is as old as the
// daemon.
func NewLog(size int) *Log { return &Log{start: time.Now(), size: max(size, 1), next: 1} }

// Levels is how many levels there are: "info", "warn" and "error".
const Levels = 3

// Counts returns how many events of each level there were since the start, by its place
// in LevelNames.
func (l *Log) Counts() [Levels]uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.levels
}

// LevelNames are the levels of events, as Event.Level has them.
var LevelNames = [Levels]string{"info", "warn", "error"}

// Start tells one daemon's numbers from the next one's: it is when NewLog was called.
func (l *Log) Start() time.Time { return l.start }

// Last returns the number of the newest event, 0 before the first.
func (l *Log) Last() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.next - 1
}

// Since returns the events after a sequence number, oldest first, at most limit (0 for
// all) of the newest, and how many of those asked for are forgotten. What limit leaves
// out is not forgotten.
func (l *Log) Since(seq uint64, limit int) (events []Event, missed uint64) {
	found, missed := l.since(seq, limit)
	if len(found) == 0 {
		return nil, missed
	}
	events = make([]Event, len(found))
	for i := range found {
		e := found[i].Event
		if attrs := found[i].attrs; len(attrs) > 0 {
			e.Attrs = make(map[string]string, len(attrs)/2)
			for j := 0; j < len(attrs); j += 2 {
				e.Attrs[attrs[j]] = attrs[j+1]
			}
		}
		events[i] = e
	}
	return events, missed
}

func (l *Log) since(seq uint64, limit int) (found []stored, missed uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	first, oldest := seq+1, l.next-uint64(len(l.ring))
	if first >= l.next || first == 0 {
		return nil, 0
	}
	if first < oldest {
		missed, first = oldest-first, oldest
	}
	if n := l.next - first; limit > 0 && n > uint64(limit) {
		first = l.next - uint64(limit)
	}
	found = make([]stored, 0, l.next-first)
	for ; first < l.next; first++ {
		found = append(found, l.ring[l.place(first)])
	}
	return found, missed
}

// place is where an event is, or will be, in the ring.
func (l *Log) place(seq uint64) int { return int((seq - 1) % uint64(l.size)) }

// Wait returns when there is an event after seq, or with the context's error.
func (l *Log) Wait(ctx context.Context, seq uint64) error {
	for {
		l.mu.Lock()
		if l.next-1 > seq {
			l.mu.Unlock()
			return nil
		}
		if l.changed == nil {
			l.changed = make(chan struct{})
		}
		changed := l.changed
		l.mu.Unlock()
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// add remembers one event and gives it its number.
func (l *Log) add(s stored) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s.Seq = l.next
	if len(l.ring) < l.size {
		l.ring = append(l.ring, s)
	} else {
		l.ring[l.place(s.Seq)] = s
	}
	l.next++
	for i, name := range LevelNames {
		if s.Level == name {
			l.levels[i]++
		}
	}
	if l.changed != nil {
		close(l.changed)
		l.changed = nil
	}
}
