package testkit

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a program that was started in a namespace. Both of its output
// streams are kept line by line, in the order in which they came.
type Process struct {
	cmd  *exec.Cmd
	done chan struct{} // closed once it has ended and its output is read
	err  error         // of Wait; valid after done

	mu      sync.Mutex
	lines   []string
	cursor  int // WaitLine goes on from here
	changed chan struct{}
}

// Start starts a program in the namespace; env is added to the test's own
// environment. It is killed when the test ends, and its output is logged if the
// test failed.
func (ns *NS) Start(t T, env []string, name string, args ...string) *Process {
	t.Helper()
	p := &Process{cmd: command(name, args...), done: make(chan struct{}), changed: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), env...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatalf("start %s: %v", name, err)
	}
	p.cmd.Stdout, p.cmd.Stderr = w, w
	err = ns.Do(p.cmd.Start)
	w.Close()
	if err != nil {
		r.Close()
		t.Fatalf("start %s in %s: %v", name, ns.Name, err)
	}
	go p.watch(r)
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Logf("output of %s:\n%s", strings.Join(p.cmd.Args, " "), strings.Join(p.Lines(), "\n"))
		}
	})
	return p
}

// watch owns the output until the process has ended.
func (p *Process) watch(r *os.File) {
	read := make(chan struct{})
	go func() {
		defer close(read)
		p.read(r)
	}()
	p.err = p.cmd.Wait()
	// A child of the process may hold the pipe open; it gets a moment.
	_ = r.SetReadDeadline(time.Now().Add(time.Second))
	<-read
	r.Close()
	close(p.done)
}

func (p *Process) read(r io.Reader) {
	for in := bufio.NewReader(r); ; {
		line, err := in.ReadString('\n')
		if line != "" {
			p.mu.Lock()
			p.lines = append(p.lines, strings.TrimRight(line, "\n"))
			close(p.changed)
			p.changed = make(chan struct{})
			p.mu.Unlock()
		}
		if err != nil {
			return
		}
	}
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Lines returns what it has printed so far.
func (p *Process) Lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.lines...)
}

// WaitLine waits for a line that matches the regular expression and returns it.
// Each call goes on behind the line that the last one returned; the test fails
// when the time is over or the process ends without such a line.
func (p *Process) WaitLine(t T, within time.Duration, pattern string) string {
	t.Helper()
	return p.mustSee(t, within, p.next, pattern)
}

// SeeLine waits as WaitLine does for a line that may also have come before the one that
// WaitLine returned last: of two that come in no order.
func (p *Process) SeeLine(t T, within time.Duration, pattern string) string {
	t.Helper()
	return p.mustSee(t, within, p.find, pattern)
}

// look returns a line that matches, or what is closed when there are more lines.
type look func(*regexp.Regexp) (string, bool, chan struct{})

func (p *Process) mustSee(t T, within time.Duration, where look, pattern string) string {
	t.Helper()
	line, err := p.wait(within, where, regexp.MustCompile(pattern))
	if err != nil {
		t.Fatalf("%s: %v", p.cmd.Args[0], err)
	}
	return line
}

func (p *Process) wait(within time.Duration, where look, pattern *regexp.Regexp) (string, error) {
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	for done := p.done; ; {
		line, ok, changed := where(pattern)
		if ok {
			return line, nil
		}
		if done == nil {
			return "", fmt.Errorf("ended with status %d without a line that matches %q", exitStatus(p.err), pattern)
		}
		select {
		case <-changed:
		case <-done:
			done = nil // one more look at what came last
		case <-timeout.C:
			return "", fmt.Errorf("no line that matches %q after %v", pattern, within)
		}
	}
}

// next looks from the cursor on.
func (p *Process) next(pattern *regexp.Regexp) (string, bool, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, line := range p.lines[p.cursor:] {
		if pattern.MatchString(line) {
			p.cursor += i + 1
			return line, true, nil
		}
	}
	return "", false, p.changed
}

// find looks from the first line on and leaves the cursor.
func (p *Process) find(pattern *regexp.Regexp) (string, bool, chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.IndexFunc(p.lines, pattern.MatchString); i >= 0 {
		return p.lines[i], true, nil
	}
	return "", false, p.changed
}

// SkipOutput moves WaitLine's cursor behind everything printed so far.
func (p *Process) SkipOutput() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cursor = len(p.lines)
}

// Signal sends a signal; a process that has ended is an error of the test.
func (p *Process) Signal(t T, s syscall.Signal) {
	t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatalf("send %v to %s: %v", s, p.cmd.Args[0], err)
	}
}

// Wait waits for the end and returns the exit status, 128+N for a signal N.
func (p *Process) Wait(t T, within time.Duration) int {
	t.Helper()
	timeout := time.NewTimer(within)
	defer timeout.Stop()
	select {
	case <-p.done:
	case <-timeout.C:
		t.Fatalf("%s: still running after %v", p.cmd.Args[0], within)
	}
	return exitStatus(p.err)
}

func exitStatus(err error) int {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return 0
	}
	if s, ok := exit.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return exit.ExitCode()
}

// Running says whether the process has not ended yet.
func (p *Process) Running() bool {
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Kill ends the process with SIGKILL and waits for it; one that has ended
// already is left alone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}
