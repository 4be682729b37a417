package play

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// usage is what a process has used.
type usage struct {
	// cpu is in nanoseconds, of all its threads, as the scheduler counts it.
	cpu int64
	// wait is how long they could have run and others did, their own included.
	wait int64
	// ticks is the same in hundredths of a second, as the kernel accounts it.
	ticks int64
	// switches are those that it made of its own will: to wait for something.
	switches int64
}

func (u usage) minus(v usage) usage {
	return usage{cpu: u.cpu - v.cpu, wait: u.wait - v.wait, ticks: u.ticks - v.ticks, switches: u.switches - v.switches}
}

// readUsage sums over the threads below proc, which is /proc or a test's.
func readUsage(proc string, pid int) (u usage, err error) {
	dir := filepath.Join(proc, strconv.Itoa(pid))
	tids, err := threads(proc, pid)
	if err != nil {
		return u, err
	}
	for _, tid := range tids {
		task := filepath.Join(dir, "task", strconv.Itoa(tid))
		sched, err := os.ReadFile(filepath.Join(task, "schedstat"))
		if errors.Is(err, fs.ErrNotExist) {
			if _, gone := os.Stat(task); gone != nil {
				continue // the thread ended just now
			}
		}
		if err != nil {
			return u, fmt.Errorf("the kernel does not tell a thread's time exactly: %w", err)
		}
		cpu, wait, err := parseSchedstat(string(sched))
		if err != nil {
			return u, fmt.Errorf("%s/schedstat: %w", task, err)
		}
		u.cpu, u.wait = u.cpu+cpu, u.wait+wait
		status, err := os.ReadFile(filepath.Join(task, "status"))
		if err != nil {
			return u, err
		}
		n, err := parseField(string(status), "voluntary_ctxt_switches")
		if err != nil {
			return u, fmt.Errorf("%s/status: %w", task, err)
		}
		u.switches += n
	}
	stat, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return u, err
	}
	_, u.ticks, err = parseStat(string(stat))
	return u, err
}

// threads lists those of a process.
func threads(proc string, pid int) (tids []int, err error) {
	entries, err := os.ReadDir(filepath.Join(proc, strconv.Itoa(pid), "task"))
	if err != nil {
		return nil, fmt.Errorf("process %d: %w", pid, err)
	}
	for _, e := range entries {
		tid, err := strconv.Atoi(e.Name())
		if err != nil {
			return nil, err
		}
		tids = append(tids, tid)
	}
	return tids, nil
}

// parseSchedstat returns the nanoseconds on a CPU and those of waiting for one, the
// first two of three numbers.
func parseSchedstat(text string) (cpu, wait int64, err error) {
	fields := strings.Fields(text)
	if len(fields) != 3 {
		return 0, 0, fmt.Errorf("want three numbers, not %q", text)
	}
	if cpu, err = strconv.ParseInt(fields[0], 10, 64); err != nil {
		return 0, 0, err
	}
	wait, err = strconv.ParseInt(fields[1], 10, 64)
	return cpu, wait, err
}

// load is the machine's load average of the last minute.
func load(proc string) (float64, error) {
	text, err := os.ReadFile(filepath.Join(proc, "loadavg"))
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(text), " ")
	return strconv.ParseFloat(first, 64)
}

// parseStat returns the parent and the time in user and kernel mode. The name of the
// program is in parentheses and may hold anything, further ones included.
func parseStat(text string) (parent int, ticks int64, err error) {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return 0, 0, fmt.Errorf("no name in %q", text)
	}
	f := strings.Fields(text[end+1:])
	if len(f) < 13 {
		return 0, 0, fmt.Errorf("%d fields after the name, want 13 at least", len(f))
	}
	if parent, err = strconv.Atoi(f[1]); err != nil {
		return 0, 0, err
	}
	for _, word := range f[11:13] {
		n, err := strconv.ParseInt(word, 10, 64)
		if err != nil {
			return 0, 0, err
		}
		ticks += n
	}
	return parent, ticks, nil
}

// parseField returns the number of a line "name: 123 kB" of /proc/PID/status.
func parseField(text, name string) (int64, error) {
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, ":")
		if f := strings.Fields(value); ok && key == name && len(f) > 0 {
			return strconv.ParseInt(f[0], 10, 64)
		}
	}
	return 0, fmt.Errorf("no %s in it", name)
}

// readRSS is in KiB.
func readRSS(proc string, pid int) (int64, error) {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "status"))
	if err != nil {
		return 0, err
	}
	return parseField(string(text), "VmRSS")
}

// children are the processes whose parent is pid.
func children(proc string, pid int) (pids []int, err error) {
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		child, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		text, err := os.ReadFile(filepath.Join(proc, e.Name(), "stat"))
		if err != nil {
			continue // it ended
		}
		parent, _, err := parseStat(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s/%d/stat: %w", proc, child, err)
		}
		if parent == pid {
			pids = append(pids, child)
		}
	}
	return pids, nil
}
