package testkit

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Loss says how a connection or a request came to grief. The zero value means
// that it did not.
type Loss string

// What can happen to a client.
const (
	Kept     Loss = ""
	Refused  Loss = "refused" // a reset in answer to the SYN, or an ICMP error
	Reset    Loss = "reset"   // a reset later
	Closed   Loss = "closed"  // an orderly end that nobody asked for
	TimedOut Loss = "timeout" // no answer in time
	Status   Loss = "status"  // an HTTP answer other than 2xx
	Moved    Loss = "moved"   // an answer from another server than before
	Other    Loss = "other"   // anything else; the error tells
)

// classify turns an error into a Loss.
func classify(err error) Loss {
	switch {
	case err == nil:
		return Kept
	case errors.Is(err, syscall.ECONNREFUSED), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return Refused
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return Reset
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return Closed
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.ETIMEDOUT):
		return TimedOut
	}
	return Other
}

// line is what Long sends.
const line = ".\n"

const (
	exchangeEvery   = 100 * time.Millisecond
	exchangeTimeout = 3 * time.Second
)

// LongConn is what became of one long-lived connection.
type LongConn struct {
	Server    string // who answers, as it names itself
	Exchanges int    // answered lines so far
	Loss      Loss
	Err       error // the cause of the loss
}

// Long is a client that keeps connections to an echo server open and sends a
// line on each every 100 ms.
type Long struct {
	// patience is how long a line may stay unanswered.
	patience time.Duration

	stop  context.CancelFunc
	wg    sync.WaitGroup
	abort atomic.Bool

	mu      sync.Mutex
	conns   []LongConn
	changed chan struct{} // closed and replaced after each exchange and loss
}

// OpenLong opens n connections to a numeric address and waits until each got
// its first answer or failed. An unanswered line is a timeout after three
// seconds.
func OpenLong(t T, ns *NS, addr string, n int) *Long {
	t.Helper()
	return OpenPatientLong(t, ns, addr, n, exchangeTimeout)
}

// OpenPatientLong is OpenLong for clients that wait longer for an answer than three
// seconds: a connection whose path is repaired goes on with the next of its ever rarer
// retransmissions.
func OpenPatientLong(t T, ns *NS, addr string, n int, patience time.Duration) *Long {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	l := &Long{patience: patience, stop: cancel, conns: make([]LongConn, n), changed: make(chan struct{})}
	for i := range n {
		l.wg.Go(func() { l.run(ctx, ns, addr, i) })
	}
	t.Cleanup(func() { l.Close() })
	if err := l.await(2*patience, func(conns []LongConn) bool {
		for _, c := range conns {
			if c.Exchanges == 0 && c.Loss == Kept {
				return false
			}
		}
		return true
	}); err != nil {
		t.Fatalf("open %d connections to %s: %v", n, addr, err)
	}
	return l
}

