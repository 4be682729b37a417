package reactor

import (
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/config"
)

// system is the clock, the sockets and the poller that a Loop runs on: the kernel,
// or a simulation. Only now and wake are called from other goroutines.
type system interface {
	// now is the monotonic time in nanoseconds.
	now() int64
	// open makes a socket, ready to connect; the error is a *dial.Error.
	open(a *dial.Address, c *config.Connection) (fd int, err error)
	connect(fd int, a *dial.Address) syscall.Errno
	// watch has wait report what happens to a socket, under this tag, until it is
	// closed.
	watch(fd int, tag tag) syscall.Errno
	// dissolve ends a connection by reset and leaves the socket fit for the next.
	dissolve(fd int) syscall.Errno
	close(fd int, reset bool)
	// fault takes the error of a socket.
	fault(fd int) syscall.Errno
	// peered tells whether a socket has a peer.
	peered(fd int) bool
	// self tells whether a socket's own address is a.
	self(fd int, a *dial.Address) bool
	send(fd int, p []byte) (int, syscall.Errno)
	receive(fd int, p []byte) (int, syscall.Errno)
	// wait fills in what happened and returns how much that is. With pause 0 it does
	// not block, with a negative one it blocks until something happens.
	wait(events []unix.EpollEvent, pause int64) int
	// wake ends a wait, or the next one.
	wake()
	// end gives back what the system itself has open.
	end()
}

// tag is what an event carries.
type tag struct {
	// index is the link's place in Loop.links. A closed link's place is used again
	// with another generation, so that what was reported for the old one is known.
	index, generation uint32
}

// What is asked of a watched socket, once and for all.
const interest = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET

// What happens to a socket.
const (
	writable = unix.EPOLLOUT
	readable = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLERR | unix.EPOLLHUP
	ended    = unix.EPOLLRDHUP | unix.EPOLLERR | unix.EPOLLHUP
	broken   = unix.EPOLLERR | unix.EPOLLHUP
)
