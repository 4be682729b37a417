package play

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"
)

// everySyscall is the tracepoint that all of them pass.
const everySyscall = "raw_syscalls/sys_enter"

// sending are those of the calls that may carry messages to the kernel.
var sending = []string{"syscalls/sys_enter_sendmsg", "syscalls/sys_enter_sendmmsg", "syscalls/sys_enter_sendto"}

// tracefs is where the kernel lists its tracepoints, if anything is mounted there.
var tracefs = []string{"/sys/kernel/tracing", "/sys/kernel/debug/tracing"}

// counter counts how often a process passes some tracepoints. It counts in the kernel and
// stops nobody, which a debugger's trace would.
type counter struct{ fds []int }

// count starts one; threads that come later are counted as well.
func count(pid int, points ...string) (*counter, error) {
	tids, err := threads("/proc", pid)
	if err != nil {
		return nil, err
	}
	c := &counter{}
	for _, point := range points {
		if err := c.add(tids, point); err != nil {
			c.close()
			return nil, fmt.Errorf("count %s: %w", point, err)
		}
	}
	return c, nil
}

func (c *counter) add(tids []int, point string) error {
	id, err := tracepoint(point)
	if err != nil {
		return err
	}
	attr := &unix.PerfEventAttr{Type: unix.PERF_TYPE_TRACEPOINT, Config: id, Bits: unix.PerfBitInherit, Sample_type: unix.PERF_SAMPLE_RAW}
	attr.Size = uint32(unsafe.Sizeof(*attr))
	for _, tid := range tids {
		fd, err := unix.PerfEventOpen(attr, tid, -1, -1, unix.PERF_FLAG_FD_CLOEXEC)
		if errors.Is(err, unix.ESRCH) {
			continue // the thread ended
		}
		if err != nil {
			return err
		}
		c.fds = append(c.fds, fd)
	}
	return nil
}

func tracepoint(point string) (uint64, error) {
	var errs []error
	for _, dir := range tracefs {
		b, err := os.ReadFile(filepath.Join(dir, "events", point, "id"))
		if err == nil {
			return strconv.ParseUint(strings.TrimSpace(string(b)), 10, 64)
		}
		errs = append(errs, err)
	}
	return 0, fmt.Errorf("no such tracepoint: %w", errors.Join(errs...))
}

// total is what was counted so far.
func (c *counter) total() (n uint64, err error) {
	buf := make([]byte, 8)
	for _, fd := range c.fds {
		if _, err := unix.Read(fd, buf); err != nil {
			return 0, fmt.Errorf("read a counter: %w", err)
		}
		n += binary.NativeEndian.Uint64(buf)
	}
	return n, nil
}

func (c *counter) close() {
	for _, fd := range c.fds {
		unix.Close(fd)
	}
}

// mountTracefs makes the tracepoints visible in a guest, which nobody else uses.
func mountTracefs() error {
	if _, err := tracepoint(everySyscall); err == nil {
		return nil
	}
	return unix.Mount("tracefs", tracefs[0], "tracefs", 0, "")
}
