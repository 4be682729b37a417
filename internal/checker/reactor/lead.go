package reactor

import (
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/config"
)

// impulse is why a run gets on.
type impulse uint8

const (
	begin  impulse = iota
	goOn           // something happened to its connection
	expire         // its deadline has come
)

// start begins a run. The task is in the queue and has a place.
func (l *Loop) start(t *task) {
	if t.gone.Load() { // its command is in the inbox
		l.forget(t)
		return
	}
	t.state = running
	t.began = l.sys.now()
	l.running++
	l.lead(t, begin, 0)
}

// lead gets a run on, and judges it if that was its end.
func (l *Loop) lead(t *task, why impulse, seen uint32) {
	outcome, over := l.guarded(t, why, seen)
	if !over {
		return
	}
	l.running--
	l.runs.Add(1)
	t.state = idle
	if t.gone.Load() {
		l.forget(t)
		return
	}
	now := l.sys.now()
	if outcome.Took <= 0 {
		outcome.Took = time.Duration(now - t.began)
	}
	delay := max(int64(t.judge(outcome)), 0)
	at := following(t.due, t.began, now, delay)
	if t.keep > now && t.keep < at {
		at = t.keep
	}
	t.keep = 0
	t.replace()
	l.queue.Move(t.ref, at)
}

// guarded runs what is the conversation's: its panic ends the run, and no more.
func (l *Loop) guarded(t *task, why impulse, seen uint32) (o checker.Outcome, over bool) {
	returned := false
	defer func() {
		if !returned {
			o, over = checker.PanicOutcome(recover()), true
			l.panics.Add(1)
			l.release(t, false)
		}
	}()
	switch why {
	case begin:
		o, over = l.connect(t, t.conversation.Begin())
	case goOn:
		o, over = l.proceed(t, seen)
	case expire:
		err := os.ErrDeadlineExceeded
		if t.link.step == checker.StepConnect {
			err = dial.Fail(t.connection, "connect", "", true, err)
		}
		o, over = l.failed(t, t.link.step, err)
	}
	returned = true
	return o, over
}

// connect makes the next connection that can be begun at all.
func (l *Loop) connect(t *task, c *config.Connection) (checker.Outcome, bool) {
	for {
		if c != nil {
			err := l.dial(t, c)
			if err == nil {
				return checker.Outcome{}, false
			}
			t.conversation.Ended(checker.StepConnect, err)
		}
		var o checker.Outcome
		if c, o = t.conversation.Next(); c == nil {
			return o, true
		}
	}
}

// dial begins a connection. The error is a *dial.Error.
func (l *Loop) dial(t *task, c *config.Connection) error {
	now, deadline := l.sys.now(), t.until()
	if c.Timeout > 0 {
		deadline = min(deadline, later(now, int64(c.Timeout)))
	}
	if now >= deadline {
		return dial.TooLate(c)
	}
	if c != t.connection {
		if err := l.target(t, c); err != nil {
			return err
		}
	} else if c.Target.Addr().Zone() != "" {
		// A zone is a name, which may mean another interface than last time.
		if err := t.to.Set(c); err != nil {
			return err
		}
	}
	k := l.used(t)
	if k != nil {
		// A used socket may be of an address or an interface that is gone: if so a new
		// one finds the reason.
		if errno := l.sys.connect(k.fd, &t.to); begun(errno) {
			l.engage(t, k, deadline)
			return nil
		}
		l.close(k, false)
	}
	k, err := l.open(t, c)
	if err != nil {
		return err
	}
	if errno := l.sys.connect(k.fd, &t.to); !begun(errno) {
		l.close(k, false)
		return dial.Fail(c, "connect", "", false, errno)
	}
	// Only now: what happened up to here is reported as well.
	if errno := l.sys.watch(k.fd, k.tag); errno != 0 {
		l.close(k, true)
		return dial.Fail(c, "socket", "", false, errno)
	}
	l.engage(t, k, deadline)
	return nil
}

// begun tells whether a connect goes on, or is through already.
func begun(errno syscall.Errno) bool {
	return errno == 0 || errno == unix.EINPROGRESS || errno == unix.EINTR
}

