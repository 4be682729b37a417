package dial

import (
	"cmp"
	"context"
	"errors"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
)

// Classify says whose fault an error of TCP, UDP, ICMP, of what they return, or of a
// protocol library on top of that is. nil is OK.
//
//	the deadline had passed before the first system call: Unable
//	a mark, an interface or a source address that cannot be used: Unable
//	connect or send, at once: refused, unreachable, down, reset, aborted: Failed
//	connect or send, at once: any other errno: Unable, nothing was sent
//	afterwards: Failed whatever it is, since the network or the peer said it
//	no descriptors, memory or buffers, at any time: Unable
//	the deadline: Failed; a cancelled context: Unable
//
// The sets are keepalived's; that it puts "no buffers" after a connect among the
// failures is not copied.
func Classify(err error) checker.Result {
	if err == nil {
		return checker.OK
	}
	if errors.Is(err, context.Canceled) {
		return checker.Unable
	}
	if timeout(err) {
		return checker.Failed
	}
	errno, isErrno := errors.AsType[syscall.Errno](err)
	if isErrno {
		switch errno {
		case unix.EMFILE, unix.ENFILE, unix.ENOBUFS, unix.ENOMEM:
			return checker.Unable
		}
	}
	e, ok := errors.AsType[*Error](err)
	switch {
	case !ok || e.Late:
		return checker.Failed
	case e.Op != "connect" && e.Op != "send":
		return checker.Unable
	}
	switch errno {
	case unix.ECONNREFUSED, unix.ENETUNREACH, unix.EHOSTUNREACH, unix.EHOSTDOWN, unix.ENETDOWN,
		unix.ECONNRESET, unix.ECONNABORTED, unix.ETIMEDOUT:
		return checker.Failed
	}
	return checker.Unable
}

func timeout(err error) bool {
	return errors.Is(err, os.ErrDeadlineExceeded) || errors.Is(err, context.DeadlineExceeded)
}

// Outcome is the outcome of a step that failed with err, began ago. Its reason names
// the step, the peer, what went wrong and how long that took; its fault says the same
// in parts. The stage is that of the site, unless the error says that it did not come
// to that.
func Outcome(at checker.Site, err error, began time.Time) checker.Outcome {
	took := time.Since(began)
	if errors.Is(err, context.Canceled) {
		o := checker.Cancelled(at.Stage, cmp.Or(at.Target, at.Peer))
		o.Took = took
		return o
	}
	p := checker.Problem{Site: at, Result: Classify(err), Text: explain(err), Timeout: timeout(err), Took: took}
	p.Errno, _ = errors.AsType[syscall.Errno](err)
	if e, ok := errors.AsType[*Error](err); ok && before(e, p.Result) {
		p.Stage = checker.StagePrepare
	}
	if wrong, ok := errors.AsType[*checker.Mismatch](err); ok {
		p.Got, p.Want, p.Quoted = wrong.Got, wrong.Want, true
	} else if q, ok := errors.AsType[*QueuedError](err); ok {
		p.Got = q.Error()
	} else if p.Errno == 0 && !p.Timeout {
		p.Got = p.Text
	}
	return p.Outcome()
}

// before tells whether an error came before anything was sent.
func before(e *Error, r checker.Result) bool {
	switch e.Op {
	case "send", "receive":
		return false
	case "connect":
		return !e.Late && r == checker.Unable
	}
	return true
}

// explain words an error for people, with the errno's name to search for.
func explain(err error) string {
	if timeout(err) {
		return "no answer in time"
	}
	if errors.Is(err, errLate) {
		return errLate.Error()
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return "connection closed by the peer"
	}
	if q, ok := errors.AsType[*QueuedError](err); ok {
		return q.Error()
	}
	errno, ok := errors.AsType[syscall.Errno](err)
	if !ok {
		return err.Error()
	}
	text := errnoText(errno)
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return text
	}
	switch e.Op {
	case "socket":
		return "no socket: " + text
	case "fwmark":
		return "fwmark " + e.Local + " cannot be set: " + text
	case "interface":
		return "interface " + e.Local + " cannot be used: " + text
	case "bind":
		if errno == unix.EADDRNOTAVAIL {
			return "source address " + e.Local + " is not on this machine: " + text
		}
		return "source address " + e.Local + " cannot be used: " + text
	}
	// Datagram sockets that find no port say EAGAIN.
	if errno == unix.EADDRNOTAVAIL || errno == unix.EAGAIN && e.Op == "connect" && !e.Late {
		if e.Local != "" {
			return "no free local port from source address " + e.Local + ": " + text
		}
		return "no free local port or no source address (see net.ipv4.ip_local_port_range): " + text
	}
	return text
}

// errnoText is an errno's text with its name.
func errnoText(errno syscall.Errno) string {
	if name := unix.ErrnoName(errno); name != "" {
		return errno.Error() + " (" + name + ")"
	}
	return errno.Error()
}
