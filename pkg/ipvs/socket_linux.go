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
	return &netlinkSocket{conn: conn, genl: genetlink.NewConn(conn), raw: raw}, nil
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
	var err error
	werr := s.raw.Write(func(fd uintptr) bool {
		for {
			err = unix.Sendto(int(fd), b, unix.MSG_DONTWAIT, kernelAddr)
			switch err {
			case unix.EINTR:
				continue
			case unix.EAGAIN:
				return false
			}
			return true
		}
	})
	if werr != nil {
		return werr
	}
	return os.NewSyscallError("sendto", err)
}

// receive reads one datagram from the kernel. What a process sent is skipped.
func (s *netlinkSocket) receive(b []byte, wait bool) (int, error) {
	var (
		n    int
		from unix.Sockaddr
		err  error
	)
	rerr := s.raw.Read(func(fd uintptr) bool {
		for {
			n, from, err = unix.Recvfrom(int(fd), b, unix.MSG_DONTWAIT|unix.MSG_TRUNC)
			if err == unix.EINTR {
				continue
			}
			if err == unix.EAGAIN {
				return !wait
			}
			if sa, ok := from.(*unix.SockaddrNetlink); err == nil && ok && sa.Pid != 0 {
				continue
			}
			return true
		}
	})
	switch {
	case rerr != nil:
		return 0, rerr
	case err == unix.EAGAIN:
		return 0, errNothing
	case err == unix.ENOBUFS:
		return 0, errOverrun
	case err != nil:
		return 0, os.NewSyscallError("recvfrom", err)
	case n > len(b):
		return 0, errTruncated
	}
	return n, nil
}
