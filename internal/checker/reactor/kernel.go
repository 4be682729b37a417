package reactor

import (
	"encoding/binary"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/checker/dial"
	"github.com/sluice-lb/sluice/internal/config"
)

// kernel is the real system. What cannot block is called raw: the Go scheduler is
// told only of the one wait that may, and so has a processor to give away then.
type kernel struct {
	base      time.Time
	epoll, ev int
	// calls counts system calls, for tests of what a check costs.
	calls uint64
	// What system calls point to. Stacks move, and to have the compiler know that an
	// address was taken is an allocation for each call.
	event  unix.EpollEvent
	linger unix.Linger
	number int32
	size   uint32
	addr   [unix.SizeofSockaddrInet6]byte
}

// wakeTag is that of the eventfd. It is never read: edge triggered, each write is
// news.
var wakeTag = tag{index: ^uint32(0)}

func newKernel() (*kernel, error) {
	k := &kernel{base: time.Now()}
	var err error
	if k.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return nil, fmt.Errorf("make epoll descriptor: %w", err)
	}
	if k.ev, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		unix.Close(k.epoll)
		return nil, fmt.Errorf("make eventfd: %w", err)
	}
	if errno := k.watch(k.ev, wakeTag); errno != 0 {
		k.end()
		return nil, fmt.Errorf("watch eventfd: %w", errno)
	}
	return k, nil
}

func (k *kernel) now() int64 { return int64(time.Since(k.base)) }

//go:uintptrescapes
func (k *kernel) raw(trap, a, b, c uintptr) (uintptr, syscall.Errno) {
	k.calls++
	r, _, errno := syscall.RawSyscall(trap, a, b, c)
	return r, errno
}

//go:uintptrescapes
func (k *kernel) raw6(trap, a, b, c, d, e, f uintptr) (uintptr, syscall.Errno) {
	k.calls++
	r, _, errno := syscall.RawSyscall6(trap, a, b, c, d, e, f)
	return r, errno
}

func (k *kernel) open(a *dial.Address, c *config.Connection) (int, error) {
	if c.FWMark == 0 && c.BindIf == "" && !c.BindAddr.IsValid() {
		fd, errno := k.raw(unix.SYS_SOCKET, uintptr(a.Family), unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, unix.IPPROTO_TCP)
		if errno == 0 {
			k.spare(int(fd), c)
			return int(fd), nil
		}
		return -1, dial.Fail(c, "socket", "", false, errno)
	}
	k.calls += 3 // more or less
	fd, err := dial.Open(int(a.Family), c)
	if err == nil {
		k.spare(fd, c)
	}
	return fd, err
}

// spare has the kernel hold the last packet of the handshake back, for what follows
// at once: a request or the end. It goes alone after 200 ms at the latest. Without it,
// for whatever reason, the check is as good.
func (k *kernel) spare(fd int, c *config.Connection) {
	if c.Close != config.CloseNormal {
		return
	}
	k.number = 0
	_, _ = k.raw6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.IPPROTO_TCP, unix.TCP_QUICKACK, uintptr(unsafe.Pointer(&k.number)), unsafe.Sizeof(k.number), 0)
}

func (k *kernel) connect(fd int, a *dial.Address) syscall.Errno {
	b := a.Bytes()
	_, errno := k.raw(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)))
	return errno
}

func (k *kernel) watch(fd int, t tag) syscall.Errno {
	k.event = unix.EpollEvent{Events: interest, Fd: int32(t.index), Pad: int32(t.generation)}
	_, errno := k.raw6(unix.SYS_EPOLL_CTL, uintptr(k.epoll), unix.EPOLL_CTL_ADD, uintptr(fd), uintptr(unsafe.Pointer(&k.event)), 0, 0)
	return errno
}

// unspecified is a struct sockaddr of no family.
var unspecified [16]byte

func (k *kernel) dissolve(fd int) syscall.Errno {
	_, errno := k.raw(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&unspecified)), unsafe.Sizeof(unspecified))
	return errno
}

func (k *kernel) close(fd int, reset bool) {
	if reset {
		k.linger = unix.Linger{Onoff: 1}
		_, _ = k.raw6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_LINGER, uintptr(unsafe.Pointer(&k.linger)), unsafe.Sizeof(k.linger), 0)
	}
	_, _ = k.raw(unix.SYS_CLOSE, uintptr(fd), 0, 0)
}

func (k *kernel) fault(fd int) syscall.Errno {
	k.size = uint32(unsafe.Sizeof(k.number))
	if _, errno := k.raw6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_ERROR, uintptr(unsafe.Pointer(&k.number)), uintptr(unsafe.Pointer(&k.size)), 0); errno != 0 {
		return errno
	}
	return syscall.Errno(k.number)
}

func (k *kernel) peered(fd int) bool { return k.name(unix.SYS_GETPEERNAME, fd) == 0 }

func (k *kernel) self(fd int, a *dial.Address) bool {
	return k.name(unix.SYS_GETSOCKNAME, fd) == 0 && a.Is(k.addr[:min(k.size, uint32(len(k.addr)))])
}

// name fills in addr and size.
func (k *kernel) name(trap uintptr, fd int) syscall.Errno {
	k.size = uint32(len(k.addr))
	_, errno := k.raw(trap, uintptr(fd), uintptr(unsafe.Pointer(&k.addr)), uintptr(unsafe.Pointer(&k.size)))
	return errno
}

func (k *kernel) send(fd int, p []byte) (int, syscall.Errno) {
	n, errno := k.raw6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), unix.MSG_NOSIGNAL, 0, 0)
	return int(n), errno
}

func (k *kernel) receive(fd int, p []byte) (int, syscall.Errno) {
	n, errno := k.raw6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(p))), uintptr(len(p)), 0, 0, 0)
	return int(n), errno
}

func (k *kernel) wait(events []unix.EpollEvent, pause int64) int {
	if pause == 0 {
		got, errno := k.raw6(unix.SYS_EPOLL_PWAIT, uintptr(k.epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
		if errno != 0 {
			return 0
		}
		return int(got)
	}
	// A goroutine that never gives way counts as stuck after 10 ms: the runtime's
	// monitor, which sleeps 10 ms where nothing is, would look 2,000 times a second, for a
	// tenth of all the CPU that checks take.
	runtime.Gosched()
	ms := ^uintptr(0) // until something happens
	if pause > 0 {
		ms = uintptr(min((pause+int64(time.Millisecond)-1)/int64(time.Millisecond), 1<<31-1))
	}
	k.calls++
	got, _, errno := syscall.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(k.epoll), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), ms, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(got)
}

func (k *kernel) wake() {
	var one [8]byte
	binary.NativeEndian.PutUint64(one[:], 1)
	_, _ = unix.Write(k.ev, one[:])
}

func (k *kernel) end() {
	unix.Close(k.ev)
	unix.Close(k.epoll)
}

// localPorts is where the kernel draws source ports from; all, if it does not say.
func localPorts() (low, high uint16) {
	b, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err != nil {
		return 0, 1<<16 - 1
	}
	if n, err := fmt.Sscan(string(b), &low, &high); n != 2 || err != nil {
		return 0, 1<<16 - 1
	}
	return low, high
}
