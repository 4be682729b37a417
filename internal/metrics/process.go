package metrics

import (
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	runtimemetrics "runtime/metrics"
	"time"

	"golang.org/x/sys/unix"
)

// Process is what the daemon itself takes.
type Process struct {
	CPU time.Duration
	// Resident and Heap are in bytes.
	Resident, Heap uint64
	Descriptors    int
	Goroutines     int
}

// ReadProcess reads this process's. The error joins all that could not be read,
// which is 0 then.
func ReadProcess() (*Process, error) {
	p := &Process{Goroutines: runtime.NumGoroutine()}
	heap := []runtimemetrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	runtimemetrics.Read(heap)
	if heap[0].Value.Kind() == runtimemetrics.KindUint64 {
		p.Heap = heap[0].Value.Uint64()
	}
	var errs []error
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		errs = append(errs, os.NewSyscallError("getrusage", err))
	}
	p.CPU = time.Duration(used.Utime.Nano() + used.Stime.Nano())
	var err error
	if p.Resident, err = resident(); err != nil {
		errs = append(errs, err)
	}
	if p.Descriptors, err = descriptors(); err != nil {
		errs = append(errs, err)
	}
	return p, errors.Join(errs...)
}

// resident reads /proc/self/statm, whose second number is in pages.
func resident() (uint64, error) {
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0, err
	}
	var size, pages uint64
	if _, err := fmt.Sscan(string(text), &size, &pages); err != nil {
		return 0, fmt.Errorf("/proc/self/statm holds %q: %w", text, err)
	}
	return pages * uint64(os.Getpagesize()), nil
}

// descriptors counts without the one that it needs for that.
func descriptors() (int, error) {
	dir, err := os.Open("/proc/self/fd")
	if err != nil {
		return 0, err
	}
	defer dir.Close()
	n := -1
	for {
		names, err := dir.Readdirnames(512)
		n += len(names)
		if errors.Is(err, io.EOF) {
			return n, nil
		}
		if err != nil {
			return n, err
		}
	}
}
