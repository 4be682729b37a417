package notify

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// outputGrace is how long the end of the output is waited for after the script
// itself has ended.
const outputGrace = 100 * time.Millisecond

// runScript runs one script to its end and logs what came of it.
func (r *Runner) runScript(l life, n Notice) {
	log := r.log.With("event", n.Kind.String(), "vs", n.VS)
	if n.RS != "" {
		log = log.With("rs", n.RS)
	}
	log = log.With("script", strings.Join(n.Script.Argv, " "))
	p, err := examine(n.Script, r.identity())
	if err != nil {
		log.Error("Script is not run", "err", err)
		return
	}
	for _, w := range p.warnings {
		if r.firstTime(p.path + ": " + w) {
			log.Warn("Script runs with root's rights and others can change it", "reason", w, "hint", "mend the mode or the owner, or run it as another user; enable_script_security would refuse it")
		}
	}
	r.execute(l, n, p, log)
}

func (r *Runner) execute(l life, n Notice, p program, log *slog.Logger) {
	// The kernel ties Pdeathsig to this thread. Threads end only under a goroutine
	// that is locked to them, so this one lives at least until the unlock.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()

	begin := time.Now()
	cmd, pipe, err := r.start(n, p, log)
	if err != nil {
		log.Error("Script is not run", "err", explain(err, p))
		return
	}
	out, read := new(output), make(chan error, 1)
	// Ends with the pipe's last writer or at the deadline below.
	go func() {
		_, err := io.Copy(out, pipe)
		read <- err
	}()
	cut := r.supervise(l, cmd.Process.Pid, log)
	err = cmd.Wait()
	_ = pipe.SetReadDeadline(time.Now().Add(outputGrace))
	if readErr := <-read; errors.Is(readErr, os.ErrDeadlineExceeded) {
		_ = pipe.SetReadDeadline(time.Time{})
		r.left.add(pipe)
	} else {
		pipe.Close()
	}

	log = log.With("took", time.Since(begin).Round(time.Millisecond))
	if text := out.String(); text != "" {
		log = log.With("output", text)
	}
	switch {
	case cut != "":
		log.Warn("Script was ended", "reason", cut)
	case err != nil:
		log.Warn("Script failed", "reason", err.Error())
	default:
		log.Debug("Script ended")
	}
}

// start starts the script and returns the end of its output.
func (r *Runner) start(n Notice, p program, log *slog.Logger) (*exec.Cmd, *os.File, error) {
	closeOnExec()
	pr, pw, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	defer pw.Close()
	start := func(path string, args []string) (*exec.Cmd, error) {
		cmd := &exec.Cmd{
			Path: path, Args: args, Env: environment(n), Dir: "/", Stdout: pw, Stderr: pw,
			SysProcAttr: &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM, Credential: p.as.credential()},
		}
		return cmd, cmd.Start()
	}
	cmd, err := start(p.path, n.Script.Argv)
	if errors.Is(err, syscall.ENOEXEC) && isText(p.path) {
		if r.firstTime(p.path + ": no #!") {
			log.Warn("Script has no #! line and is given to /bin/sh", "hint", "write #!/bin/sh into its first line")
		}
		cmd, err = start("/bin/sh", append([]string{"sh", p.path}, n.Script.Argv[1:]...))
	}
	if err != nil {
		pr.Close()
		return nil, nil, err
	}
	return cmd, pr, nil
}

// supervise waits for the end of a process, makes it end when its time is over,
// and says why it had to. The process is then still to be reaped: until it is, its
// number, and that of its group, cannot mean another.
func (r *Runner) supervise(l life, pid int, log *slog.Logger) (cut string) {
	exited := make(chan struct{})
	// Ends with the process, which is killed at the latest when l.hard ends.
	go func() {
		defer close(exited)
		for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
		}
	}()
	kill := func(sig syscall.Signal) {
		if err := syscall.Kill(-pid, sig); err != nil && err != syscall.ESRCH {
			log.Error("Signal to script refused", "signal", sig.String(), "err", err, "hint", "the daemon needs CAP_KILL for scripts of other users")
		}
	}
	limit, allowed, stopping := time.NewTimer(r.timeout), r.timeout, false
	defer limit.Stop()
	for cut == "" {
		select {
		case <-exited:
			return ""
		case <-l.stop:
			l.stop, stopping = nil, true
			allowed = stopScript
			limit.Reset(allowed)
		case <-l.hard:
			cut = "still running when the daemon stopped"
		case <-limit.C:
			if cut = fmt.Sprintf("still running after %v", allowed); stopping {
				cut = fmt.Sprintf("still running %v after the daemon began to stop", allowed)
				break
			}
			kill(syscall.SIGTERM)
			select {
			case <-exited:
			case <-l.hard:
			case <-time.After(r.killAfter):
				cut += fmt.Sprintf(", and SIGTERM did not end it within %v", r.killAfter)
			}
		}
	}
	// Also what is left of the group when its leader has ended.
	kill(syscall.SIGKILL)
	<-exited
	return cut
}

// explain says why the kernel refused an exec.
func explain(err error, p program) error {
	cause := err
	if path := (*fs.PathError)(nil); errors.As(err, &path) {
		cause = path.Err
	}
	switch {
	case errors.Is(err, syscall.EACCES):
		if why := denied(p.path, p.as); why != nil {
			return why
		}
		return fmt.Errorf("execute %s as %s: %w; its mode allows it, so look at access control lists, a noexec mount, SELinux or AppArmor, and at the interpreter in its first line", p.path, p.as, cause)
	case errors.Is(err, syscall.EPERM) && p.as.credential() != nil:
		return fmt.Errorf("execute %s as %s: %w; to change the user the daemon needs CAP_SETUID and CAP_SETGID", p.path, p.as, cause)
	case errors.Is(err, syscall.ENOENT):
		if line := interpreter(p.path); line != "" {
			return fmt.Errorf("execute %s as %s: %w; it is there, so what its first line names is not: %s", p.path, p.as, cause, line)
		}
	case errors.Is(err, syscall.ENOEXEC):
		return fmt.Errorf("execute %s: %w; it is neither a program for this machine nor a script", p.path, cause)
	}
	return fmt.Errorf("execute %s as %s: %w", p.path, p.as, cause)
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

// withheld are the variables of the daemon that scripts do not get.
var withheld = []string{"IFS=", "LD_PRELOAD=", "LD_LIBRARY_PATH=", "NOTIFY_SOCKET=", "WATCHDOG_", "SLUICED_", "SLUICE_EVENT=", "SLUICE_VS=", "SLUICE_RS="}

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
