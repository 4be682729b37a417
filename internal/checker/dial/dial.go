// Package dial connects a checker to its target, by TCP or with a datagram socket
// (UDP, ICMP): source address and port, interface, mark, and one deadline that the
// connection carries from the first system call to the last byte. It also decides
// whose fault an error is (Classify) and says it to people (Outcome).
//
// It deliberately knows nothing of what is said over a connection: who dials reads
// and writes, or is a checker.Conversation that Converse leads.
//
// # Decisions
//
// The socket is made by hand and not by net.Dialer, for three reasons. An error
// that connect(2) returns at once and the same one that arrives later mean
// different things (EACCES: a prohibit route of ours, or an ICMPv6 message of a
// firewall on the way), and net.Dialer does not tell them apart. A probe is half
// system calls, and net.Dialer makes six more than are needed. And a source
// address without a port can bind late (IP_BIND_ADDRESS_NO_PORT), so that ports
// run out only per target.
//
// With a fixed source port the connection is closed by reset: a normal close
// leaves the port in TIME_WAIT for a minute, in which the next check could not
// be made. As in keepalived a port without a source address has no effect.
//
// Datagram sockets ask for the error queue (IP_RECVERR). Without it a connected
// socket learns of a closed port, but not of a host or network that cannot be
// reached; and only the queue says which ICMP message came, and from whom. A
// source address that this machine does not have is its own fault for datagrams
// as well, where keepalived calls it a failure of the server.
//
// Datagrams from anybody but the target are dropped. The kernel does that for
// connected sockets, except for what came between bind and connect, and except
// for ICMP datagram sockets, which it does not filter at all.
package dial

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker"
	"github.com/sluice-lb/sluice/internal/config"
)

// Error says which step of a connect failed.
type Error struct {
	// Op is start, socket, fwmark, interface, bind or connect, and for datagrams
	// send or receive.
	Op     string
	Target netip.AddrPort
	// Local is the source address, the interface or the mark that the failing
	// operation was about, "" where there is none.
	Local string
	// Late is set when connect(2) or sending had begun and the error came
	// afterwards: it was the network or the peer that said so.
	Late bool
	Err  error
}

func (e *Error) Error() string {
	s := e.Op
	if e.Local != "" && e.Op != "connect" {
		s += " " + e.Local
	}
	return s + " for " + e.Target.String() + ": " + e.Err.Error()
}

// Unwrap returns the cause, a syscall.Errno or os.ErrDeadlineExceeded.
func (e *Error) Unwrap() error { return e.Err }

// errLate: the server was not asked at all, so the fault is not its own.
var errLate = errors.New("the deadline had passed before the check began: this machine is too busy")

// Conn is a connected TCP socket with its deadline. It is a net.Conn.
type Conn struct {
	f      *os.File
	target netip.AddrPort
	stop   func() bool // ends the watch over the context
	abort  bool        // close by reset
	trace  *checker.Trace
}

var _ net.Conn = (*Conn)(nil)

// TCP connects to c.Target. The deadline is c.Timeout from now or the context's,
// whichever is earlier, and holds for all that is done with the connection;
// cancelling the context ends it at once. The error is an *Error, or the
// context's when it was cancelled.
func TCP(ctx context.Context, c *config.Connection) (*Conn, error) {
	s, err := begin(ctx, c)
	if err != nil {
		return nil, err
	}
	fail := s.fail
	fd, err := Open(s.family, c)
	if err != nil {
		return nil, err
	}
	s.tellSocket("TCP", c)
	err = unix.Connect(fd, s.to)
	if err != nil && !errors.Is(err, unix.EINPROGRESS) && !errors.Is(err, unix.EINTR) {
		unix.Close(fd)
		return nil, fail("connect", source(c), false, err)
	}
	// From here on the descriptor is the poller's.
	conn := &Conn{f: os.NewFile(uintptr(fd), "tcp"), target: s.target, abort: Abortive(c), trace: s.trace}
	if err := conn.f.SetDeadline(s.deadline); err != nil {
		conn.f.Close()
		return nil, fail("socket", "", false, err)
	}
	conn.stop = context.AfterFunc(ctx, func() {
		if ctx.Err() == context.Canceled {
			_ = conn.f.SetDeadline(time.Unix(1, 0)) // a closed one needs no deadline
		}
	})
	if err == nil { // connected at once
		s.tellConnected(fd)
		return conn, nil
	}
	if err := conn.wait(); err != nil {
		_ = conn.Abort()
		if ctx.Err() == context.Canceled {
			return nil, context.Canceled
		}
		return nil, fail("connect", source(c), true, err)
	}
	s.tellConnected(fd)
	return conn, nil
}

// Trace is where the run of the connection is told, nil if nobody listens.
func (c *Conn) Trace() *checker.Trace { return c.trace }

// start is what every connection begins with.
type start struct {
	began, deadline time.Time
	trace           *checker.Trace
	target          netip.AddrPort
	to              unix.Sockaddr
	family          int
}

func (s *start) fail(op, local string, late bool, err error) error {
	return &Error{Op: op, Target: s.target, Local: local, Late: late, Err: err}
}

func begin(ctx context.Context, c *config.Connection) (s start, err error) {
	s.began = time.Now()
	s.deadline = s.began.Add(c.Timeout)
	s.trace = checker.TraceOf(ctx)
	if d, ok := ctx.Deadline(); ok && (c.Timeout <= 0 || d.Before(s.deadline)) {
		s.deadline = d
	}
	if ctx.Err() == context.Canceled {
		return s, context.Canceled
	}
	s.target = netip.AddrPortFrom(c.Target.Addr().Unmap(), c.Target.Port())
	if !time.Now().Before(s.deadline) {
		return s, s.fail("start", "", false, errLate)
	}
	if s.to, s.family, err = sockaddr(s.target); err != nil {
		return s, s.fail("socket", "", false, err)
	}
	return s, nil
}

