package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// spawn is how one process is started.
type spawn struct {
	dir   string
	env   []string
	files []uintptr
	as    *syscall.Credential

	pid   int
	pidfd int // -1 where the kernel has none
}

// start executes a program in a process group of its own, unless ctx is done
// before its turn comes. If it succeeds, the process must be reaped and
// forks.release be called.
func (s *spawn) start(ctx context.Context, path string, argv []string) (err error) {
	catchIgnored()
	s.pidfd = -1
	attr := &syscall.ProcAttr{Dir: s.dir, Env: s.env, Files: s.files, Sys: &syscall.SysProcAttr{
		Setpgid: true, Pdeathsig: syscall.SIGTERM, Credential: s.as, PidFD: &s.pidfd,
	}}
	done := make(chan struct{})
	job := func() {
		defer close(done)
		closeOnExec()
		s.pid, err = syscall.ForkExec(path, argv, attr)
	}
	select {
	case forks.acquire() <- job:
		<-done
	case <-ctx.Done():
		err = fmt.Errorf("its turn to be started did not come in time, this machine is too busy: %w", context.Cause(ctx))
	}
	if err != nil {
		forks.release()
	}
	return err
}

// forker forks on one thread, for as long as there is a process that it forked.
// The kernel ties Pdeathsig to the thread and not to the process, and threads of
// this program end under goroutines that are locked to them.
type forker struct {
	mu   sync.Mutex
	live int // processes, and starts under way
	jobs chan func()
}

var forks forker

// acquire returns where to send what starts a process. Each call wants a release.
func (f *forker) acquire() chan<- func() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live++; f.live == 1 {
		f.jobs = make(chan func())
		// Ends with the last release.
		go fork(f.jobs)
	}
	return f.jobs
}

func (f *forker) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.live--; f.live == 0 {
		close(f.jobs)
	}
}

func fork(jobs <-chan func()) {
	runtime.LockOSThread()
	// A thread that is like no other must end with this goroutine instead.
	if changed := plainPriority(); !changed {
		defer runtime.UnlockOSThread()
	}
	for job := range jobs {
		job()
	}
}

// plainPriority undoes for this thread, and so for scripts, what the daemon did to
// be scheduled before others. It says whether that changed anything.
func plainPriority() (changed bool) {
	// The system call returns 20 minus the nice value.
	if n, err := unix.Getpriority(unix.PRIO_PROCESS, 0); err == nil && n > 20 {
		changed = unix.Setpriority(unix.PRIO_PROCESS, 0, 0) == nil
	}
	if a, err := unix.SchedGetAttr(0, 0); err == nil && (a.Policy == unix.SCHED_FIFO || a.Policy == unix.SCHED_RR) {
		changed = unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}, 0) == nil || changed
	}
	return changed
}

// awaitExit returns once a process can be reaped. With a pidfd, which it closes,
// that takes no thread.
func awaitExit(pid, pidfd int) {
	if pidfd >= 0 {
		_ = unix.SetNonblock(pidfd, true) // for the runtime's poller
		f := os.NewFile(uintptr(pidfd), "pidfd")
		defer f.Close()
		if c, err := f.SyscallConn(); err == nil && c.Read(func(uintptr) bool { return canReap(pid) }) == nil {
			return
		}
	}
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// canReap says whether a process of ours has ended.
func canReap(pid int) bool {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT|unix.WNOHANG, nil)
		if err != unix.EINTR {
			return err != nil || info.Signo != 0
		}
	}
}

// reap takes the status of a process that has ended.
func reap(pid int) (status syscall.WaitStatus) {
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); err != syscall.EINTR {
			return status
		}
	}
}

// explain says why a program could not be executed.
func explain(err error, p program) error {
	var cause syscall.Errno
	if !errors.As(err, &cause) {
		return err
	}
	switch cause {
	case syscall.EACCES:
		if why := denied(p.path, p.as); why != nil {
			return why
		}
		return fmt.Errorf("execute %s as %s: %w; its mode allows it, so look at access control lists, a noexec mount, SELinux or AppArmor, and at the interpreter in its first line", p.path, p.as, cause)
	case syscall.EPERM:
		if p.as.credential() != nil {
			return fmt.Errorf("execute %s as %s: %w; to change the user the daemon needs CAP_SETUID and CAP_SETGID", p.path, p.as, cause)
		}
	case syscall.ENOENT:
		if line := interpreter(p.path); line != "" {
			return fmt.Errorf("execute %s as %s: %w; it is there, so what its first line names is not: %s", p.path, p.as, cause, line)
		}
	case syscall.ENOEXEC:
		return fmt.Errorf("execute %s: %w; it is neither a program for this machine nor a script", p.path, cause)
	}
	return fmt.Errorf("execute %s as %s: %w", p.path, p.as, err)
}
