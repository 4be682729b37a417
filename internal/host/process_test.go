package host

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/sluice-lb/sluice/internal/config"
)

// The settings are of a whole process, so each test has one of its own: this
// binary again, which makes one setting after the other and tells what /proc says
// after each.

const childEnv = "SLUICE_TEST_PROCESS"

// shown is what /proc says.
type shown struct {
	// Threads is each thread's "POLICY PRIORITY NICE CPUS", sorted, each once.
	Threads []string
	// Script is the same of a program started now.
	Script string
	Name   string
	Umask  string
	Locked bool
	Limit  string // soft and hard RLIMIT_RTTIME
	Errors []string
}

// thread reads one thread's proc_pid_stat(5) and its CPUs.
func thread(dir string) string {
	stat, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	f := strings.Fields(rest) // from field 3 on
	return fmt.Sprintf("policy %s rt %s nice %s cpus %s", f[41-3], f[40-3], f[19-3], field(dir+"/status", "Cpus_allowed_list:"))
}

func field(file, name string) string {
	f, err := os.Open(file)
	if err != nil {
		return ""
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		if v, ok := strings.CutPrefix(s.Text(), name); ok {
			return strings.Join(strings.Fields(v), " ")
		}
	}
	return ""
}

func look() (s shown) {
	tasks, _ := os.ReadDir("/proc/self/task")
	for _, e := range tasks {
		if line := thread("/proc/self/task/" + e.Name()); line != "" && !slices.Contains(s.Threads, line) {
			s.Threads = append(s.Threads, line)
		}
	}
	slices.Sort(s.Threads)
	out, _ := exec.Command("sleep", "0").CombinedOutput()
	if cmd := exec.Command("cat"); len(out) == 0 {
		in, _ := cmd.StdinPipe()
		if cmd.Start() == nil {
			s.Script = thread(fmt.Sprintf("/proc/%d", cmd.Process.Pid))
			in.Close()
			_ = cmd.Wait()
		}
	}
	s.Name = field("/proc/self/status", "Name:")
	s.Umask = field("/proc/self/status", "Umask:")
	s.Locked = field("/proc/self/status", "VmLck:") != "0 kB"
	s.Limit = field("/proc/self/limits", "Max realtime timeout")
	return s
}

// TestProcessChild is the other process.
func TestProcessChild(t *testing.T) {
	script := os.Getenv(childEnv)
	if script == "" {
		t.Skip("is a part of other tests")
	}
	var steps []config.Process
	if err := json.Unmarshal([]byte(script), &steps); err != nil {
		t.Fatal(err)
	}
	threads := func() {
		for range 5 {
			started := make(chan bool)
			go func() { runtime.LockOSThread(); close(started); select {} }()
			<-started
		}
	}
	threads()
	var p Process
	out := []shown{look()}
	for _, step := range steps {
		errs := p.Apply(step)
		threads() // which inherit, or have to be found
		var s shown
		for range 100 { // a new thread may turn up in between
			p.again()
			if s = look(); len(s.Threads) == 1 {
				break
			}
		}
		for _, err := range errs {
			s.Errors = append(s.Errors, err.Error())
		}
		out = append(out, s)
	}
	b, _ := json.Marshal(out)
	fmt.Printf("\nSHOWN %s\n", b)
	os.Exit(0) // not through the leak check: the threads are there to stay
}

// child runs steps in a process of its own, of which wrap can take capabilities.
func child(t *testing.T, wrap []string, steps ...config.Process) []shown {
	t.Helper()
	b, err := json.Marshal(steps)
	if err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	args := slices.Concat(wrap, []string{self, "-test.run=^TestProcessChild$"})
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), childEnv+"="+string(b))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, line, _ := strings.Cut(string(out), "\nSHOWN ")
	line, _, _ = strings.Cut(line, "\n")
	var s []shown
	if err := json.Unmarshal([]byte(line), &s); err != nil || len(s) != len(steps)+1 {
		t.Fatalf("%v of\n%s", err, out)
	}
	return s
}

// all checks that every thread is alike.
func all(t *testing.T, s shown, want string) {
	t.Helper()
	if len(s.Threads) != 1 || !strings.Contains(s.Threads[0], want) {
		t.Errorf("threads are %q, want all of them %q", s.Threads, want)
	}
}

