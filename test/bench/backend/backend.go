// Package backend is what the benchmarks check: every address of 127/8 on a few
// ports, from one thread, with a record of which target was checked when.
//
// It decides nothing of what is measured. It must cost little and always the same,
// since checker and backend share a machine: one thread waits for its listeners with
// epoll, a connection takes four to seven system calls, and a record is eight bytes
// in an array that is made at the start.
//
// Decisions that were close:
//
//   - Wildcard listeners, and targets told apart by the address that a connection was
//     made to: ten thousand listeners would cost the same on the wire and much more
//     to start.
//   - A group of targets fails by its port: its listener is shut, so that whatever is
//     sent there is reset from that moment on, as when a rack's process manager stops
//     a service. That is why there are several ports.
//   - The moment is that of the accept. Nearly nothing lies between it and the end of
//     a check on a loopback device, and it is the same for every daemon.
package backend

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/test/bench/stat"
)

// Targets are at most so many.
const Targets = 1 << targetBits

const (
	targetBits = 16
	perBlock   = 250 // addresses that are used of each 127.x.y
	reply      = "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\n"
	bodyLength = 100
	maxEvents  = 256
)

// Addr is the address of a target.
func Addr(target int) netip.Addr {
	block := target / perBlock
	return netip.AddrFrom4([4]byte{127, byte(1 + block/perBlock), byte(block % perBlock), byte(1 + target%perBlock)})
}

// target is the other way round, or -1.
func target(a [4]byte) int {
	x, y, z := int(a[1])-1, int(a[2]), int(a[3])-1
	if a[0] != 127 || x < 0 || y >= perBlock || z < 0 || z >= perBlock {
		return -1
	}
	if n := (x*perBlock+y)*perBlock + z; n < Targets {
		return n
	}
	return -1
}

// Now is the monotonic clock, which all processes of a machine share.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic(err) // no such clock: not Linux
	}
	return ts.Nano()
}

// Server is the backend. Serve owns everything but the record, which only grows.
type Server struct {
	epoll   int
	wake    int
	http    bool
	ports   map[int]int // port -> listening socket
	byFD    map[int]bool
	answer  []byte
	started time.Time
	base    int64

	record []uint64 // microseconds << targetBits | target
	used   atomic.Int64
	lost   atomic.Int64
	// known are the targets that were seen; distinct counts them, and latest is when
	// the newest of them came.
	known    []bool
	distinct atomic.Int64
	latest   atomic.Int64
	closing  atomic.Bool
}

// Listen opens the ports. With http a request is read and answered, otherwise a
// connection is closed at once. The record has room for so many checks.
func Listen(ports []int, http bool, room int) (*Server, error) {
	s := &Server{
		http: http, ports: map[int]int{}, byFD: map[int]bool{}, record: make([]uint64, room), known: make([]bool, Targets),
		started: time.Now(), base: Now(), epoll: -1, wake: -1,
	}
	s.answer = append([]byte(reply), make([]byte, bodyLength)...)
	for i := range bodyLength {
		s.answer[len(reply)+i] = 'x'
	}
	var err error
	if s.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("backend: epoll: %w", err)
	}
	if s.wake, err = unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC); err != nil {
		s.release()
		return nil, fmt.Errorf("backend: eventfd: %w", err)
	}
	if err = s.watch(s.wake); err == nil {
		for _, port := range ports {
			if err = s.listen(port); err != nil {
				break
			}
		}
	}
	if err != nil {
		s.release()
		return nil, err
	}
	return s, nil
}

func (s *Server) listen(port int) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("backend: socket: %w", err)
	}
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.Bind(fd, &unix.SockaddrInet4{Port: port}),
		unix.Listen(fd, unix.SOMAXCONN), s.watch(fd))
	if err != nil {
		unix.Close(fd)
		return fmt.Errorf("backend: listen on port %d: %w", port, err)
	}
	if port == 0 { // any that is free, for tests
		name, err := unix.Getsockname(fd)
		if err != nil {
			unix.Close(fd)
			return fmt.Errorf("backend: name of a listener: %w", err)
		}
		port = name.(*unix.SockaddrInet4).Port
	}
	s.ports[port], s.byFD[fd] = fd, true
	return nil
}

func (s *Server) watch(fd int) error {
	return unix.EpollCtl(s.epoll, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(fd)})
}

