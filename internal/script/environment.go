package script

import (
	"bytes"
	"io"
	"math"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// withheld are the variables of the daemon that scripts do not get.
var withheld = []string{"IFS=", "LD_PRELOAD=", "LD_LIBRARY_PATH=", "NOTIFY_SOCKET=", "WATCHDOG_", "SLUICED_", "SLUICE_EVENT=", "SLUICE_VS=", "SLUICE_RS="}

// environment is the daemon's, without what must not reach a script.
func environment() []string { return keepVariables(os.Environ()) }

func keepVariables(env []string) []string {
	var kept []string
next:
	for _, v := range env {
		for _, w := range withheld {
			if strings.HasPrefix(v, w) {
				continue next
			}
		}
		kept = append(kept, v)
	}
	return kept
}

// closeOnExec keeps descriptors from scripts that the daemon itself inherited. Its
// own are marked so from the start.
func closeOnExec() {
	if unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return
	}
	markOpenFiles() // before Linux 5.11
}

func markOpenFiles() {
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range open {
		if fd, err := number(e.Name()); err == nil && fd > 2 {
			unix.CloseOnExec(int(fd))
		}
	}
}

// catchIgnored makes the daemon catch, to no effect, the signals that it ignores
// or was started with ignored, as by nohup. An ignored signal stays so in a script,
// for which it was not meant; a caught one does not.
var catchIgnored = sync.OnceFunc(func() {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return
	}
	nowhere := make(chan os.Signal, 1)
	for _, s := range ignored(status) {
		signal.Notify(nowhere, s)
	}
})

// ignored reads SigIgn of /proc/PID/status. The real-time signals are left out:
// the C library has its own use for some.
func ignored(status []byte) []os.Signal {
	const realTime = 32
	_, rest, _ := bytes.Cut(status, []byte("\nSigIgn:"))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	mask, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 64)
	if err != nil {
		return nil
	}
	var all []os.Signal
	for s := syscall.Signal(1); s < realTime; s++ {
		if mask&(1<<(s-1)) != 0 {
			all = append(all, s)
		}
	}
	return all
}

// head is the beginning of a file; empty if it cannot be read.
func head(path string) []byte {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil
	}
	defer f.Close()
	b := make([]byte, 256)
	n, _ := io.ReadFull(f, b)
	return b[:n]
}

// isText tells a script without #! line from a damaged program.
func isText(path string) bool { return !bytes.ContainsRune(head(path), 0) }

// interpreter is the file's #! line.
func interpreter(path string) string {
	line, _, _ := strings.Cut(string(head(path)), "\n")
	if !strings.HasPrefix(line, "#!") {
		return ""
	}
	return line
}
