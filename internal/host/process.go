package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
)

const (
	// minRealTimeLimit is the least RLIMIT_RTTIME. keepalived's 10 ms suit a
	// process that sleeps most of the time; the garbage collector may rightfully
	// compute for longer.
	minRealTimeLimit = time.Second

	// tunePeriod is how often new threads are looked for.
	tunePeriod = 5 * time.Second

	// maxName is TASK_COMM_LEN without its NUL.
	maxName = 15
)

// Process changes what config.Process asks of this process, and takes it back
// once it is no longer asked for. The zero Process is ready; it is safe for use by
// several goroutines.
//
// Nice value, real-time priority and CPU affinity belong to threads, of which Go
// starts as many as it likes: each is set on all that there are, again until no
// new one turns up. Nice values below 0 and real time are marked to end at a fork
// (SCHED_RESET_ON_FORK), so that scripts run as everything else does; that holds
// for new threads as well, hence Run. Scripts do inherit the umask, the CPUs and
// a nice value above 0.
//
// Real time comes with a limit on computing without a pause (RLIMIT_RTTIME), at
// least a second. The kernel's own answer would be to kill the process, and with
// it what keeps the table right: instead, Run gives real time up and says so.
type Process struct {
	mu  sync.Mutex
	now config.Process
	was before
	// locked is whether memory is.
	locked bool
	// gave is whether real time was given up; a new configuration may ask again.
	gave bool
}

// before is what there was when the first setting was made.
type before struct {
	name  *string
	umask *int
	nice  *int
	cpus  *unix.CPUSet
	limit *unix.Rlimit // and with it, whether real time is on
}

// Apply makes the settings of p and undoes those of the last call that p has not.
// Each error names a setting that could not be made, why, and what to do; the
// others are made all the same.
func (t *Process) Apply(p config.Process) []error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if p.RealTime != t.now.RealTime {
		t.gave = false
	}
	var errs []error
	try := func(setting string, err error, todo string) {
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w; %s", setting, err, todo))
		}
	}
	try(fmt.Sprintf("umask %04o", p.Umask), t.umask(p), "new files get the mask that there was")
	try("process name "+p.Name, t.name(p), "the process keeps the name that it had")
	try("checker_cpu_affinity", t.affinity(p), "name CPUs that are online and that the daemon's cpuset allows; it runs on those that it had")
	try("checker_no_swap", t.memory(p), "give the daemon CAP_IPC_LOCK (CapabilityBoundingSet= and AmbientCapabilities= of its unit) or LimitMEMLOCK=infinity; it can be swapped out until then")
	try(fmt.Sprintf("checker_priority %d", p.Nice), t.nice(p), niceTodo)
	try(fmt.Sprintf("checker_rt_priority %d", p.RealTime), t.realTime(p), realTimeTodo)
	t.now = p
	return errs
}

const (
	niceTodo     = "give the daemon CAP_SYS_NICE, or set Nice= in its unit; it runs with the nice value that it had"
	realTimeTodo = "give the daemon CAP_SYS_NICE; where the kernel has real-time groups, its cgroup also needs a cpu.rt_runtime_us; it runs without real time"
)

// Run keeps up what Apply has made: it sets what new threads did not inherit, and
// gives real time up when the process has exceeded its limit, which it tells
// through warn. It returns the context's cause.
func (t *Process) Run(ctx context.Context, warn func(error)) error {
	exceeded := make(chan os.Signal, 1)
	signal.Notify(exceeded, unix.SIGXCPU)
	defer signal.Stop(exceeded)
	tick := time.NewTicker(tunePeriod)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
			t.again()
		case <-exceeded:
			if err := t.giveUp(); err != nil {
				warn(err)
			}
		}
	}
}

// again sets what new threads have not inherited. What failed in Apply has been
// told and is not tried again.
func (t *Process) again() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.was.nice != nil && t.now.NiceSet && t.now.Nice < 0 || t.was.limit != nil {
		_ = t.schedule(t.now)
	}
}

func (t *Process) giveUp() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.now.RealTime == 0 || t.gave {
		return nil
	}
	t.gave = true
	err := fmt.Errorf("checker_rt_priority %d: a thread has computed for %v without a pause: real time is given up until the configuration asks for another priority or the daemon is restarted",
		t.now.RealTime, max(t.now.RealTimeLimit, minRealTimeLimit))
	return errors.Join(err, t.schedule(t.now))
}

func (t *Process) umask(p config.Process) error {
	switch {
	case p.UmaskSet:
		old := unix.Umask(int(p.Umask))
		if t.was.umask == nil {
			t.was.umask = &old
		}
	case t.was.umask != nil:
		unix.Umask(*t.was.umask)
		t.was.umask = nil
	}
	return nil
}

// name sets what ps and pidof show: the name of the first thread.
func (t *Process) name(p config.Process) error {
	const comm = "/proc/self/comm"
	want := p.Name
	if want == "" {
		if t.was.name == nil {
			return nil
		}
		want = *t.was.name
	}
	old, err := os.ReadFile(comm)
	if err != nil {
		return err
	}
	if err := os.WriteFile(comm, []byte(want[:min(len(want), maxName)]), 0); err != nil {
		return err
	}
	switch {
	case p.Name == "":
		t.was.name = nil
	case t.was.name == nil:
		t.was.name = new(strings.TrimSuffix(string(old), "\n"))
	}
	return nil
}