// Serve answers until Close.
func (s *Server) Serve() error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	defer s.release()
	events := make([]unix.EpollEvent, maxEvents)
	open := map[int]bool{}
	defer func() {
		for fd := range open {
			unix.Close(fd)
		}
	}()
	request := make([]byte, 4096)
	for !s.closing.Load() {
		n, err := unix.EpollWait(s.epoll, events, -1)
		if errors.Is(err, unix.EINTR) {
			continue
		} else if err != nil {
			return fmt.Errorf("backend: wait: %w", err)
		}
		for _, e := range events[:n] {
			switch fd := int(e.Fd); {
			case fd == s.wake:
			case s.byFD[fd]:
				s.accept(fd, open)
			default:
				s.converse(fd, request)
				delete(open, fd)
			}
		}
	}
	return nil
}

// accept takes all that wait at a listener; one that was shut is closed.
func (s *Server) accept(listener int, open map[int]bool) {
	for {
		fd, _, err := unix.Accept4(listener, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch {
		case err == nil:
		case errors.Is(err, unix.EINVAL): // shut: it would be reported for ever
			delete(s.byFD, listener)
			unix.Close(listener)
			return
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.ECONNABORTED):
			continue
		default:
			return
		}
		if name, err := unix.Getsockname(fd); err == nil {
			if in, ok := name.(*unix.SockaddrInet4); ok {
				s.note(target(in.Addr))
			}
		}
		if s.http && s.watch(fd) == nil {
			open[fd] = true
			continue
		}
		unix.Close(fd)
	}
}

// converse answers whatever is asked: requests are short and come in one piece.
func (s *Server) converse(fd int, request []byte) {
	if n, err := unix.Read(fd, request); err == nil && n > 0 {
		_, _ = unix.Write(fd, s.answer) // the peer may be gone
	}
	unix.Close(fd)
}

// note records a check. Now would be a system call, which time.Since is not.
func (s *Server) note(target int) {
	n := s.used.Load()
	if target < 0 || n == int64(len(s.record)) {
		s.lost.Add(1)
		return
	}
	at := s.base + int64(time.Since(s.started))
	s.record[n] = uint64(at/1000)<<targetBits | uint64(target)
	s.used.Store(n + 1)
	if !s.known[target] {
		s.known[target] = true
		s.latest.Store(at)
		s.distinct.Add(1)
	}
}

// Close ends Serve.
func (s *Server) Close() {
	s.closing.Store(true)
	_, _ = unix.Write(s.wake, binary.NativeEndian.AppendUint64(nil, 1))
}

func (s *Server) release() {
	for fd := range s.byFD {
		unix.Close(fd)
	}
	for _, fd := range []int{s.epoll, s.wake} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
}

// Shut makes a port refuse from now on. What waited there is reset.
func (s *Server) Shut(port int) error {
	fd, ok := s.ports[port]
	if !ok {
		return fmt.Errorf("backend: no listener on port %d", port)
	}
	// The socket stays with Serve, which sees it and closes it: closed here, its
	// number could be another's by then.
	if err := unix.Shutdown(fd, unix.SHUT_RDWR); err != nil {
		return fmt.Errorf("backend: shut port %d: %w", port, err)
	}
	return nil
}

// Ports lists what was opened.
func (s *Server) Ports() (all []int) {
	for p := range s.ports {
		all = append(all, p)
	}
	return all
}

// Status is how far the record is.
type Status struct {
	// Checks were seen; Lost ones had no room or no known target.
	Checks, Lost int64
	// Targets is how many were checked at least once, the last of them at Latest.
	Targets int64
	Latest  int64
}

// Status may be called at any time.
func (s *Server) Status() Status {
	return Status{Checks: s.used.Load(), Lost: s.lost.Load(), Targets: s.distinct.Load(), Latest: s.latest.Load()}
}

// raw returns the record from a position on.
func (s *Server) raw(from int64) []uint64 {
	n := s.used.Load()
	return s.record[min(max(from, 0), n):n]
}

func unpack(words []uint64) []stat.Event {
	all := make([]stat.Event, len(words))
	for i, w := range words {
		all[i] = stat.Event{At: int64(w>>targetBits) * 1000, Target: int(w & (Targets - 1))}
	}
	return all
}
