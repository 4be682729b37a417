package script

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
)

// DefaultKillAfter is what a script gets between SIGTERM and SIGKILL, as keepalived
// gives its check scripts (facts 4.13).
const DefaultKillAfter = 2 * time.Second

// stopAfter is what a script gets in place of KillAfter when its context ends:
// whoever ends one does not wait long.
const stopAfter = 500 * time.Millisecond

// outputGrace is how long the end of the output is waited for after the script
// itself has ended.
const outputGrace = 100 * time.Millisecond

// Command is one script to run.
type Command struct {
	Script   *config.Script
	Identity Identity
	// Env is added to the daemon's environment, or what of it scripts may have.
	Env []string
	// Args follow the script's own arguments.
	Args []string
	// Timeout is how long it may run; 0 is for ever.
	Timeout time.Duration
	// KillAfter is what it gets between SIGTERM and SIGKILL; 0 is
	// DefaultKillAfter.
	KillAfter time.Duration
	// Left takes the output of children that outlive the script; nil is one that
	// all such commands share.
	Left *Leftovers
}

// Result is what came of one script.
type Result struct {
	// Err is why it could not be started: not found, refused, no such user, no
	// resources. There is nothing else in the Result then, but Stopped.
	Err error
	// Code is the exit status, -1 if Signal ended it.
	Code   int
	Signal syscall.Signal
	// TimedOut says that Timeout made it end, Stopped that its context or Stop or
	// Kill did; of these the first that happened. Code and Signal then say how it
	// took that.
	TimedOut, Stopped bool
	// Forced says that SIGTERM was not enough, or not tried.
	Forced bool
	// Output is the beginning of what it printed to both of its streams.
	Output string
	// Took is how long it ran: from its exec until it was reaped and its output
	// read.
	Took time.Duration
	// Warnings are things to mend that did not keep it from running.
	Warnings []string
}

// Ended is how a script that was started ended, as in "exit status 3".
func (r Result) Ended() string {
	if r.Signal != 0 {
		return "signal: " + r.Signal.String()
	}
	return fmt.Sprintf("exit status %d", r.Code)
}

// Run runs a script to its end. At the timeout its process group is sent SIGTERM
// and, if that has not ended it after KillAfter, SIGKILL; when ctx is done half a
// second is the most it gets in between. Run returns a moment later at the latest,
// but for a process that even SIGKILL does not end. It leaves no process of the
// group if it had to end it, and never an unreaped one.
func Run(ctx context.Context, c Command) Result {
	if err := ctx.Err(); err != nil {
		return Result{Err: fmt.Errorf("not started: %w", context.Cause(ctx)), Stopped: true}
	}
	p, err := start(ctx, c)
	if err != nil {
		return Result{Err: err, Stopped: ctx.Err() != nil && errors.Is(err, context.Cause(ctx))}
	}
	p.supervise(ctx.Done())
	return p.result
}

// Start starts a script and returns while it runs.
func Start(c Command) (*Process, error) {
	p, err := start(context.Background(), c)
	if err != nil {
		return nil, err
	}
	// Ends with the process.
	go p.supervise(nil)
	return p, nil
}

// Process is a script that was started. Its methods may be called from several
// goroutines.
type Process struct {
	pid       int
	timeout   time.Duration
	killAfter time.Duration
	began     time.Time // the exec
	left      *Leftovers

	pipe   *os.File
	out    output
	read   chan error    // the end of the output
	exited chan struct{} // closed once it can be reaped

	once       [2]sync.Once
	stop, kill chan struct{}
	done       chan struct{}
	result     Result // written before done is closed
}

// PID is the number of the process and of its group.
func (p *Process) PID() int { return p.pid }

// Done is closed once the process has ended and its Result is known.
func (p *Process) Done() <-chan struct{} { return p.done }

// Result waits for the end.
func (p *Process) Result() Result {
	<-p.done
	return p.result
}

// Stop ends the process like a timeout: SIGTERM, then SIGKILL. It does not wait.
func (p *Process) Stop() { p.once[0].Do(func() { close(p.stop) }) }

// Kill ends it with SIGKILL. It does not wait.
func (p *Process) Kill() { p.once[1].Do(func() { close(p.kill) }) }

// start finds, examines and executes a script.
func start(ctx context.Context, c Command) (*Process, error) {
	if c.Script == nil || len(c.Script.Argv) == 0 {
		return nil, errors.New("there is no script to run")
	}
	found, err := examine(c.Script, c.Identity)
	if err != nil {
		return nil, err
	}
	p := &Process{
		timeout: c.Timeout, killAfter: c.KillAfter, left: c.Left,
		read: make(chan error, 1), exited: make(chan struct{}),
		stop: make(chan struct{}), kill: make(chan struct{}), done: make(chan struct{}),
	}
	if p.killAfter <= 0 {
		p.killAfter = DefaultKillAfter
	}
	if p.left == nil {
		p.left = &shared
	}
	for _, w := range found.warnings {
		p.warn(found.path + " runs with root's rights and others can change it: " + w + "; mend the mode or the owner, or run it as another user; enable_script_security would refuse it")
	}
	if err := p.execute(ctx, found, slices.Concat(c.Script.Argv, c.Args), slices.Concat(environment(), c.Env)); err != nil {
		return nil, explain(err, found)
	}
	return p, nil
}

