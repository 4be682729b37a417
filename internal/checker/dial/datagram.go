package dial

import (
	"context"
	"errors"
	"net/netip"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
)

// Datagram is a connected datagram socket with its deadline.
type Datagram struct {
	f         *os.File
	raw       syscall.RawConn
	target    netip.AddrPort
	local     string
	stop      func() bool // ends the watch over the context
	cancelled atomic.Bool
}

// UDP returns a socket connected to c.Target. Deadline and errors are as with TCP.
func UDP(ctx context.Context, c *config.Connection) (*Datagram, error) {
	return datagram(ctx, c, unix.SOCK_DGRAM, unix.IPPROTO_UDP)
}

// ICMP returns a socket for echo requests to c.Target's address, ICMP or ICMPv6 as
// its family is. Ports count for nothing. Without raw it is a datagram socket, which
// net.ipv4.ping_group_range must allow this process and whose identifier the kernel
// fills in and filters by. With raw, which needs CAP_NET_RAW, it receives every echo
// reply of the target to this machine, and for IPv4 with the IP header.
func ICMP(ctx context.Context, c *config.Connection, raw bool) (*Datagram, error) {
	portless := *c
	portless.Target = netip.AddrPortFrom(c.Target.Addr(), 0)
	portless.BindPort = 0 // would be the identifier, and the same in all checks
	kind, protocol := unix.SOCK_DGRAM, unix.IPPROTO_ICMP
	if raw {
		kind = unix.SOCK_RAW
	}
	if c.Target.Addr().Unmap().Is6() {
		protocol = unix.IPPROTO_ICMPV6
	}
	return datagram(ctx, &portless, kind, protocol)
}

func datagram(ctx context.Context, c *config.Connection, kind, protocol int) (*Datagram, error) {
	s, err := begin(ctx, c)
	if err != nil {
		return nil, err
	}
	fd, err := unix.Socket(s.family, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return nil, s.fail("socket", "", false, err)
	}
	if err := receiveErrors(fd, s.family); err != nil {
		unix.Close(fd)
		return nil, s.fail("socket", "", false, err)
	}
	if kind == unix.SOCK_RAW {
		onlyEchoReplies(fd, s.family)
	}
	if op, local, err := prepare(fd, c, false); err != nil {
		unix.Close(fd)
		return nil, s.fail(op, local, false, err)
	}
	if s.trace != nil {
		s.tellSocket(protocolName(kind, protocol), c)
	}
	if err := unix.Connect(fd, s.to); err != nil {
		unix.Close(fd)
		return nil, s.fail("connect", source(c), false, err)
	}
	// From here on the descriptor is the poller's.
	d := &Datagram{f: os.NewFile(uintptr(fd), "datagram"), target: s.target, local: source(c)}
	if d.raw, err = d.f.SyscallConn(); err == nil {
		err = d.f.SetDeadline(s.deadline)
	}
	if err != nil {
		d.f.Close()
		return nil, s.fail("socket", "", false, err)
	}
	d.stop = context.AfterFunc(ctx, func() {
		if ctx.Err() == context.Canceled {
			d.cancelled.Store(true)
			d.f.SetDeadline(time.Unix(1, 0)) //nolint:errcheck // a closed one needs no deadline
		}
	})
	return d, nil
}

// receiveErrors asks for the error queue.
func receiveErrors(fd, family int) error {
	if family == unix.AF_INET6 {
		return unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_RECVERR, 1)
	}
	return unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_RECVERR, 1)
}

// Message types of RFC 792 and RFC 4443.
const (
	echoReply4 = 0
	echoReply6 = 129
)

// onlyEchoReplies spares a raw socket the other ICMP messages of the machine. Who
// reads must look at the type anyhow, so that it may fail.
func onlyEchoReplies(fd, family int) {
	if family == unix.AF_INET6 {
		var f unix.ICMPv6Filter // a set bit blocks
		for i := range f.Data {
			f.Data[i] = ^uint32(0)
		}
		f.Data[echoReply6/32] &^= 1 << (echoReply6 % 32)
		_ = unix.SetsockoptICMPv6Filter(fd, unix.IPPROTO_ICMPV6, unix.ICMPV6_FILTER, &f)
		return
	}
	_ = unix.SetsockoptInt(fd, unix.SOL_RAW, unix.ICMP_FILTER, ^(1 << echoReply4))
}

// Send sends p as one datagram. An error that comes at once may be this machine's
// (see Classify); what the network says comes from Receive.
func (d *Datagram) Send(p []byte) error {
	_, err := d.f.Write(p)
	if err != nil {
		return d.fail("send", false, cause(err))
	}
	return nil
}

// Receive waits for a datagram of the target and returns its length, of which
// len(p) octets at most are in p: for UDP and raw sockets it is the length of the
// whole datagram. The error is an *Error, and the cause a *QueuedError where the
// error queue says more than the errno; or it is context.Canceled.
func (d *Datagram) Receive(p []byte) (int, error) {
	for {
		var n int
		var from unix.Sockaddr
		var err error
		wait := d.raw.Read(func(fd uintptr) bool {
			n, from, err = unix.Recvfrom(int(fd), p, unix.MSG_TRUNC)
			if err == nil {
				return true
			}
			// An error can be in the queue although nothing was reported.
			if q := queued(int(fd)); q != nil {
				err = q
				return true
			}
			return !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR)
		})
		if wait != nil {
			err = cause(wait)
		}
		switch {
		case err != nil:
			return 0, d.fail("receive", true, err)
		case d.isTarget(from):
			return n, nil
		}
		// A stray; the deadline is looked at before the next one is read.
	}
}

func (d *Datagram) isTarget(from unix.Sockaddr) bool {
	switch a := from.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrFrom4(a.Addr) == d.target.Addr() && (d.target.Port() == 0 || a.Port == int(d.target.Port()))
	case *unix.SockaddrInet6:
		return netip.AddrFrom16(a.Addr) == d.target.Addr().WithZone("") && (d.target.Port() == 0 || a.Port == int(d.target.Port()))
	}
	return false
}

func (d *Datagram) fail(op string, late bool, err error) error {
	if d.cancelled.Load() {
		return context.Canceled
	}
	return &Error{Op: op, Target: d.target, Local: d.local, Late: late, Err: err}
}

// Close closes the socket.
func (d *Datagram) Close() error {
	d.stop()
	return d.f.Close()
}
