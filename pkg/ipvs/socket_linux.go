package ipvs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"syscall"
	"time"

	"github.com/mdlayher/genetlink"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"
)

// The kernel answers a send of batchSize operations before anything is read, so
// all their errors must fit: each takes about 1 KiB of the receive buffer.
const receiveBuffer = 1 << 20

var kernelAddr = &unix.SockaddrNetlink{Family: unix.AF_NETLINK}

// netlinkSocket is the kernel's end of a socket.
type netlinkSocket struct {
	conn *netlink.Conn
	genl *genetlink.Conn
	raw  syscall.RawConn
	// tx and rx are the call that is under way, in one place so that a datagram needs
	// no closure of its own. One exchange runs at a time.
	tx, rx transfer
}

// transfer is one send or receive.
type transfer struct {
	b    []byte
	wait bool
	n    int
	err  error
	run  func(fd uintptr) (done bool)
}

func openSocket(o options) (socket, error) {
	var cfg netlink.Config
	switch {
	case o.netNSPath != "":
		f, err := os.Open(o.netNSPath)
		if err != nil {
			return nil, fmt.Errorf("open network namespace: %w", err)
		}
		defer f.Close()
		cfg.NetNS = int(f.Fd())
	case o.netNSFD > 0:
		cfg.NetNS = o.netNSFD
	}
	conn, err := netlink.Dial(unix.NETLINK_GENERIC, &cfg)
	if err != nil {
		return nil, err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		conn.Close()
		return nil, err
	}
	// None of these is vital: the first needs privileges or a generous limit, the
	// others a kernel since 4.12.
	_ = conn.SetReadBuffer(receiveBuffer)
	_ = conn.SetOption(netlink.ExtendedAcknowledge, true)
	_ = conn.SetOption(netlink.CapAcknowledge, true)
	s := &netlinkSocket{conn: conn, genl: genetlink.NewConn(conn), raw: raw}
	s.tx.run, s.rx.run = s.tx.send, s.rx.receive
	return s, nil
}

// family asks for the number of the IPVS family.
func (s *netlinkSocket) family() (id uint16, err error) {
	defer func() {
		// genetlink panics on an answer that it does not expect.
		if r := recover(); r != nil {
			err = fmt.Errorf("look up netlink family %s: %v", familyName, r)
		}
	}()
	f, err := s.genl.GetFamily(familyName)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, ErrNoModule
	case err != nil:
		return 0, fmt.Errorf("look up netlink family %s: %w", familyName, err)
	}
	return f.ID, nil
}

func (s *netlinkSocket) setDeadline(t time.Time) error { return s.conn.SetDeadline(t) }
func (s *netlinkSocket) close() error                  { return s.conn.Close() }

func (s *netlinkSocket) send(b []byte) error {
	s.tx.b = b
	if err := s.raw.Write(s.tx.run); err != nil {
		return err
	}
	return os.NewSyscallError("sendto", s.tx.err)
}

func (t *transfer) send(fd uintptr) bool {
	for {
		t.err = unix.Sendto(int(fd), t.b, unix.MSG_DONTWAIT, kernelAddr)
		switch {
		case errors.Is(t.err, unix.EINTR):
			continue
		case errors.Is(t.err, unix.EAGAIN):
			return false
		}
		return true
	}
}

// receive reads one datagram from the kernel. What a process sent is skipped.
func (s *netlinkSocket) receive(b []byte, wait bool) (int, error) {
	s.rx.b, s.rx.wait = b, wait
	err := s.raw.Read(s.rx.run)
	switch {
	case err != nil:
		return 0, err
	case errors.Is(s.rx.err, unix.EAGAIN):
		return 0, errNothing
	case errors.Is(s.rx.err, unix.ENOBUFS):
		return 0, errOverrun
	case s.rx.err != nil:
		return 0, os.NewSyscallError("recvfrom", s.rx.err)
	case s.rx.n > len(b):
		return 0, errTruncated
	}
	return s.rx.n, nil
}

func (t *transfer) receive(fd uintptr) bool {
	for {
		var from unix.Sockaddr
		t.n, from, t.err = unix.Recvfrom(int(fd), t.b, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
		switch {
		case errors.Is(t.err, unix.EINTR):
			continue
		case errors.Is(t.err, unix.EAGAIN):
			return !t.wait
		}
		if sa, ok := from.(*unix.SockaddrNetlink); t.err == nil && ok && sa.Pid != 0 {
			continue
		}
		return true
	}
}
