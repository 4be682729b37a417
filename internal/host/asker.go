package host

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// drainLimit bounds what is thrown away at once: a million routes of which somebody else
// asked for the list, and more.
const drainLimit = 1 << 16

// Asker puts one question after the other to the kernel's routing, on a socket of
// NETLINK_ROUTE that lives on, and has the whole answer to each. It may be used by several
// goroutines. The package's doc says what becomes of a question that is given up.
type Asker struct {
	conn     *netlink.Conn
	patience time.Duration

	mu sync.Mutex
	// dirty: of the last question something may be in the socket, or still to come.
	dirty bool
}

// NewAsker asks on a socket, which belongs to the Asker from now on. An answer for which
// there is nothing to read for that long is given up.
func NewAsker(c *netlink.Conn, patience time.Duration) *Asker {
	return &Asker{conn: c, patience: patience}
}

// Close closes the socket.
func (a *Asker) Close() error { return a.conn.Close() }

// List asks for a list; whole is false if that changed while it was read.
func (a *Asker) List(kind uint16, body []byte) (list []netlink.Message, whole bool, err error) {
	list, err = a.Ask(kind, netlink.Dump, body)
	return list, err == nil && unchanged(list), err
}

// unchanged tells whether a list stayed the same while it was read. The kernel may say
// so at its end only.
func unchanged(list []netlink.Message) bool {
	return !slices.ContainsFunc(list, func(m netlink.Message) bool { return m.Header.Flags&netlink.DumpInterrupted != 0 })
}

// Ask sends one request and returns its answer, with the message at its end (an
// acknowledgment, or what ends a list), if it has one. What the kernel refuses is a
// *netlink.OpError with the errno; after any other error it is unknown whether the kernel
// did what it was asked.
func (a *Asker) Ask(kind uint16, flags netlink.HeaderFlags, body []byte) ([]netlink.Message, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.dirty {
		if err := Drain(a.conn); err != nil {
			return nil, err
		}
		a.dirty = false
	}
	sent, err := a.conn.Send(netlink.Message{Header: netlink.Header{Type: netlink.HeaderType(kind), Flags: netlink.Request | flags}, Data: body})
	if err != nil {
		return nil, err // the kernel saw nothing of it
	}
	a.dirty = true // until the end of its answer
	return a.receive(sent.Header)
}

// receive reads until the answer to a request is whole.
func (a *Asker) receive(asked netlink.Header) (answer []netlink.Message, err error) {
	var late time.Time
	for {
		b, err := a.wait(&late)
		if err != nil {
			return nil, err
		}
		list, err := syscall.ParseNetlinkMessage(b)
		if err != nil {
			return nil, fmt.Errorf("the kernel's answer is malformed: %w", err)
		}
		for _, m := range list {
			h := netlink.Header{Length: m.Header.Len, Type: netlink.HeaderType(m.Header.Type), Flags: netlink.HeaderFlags(m.Header.Flags), Sequence: m.Header.Seq, PID: m.Header.Pid}
			if h.Sequence != asked.Sequence {
				continue // an answer to something else
			}
			answer = append(answer, netlink.Message{Header: h, Data: m.Data})
			switch {
			case h.Type == netlink.Error, h.Type == netlink.Done:
				errno, err := result(m.Data)
				if err != nil {
					return nil, err
				}
				// EBUSY: a list that was given up is not at its end yet.
				a.dirty = errno == unix.EBUSY
				if errno != 0 {
					return nil, &netlink.OpError{Op: "receive", Err: errno, Sequence: h.Sequence}
				}
				return answer, nil
			case h.Flags&netlink.Multi == 0 && asked.Flags&netlink.Acknowledge == 0:
				a.dirty = false
				return answer, nil
			}
		}
	}
}

// result is what an error or the end of a list says.
func result(data []byte) (unix.Errno, error) {
	if len(data) < 4 {
		return 0, errors.New("the kernel's answer is malformed: an end without a result")
	}
	return unix.Errno(-int32(binary.NativeEndian.Uint32(data))), nil
}

// wait returns the next datagram. What is there is taken before the clock is looked at.
// late is when to give up, from the first time that there is nothing.
func (a *Asker) wait(late *time.Time) (b []byte, err error) {
	raw, err := a.conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	look := func(fd uintptr) { b, err = datagram(int(fd)) }
	if err := raw.Control(look); err != nil {
		return nil, err
	}
	if errors.Is(err, unix.EAGAIN) {
		if late.IsZero() {
			*late = time.Now().Add(a.patience)
		}
		if err := a.conn.SetReadDeadline(*late); err != nil {
			return nil, err
		}
		ended := raw.Read(func(fd uintptr) bool { look(fd); return !errors.Is(err, unix.EAGAIN) })
		if errors.Is(ended, os.ErrDeadlineExceeded) {
			return nil, fmt.Errorf("no answer from the kernel in %v: %w", a.patience, ended)
		}
		if ended != nil {
			return nil, ended
		}
	}
	if errors.Is(err, unix.ENOBUFS) {
		err = fmt.Errorf("the kernel's answer was lost, there was no room for it: %w", err)
	}
	return b, err
}

// datagram reads one datagram of the kernel's if there is one.
func datagram(fd int) ([]byte, error) {
	for {
		n, _, err := unix.Recvfrom(fd, nil, unix.MSG_PEEK|unix.MSG_TRUNC|unix.MSG_DONTWAIT)
		var from unix.Sockaddr
		b := make([]byte, max(n, 0))
		if err == nil {
			n, from, err = unix.Recvfrom(fd, b, unix.MSG_DONTWAIT)
		}
		switch sender, ok := from.(*unix.SockaddrNetlink); {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return nil, os.NewSyscallError("recvfrom", err)
		case ok && sender.Pid == 0:
			return b[:n], nil
		}
	}
}

// Drain throws away all that a socket of netlink has to read, without waiting, and what
// an unfinished list would still bring.
func Drain(c *netlink.Conn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var last error
	if err := raw.Control(func(fd uintptr) {
		// Each read has the kernel go on with a list, so there is nothing only if
		// nothing will come. An error, as ENOBUFS, is one thing that was there.
		for range drainLimit {
			if _, _, last = unix.Recvfrom(int(fd), nil, unix.MSG_DONTWAIT); errors.Is(last, unix.EAGAIN) {
				return
			}
		}
	}); err != nil {
		return err
	}
	if errors.Is(last, unix.EAGAIN) {
		return nil
	}
	return fmt.Errorf("the kernel's answers to a question that was given up have no end, %d were thrown away: %w", drainLimit, errors.Join(last, unix.EBUSY))
}
