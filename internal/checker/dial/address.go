package dial

import (
	"encoding/binary"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
)

// What follows is for who makes connections without TCP and a goroutine: the same
// socket, the same errors, and no allocation unless one of them comes.

// Address is a target as the kernel wants it. The zero Address is none.
type Address struct {
	Family int32
	n      uint32
	raw    [unix.SizeofSockaddrInet6]byte
}

// Set makes it that of a connection's target. The error is an *Error.
func (a *Address) Set(c *config.Connection) error {
	target := netip.AddrPortFrom(c.Target.Addr().Unmap(), c.Target.Port())
	sa, family, err := sockaddr(target)
	if err != nil {
		return Fail(c, "socket", "", false, err)
	}
	*a = Address{Family: int32(family)}
	binary.NativeEndian.PutUint16(a.raw[:], uint16(family))
	binary.BigEndian.PutUint16(a.raw[2:], target.Port())
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		copy(a.raw[4:], sa.Addr[:])
		a.n = unix.SizeofSockaddrInet4
	case *unix.SockaddrInet6:
		copy(a.raw[8:], sa.Addr[:])
		binary.NativeEndian.PutUint32(a.raw[24:], sa.ZoneId)
		a.n = unix.SizeofSockaddrInet6
	}
	return nil
}

// Bytes is the struct sockaddr.
func (a *Address) Bytes() []byte { return a.raw[:a.n] }

// Port is the target's.
func (a *Address) Port() uint16 { return binary.BigEndian.Uint16(a.raw[2:]) }

// Is tells whether a struct sockaddr has the same address and port.
func (a *Address) Is(sockaddr []byte) bool {
	if a.n == 0 || len(sockaddr) != int(a.n) {
		return false
	}
	if a.n == unix.SizeofSockaddrInet4 {
		return [8]byte(sockaddr) == [8]byte(a.raw[:])
	}
	// The flow label between port and address is not part of who it is.
	return [4]byte(sockaddr) == [4]byte(a.raw[:]) && [16]byte(sockaddr[8:]) == [16]byte(a.raw[8:])
}

// Open makes the socket of a connection, non-blocking and with all that must be set
// before connect. The error is an *Error.
func Open(family int, c *config.Connection) (int, error) {
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
	if err != nil {
		return -1, Fail(c, "socket", "", false, err)
	}
	if op, local, err := prepare(fd, c, true); err != nil {
		unix.Close(fd)
		return -1, Fail(c, op, local, false, err)
	}
	return fd, nil
}

// Fail is the *Error of a connection. What connect(2) is about is its source
// address, which need not be given.
func Fail(c *config.Connection, op, local string, late bool, err error) error {
	if op == "connect" {
		local = source(c)
	}
	return &Error{Op: op, Target: netip.AddrPortFrom(c.Target.Addr().Unmap(), c.Target.Port()), Local: local, Late: late, Err: err}
}

// Refused is the error of a connection that the kernel joined to itself.
const Refused = syscall.ECONNREFUSED

// TooLate is the error of a connection whose deadline has passed before it is begun.
func TooLate(c *config.Connection) error { return Fail(c, "start", "", false, errLate) }

// Abortive tells whether a connection ends by reset: as configured, or because its
// source port is needed again at once.
func Abortive(c *config.Connection) bool {
	return c.Close == config.CloseReset || FixedPort(c)
}

// FixedPort tells whether the source port is given.
func FixedPort(c *config.Connection) bool { return c.BindAddr.IsValid() && c.BindPort != 0 }