// prepare sets what must be set before connect.
func prepare(fd int, c *config.Connection, stream bool) (op, local string, err error) {
	if c.FWMark != 0 {
		// The option takes 32 bits; beyond 2^31 they do not fit a positive int.
		if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_MARK, int(int32(c.FWMark))); err != nil {
			return "fwmark", strconv.FormatUint(uint64(c.FWMark), 10), err
		}
	}
	if c.BindIf != "" {
		if err := unix.BindToDevice(fd, c.BindIf); err != nil {
			return "interface", c.BindIf, err
		}
	}
	if !c.BindAddr.IsValid() {
		return "", "", nil
	}
	// Without these bind may fail later, and say so. Late binding is for streams
	// alone: datagram ports are drawn for the machine, not for each target.
	if c.BindPort != 0 {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	} else if stream {
		_ = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1)
	}
	from, _, err := sockaddr(netip.AddrPortFrom(c.BindAddr.Unmap(), c.BindPort))
	if err == nil {
		err = unix.Bind(fd, from)
	}
	return "bind", source(c), err
}

// source is the configured source address for messages.
func source(c *config.Connection) string {
	switch {
	case !c.BindAddr.IsValid():
		return ""
	case c.BindPort == 0:
		return c.BindAddr.String()
	}
	return netip.AddrPortFrom(c.BindAddr, c.BindPort).String()
}

func sockaddr(a netip.AddrPort) (unix.Sockaddr, int, error) {
	ip := a.Addr()
	switch {
	case ip.Is4():
		return &unix.SockaddrInet4{Port: int(a.Port()), Addr: ip.As4()}, unix.AF_INET, nil
	case ip.Is6():
		sa := &unix.SockaddrInet6{Port: int(a.Port()), Addr: ip.As16()}
		if zone := ip.Zone(); zone != "" {
			i, err := net.InterfaceByName(zone)
			if err != nil {
				return nil, 0, unix.ENODEV
			}
			sa.ZoneId = uint32(i.Index)
		}
		return sa, unix.AF_INET6, nil
	}
	return nil, 0, unix.EAFNOSUPPORT
}

// wait blocks until the connect has ended.
func (c *Conn) wait() error {
	raw, err := c.f.SyscallConn()
	if err != nil {
		return err
	}
	var result error
	// Called first without waiting: an event that came before is forgotten by then.
	err = raw.Write(func(fd uintptr) bool {
		var n int
		if n, result = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_ERROR); result != nil {
			return true
		}
		if n != 0 {
			result = syscall.Errno(n)
			return true
		}
		peer, err := unix.Getpeername(int(fd))
		if err == unix.ENOTCONN { // not yet
			return false
		}
		if err == nil && selfConnected(int(fd), peer) {
			result = unix.ECONNREFUSED
		}
		return true
	})
	if err != nil {
		return cause(err)
	}
	return result
}

// selfConnected tells whether the kernel joined the socket to itself: a connect
// to a closed port of this machine, when the source port drawn is that very port.
func selfConnected(fd int, peer unix.Sockaddr) bool {
	local, err := unix.Getsockname(fd)
	if err != nil {
		return false
	}
	switch l := local.(type) {
	case *unix.SockaddrInet4:
		p, ok := peer.(*unix.SockaddrInet4)
		return ok && l.Port == p.Port && l.Addr == p.Addr
	case *unix.SockaddrInet6:
		p, ok := peer.(*unix.SockaddrInet6)
		return ok && l.Port == p.Port && l.Addr == p.Addr
	}
	return false
}

// cause takes the os package's wrapping off: the path means nothing here.
func cause(err error) error {
	if e, ok := errors.AsType[*os.PathError](err); ok {
		return e.Err
	}
	return err
}

// Read and Write return the bare cause: a syscall.Errno, os.ErrDeadlineExceeded or
// io.EOF.
func (c *Conn) Read(p []byte) (int, error) {
	n, err := c.f.Read(p)
	if err != nil {
		err = cause(err)
	}
	return n, err
}

// Write writes all of p or returns an error; see Read.
func (c *Conn) Write(p []byte) (int, error) {
	n, err := c.f.Write(p)
	if err != nil {
		err = cause(err)
	}
	return n, err
}

// Close closes the connection normally (FIN), or by reset if that is configured or
// its source port was given.
func (c *Conn) Close() error {
	if c.abort {
		return c.Abort()
	}
	c.stop()
	return c.f.Close()
}

// Abort closes by reset.
func (c *Conn) Abort() error {
	c.stop()
	if raw, err := c.f.SyscallConn(); err == nil {
		// Without it the close is a normal one: worth no error.
		_ = raw.Control(func(fd uintptr) {
			_ = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		})
	}
	return c.f.Close()
}

// LocalAddr is nil: nobody asked for the system call.
func (c *Conn) LocalAddr() net.Addr { return nil }

// RemoteAddr is the target.
func (c *Conn) RemoteAddr() net.Addr { return net.TCPAddrFromAddrPort(c.target) }

// SetDeadline does nothing: the one deadline was set by TCP, and a protocol
// library must not extend it.
func (c *Conn) SetDeadline(time.Time) error { return nil }

// SetReadDeadline does nothing, as SetDeadline.
func (c *Conn) SetReadDeadline(time.Time) error { return nil }

// SetWriteDeadline does nothing, as SetDeadline.
func (c *Conn) SetWriteDeadline(time.Time) error { return nil }
