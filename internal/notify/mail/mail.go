package mail

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/sluice-lb/sluice/internal/config"
	"github.com/sluice-lb/sluice/internal/event"
)

// Bounds.
const (
	// maxQueued is how many mails may wait.
	maxQueued = 1024
	// StopLimit is the most that Run takes after the end of its context.
	StopLimit = 5 * time.Second
	// defaultTimeout is keepalived's smtp_connect_timeout, defaultPort its port.
	defaultTimeout = 30 * time.Second
	defaultPort    = 25
)

// delays are the waits before the second try and those that follow.
var delays = [...]time.Duration{30 * time.Second, 2 * time.Minute}

// Message is what a mail tells.
type Message struct {
	// VS is the virtual server, and RS the real server if it is about one, by
	// keepalived's names: "[192.0.2.1]:tcp:80".
	VS, RS string
	// Up is the state that the subject ends with.
	Up bool
	// Body is the text, "=> TCP CHECK failed on service <=".
	Body string
}

// Options are what New wants to know.
type Options struct {
	// Log is where failures go; nil for nowhere.
	Log *slog.Logger
}

// Stats are counts for metrics.
type Stats struct {
	// Queued mails wait or are being sent.
	Queued int
	// Sent went to at least one recipient, Failed were given up, Dropped found no
	// room in the queue.
	Sent, Failed, Dropped uint64
}

// Mailer sends mails. Its methods may be called from several goroutines and never
// block.
type Mailer struct {
	log  *slog.Logger
	dial func(ctx context.Context, network, address string) (net.Conn, error)
	// kick and changed, both of size 1, say that there may be something to send, and
	// that the configuration is another one.
	kick, changed chan struct{}

	mu       sync.Mutex
	set      settings
	queue    []*letter
	unsaid   int // dropped and not logged yet
	inFlight bool
	closed   bool
	stats    Stats
}

// settings are one configuration.
type settings struct {
	config.Mail
	routerID string
}

// on says whether anything is mailed.
func (s *settings) on() bool { return len(s.To) > 0 && s.Server != "" }

// letter is a message on its way.
type letter struct {
	Message
	at    time.Time
	tries int
	// done are the recipients that need no further try, by their address; sent says
	// that one of them has got it.
	done map[string]bool
	sent bool
}

// New returns a Mailer without recipients. Nothing is sent before Run.
func New(o Options) *Mailer {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Mailer{
		log: o.Log, dial: new(net.Dialer).DialContext,
		kick: make(chan struct{}, 1), changed: make(chan struct{}, 1),
	}
}

// Configure replaces the configuration, also for mails that wait. An empty router
// ID is the host's name.
func (m *Mailer) Configure(c config.Mail, routerID string) {
	m.mu.Lock()
	m.set = settings{c, routerID}
	m.mu.Unlock()
	poke(m.changed)
}

// Send queues a mail. Without recipients or a server, before the first Configure and
// after Run has returned it is ignored.
func (m *Mailer) Send(msg Message) {
	m.mu.Lock()
	if m.closed || !m.set.on() {
		m.mu.Unlock()
		return
	}
	if len(m.queue) >= maxQueued {
		m.queue[0] = nil
		m.queue = m.queue[1:]
		m.stats.Dropped++
		m.unsaid++
	}
	m.queue = append(m.queue, &letter{Message: msg, at: time.Now(), done: map[string]bool{}})
	m.mu.Unlock()
	poke(m.kick)
}

func poke(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is due to look already
	}
}

// Stats returns the counts.
func (m *Mailer) Stats() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	s.Queued = len(m.queue)
	if m.inFlight {
		s.Queued++
	}
	return s
}

// Run sends what is queued until its context ends, then what is left, within
// StopLimit, and returns nil. It may be called once.
//
// The context must outlive whoever calls Send, the engine, or what is told at a stop
// is lost.
func (m *Mailer) Run(ctx context.Context) error {
	hard, kill := context.WithCancel(context.WithoutCancel(ctx))
	defer kill()
	last := time.AfterFunc(time.Hour, kill)
	last.Stop()
	defer last.Stop()
	defer context.AfterFunc(ctx, func() { last.Reset(StopLimit) })()
	for {
		l := m.take(ctx.Err() != nil)
		switch {
		case l != nil:
			if !m.deliver(ctx, hard, l) {
				m.giveUp()
				return nil
			}
		case ctx.Err() != nil:
			return nil
		default:
			select {
			case <-m.kick:
			case <-ctx.Done():
			}
		}
	}
}

// take hands out the oldest mail, nil if there is none, after which nothing more is
// queued if this is the last look.
func (m *Mailer) take(last bool) *letter {
	m.mu.Lock()
	dropped := m.unsaid
	m.unsaid = 0
	var l *letter
	m.inFlight = len(m.queue) > 0
	if m.inFlight {
		l = m.queue[0]
		m.queue[0] = nil
		m.queue = m.queue[1:]
	}
	m.closed = m.closed || last && l == nil
	m.mu.Unlock()
	if dropped > 0 {
		m.log.Error("Mail queue is full, the oldest mails are dropped", event.Key, event.MailFailed, "dropped", dropped, "limit", maxQueued,
			"hint", "the log above says why smtp_server does not take them")
	}
	return l
}

// deliver tries a mail until it is sent or given up. It is false if the daemon stops
// and the server cannot be reached.
func (m *Mailer) deliver(ctx, hard context.Context, l *letter) bool {
	for {
		// What is tried now is tried with the newest configuration.
		select {
		case <-m.changed:
		default:
		}
		m.mu.Lock()
		set := m.set
		m.mu.Unlock()
		if !set.on() {
			m.log.Info("Mail is not sent, the configuration has no recipient or server any more", event.Key, event.MailSpared, "subject", set.subject(l.Message))
			return true
		}
		stopping := ctx.Err() != nil
		err := m.attempt(hard, &set, l)
		l.tries++
		switch {
		case err == nil:
			m.over(l)
			return true
		case hard.Err() != nil:
			return false
		case permanent(err) || l.tries > len(delays):
			m.log.Error("Mail is given up", event.Key, event.MailFailed, "subject", set.subject(l.Message), "server", set.address(), "err", err, "tries", l.tries)
			m.over(l)
			return true
		case stopping:
			m.log.Warn("Mail could not be sent", event.Key, event.MailRetried, "subject", set.subject(l.Message), "server", set.address(), "err", err)
			return false
		}
		wait := delays[l.tries-1]
		m.log.Warn("Mail could not be sent, will retry", event.Key, event.MailRetried, "subject", set.subject(l.Message), "server", set.address(), "err", err, "try", l.tries, "retry_in", wait)
		again := time.NewTimer(wait)
		select {
		case <-again.C:
		case <-m.changed:
			l.tries = 0
		case <-ctx.Done():
		}
		again.Stop()
	}
}

// over counts a mail that needs no further try.
func (m *Mailer) over(l *letter) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if l.sent {
		m.stats.Sent++
	} else {
		m.stats.Failed++
	}
	m.inFlight = false
}

// giveUp ends the queue at a stop, with the mail that was tried last.
func (m *Mailer) giveUp() {
	m.mu.Lock()
	n := len(m.queue) + 1
	m.queue, m.inFlight, m.closed = nil, false, true
	m.stats.Failed += uint64(n)
	m.mu.Unlock()
	m.log.Error("Mails could not be sent before the stop", event.Key, event.MailFailed, "mails", n, "limit", StopLimit)
}

// refusal is an answer that will not change.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func permanent(err error) bool { return errors.As(err, new(refusal)) }