func TestProcessNothing(t *testing.T) {
	s := child(t, nil, config.Process{}, config.Process{})
	for i := range s {
		if fmt.Sprint(s[i]) != fmt.Sprint(s[0]) {
			t.Errorf("nothing was asked for, and there is\n%+v\nwhere there was\n%+v", s[i], s[0])
		}
	}
}

func TestProcessNameAndUmask(t *testing.T) {
	s := child(t, nil,
		config.Process{Name: "lb-checker", Umask: 0o137, UmaskSet: true},
		config.Process{Name: "a-name-of-twenty-one-", Umask: 0, UmaskSet: true},
		config.Process{})
	for i, want := range []struct{ name, umask string }{
		{s[0].Name, s[0].Umask}, {"lb-checker", "0137"}, {"a-name-of-twent", "0000"}, {s[0].Name, s[0].Umask},
	} {
		if s[i].Name != want.name || s[i].Umask != want.umask || s[i].Errors != nil {
			t.Errorf("step %d: %q with %q, %q; want %q with %q", i, s[i].Name, s[i].Umask, s[i].Errors, want.name, want.umask)
		}
	}
	if s[0].Name == "lb-checker" || s[0].Umask == "0137" {
		t.Error("there was nothing to change")
	}
}

func TestProcessNice(t *testing.T) {
	s := child(t, nil, config.Process{Nice: 5, NiceSet: true}, config.Process{Nice: 7, NiceSet: true})
	all(t, s[1], " nice 5 ")
	all(t, s[2], " nice 7 ")
	if s[1].Errors != nil || s[2].Errors != nil {
		t.Errorf("errors %q, %q", s[1].Errors, s[2].Errors)
	}
	if !capable(unix.CAP_SYS_NICE) {
		t.Skip("the rest needs CAP_SYS_NICE")
	}
	s = child(t, nil, config.Process{Nice: -7, NiceSet: true}, config.Process{})
	all(t, s[1], "policy 0 rt 0 nice -7 ")
	if !strings.Contains(s[1].Script, " nice 0 ") {
		t.Errorf("a script runs with %q", s[1].Script)
	}
	all(t, s[2], strings.Split(s[0].Threads[0], " cpus")[0])
}

func TestProcessRealTime(t *testing.T) {
	if !capable(unix.CAP_SYS_NICE) {
		t.Skip("needs CAP_SYS_NICE")
	}
	s := child(t, nil,
		config.Process{RealTime: 3, RealTimeLimit: 10 * time.Millisecond, Nice: 2, NiceSet: true},
		config.Process{RealTime: 4, RealTimeLimit: 7 * time.Second},
		config.Process{})
	all(t, s[1], "policy 2 rt 3 ") // 2 is SCHED_RR
	all(t, s[2], "policy 2 rt 4 ")
	for i := 1; i <= 2; i++ {
		if !strings.Contains(s[i].Script, "policy 0 rt 0 nice ") {
			t.Errorf("a script runs with %q", s[i].Script)
		}
		if s[i].Errors != nil {
			t.Errorf("errors %q", s[i].Errors)
		}
	}
	if s[1].Limit != "1000000 unlimited us" || s[2].Limit != "7000000 unlimited us" || s[3].Limit != s[0].Limit {
		t.Errorf("limits are %q, %q and %q after %q", s[1].Limit, s[2].Limit, s[3].Limit, s[0].Limit)
	}
	all(t, s[3], strings.Split(s[0].Threads[0], " cpus")[0])
}

func TestProcessAffinity(t *testing.T) {
	var may unix.CPUSet
	if err := unix.SchedGetaffinity(0, &may); err != nil {
		t.Fatal(err)
	}
	last := -1
	for n := range 1024 {
		if may.IsSet(n) {
			last = n
		}
	}
	s := child(t, nil, config.Process{CPUs: []int{last}}, config.Process{CPUs: []int{1000}}, config.Process{})
	all(t, s[1], fmt.Sprintf(" cpus %d", last))
	if len(s[2].Errors) != 1 || !strings.Contains(s[2].Errors[0], "checker_cpu_affinity: invalid argument; name CPUs that are online") {
		t.Errorf("no such CPU: %q", s[2].Errors)
	}
	if fmt.Sprint(s[3].Threads) != fmt.Sprint(s[0].Threads) || s[3].Errors != nil {
		t.Errorf("taken back: %q, %q; was %q", s[3].Threads, s[3].Errors, s[0].Threads)
	}
}