// engage gives a task its connection, which has been begun.
func (l *Loop) engage(t *task, k *link, deadline int64) {
	k.t, k.step, k.send, k.seen, k.listen = t, checker.StepConnect, nil, 0, false
	t.link = k
	l.queue.Move(t.ref, deadline)
}

// happened deals with an event.
func (l *Loop) happened(e *unix.EpollEvent) {
	i := uint32(e.Fd)
	if i >= uint32(len(l.links)) { // a wakeup
		return
	}
	// That of a link which is closed, or which waits to be used again, is old news.
	if k := l.links[i]; k.tag.generation == uint32(e.Pad) && k.t != nil {
		l.lead(k.t, goOn, e.Events)
	}
}

// proceed gets a connection on as far as it goes.
func (l *Loop) proceed(t *task, seen uint32) (checker.Outcome, bool) {
	k := t.link
	k.seen |= seen
	if k.step == checker.StepConnect {
		if k.seen&(writable|broken) == 0 {
			return checker.Outcome{}, false
		}
		var errno syscall.Errno
		if k.seen&broken != 0 {
			if errno = l.sys.fault(k.fd); errno == 0 && !l.sys.peered(k.fd) {
				k.seen = 0 // not yet
				return checker.Outcome{}, false
			}
		}
		if errno == 0 && t.selfish && l.sys.self(k.fd, &t.to) {
			errno = dial.Refused
		}
		if errno != 0 {
			return l.failed(t, checker.StepConnect, dial.Fail(t.connection, "connect", "", true, errno))
		}
		k.step = checker.StepSend
		k.send, k.listen = t.conversation.Connected()
	}
	if k.step == checker.StepSend {
		for len(k.send) > 0 {
			n, errno := l.sys.send(k.fd, k.send)
			if errno == unix.EAGAIN {
				return checker.Outcome{}, false
			}
			if errno == unix.EINTR {
				continue
			}
			if errno != 0 {
				return l.unsent(t, errno)
			}
			k.send = k.send[n:]
		}
		k.send = nil
		if !k.listen {
			return l.done(t, true)
		}
		k.step = checker.StepReceive
	}
	return l.receive(t)
}

// receive reads until there is no more for now.
func (l *Loop) receive(t *task) (checker.Outcome, bool) {
	k := t.link
	if k.seen&readable == 0 {
		return checker.Outcome{}, false
	}
	for range reads {
		n, errno := l.sys.receive(k.fd, l.buf)
		switch {
		case errno == unix.EINTR:
			continue
		case errno == unix.EAGAIN:
			k.seen &^= readable
			return checker.Outcome{}, false
		case errno != 0:
			return l.failed(t, checker.StepReceive, errno)
		case n == 0:
			return l.failed(t, checker.StepReceive, io.EOF)
		}
		if t.conversation.Received(l.buf[:n]) {
			return l.done(t, true)
		}
		// What comes after this is reported again, but an end was reported already.
		if n < len(l.buf) && k.seen&ended == 0 {
			k.seen &^= readable
			return checker.Outcome{}, false
		}
	}
	if !k.again {
		k.again = true
		l.again = append(l.again, k)
	}
	return checker.Outcome{}, false
}

// unsent ends a connection whose peer takes no more. It may have answered before.
func (l *Loop) unsent(t *task, why syscall.Errno) (checker.Outcome, bool) {
	for k := t.link; k.listen; {
		n, errno := l.sys.receive(k.fd, l.buf)
		if errno == unix.EINTR {
			continue
		}
		if errno != 0 || n == 0 {
			break
		}
		if t.conversation.Received(l.buf[:n]) {
			return l.done(t, true)
		}
	}
	return l.failed(t, checker.StepSend, why)
}

// failed ends a connection that ended by itself.
func (l *Loop) failed(t *task, step checker.Step, err error) (checker.Outcome, bool) {
	l.release(t, false)
	t.conversation.Ended(step, err)
	return l.next(t)
}

// done ends a connection that is not needed any more.
func (l *Loop) done(t *task, well bool) (checker.Outcome, bool) {
	l.release(t, well)
	return l.next(t)
}

func (l *Loop) next(t *task) (checker.Outcome, bool) {
	c, o := t.conversation.Next()
	if c == nil {
		return o, true
	}
	return l.connect(t, c)
}
