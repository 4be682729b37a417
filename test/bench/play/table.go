package play

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/testkit"
	"github.com/sluice-lb/sluice/test/bench/backend"
	"github.com/sluice-lb/sluice/test/bench/stat"
)

// The kernel's own interface of old: its answers have the number of destinations of
// each service and not the destinations themselves, so that looking costs nearly
// nothing, and nothing that grows with a service.
const (
	optBase     = 64 + 1024 + 64
	optInfo     = optBase + 1
	optServices = optBase + 2

	infoSize   = 12  // version, size of the connection table, number of services
	headSize   = 8   // number of services, padding
	entrySize  = 104 // a service
	destsAt    = 44  // where in it the number of destinations is
	servicesAt = 8   // where in the info the number of services is
)

// watcher looks at the table of a namespace.
type watcher struct {
	fd  int
	buf []byte
}

// watch opens one.
func watch(t testkit.T, ns *testkit.NS) *watcher {
	w := &watcher{}
	err := ns.Do(func() (err error) {
		w.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
		return err
	})
	if err != nil {
		t.Fatalf("socket to look at the table: %v", err)
	}
	t.Cleanup(func() { unix.Close(w.fd) })
	return w
}

// get asks for an option whose answer has room for so many bytes.
func (w *watcher) get(option, size int) ([]byte, error) {
	if len(w.buf) < size {
		w.buf = make([]byte, size)
	}
	length := uint32(size)
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(w.fd), unix.IPPROTO_IP, uintptr(option),
		uintptr(unsafe.Pointer(&w.buf[0])), uintptr(unsafe.Pointer(&length)), 0)
	if errno != 0 {
		return nil, errno
	}
	return w.buf[:min(int(length), size)], nil
}

// services is how many there are.
func (w *watcher) services() (int, error) {
	info, err := w.get(optInfo, infoSize)
	if err != nil {
		return 0, fmt.Errorf("number of services: %w", err)
	}
	return int(binary.NativeEndian.Uint32(info[servicesAt:])), nil
}

// counts are the services, and the destinations of all of them.
func (w *watcher) counts() (services, dests int, err error) {
	for {
		if services, err = w.services(); err != nil {
			return 0, 0, err
		}
		size := headSize + services*entrySize
		clear(w.buf)
		if len(w.buf) < size {
			w.buf = make([]byte, size)
		}
		binary.NativeEndian.PutUint32(w.buf, uint32(services))
		answer, err := w.get(optServices, size)
		if errors.Is(err, unix.EINVAL) {
			continue // one more or one less by now
		} else if err != nil {
			return 0, 0, fmt.Errorf("services: %w", err)
		}
		return services, sumDests(answer, services), nil
	}
}

// sumDests adds up what an answer says.
func sumDests(answer []byte, services int) (n int) {
	for i := range services {
		at := headSize + i*entrySize + destsAt
		if at+4 > len(answer) {
			break
		}
		n += int(binary.NativeEndian.Uint32(answer[at:]))
	}
	return n
}

// look is one look, and the moment before it.
func (w *watcher) look(t testkit.T) (services int, c stat.Count) {
	c.At = backend.Now()
	services, dests, err := w.counts()
	if err != nil {
		t.Fatalf("look at the table: %v", err)
	}
	c.Total = dests
	return services, c
}