func TestProcessMemory(t *testing.T) {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &l); err != nil {
		t.Fatal(err)
	}
	if !capable(unix.CAP_IPC_LOCK) && l.Cur != unix.RLIM_INFINITY {
		t.Skip("needs CAP_IPC_LOCK")
	}
	s := child(t, nil, config.Process{NoSwap: true}, config.Process{NoSwap: true}, config.Process{})
	if s[0].Locked || !s[1].Locked || !s[2].Locked || s[3].Locked {
		t.Errorf("locked: %v %v %v %v", s[0].Locked, s[1].Locked, s[2].Locked, s[3].Locked)
	}
}

// TestProcessUnprivileged: what is refused is told with what to do, each time it
// is asked for, and the rest is done.
func TestProcessUnprivileged(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to be somebody else")
	}
	setpriv, err := exec.LookPath("setpriv")
	if err != nil {
		t.Skip("needs setpriv, of util-linux")
	}
	asked := config.Process{Nice: -5, NiceSet: true, RealTime: 2, NoSwap: true, Umask: 0o027, UmaskSet: true}
	wrap := []string{setpriv, "--bounding-set", "-sys_nice,-ipc_lock", "--inh-caps", "-sys_nice,-ipc_lock"}
	s := child(t, wrap, asked, asked, config.Process{})
	for i := 1; i <= 2; i++ {
		text := strings.Join(s[i].Errors, "\n")
		for _, want := range []string{
			"checker_no_swap: operation not permitted: locked memory is limited to ", "CAP_IPC_LOCK",
			"checker_priority -5: operation not permitted; give the daemon CAP_SYS_NICE, or set Nice= in its unit",
			"checker_rt_priority 2: operation not permitted; give the daemon CAP_SYS_NICE",
		} {
			if !strings.Contains(text, want) {
				t.Errorf("step %d: no %q in:\n%s", i, want, text)
			}
		}
		if len(s[i].Errors) != 3 || s[i].Umask != "0027" || s[i].Locked {
			t.Errorf("step %d: %+v", i, s[i])
		}
		if s[i].Limit != s[0].Limit {
			t.Errorf("step %d leaves a limit of %s", i, s[i].Limit)
		}
		all(t, s[i], strings.Split(s[0].Threads[0], " cpus")[0])
	}
	if s[3].Errors != nil || s[3].Umask != s[0].Umask {
		t.Errorf("afterwards: %+v", s[3])
	}
}

// TestProcessGivesUp: at its limit the process loses real time and nothing else.
func TestProcessGivesUp(t *testing.T) {
	p := &Process{now: config.Process{RealTime: 5, RealTimeLimit: 3 * time.Second}}
	ctx, cancel := context.WithCancel(t.Context())
	warned := make(chan error, 2)
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx, func(err error) { warned <- err }) }()
	// The signal counts once Run is ready for it; until then Go ignores it.
	var err error
	for err == nil {
		if kerr := unix.Kill(os.Getpid(), unix.SIGXCPU); kerr != nil {
			t.Fatal(kerr)
		}
		select {
		case err = <-warned:
		case <-time.After(10 * time.Millisecond):
		}
	}
	for _, want := range []string{"checker_rt_priority 5", "for 3s without a pause", "given up"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not say %q", err, want)
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("ended with %v", err)
	}
	if p.giveUp() != nil {
		t.Error("given up twice")
	}

}

// TestEveryThread: a thread that starts while the others are dealt with is dealt
// with too.
func TestEveryThread(t *testing.T) {
	var late int
	end := make(chan struct{})
	defer close(end)
	seen := map[int]int{}
	err := everyThread(func(tid int) error {
		seen[tid]++
		started := make(chan int)
		for late == 0 { // a goroutine may get a thread that is there already
			var had []string
			entries, err := os.ReadDir("/proc/self/task")
			if err != nil {
				return err
			}
			for _, e := range entries {
				had = append(had, e.Name())
			}
			go func() { runtime.LockOSThread(); started <- unix.Gettid(); <-end }()
			if tid := <-started; !slices.Contains(had, strconv.Itoa(tid)) {
				late = tid
			}
		}
		return nil
	})
	if err != nil || seen[late] != 1 {
		t.Errorf("%v; thread %d was dealt with %d times, all: %v", err, late, seen[late], seen)
	}
	if err := everyThread(func(int) error { return unix.ESRCH }); err != nil {
		t.Errorf("threads that have ended: %v", err)
	}
	if err := everyThread(func(int) error { return unix.EPERM }); !errors.Is(err, unix.EPERM) {
		t.Errorf("a refusal: %v", err)
	}
}
