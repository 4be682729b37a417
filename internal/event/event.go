// Package event remembers what happened last: the same facts as the log has, with
// numbers, for those who ask (sluice events, the dashboard).
//
// It decides how much is remembered and what a reader missed. There is one source for
// both the log and the events: a slog.Handler in front of the log's own, so that what
// is shown is what was logged. A record with the attribute Key is an event of that
// kind; any other of level warn or above is one of the kind "note".
package event

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Key is the attribute that names a record's kind. The text log leaves it out.
const Key = "event"

// Event is one thing that happened.
type Event struct {
	// Seq counts events from 1 since the daemon was started.
	Seq  uint64    `json:"seq"`
	Time time.Time `json:"time"`
	// Level is "info", "warn" or "error".
	Level string `json:"level"`
	// Kind is one of a fixed set: "server_up", "quorum_lost", "drain_done", ...
	Kind string `json:"event"`
	// Message is the log's line without the attributes.
	Message string `json:"message"`
	// VirtualServer and RealServer are whom it is about, "" for the daemon.
	VirtualServer string `json:"virtual_server,omitempty"`
	RealServer    string `json:"real_server,omitempty"`
	// Attrs are the other attributes, as the text log writes them.
	Attrs map[string]string `json:"attrs,omitempty"`
}

// Log remembers the last events. It may be used by several goroutines.
type Log struct {
	mu      sync.Mutex
	ring    []Event
	next    uint64
	changed chan struct{}
}

// NewLog returns one that remembers as many events.
func NewLog(size int) *Log {
	return &Log{ring: make([]Event, 0, size), next: 1, changed: make(chan struct{})}
}

// Since returns the events after a sequence number, oldest first, at most limit (0 for
// all) of the newest, and how many of those asked for are forgotten.
func (l *Log) Since(seq uint64, limit int) (events []Event, missed uint64) {
	return nil, 0
}

// Wait returns when there is an event after seq, or with the context's error.
func (l *Log) Wait(ctx context.Context, seq uint64) error { return ctx.Err() }

// Handler returns a handler that remembers what is an event and passes every record
// on.
func (l *Log) Handler(next slog.Handler) slog.Handler { return next }
