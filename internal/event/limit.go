package event

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Limits of the log for one key: what a record tells the newest state of.
const (
	// burst is how many lines pass in one span; then it is one line for each span.
	burst = 10
	span  = time.Minute
	// maxKeys bounds what is remembered. What goes beyond is not limited: a line too
	// many is better than one too few.
	maxKeys = 4096
)

// Repeated is the attribute that tells how many records a line stands for.
const Repeated = "repeated"

// identity are the attributes that tell of whom or what a record is, besides its
// topic. Others (reasons, counts, times) vary from one to the next.
var identity = map[string]bool{
	attrVS: true, attrRS: true, "checker": true, "service": true, "destination": true, "track_file": true, "path": true,
	"dir": true, "script": true, "notice": true, "fifo": true, "recipient": true, "server": true, "sysctl": true, "part": true,
	"option": true, "capability": true, "interface": true, "state": true, "order": true, "http_listen": true, "what": true,
}

// Limiter keeps what repeats from filling the log. Nothing that it holds back is lost:
// the newest record of a key is passed on within a minute, or by Close. It may be used
// by several goroutines.
type Limiter struct {
	start time.Time

	mu    sync.Mutex
	keys  map[string]*repeats
	timer *time.Timer // nil while there is no key
	// suppressed counts the lines that a newer one stood for.
	suppressed uint64
	closed     bool
}

// NewLimiter returns one. Close it when the log ends.
func NewLimiter() *Limiter { return &Limiter{start: time.Now(), keys: map[string]*repeats{}} }

// repeats is what is known of one key.
type repeats struct {
	// passed are when the last lines passed, since the limiter's start: a ring with n
	// in all.
	passed [burst]time.Duration
	n      int
	// held is the newest record that did not pass, and count of how many it is one.
	held  *slog.Record
	next  slog.Handler
	count int
	// due is when held passes, or, without one, when nothing is left to know.
	due time.Duration
	// slow: more than burst came in the last span, and it is one line a span.
	slow bool
}

// Handler returns a handler in front of another.
func (l *Limiter) Handler(next slog.Handler) slog.Handler { return &limited{limiter: l, next: next} }

type limited struct {
	limiter *Limiter
	next    slog.Handler
	subject subject
	prefix  string
}

// subject is what a record is about.
type subject struct {
	kind  Kind
	names string
}

func (s *subject) add(prefix string, a slog.Attr) {
	switch {
	case prefix != "":
	case a.Key == Key:
		s.kind = Kind(Text(a.Value))
	case identity[a.Key]:
		s.names += "\x00" + a.Key + "=" + Text(a.Value)
	}
}

// Enabled implements slog.Handler.
func (h *limited) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// WithAttrs implements slog.Handler.
func (h *limited) WithAttrs(attrs []slog.Attr) slog.Handler {
	c := *h
	c.next = h.next.WithAttrs(attrs)
	for _, a := range attrs {
		c.subject.add(h.prefix, a)
	}
	return &c
}

// WithGroup implements slog.Handler.
func (h *limited) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	c := *h
	c.next = h.next.WithGroup(name)
	c.prefix += name + "."
	return &c
}

// Handle implements slog.Handler.
func (h *limited) Handle(ctx context.Context, r slog.Record) error {
	s := h.subject
	r.Attrs(func(a slog.Attr) bool { s.add(h.prefix, a); return true })
	topic := s.kind.topic()
	if topic == "" {
		topic = r.Message
	}
	// Debug is for those who want everything.
	if topic != always && r.Level >= slog.LevelInfo && h.limiter.holds(topic+s.names, r, h.next) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// holds takes a record and reports whether it is to wait.
func (l *Limiter) holds(key string, r slog.Record, next slog.Handler) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	now := time.Since(l.start)
	k := l.keys[key]
	if k == nil {
		if len(l.keys) >= maxKeys {
			return false
		}
		k = &repeats{}
		l.keys[key] = k
	}
	if k.held == nil && !k.slow && !k.full(now) {
		k.pass(now)
		k.due = now + span
		l.arm(k.due)
		return false
	}
	if k.held == nil && !k.slow {
		k.due = now + span
		l.arm(k.due)
	}
	if k.held != nil {
		l.suppressed++
	}
	c := r.Clone()
	k.held, k.next = &c, next
	k.count++
	return true
}

// Suppressed returns how many lines were never written, since a newer one of the same
// stood for them.
func (l *Limiter) Suppressed() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.suppressed
}

// full reports whether no line may pass now.
func (k *repeats) full(now time.Duration) bool {
	return k.n >= burst && now-k.passed[k.n%burst] < span
}

func (k *repeats) pass(now time.Duration) {
	k.passed[k.n%burst] = now
	k.n++
}

// arm has tick called then at the latest. mu is held. A timer that is set already is
// not later: everything waits for one span at most.
func (l *Limiter) arm(at time.Duration) {
	if l.timer == nil {
		l.timer = time.AfterFunc(at-time.Since(l.start), l.tick)
	}
}

// tick passes on what is due and forgets what is over.
func (l *Limiter) tick() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	now := time.Since(l.start)
	var due []*repeats
	next := now + span
	for key, k := range l.keys {
		switch {
		case now >= k.due && k.held == nil:
			delete(l.keys, key)
		case now >= k.due:
			due = append(due, k)
			// The line itself is the first of the next span.
			k.due = now + span
		case k.held != nil && k.due < next:
			// What is only to be forgotten has time.
			next = k.due
		}
	}
	tell(due, now)
	l.timer = nil
	if len(l.keys) > 0 {
		l.arm(next)
	}
}

// tell passes on what is held, oldest first. The lock is held, so that nothing newer
// comes before it.
func tell(due []*repeats, now time.Duration) {
	slices.SortFunc(due, func(a, b *repeats) int { return cmp.Compare(a.held.Time.UnixNano(), b.held.Time.UnixNano()) })
	for _, k := range due {
		r := *k.held
		if k.count > 1 {
			r.AddAttrs(slog.Int(Repeated, k.count))
		}
		// As with any record, what cannot be written has nobody to be told to.
		_ = k.next.Handle(context.Background(), r)
		k.pass(now)
		k.slow = k.count > burst
		k.held, k.next, k.count = nil, nil, 0
	}
}

// Close passes on what is held. What comes later is not limited.
func (l *Limiter) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.closed = true
	if l.timer != nil {
		l.timer.Stop()
	}
	var due []*repeats
	for _, k := range l.keys {
		if k.held != nil {
			due = append(due, k)
		}
	}
	tell(due, time.Since(l.start))
	l.keys = nil
}