func (p *Process) warn(text string) { p.result.Warnings = append(p.result.Warnings, text) }

// execute starts the process and what watches it.
func (p *Process) execute(ctx context.Context, found program, argv, env []string) error {
	null, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open /dev/null: %w", err)
	}
	defer unix.Close(null)
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	defer unix.Close(ends[1])
	s := spawn{
		dir: "/", env: env, files: []uintptr{uintptr(null), uintptr(ends[1]), uintptr(ends[1])},
		as: found.as.credential(),
	}
	err = s.start(ctx, found.run, argv)
	if errors.Is(err, syscall.ENOEXEC) && isText(found.path) {
		p.warn(found.path + " has no #! line and is given to /bin/sh; write #!/bin/sh into its first line")
		err = s.start(ctx, "/bin/sh", append([]string{"sh", found.run}, argv[1:]...))
	}
	if err != nil {
		unix.Close(ends[0])
		return err
	}
	p.pid, p.began = s.pid, time.Now()
	_ = unix.SetNonblock(ends[0], true)
	p.pipe = os.NewFile(uintptr(ends[0]), "output of "+found.path)
	// Ends with the pipe's last writer, or at the deadline in finish.
	go func() { p.read <- p.out.drain(p.pipe) }()
	// Ends with the process.
	go func() {
		defer close(p.exited)
		awaitExit(s.pid, s.pidfd)
	}()
	return nil
}

// supervise waits for the end of the process, makes it end when its time is over
// or it is told to, and reaps it. Until it is reaped its number, and that of its
// group, cannot mean another.
func (p *Process) supervise(cancelled <-chan struct{}) {
	var limit <-chan time.Time
	timer := time.NewTimer(p.timeout)
	defer timer.Stop()
	if p.timeout > 0 {
		limit = timer.C
	}
	stop, kill, cut := p.stop, p.kill, false
	end := func(why *bool, killAfter time.Duration) {
		// Whoever ended before anything was done to it ended by itself, whatever the
		// clock says: there is one outcome, and this is where it is chosen.
		if cut || canReap(p.pid) {
			return
		}
		cut, *why = true, true
		p.signal(syscall.SIGTERM)
		timer.Reset(killAfter)
		limit = timer.C
	}
	for running := true; running; {
		select {
		case <-p.exited:
			running = false
		case <-limit:
			limit = nil
			if !cut {
				end(&p.result.TimedOut, p.killAfter)
				break
			}
			p.result.Forced = true
			p.signal(syscall.SIGKILL)
		case <-cancelled:
			cancelled = nil
			end(&p.result.Stopped, min(p.killAfter, stopAfter))
		case <-stop:
			stop = nil
			end(&p.result.Stopped, p.killAfter)
		case <-kill:
			kill, limit = nil, nil
			if !cut {
				if canReap(p.pid) {
					break
				}
				cut, p.result.Stopped = true, true
			}
			p.result.Forced = true
			p.signal(syscall.SIGKILL)
		}
	}
	p.finish(cut)
}

// finish makes the result of a process that has ended.
func (p *Process) finish(cut bool) {
	if cut {
		p.signal(syscall.SIGKILL) // what is left of the group without its leader
	}
	status := reap(p.pid)
	forks.release()
	r := &p.result
	if r.Code = status.ExitStatus(); status.Signaled() {
		r.Signal = status.Signal()
	}
	_ = p.pipe.SetReadDeadline(time.Now().Add(outputGrace))
	// The reader may not have had its turn before the deadline.
	if err := <-p.read; errors.Is(err, os.ErrDeadlineExceeded) && !p.out.drained(p.pipe) {
		p.left.add(p.pipe)
	} else {
		p.pipe.Close()
	}
	r.Output = p.out.String()
	r.Took = time.Since(p.began)
	close(p.done)
}

// signal reaches the whole process group.
func (p *Process) signal(sig syscall.Signal) {
	err := syscall.Kill(-p.pid, sig)
	if err == nil || err == syscall.ESRCH {
		return
	}
	w := fmt.Sprintf("%s was refused: %v; the daemon needs CAP_KILL for scripts of other users", unix.SignalName(sig), err)
	if !slices.Contains(p.result.Warnings, w) {
		p.warn(w)
	}
}