// run keeps one connection until it is lost or ctx is done.
func (l *Long) run(ctx context.Context, ns *NS, addr string, i int) {
	dialCtx, cancel := context.WithTimeout(ctx, l.patience)
	defer cancel()
	c, err := ns.Dial(dialCtx, "tcp", addr)
	if err != nil {
		l.record(ctx, i, "", err)
		return
	}
	defer func() {
		if l.abort.Load() {
			reset(c)
		}
		c.Close()
	}()
	unblock := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer unblock()
	tick := time.NewTicker(exchangeEvery)
	defer tick.Stop()
	for lines := bufio.NewReader(c); ; {
		server, err := l.exchange(ctx, c, lines)
		if !l.record(ctx, i, server, err) {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// exchange sends a line and returns who answered it.
func (l *Long) exchange(ctx context.Context, c net.Conn, lines *bufio.Reader) (server string, err error) {
	if err := c.SetDeadline(time.Now().Add(l.patience)); err != nil {
		return "", err
	}
	if ctx.Err() != nil { // the deadline above may have undone the one of the end
		return "", ctx.Err()
	}
	if _, err := io.WriteString(c, line); err != nil {
		return "", err
	}
	answer, err := lines.ReadString('\n')
	if err != nil {
		return "", err
	}
	server, _, _ = strings.Cut(answer, " ")
	return server, nil
}

// record notes an exchange and says whether the connection goes on. What fails
// because the client itself ends is no loss.
func (l *Long) record(ctx context.Context, i int, server string, err error) bool {
	if ctx.Err() != nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	c := &l.conns[i]
	switch {
	case err != nil:
		c.Loss, c.Err = classify(err), err
	case c.Server != "" && c.Server != server:
		c.Loss, c.Err = Moved, fmt.Errorf("answered by %s and then by %s", c.Server, server)
	default:
		c.Server = server
		c.Exchanges++
	}
	close(l.changed)
	l.changed = make(chan struct{})
	return c.Loss == Kept
}

// await waits until cond holds.
func (l *Long) await(within time.Duration, cond func([]LongConn) bool) error {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for {
		l.mu.Lock()
		ok, changed := cond(l.conns), l.changed
		l.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-timeout.C:
			return fmt.Errorf("still waiting after %v: %s", within, l.Report())
		}
	}
}

// Settle waits until each connection has either been lost or had two more
// answers, so that whatever was done before has met every one of them.
func (l *Long) Settle(t T) {
	t.Helper()
	l.mu.Lock()
	before := append([]LongConn(nil), l.conns...)
	l.mu.Unlock()
	// Two: the first answer may already have been on its way.
	err := l.await(3*l.patience, func(conns []LongConn) bool {
		for i, c := range conns {
			if c.Loss == Kept && c.Exchanges < before[i].Exchanges+2 {
				return false
			}
		}
		return true
	})
	if err != nil {
		t.Fatalf("long-lived connections: %v", err)
	}
}

// Conns returns the state of each connection.
func (l *Long) Conns() []LongConn {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]LongConn(nil), l.conns...)
}

// Report sums the connections up.
func (l *Long) Report() LongReport {
	r := LongReport{KeptBy: map[string]int{}, LostBy: map[string]int{}, Losses: map[Loss]int{}}
	for _, c := range l.Conns() {
		r.Opened++
		if c.Loss == Kept {
			r.Kept++
			r.KeptBy[c.Server]++
		} else {
			r.Losses[c.Loss]++
			r.LostBy[c.Server]++
		}
	}
	return r
}

// Close ends the client and closes its connections in order. The last state
// stays readable.
func (l *Long) Close() {
	l.stop()
	l.wg.Wait()
}

// Abort is Close with a reset instead of an orderly end: IPVS forgets a reset
// connection after 10 s, one that was closed only after 2 minutes.
func (l *Long) Abort() {
	l.abort.Store(true)
	l.Close()
}

// LongReport counts connections: how many are kept, and on which server, how
// many were lost, how, and on which server ("" for one that never got an
// answer).
type LongReport struct {
	Opened, Kept   int
	KeptBy, LostBy map[string]int
	Losses         map[Loss]int
}

// Lost is the number of connections that were lost in any way.
func (r LongReport) Lost() int { return r.Opened - r.Kept }

// String returns "30 opened, 20 kept (b1 10, b2 10), 10 lost (reset 10)".
func (r LongReport) String() string {
	return fmt.Sprintf("%d opened, %d kept%s, %d lost%s", r.Opened, r.Kept, list(r.KeptBy), r.Lost(), list(r.Losses))
}

// Short is a client that makes one HTTP request a tick, each on a connection of
// its own.
type Short struct {
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	report  ShortReport
	changed chan struct{}
}

// ShortReport counts finished requests. An unfinished one is in none of them.
type ShortReport struct {
	OK     int
	By     map[string]int // OK by server
	Losses map[Loss]int
	// FirstErr is the first error met, to tell what a Loss of Other was.
	FirstErr error
	// Slowest is the longest that one took which was OK.
	Slowest time.Duration
}