func (t *Process) affinity(p config.Process) error {
	var set unix.CPUSet
	switch {
	case len(p.CPUs) > 0:
		for _, n := range p.CPUs {
			set.Set(n)
		}
		if t.was.cpus == nil {
			var old unix.CPUSet
			if err := unix.SchedGetaffinity(0, &old); err != nil {
				return err
			}
			t.was.cpus = &old
		}
	case t.was.cpus != nil:
		set = *t.was.cpus
		t.was.cpus = nil
	default:
		return nil
	}
	return everyThread(func(tid int) error { return unix.SchedSetaffinity(tid, &set) })
}

func (t *Process) memory(p config.Process) error {
	switch {
	case p.NoSwap == t.locked:
		return nil
	case !p.NoSwap:
		t.locked = false
		return unix.Munlockall()
	}
	// With a limit, this call may succeed and a later allocation fail, which ends
	// a Go program.
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		return err
	}
	if l.Cur != unix.RLIM_INFINITY && !capable(unix.CAP_IPC_LOCK) {
		return fmt.Errorf("%w: locked memory is limited to %d bytes", unix.EPERM, l.Cur)
	}
	// ONFAULT: what the runtime has reserved and not used stays out of memory.
	err := unix.Mlockall(unix.MCL_CURRENT | unix.MCL_FUTURE | unix.MCL_ONFAULT)
	t.locked = err == nil
	return err
}

func (t *Process) nice(p config.Process) error {
	switch {
	case p.NiceSet && t.was.nice == nil:
		n, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err != nil {
			return err
		}
		t.was.nice = new(20 - n) // as the system call gives it
	case !p.NiceSet && t.was.nice == nil:
		return nil
	}
	if t.was.limit != nil {
		return nil // realTime does both
	}
	err := t.schedule(config.Process{Nice: p.Nice, NiceSet: p.NiceSet})
	if !p.NiceSet && err == nil {
		t.was.nice = nil
	}
	return err
}

func (t *Process) realTime(p config.Process) error {
	if p.RealTime == 0 && t.was.limit == nil {
		return nil
	}
	if t.was.limit == nil {
		var old unix.Rlimit
		if err := unix.Getrlimit(unix.RLIMIT_RTTIME, &old); err != nil {
			return err
		}
		t.was.limit = &old
	}
	limit := *t.was.limit
	if p.RealTime != 0 {
		limit.Cur = min(uint64(max(p.RealTimeLimit, minRealTimeLimit).Microseconds()), limit.Max)
	}
	// The limit first: there must be no moment of real time without it.
	err := unix.Setrlimit(unix.RLIMIT_RTTIME, &limit)
	if err == nil || p.RealTime == 0 {
		err = errors.Join(err, t.schedule(p))
	}
	if err != nil {
		err = errors.Join(err, unix.Setrlimit(unix.RLIMIT_RTTIME, t.was.limit))
	}
	if p.RealTime == 0 || err != nil {
		t.was.limit = nil
	}
	return err
}

// schedule sets policy, priority and nice value of every thread.
func (t *Process) schedule(p config.Process) error {
	a := unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_NORMAL}
	switch {
	case p.NiceSet:
		a.Nice = int32(p.Nice)
	case t.was.nice != nil:
		a.Nice = int32(*t.was.nice)
	default:
		n, err := unix.Getpriority(unix.PRIO_PROCESS, 0)
		if err != nil {
			return err
		}
		a.Nice = int32(20 - n)
	}
	if p.RealTime != 0 && !t.gave {
		a.Policy, a.Priority = unix.SCHED_RR, uint32(p.RealTime)
	}
	if a.Policy == unix.SCHED_RR || p.NiceSet && p.Nice < 0 {
		a.Flags = unix.SCHED_FLAG_RESET_ON_FORK
	}
	return everyThread(func(tid int) error {
		err := unix.SchedSetAttr(tid, &a, 0)
		if err == nil && a.Policy == unix.SCHED_RR {
			// Kept for the day when real time ends; it counts for nothing until then.
			err = unix.Setpriority(unix.PRIO_PROCESS, tid, int(a.Nice))
		}
		return err
	})
}

// everyThread does something to each thread of this process, until a listing has
// none that it was not done to: a thread may start another before its turn.
func everyThread(f func(tid int) error) error {
	done := make(map[int]bool)
	for range 100 {
		entries, err := os.ReadDir("/proc/self/task")
		if err != nil {
			return err
		}
		found := false
		for _, e := range entries {
			tid, err := strconv.Atoi(e.Name())
			if err != nil || done[tid] {
				continue
			}
			done[tid], found = true, true
			if err := f(tid); err != nil && !errors.Is(err, unix.ESRCH) {
				return err
			}
		}
		if !found {
			return nil
		}
	}
	return errors.New("threads keep starting")
}

// capable tells whether this process has a capability now.
func capable(bit int) bool {
	b, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return false
	}
	mask, ok := effectiveCapabilities(b)
	return ok && mask&(1<<bit) != 0
}