// Lost is the number of requests that did not end in a 2xx answer.
func (r ShortReport) Lost() int {
	n := 0
	for _, k := range r.Losses {
		n += k
	}
	return n
}

// String returns "120 ok (b1 60, b2 60), 3 lost (refused 3)".
func (r ShortReport) String() string {
	return fmt.Sprintf("%d ok%s, %d lost%s", r.OK, list(r.By), r.Lost(), list(r.Losses))
}

// StartShort makes perSecond requests a second to a numeric address until Close.
// A request that has no answer after three seconds is a timeout. Once answered,
// a connection is ended by a reset: its entry would hold up a drain for two
// minutes otherwise.
func StartShort(t T, ns *NS, addr string, perSecond int) *Short {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &Short{stop: cancel, changed: make(chan struct{}),
		report: ShortReport{By: map[string]int{}, Losses: map[Loss]int{}}}
	s.wg.Go(func() {
		tick := time.NewTicker(time.Second / time.Duration(perSecond))
		defer tick.Stop()
		for {
			s.wg.Go(func() {
				begun := time.Now()
				server, err := get(ctx, ns, addr)
				s.record(ctx, server, time.Since(begun), err)
			})
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	})
	t.Cleanup(func() { s.Close() })
	return s
}

// statusError is an HTTP answer that is not a success.
type statusError int

func (e statusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

// reset closes a connection with a reset, so that IPVS forgets it after 10 s and
// not, as after an orderly end, after 2 minutes.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

// get makes one request on a new connection and returns who answered.
func get(ctx context.Context, ns *NS, addr string) (server string, err error) {
	ctx, cancel := context.WithTimeout(ctx, exchangeTimeout)
	defer cancel()
	c, err := ns.Dial(ctx, "tcp", addr)
	if err != nil {
		return "", err
	}
	defer reset(c)
	unblock := context.AfterFunc(ctx, func() { _ = c.SetDeadline(time.Unix(1, 0)) })
	defer unblock()
	if _, err := fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", addr); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	if _, err := io.Copy(io.Discard, resp.Body); err != nil {
		return "", err
	}
	if resp.StatusCode/100 != 2 {
		return "", statusError(resp.StatusCode)
	}
	return resp.Header.Get("X-Backend"), nil
}

func (s *Short) record(ctx context.Context, server string, took time.Duration, err error) {
	if err != nil && errors.Is(ctx.Err(), context.Canceled) {
		return // the client ended, the server did nothing wrong
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var status statusError
	switch {
	case err == nil:
		s.report.OK++
		s.report.By[server]++
		s.report.Slowest = max(s.report.Slowest, took)
	case errors.As(err, &status):
		s.report.Losses[Status]++
	default:
		s.report.Losses[classify(err)]++
	}
	if err != nil && s.report.FirstErr == nil {
		s.report.FirstErr = err
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

// Await waits until n more requests are finished, well or badly.
func (s *Short) Await(t T, n int) {
	t.Helper()
	timeout := time.NewTimer(time.Minute)
	defer timeout.Stop()
	finished := func() (int, chan struct{}) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.report.OK + s.report.Lost(), s.changed
	}
	for have, changed := finished(); n > 0; {
		select {
		case <-changed:
		case <-timeout.C:
			t.Fatalf("short requests: still waiting after a minute: %s", s.Report())
		}
		var now int
		now, changed = finished()
		n -= now - have
		have = now
	}
}

// Report returns what has been counted so far.
func (s *Short) Report() ShortReport {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := ShortReport{OK: s.report.OK, By: map[string]int{}, Losses: map[Loss]int{}, FirstErr: s.report.FirstErr, Slowest: s.report.Slowest}
	maps.Copy(r.By, s.report.By)
	maps.Copy(r.Losses, s.report.Losses)
	return r
}

// Close ends the client and returns the final count. Requests under way are
// abandoned and not counted.
func (s *Short) Close() ShortReport {
	s.stop()
	s.wg.Wait()
	return s.Report()
}
